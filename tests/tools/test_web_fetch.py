"""Web fetch reaches the public web only: never this machine, its network, or without a bound."""

import asyncio
import gzip
import ipaddress
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from haptera.tools import coding_tools, web_fetch_tool
from haptera.tools.page_text import text_of_page
from haptera.tools.public_hosts import WebRefusedError, is_public, read_url
from haptera.tools.web import WebFetch
from tests.tools.toolbox import Toolbox

PUBLIC = "93.184.216.34"

Answer = Callable[[str], bytes]


class Web:
    """A server on loopback that stands for the public web, and a name service beside it."""

    def __init__(self) -> None:
        self.names: dict[str, list[list[str]]] = {}
        self.answers: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.connected: list[str] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The loopback port that it really is at."""
        return int(self._server.getsockname()[1])

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses of a name; several answers are given one after the other."""
        known = self.names.get(host)
        if known is None:
            return [host] if is_public(host) or host[0].isdigit() or ":" in host else []
        return known.pop(0) if len(known) > 1 else known[0]

    def connect(self, address: str, port: int, seconds: float) -> socket.socket:
        """Connect to the stand-in, whatever the public address was."""
        self.connected.append(f"{address}:{port}")
        return socket.create_connection(self._server.getsockname(), timeout=seconds)

    def page(self, path: str, body: bytes, **headers: str) -> None:
        self.answers[path] = reply(200, body, **headers)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                request = b""
                while b"\r\n\r\n" not in request and (piece := connection.recv(65536)):
                    request += piece
                    if not request.startswith(b"GET"):
                        break  # it speaks TLS, and is answered in plain text
                self.requests.append(request.decode("latin-1"))
                path = request.split(b" ")[1].decode() if request.startswith(b"GET ") else ""
                answer = self.answers.get(path, reply(404, b"nothing"))
                if answer == b"silence":
                    connection.recv(1)  # until the other side gives up
                    continue
                try:
                    connection.sendall(answer)
                except OSError:
                    continue


def reply(status: int, body: bytes, **headers: str) -> bytes:
    shown = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body))}
    shown |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in shown.items())
    return f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + body


@pytest.fixture
def web() -> Iterator[Web]:
    made = Web()
    made.names["docs.example"] = [[PUBLIC]]
    yield made
    made.close()


def tools_of(web: Web, *, seconds: float = 30.0) -> Toolbox:
    fetch = WebFetch(resolve=web.resolve, connect=web.connect, seconds=seconds)
    return Toolbox([web_fetch_tool(fetch)])


async def test_a_page_comes_as_text(web: Web) -> None:
    html = "<html><head><title>t</title></head><body><h1>Hi</h1><p>a <a href='/b'>b</a>"
    web.page("/x?y=1", html.encode(), Content_Type="text/html")
    told = await tools_of(web).call("web_fetch", url="http://docs.example/x?y=1#part")
    assert told == "[200 http://docs.example/x?y=1]\n# Hi\n\na b (/b)"
    assert web.connected == [f"{PUBLIC}:80"]
    assert "Host: docs.example\r\n" in web.requests[0]
    assert "authorization" not in web.requests[0].lower()


async def test_other_kinds_and_failures_are_told(web: Web) -> None:
    tools = tools_of(web)
    web.page("/json", b'{"a": 1}', Content_Type="application/json")
    web.page("/zip", bytes(100), Content_Type="application/zip")
    web.page("/latin", b"caf\xe9", Content_Type="text/plain; charset=iso-8859-1")
    web.answers["/odd"] = b"not http\r\n\r\n"
    assert '{"a": 1}' in await tools.call("web_fetch", url="http://docs.example/json")
    assert "100 bytes of application/zip, not text" in await tools.call(
        "web_fetch", url="http://docs.example/zip"
    )
    assert "café" in await tools.call("web_fetch", url="http://docs.example/latin")
    assert "[404 " in await tools.call("web_fetch", url="http://docs.example/none")
    assert "did not give the page" in await tools.call("web_fetch", url="http://docs.example/odd")


REFUSED = [
    "http://127.0.0.1/", "http://localhost/", "http://[::1]/", "http://0.0.0.0/", "http://[::]/",
    "http://10.0.0.1/", "http://192.168.1.1/", "http://172.16.0.1/", "http://169.254.169.254/",
    "http://100.64.0.1/", "http://[fe80::1]/", "http://[fc00::1]/", "http://[fd00:ec2::254]/",
    "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/", "http://[::127.0.0.1]/", "http://2130706433/", "http://0x7f000001/",
    "http://0x7f.1/", "http://0177.0.0.1/", "http://127.1/", "http://127.0.0.1.:80/",
    "http://224.0.0.1/", "http://255.255.255.255/", "http://[fec0::1]/", "http://[ff02::1]/",
    "http://private.example/", "http://mixed.example/", "http://docs.example@127.0.0.1/",
    "http://127.0.0.1\\@docs.example/", "http://docs.example:80@127.0.0.1/", "http://docs.example\t/",
    "http://docs.example%00.evil/", "http://docs.example\0/", "file:///etc/passwd",
    "ftp://docs.example/", "gopher://docs.example/", "http:///x", "http://", "//docs.example/",
    "http://docs.example:99999/", "http://docs.example:-1/", "http://ⓛocalhost/",
    "http://docs。example/", "http://-/", "http://a..b/", "http://unknown.example/", "javascript:1",
]  # fmt: skip


@pytest.mark.parametrize("url", REFUSED)
async def test_what_is_not_public_is_not_reached(web: Web, url: str) -> None:
    web.names["localhost"] = [["127.0.0.1"]]
    web.names["private.example"] = [["10.1.2.3"]]
    web.names["mixed.example"] = [[PUBLIC, "127.0.0.1"]]
    web.names["unknown.example"] = [[]]
    told = await tools_of(web).call("web_fetch", url=url)
    assert told.startswith("failed: WebRefusedError")
    assert web.connected == []


SPECIAL = [
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    "192.0.0.0/24", "192.0.0.0/29", "192.0.0.8/32", "192.0.0.9/32", "192.0.0.10/32",
    "192.0.0.170/32", "192.0.0.171/32", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24",
    "192.88.99.0/24", "192.88.99.2/32", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15",
    "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "255.255.255.255/32", "224.0.0.0/4",
    "::1/128", "::/128", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64",
    "100:0:0:1::/64", "2001::/23", "2001::/32", "2001:1::1/128", "2001:1::2/128", "2001:1::3/128",
    "2001:2::/48", "2001:3::/32", "2001:4:112::/48", "2001:10::/28", "2001:20::/28",
    "2001:30::/28", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20", "5f00::/16",
    "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
    # What machines of clouds are told by: of Azure, Oracle, Alibaba, Amazon, Google.
    "168.63.129.16/32", "192.0.0.192/32", "100.100.100.200/32", "fd00:ec2::254/128",
    "fd20:ce::254/128", "::ffff:127.0.0.0/104", "::ffff:168.63.129.16/128",
    "::ffff:192.0.0.192/128",
]  # fmt: skip
"""IANA's registries of special-purpose addresses, IPv4 and IPv6, and multicast.

An IPv4 address that is written as IPv6 (::ffff:0:0/96) counts as what it is.
"""


@pytest.mark.parametrize("network", SPECIAL)
def test_no_address_with_a_special_purpose_is_public(network: str) -> None:
    found = ipaddress.ip_network(network)
    middle = found[found.num_addresses // 2]
    assert not any(is_public(str(each)) for each in (found[0], middle, found[-1]))


@pytest.mark.parametrize(
    "address",
    [
        *("1.1.1.1", "168.63.129.15", "192.0.1.0", "192.88.98.255", "198.20.0.0"),
        *("223.255.255.255", "2001:200::1", "2606:4700::1111", "2a00:1450::1", "::ffff:1.1.1.1"),
    ],
)
def test_addresses_beside_those_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data", "http://127.0.0.1:8080/", "//localhost/",
        "file:///etc/passwd", "http://[::1]/", "http://private.example/",
    ],
)  # fmt: skip
async def test_a_redirect_is_checked_like_the_first_url(web: Web, location: str) -> None:
    web.names["localhost"] = [["127.0.0.1"]]
    web.names["private.example"] = [["10.1.2.3"]]
    web.answers["/"] = reply(302, b"", Location=location)
    told = await tools_of(web).call("web_fetch", url="http://docs.example/")
    assert told.startswith("failed: WebRefusedError")
    assert web.connected == [f"{PUBLIC}:80"]


async def test_a_redirect_to_another_public_page_is_followed_a_few_times(web: Web) -> None:
    web.names["other.example"] = [["1.1.1.1"]]
    web.answers["/"] = reply(301, b"", Location="http://other.example:8080/there")
    web.page("/there", b"arrived")
    web.answers["/loop"] = reply(302, b"", Location="/loop")
    tools = tools_of(web)
    assert "arrived" in await tools.call("web_fetch", url="http://docs.example/")
    assert web.connected == [f"{PUBLIC}:80", "1.1.1.1:8080"]
    assert "more than 5 redirects" in await tools.call("web_fetch", url="http://docs.example/loop")


async def test_a_name_that_changes_after_the_check_changes_nothing(web: Web) -> None:
    web.names["rebind.example"] = [[PUBLIC], ["127.0.0.1"]]
    web.page("/", b"public")
    assert "public" in await tools_of(web).call("web_fetch", url="http://rebind.example/")
    assert web.connected == [f"{PUBLIC}:80"]


async def test_a_page_without_end_is_cut(web: Web) -> None:
    web.page("/big", b"x" * (5 << 20))
    told = await tools_of(web).call("web_fetch", url="http://docs.example/big")
    assert "characters are left out here" in told
    assert told.endswith("[cut after 4 MiB]")


async def test_a_small_page_that_unpacks_to_a_large_one_is_cut(web: Web) -> None:
    packed = gzip.compress(b"y" * (100 << 20), 1)
    web.page("/bomb", packed, Content_Encoding="gzip")
    told = await tools_of(web).call("web_fetch", url="http://docs.example/bomb")
    assert told.endswith("[cut after 4 MiB]")
    web.page("/odd", b"x", Content_Encoding="br")
    assert "not supported" in await tools_of(web).call("web_fetch", url="http://docs.example/odd")


async def test_a_server_that_says_nothing_is_given_up(web: Web) -> None:
    web.answers["/"] = b"silence"
    told = await tools_of(web, seconds=0.3).call("web_fetch", url="http://docs.example/")
    assert "was not received within 0.3 s" in told


async def test_a_server_without_a_valid_certificate_is_refused(web: Web) -> None:
    told = await tools_of(web).call("web_fetch", url="https://docs.example/")
    assert "did not give the page" in told
    assert web.connected == [f"{PUBLIC}:443"]


def test_web_fetch_is_off_by_default(tmp_path: Path) -> None:
    assert "web_fetch" not in {tool.name for tool in coding_tools(tmp_path)}
    assert web_fetch_tool().rules.approval == "ask"


def test_urls_are_put_together_as_they_were_read() -> None:
    assert read_url("http://Docs.Example.:80").url == "http://docs.example/"
    assert read_url("https://docs.example:8443/a?b=c").url == "https://docs.example:8443/a?b=c"
    assert read_url("http://[2606:4700::1111]/").url == "http://[2606:4700::1111]/"
    with pytest.raises(WebRefusedError):
        read_url("http://docs.example/" + "x" * 5000)


def test_a_page_is_read_as_a_person_reads_it() -> None:
    page = """<style>b{}</style><script>alert(1)</script><ul><li>one<li>two</ul>
    <p>a &amp; b<br>c <a href="https://x.example/">x</a> <a href="javascript:evil()">y</a>
    <svg><text>hidden</text></svg>z"""
    shown = text_of_page(page)
    assert shown == "- one\n- two\n\na & b\nc x (https://x.example/) y\nz"


@pytest.mark.parametrize(
    "body",
    [
        "<p>seen</p>",
        "<img src='x.png'>seen",
        "<main><h1>seen</h1></main>",
        "<a href='/b'>seen</a>",
        "<script>no()</script>seen",
        "<svg><title>no</title></svg><p>seen</p>",
        "seen",
    ],
)
@pytest.mark.parametrize(
    "head", ["", "<title>no</title>", "<meta charset=utf-8>\n<style>no{}</style>\n"]
)
def test_tags_that_html_lets_authors_leave_out_change_no_text(head: str, body: str) -> None:
    tags = ["<html>", "<head>", "</head>", "<body>", "</body>", "</html>"]
    whole = text_of_page("<html><head>" + head + "</head><body>" + body + "</body></html>")
    assert "seen" in whole
    assert "no" not in whole
    for kept in itertools.product([True, False], repeat=len(tags)):
        opened, begun, ended, shown, *closed = (
            tag if is_kept else "" for tag, is_kept in zip(tags, kept, strict=True)
        )
        page = f"<!doctype html>{opened}{begun}{head}{ended}{shown}{body}{''.join(closed)}"
        assert text_of_page(page) == whole, page


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<head><noscript><link href=x><body>seen", "seen"),
        ("<svg><path d=x><p>seen", "seen"),
        ("<svg><foreignObject><p>no</p></foreignObject></svg>seen", "seen"),
        ("<svg><desc><b>no</b></desc></svg>seen", "seen"),
        ("<svg><svg></svg>no</svg>seen", "seen"),
        ("<template><body><ul><li><a href='/b'>no</a></ul></template>seen", "seen"),
        ("<head><noscript><img src=x></noscript><title>no</title></head>seen", "seen"),
    ],
)
def test_what_is_not_shown_ends_where_a_browser_ends_it(page: str, text: str) -> None:
    assert text_of_page(page) == text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("a <!-- b --> c<!--> d<!--->e<!-- f --!>g", "a c deg"),
        ("a <b title='>'>b</b> < c <?x?>d</ >e", "a b < c de"),
        ("<a href=/x?a=1&amp;b=2>y</a>", "y (/x?a=1&b=2)"),
        ("<script>if (a < b) '</scrip'</SCRIPT >a", "a"),
        ("a<b", "a"),
        ("a<b title='", "a"),
        ("&#65;&#0000000000000000065;&#99999999999999;&lt;", "AA\ufffd<"),
        ("&#" + "9" * 5000 + ";", "\ufffd"),
        ("<svg/>a<svg><path/></svg>b", "ab"),
        ("a<br/>b", "a\nb"),
    ],
)
def test_tokens_are_those_of_a_browser(page: str, text: str) -> None:
    assert text_of_page(page) == text


async def test_a_page_made_to_take_long_is_read(web: Web) -> None:
    web.page("/", b"<p>seen</p>" + b"<b" * 1_000_000, Content_Type="text/html")
    told = await tools_of(web).call("web_fetch", url="http://docs.example/")
    assert told.split("\n")[1] == "seen"


async def test_the_time_limit_covers_the_reading(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    bootstrap = "import time; time.sleep(60)"
    monkeypatch.setattr("haptera.system.isolated_python._BOOTSTRAP", bootstrap)
    web.page("/", b"<p>a", Content_Type="text/html")
    told = await tools_of(web, seconds=1.0).call("web_fetch", url="http://docs.example/")
    assert "was not read within 1 s" in told


async def test_fetches_at_the_same_time_do_not_meet(web: Web) -> None:
    for number in range(5):
        web.page(f"/{number}", f"page {number}".encode())
    tools = tools_of(web)
    urls = [f"http://docs.example/{number}" for number in range(5)]
    told = await asyncio.gather(*(tools.call("web_fetch", url=url) for url in urls))
    assert [text.split("\n")[1] for text in told] == [f"page {number}" for number in range(5)]
