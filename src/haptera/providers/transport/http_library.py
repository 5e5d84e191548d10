"""aiohttp, imported without reading certificates that Haptera does not use.

aiohttp makes two TLS contexts while it is imported, and each reads all certificates of the machine:
about 40 ms of CPU time. Our requests have a context of their own (`network.certificate_context`).
So those two read their certificates when something else in the program first uses them.
"""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["aiohttp"]

_Context = ssl.SSLContext
"""The class as it is now: a program may put another one in its place later."""
_READ = "set_default_verify_paths"
_USES = frozenset({"wrap_bio", "wrap_socket", "cert_store_stats", "get_ca_certs"})
"""What needs the certificates: connections, and questions about them."""


_one_reads = threading.Lock()


class _LateContext(_Context):
    """A TLS context that reads the machine's certificates when they are first needed."""

    def __getattribute__(self, name: str) -> object:
        if name in _USES:
            with _one_reads:
                if type(self) is _LateContext:
                    # First: other threads wait, and what fails here is tried again.
                    _Context.set_default_verify_paths(self)
                    self.__class__ = _Context  # type: ignore[assignment] # from now on a plain one
        return _Context.__getattribute__(self, name)


@contextmanager
def _reading_late() -> Iterator[None]:
    """Let contexts that this thread makes meanwhile read their certificates late."""
    # A program that replaced the class (as truststore does), or a Python that has another one,
    # keeps what it has: then this saves nothing.
    if _Context.__module__ != "ssl" or _READ in vars(_Context):
        yield
        return
    importer, read = threading.get_ident(), _Context.set_default_verify_paths

    def postpone(context: ssl.SSLContext) -> None:
        if type(context) is _Context and threading.get_ident() == importer:
            context.__class__ = _LateContext
        else:
            read(context)

    setattr(_Context, _READ, postpone)
    try:
        yield
    finally:
        delattr(_Context, _READ)  # the inherited method is found again


with _reading_late():
    import aiohttp
