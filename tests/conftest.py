"""Settings and fixtures for all tests; the fixtures themselves are in fixtures_<topic>.py."""

import gc
import logging
import signal
from collections.abc import Generator, Iterator

import hypothesis
import pytest

from haptera.model import secrets

pytest_plugins = [
    "tests.fixtures_report",
    "tests.fixtures_wire",
    "tests.fixtures_local",
    "tests.fixtures_llama",
    "tests.fixtures_postgres",
]

# No deadline: no test judges by the clock.
hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
hypothesis.settings.register_profile("soak", deadline=None, print_blob=True, max_examples=10_000)
hypothesis.settings.register_profile("quick", deadline=None, print_blob=True, max_examples=20)
hypothesis.settings.load_profile("default")

REAL_SERVERS = {"model_folder", "smollm2", "warm_pool", "local_client", "llama", "postgres"}
"""Fixtures that start a real model or database on this machine."""


def pytest_configure() -> None:
    """Let SIGINT interrupt: a shell that runs tests in the background has it ignored.

    The processes that tests start would ignore it, too.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from what was collected: ten thousand tests live on.

    Otherwise every full collection goes through all of them, a third of the time of a test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _secrets_of_each_test() -> Iterator[None]:
    """Forget the secrets of a test: the process would take them out of the texts of later ones."""
    before = secrets._known.copy()
    yield
    secrets._known.clear()
    secrets._known.update(before)


@pytest.fixture(autouse=True)
def _log_level_of_each_test() -> Iterator[None]:
    """Undo what a test does to the level of our logger: it is the process's."""
    logger = logging.getLogger("haptera")
    level = logger.level
    yield
    logger.setLevel(level)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that talks to a real model or database as slow."""
    for item in items:
        if REAL_SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
