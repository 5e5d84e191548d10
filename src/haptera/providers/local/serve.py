"""Serve: the program that runs in a model process, with llama.cpp's server on loopback.

It imports nothing of Haptera but `process_tree`, so that a model process starts fast and holds no
more than the model. Its parameters are one line of JSON on standard input, because they contain
a key, and other users can read arguments and environment. Standard input stays open; when it
closes, the parent process has ended, and this process ends, too.
"""

import importlib
import json
import os
import resource
import sys
from types import ModuleType
from typing import Any

from haptera.system.process_tree import end_with_parent

READY = "haptera-model-process "
"""The beginning of output lines that are messages to the parent process, not log lines."""

_HTTP_THREADS = 32
"""Every waiting request occupies one, and health checks need one, too."""
_PROMPT_CACHE_MIB = 256
_LOAD_ERRORS = (
    ArithmeticError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What the library raises for C++ exceptions of llama.cpp."""


def main() -> None:
    """Serve one model until standard input closes."""
    parameters: dict[str, Any] = json.loads(sys.stdin.readline())
    _end_with_parent(parameters["parent"])
    _bound_memory(parameters["memory"])
    # The parent's own import path, whatever its environment was when it started.
    sys.path[:] = parameters["path"]
    try:
        llama = importlib.import_module("xllamacpp")
    except ImportError as error:
        _tell({"failed": "import", "message": str(error)})
        return
    try:
        server = llama.Server(_server_parameters(llama, parameters))
    except _LOAD_ERRORS as error:
        _tell({"failed": "load", "message": str(error)})
        sys.exit(1)  # not at once: llama.cpp writes its log from a thread of its own
    _tell({"url": server.listening_address})
    sys.stdin.read()
    # Without the library's destructors, which wait for answers that no client reads any more.
    os._exit(0)


def _tell(message: dict[str, str]) -> None:
    # llama.cpp may have written half a line of its log, so the message begins a new one.
    os.write(1, f"\n{READY}{json.dumps(message)}\n".encode())


def _end_with_parent(parent: int) -> None:
    """Let Linux end this process with its parent; elsewhere the end of standard input does."""
    end_with_parent()
    if sys.platform == "linux":
        if os.getppid() != parent:  # The parent had ended before the call.
            os._exit(0)
        # When memory runs out, the kernel should kill the model rather than the program it serves.
        file = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(file, b"500")
        os.close(file)


def _bound_memory(limit: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _server_parameters(llama: ModuleType, parameters: dict[str, Any]) -> object:
    server = llama.CommonParams()
    server.model.path = parameters["weights"]
    server.model_alias = {parameters["alias"]}
    server.hostnames = ["127.0.0.1"]
    server.port = 0
    # Loopback is open to every user and every web page of this machine: only the key gives access.
    server.api_keys = [parameters["key"]]
    server.cors_origins = ""
    server.ui = False
    server.n_gpu_layers = 0
    server.cpuparams.n_threads = parameters["threads"]
    server.cpuparams_batch.n_threads = parameters["threads"]
    server.n_threads_http = _HTTP_THREADS
    # llama.cpp divides the context among its slots.
    server.n_ctx = parameters["context"] * parameters["slots"]
    server.n_parallel = parameters["slots"]
    server.n_batch = server.n_ubatch = parameters["batch"]
    server.cache_ram_mib = _PROMPT_CACHE_MIB
    server.use_jinja = True
    if parameters["template"]:
        server.chat_template = parameters["template"]
    return server
