"""What endpoints that speak OpenAI Responses do differently, as values."""

import re
from typing import Literal

import msgspec

from holdfast.providers.wire.accepted_kinds import JPEG, WEB_PICTURES
from holdfast.vocabulary.settings import Thinking


class ReasoningLevels(msgspec.Struct, frozen=True, kw_only=True):
    """How the models whose name matches take a wish for thinking."""

    models: str
    """A pattern that is searched in the model's name."""
    levels: dict[Thinking, str]
    """Their word for each of our levels; a level that is missing sends none."""
    sealed: bool = True
    """Whether they give encrypted reasoning."""
    takes_temperature: bool = False
    """Whether a temperature is accepted, or at least passed over."""


class ResponsesDialect(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint's ways."""

    name: str
    path: str = "responses"
    reasoning: tuple[ReasoningLevels, ...] = ()
    """The first whose pattern is found counts; none means that thinking is not asked for."""
    smallest_output: int = 1
    """The least `max_output_tokens` that is accepted."""
    media: tuple[str, ...] = (*WEB_PICTURES, "application/pdf")
    result_media: tuple[str, ...] = (*WEB_PICTURES, "application/pdf")
    media_models: dict[str, str] = msgspec.field(default_factory=dict)
    """Media that only some models take: by prefix, a regular expression for the models."""
    typed_answers: bool = False
    """Whether an answer without an id is only taken as a typed message, not in the short form."""
    plain_items: bool = False
    """Whether only messages and calls are taken back, with nothing of the server's own in them."""
    output_field: Literal["text", "response_format"] = "text"
    """Where the schema of an answer goes."""
    calls_last: bool = False
    """Whether nothing may stand between the calls of an answer and their results."""
    keeps_answers: bool = False
    """Whether answers can be kept there, so that a later request goes on from one by its id."""
    compacts: bool = False
    """Whether it can be asked to compact a conversation itself."""
    can_count: bool = False
    """Whether there is an endpoint that counts tokens."""
    summaries: bool = True
    """Whether summaries of the reasoning can be asked for."""

    def reasoning_of(self, model: str) -> ReasoningLevels | None:
        """Return how `model` takes a wish for thinking."""
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
    ReasoningLevels(models=r"gpt-5[\d.]*-chat", levels={}, sealed=False, takes_temperature=True),
    # From 5.2 on, and in the largest Codex models, there is a level above high.
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
    reasoning=(ReasoningLevels(models="", levels=_PLAIN, sealed=False, takes_temperature=True),),
    calls_last=True,
    summaries=False,
    media=WEB_PICTURES,
    result_media=WEB_PICTURES,
    media_models={"image/": "deepseek-flash|vision"},
)
PERPLEXITY = ResponsesDialect(
    name="perplexity",
    reasoning=(ReasoningLevels(models="", levels=_PLAIN, sealed=False, takes_temperature=True),),
    summaries=False,
    plain_items=True,
    output_field="response_format",
    media=WEB_PICTURES,
    result_media=(),
)
PLAIN = ResponsesDialect(name="plain", typed_answers=True, media=("image/",), result_media=())
"""Any other server: only what every one of them accepts."""

DIALECTS = {
    dialect.name: dialect
    for dialect in (OPENAI, AZURE, OPENROUTER, XAI, DEEPSEEK, PERPLEXITY, PLAIN)
}
