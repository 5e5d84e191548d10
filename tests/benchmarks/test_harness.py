"""The harness compares within a round and never drops a subject in silence."""

from collections.abc import Iterator

import pytest

from benchmarks.floor import ChunkedBody
from benchmarks.harness import Rows, Suite, run_suite
from benchmarks.jobs import Measure, QueryJob, WorkerReport
from benchmarks.mock_server import running_server
from benchmarks.report import to_table
from benchmarks.script import Script
from benchmarks.subjects import Subject

JOB = QueryJob(case="burst", api="chat", script=Script(), scale=1.0, runs=1)


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with running_server() as url:
        yield url


def report(value: float) -> WorkerReport:
    return WorkerReport(status="ok", measures=(Measure(case="burst", value=value),))


def test_a_ratio_is_made_within_its_round() -> None:
    rows = Rows("floor")
    for floor, subject in ((1.0, 3.0), (10.0, 20.0)):
        rows.add(JOB, "floor", report(floor))
        rows.add(JOB, "subject", report(subject))
    _, row = rows.finish()
    assert (row.ratios, row.above_floor) == ([3.0, 2.0], [2.0, 10.0])


@pytest.mark.slow
def test_a_subject_that_cannot_run_stays_in_the_table_with_its_reason(base_url: str) -> None:
    floor = Subject(name="floor-asyncio", target="benchmarks.subjects_floor:on_asyncio")
    missing = Subject(name="absent", target="nowhere:at_all", packages=("no_such_package",))
    broken = Subject(name="broken", target="benchmarks.subjects_floor:no_such_function")
    suite = Suite(
        name="test",
        title="Test",
        unit="s",
        floor=floor.name,
        jobs=(JOB,),
        subjects=(floor, missing, broken),
        rounds=1,
    )
    rows = run_suite(suite, base_url=base_url, has_uvloop=False, say=lambda _: None)
    assert [row.status for row in rows] == ["ok", "not installed", "failed"]
    assert rows[0].ratios == [1.0]
    table = to_table(suite, rows)
    assert "not installed: no_such_package" in table
    assert "no_such_function" in table


@pytest.mark.parametrize("size", range(1, 14))
def test_chunks_are_the_same_at_every_split(size: int) -> None:
    data = b"3\r\nabc\r\nc\r\ndef\r\nghi\n\njk\r\n0\r\n\r\n"
    body = ChunkedBody()
    pieces = [body.feed(data[start : start + size]) for start in range(0, len(data), size)]
    assert b"".join(pieces) == b"abcdef\r\nghi\n\njk"
    assert body.is_complete
