"""A real llama.cpp server with a model file, in a process of its own; run as a module.

Prints the port when it is ready, and ends when its standard input does.
"""

import socket
import sys


def free_port() -> int:
    """Return a port of the loopback that no program uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> None:
    """Serve until standard input ends."""
    import xllamacpp  # type: ignore[import-untyped]

    parameters = xllamacpp.CommonParams()
    parameters.model.path = sys.argv[1]
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
