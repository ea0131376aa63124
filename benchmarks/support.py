"""How well the source check tells true points from false ones.

    python benchmarks/support.py --json                # the shipped scorer; points of this file
    python benchmarks/support.py --json --engine       # and points that the embedded language model writes

Each point below is true of one docstring of the standard library and says so in other words. It is scored
against its own source, and the same point is made false four ways: a negation put in, a number changed, a
name exchanged, or held against the source of another point. AUROC is that of true over false, first by the
cross-encoder's logit alone, then with what `facts` marks put below everything else. False alarms are true
points that the default threshold, or a mark, would hold back. `kept`: the share of a model's own points that
passes. Relevance is not entailment: that a negation is not seen is the expected result.

The last line is one JSON object:
`{"auroc": {KIND: {"logit", "checked"}}, "false_alarms": {...}, "kept": {MODEL: {...}}, ...}`.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import random
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from afterpass import rerank, summarize
from afterpass.core import keys
from afterpass.core.config import ScorerConfig, SummarizePolicy, SummarizerConfig
from afterpass.core.types import DueGroup, KeptItem, Pair, Prompt, Reply, Score
from afterpass.summarize.facts import unsourced
from afterpass.sweep.engine_process import EngineProcess

POINTS: tuple[tuple[str, str], ...] = (
    ("shutil.rmtree", "rmtree deletes a directory and everything below it."),
    ("shutil.copytree", "copytree copies a whole directory and returns where it put the copy."),
    ("shutil.move", "move takes a file or directory to another place, across filesystems too."),
    ("shutil.which", "which returns the path of the file that a command would run, or None."),
    ("shutil.disk_usage", "disk_usage tells the total, used and free space in bytes."),
    ("shutil.make_archive", "make_archive packs a folder as zip or tar and returns the archive's name."),
    ("os.makedirs", "makedirs also makes the folders on the way to the last one."),
    ("os.replace", "replace renames a file and overwrites the destination."),
    ("os.walk", "walk yields the path, the folder names and the file names for each directory of a tree."),
    ("os.cpu_count", "cpu_count gives the number of processors, or None if it is not known."),
    ("os.urandom", "urandom gives random bytes that are fit for cryptography."),
    ("os.path.commonpath", "commonpath returns the longest sub-path that all the given paths share."),
    ("os.path.join", "join puts path components together with slashes as needed."),
    ("heapq.nlargest", "nlargest finds the n biggest elements of a dataset."),
    ("heapq.heappush", "heappush adds an item and keeps the heap in order."),
    ("heapq.merge", "merge joins several sorted inputs into one sorted output without loading them all."),
    ("bisect.bisect_left", "bisect_left tells where to insert x so that the list stays sorted."),
    ("collections.Counter", "Counter counts hashable items and keeps the counts as dictionary values."),
    ("collections.Counter.most_common", "most_common lists the n commonest elements with their counts."),
    ("collections.OrderedDict.move_to_end", "move_to_end moves an existing element to the end of the dict."),
    ("collections.namedtuple", "namedtuple makes a tuple class whose fields have names."),
    ("itertools.combinations", "combinations gives successive r-length selections of elements."),
    ("itertools.groupby", "groupby yields consecutive keys and groups of the iterable."),
    ("itertools.chain", "chain takes elements from the first iterable until it ends, then from the next."),
    ("functools.lru_cache", "lru_cache remembers results, as many as maxsize says, or all with None."),
    ("functools.reduce", "reduce applies a function of two arguments from left to right to one value."),
    ("functools.partial", "partial makes a new function with some arguments already given."),
    ("functools.wraps", "wraps is a decorator factory that applies update_wrapper."),
    ("datetime.timedelta.total_seconds", "total_seconds gives the length of the duration in seconds."),
    ("datetime.datetime.strptime", "strptime parses a string by a format into a datetime."),
    ("datetime.date.fromisoformat", "fromisoformat makes a date from a string in ISO 8601 format."),
    ("datetime.datetime.astimezone", "astimezone converts to local time in a new timezone."),
    ("time.perf_counter", "perf_counter is a performance counter for benchmarking."),
    ("time.sleep", "sleep delays execution for a number of seconds, fractions allowed."),
    ("random.sample", "sample picks k different elements without replacement."),
    ("random.shuffle", "shuffle reorders a list in place and returns None."),
    ("random.choices", "choices picks k elements with replacement, with weights if wanted."),
    ("math.isclose", "isclose tells whether two floats are near each other in value."),
    ("math.gcd", "gcd finds the greatest common divisor."),
    ("statistics.median", "median returns the middle value, or the mean of the two middle ones."),
    ("statistics.quantiles", "quantiles divides data into n intervals of equal probability."),
    ("json.dumps", "dumps serialises an object to a string in JSON format."),
    ("json.loads", "loads turns a str or bytes with a JSON document into Python objects."),
    ("csv.DictReader", "DictReader gives each row as a dictionary."),
    ("re.sub", "sub replaces the leftmost matches of a pattern that do not overlap."),
    ("re.fullmatch", "fullmatch matches only if the whole string fits the pattern."),
    ("re.escape", "escape puts backslashes before the special characters in a string."),
    ("hashlib.file_digest", "file_digest hashes the contents of an open file object."),
    ("hmac.compare_digest", "compare_digest compares in a way that prevents timing analysis."),
    ("secrets.token_hex", "token_hex returns a random text string in hexadecimal."),
    ("subprocess.run", "run executes a command, waits for it, and returns a CompletedProcess."),
    ("subprocess.check_output", "check_output runs a command and returns what it printed."),
    (
        "subprocess.Popen.communicate",
        "communicate sends data to the process and reads its output to the end.",
    ),
    ("tempfile.NamedTemporaryFile", "NamedTemporaryFile makes a temporary file that has a name."),
    ("tempfile.mkdtemp", "mkdtemp makes a temporary directory that its owner alone can use."),
    ("threading.Thread.join", "join waits until the thread has ended, or the timeout is over."),
    ("threading.Event.wait", "wait blocks until the internal flag is true or the timeout is over."),
    ("queue.Queue.get", "get removes an item and returns it, waiting where there is none."),
    ("concurrent.futures.as_completed", "as_completed yields futures as they finish."),
    ("asyncio.gather", "gather collects the results of several awaitables."),
    ("asyncio.wait_for", "wait_for cancels the task when the timeout passes and raises TimeoutError."),
    ("asyncio.run", "run executes a coroutine and returns its result."),
    ("textwrap.dedent", "dedent takes away the white space that all lines start with."),
    ("textwrap.shorten", "shorten cuts a text to fit in a given width."),
    ("difflib.get_close_matches", "get_close_matches lists the best matches that are good enough."),
    ("difflib.unified_diff", "unified_diff compares two lists of lines as a unified diff."),
    ("fnmatch.fnmatch", "fnmatch tests whether a filename fits a pattern."),
    ("glob.glob", "glob lists the paths that match a pattern."),
    (
        "zipfile.ZipFile.extractall",
        "extractall takes all members of the archive out into the working directory.",
    ),
    ("sqlite3.connect", "connect opens a connection to an SQLite database file."),
    ("urllib.parse.urlsplit", "urlsplit splits a URL into 5 components."),
    ("urllib.parse.quote", "quote replaces special characters in a URL with %xx escapes."),
    ("html.escape", "escape turns &, < and > into sequences that are safe for HTML."),
    ("ipaddress.ip_network", "ip_network makes an IPv4 or IPv6 network object from a string or an int."),
    ("uuid.uuid4", "uuid4 makes a random UUID."),
    ("inspect.signature", "signature gives the Signature object of a callable."),
    ("contextlib.suppress", "suppress is a context manager that swallows the exceptions named."),
    ("contextlib.contextmanager", "contextmanager turns a generator function into a context manager."),
    ("dataclasses.replace", "replace makes a new object with the fields given changed."),
    ("copy.deepcopy", "deepcopy copies arbitrary Python objects all the way down."),
    ("pprint.pformat", "pformat formats a Python object into a pretty-printed representation."),
    ("argparse.ArgumentParser", "ArgumentParser parses command line strings into Python objects."),
    ("logging.basicConfig", "basicConfig does the basic setup of the logging system."),
    ("base64.b64encode", "b64encode encodes bytes with Base64."),
    ("struct.pack", "pack puts values into bytes by a format string."),
    ("signal.signal", "signal sets the action to be taken when a signal arrives."),
    ("socket.create_connection", "create_connection connects to an address and returns the socket."),
    (
        "unittest.mock.patch",
        "patch replaces the target with a new object inside a function or with statement.",
    ),
    (
        "calendar.monthrange",
        "monthrange gives the weekday of the first day and the number of days of a month.",
    ),
    ("decimal.Decimal.quantize", "quantize rounds a Decimal to the exponent of the second operand."),
)

NEGATIONS = (
    (r"\bis\b", "is not"),
    (r"\bonly\b", "not only"),
    (r"\b(returns|gives|tells|makes|finds|takes|lists|yields|picks|puts|adds|copies|deletes)\b", r"never \1"),
    (r"^(\S+) (\w+s)\b", r"\1 never \2"),
)
NUMBERS = ("2", "7", "12", "100", "4096")


def negated(point: str) -> str:
    """The point with a negation in it."""
    for pattern, put in NEGATIONS:
        changed, count = re.subn(pattern, put, point, count=1)
        if count:
            return changed
    return "It is not true that " + point


def renumbered(point: str, chance: random.Random) -> str:
    """The point with another number, or with one where it had none."""
    number = chance.choice(NUMBERS)
    if re.search(r"\d+", point):
        return re.sub(r"\d+", lambda match: str(int(match[0]) + int(number)), point, count=1)
    return point.rstrip(".") + f", {number} at a time."


def renamed(point: str, other: str) -> str:
    """The point about another function."""
    return other.split(".")[-1] + " " + point.partition(" ")[2]


def source_of(name: str) -> str | None:
    """The docstring with its name on top, as an agent would bring it; None where this Python has none."""
    parts = name.split(".")
    for at in range(len(parts) - 1, 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:at]))
            for part in parts[at:]:
                value = getattr(value, part)
        except (ImportError, AttributeError):
            continue
        text = inspect.getdoc(value)
        return f"{name}\n{text}" if text else None
    return None


def auroc(true: Sequence[float], false: Sequence[float]) -> float:
    """The chance that a true point stands above a false one; ties count half."""
    wins = sum((one > other) + 0.5 * (one == other) for one in true for other in false)
    return wins / (len(true) * len(false))


def scored(scorer: Any, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Logits of (point, source) pairs, in order."""
    unique = {
        (keys.content_hash(point), keys.content_hash(text)): Pair(
            keys.content_hash(point), keys.content_hash(text), point, text
        )
        for point, text in pairs
    }
    found: dict[Any, Score] = {}
    todo = list(unique.values())
    while todo or scorer.pending:
        while todo and scorer.room:
            scorer.submit(todo.pop())
        found |= {(score.query_hash, score.text_hash): score for score in scorer.step()}
    logits = [found[keys.content_hash(point), keys.content_hash(text)].logit for point, text in pairs]
    return [-99.0 if logit is None else logit for logit in logits]


def measure(scorer: Any, threshold: float, seed: int) -> dict[str, Any]:
    """AUROC and alarms over this file's points."""
    chance = random.Random(seed)
    known = [(name, point, text) for name, point in POINTS if (text := source_of(name))]
    others = known[7:] + known[:7]
    kinds: dict[str, list[tuple[str, str]]] = {
        "true": [(point, text) for _, point, text in known],
        "negation": [(negated(point), text) for _, point, text in known],
        "number": [(renumbered(point, chance), text) for _, point, text in known],
        "name": [
            (renamed(point, other[0]), text) for (_, point, text), other in zip(known, others, strict=True)
        ],
        "other_group": [(point, other[2]) for (_, point, _), other in zip(known, others, strict=True)],
    }
    logits = {kind: scored(scorer, pairs) for kind, pairs in kinds.items()}
    marked = {
        kind: [bool(unsourced(point, [text])) for point, text in pairs] for kind, pairs in kinds.items()
    }
    checked = {
        kind: [logit - 100 * mark for logit, mark in zip(logits[kind], marked[kind], strict=True)]
        for kind in kinds
    }

    def share(flags: Sequence[bool]) -> float:
        return round(sum(flags) / len(flags), 3)

    return {
        "points": len(known),
        "threshold": threshold,
        "auroc": {
            kind: {
                "logit": round(auroc(logits["true"], logits[kind]), 3),
                "checked": round(auroc(checked["true"], checked[kind]), 3),
            }
            for kind in kinds
            if kind != "true"
        },
        "caught": {
            kind: share(
                [one < threshold or mark for one, mark in zip(logits[kind], marked[kind], strict=True)]
            )
            for kind in kinds
            if kind != "true"
        },
        "false_alarms": {
            "no_source_found": share([one < threshold for one in logits["true"]]),
            "unsourced": share(marked["true"]),
        },
        "true_logits": {
            "5%": round(sorted(logits["true"])[len(known) // 20], 2),
            "50%": round(sorted(logits["true"])[len(known) // 2], 2),
        },
        "other_group_logits": {
            "50%": round(sorted(logits["other_group"])[len(known) // 2], 2),
            "95%": round(sorted(logits["other_group"])[len(known) * 19 // 20], 2),
        },
    }


def kept_by(config: SummarizerConfig, scorer: Any, policy: SummarizePolicy, groups: int) -> dict[str, Any]:
    """What share of a model's own points passes: groups of five docstrings, asked for one of them."""
    known = [(point, text) for name, point in POINTS if (text := source_of(name))]
    jobs = []
    for number in range(groups):
        own = known[number * 3 % len(known)]
        texts = [own[1], *(known[(number * 3 + step) % len(known)][1] for step in (1, 11, 29, 47))]
        kept = [_kept(rank, text) for rank, text in enumerate(texts, start=1)]
        query = "What does it do: " + own[1].partition("\n")[0] + "?"
        job = job_of(query, kept, policy, config)
        jobs.append((job, kept))
    asked(config, [job for job, _ in jobs])
    points = passed = empty = 0
    for job, kept in jobs:
        for summary in job.summaries or []:
            wanted = summarize.support.pairs(summary, kept)
            logits = scored(scorer, [(pair.query, pair.text) for pair in wanted])
            scores = {
                (pair.query_hash, pair.text_hash): Score(pair.query_hash, pair.text_hash, logit)
                for pair, logit in zip(wanted, logits, strict=True)
            }
            done = summarize.support.apply(summary, kept, scores, policy)
            good = sum(bool(point.items) for point in done.points)
            points, passed, empty = points + len(done.points), passed + good, empty + (good == 0)
    return {"points": points, "kept": round(passed / max(1, points), 3), "groups_without_a_point": empty}


def job_of(
    query: str, kept: Sequence[KeptItem], policy: SummarizePolicy, config: SummarizerConfig
) -> summarize.GroupJob:
    """A group's job, as a sweep makes it."""
    return summarize.GroupJob(
        _group(query),
        kept,
        policy,
        summarize.token_counter(config),
        summarize.context_length(config),
        summarize.passages_at_once(config),
    )


def asked(config: SummarizerConfig, jobs: Sequence[summarize.GroupJob]) -> list[tuple[Prompt, Reply]]:
    """Bring jobs to their end with one engine; all that was asked, and what was said."""
    owner = {prompt.id: (job, prompt) for job in jobs for prompt in job.start()}
    said: list[tuple[Prompt, Reply]] = []
    with tempfile.TemporaryDirectory() as folder:
        # In a process of its own, as in a sweep: vLLM and a loaded cross-encoder do not agree in one.
        engine: EngineProcess[Prompt, Reply] = EngineProcess(
            "summarizer", config, log=Path(folder) / "engine.log", extra={"prompts": len(owner)}
        )
        with engine:
            engine.submit([prompt for _, prompt in owner.values()])
            while engine.outstanding:
                for reply in engine.poll():
                    job, prompt = owner[reply.id]
                    said.append((prompt, reply))
                    following = job.feed(reply)
                    owner.update({one.id: (job, one) for one in following})
                    engine.submit(following)
    return said


def _kept(rank: int, text: str) -> KeptItem:
    return KeptItem(
        seq=rank,
        item_id=keys.given_item_id("benchmark", f"{rank}:{text[:80]}"),
        text_hash=keys.content_hash(text),
        text=text,
        rank=rank,
        logit=0.0,
        excerpt_start=0,
        excerpt_end=min(len(text), 800),
    )


def _group(query: str) -> DueGroup:
    return DueGroup(
        namespace="benchmark",
        group_id=keys.content_hash(query),
        name=query,
        query=query,
        query_hash=keys.content_hash(query),
        policy="default",
        items=5,
        chars=0,
        last_seq=5,
        judged_seq=5,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="only the last line, as JSON")
    parser.add_argument("--scorer", default="embedded", help="embedded, lexical, a folder or a hub name")
    parser.add_argument("--engine", action="store_true", help="ask the embedded language model too")
    parser.add_argument("--model", default="embedded", help="the language model for --engine")
    parser.add_argument("--groups", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="torch")
    given = parser.parse_args()
    policy = SummarizePolicy(input_tokens=1500)
    scorer = rerank.load(ScorerConfig(model=given.scorer, backend=given.backend))
    found: dict[str, Any] = {"scorer": scorer.key, **measure(scorer, policy.min_support or 0.0, given.seed)}
    found["kept"] = {
        "extractive": kept_by(SummarizerConfig(model="extractive"), scorer, policy, given.groups)
    }
    if given.engine:
        found["kept"][Path(given.model).name] = kept_by(
            SummarizerConfig(model=given.model), scorer, policy, given.groups
        )
    if not given.json:
        for name, value in found.items():
            print(f"{name}: {json.dumps(value, indent=2)}")
    print(json.dumps(found))
    scorer.close()


if __name__ == "__main__":
    sys.exit(main())
