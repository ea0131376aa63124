"""What tests share: a home of their own, the installed command, and real traces where there are any."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from afterpass.core import keys
from afterpass.core.paths import Home
from afterpass.core.types import DueGroup, KeptItem


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the developer's reaches a test, and no test reaches the developer's home.

    The cache stays the user's: the default models are prepared there once per machine.
    """
    for name in list(os.environ):
        if name.startswith("AFTERPASS_") and name not in ("AFTERPASS_CACHE", "AFTERPASS_TRACES"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AFTERPASS_HOME", str(tmp_path / "home"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty home in the test's own folder; `AFTERPASS_HOME` names it, for subprocesses too."""
    root = tmp_path / "home"
    root.mkdir(exist_ok=True)
    return Home(root)


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of real agent traces that `AFTERPASS_TRACES` names; skips where there is none."""
    folder = Path(os.environ.get("AFTERPASS_TRACES", ""))
    if not os.environ.get("AFTERPASS_TRACES") or not folder.is_dir():
        pytest.skip("AFTERPASS_TRACES names no folder of traces")
    return folder


@pytest.fixture(scope="session")
def no_models() -> str:
    """A configuration that scores by words and quotes instead of summarising: nothing to load."""
    return """
[rerank.models.words]
model = "lexical"
[summarize.models.quotes]
model = "extractive"
[policy.default.rerank]
model = "words"
[policy.default.summarize]
model = "quotes"
"""


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it said."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The last line of stdout, read as JSON."""
        return json.loads(self.stdout.strip().rpartition("\n")[2])

    @property
    def all(self) -> str:
        """stdout and stderr, for messages."""
        return f"{self.stdout}\n{self.stderr}"


def command(*arguments: str | os.PathLike[str]) -> list[str]:
    """The command line of the installed `afterpass`, for tests that need their own Popen."""
    return [str(Path(sys.executable).parent / "afterpass"), *map(os.fspath, arguments)]


@pytest.fixture
def afterpass_command() -> Callable[..., list[str]]:
    """`command`, as a fixture."""
    return command


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Ran]:
    """Call the installed command in a process of its own: `run("status", "--json")` -> `Ran`.

    Keywords: `stdin` (str or bytes), `env` (added to the environment; None removes), `cwd`, `timeout` in
    seconds, `under`, a command that starts it, and `code`, the exit code to insist on (None: any).
    """

    def call(
        *arguments: str | os.PathLike[str],
        stdin: str | bytes | None = None,
        env: dict[str, str | None] | None = None,
        cwd: Path | None = None,
        timeout: float = 120,
        under: Sequence[str] = (),
        code: int | None = None,
    ) -> Ran:
        environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120", **(env or {})}
        done = subprocess.run(
            [*under, *command(*arguments)],
            input=stdin.encode("utf-8", "surrogatepass") if isinstance(stdin, str) else (stdin or b""),
            capture_output=True,
            env={name: value for name, value in environment.items() if value is not None},
            cwd=cwd or tmp_path,
            timeout=timeout,
        )
        ran = Ran(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
        assert code is None or ran.code == code, f"exit {ran.code}, not {code}: {ran.all}"
        return ran

    return call


@pytest.fixture(scope="session")
def group_of() -> Callable[..., tuple[DueGroup, list[KeptItem]]]:
    """A judged group and its kept items, best first: `group_of("one text", "another", query="...")`."""

    def make(*texts: str, query: str = "What is known of it?") -> tuple[DueGroup, list[KeptItem]]:
        kept = [
            KeptItem(
                seq=number,
                item_id=keys.given_item_id("default", f"{number}:{text[:100]}"),
                text_hash=keys.content_hash(text),
                text=text,
                rank=number,
                logit=1.0,
                excerpt_start=0,
                excerpt_end=min(len(text), 600),
            )
            for number, text in enumerate(texts, start=1)
        ]
        group = DueGroup(
            namespace="default",
            group_id=keys.group_id("default", "group", query, "default"),
            name="group",
            query=query,
            query_hash=keys.content_hash(query),
            policy="default",
            items=len(kept),
            chars=sum(map(len, texts)),
            last_seq=len(kept),
            judged_seq=len(kept),
        )
        return group, kept

    return make
