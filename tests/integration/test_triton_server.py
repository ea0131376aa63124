"""A real Triton server on loopback, with the shipped model repository (`make test-triton`).

The server is nvidia-pytriton's, in `.venv-triton`; its Python models run on this environment's packages.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

import afterpass
from afterpass import rerank
from afterpass.core.config import ScorerConfig
from afterpass.core.errors import EngineError
from afterpass.core.paths import Home
from afterpass.core.types import Pair, Score
from afterpass.hooks.recorder import Recorder

pytestmark = [pytest.mark.triton, pytest.mark.timeout(600)]

ROOT = Path(afterpass.__file__).parent
VENV = ROOT / ".venv-triton"
CLIENT = VENV / "client"
COMMAND = str(Path(sys.executable).with_name("afterpass"))
TEXTS = [
    "DuckDB keeps its data in one file and needs no server.",
    "The capital of France is Paris.",
    "猫はテーブルの上に座っている。🐈",
    "ported 17 tests; \x1b[31mfailed\x1b[0m: 3",
    " ".join(f"Line {n}: the build of module {n} took {n * 7 % 31} seconds." for n in range(300)),
]
QUERIES = ["Which database needs no server?", "How long did module 250 take?"]


class Server:
    """A tritonserver process and all that it starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.http, self.grpc = _free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        package = next(VENV.glob("lib/python3*/site-packages"))
        self._server = package / "pytriton" / "tritonserver"
        self._libraries = package / "nvidia_pytriton.libs"
        number = f"{sys.version_info.major}.{sys.version_info.minor}"
        shutil.copytree(self._server / "backends", folder / "backends")
        stub = "triton_python_backend_stub"
        shutil.copy2(
            self._server / "python_backend_stubs" / number / stub, folder / "backends" / "python" / stub
        )
        (folder / "source").mkdir()
        (folder / "source" / "afterpass").symlink_to(ROOT)

    def start(self) -> None:
        """Start it, bound to loopback, and wait until the model is ready."""
        packages = f"{self.folder / 'source'}:{VENV / 'model'}:{sysconfig.get_path('purelib')}"
        with (self.folder / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    str(self._server / "bin" / "tritonserver"),
                    f"--model-repository={ROOT / 'rerank' / 'triton_repository'}",
                    f"--backend-directory={self.folder / 'backends'}",
                    "--http-address=127.0.0.1",
                    f"--http-port={self.http}",
                    "--grpc-address=127.0.0.1",
                    f"--grpc-port={self.grpc}",
                    "--allow-metrics=false",
                ],
                env={**os.environ, "LD_LIBRARY_PATH": str(self._libraries), "PYTHONPATH": packages},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until = time.monotonic() + 240
        while not self._ready():
            log_text = (self.folder / "server.log").read_text("utf-8", "replace")
            assert self._process.poll() is None, log_text[-3000:]
            assert time.monotonic() < until, log_text[-3000:]
            time.sleep(0.2)

    def kill(self) -> None:
        """SIGKILL to the server and its model processes: all are in a process group of their own."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _ready(self) -> bool:
        url = f"http://127.0.0.1:{self.http}/v2/models/afterpass_embedded/ready"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not CLIENT.is_dir():
        pytest.skip("there is no .venv-triton: `make test-triton` makes it")
    running = Server(tmp_path_factory.mktemp("triton"))
    sys.path.append(str(CLIENT))
    try:
        running.start()
        yield running
    finally:
        running.kill()
        sys.path.remove(str(CLIENT))


def config(server: Server, protocol: str = "http", name: str = "afterpass_embedded") -> ScorerConfig:
    port = server.http if protocol == "http" else server.grpc
    return ScorerConfig.model_validate(
        {
            "model": "embedded",
            "backend": "triton",
            "url": f"127.0.0.1:{port}",
            "protocol": protocol,
            "model_name": name,
        }
    )


def scores(settings: ScorerConfig) -> dict[tuple[int, int], Score]:
    scorer = rerank.load(settings)
    found: dict[tuple[int, int], Score] = {}
    try:
        for q, query in enumerate(QUERIES):
            for t, text in enumerate(TEXTS):
                scorer.submit(Pair(UUID(int=q), UUID(int=t), query, text))
        while scorer.pending:
            found |= {(s.query_hash.int, s.text_hash.int): s for s in scorer.step()}
    finally:
        scorer.close()
    return found


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_scores_equal_local_ones(server: Server, protocol: str) -> None:
    local = scores(ScorerConfig(model="embedded", backend="torch", dtype="float32"))
    served = scores(config(server, protocol))
    assert served.keys() == local.keys()
    for pair, score in served.items():
        assert score.logit == pytest.approx(local[pair].logit, abs=1e-3)
        assert score.chunks == local[pair].chunks
        assert (score.excerpt_start, score.excerpt_end) == (
            local[pair].excerpt_start,
            local[pair].excerpt_end,
        )


def test_the_key_names_the_servers_model_and_an_unknown_one_is_told(server: Server) -> None:
    key = rerank.model_key(config(server))
    assert key is not None
    assert key.startswith("triton:afterpass_embedded@1/")
    with pytest.raises(EngineError, match="does not serve nobody"):
        rerank.load(config(server, name="nobody"))


def test_a_server_killed_half_way(server: Server, home: Home) -> None:
    """The sweep ends with 69, what was judged stays, and the next sweep makes the rest."""
    (home.root / "config.toml").write_text(
        f"""
[rerank.models.embedded]
model = "embedded"
backend = "triton"
url = "127.0.0.1:{server.http}"
model_name = "afterpass_embedded"
timeout = "20s"
batch_tokens = 256
[policy.default.summarize]
enabled = false
"""
    )
    recorder = Recorder(home)
    for group in range(150):
        for item in range(8):
            text = f"Observation {item} of group {group}: the answer is {group * item}. " * 8
            recorder.record(text, query=f"What is the answer of group {group}?", group=f"group {group}")
    recorder.shutdown()
    environment = {**os.environ, "PYTHONPATH": str(CLIENT)}
    command = [COMMAND, "sweep", "--home", str(home.root), "--now", "--json"]
    sweep = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until = time.monotonic() + 200
    while sweep.poll() is None and not _scored(server) and time.monotonic() < until:
        time.sleep(0.1)
    server.kill()
    _, errors = sweep.communicate(timeout=300)
    assert sweep.returncode == 69, errors.decode()
    server.start()
    again = subprocess.run(command, env=environment, capture_output=True, timeout=300, check=False)
    assert again.returncode == 0, again.stderr.decode()
    show = [COMMAND, "verdicts", "--home", str(home.root), "--json", "--limit", "5000"]
    said = subprocess.run(show, capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 0, said.stderr
    assert len(json.loads(said.stdout.splitlines()[-1])["verdicts"]) == 150 * 8


def _scored(server: Server) -> bool:
    """Whether the server has scored a good part of the sweep's pairs, by its own count."""
    url = f"http://127.0.0.1:{server.http}/v2/models/afterpass_embedded/stats"
    with urllib.request.urlopen(url, timeout=5) as answer:
        (stats,) = json.load(answer)["model_stats"]
    return int(stats["inference_count"]) > 300
