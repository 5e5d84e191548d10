"""One plugin of each kind: what a wheel of the tests holds, in one module."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from haptera import building_blocks as blocks
from haptera.exchange import Format
from haptera.stores import MemoryStore

BEGIN = (blocks.PartOpened(key="0", kind="text"), blocks.PartDelta(key="0", text="Salty."))
ANSWER = (*BEGIN, blocks.PartClosed(key="0"), blocks.StreamFinished(kind="stop"))


class Echo:
    provider = "echo"

    async def stream(self, *_: object) -> AsyncGenerator[Sequence[Any], None]:
        yield ANSWER

    async def count_tokens(self, *_: object) -> blocks.TokenCount:
        return blocks.TokenCount(tokens=1, exact=False)

    async def close(self, *_: object, **__: object) -> None: ...


class Diver(Echo):
    provider = "diver"
    is_alive = True
    send = interrupt = prompt = find = read = resume_session = session_id = Echo.close

    async def open(self, *_: object) -> "Diver":
        return self

    async def stream(self, *_: object) -> AsyncGenerator[Sequence[Any], None]:
        answer = blocks.NativeAnswer(message_id="m", parts=ANSWER)
        yield [answer, blocks.NativeResult(session_id="d", turns=1)]

    def starts_unasked(self, _: str) -> bool:
        return False


def open_store(location: str, *, owner: str) -> MemoryStore:
    Path(location).write_text(owner, encoding="utf-8")
    return MemoryStore()


plain = Format(
    name="plain",
    suffix=".txt",
    media_type="text/plain",
    write=lambda export: iter([each.message.text.encode() for each in export.messages]),
    leaves_out=lambda *_: False,
)


def depth(place: str) -> str:
    """Return how deep the sea is at a place."""
    return f"30 m at {place}"
