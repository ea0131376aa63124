"""The Triton client without a server: patience, what a server's description means, splitting, batch sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from afterpass.core.config import ScorerConfig
from afterpass.core.errors import EngineError
from afterpass.core.types import Pair, Score
from afterpass.rerank.backends.triton import Refused, Triton, passing, understand
from afterpass.rerank.cross_encoder import CrossEncoder
from afterpass.rerank.reading import Reader
from afterpass.rerank.remote import Remote, TextLayout

METADATA: dict[str, Any] = {
    "versions": ["2", "10"],
    "inputs": [{"name": "QUERY", "datatype": "BYTES"}, {"name": "DOC", "datatype": "BYTES"}],
    "outputs": [{"name": "SCORE", "datatype": "FP32"}],
}


class Server:
    """A wire whose failures are given: one a call, then none. A text's score is its number of words."""

    def __init__(self, *failures: Exception, max_batch: int = 4, poison: str = "POISON") -> None:
        self.failures = list(failures)
        self.max_batch = max_batch
        self.poison = poison
        self.alive = True
        self.asked: list[list[str]] = []

    def describe(self, _name: str, _version: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        if not self.alive:
            raise ConnectionRefusedError("refused")
        return METADATA, {"max_batch_size": self.max_batch}

    def ready(self, _name: str, _version: str) -> bool:
        return self.alive

    def infer(
        self, _name: str, _version: str, _queries: Sequence[str], docs: Sequence[str]
    ) -> NDArray[np.float32]:
        self.asked.append(list(docs))
        if not self.alive:
            raise ConnectionRefusedError("refused")
        if self.failures:
            raise self.failures.pop(0)
        if any(self.poison in doc for doc in docs):
            raise Status("StatusCode.INTERNAL")
        return np.array([len(doc.split()) for doc in docs], np.float32)

    def close(self) -> None:
        pass


class Status(Exception):
    """As tritonclient's InferenceServerException."""

    def status(self) -> str:
        return str(self)


def client(server: Server, waits: list[float] | None = None) -> Triton:
    return Triton(server, "127.0.0.1:1", "m", sleep=(waits if waits is not None else []).append)


def scorer(server: Server, *, max_length: int = 64) -> CrossEncoder:
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    reader = Reader(tokenizer, TextLayout(), max_length=max_length, query_length=4, overlap=4, max_chunks=50)
    remote = Remote(client(server), "127.0.0.1:1", "http", tokenizer, query_length=4)
    return CrossEncoder(remote, reader, key="k", batch_tokens=1024)


def scores(running: CrossEncoder, *texts: str, query: str = "what is it") -> list[Score]:
    for number, text in enumerate(texts):
        running.submit(Pair(UUID(int=1), UUID(int=number), query, text))
    found: list[Score] = []
    try:
        while running.pending:
            found += running.step()
    finally:
        running.close()
    return sorted(found, key=lambda score: score.text_hash.int)


def test_what_passes_is_tried_again_with_longer_and_longer_pauses() -> None:
    waits: list[float] = []
    server = Server(ConnectionResetError("reset"), TimeoutError("slow"), Status("StatusCode.UNAVAILABLE"))
    triton = client(server, waits)
    assert triton.infer(["q"], ["one two"]).tolist() == [2.0]
    assert waits == [0.25, 0.5, 1.0]
    assert triton.retries == 3


def test_what_does_not_pass_is_not_tried_again() -> None:
    server = Server(Status("400"))
    with pytest.raises(Refused):
        client(server).infer(["q"], ["a"])
    assert len(server.asked) == 1


def test_a_batch_that_keeps_timing_out_on_a_living_server_is_refused() -> None:
    server = Server(*[TimeoutError("slow")] * 5)
    with pytest.raises(Refused, match="slow"):
        client(server).infer(["q"], ["a"])


def test_a_server_that_is_gone_ends_the_engine() -> None:
    server = Server()
    running = scorer(server)
    server.alive = False
    with pytest.raises(EngineError, match="stopped serving m") as caught:
        scores(running, "a b", "c")
    assert "next sweep" in caught.value.hint


def test_a_server_that_is_not_there_or_knows_no_such_model() -> None:
    server = Server()
    server.alive = False
    with pytest.raises(EngineError, match=r"no Triton server answers at 127\.0\.0\.1:1"):
        client(server)

    class Unknown(Server):
        def describe(self, _name: str, _version: str) -> Any:
            raise Status("400")

    with pytest.raises(EngineError, match="does not serve m") as caught:
        client(Unknown())
    assert "model_name" in caught.value.hint


def test_the_newest_version_is_taken_and_another_contract_refused() -> None:
    served = understand("m", "", METADATA, {"max_batch_size": 8})
    assert (served.version, served.max_batch) == ("10", 8)
    assert understand("m", "2", METADATA, {"max_batch_size": 8}).version == "2"
    with pytest.raises(EngineError, match="max_batch_size 0"):
        understand("m", "", METADATA, {})
    with pytest.raises(EngineError, match="SCORE"):
        understand("m", "", {**METADATA, "outputs": []}, {"max_batch_size": 8})


def test_no_batch_has_more_rows_than_the_server_takes() -> None:
    server = Server(max_batch=3)
    found = scores(scorer(server), *(f"text {number}" for number in range(20)))
    assert [score.logit for score in found] == [2.0] * 20
    assert max(map(len, server.asked)) == 3


def test_only_the_poisoned_pair_is_an_error() -> None:
    server = Server(max_batch=16)
    texts = [f"text {number}" for number in range(15)] + ["the POISON text"]
    *good, bad = scores(scorer(server), *texts)
    assert [score.logit for score in good] == [2.0] * 15
    assert bad.logit is None
    assert "Refused" in str(bad.error)


def test_a_long_text_goes_as_one_row_a_chunk_and_a_long_query_is_cut() -> None:
    server = Server()
    text = " ".join(f"w{number}" for number in range(100))
    (score,) = scores(scorer(server, max_length=32), text, query="a b c d e f")
    sent = {doc for batch in server.asked for doc in batch}
    assert score.chunks == len(sent) > 3
    assert text[score.excerpt_start : score.excerpt_end].strip() in {doc.strip() for doc in sent}
    assert score.flags == ("query_truncated", "mostly_unknown")


def test_a_clients_own_mistake_does_not_pass() -> None:
    assert passing(OSError("x"))
    assert not passing(ValueError("x"))


@pytest.mark.parametrize(
    "wrong",
    [{"backend": "triton"}, {"backend": "triton", "url": "a:1"}, {"url": "a:1"}, {"model_version": "1"}],
)
def test_address_and_name_belong_to_triton(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="triton"):
        ScorerConfig.model_validate({"model": "embedded", **wrong})
