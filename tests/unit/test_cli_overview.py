"""The overview of commands, each one's help, and that asking for help loads nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from afterpass.cli import progress
from afterpass.cli.main import ENTRIES, app
from afterpass.cli.progress import Style


def commands() -> Iterator[tuple[str, Any]]:
    root = typer.main.get_command(app)
    context = root.make_context("afterpass", [], resilient_parsing=True)

    def walk(prefix: str, group: Any) -> Iterator[tuple[str, Any]]:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            yield f"{prefix}{name}", command
            if hasattr(command, "list_commands"):
                yield from walk(f"{prefix}{name} ", command)

    yield from walk("", root)


ALL = dict(commands())


def test_the_overview_says_what_the_commands_say_of_themselves() -> None:
    for name, entry in ENTRIES.items():
        assert (ALL[name].help or "").partition("\n\n")[0] == entry.help, name


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_examples_and_every_option_says_what_it_does(name: str) -> None:
    command = ALL[name]
    assert "Examples" in (command.epilog or "")
    assert "afterpass" in command.epilog
    for option in command.params:
        assert getattr(option, "help", None), (name, option.name)


@pytest.mark.parametrize(
    "name", [name for name, command in ALL.items() if not hasattr(command, "list_commands")]
)
def test_commands_that_show_data_have_json_and_a_home(name: str) -> None:
    options = {one for parameter in ALL[name].params for one in parameter.opts}
    assert "--home" in options
    assert "--json" in options or name == "label"  # a conversation


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\nfrom afterpass.cli.main import main\nsys.argv = ['afterpass', '--help']\n"
        "try: main()\nexcept SystemExit as end: code = end.code\n"
        "heavy = {'duckdb', 'pyarrow', 'pydantic', 'torch', 'vllm', 'numpy', 'bm25s', 'jmespath'}\n"
        "print(code, sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_progress_in_lines_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    for style in (Style.LINES, Style.JSON, Style.NONE):
        drawn = progress.progress(style)
        drawn.phase("scoring", 10, "pairs")
        drawn.phase("scoring", 20, "pairs")  # the same phase, found to be larger
        drawn.advance(5, tokens_per_s=7.0)
        drawn.phase("loading", None, "model")
        drawn.note("something")
        drawn.finish()
    lines, said = [], capsys.readouterr()
    lines = said.err.splitlines()
    assert said.out == ""
    assert [line.split(" in ")[0].split(" took ")[0] for line in lines[:3]] == [
        "scoring 5 pairs", "something", "loading model",
    ]  # fmt: skip
    assert lines[3] == '{"event": "phase", "name": "scoring", "total": 10, "unit": "pairs"}'
    assert lines[-1] == '{"event": "finish"}'


def test_bars_go_on_where_a_phase_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    bars = progress.Bars()
    bars.phase("scoring", 10, "pairs")
    bars.phase("loading", None, "model")
    bars.phase("scoring", 20, "pairs")
    bars.advance(20)
    bars.finish()
    told = [(task.description, task.completed, task.total) for task in bars._drawing.tasks]
    assert told == [("scoring", 20, 20), ("loading", 1, 1)]


def test_completion_knows_commands_and_options() -> None:
    def completed(words: str) -> set[str]:
        environment = {
            **os.environ, "_AFTERPASS_COMPLETE": "complete_bash", "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }  # fmt: skip
        command = Path(sys.executable).parent / "afterpass"
        done = subprocess.run([command], env=environment, capture_output=True, text=True, check=False)
        return set(done.stdout.split())

    assert completed("afterpass s") == {"sweep", "summaries", "status"}
    assert {"--now", "--no-summaries"} <= completed("afterpass sweep --n")
    assert completed("afterpass quarantine d") == {"drop"}
