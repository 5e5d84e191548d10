"""Lets a test put a measured number into the report instead of asserting on it."""

from collections.abc import Callable

import pytest

Report = Callable[[str], None]


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Report:
    """Return a function that adds one line to the end of the test run's output."""
    return lambda line: record_property("report", line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the lines that tests reported."""
    lines = [
        str(value)
        for outcome in terminalreporter.getreports("passed")
        for name, value in outcome.user_properties
        if name == "report"
    ]
    if lines:
        terminalreporter.section("measured")
        for line in sorted(lines):
            terminalreporter.line(line)
