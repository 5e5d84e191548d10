"""Anthropic Messages: how models differ, and what a request's settings mean for its model.

Models are known by the family and version in their names. A model that is not in the table, such as
one of another vendor behind this protocol, gets the most cautious traits. `features_of` decides on
thinking, effort, cache marks, context management, betas and tool choice; the encoder only writes
the result down.
"""

import re
from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from haptera.model.json_types import JsonObject
from haptera.model.messages import AssistantMessage, Message
from haptera.model.parts import ProviderPart, ReasoningPart, ToolResultPart
from haptera.model.requests import ModelRequest
from haptera.model.settings import Thinking
from haptera.model.tools import ToolSpec

Effort: TypeAlias = Literal["low", "medium", "high", "xhigh", "max"]

_EFFORTS: dict[Thinking, Effort] = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
BUDGETS: dict[Thinking, int] = {
    "minimal": 1_024,
    "low": 4_096,
    "medium": 10_240,
    "high": 20_480,
    "xhigh": 28_672,
    "max": 28_672,
}
"""Thinking tokens for models with a budget; they accept 1,024 at least."""

# Older names have the version before the family. A longer number is a date.
_NAME = re.compile(
    r"claude-(?:(?P<family>[a-z]+)-(?P<version>\d{1,2}(?:[-.]\d{1,2})?)(?!\d)"
    r"|(?P<old_version>\d(?:[-.]\d)?)-(?P<old_family>[a-z]+))"
)


class ModelTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What one model accepts."""

    thinking: Literal["none", "budget", "adaptive"] = "none"
    thinking_off: Literal["omit", "disabled", "between_tools", "never"] = "omit"
    """How thinking is turned off: by leaving the field out, by a value of its `type`, or not at all
    (`never`)."""
    has_display: bool = False
    """Whether the text of the thinking is sent only on request."""
    has_xhigh: bool = True
    takes_temperature: bool = True
    takes_output_schema: bool = False
    takes_forced_tool: bool = True
    max_tokens: int = 4_096
    """The default, because the API requires a value."""

    def effort(self, level: Thinking) -> Effort:
        """Return the highest effort that is not above `level`."""
        effort = _EFFORTS.get(level, "low")
        return "high" if effort == "xhigh" and not self.has_xhigh else effort


_OLD = ModelTraits(max_tokens=8_192)
_BUDGET = ModelTraits(thinking="budget", max_tokens=32_000)
_BUDGET_WITH_SCHEMA = replace(_BUDGET, takes_output_schema=True)
_ADAPTIVE = ModelTraits(
    thinking="adaptive", has_xhigh=False, takes_output_schema=True, max_tokens=64_000
)
_ADAPTIVE_ONLY = replace(_ADAPTIVE, has_display=True, has_xhigh=True, takes_temperature=False)
_THINKING_BY_DEFAULT = replace(_ADAPTIVE_ONLY, thinking_off="disabled")
_BETWEEN_TOOLS = replace(_ADAPTIVE_ONLY, thinking_off="between_tools", takes_forced_tool=False)
_ALWAYS_THINKING = replace(_ADAPTIVE_ONLY, thinking_off="never", takes_forced_tool=False)

# Newest first; the first row at or below a model's version applies.
_BY_VERSION: tuple[tuple[tuple[int, int], ModelTraits], ...] = (
    ((5, 0), _THINKING_BY_DEFAULT),
    ((4, 7), _ADAPTIVE_ONLY),
    ((4, 6), _ADAPTIVE),
    ((4, 5), _BUDGET_WITH_SCHEMA),
    ((3, 7), _BUDGET),
    ((3, 5), _OLD),
    ((0, 0), replace(_OLD, max_tokens=4_096)),
)
# Families that differ from their generation, from a version on.
_BY_FAMILY: tuple[tuple[str, tuple[int, int], ModelTraits], ...] = (
    ("fable", (5, 0), _ALWAYS_THINKING),
    ("mythos", (5, 0), _ALWAYS_THINKING),
    ("opus", (5, 5), _ALWAYS_THINKING),
    ("sonnet", (5, 5), _BETWEEN_TOOLS),
)


@lru_cache(maxsize=256)
def traits_of(model: str) -> ModelTraits:
    """Return the traits of a model by its name, with any prefix or date around it."""
    # Its name has no version.
    if "claude-mythos-preview" in model:
        return _ALWAYS_THINKING
    match = _NAME.search(model.lower())
    if match is None:
        return ModelTraits()
    family = match["family"] or match["old_family"]
    numbers = re.split(r"[-.]", match["version"] or match["old_version"])
    version = (int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0)
    for name, since, traits in _BY_FAMILY:
        if family == name and version >= since:
            return traits
    return next(traits for since, traits in _BY_VERSION if version >= since)


# Features of a request

COMPACTION = "compact-2026-01-12"
CONTEXT_MANAGEMENT = "context-management-2025-06-27"
CACHE_SCOPE = "prompt-caching-scope-2026-01-05"

_LEAST_BUDGET = 1_024
_HIGHEST_TEMPERATURE = 1.0


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """What one request holds beside its messages, tools and system prompt."""

    max_tokens: int
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    thinking: JsonObject | None = None
    effort: Effort | None = None
    mark: JsonObject | None = None
    """The prompt-cache mark; None without caching."""
    marks_tail: bool = True
    """Whether the last user message has the mark, too."""
    system_mark: JsonObject | None = None
    edits: list[JsonObject] = msgspec.field(default_factory=list)
    compacts: bool = False
    """Whether the provider compacts the conversation, and accepts its own summaries back."""
    temperature: float | None = None
    tool_choice: JsonObject | None = None
    output_tool: ToolSpec | None = None
    """The tool whose arguments are the output, for models without output schemas."""


def features_of(request: ModelRequest) -> Features:
    """Return the features of a request."""
    traits = traits_of(request.model)
    betas = {COMPACTION: True} if request.compaction.enabled else {}
    # Anthropic's betas have a hyphen in their names. Names without one are switches of other
    # protocols, which a session keeps when it changes the provider; unknown names are refused.
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
        marks_tail=request.caches_tail,
        system_mark={**mark, "scope": "global"} if mark and CACHE_SCOPE in enabled else mark,
        edits=_edits(request, enabled, thinks=thinks),
        compacts=compacts,
        # The API refuses a temperature beside thinking.
        temperature=None if thinks else _temperature(request, traits),
        tool_choice=choice,
        output_tool=output_tool,
    )


def _thinking(
    request: ModelRequest, traits: ModelTraits, *, max_tokens: int, is_forced: bool
) -> JsonObject | None:
    """Return the `thinking` field; a forced tool call excludes thinking."""
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
    # Thinking counts towards max_tokens, so some of them are left for the answer.
    budget = min(BUDGETS[level], max_tokens - _LEAST_BUDGET)
    return {"type": "enabled", "budget_tokens": budget} if budget >= _LEAST_BUDGET else None


def _may_think(messages: tuple[Message, ...]) -> bool:
    """Whether the history allows a thinking budget.

    With a budget, an answer whose tool calls are being answered must begin with signed thinking.
    One of another model, or one without thinking, is therefore continued without thinking.
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
    """Return the effort; levels above high are refused if thinking is turned off."""
    if traits.thinking != "adaptive" or request.thinking is None:
        return None
    if request.thinking == "off":
        # A model that always thinks is asked for as little as possible.
        return "low" if traits.thinking_off == "never" else None
    effort = traits.effort(request.thinking)
    return "high" if is_off and effort in {"xhigh", "max"} else effort


def _temperature(request: ModelRequest, traits: ModelTraits) -> float | None:
    if request.temperature is None or not traits.takes_temperature:
        return None
    # Other providers take up to 2, and settings outlive a change of the model.
    return min(request.temperature, _HIGHEST_TEMPERATURE)


def _output_tool(request: ModelRequest, traits: ModelTraits) -> ToolSpec | None:
    schema = request.output_schema
    # A schema that the strict form cannot express is sent as the arguments of a tool, to any model.
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
    """Return which tool must be called, and whether several may be called at once."""
    choice: JsonObject = {"type": "auto"}
    if traits.takes_forced_tool:
        if request.require_tool is not None:
            choice = {"type": "tool", "name": request.require_tool}
        elif output_tool is not None:
            # With tools of the user's the model must be free to call those first.
            choice = (
                {"type": "any"} if request.tools else {"type": "tool", "name": output_tool.name}
            )
    if not request.parallel_tool_calls:
        choice["disable_parallel_tool_use"] = True
    return None if choice == {"type": "auto"} else choice


def _edits(request: ModelRequest, enabled: list[str], *, thinks: bool) -> list[JsonObject]:
    """Return the context-management edits; the one for thinking must come first."""
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
