"""The contract suites pass the blocks, a substitute and real clients, and fail every mutant."""

import contextlib
import json
import runpy
from collections.abc import Iterable
from pathlib import Path

import pytest

from haptera import Message, UserMessage
from haptera.model.ids import MessageId
from haptera.model.log.conversation import SentCounts
from haptera.model.parts import CompactionPart
from haptera.ports.model_client import ModelClient
from haptera.testing import ScriptedProvider, says
from haptera.testing.contracts import conversation_contract, model_client_contract, samples
from tests.providers.exchanges import case, client_for
from tests.providers.faulty_server import Connection, faulty_server
from tests.testing import mutants_of_answers, mutants_of_channels, mutants_of_runners

FIVE = 5
MUTANTS = mutants_of_answers.MUTANTS | mutants_of_channels.MUTANTS | mutants_of_runners.MUTANTS
BLOCKS = mutants_of_answers.BLOCKS | mutants_of_channels.BLOCKS | mutants_of_runners.BLOCKS


@pytest.mark.parametrize("block", BLOCKS)
async def test_the_block_keeps_its_contract(block: str) -> None:
    examine, _ = MUTANTS[block]
    report = await examine(BLOCKS[block])
    assert report.is_passed, report


@pytest.mark.slow
@pytest.mark.parametrize(
    ("block", "mutant"), [(block, name) for block, (_, many) in MUTANTS.items() for name in many]
)
async def test_the_suite_fails_the_mutant(
    block: str, mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "_SECONDS", 2.0)  # some wait until they are out of time
    examine, mutants = MUTANTS[block]
    report = await examine(mutants[mutant])
    assert not report.is_passed
    assert report.passed, "a mutant has one mistake: some promises are still kept"


def test_every_suite_has_five_mutants_at_least() -> None:
    assert {block for block, (_, many) in MUTANTS.items() if len(many) < FIVE} == set()
    assert MUTANTS.keys() == BLOCKS.keys()


class PlainConversation:
    """A conversation written from its interface alone, without a line of the block's."""

    def __init__(self) -> None:
        self._all: tuple[Message, ...] = ()

    def __len__(self) -> int:
        return len(self._all)

    @property
    def messages(self) -> tuple[Message, ...]:
        return self._all

    @property
    def tip(self) -> Message | None:
        return self._all[-1] if self._all else None

    def push(
        self, message: Message, *, tag: str | None = None, kept_from: MessageId | None = None
    ) -> None:
        for place, old in enumerate(self._all if kept_from else ()):
            if old.id == kept_from:
                joined = UserMessage(id=old.id, parts=message.parts + old.parts)
                self._all = (*self._all[:place], joined, *self._all[place + 1 :])
                return
        tip = self.tip
        if (
            isinstance(message, UserMessage)
            and isinstance(tip, UserMessage)
            and not _compacts(message)
        ):
            merged = UserMessage(id=tip.id, parts=tip.parts + message.parts)
            self._all = (*self._all[:-1], merged)
        else:
            self._all = (*self._all, message)

    @property
    def counts(self) -> SentCounts:
        return SentCounts(list(self.wire_view()))

    def remove_last(self) -> Message | None:
        tip, self._all = self.tip, self._all[:-1]
        return tip

    def set_history(self, messages: Iterable[Message]) -> None:
        self._all = tuple(messages)

    def wire_view(self) -> tuple[Message, ...]:
        places = [place for place, message in enumerate(self._all) if _compacts(message)]
        return self._all[places[-1] if places else 0 :]


def _compacts(message: Message) -> bool:
    return any(isinstance(part, CompactionPart) for part in message.parts)


async def test_a_conversation_written_from_the_interface_passes() -> None:
    report = await conversation_contract(PlainConversation)
    assert report.is_passed, report


async def test_the_scripted_provider_keeps_the_contract_of_clients() -> None:
    report = await model_client_contract(
        lambda: ScriptedProvider([says("One ", "two.") for _ in range(5)])
    )
    assert report.is_passed, report


async def _as_anthropic_does(connection: Connection) -> None:
    counts = connection.request.path.endswith("count_tokens")
    await connection.head(200, {"content-type": "application/json"} if counts else None)
    size = len(connection.request.body)
    await connection.piece(json.dumps({"input_tokens": size}).encode() if counts else case("text"))
    await connection.end()


async def test_a_client_of_a_real_protocol_keeps_the_contract() -> None:
    async with faulty_server(_as_anthropic_does) as server, contextlib.AsyncExitStack() as made:

        def make() -> ModelClient:
            client = client_for(server.url)
            made.push_async_callback(client.close)
            return client

        report = await model_client_contract(make)
    assert report.is_passed, report


async def test_the_example_of_a_custom_provider_keeps_the_contract() -> None:
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "custom_provider.py"))
    report = await model_client_contract(example["Echo"], skip=["check_a_closed_client_refuses"])
    assert report.is_passed, report
