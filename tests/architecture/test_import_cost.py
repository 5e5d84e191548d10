"""`import holdfast` stays light: it loads its own vocabulary, asyncio, msgspec and nothing else."""

import json
import subprocess
import sys
from typing import Any

import holdfast
from holdfast import administration
from tests.fixtures_report import Report

# -S keeps what site-packages' .pth files load out of the count; the search path is handed over.
PROBE = """
import sys, time
sys.path[:] = {path!r}
before, started = set(sys.modules), time.process_time()
import {names}
spent, loaded = time.process_time() - started, set(sys.modules) - before
import json
print(json.dumps({{"cpu_ms": spent * 1000, "loaded": sorted(loaded)}}))
"""


def load(names: str) -> Any:
    command = [sys.executable, "-S", "-c", PROBE.format(path=sys.path, names=names)]
    probe = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(probe.stdout)


def test_importing_the_package_loads_nothing_but_asyncio_msgspec_and_itself(report: Report) -> None:
    floor, measured = load("asyncio, msgspec"), load("holdfast")
    report(
        f"import holdfast: {len(measured['loaded'])} modules, {measured['cpu_ms']:.0f} ms CPU; "
        f"asyncio and msgspec alone: {floor['cpu_ms']:.0f} ms"
    )
    more = {name.partition(".")[0] for name in set(measured["loaded"]) - set(floor["loaded"])}
    assert more == {"holdfast"}


def test_importing_the_package_loads_none_of_what_only_an_agent_needs() -> None:
    loaded = load("holdfast")["loaded"]
    late = (
        "holdfast.administration",
        "holdfast.assembly.composition",
        "holdfast.auth",
        "holdfast.config",
        "holdfast.engine.query_runner",
        "holdfast.providers",
        "holdfast.session.live_session",
        "holdfast.stores",
        "holdfast.vocabulary.local_models",
    )
    assert [name for name in loaded if name.startswith(late)] == []


def test_names_that_are_loaded_when_used_are_seen_before() -> None:
    assert set(holdfast.__all__) <= set(dir(holdfast))
    assert "pull_model" not in vars(holdfast)
    assert holdfast.pull_model is administration.pull_model
    assert not hasattr(holdfast, "no_such_name")
