"""The real small model that tests talk to: its weights, fetched once per machine, and its process.

`HAPTERA_TEST_CACHE` says where weights are kept; without it, `.cache` in the clone.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from haptera.providers.local.client import LocalModelClient
from haptera.providers.local.download import pull_model
from haptera.providers.local.model_process import ModelProcessPool

CONTEXT = 512
"""Tokens of a conversation in tests: a CPU fills them in seconds."""


def cache_of_tests(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder that weights for tests are kept in."""
    default = Path(__file__).resolve().parents[1] / ".cache"
    return Path(environment.get("HAPTERA_TEST_CACHE", default)) / "models"


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """The folder that holds SmolLM2."""
    folder = cache_of_tests()
    asyncio.run(pull_model("smollm2", folder=folder))
    return folder


@pytest.fixture(scope="session")
def smollm2(model_folder: Path) -> Path:
    """The weights of SmolLM2."""
    return asyncio.run(pull_model("smollm2", folder=model_folder))


@pytest.fixture(scope="session")
def warm_pool(model_folder: Path) -> Iterator[ModelProcessPool]:
    """A pool whose model process stays up between tests."""
    pool = ModelProcessPool()
    keeper = LocalModelClient(folder=model_folder, pool=pool, context=CONTEXT)
    asyncio.run(keeper.start("smollm2"))
    yield pool
    asyncio.run(keeper.close())


@pytest.fixture
async def local_client(
    model_folder: Path, warm_pool: ModelProcessPool
) -> AsyncIterator[LocalModelClient]:
    """A client of SmolLM2 whose process is already up."""
    client = LocalModelClient(folder=model_folder, pool=warm_pool, context=CONTEXT)
    yield client
    await client.close()
