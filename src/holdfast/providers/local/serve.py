"""The program inside the model process: llama.cpp's server on loopback, while it is wanted.

It runs as a script of its own and imports nothing of Holdfast: a model process should start fast
and hold no more than the model. Its parameters come as one line of JSON on standard input, because
they hold a key, and others can read arguments and environment. Standard input then stays open:
when it closes, the process that started us is gone, and so are we.
"""

import ctypes
import importlib
import json
import os
import resource
import signal
import sys
from typing import Any

READY = "holdfast-model-process "
"""What a line of the output begins with when it is for our parent and not a line of the log."""

_PR_SET_PDEATHSIG = 1
_HTTP_THREADS = 32
"""A waiting request occupies one of these; health checks need one, too."""
_PROMPT_CACHE_MIB = 256


def main() -> None:
    """Serve one model until standard input closes."""
    parameters: dict[str, Any] = json.loads(sys.stdin.readline())
    _end_with_parent(parameters["parent"])
    _bound_memory(parameters["memory"])
    # The folders that our parent imports from, whatever its environment was when it started.
    sys.path[:] = parameters["path"]
    try:
        llama = importlib.import_module("xllamacpp")
    except ImportError as error:
        _tell({"failed": "import", "message": str(error)})
        return
    try:
        server = llama.Server(_server_parameters(llama, parameters))
    except Exception as error:  # noqa: BLE001 - the outermost loop of this program
        _tell({"failed": "load", "message": str(error)})
        os._exit(1)
    _tell({"url": server.listening_address})
    sys.stdin.read()
    os._exit(0)  # without the library's destructors, which wait for answers that no client wants


def _tell(message: dict[str, str]) -> None:
    os.write(1, f"\n{READY}{json.dumps(message)}\n".encode())


def _end_with_parent(parent: int) -> None:
    """Have the kernel end us with our parent, where it can; elsewhere standard input does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before we asked
            os._exit(0)
        with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 - no pathlib needed here
            file.write(
                "500"
            )  # when memory runs out, rather the model than the program that uses it


def _bound_memory(limit: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _server_parameters(llama: Any, parameters: dict[str, Any]) -> Any:  # noqa: ANN401 - untyped library
    server = llama.CommonParams()
    server.model.path = parameters["weights"]
    server.model_alias = {parameters["alias"]}
    server.hostnames = ["127.0.0.1"]
    server.port = 0
    server.api_keys = [parameters["key"]]
    server.cors_origins = ""
    server.ui = False
    server.n_gpu_layers = 0
    server.cpuparams.n_threads = parameters["threads"]
    server.cpuparams_batch.n_threads = parameters["threads"]
    server.n_threads_http = _HTTP_THREADS
    server.n_ctx = parameters["context"] * parameters["slots"]
    server.n_parallel = parameters["slots"]
    server.n_batch = server.n_ubatch = parameters["batch"]
    server.cache_ram_mib = _PROMPT_CACHE_MIB
    server.use_jinja = True
    if parameters["template"]:
        server.chat_template = parameters["template"]
    return server


if __name__ == "__main__":
    main()
