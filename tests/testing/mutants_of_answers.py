"""Conversations, request builders, stream processors and tool registries with one mistake each."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from haptera.kernel.blocks.request_builder import RequestExtras, build_request
from haptera.kernel.blocks.stream_processor.processor import (
    AnswerAssembler,
    AnswerSource,
    StreamProcessor,
)
from haptera.kernel.blocks.tool_registry.registry import (
    InvalidInput,
    Ready,
    Resolution,
    ToolInput,
    ToolRegistry,
    ToolSet,
)
from haptera.model.events import Event, TextDelta
from haptera.model.log.conversation import Conversation
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import Part, ReminderPart, ToolCallPart
from haptera.model.requests import ModelRequest
from haptera.model.settings import Settings
from haptera.model.stream_parts import (
    PartDelta,
    PartOpened,
    StreamPart,
)
from haptera.testing import FakeClock
from haptera.testing.contracts import (
    conversation_contract,
    request_builder_contract,
    stream_processor_contract,
    tool_registry_contract,
)


class NeverMerges(Conversation):
    """Leaves user messages apart."""

    def push(self, message: Message, **more: Any) -> None:
        self.insert(len(self), message)


class MergesAnswers(Conversation):
    """Joins assistant messages, too."""

    def push(self, message: Message, **more: Any) -> None:
        tip = self.tip
        if isinstance(message, AssistantMessage) and isinstance(tip, AssistantMessage):
            self.remove_last()
            message = msgspec.structs.replace(tip, parts=tip.parts + message.parts)
        super().push(message, **more)


class DropsHistory(Conversation):
    """Forgets what a compaction stands for."""

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(self._messages[self._find_view_start() :])


class SendsEverything(Conversation):
    """Ignores compactions."""

    def wire_view(self) -> tuple[Message, ...]:
        return self.messages


class LiveView(Conversation):
    """Hands out its own list."""

    @property
    def messages(self) -> tuple[Message, ...]:
        return self._messages  # type: ignore[return-value]


class MergesHistory(Conversation):
    """Merges what it is told to take as it is."""

    def set_history(self, messages: Iterable[Message]) -> None:
        super().set_history(())
        for message in messages:
            self.push(message)


class ForgetsWhatIsKept(Conversation):
    """Compacts everything, also what is to be kept."""

    def push(self, message: Message, **more: Any) -> None:
        super().push(message)


def _without(name: str, value: object) -> Callable[..., ModelRequest]:
    def build(*given: Any) -> ModelRequest:
        return msgspec.structs.replace(build_request(*given), **{name: value})

    return build


def _reminds_everywhere(
    settings: Settings, messages: tuple[Message, ...], extras: RequestExtras
) -> ModelRequest:
    request = build_request(settings, messages, extras)
    added: tuple[Part, ...] = tuple(ReminderPart(text=text) for text in extras.reminders)
    noted = tuple(
        msgspec.structs.replace(message, parts=message.parts + added)
        if isinstance(message, UserMessage)
        else message
        for message in messages
    )
    return msgspec.structs.replace(request, messages=noted)


def _sends_nothing(
    settings: Settings, messages: tuple[Message, ...], extras: RequestExtras
) -> ModelRequest:
    if not messages:
        return ModelRequest(model=extras.model, messages=())
    return build_request(settings, messages, extras)


def _keeps_reminders() -> Callable[..., ModelRequest]:
    kept: list[str] = []

    def build(settings: Settings, messages: Any, extras: RequestExtras) -> ModelRequest:
        kept.extend(extras.reminders)
        noted = msgspec.structs.replace(extras, reminders=tuple(kept))
        return build_request(settings, messages, noted)

    return build


def forgets_reminders(settings: Settings, messages: Any, extras: RequestExtras) -> ModelRequest:
    return build_request(settings, messages, msgspec.structs.replace(extras, reminders=()))


def _processor(answer: type[AnswerAssembler]) -> Callable[[], StreamProcessor]:
    class Mutant(StreamProcessor):
        def begin(self, source: AnswerSource) -> AnswerAssembler:
            return answer(
                stamp=source.stamp,
                provider=source.provider,
                model=source.model,
                limits=source.limits,
                checkpoint_bytes=source.checkpoint_bytes,
            )

    return lambda: Mutant(clock=FakeClock())


class NoOffsets(AnswerAssembler):
    """Says that every delta begins at the beginning."""

    def feed(self, batch: Sequence[StreamPart], out: list[Event]) -> None:
        made: list[Event] = []
        super().feed(batch, made)
        out += [
            msgspec.structs.replace(event, offset=0) if isinstance(event, TextDelta) else event
            for event in made
        ]


class OpensByItself(AnswerAssembler):
    """Takes deltas of parts that were never opened."""

    def feed(self, batch: Sequence[StreamPart], out: list[Event]) -> None:
        for part in batch:
            if isinstance(part, PartDelta) and part.key not in self._open:
                super().feed([PartOpened(key=part.key, kind="text")], out)
            super().feed([part], out)


class LosesTheRest(AnswerAssembler):
    """Drops text that was cut off."""

    def close(self, out: list[Event]) -> None:
        self._open.clear()


class SavesTwice(AnswerAssembler):
    """Forgets what a checkpoint has saved."""

    def checkpoint(self, out: list[Event]) -> None:
        super().checkpoint(out)
        for growing in self._open.values():
            growing.saved = growing._saved_blocks = 0


class NeverFails(AnswerAssembler):
    """Takes an answer of any length."""

    def _find_excess(self) -> None:
        pass


class TakesWhatItGets(AnswerAssembler):
    """Opens parts without a look at what they are made of."""

    def _take(self, part: StreamPart, out: list[Event]) -> None:
        if isinstance(part, PartOpened):
            self._start(part, out)
        else:
            super()._take(part, out)


class SameCallIds(AnswerAssembler):
    """Keeps the ids of calls as the provider gave them."""

    def _unique_call_id(self, given: str | None) -> Any:
        return given


class OneAnswer(StreamProcessor):
    """Has one answer for all streams."""

    def begin(self, source: AnswerSource) -> AnswerAssembler:
        self.answer = getattr(self, "answer", None) or super().begin(source)
        return self.answer


class NewSetEachTime(ToolRegistry):
    """Makes its set anew for every turn."""

    def current(self) -> ToolSet:
        return self._join([source.tools() for source in self._sources])


class FirstListOnly(ToolRegistry):
    """Does not see that a source changed."""

    def current(self) -> ToolSet:
        return self._current if self._lists else super().current()


class LastNameWins(ToolRegistry):
    """Lets a source replace a tool."""

    def _join(self, lists: Iterable[Sequence[Any]]) -> ToolSet:
        return ToolSet([*self._static, *(item for each in lists for item in each)])


class LosesOne(ToolRegistry):
    """Offers all tools but the last."""

    def __init__(self, tools: Iterable[ToolInput] = ()) -> None:
        super().__init__(list(tools)[:-1] or tools)


class LooseSet(ToolSet):
    """Runs a call whatever its arguments are."""

    def resolve(self, call: ToolCallPart, *, arguments: Any = None) -> Resolution:
        found = super().resolve(call, arguments=arguments)
        if isinstance(found, InvalidInput):
            tool = self._tools[call.name]
            return Ready(tool, {}, lambda _: _content("ran"))
        return found


async def _content(text: str) -> str:
    return text


class LooseRegistry(ToolRegistry):
    """Refuses no arguments."""

    def current(self) -> ToolSet:
        known = super().current()
        self.loose = getattr(self, "loose", None) or LooseSet(known._tools.values())
        return self.loose


MUTANTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "conversation": (
        conversation_contract,
        {
            kind.__name__: kind
            for kind in (
                *(NeverMerges, MergesAnswers, DropsHistory, SendsEverything),
                *(LiveView, MergesHistory, ForgetsWhatIsKept),
            )
        },
    ),
    "request builder": (
        request_builder_contract,
        {
            "without system": lambda: _without("system", ()),
            "without tools": lambda: _without("tools", ()),
            "without thinking": lambda: _without("thinking", None),
            "reminds everywhere": lambda: _reminds_everywhere,
            "sends nothing": lambda: _sends_nothing,
            "keeps reminders": _keeps_reminders,
            "forgets reminders": lambda: forgets_reminders,
        },
    ),
    "stream processor": (
        stream_processor_contract,
        {
            **{
                kind.__name__: _processor(kind)
                for kind in (
                    *(NoOffsets, OpensByItself, LosesTheRest),
                    *(SavesTwice, NeverFails, TakesWhatItGets, SameCallIds),
                )
            },
            "OneAnswer": lambda: OneAnswer(clock=FakeClock()),
        },
    ),
    "tool registry": (
        tool_registry_contract,
        {
            kind.__name__: kind
            for kind in (NewSetEachTime, FirstListOnly, LastNameWins, LosesOne, LooseRegistry)
        },
    ),
}
"""The suite of each block, and its mutants by name."""

BLOCKS: dict[str, Any] = {
    "conversation": Conversation,
    "request builder": lambda: build_request,
    "stream processor": lambda: StreamProcessor(clock=FakeClock()),
    "tool registry": ToolRegistry,
}
"""The block of each suite, as it is."""
