"""Make `.venv-triton`: a real Triton server and its client, for `make test-triton` alone.

The server comes from the package nvidia-pytriton and is never imported, so neither it nor the client brings
what it depends on: its Python models run on `.venv`'s packages, and so does the client. Only numpy is older:
this server's Python backend was built for numpy 1 and reads every array of numpy 2 as its first element.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

VENV = Path(__file__).resolve().parent.parent / ".venv-triton"
SERVER = ["nvidia-pytriton==0.7.0"]
CLIENT = [
    "brotli",
    "geventhttpclient==2.6.1",
    "gevent==26.9.0",
    "greenlet==3.3.2",
    "python-rapidjson==1.25",
    "tritonclient==2.73.0",
    "zope.event==6.2",
    "zope.interface==8.7",
]


MODEL = ["numpy==1.26.4"]


def main() -> None:
    stamp = VENV / ".stamp"
    wanted = hashlib.sha256(f"{SERVER} {CLIENT} {MODEL} {sys.version} {VENV}".encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    print(f"triton: installing {SERVER[0]} and tritonclient into {VENV.name} (about a minute)", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
    pip = [VENV / "bin" / "python", "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*pip, *SERVER], check=True)
    subprocess.run([*pip, "--target", VENV / "client", *CLIENT], check=True)
    subprocess.run([*pip, "--target", VENV / "model", *MODEL], check=True)
    stamp.write_text(wanted)


if __name__ == "__main__":
    main()
