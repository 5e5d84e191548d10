"""A model that does what the last prompt says, for sessions whose other side is a test."""

from collections.abc import AsyncGenerator, Sequence

from haptera.model.messages import UserMessage
from haptera.model.parts import TextPart, ToolResultPart
from haptera.model.requests import ModelRequest
from haptera.model.stream_parts import StreamPart
from haptera.system.clock import SystemClock
from haptera.testing import Gate, ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Beat

PIECES = 400


class EchoProvider(ScriptedProvider):
    """Answers a prompt with itself; some words make it do something else.

    - `hold` makes it say `so far` and then nothing more.
    - `write WORD` makes it call the tool with that word.
    - `stream SIZE MILLISECONDS` makes it talk, in pieces of that size, one after each wait.
    """

    def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[StreamPart], None]:
        """Answer the last message."""
        self.replace_rest(_answer(request.messages[-1]))
        return super().stream(request)


def _answer(message: object) -> list[Beat]:
    assert isinstance(message, UserMessage)
    results = [part for part in message.parts if isinstance(part, ToolResultPart)]
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    said = texts[-1] if texts else ""
    word, _, rest = said.partition(" ")
    if results:
        outcomes = ", ".join(f"{part.outcome} {part.text}" for part in results)
        return [says(f"tools: {outcomes}" + (f"; you said {said}" if said else ""))]
    if word == "hold":
        return [*([part] for part in says("so far")[:-2]), Gate()]
    if word == "write":
        return [calls(("write_line", {"line": rest}), ids=(f"call_{rest}",))]
    if word == "stream":
        size, milliseconds = map(int, rest.split())
        return _paced(size, milliseconds / 1000)
    return [says(f"echo {said}")]


def _paced(size: int, seconds: float) -> list[Beat]:
    clock = SystemClock()

    async def wait() -> None:
        await clock.sleep(seconds)

    *opening, piece = says("x" * size)[:3]
    beats: list[Beat] = [opening]
    for _ in range(PIECES):
        beats += [wait, [piece]]
    return beats
