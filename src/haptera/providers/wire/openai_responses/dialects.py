"""OpenAI Responses: how endpoints differ, as data."""

import re
from typing import Literal

import msgspec

from haptera.formats.openai_responses.encoding import ItemRules
from haptera.model.settings import Thinking
from haptera.providers.wire.accepted_inputs import JPEG, WEB_IMAGES


class ReasoningLevels(msgspec.Struct, frozen=True, kw_only=True):
    """How models with a matching name are asked to think."""

    models: str
    """A regular expression, searched in the model's name."""
    levels: dict[Thinking, str]
    """The effort for each level; for a level that is missing, none is sent."""
    encrypted: bool = True
    """Whether encrypted reasoning can be requested."""
    takes_temperature: bool = False
    """Whether a temperature is accepted, or at least ignored."""


class ResponsesDialect(msgspec.Struct, frozen=True, kw_only=True):
    """What one endpoint accepts."""

    name: str
    path: str = "responses"
    reasoning: tuple[ReasoningLevels, ...] = ()
    """The first match applies; without one, thinking is not asked for."""
    smallest_output: int = 1
    """The smallest `max_output_tokens` that is accepted."""
    media: tuple[str, ...] = (*WEB_IMAGES, "application/pdf")
    result_media: tuple[str, ...] = (*WEB_IMAGES, "application/pdf")
    media_models: dict[str, str] = msgspec.field(default_factory=dict)
    """Media that only some models accept: by prefix, a regular expression for the models."""
    items: ItemRules = ItemRules()
    output_field: Literal["text", "response_format"] = "text"
    """The field for the output schema."""
    keeps_answers: bool = False
    """Whether the endpoint can keep answers for later requests to continue."""
    compacts: bool = False
    """Whether the endpoint can compact a conversation."""
    can_count: bool = False
    """Whether there is an endpoint that counts tokens."""
    summaries: bool = True
    """Whether summaries of the reasoning can be requested."""

    def reasoning_of(self, model: str) -> ReasoningLevels | None:
        """Return how `model` is asked to think."""
        return next((row for row in self.reasoning if re.search(row.models, model)), None)


_PLAIN: dict[Thinking, str] = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
_OPENAI = (
    ReasoningLevels(models=r"gpt-5[\d.]*-chat", levels={}, encrypted=False, takes_temperature=True),
    # From 5.2 on, and the largest Codex models, have a level above high.
    ReasoningLevels(
        models=r"gpt-5\.([2-9]|\d\d)|gpt-[6-9]|codex-max",
        levels=_PLAIN | {"off": "none", "xhigh": "xhigh", "max": "xhigh"},
    ),
    ReasoningLevels(models=r"gpt-5\.1", levels=_PLAIN | {"off": "none"}),
    ReasoningLevels(models=r"gpt-5", levels=_PLAIN | {"off": "minimal", "minimal": "minimal"}),
    ReasoningLevels(models=r"\bo[1-9]\b|codex", levels=_PLAIN | {"off": "low"}),
)
_ANY = (ReasoningLevels(models="", levels=_PLAIN, takes_temperature=True),)

OPENAI = ResponsesDialect(
    name="openai",
    reasoning=_OPENAI,
    smallest_output=16,
    keeps_answers=True,
    compacts=True,
    can_count=True,
)
AZURE = msgspec.structs.replace(OPENAI, name="azure", can_count=False)
OPENROUTER = ResponsesDialect(name="openrouter", reasoning=_ANY, smallest_output=16)
XAI = ResponsesDialect(
    name="xai",
    reasoning=_ANY,
    keeps_answers=True,
    media=("image/png", *JPEG, "application/pdf"),
    result_media=("image/png", *JPEG, "application/pdf"),
)
DEEPSEEK = ResponsesDialect(
    name="deepseek",
    reasoning=(ReasoningLevels(models="", levels=_PLAIN, encrypted=False, takes_temperature=True),),
    items=ItemRules(calls_last=True),
    summaries=False,
    media=WEB_IMAGES,
    result_media=WEB_IMAGES,
    media_models={"image/": "deepseek-flash|vision"},
)
PERPLEXITY = ResponsesDialect(
    name="perplexity",
    reasoning=(ReasoningLevels(models="", levels=_PLAIN, encrypted=False, takes_temperature=True),),
    summaries=False,
    items=ItemRules(plain_items=True),
    output_field="response_format",
    media=WEB_IMAGES,
    result_media=(),
)
PLAIN = ResponsesDialect(
    name="plain", items=ItemRules(typed_answers=True), media=("image/",), result_media=()
)
"""For any other server: only what all of them accept."""

DIALECTS = {
    dialect.name: dialect
    for dialect in (OPENAI, AZURE, OPENROUTER, XAI, DEEPSEEK, PERPLEXITY, PLAIN)
}
