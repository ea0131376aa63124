"""The demo with the small engines: a kill, a resumption, and figures that come out of the ledger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SMALL = """
[rerank.models.small]
model = "lexical"
[summarize.models.small]
model = "extractive"
[policy.default.rerank]
model = "small"
[policy.default.summarize]
model = "small"
"""


@pytest.mark.slow
def test_the_demo_from_end_to_end(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    demo = run("demo", "--json", "--home", tmp_path / "d", "--config", "small.toml", timeout=600, code=0)
    said = demo.json
    assert said["version"] == 1
    items = said["items"]
    assert (
        items["seen"] == items["kept"] + items["dropped"] + items["errors"] == sum(said["recorded"].values())
    )
    assert (said["groups"]["judged"], said["groups"]["summarised"], said["errors"]) == (20, 20, 0)
    assert 0 <= said["answers_kept_bm25"] <= said["answers_found"] <= 20
    assert 0 <= said["answers_kept"] <= said["answers_found"]
    assert said["killed"]
    assert said["home"] == str(tmp_path / "d")
    assert "kill -9 after" in demo.stderr
    assert "The receipt" in demo.stderr
    assert demo.stderr.count("== ") == 26  # plan, two sweeps, 20 questions, figures, receipt, what next
    again = run("sweep", "--home", said["home"], "--config", "small.toml", "--json", code=0).json
    assert (again["outcome"], again["models"]) == ("nothing_due", {})


def test_the_library_holds_an_answer_to_each_question() -> None:
    from afterpass.cli.demo.corpus import passages
    from afterpass.cli.demo.questions import questions

    library = passages()
    assert len(library) > 3000
    assert len({passage.text for passage in library}) == len(library)
    symbols = {passage.symbol for passage in library}
    asked = questions()
    assert len(asked) == 20
    assert [q.text for q in asked if not q.answers & symbols] == []
