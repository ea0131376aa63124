"""The demo's library: what the running Python says of its own standard library, cut into passages.

Every importable module is imported and its docstrings are read: nothing is shipped, nothing is recorded in
advance, and another Python version gives another corpus.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import pkgutil
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

PASSAGE_CHARS = 700
"""A passage ends with the paragraph that reaches this length."""

# Not a library to look things up in, or with an effect when imported (a browser, a window, a poem).
_LEFT_OUT = frozenset(
    {
        "antigravity",
        "this",
        "idlelib",
        "turtle",
        "turtledemo",
        "test",
        "lib2to3",
        "ensurepip",
        "pydoc_data",
        "__main__",
    }
)


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of documentation.

    Attributes:
        symbol: what it documents, by its full name ("subprocess.run").
        text: its name, signature and a run of its docstring's paragraphs.
    """

    symbol: str
    text: str


def passages() -> list[Passage]:
    """The whole corpus, in a fixed order; each text once."""
    seen: set[tuple[str, str]] = set()
    found: list[Passage] = []
    with warnings.catch_warnings():  # looking at what is deprecated warns, too
        warnings.simplefilter("ignore")
        for passage in (passage for module in modules() for passage in _of_module(module)):
            # The same thing under two names (asyncio.wait_for, asyncio.tasks.wait_for) is one.
            key = passage.symbol.rpartition(".")[2], passage.text.partition("\n\n")[2]
            if key not in seen:
                seen.add(key)
                found.append(passage)
    return found


def modules() -> Iterator[ModuleType]:
    """The public modules of the standard library that can be imported here, packages' members included."""
    for name in sorted(sys.stdlib_module_names - _LEFT_OUT):
        if name.startswith("_"):
            continue
        module = _imported(name)
        if module is None:
            continue
        yield module
        for inner in sorted(m.name for m in pkgutil.iter_modules(getattr(module, "__path__", ()))):
            if not inner.startswith("_") and inner != "tests" and (sub := _imported(f"{name}.{inner}")):
                yield sub


def _imported(name: str) -> ModuleType | None:
    # Some modules print or warn when imported, and platform-specific ones fail: neither is of interest.
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except Exception:
            return None


def _of_module(module: ModuleType) -> Iterator[Passage]:
    yield from _cut(module.__name__, "", _doc(module))
    for name, member in sorted(vars(module).items()):
        if name.startswith("_") or not _documented_here(module, member):
            continue
        symbol = f"{module.__name__}.{name}"
        yield from _cut(symbol, _signature(member), _doc(member))
        if inspect.isclass(member):
            for method, function in sorted(vars(member).items()):
                if not method.startswith("_") and callable(getattr(member, method, None)):
                    plain = inspect.unwrap(getattr(function, "__func__", function))
                    yield from _cut(f"{symbol}.{method}", _signature(plain), _doc(plain))


def _documented_here(module: ModuleType, member: object) -> bool:
    if not (inspect.isclass(member) or inspect.isroutine(member)):
        return False
    home = getattr(member, "__module__", None) or ""
    if home in (module.__name__, f"_{module.__name__}"):
        return True
    # `heapq.heappush` says that it lives in `_heapq`, `asyncio.wait_for` in `asyncio.tasks`: the public name
    # is the one to give.
    inside = home.startswith(("_", f"{module.__name__}.")) or home in ("", "posix", "nt", "builtins")
    return inside and getattr(member, "__name__", "") in (getattr(module, "__all__", None) or ())


def _doc(thing: object) -> str:
    try:
        return inspect.cleandoc(getattr(thing, "__doc__", None) or "")
    except Exception:
        return ""


def _signature(thing: object) -> str:
    try:
        return str(inspect.signature(thing))[:200]  # type: ignore[arg-type]
    except Exception:  # some C functions carry a signature that cannot be read
        return "(...)" if callable(thing) else ""


def _cut(symbol: str, signature: str, doc: str) -> Iterator[Passage]:
    part: list[str] = []
    for paragraph in filter(None, (p.strip("\n") for p in doc.split("\n\n"))):
        part.append(paragraph)
        if sum(map(len, part)) >= PASSAGE_CHARS:
            yield Passage(symbol, f"{symbol}{signature}\n\n" + "\n\n".join(part))
            part = []
    if part:
        yield Passage(symbol, f"{symbol}{signature}\n\n" + "\n\n".join(part))
