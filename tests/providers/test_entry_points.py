"""A provider of another package is found by name, or its failure is named."""

from collections.abc import AsyncGenerator, Sequence
from importlib.metadata import EntryPoint

import pytest

from haptera.model.errors import ConfigError
from haptera.model.requests import ModelRequest, TokenCount
from haptera.model.stream_parts import StreamFinished, StreamOpened, StreamPart
from haptera.providers.vendor_clients import ENTRY_POINTS, offered_client


class HouseClient:
    """A whole provider in ten lines."""

    provider = "house"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        yield [StreamOpened(model=request.model), StreamFinished(kind="stop")]

    async def count_tokens(self, request: ModelRequest) -> TokenCount:
        return TokenCount(tokens=len(request.messages), exact=False)

    async def close(self) -> None:
        pass


def broken() -> HouseClient:
    raise RuntimeError("no licence")


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name=name, value=f"{__name__}:{value}", group=ENTRY_POINTS)


async def test_an_offered_provider_is_a_client() -> None:
    client = offered_client(
        "house", points=[point("other", "broken"), point("house", "HouseClient")]
    )
    assert client is not None
    lists = [parts async for parts in client.stream(ModelRequest(model="m", messages=()))]
    assert lists == [[StreamOpened(model="m"), StreamFinished(kind="stop")]]


def test_a_provider_that_no_installed_package_offers_is_none() -> None:
    assert offered_client("unknown") is None


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (["broken"], "raised RuntimeError"),
        (["missing"], "raised AttributeError"),
        (["StreamOpened"], "has no provider, stream, count_tokens, close"),
        (["broken", "HouseClient"], "several packages offer it"),
    ],
)
def test_an_offer_that_cannot_be_used_is_named(values: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=r"the provider 'house' cannot be used") as caught:
        offered_client("house", points=[point("house", value) for value in values])
    assert reason in caught.value.message
