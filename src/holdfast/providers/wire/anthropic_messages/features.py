"""Anthropic Messages: what a request's settings mean for the model it goes to.

Thinking, effort, cache marks, context management, betas, tool choice: decided here once, so that
the encoder only writes down.
"""

import msgspec

from holdfast.providers.wire.anthropic_messages.models import (
    BUDGETS,
    Effort,
    ModelTraits,
    traits_of,
)
from holdfast.vocabulary.json_types import JsonObject
from holdfast.vocabulary.messages import AssistantMessage, Message
from holdfast.vocabulary.parts import ProviderPart, ReasoningPart, ToolResultPart
from holdfast.vocabulary.requests import ModelRequest
from holdfast.vocabulary.tools import ToolSpec

COMPACTION = "compact-2026-01-12"
CONTEXT_MANAGEMENT = "context-management-2025-06-27"
CACHE_SCOPE = "prompt-caching-scope-2026-01-05"

_LEAST_BUDGET = 1_024
_HIGHEST_TEMPERATURE = 1.0


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """What goes into one request beside what was said."""

    max_tokens: int
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    thinking: JsonObject | None = None
    effort: Effort | None = None
    mark: JsonObject | None = None
    """The cache mark, where prompts are cached."""
    system_mark: JsonObject | None = None
    edits: list[JsonObject] = msgspec.field(default_factory=list)
    compacts: bool = False
    """Whether the provider compacts the conversation itself, and takes its summaries back."""
    temperature: float | None = None
    tool_choice: JsonObject | None = None
    output_tool: ToolSpec | None = None
    """The tool that stands for the answer, for models that cannot be held to a schema."""


def features_of(request: ModelRequest) -> Features:
    """Decide what a request needs."""
    traits = traits_of(request.model)
    betas = {COMPACTION: True} if request.compaction.enabled else {}
    # Betas here have a hyphen in their names; the others are switches of other protocols, which a
    # session keeps when it moves, and a name that is not known would be refused.
    enabled = [name for name, on in {**betas, **request.betas}.items() if on and "-" in name]
    output_tool = _output_tool(request, traits)
    choice = _tool_choice(request, traits, output_tool)
    is_forced = choice is not None and choice["type"] in {"tool", "any"}
    max_tokens = request.max_tokens or traits.max_tokens
    thinking = _thinking(request, traits, max_tokens=max_tokens, is_forced=is_forced)
    thinks = thinking is not None and thinking["type"] in {"enabled", "adaptive"}
    mark: JsonObject | None = None
    if request.cache_ttl:
        mark = {"type": "ephemeral", "ttl": request.cache_ttl}
    compacts = request.compaction.enabled and COMPACTION in enabled
    return Features(
        max_tokens=max_tokens,
        headers={"anthropic-beta": ",".join(enabled)} if enabled else {},
        thinking=thinking,
        effort=_effort(request, traits, is_off=thinking is not None and not thinks),
        mark=mark,
        system_mark={**mark, "scope": "global"} if mark and CACHE_SCOPE in enabled else mark,
        edits=_edits(request, enabled, thinks=thinks),
        compacts=compacts,
        temperature=None if thinks else _temperature(request, traits),
        tool_choice=choice,
        output_tool=output_tool,
    )


def _thinking(
    request: ModelRequest, traits: ModelTraits, *, max_tokens: int, is_forced: bool
) -> JsonObject | None:
    """Return how to think; a call that is forced leaves no room for it."""
    level = request.thinking
    if level == "off" or is_forced:
        can_say_so = traits.thinking_off in {"disabled", "between_tools"}
        return {"type": traits.thinking_off} if can_say_so else None
    if level is None or traits.thinking == "none":
        return None
    if traits.thinking == "adaptive":
        return {"type": "adaptive", **({"display": "summarized"} if traits.has_display else {})}
    if not _may_think(request.messages):
        return None
    # The answer needs room as well: thinking counts towards max_tokens.
    budget = min(BUDGETS[level], max_tokens - _LEAST_BUDGET)
    return {"type": "enabled", "budget_tokens": budget} if budget >= _LEAST_BUDGET else None


def _may_think(messages: tuple[Message, ...]) -> bool:
    """Whether thinking can be told a budget here.

    An answer whose calls are being answered must have begun with thinking then; one that another
    model gave, or that was given without thinking, has to be gone on with in the same way.
    """
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            first = next(iter(message.parts), None)
            is_sealed = isinstance(first, ReasoningPart) and bool(first.signature)
            return is_sealed or isinstance(first, ProviderPart) or not message.tool_calls
        if not any(isinstance(part, ToolResultPart) for part in message.parts):
            return True
    return True


def _effort(request: ModelRequest, traits: ModelTraits, *, is_off: bool) -> Effort | None:
    """Return the effort; the levels above high are refused where thinking is turned off."""
    if traits.thinking != "adaptive" or request.thinking is None:
        return None
    if request.thinking == "off":
        return "low" if traits.thinking_off == "never" else None
    effort = traits.effort(request.thinking)
    return "high" if is_off and effort in {"xhigh", "max"} else effort


def _temperature(request: ModelRequest, traits: ModelTraits) -> float | None:
    if request.temperature is None or not traits.takes_temperature:
        return None
    return min(request.temperature, _HIGHEST_TEMPERATURE)


def _output_tool(request: ModelRequest, traits: ModelTraits) -> ToolSpec | None:
    schema = request.output_schema
    if schema is None or (traits.takes_output_schema and schema.is_strict):
        return None
    return ToolSpec(
        name=schema.name,
        description="Give the answer. Call this once, when the answer is complete.",
        input_schema=schema.schema,
    )


def _tool_choice(
    request: ModelRequest, traits: ModelTraits, output_tool: ToolSpec | None
) -> JsonObject | None:
    """Return which tools must be called, and whether several may be at once."""
    choice: JsonObject = {"type": "auto"}
    if traits.takes_forced_tool:
        if request.require_tool is not None:
            choice = {"type": "tool", "name": request.require_tool}
        elif output_tool is not None:
            choice = (
                {"type": "any"} if request.tools else {"type": "tool", "name": output_tool.name}
            )
    if not request.parallel_tool_calls:
        choice["disable_parallel_tool_use"] = True
    return None if choice == {"type": "auto"} else choice


def _edits(request: ModelRequest, enabled: list[str], *, thinks: bool) -> list[JsonObject]:
    """Return how the provider may shorten the conversation; thinking has to be named first."""
    edits: list[JsonObject] = []
    if CONTEXT_MANAGEMENT in enabled:
        if thinks:
            edits.append({"type": "clear_thinking_20251015"})
        edits.append({"type": "clear_tool_uses_20250919"})
    if request.compaction.enabled and COMPACTION in enabled:
        tokens = request.compaction.input_tokens
        edits.append(
            {
                "type": "compact_20260112",
                "pause_after_compaction": request.compaction.pause_after,
                "trigger": {"type": "input_tokens", "value": tokens} if tokens else None,
            }
        )
    return edits
