"""Makes any history acceptable to a protocol: another provider or model may have written it.

What already fits is handed on as the same object; only what does not is made anew, and always in
the same way, so that a provider's prompt cache still matches.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, assert_never

import msgspec
from msgspec.structs import replace

from holdfast.providers.accepted_media import refuse_unaccepted, shown
from holdfast.providers.call_ids import CallIds
from holdfast.providers.prefix_memo import PrefixMemo, settled_length
from holdfast.providers.wire.protocol import HistoryRules
from holdfast.vocabulary.ids import CallId
from holdfast.vocabulary.messages import AssistantMessage, Message, UserMessage
from holdfast.vocabulary.parts import (
    CompactionPart,
    MediaPart,
    Part,
    ProviderPart,
    ReasoningPart,
    ReminderPart,
    ResultContent,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from holdfast.vocabulary.requests import ModelRequest
from holdfast.vocabulary.tools import ToolSpec

_NO_NAMES: Mapping[str, str] = MappingProxyType({})
_NAME_LIMIT = 64
_SNAPSHOT = re.compile(r"[-@](?:latest|\d{8}|\d{4}-\d{2}-\d{2})$")
_GO_ON = ReminderPart(text="The answer above is not complete. Go on from where it ends.")
_MEMO_WEIGHT = 512
"""About what a remembered message takes, as the message itself is kept by it."""


class _Adapted(NamedTuple):
    """Messages that can be sent, and whether they are the very ones that were given."""

    messages: tuple[Message, ...]
    is_same: bool
    ids: CallIds = CallIds()


class AdaptedHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A request that a protocol accepts, and the way back for the names it changed."""

    request: ModelRequest
    tool_names: Mapping[str, str] = _NO_NAMES
    """From the names that were sent to the tools' own, where they differ."""


class HistoryAdapter:
    """Adapts the history of one request after another for one provider.

    Owns a memory of conversations it has looked at. Does not own what a provider accepts (its
    protocol's `HistoryRules` do).
    """

    def __init__(self, *, provider: str, rules: HistoryRules) -> None:
        self._provider = provider
        self._rules = rules
        self._memos: dict[tuple[str, bool], PrefixMemo[_Adapted]] = {}

    def adapt(self, request: ModelRequest) -> AdaptedHistory:
        """Return `request` in a form that the protocol accepts; see `adapt_history`."""
        key = (request.model, request.compaction.enabled)
        memo = self._memos.setdefault(key, PrefixMemo())
        return adapt_history(request, provider=self._provider, rules=self._rules, memo=memo)


def adapt_history(
    request: ModelRequest,
    *,
    provider: str,
    rules: HistoryRules,
    memo: PrefixMemo[_Adapted] | None = None,
) -> AdaptedHistory:
    """Return `request` in a form that a protocol with `rules` accepts.

    The request comes back as the same object when nothing has to change. `memo` is for one
    provider, model and set of rules.

    Raises:
        ConfigError: CONFIG_INVALID when the user has just handed in what is not accepted.

    """
    rules = rules.for_model(request.model)
    refuse_unaccepted(request.fresh_media, rules=rules, provider=provider, model=request.model)
    names = _Names(rules.tool_name_pattern, [tool.name for tool in request.tools])
    tools = tuple(names.of_tool(tool) for tool in request.tools)
    if _same(tools, request.tools):
        tools = request.tools
    wanted = names.of(request.require_tool) if request.require_tool else None
    fit = _MessageFit(request, provider=provider, rules=rules, names=names)
    messages = fit.ending(_adapted_messages(request.messages, fit, memo or PrefixMemo()))
    if messages is request.messages and tools is request.tools and wanted == request.require_tool:
        return AdaptedHistory(request=request)
    return AdaptedHistory(
        request=replace(request, messages=messages, tools=tools, require_tool=wanted),
        tool_names=MappingProxyType(names.changed),
    )


def _adapted_messages(
    messages: tuple[Message, ...], fit: "_MessageFit", memo: PrefixMemo[_Adapted]
) -> tuple[Message, ...]:
    """Adapt what was not adapted before; the same tuple comes back when nothing changes."""
    settled = settled_length(messages)
    known, before = memo.recall(messages)
    if before is None or known > settled:
        known, before = 0, _Adapted(messages=(), is_same=True)
    head = _extended(before, messages[:settled], fit, known=known)
    memo.keep(messages[:settled], head, weight=_MEMO_WEIGHT * settled)
    return _extended(head, messages, fit, known=settled).messages


def _extended(
    before: _Adapted, messages: tuple[Message, ...], fit: "_MessageFit", *, known: int
) -> _Adapted:
    """Go on from what was made of the first `known` messages."""
    added = messages[known:]
    fit.ids = before.ids
    kept = _sendable(before.messages, added, fit)
    is_same = before.is_same and len(kept) == len(messages) and _same(kept[known:], added)
    return _Adapted(messages if is_same else tuple(kept), is_same=is_same, ids=fit.ids)


def _sendable(
    before: tuple[Message, ...], added: tuple[Message, ...], fit: "_MessageFit"
) -> list[Message]:
    """Leave out empty messages, join neighbouring ones of the user, begin with the user."""
    kept = list(before)
    for given in added:
        for piece in (given,) if kept else fit.opening(given):
            message = fit.message(piece)
            last = kept[-1] if kept else None
            if not message.parts:
                continue
            if isinstance(message, UserMessage) and isinstance(last, UserMessage):
                kept[-1] = replace(last, parts=_joined(last.parts, message.parts))
            elif last is not None or isinstance(message, UserMessage) or _is_summary(message):
                kept.append(message)
    return kept


def _is_summary(message: Message) -> bool:
    return any(isinstance(part, CompactionPart) for part in message.parts)


def _joined(first: tuple[Part, ...], second: tuple[Part, ...]) -> tuple[Part, ...]:
    """Join two messages' parts; results of tools come before everything else."""
    parts = (*first, *second)
    results = tuple(part for part in parts if isinstance(part, ToolResultPart))
    return (*results, *(part for part in parts if not isinstance(part, ToolResultPart)))


def _same(made: Sequence[object], given: Sequence[object]) -> bool:
    return len(made) == len(given) and all(
        one is other for one, other in zip(made, given, strict=True)
    )


def is_same_model(first: str, second: str) -> bool:
    """Whether two names mean one model: an alias and its dated snapshots do."""
    return first == second or _SNAPSHOT.sub("", first) == _SNAPSHOT.sub("", second)


class _MessageFit:
    """Decides, part by part, what of a message can be sent."""

    def __init__(
        self, request: ModelRequest, *, provider: str, rules: HistoryRules, names: "_Names"
    ) -> None:
        self._provider = provider
        self._model = request.model
        self._keeps_summaries = request.compaction.enabled
        self._rules = rules
        self._names = names
        self.ids = CallIds()

    def message(self, message: Message) -> Message:
        """Return `message` with the parts that can be sent; the same object when all can."""
        is_ours, is_same = True, True
        if isinstance(message, AssistantMessage):
            calls = [part.call_id for part in message.tool_calls]
            self.ids = self.ids.with_answer(calls, self._rules.call_id_pattern)
        if isinstance(message, AssistantMessage) and message.provider:
            is_ours = message.provider == self._provider
            is_same = is_ours and is_same_model(message.model, self._model)
        keeps_reasoning = {"same_model": is_same, "same_provider": is_ours, "never": False}[
            self._rules.reasoning
        ]
        parts = tuple(
            fitted
            for part in message.parts
            if (fitted := self._part(part, is_ours=is_ours, reasoning=keeps_reasoning)) is not None
        )
        return message if _same(parts, message.parts) else replace(message, parts=parts)

    def opening(self, message: Message) -> tuple[Message, ...]:
        """Return the first message so that the user begins.

        A summary that a provider wrote opens an answer of the model's; only the provider that wrote
        it takes it back like that, and for others it is what the user begins with.
        """
        if not isinstance(message, AssistantMessage) or not _is_summary(message):
            return (message,)
        if self._keeps_summaries and message.provider == self._provider:
            return (message,)
        summaries: list[Part] = []
        rest: list[Part] = []
        for part in message.parts:
            if isinstance(part, CompactionPart):
                summaries.append(TextPart(text=part.text))
            else:
                rest.append(part)
        begin = UserMessage(id=message.id, parts=tuple(summaries))
        return (begin, replace(message, parts=tuple(rest)))

    def ending(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return messages that the user ends, unless the provider may go on with its own answer."""
        last = messages[-1] if messages else None
        if not isinstance(last, AssistantMessage) or last.provider in {"", self._provider}:
            return messages
        return (*messages, UserMessage(id=last.id, parts=(_GO_ON,)))

    def _part(self, part: Part, *, is_ours: bool, reasoning: bool) -> Part | None:
        fitted: Part | None = part
        match part:
            case TextPart():
                fitted = _text(part, is_ours=is_ours)
            case ReasoningPart():
                fitted = part if reasoning else None
            case ToolCallPart():
                fitted = self._call(part, is_ours=is_ours)
            case ToolResultPart():
                fitted = self._result(part)
            case MediaPart():
                fitted = shown(part, self._rules.media, self._rules.linked_media)
            case CompactionPart():
                fitted = part if is_ours else TextPart(text=part.text)
            case ProviderPart():
                # Redacted reasoning travels in such parts, so they follow the rule for reasoning.
                is_known = part.provider == self._provider
                is_kept = reasoning or is_same_model(part.model, self._model)
                fitted = part if is_known and is_kept else None
            case ReminderPart():
                fitted = part if part.text else None
            case _:
                assert_never(part)
        return fitted

    def _call(self, part: ToolCallPart, *, is_ours: bool) -> ToolCallPart:
        call_id, name = self._id(part.call_id), self._names.of(part.name)
        native = part.native if is_ours else None
        if call_id is part.call_id and name is part.name and native is part.native:
            return part
        return replace(part, call_id=call_id, name=name, native=native)

    def _result(self, part: ToolResultPart) -> ToolResultPart:
        call_id, name = self._id(part.call_id), self._names.of(part.name)
        content = tuple(self._result_content(piece) for piece in part.content)
        if _same(content, part.content):
            content = part.content
        if call_id is part.call_id and name is part.name and content is part.content:
            return part
        return replace(part, call_id=call_id, name=name, content=content)

    def _result_content(self, piece: ResultContent) -> ResultContent:
        if isinstance(piece, TextPart):
            return piece
        return shown(piece, self._rules.result_media, self._rules.linked_media)

    def _id(self, call_id: CallId) -> CallId:
        """Return an id that the protocol accepts, the same one for a call and its result."""
        return self.ids.of(call_id, self._rules.call_id_pattern)


def _text(part: TextPart, *, is_ours: bool) -> TextPart | None:
    if not part.text:
        return None
    return part if is_ours or part.native is None else replace(part, native=None)


class _Names:
    """Gives tools names that the protocol accepts, each tool its own, always the same."""

    def __init__(self, pattern: str, tools: Iterable[str]) -> None:
        self.changed: dict[str, str] = {}
        self._matches = re.compile(pattern).fullmatch
        self._given: dict[str, str] = {}
        # A name that is fine as it is comes before one that has to be made.
        self._taken = {name for name in tools if self._matches(name)}

    def of_tool(self, tool: ToolSpec) -> ToolSpec:
        name = self.of(tool.name)
        return tool if name is tool.name else replace(tool, name=name)

    def of(self, name: str) -> str:
        known = self._given.get(name)
        if known is None:
            known = self._given[name] = name if self._matches(name) else self._make(name)
            self._taken.add(known)
        # The very string that was given, so that what needs no change keeps its identity.
        return name if known == name else known

    def _make(self, name: str) -> str:
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:_NAME_LIMIT] or "tool"
        if plain in self._taken or not self._matches(plain):
            digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
            plain = f"t_{plain[: _NAME_LIMIT - 11]}_{digest}"
        self.changed[plain] = name
        return plain
