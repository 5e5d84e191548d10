"""Run the benchmarks: `python -m benchmarks [NAME …] [--rounds N] [--quick]`.

`shape` is no measurement and `partial` asks no provider; they only run when they are named.
"""

import argparse
import sys
from contextlib import nullcontext

import msgspec

from benchmarks.harness import run_suite
from benchmarks.mock_server import running_server
from benchmarks.partial import partial_table
from benchmarks.report import to_table, write_json
from benchmarks.shape import Shape, shape_table
from benchmarks.subjects import Subject
from benchmarks.suites import SUITES
from benchmarks.ways import traced_ways

_SHAPE, _PARTIAL = "shape", "partial"


def main() -> int:
    """Run what was asked for; the exit code is 1 if a subject failed."""
    options = _parse(sys.argv[1:])
    if _SHAPE in options.benchmarks:
        shape = Shape()
        print(shape_table(shape, traced_ways(shape.source.package)), flush=True)
    if _PARTIAL in options.benchmarks:
        print(partial_table(), flush=True)
    names = [name for name in options.benchmarks or SUITES if name in SUITES]
    has_failed = False
    with running_server() if names else nullcontext("") as base_url:
        for name in names:
            suite = SUITES[name](is_quick=options.quick)
            if options.rounds:
                suite = msgspec.structs.replace(suite, rounds=options.rounds)
            if options.subject:
                chosen = {suite.floor, *options.subject}
                subjects = tuple(one for one in suite.subjects if one.name in chosen)
                suite = msgspec.structs.replace(suite, subjects=subjects)
            if options.before:
                subjects = _with_another_version(suite.subjects, options.before)
                suite = msgspec.structs.replace(suite, subjects=subjects)
            rows = run_suite(
                suite, base_url=base_url, has_uvloop=options.loop == "uvloop", say=_say
            )
            path = write_json(suite, rows, loop=options.loop, is_quick=options.quick)
            _say("")
            print(f"{to_table(suite, rows)}\nwritten to {path.name}\n", flush=True)
            has_failed |= any(row.status == "failed" for row in rows)
    return int(has_failed)


def _with_another_version(subjects: tuple[Subject, ...], folder: str) -> tuple[Subject, ...]:
    """Add each subject of Haptera a second time, with the package of another folder."""
    ours = [one for one in subjects if "haptera" in one.name]
    others = [
        msgspec.structs.replace(one, name=f"{one.name} (before)", source=folder) for one in ours
    ]
    return (*subjects, *others)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [*SUITES, _SHAPE, _PARTIAL]
    parser.add_argument("benchmarks", nargs="*", choices=[[], *names], metavar="|".join(names))
    parser.add_argument("--rounds", type=int, help="rounds over all subjects")
    parser.add_argument("--quick", action="store_true", help="one short round: a smoke test")
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    parser.add_argument("--subject", action="append", help="only this one beside the floor")
    parser.add_argument("--before", help="a `src` folder of another version, measured beside it")
    return parser.parse_args(arguments)


def _say(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
