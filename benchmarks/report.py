"""Results as a table for people and as JSON for machines."""

import os
import platform
import statistics
from collections.abc import Sequence
from importlib import metadata
from itertools import groupby
from pathlib import Path

import msgspec

from benchmarks.harness import Row, Suite

RESULTS = Path(__file__).parent / "results"
_PACKAGES = (
    "haptera",
    "aiohttp",
    "msgspec",
    "uvloop",
    "anthropic",
    "openai",
    "openai-agents",
    "langgraph",
    "langgraph-checkpoint-sqlite",
)


def versions() -> dict[str, str]:
    """Name the versions of what is installed."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def write_json(suite: Suite, rows: Sequence[Row], *, loop: str, is_quick: bool) -> Path:
    """Write all rounds' numbers and their medians to the results folder."""
    content = {
        "benchmark": suite.name,
        "unit": suite.unit,
        "floor": suite.floor,
        "rounds": suite.rounds,
        "is_quick": is_quick,
        "loop": loop,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "versions": versions(),
        "rows": [_to_json(row) for row in rows],
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{suite.name}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content)))
    return path


def _to_json(row: Row) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(row)
    medians = {"value": row.median(), "ratio": _middle(row.ratios), "extra": row.extra()}
    return fields | {"median": medians | {"above_floor": _middle(row.above_floor)}}


def to_table(suite: Suite, rows: Sequence[Row]) -> str:
    """Lay the rows out by case; a ratio is to the floor's value of the same round."""
    lines = [f"{suite.title}: {suite.unit}, median of {suite.rounds} round(s)", ""]
    header = f"  {'':<28} {suite.unit:>10} {'spread':>15} {'x floor':>9} {'- floor':>10}  "
    for case, group in groupby(rows, key=lambda row: row.case):
        lines += [case + header[len(case) :].rstrip() if len(case) < 30 else case + "\n" + header]
        lines += [_line(row) for row in group]
        lines.append("")
    return "\n".join(lines)


def _line(row: Row) -> str:
    start = f"  {row.subject:<28}"
    state = "" if row.status == "ok" else f"{row.status}: {row.reason}"
    median = row.median()
    if median is None:
        return f"{start}  {state}"
    ratio, above = _middle(row.ratios), _middle(row.above_floor)
    cells = [f"{median:>10.2f}", f"{_spread(row.values):>15}"]
    cells += [_cell(ratio, 9, 2), _cell(above, 10, 2)]
    extra = "  ".join(_extra(name, value) for name, value in row.extra().items())
    return " ".join([start, *cells, "", extra, state]).rstrip()


def _spread(values: Sequence[float]) -> str:
    """Write the least and the greatest value."""
    return f"{min(values):.2f} - {max(values):.2f}"


def _extra(name: str, value: float) -> str:
    """Write a number with its name; a bare 1 is a mark, whose name says it all."""
    digits = 2 if abs(value) < 10 else 1
    return f"+{name}" if value == 1 and name != "modules" else f"{name} {value:,.{digits}f}"


def _cell(value: float | None, width: int, digits: int) -> str:
    return f"{value:>{width}.{digits}f}" if value is not None else " " * width


def _middle(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
