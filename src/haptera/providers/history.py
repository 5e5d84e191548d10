"""History: adapts a conversation to a protocol; another provider or model may have written it.

What a protocol accepts is passed on as the same object. Everything else is replaced, always in the
same way, so that the provider's prompt cache still matches.
"""

import re
from collections.abc import Mapping, Sequence
from operator import is_
from types import MappingProxyType
from typing import NamedTuple, assert_never

import msgspec
from msgspec.structs import replace

from haptera.model.ids import CallId
from haptera.model.messages import AssistantMessage, Message, UserMessage
from haptera.model.parts import (
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
from haptera.model.requests import ModelRequest
from haptera.providers.accepted_forms import (
    CallIds,
    ToolNames,
    accepted_media,
    refuse_unaccepted_media,
)
from haptera.providers.wire.prefix_cache import PrefixCache, stable_length
from haptera.providers.wire.protocol import HistoryRules

_NO_NAMES: Mapping[str, str] = MappingProxyType({})
_SNAPSHOT = re.compile(r"[-@](?:latest|\d{8}|\d{4}-\d{2}-\d{2})$")
_CONTINUE = ReminderPart(text="The answer above is not complete. Go on from where it ends.")
_CACHE_WEIGHT = 512
"""About how many bytes a cached message takes."""


class _AdaptedMessages(NamedTuple):
    """Messages that can be sent, and whether they are the same objects that were given."""

    messages: tuple[Message, ...]
    is_same: bool
    ids: CallIds = CallIds()


class AdaptedHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A request that a protocol accepts, and the tool names that were changed for it."""

    request: ModelRequest
    tool_names: Mapping[str, str] = _NO_NAMES
    """From the names that were sent to the tools' own, where they differ."""


class HistoryAdapter:
    """Adapts the histories of requests for one provider.

    Owns a cache of adapted messages. Does not own what a provider accepts (`HistoryRules`).
    """

    def __init__(self, *, provider: str, rules: HistoryRules) -> None:
        self._provider = provider
        self._rules = rules
        self._caches: dict[tuple[str, bool], PrefixCache[_AdaptedMessages]] = {}

    def adapt(self, request: ModelRequest) -> AdaptedHistory:
        """Return `request` in a form that the protocol accepts; see `adapt_history`."""
        # What is kept of a message depends on these two, so adapted messages are cached for each
        # pair.
        key = (request.model, request.compaction.enabled)
        cache = self._caches.setdefault(key, PrefixCache())
        return adapt_history(request, provider=self._provider, rules=self._rules, cache=cache)


def adapt_history(
    request: ModelRequest,
    *,
    provider: str,
    rules: HistoryRules,
    cache: PrefixCache[_AdaptedMessages] | None = None,
) -> AdaptedHistory:
    """Return `request` in a form that a protocol with `rules` accepts.

    The same object is returned if nothing has to change. `cache` is for one provider, model and set
    of rules.

    Raises:
        ConfigError: CONFIG_INVALID if the current prompt has media that are not accepted.

    """
    rules = rules.for_model(request.model)
    refuse_unaccepted_media(
        request.fresh_media, rules=rules, provider=provider, model=request.model
    )
    names = ToolNames(rules.tool_name_pattern, [tool.name for tool in request.tools])
    tools = tuple(names.of_tool(tool) for tool in request.tools)
    # By identity: `SchemaAdapter` finds its last result by the tuple, not by what is in it.
    if _same(tools, request.tools):
        tools = request.tools
    wanted = names.of(request.require_tool) if request.require_tool else None
    adapter = _MessageAdapter(request, provider=provider, rules=rules, names=names)
    messages = adapter.ending(_adapted_messages(request.messages, adapter, cache or PrefixCache()))
    if messages is request.messages and tools is request.tools and wanted == request.require_tool:
        return AdaptedHistory(request=request)
    return AdaptedHistory(
        request=replace(request, messages=messages, tools=tools, require_tool=wanted),
        tool_names=MappingProxyType(names.changed),
    )


def _adapted_messages(
    messages: tuple[Message, ...], adapter: "_MessageAdapter", cache: PrefixCache[_AdaptedMessages]
) -> tuple[Message, ...]:
    """Adapt the messages that are not in the cache; returns the same tuple if none changes."""
    stable = stable_length(messages)
    length, before = cache.get(messages)
    # After a rewind, the last user message may be inside what is cached. It is adapted anew for
    # each request.
    if before is None or length > stable:
        length, before = 0, _AdaptedMessages(messages=(), is_same=True)
    head = _extended(before, messages[:stable], adapter, known=length)
    cache.put(messages[:stable], head, weight=_CACHE_WEIGHT * stable)
    return _extended(head, messages, adapter, known=stable).messages


def _extended(
    before: _AdaptedMessages,
    messages: tuple[Message, ...],
    adapter: "_MessageAdapter",
    *,
    known: int,
) -> _AdaptedMessages:
    """Adapt the messages after the first `known`, which `before` holds."""
    added = messages[known:]
    # The cached messages are not looked at again, so their ids come from where they end.
    adapter.ids = before.ids
    sendable = _sendable(before.messages, added, adapter)
    is_same = before.is_same and len(sendable) == len(messages) and _same(sendable[known:], added)
    return _AdaptedMessages(
        messages if is_same else tuple(sendable), is_same=is_same, ids=adapter.ids
    )


def _sendable(
    before: tuple[Message, ...], added: tuple[Message, ...], adapter: "_MessageAdapter"
) -> list[Message]:
    """Leave out empty messages, join neighbouring user messages, begin with a user message."""
    messages = list(before)
    for raw in added:
        for piece in (raw,) if messages else adapter.opening(raw):
            message = adapter.message(piece)
            if not message.parts:
                continue
            last = messages[-1] if messages else None
            is_user = isinstance(message, UserMessage)
            if is_user and isinstance(last, UserMessage):
                messages[-1] = replace(last, parts=_joined(last.parts, message.parts))
            # No provider accepts an answer before the first user message.
            elif last is not None or is_user or _is_summary(message):
                messages.append(message)
    return messages


def _is_summary(message: Message) -> bool:
    return any(isinstance(part, CompactionPart) for part in message.parts)


def _joined(first: tuple[Part, ...], second: tuple[Part, ...]) -> tuple[Part, ...]:
    """Join the parts of two messages; tool results come first."""
    parts = (*first, *second)
    # Anthropic refuses a user message in which anything precedes the results of the calls.
    results = tuple(part for part in parts if isinstance(part, ToolResultPart))
    return (*results, *(part for part in parts if not isinstance(part, ToolResultPart)))


def _same(made: Sequence[object], given: Sequence[object]) -> bool:
    return len(made) == len(given) and all(map(is_, made, given))


def is_same_model(first: str, second: str) -> bool:
    """Whether two names mean the same model, apart from a date or `latest` at their ends."""
    return first == second or _SNAPSHOT.sub("", first) == _SNAPSHOT.sub("", second)


class _MessageAdapter:
    """Decides, part by part, what of a message can be sent. `ids` grow with every answer."""

    def __init__(
        self, request: ModelRequest, *, provider: str, rules: HistoryRules, names: ToolNames
    ) -> None:
        self._provider = provider
        self._model = request.model
        self._keeps_summaries = request.compaction.enabled
        self._rules = rules
        self._needs_same_model = rules.reasoning == "same_model"
        self._keeps_any = rules.reasoning == "same_provider"
        self._names = names
        self.ids = CallIds()

    def message(self, message: Message) -> Message:
        """Return `message` with the parts that can be sent; the same object if all can."""
        if _is_plain(message):
            if isinstance(message, AssistantMessage):
                # Ids that were changed for the answer before do not apply to results after this
                # one.
                self.ids = self.ids.with_answer((), self._rules.call_id_pattern)
            return message
        is_ours, is_same = True, True
        if isinstance(message, AssistantMessage):
            calls = [part.call_id for part in message.tool_calls]
            self.ids = self.ids.with_answer(calls, self._rules.call_id_pattern)
            if message.provider:
                is_ours = message.provider == self._provider
                is_same = is_ours and is_same_model(message.model, self._model)
        keeps_reasoning = is_same if self._needs_same_model else is_ours and self._keeps_any
        parts: list[Part] = []
        for part in message.parts:
            fitted = self._part(part, is_ours=is_ours, reasoning=keeps_reasoning)
            if fitted is not None:
                parts.append(fitted)
        return message if _same(parts, message.parts) else replace(message, parts=tuple(parts))

    def opening(self, message: Message) -> tuple[Message, ...]:
        """Return the first message as messages that begin with the user.

        A summary that a provider wrote begins an assistant message. Only that provider accepts it
        back there; for others the summary becomes a user message.
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
        summary = UserMessage(id=message.id, parts=tuple(summaries))
        return (summary, replace(message, parts=tuple(rest)))

    def ending(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return messages that end with the user, unless the provider may continue its answer."""
        last = messages[-1] if messages else None
        if not isinstance(last, AssistantMessage) or last.provider in {"", self._provider}:
            return messages
        return (*messages, UserMessage(id=last.id, parts=(_CONTINUE,)))

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
                fitted = accepted_media(part, self._rules.media, self._rules.linked_media)
            case CompactionPart():
                fitted = part if is_ours else TextPart(text=part.text)
            case ProviderPart():
                # Redacted reasoning is kept in such parts, so the rule for reasoning applies.
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
        return accepted_media(piece, self._rules.result_media, self._rules.linked_media)

    def _id(self, call_id: CallId) -> CallId:
        """Return an id that the protocol accepts, the same for a call and its result."""
        return self.ids.of(call_id, self._rules.call_id_pattern)


def _is_plain(message: Message) -> bool:
    """Whether a message is nothing but text, as most are: every protocol accepts that as it is."""
    others = [
        part
        for part in message.parts
        if type(part) is not TextPart or not part.text or part.native is not None
    ]
    return not others


def _text(part: TextPart, *, is_ours: bool) -> TextPart | None:
    if not part.text:
        return None
    return part if is_ours or part.native is None else replace(part, native=None)
