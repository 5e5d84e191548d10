"""The web fetch tool: one page of the public internet, bounded in time and size.

Made of the standard library's HTTP client. It connects to the address that was checked, which the
transport of the providers does not offer; and no provider's credentials are ever near it.
"""

import asyncio
import codecs
import contextlib
import http.client
import re
import socket
import ssl
import zlib
from collections.abc import Callable
from typing import TypeAlias
from urllib.parse import urljoin

import msgspec

from haptera.kernel.blocks.tool_registry.tool import AnyTool, tool
from haptera.model.own_name import USER_AGENT
from haptera.ports.session_store import Blobs
from haptera.ports.tools import ToolContext
from haptera.system.isolated_python import IsolatedProcess
from haptera.system.threads import run_in_thread
from haptera.tools.output import Outputs
from haptera.tools.public_hosts import (
    Resolve,
    WebRefusedError,
    WebTarget,
    public_address,
    read_url,
)

_MOST_BYTES = 4 << 20
_SECONDS = 30.0
_MOST_REDIRECTS = 5
_REDIRECTS = {301, 302, 303, 307, 308}
_BLOCK = 65536
_HEADERS = {
    "Accept": "text/html, text/plain, application/json, application/xml;q=0.9, text/*;q=0.8",
    "Accept-Encoding": "gzip, deflate",
    "User-Agent": USER_AGENT,
    "Connection": "close",
}
_CHARSETS = (
    r"utf-?(8|16)|us-ascii|iso-8859-\d{1,2}|windows-125\d|koi8-[ru]|shift_jis|euc-(jp|kr)|"
    r"gb(k|2312|18030)|big5"
)
_PROGRAM = "haptera.tools.page_text"
_TEXTS = ("text/", "application/json", "application/xml", "application/xhtml", "+json", "+xml")

Connect: TypeAlias = Callable[[str, int, float], socket.socket]
"""Opens a connection to an address and port, within so many seconds."""


class WebPage(msgspec.Struct, frozen=True, kw_only=True):
    """What a server answered."""

    url: str
    status: int
    kind: str = ""
    location: str | None = None
    content: bytes = b""
    is_whole: bool = True


class WebFetch:
    """Fetches pages. Keeps nothing between two of them: no cookies, no connections.

    `resolve` and `connect` reach the network; a test gives others.
    """

    def __init__(
        self,
        *,
        resolve: Resolve | None = None,
        connect: Connect | None = None,
        seconds: float = _SECONDS,
    ) -> None:
        self._seconds = seconds
        self._resolve = resolve or _resolve
        self._connect = connect or _connect

    async def read(self, url: str) -> str:
        """Fetch a page and return its text, both within the time limit.

        Redirects are followed, each checked like the first URL.

        Raises:
            WebRefusedError: it is not fetched, or was not received and read in time.

        """
        done = "received"
        try:
            async with asyncio.timeout(self._seconds):
                page = await self._follow(url)
                done = "read"
                text = _PageText(page, self._seconds)
                try:
                    return await run_in_thread(text.shown)
                finally:
                    # A timeout or an abort leaves the thread behind, but no process.
                    text.stop()
        except TimeoutError:
            raise WebRefusedError(f"the page was not {done} within {self._seconds:g} s") from None

    async def _follow(self, url: str) -> WebPage:
        for _ in range(_MOST_REDIRECTS + 1):
            target = read_url(url)
            address = await public_address(target, self._resolve)
            exchange = _Exchange(target, address, self._connect)
            try:
                page = await run_in_thread(exchange.run)
            finally:
                # A timeout or an abort leaves the thread behind. Closing its socket ends it.
                exchange.stop()
            if page.location is None:
                return page
            url = urljoin(target.url, page.location)
        raise WebRefusedError(f"there were more than {_MOST_REDIRECTS} redirects")


class _Exchange:
    """One request and its answer, in a thread; another thread can stop it."""

    def __init__(self, target: WebTarget, address: str, connect: Connect) -> None:
        self._target = target
        self._address = address
        self._connect = connect
        self._socket: socket.socket | None = None
        self._stopped = False

    def run(self) -> WebPage:
        """Send the request and read the answer."""
        try:
            return self._exchange()
        except (http.client.HTTPException, OSError, zlib.error) as error:
            message = f"{self._target.host} did not give the page: {type(error).__name__}: {error}"
            raise WebRefusedError(message) from None

    def stop(self) -> None:
        """Close the connection, also while another thread reads from it."""
        self._stopped = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # closing alone does not end a read
            self._socket.close()

    def _exchange(self) -> WebPage:
        target = self._target
        # For https, too: the socket is made here, so that it leads to the address that was checked.
        with contextlib.closing(http.client.HTTPConnection(target.host, target.port)) as connection:
            connection.sock = self._open()
            connection.request("GET", target.path, headers={**_HEADERS, "Host": self._host()})
            with connection.getresponse() as answer:
                page = WebPage(url=target.url, status=answer.status, kind=_kind_of(answer))
                location = answer.getheader("Location")
                if answer.status in _REDIRECTS and location:
                    return msgspec.structs.replace(page, location=location)
                content, is_whole = _read(answer)
                return msgspec.structs.replace(page, content=content, is_whole=is_whole)

    def _open(self) -> socket.socket:
        connection = self._connect(self._address, self._target.port, _SECONDS)
        self._socket = connection
        if self._target.scheme == "https":
            # The certificate is checked for the name, whatever the address.
            context = ssl.create_default_context()
            # Known to `stop` before the handshake, which a server can make last.
            connection = self._socket = context.wrap_socket(
                connection, server_hostname=self._target.host, do_handshake_on_connect=False
            )
            connection.do_handshake()
        # `stop` may have come before there was a socket to close.
        if self._stopped:
            connection.close()
        return connection

    def _host(self) -> str:
        # Not left to `HTTPConnection`, which takes 80 for the usual port and would add that of
        # https.
        return self._target.url.split("/")[2]


def _kind_of(answer: http.client.HTTPResponse) -> str:
    return (answer.getheader("Content-Type") or "").lower()


def _read(answer: http.client.HTTPResponse) -> tuple[bytes, bool]:
    """Read a body up to the bound, unpacked as it comes; False if there was more."""
    packing = (answer.getheader("Content-Encoding") or "").strip().lower()
    if packing not in {"", "identity", "gzip", "x-gzip", "deflate"}:
        raise WebRefusedError(
            f"the page has the content encoding {packing!r}, which is not supported"
        )
    # 15 is the size of the window, and 32 tells gzip from zlib by its first bytes.
    unpack = zlib.decompressobj(wbits=47) if packing not in {"", "identity"} else None
    content = bytearray()
    while len(content) <= _MOST_BYTES and (block := answer.read1(_BLOCK)):
        left = _MOST_BYTES + 1 - len(content)
        # Never more than is wanted: a small body may unpack to any size.
        content += block if unpack is None else unpack.decompress(block, left)
    return bytes(content[:_MOST_BYTES]), len(content) <= _MOST_BYTES


async def _resolve(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in addresses))


def _connect(address: str, port: int, seconds: float) -> socket.socket:
    return socket.create_connection((address, port), timeout=seconds)


def web_fetch_tool(fetch: WebFetch | None = None, *, blobs: Blobs | None = None) -> AnyTool:
    """Make the tool; it is no part of `coding_tools`, and asks for approval."""
    pages = fetch or WebFetch()
    outputs = Outputs(blobs)

    @tool(approval="ask", effect="external")
    async def web_fetch(context: ToolContext, url: str) -> str:
        """Fetch a page of the public web, as text.

        Args:
            url: An http or https URL of a public host.

        """
        return await outputs.shown(context, await pages.read(url))

    return web_fetch


class _PageText:
    """The text of a page, worked out in a thread; another thread can stop it.

    HTML is read by a process of its own: it may be large and made to take long, and no thread can
    be killed.
    """

    def __init__(self, page: WebPage, seconds: float) -> None:
        self._page = page
        self._seconds = seconds
        self._reading = IsolatedProcess(_PROGRAM, _charset(page.kind))

    def shown(self) -> str:
        """Return what the model is shown of the page."""
        page = self._page
        head = f"[{page.status} {page.url}]"
        if not any(kind in page.kind for kind in _TEXTS):
            kind = page.kind or "no known kind"
            return f"{head}\n[{len(page.content)} bytes of {kind}, not text]"
        text = self._html() if "html" in page.kind else self._decoded()
        more = "" if page.is_whole else f"\n[cut after {_MOST_BYTES >> 20} MiB]"
        return f"{head}\n{text}{more}"

    def stop(self) -> None:
        """End the process, if there is one."""
        self._reading.stop()

    def _decoded(self) -> str:
        return self._page.content.decode(_charset(self._page.kind), "replace")

    def _html(self) -> str:
        text = self._reading.answer(self._page.content, seconds=self._seconds)
        if text is None:
            raise WebRefusedError("the page could not be read")
        return text.decode()


def _charset(kind: str) -> str:
    name = kind.partition("charset=")[2].split(";")[0].strip(" \"'")
    try:
        return codecs.lookup(name).name if re.fullmatch(_CHARSETS, name) else "utf-8"
    except LookupError:
        return "utf-8"
