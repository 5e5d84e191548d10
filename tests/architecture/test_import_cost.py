"""`import holdfast` stays light: no HTTP client, no pydantic, no store driver comes with it."""

import json
import subprocess
import sys

from tests.fixtures_report import Report

HEAVY = {
    "aiohttp",
    "anthropic",
    "apsw",
    "click",
    "http.client",
    "httpx",
    "openai",
    "psycopg",
    "pydantic",
    "requests",
    "rich",
    "sqlite3",
    "starlette",
    "unittest",
    "urllib.request",
    "uvicorn",
}

# -S keeps what site-packages' .pth files load out of the count; the search path is handed over.
PROBE = """
import sys, time
sys.path[:] = {path!r}
before, started = set(sys.modules), time.process_time()
import holdfast
spent, loaded = time.process_time() - started, set(sys.modules) - before
import json
print(json.dumps({{"cpu_ms": spent * 1000, "loaded": sorted(loaded)}}))
"""


def test_importing_the_package_loads_no_client_and_no_driver(report: Report) -> None:
    command = [sys.executable, "-S", "-c", PROBE.format(path=sys.path)]
    probe = subprocess.run(command, capture_output=True, text=True, check=True)
    measured = json.loads(probe.stdout)
    report(f"import holdfast: {len(measured['loaded'])} modules, {measured['cpu_ms']:.0f} ms CPU")
    assert HEAVY.isdisjoint(measured["loaded"])
    assert "holdfast" in measured["loaded"]
