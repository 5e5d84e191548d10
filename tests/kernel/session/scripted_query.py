"""One rich query for tests: reasoning, parallel tools, an approval, a retry, three turns."""

from collections.abc import Sequence

from haptera import Agent, ApprovalRequest, Approve, Deny, tool
from haptera.model.errors import ErrorCode, ProviderError
from haptera.model.settings import RuntimeSettings
from haptera.model.stream_parts import StreamPart
from haptera.stores.memory import MemoryStore
from haptera.testing import ScriptedProvider, calls, reasoning, says
from haptera.testing.clocks import AutoClock


def one_by_one(parts: Sequence[StreamPart]) -> list[list[StreamPart]]:
    """Let every part arrive in a read of its own."""
    return [[part] for part in parts]


@tool
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word} is a word"


@tool(approval="ask")
def erase(path: str) -> str:
    """Erase a file."""
    return f"{path} is gone"


async def approve_all(request: ApprovalRequest) -> Approve | Deny:
    """Say yes."""
    return Approve()


def rich_provider() -> ScriptedProvider:
    """Return a provider that plays the whole query."""
    overloaded = ProviderError(ErrorCode.OVERLOADED, "come back later", basis="status")
    return ScriptedProvider(
        [
            one_by_one(
                [
                    *reasoning("I need ", "two tools"),
                    *calls(
                        ("look_up", {"word": "haptera"}),
                        ("erase", {"path": "notes.txt"}),
                        ids=("call_a", "call_b"),
                        text="Let me see.",
                    ),
                ]
            ),
            [*one_by_one(says("Half an ans")[:3]), overloaded],
            one_by_one(
                calls(("look_up", {"word": "anchor"}), ids=("call_c",), text="One more thing.")
            ),
            one_by_one([*reasoning("now I know"), *says("The ", "answer ", "is 42.")]),
        ]
    )


def rich_agent(provider: ScriptedProvider, *, store: str | MemoryStore = "memory") -> Agent:
    """Return an agent that can play the whole query."""
    return Agent(
        "scripted/model",
        providers=[provider],
        tools=[look_up, erase],
        approver=approve_all,
        store=store,
        parallel_tools=True,
        clock=AutoClock(),
        runtime=RuntimeSettings(checkpoint_bytes=8, buffer_size=0),
    )
