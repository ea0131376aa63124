"""The documentation is true: generated pages are current, every block runs, every link leads somewhere.

Blocks marked `sh`, `python`, `sql` and `toml` are run or read here, page by page and in order, in a home
of their own and with the engines that need no model. Set-up commands are marked `console` and are not run;
their `afterpass` commands are parsed, like those in crontabs, unit files, running text and helps' examples.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import afterpass
from afterpass.core import config

ROOT = Path(afterpass.__file__).parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
RUN = ("sh", "python", "sql")
NOT_RUN = ("cli.md", "design.md")  # the helps' examples, parsed by another test; outlines
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
SELECT = """
import duckdb, sys
from afterpass import Home
print(duckdb.connect(str(Home.at().ledger), read_only=True).sql(sys.argv[1]))
"""


def blocks(page: Path, *kinds: str) -> list[tuple[str, str]]:
    """(kind, text) of the fenced blocks of a page, in order."""
    return [(kind, text) for kind, text in BLOCK.findall(page.read_text("utf-8")) if kind in kinds]


def load_generator() -> ModuleType:
    """docs/generate.py, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = load_generator()


def commands() -> dict[str, Any]:
    return dict(GENERATE.commands())


def test_generated_pages_are_current() -> None:
    stale = [path.name for path, text in GENERATE.pages().items() if path.read_text("utf-8") != text]
    assert stale == [], "run `make docs`"


def test_every_command_is_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    for name, command in commands().items():
        assert f"\n## {name}\n" in page
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        for parameter in command.params:
            for option in (*parameter.opts, *parameter.secondary_opts):
                assert not option.startswith("--") or option == "--help" or f"`{option}" in section, name
        assert (command.help or "").strip(), f"{name} says nothing of itself"


def test_every_command_shows_examples() -> None:
    """Its own, or for the commands of a group the group's."""
    known = commands()
    groups = {name.rpartition(" ")[0] for name in known}
    with_examples = {name for name, command in known.items() if command.epilog}
    silent = [name for name in known if not {name, name.rpartition(" ")[0]} & with_examples]
    assert [name for name in silent if name not in groups] == []


# ------------------------------------------------------------------------- commands that are shown


def shown_commands() -> Iterator[tuple[str, str]]:
    """(where, command line) of every `afterpass ...` that the pages and the helps show."""
    for page in PAGES:
        text = page.read_text("utf-8")
        for _, block in BLOCK.findall(text) if page.name not in NOT_RUN else ():
            for line in block.replace("\\\n", " ").splitlines():
                found = re.search(r"(?:^|[\s/|=$])afterpass ([a-z].*)", line.partition(" # ")[0])
                if found and not line.strip().startswith(("from ", "import ", "#", "User=", "Description=")):
                    yield page.name, found[1]
        for inline in re.findall(r"`afterpass ([a-z][^`]*)`", BLOCK.sub("", text)):
            yield page.name, inline
    for name, command in commands().items():
        for line in (GENERATE.plain(command.epilog or "")).splitlines():
            if found := re.search(r"(?:^|[\s|])afterpass ([a-z].*)", line):
                yield f"{name} --help", found[1]


def parse(line: str) -> None:
    """Parse a command line as the program would, without running it; placeholders such as NAME are values."""
    line = re.split(r"\s(?:\||│|>|>>|<|&&|;|2>)\s?", line)[0].replace("...", "")
    words = shlex.split(line, comments=True)
    known = commands()
    depth = 2 if " ".join(words[:2]) in known else 1
    name = " ".join(words[:depth])
    assert name in known, f"there is no command `afterpass {name}`"
    rest = words[depth:]
    if rest == [] or name in {one.rpartition(" ")[0] for one in known}:
        return  # named, not called
    with known[name].make_context(name, rest):
        pass


def test_the_commands_shown_exist() -> None:
    wrong = []
    for where, line in shown_commands():
        if "|" in line and re.search(
            r"\b\w+\|\w+", line
        ):  # `models pull|list|check`: alternatives, not a pipe
            continue
        try:
            parse(line)
        except Exception as error:
            wrong.append(f"{where}: afterpass {line}: {getattr(error, 'message', error)}")
    assert wrong == []


# ------------------------------------------------------------------------------- blocks that are run


@pytest.fixture
def place(tmp_path: Path, no_models: str) -> Path:
    """A folder with what the pages speak of: results of an agent, a configuration without models."""
    questions = {
        "How is a child process stopped?": ["Popen.kill() stops the child.", "time.sleep() suspends."],
        "How is a file copied?": ["shutil.copy() copies a file.", "math.sqrt() gives the square root."],
    }
    rows = [{"question": query, "output": text} for query, texts in questions.items() for text in texts]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "no-models.toml").write_text(no_models)
    return tmp_path


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in NOT_RUN and blocks(page, *RUN)], ids=lambda p: p.stem
)
@pytest.mark.timeout(300)
def test_the_blocks_run(page: Path, place: Path) -> None:
    environment = {
        **os.environ,
        "AFTERPASS_HOME": str(place / "home"),
        "AFTERPASS_CONFIG": str(place / "no-models.toml"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "NO_COLOR": "1",
    }

    def execute(kind: str, text: str) -> None:
        words = {
            "sh": ["bash", "-eu", "-o", "pipefail", "-c"],
            "python": [sys.executable, "-c"],
            "sql": [sys.executable, "-c", SELECT],
        }
        command = [*words[kind], text]
        done = subprocess.run(
            command,
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{page.name}, {kind}:\n{text}\n{done.stdout}{done.stderr}"

    if page.name != "README.md":  # the README starts from nothing; the other pages speak of a home in use
        execute("sh", "afterpass import results.jsonl --map text=output --map query=question")
        execute("sh", "afterpass sweep --now")
    for kind, text in blocks(page, *RUN):
        execute(kind, text)


@pytest.mark.parametrize(
    ("page", "text"),
    [(page.name, text) for page in PAGES if page.name not in NOT_RUN for _, text in blocks(page, "toml")]
    + [(file.name, file.read_text("utf-8")) for file in sorted((ROOT / "configs").glob("*.toml"))],
)
def test_the_configurations_are_valid(page: str, text: str) -> None:
    config.parse(tomllib.loads(text), source=page)


def test_every_key_is_explained() -> None:
    silent = [
        f"{model.__name__}.{name}"
        for model, _ in GENERATE.sections()
        for name in model.model_fields
        if not GENERATE.attribute_docs(model).get(name)
    ]
    assert silent == []


# -------------------------------------------------------------------------------------------- links


def test_links_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", page.read_text("utf-8"))):
            if "://" in target:
                continue
            name, _, anchor = target.partition("#")
            file = (page.parent / name).resolve() if name else page
            if not file.exists():
                broken.append(f"{page.name}: {target}")
            elif anchor and anchor not in anchors(file):
                broken.append(f"{page.name}: {target}: no such heading")
    assert broken == []


def anchors(page: Path) -> set[str]:
    """The anchors that headings get."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text("utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
