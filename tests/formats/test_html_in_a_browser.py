"""The HTML page in a real Chromium: hostile content runs no script and makes no request.

Chromium comes from Debian and is installed by `.ci/run`. Where it is missing, the tests are skipped
and say so, unless nothing may be skipped.
"""

import os
import shutil
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from haptera.formats.html_page import write_html
from haptera.model.messages import Message
from haptera.model.parts import MediaPart, ReasoningPart
from tests.fixtures_report import Report
from tests.fixtures_wire import is_everything_required
from tests.formats.conversations import (
    A_CONVERSATION,
    assistant,
    call,
    exported,
    result,
    user,
)

pytestmark = pytest.mark.slow

HOST = "hostile.test"
RUN = "document.documentElement.setAttribute('data-owned', '1')"
HOSTILE = (
    f"<script>{RUN}</script>",
    f"<script src=http://{HOST}/a.js></script>",
    f"</pre></details></style></title></textarea><script>{RUN}</script>",
    f'<img src=http://{HOST}/b.png onerror="{RUN}">',
    f'<svg onload="{RUN}"><image href=http://{HOST}/c.png /></svg>',
    f'<iframe src=http://{HOST}/d srcdoc="<script>parent.{RUN}</script>"></iframe>',
    f"<link rel=stylesheet href=http://{HOST}/e.css><style>@import 'http://{HOST}/f.css';</style>",
    f"<meta http-equiv=refresh content='0;url=http://{HOST}/g'>",
    f'<body onload="{RUN}" background=http://{HOST}/h.png><base href=http://{HOST}/>',
    f"<object data=http://{HOST}/i></object><embed src=http://{HOST}/j>",
    f"![x](http://{HOST}/k.png) [y](javascript:{RUN})",
    f'<div style="background:url(http://{HOST}/l.png)">&#60;script&#62;{RUN}</div>',
    f"\u202e<!--><script>{RUN}</script>--><![CDATA[<script>{RUN}</script>]]>",
)
UNSAFE = f"<!doctype html><title>x</title><script>{RUN}</script><img src=http://{HOST}/m.png>"


@pytest.fixture
def chromium() -> str:
    found = shutil.which("chromium")
    if found is None and is_everything_required():
        pytest.fail("chromium is not installed")
    if found is None:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    return found


@contextmanager
def proxy() -> Iterator[tuple[str, list[str]]]:
    """Stand between the browser and every host; note the first line of each request."""
    asked: list[str] = []

    class Note(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked.append(self.rfile.readline(4096).decode("latin-1").strip())
            self.wfile.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Note) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


def shown(chromium: str, page: bytes, folder: Path) -> tuple[str, list[str], Path]:
    """Open a page; return the DOM after it came to rest, what was asked for, and a picture."""
    file, picture = folder / "page.html", folder / "page.png"
    file.write_bytes(page)
    with proxy() as (address, asked):
        command = [
            *(chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
            *("--disable-sync", "--disable-default-apps", "--disable-dev-shm-usage"),
            *(f"--proxy-server=http://{address}", "--proxy-bypass-list=<-loopback>"),
            *(f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=3000"),
            *("--window-size=1000,1600", f"--screenshot={picture}", "--dump-dom", file.as_uri()),
        ]
        environment = {"PATH": os.defpath, "HOME": str(folder)}
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=120, env=environment
        )
    return done.stdout, [line for line in asked if HOST in line], picture


def hostile_conversation() -> tuple[Message, ...]:
    said: list[Message] = []
    for number, text in enumerate(HOSTILE):
        said += [
            user(3 * number, text),
            assistant(
                3 * number + 1,
                ReasoningPart(text=text),
                text,
                call(text, f"c{number}", **{text: text}),
            ),
            user(3 * number + 2, result(text, f"c{number}", text)),
        ]
    remote = MediaPart(mime="image/png", url=f"http://{HOST}/n.png", filename=HOSTILE[3])
    drawn = MediaPart(mime="image/svg+xml", data="PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+")
    return (*said, user(999, remote, drawn))


def test_hostile_content_runs_no_script_and_makes_no_request(
    chromium: str, tmp_path: Path, report: Report
) -> None:
    page = b"".join(write_html(exported(*hostile_conversation(), title=HOSTILE[0])))
    dom, asked, picture = shown(chromium, page, tmp_path)
    assert asked == []
    assert "data-owned" not in dom.partition("<head")[0]
    assert dom.count("<script") == 0
    assert picture.stat().st_size > 10_000
    report(f"hostile HTML page in Chromium: {len(HOSTILE)} attacks, 0 requests, 0 scripts run")


def test_the_browser_would_have_shown_a_script_and_a_request(chromium: str, tmp_path: Path) -> None:
    dom, asked, _ = shown(chromium, UNSAFE.encode(), tmp_path)
    assert 'data-owned="1"' in dom.partition("<head")[0]
    assert asked == [f"GET http://{HOST}/m.png HTTP/1.1"]


def test_an_ordinary_page_is_drawn(chromium: str, tmp_path: Path) -> None:
    page = b"".join(write_html(exported(*A_CONVERSATION)))
    dom, asked, picture = shown(chromium, page, tmp_path)
    assert asked == []
    assert "<details" in dom
    assert picture.stat().st_size > 10_000
