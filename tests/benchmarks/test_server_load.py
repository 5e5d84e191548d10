"""The load benchmarks of the server run: nothing is lost, and a client that stalls can resume."""

import pytest

from benchmarks.script import Script
from benchmarks.subjects import RunTrial, Setup
from benchmarks.subjects_server import (
    fan_out_bare,
    fan_out_haptera,
    fan_out_stepwise,
    stalled_reader,
    streams_bare,
    streams_haptera,
)

pytestmark = pytest.mark.slow


def _setup(script: Script) -> Setup:
    return Setup(api="chat", script=script, base_url="")


@pytest.mark.parametrize("trial", [streams_haptera, streams_bare])
async def test_every_stream_gets_its_deltas_and_every_query_its_answer(trial: RunTrial) -> None:
    measured = await trial(_setup(Script(deltas=3, size=24, delay=20_000)), 3)
    assert measured.extra["errors"] == 0
    assert measured.extra["queries"] == 3


@pytest.mark.parametrize("trial", [fan_out_haptera, fan_out_bare, fan_out_stepwise])
async def test_a_burst_reaches_all_subscribers(trial: RunTrial) -> None:
    # The trial itself fails when an event is missing.
    measured = await trial(_setup(Script(deltas=20, size=24)), 3)
    assert measured.extra["events/s"] > 0


async def test_a_client_that_stalls_is_closed_with_a_cursor_and_has_all_entries_afterwards() -> (
    None
):
    # More text than the buffers of a connection hold.
    measured = await stalled_reader(_setup(Script(deltas=700, size=8192)), 1)
    assert measured.extra["deltas missed"] > 0
