"""A Triton server as the engine: QUERY and DOC as texts in, SCORE as float32 out.

Speaks through `tritonclient`, which is imported when it is used.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...core.errors import EngineError, EngineMissing

log = logging.getLogger("afterpass.rerank")

TRIES = 5
_PAUSE = 0.25
_PASSING = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "429", "502", "503", "504")


class Refused(Exception):
    """The server is well and will not score this batch. Somebody may split it."""


@dataclass(frozen=True, slots=True)
class Served:
    """A model as the server describes it.

    Attributes:
        max_batch: rows of a request at most.
    """

    name: str
    version: str
    max_batch: int


class Wire(Protocol):
    """What is asked of a server. Calls raise whatever the transport raises."""

    def describe(self, name: str, version: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The model's metadata and configuration, as KServe's and Triton's protocols name their fields."""
        ...

    def ready(self, name: str, version: str) -> bool:
        """Whether the server serves the model now."""
        ...

    def infer(
        self, name: str, version: str, queries: Sequence[str], docs: Sequence[str]
    ) -> NDArray[np.float32]:
        """SCORE of each row, (rows,)."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class TritonWire:
    """The wire that `tritonclient` speaks.

    Raises:
        EngineMissing: the package is not installed.
    """

    def __init__(self, url: str, protocol: str, timeout: float) -> None:
        try:
            if protocol == "grpc":
                import tritonclient.grpc as module
            else:
                import tritonclient.http as module
        except ImportError as error:
            raise EngineMissing(
                f'backend = "triton" needs tritonclient: {error}', hint="pip install afterpass[triton]"
            ) from error
        self._module: Any = module
        self._grpc = protocol == "grpc"
        self._timeout = timeout
        limits = {} if self._grpc else {"connection_timeout": min(timeout, 10.0), "network_timeout": timeout}
        self._client: Any = module.InferenceServerClient(url.split("://", 1)[-1].rstrip("/"), **limits)
        self._limit = {"client_timeout": timeout} if self._grpc else {}

    def describe(self, name: str, version: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Metadata and configuration."""
        if not self._grpc:
            metadata = self._client.get_model_metadata(name, version)
            return metadata, self._client.get_model_config(name, version)
        options = {"as_json": True, **self._limit}
        metadata = self._client.get_model_metadata(name, version, **options)
        return metadata, self._client.get_model_config(name, version, **options)["config"]

    def ready(self, name: str, version: str) -> bool:
        """Whether the model is ready."""
        return bool(self._client.is_model_ready(name, version, **self._limit))

    def infer(
        self, name: str, version: str, queries: Sequence[str], docs: Sequence[str]
    ) -> NDArray[np.float32]:
        """SCORE of each row, (rows,)."""
        inputs = []
        for tensor, texts in (("QUERY", queries), ("DOC", docs)):
            one = self._module.InferInput(tensor, [len(texts), 1], "BYTES")
            one.set_data_from_numpy(np.array([[t.encode("utf-8", "replace")] for t in texts], np.object_))
            inputs.append(one)
        wanted = [self._module.InferRequestedOutput("SCORE")]
        answer = self._client.infer(name, inputs, model_version=version, outputs=wanted, **self._limit)
        scores = answer.as_numpy("SCORE")
        if scores is None or scores.size != len(queries):
            raise Refused(f"{len(queries)} pairs sent, SCORE came back as {getattr(scores, 'shape', None)}")
        return np.asarray(scores, np.float32).reshape(-1)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class Triton:
    """A model on a server, with patience.

    Args:
        url: for messages.
        version: the version to ask for; the newest served where empty.
        pause: seconds before the second try; doubled before each further one.
        sleep: waits; another one in tests.

    Raises:
        EngineError: the server is not there, does not know the model, or the model breaks the contract.
    """

    def __init__(
        self,
        wire: Wire,
        url: str,
        name: str,
        version: str = "",
        *,
        tries: int = TRIES,
        pause: float = _PAUSE,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._wire = wire
        self._url = url
        self._tries = tries
        self._pause = pause
        self._sleep = sleep
        self.retries = 0
        self.served = self._describe(name, version)

    def infer(self, queries: Sequence[str], docs: Sequence[str]) -> NDArray[np.float32]:
        """SCORE of each row, (rows,).

        Raises:
            Refused: the server answers and this batch keeps failing.
            EngineError: the server, or the model on it, is gone.
        """
        name, version = self.served.name, self.served.version
        failure: Exception | None = None
        for attempt in range(self._tries):
            if attempt:
                self.retries += 1
                self._sleep(self._pause * 2 ** (attempt - 1))
            try:
                return self._wire.infer(name, version, queries, docs)
            except Refused:
                raise
            except Exception as error:
                failure = error
                if not passing(error):
                    break
        if self._ready():
            raise Refused(f"{self._at}: {failure}") from failure
        raise EngineError(
            f"the Triton server at {self._url} stopped serving {name} (version {version}): "
            f"{type(failure).__name__}: {failure}"[:500],
            hint="start it again; the next sweep goes on where this one stopped",
        ) from failure

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()

    @property
    def _at(self) -> str:
        return f"{self.served.name} on {self._url}"

    def _ready(self) -> bool:
        try:
            return self._wire.ready(self.served.name, self.served.version)
        except Exception:
            return False

    def _describe(self, name: str, version: str) -> Served:
        try:
            metadata, config = self._wire.describe(name, version)
        except Exception as error:
            wanted = f"{name} (version {version})" if version else name
            if passing(error):
                raise EngineError(
                    f"no Triton server answers at {self._url}: {type(error).__name__}: {error}"[:500],
                    hint="start the server, or mend `url` and `protocol` under [rerank.models]; HTTP is "
                    "usually port 8000, gRPC 8001",
                ) from error
            raise EngineError(
                f"the Triton server at {self._url} does not serve {wanted}: {error}"[:500],
                hint="mend `model_name` under [rerank.models], or put the model into the server's repository "
                "(see docs/operations.md)",
            ) from error
        return understand(name, version, metadata, config)


def understand(name: str, version: str, metadata: Mapping[str, Any], config: Mapping[str, Any]) -> Served:
    """What the server says of a model. Raises EngineError where it does not keep the text contract."""
    has = {tensor["name"]: tensor["datatype"] for side in ("inputs", "outputs") for tensor in metadata[side]}
    wanted = {"QUERY": "BYTES", "DOC": "BYTES", "SCORE": "FP32"}
    max_batch = int(config.get("max_batch_size") or 0)
    if any(has.get(tensor) != kind for tensor, kind in wanted.items()) or max_batch < 1:
        raise EngineError(
            f"the Triton model {name} has {has} and max_batch_size {max_batch}; it must take QUERY and DOC "
            "as BYTES, give SCORE as FP32, and take batches",
            hint="the repository shipped as rerank/triton_repository/ shows a model that does",
        )
    versions = [str(number) for number in metadata.get("versions") or ()] or ["1"]
    return Served(name, version or max(versions, key=lambda v: (len(v), v)), max_batch)


def passing(error: Exception) -> bool:
    """Whether waiting may help: a transport's failure, a timeout, a server that is busy or starting."""
    status = getattr(error, "status", None)
    if not callable(status):
        return not isinstance(error, ValueError | TypeError | KeyError)
    said = str(status() or "")
    text = str(error).lower()
    return any(code in said for code in _PASSING) or "timed out" in text or "deadline" in text
