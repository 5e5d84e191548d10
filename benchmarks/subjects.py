"""What a benchmark measures: subjects, declared by name, and the setup they are opened with."""

import importlib
import importlib.util
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import ModuleType
from typing import cast

import msgspec

from benchmarks.script import APIS, Api, Script

PROMPT = "What colour is the sea on a clear day, and why does it look like that?"


class NotAvailable(Exception):  # noqa: N818 - an outcome that is reported, not a failure
    """The subject is installed but cannot do what the benchmark asks; the text says why."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What a subject is opened with."""

    api: Api
    script: Script
    base_url: str
    """Of the mock provider, without a path."""
    folder: str = ""
    """Where a growing session keeps its files; the same folder opens the same session."""


class Outcome(msgspec.Struct, frozen=True):
    """What one query brought; checked against the script, so that no subject wins by skipping."""

    characters: int
    tool_calls: int


class GrowingSession(msgspec.Struct, frozen=True):
    """A persisted session that was opened."""

    count: Callable[[], Awaitable[int]]
    """Counts the messages of the session."""
    add_turn: Callable[[str], Awaitable[int]]
    """Sends one prompt with the whole history; gives the characters of the answer."""


class Trial(msgspec.Struct, frozen=True):
    """What a subject measured of itself."""

    value: float
    extra: dict[str, float] = {}


Ask = Callable[[], Awaitable[Outcome]]
OpenAsk = Callable[[Setup], AbstractAsyncContextManager[Ask]]
OpenSession = Callable[[Setup], AbstractAsyncContextManager[GrowingSession]]
RunTrial = Callable[[Setup, int], Awaitable[Trial]]


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to measure. `target` is `module:function`, imported in the worker alone."""

    name: str
    target: str
    packages: tuple[str, ...] = ()
    """Import names that must be installed."""
    apis: tuple[Api, ...] = APIS
    """What it can speak; a benchmark that needs only one takes the first."""
    source: str = ""
    """A folder that holds another version of the package; empty for the one of this project."""

    def missing(self) -> list[str]:
        """Name the packages that are not installed."""
        return [package for package in self.packages if not _is_installed(package)]

    def load_ask(self) -> OpenAsk:
        """Import the subject of a query benchmark."""
        return cast("OpenAsk", self._load())

    def load_session(self) -> OpenSession:
        """Import the subject of a growth benchmark."""
        return cast("OpenSession", self._load())

    def load_trial(self) -> RunTrial:
        """Import the subject of a trial."""
        return cast("RunTrial", self._load())

    def _load(self) -> object:
        module, _, function = self.target.partition(":")
        return getattr(importlib.import_module(module), function)


def load(package: str) -> ModuleType:
    """Import an optional peer; untyped on purpose, since type checks run without the peers."""
    return importlib.import_module(package)


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


QUERY_SUBJECTS = (
    Subject(name="floor-asyncio", target="benchmarks.subjects_floor:on_asyncio"),
    Subject(
        name="floor-aiohttp", target="benchmarks.subjects_floor:on_aiohttp", packages=("aiohttp",)
    ),
    Subject(name="haptera", target="benchmarks.subjects_haptera:query", packages=("haptera",)),
    Subject(
        name="anthropic raw stream",
        target="benchmarks.subjects_vendor:anthropic_raw",
        packages=("anthropic",),
        apis=("anthropic",),
    ),
    Subject(
        name="anthropic helper",
        target="benchmarks.subjects_vendor:anthropic_helper",
        packages=("anthropic",),
        apis=("anthropic",),
    ),
    Subject(
        name="openai raw stream",
        target="benchmarks.subjects_vendor:openai_raw",
        packages=("openai",),
        apis=("chat", "responses"),
    ),
    Subject(
        name="openai helper",
        target="benchmarks.subjects_vendor:openai_helper",
        packages=("openai",),
        apis=("chat", "responses"),
    ),
)

STORE_SUBJECTS = (
    Subject(
        name="floor + rows",
        target="benchmarks.subjects_growth:floor_rows",
        packages=("aiohttp", "apsw"),
    ),
    Subject(
        name="floor + lines",
        target="benchmarks.subjects_growth:floor_lines",
        packages=("aiohttp",),
    ),
    Subject(
        name="haptera sqlite", target="benchmarks.subjects_haptera:sqlite", packages=("haptera",)
    ),
    Subject(
        name="haptera jsonl", target="benchmarks.subjects_haptera:jsonl", packages=("haptera",)
    ),
)

ONE_SHOT_SUBJECTS = (
    Subject(
        name="floor + rows",
        target="benchmarks.subjects_growth:one_shot_rows",
        packages=("aiohttp", "apsw"),
    ),
    Subject(
        name="haptera sqlite",
        target="benchmarks.subjects_haptera:one_shot_sqlite",
        packages=("haptera",),
    ),
    Subject(
        name="haptera jsonl",
        target="benchmarks.subjects_haptera:one_shot_jsonl",
        packages=("haptera",),
    ),
)

GROWTH_SUBJECTS = (
    *STORE_SUBJECTS,
    Subject(
        name="openai-agents",
        target="benchmarks.subjects_growth:openai_agents",
        packages=("agents", "openai"),
        apis=("chat",),
    ),
    Subject(
        name="openai-agents, floor client",
        target="benchmarks.subjects_growth:openai_agents_on_floor",
        packages=("agents", "openai"),
    ),
    Subject(
        name="langgraph, floor client",
        target="benchmarks.subjects_growth:langgraph_saver",
        packages=("langgraph.graph", "langgraph.checkpoint.sqlite"),
    ),
)


def trial_subjects(trial: str) -> tuple[Subject, ...]:
    """Name the floor and Haptera in a trial of `benchmarks.subjects_trials`."""
    module = "benchmarks.subjects_trials"
    return (
        Subject(name="floor-aiohttp", target=f"{module}:{trial}_floor", packages=("aiohttp",)),
        Subject(name="haptera", target=f"{module}:{trial}_haptera", packages=("haptera",)),
    )
