"""EventSources that others wrote, of npm and of Chromium: they get every entry once over drops."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.parse import urlencode

import pytest

from haptera.server import Access, ServerSettings, create_app
from haptera.server.serving import listen
from haptera.testing import says
from haptera.testing.scripted_provider import Gate
from scripts.set_up_npm_packages import EVENT_SOURCE, main, node
from tests.fixtures_wire import is_everything_required
from tests.scripted_agents import make_agent
from tests.server.event_sources import KINDS, SCRIPT, AppWithPage, DroppingProxy, Reports
from tests.server.serving import TOKEN, running_app

pytestmark = pytest.mark.slow

Start = Callable[[str, str, str], AbstractAsyncContextManager[None]]
"""Starts a client with the origin of the server, the path to follow, and the URL of reports."""

PAGE = """<!doctype html><title>about</title><script>
%(script)s
const told = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
const login = { method: "POST", body: JSON.stringify({ token: told.token }) };
login.headers = { "Content-Type": "application/json" };
fetch("/api/v1/login", login).then(async (answer) => {
  const { secret } = await answer.json();
  report(told.reports, { kind: "login", status: answer.status, cookie: document.cookie });
  if (told.next) reported.then(() => location.assign(told.next + location.hash));
  else {
    const source = new HeaderEventSource(told.path, { "X-Login-Secret": secret });
    follow(source, %(kinds)s, told.reports);
  }
});
</script>"""
FOREIGN_PAGE = """<!doctype html><title>foreign</title><script>
%(script)s
const told = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
follow(new EventSource(told.origin + told.path, { withCredentials: true }), [], told.reports);
</script>"""
NODE_PROGRAM = """
import { EventSource } from %(module)s;
const [origin, path, token, reports] = process.argv.slice(-4);
const authorised = (url, init) =>
  fetch(url, { ...init, headers: { ...init.headers, Authorization: `Bearer ${token}` } });
%(script)s
follow(new EventSource(origin + path, { fetch: authorised }), %(kinds)s, reports);
setInterval(() => {}, 2 ** 30); // its timer for a reconnect does not keep a program alive
"""


@contextlib.asynccontextmanager
async def _process(*command: str, environment: dict[str, str]) -> AsyncIterator[None]:
    """Run a program while the block runs."""
    nothing = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdin=nothing, stderr=nothing, start_new_session=True
    )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a browser is several processes
        await process.wait()


async def _follow_over_drops(start: Start, *, page: str = "") -> Reports:
    """Let a client follow a session while its connection is cut, and while the server restarts."""
    gate = Gate()
    first = says("The ", "anchor ", "holds.")
    agent, _ = make_agent([[*first[:3], gate, *first[3:]], says("Again.")])
    async with DroppingProxy().running() as proxy, Reports().running() as reports, agent:
        sock = listen("127.0.0.1", 0, is_protected=False)
        proxy.target = port = sock.getsockname()[1]
        settings = ServerSettings(
            hosts=frozenset({f"127.0.0.1:{port}", f"127.0.0.1:{proxy.port}"}), ping_seconds=0.3
        )
        access = Access(TOKEN)

        def app() -> AppWithPage:
            return AppWithPage(create_app(agent, access=access, settings=settings), page)

        async with contextlib.AsyncExitStack() as client:
            async with running_app(app(), sock) as served:
                path = f"/api/v1/sessions/{await served.new_session()}"
                origin = f"http://127.0.0.1:{proxy.port}"
                await client.enter_async_context(
                    start(origin, f"{path}/events", f"{reports.url}/report")
                )
                await reports.until("log.synced")
                await served.call("POST", f"{path}/messages", {"content": "go"})
                await reports.until("text.delta")
                proxy.drop()
                gate.open()
                await reports.until("query.ended")
                await reports.until("ping")
            # The server ended its streams, and nothing listens: the client goes on trying.
            await reports.until("error")
            sock = listen("127.0.0.1", port, is_protected=False)
            async with running_app(app(), sock) as served:
                await reports.until("log.synced")
                await served.call("POST", f"{path}/messages", {"content": "again"})
                await reports.until("query.ended")
                log = await served.log(path.rpartition("/")[2])
    assert reports.entries() == [entry.data for entry in log]
    assert len([told for told in reports.all if told["kind"] == "open"]) == 3
    return reports


async def test_the_event_source_of_npm_gets_every_entry_once_over_drops(tmp_path: Path) -> None:
    main()
    program = tmp_path / "client.mjs"
    program.write_text(
        NODE_PROGRAM
        % {
            "module": json.dumps(str(EVENT_SOURCE)),
            "script": SCRIPT,
            "kinds": json.dumps(KINDS),
        }
    )

    def start(origin: str, path: str, reports: str) -> AbstractAsyncContextManager[None]:
        return _process(
            *(str(node()), str(program), origin, path, TOKEN, reports),
            environment={"PATH": os.defpath},
        )

    await _follow_over_drops(start)


@pytest.fixture
def chromium() -> str:
    found = shutil.which("chromium")
    if found is None and is_everything_required():
        pytest.fail("chromium is not installed")
    if found is None:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    return found


@contextlib.asynccontextmanager
async def _browser(chromium: str, folder: Path, url: str) -> AsyncIterator[None]:
    """Show a page while the block runs."""
    command = (
        *(chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--disable-default-apps", "--disable-dev-shm-usage", "--remote-debugging-port=0"),
        *(f"--user-data-dir={folder / 'profile'}", url),
    )
    environment = {"PATH": os.defpath, "HOME": str(folder)}
    async with _process(*command, environment=environment):
        yield


async def test_the_event_source_of_chromium_gets_every_entry_once_over_drops(
    chromium: str, tmp_path: Path
) -> None:
    page = PAGE % {"script": SCRIPT, "kinds": json.dumps(KINDS)}

    def start(origin: str, path: str, reports: str) -> AbstractAsyncContextManager[None]:
        told = urlencode({"token": TOKEN, "path": path, "reports": reports})
        return _browser(chromium, tmp_path, f"{origin}/about#{told}")

    reports = await _follow_over_drops(start, page=page)
    assert reports.all[0] == {"kind": "login", "status": 200, "cookie": ""}  # no script reads it


async def test_a_page_of_another_origin_is_refused_though_the_browser_sends_its_cookie(
    chromium: str, tmp_path: Path
) -> None:
    agent, _ = make_agent([])
    app = AppWithPage(
        create_app(agent, access=Access(TOKEN)), PAGE % {"script": SCRIPT, "kinds": "[]"}
    )
    sock = listen("127.0.0.1", 0, is_protected=False)
    async with Reports().running() as reports, agent, running_app(app, sock) as served:
        reports.page = FOREIGN_PAGE % {"script": SCRIPT}
        told = {
            "token": TOKEN,
            "origin": served.url,
            "path": f"/api/v1/sessions/{await served.new_session()}/events",
            "reports": f"{reports.url}/report",
            "next": f"{reports.url}/page",
        }
        async with _browser(chromium, tmp_path, f"{served.url}/about#{urlencode(told)}"):
            assert (await reports.until("login"))["status"] == 200
            assert (await reports.until("error"))["closed"]
    assert app.refused[told["path"]] == (403, "ORIGIN_REFUSED")
    assert told["path"] in app.with_cookie
