"""Chat Completions: how servers differ in the requests they accept, as data.

Replies depend on the dialect for the cost only: one decoder reads what any of these servers sends,
because any of them may be behind a base URL.
"""

from typing import Literal, TypeAlias

import msgspec

from haptera.formats.chat_completions.encoding import MessageRules
from haptera.model.settings import Thinking
from haptera.providers.wire.accepted_inputs import JPEG, WEB_IMAGES

ThinkingStyle: TypeAlias = Literal[
    "none", "reasoning_effort", "reasoning", "reasoning_switch", "thinking_type", "template"
]
"""How a request asks for thinking.

`reasoning_effort`: a field of that name. `reasoning`: `{"effort": …}`. `reasoning_switch`:
`{"enabled": …}` under `reasoning`. `thinking_type`: `{"type": "enabled"}` under `thinking`, and
the effort beside it. `template`: `enable_thinking` among `chat_template_kwargs`.
"""

OutputMode: TypeAlias = Literal["json_schema", "json_object", "prompt"]
CostField: TypeAlias = Literal["none", "usage_cost", "usd_ticks"]


class ThinkingRule(msgspec.Struct, frozen=True, kw_only=True):
    """How models with a matching name are asked to think; the first matching rule applies."""

    models: str
    """A regular expression, searched in the lower-cased name."""
    style: ThinkingStyle = "reasoning_effort"
    efforts: tuple[str, ...] = ("low", "medium", "high")
    """What the models accept, weakest first; `none` turns thinking off."""
    off_by_silence: bool = False
    """Whether `off` sends nothing, because the field may not know a value for it."""
    extra: dict[str, str] = msgspec.field(default_factory=dict)
    """Fields that are sent with it."""


class SamplingRule(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that models with a matching name refuse; they are left out of the request."""

    models: str
    fields: tuple[str, ...]
    kept_at: tuple[Thinking | None, ...] = ()
    """Levels of thinking at which the fields are accepted."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One way of writing Chat Completions requests."""

    name: str
    path: str = "/chat/completions"
    """Relative to the base URL; `{model}` is replaced by the quoted name of the model."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    seed_field: Literal["seed", "random_seed"] = "seed"
    developer_models: str = ""
    """Models whose instructions go in a `developer` message, as a regular expression."""
    include_usage: bool = True
    """Whether usage has to be asked for with `stream_options`."""
    thinking: tuple[ThinkingRule, ...] = ()
    refused_sampling: tuple[SamplingRule, ...] = ()
    """The first matching rule applies."""
    messages: MessageRules = MessageRules()
    tool_choice: Literal["named", "required", "offered"] = "named"
    """How a tool is required: `named` names it; `required` offers no other and sets `required`;
    `offered` only offers no other."""
    parallel_tool_calls: bool = True
    """Whether the server knows the field of that name."""
    no_parallel_field_models: str = ""
    """Models that refuse the field, as a regular expression."""
    output: OutputMode = "json_schema"
    strict_output: bool = False
    """Whether schemas are sent with `strict` where they qualify."""
    cache_mark_models: str = ""
    """Models for which prompt-cache marks are sent, as a regular expression."""
    media: tuple[str, ...] = ("image/", "text/")
    result_media: tuple[str, ...] = ("image/",)
    media_models: dict[str, str] = msgspec.field(default_factory=dict)
    """Media that only some models accept: by prefix, a regular expression for the models."""
    call_id_pattern: str = r"^[A-Za-z0-9_.:-]{1,64}$"
    cost: CostField = "none"
    switches: frozenset[str] = frozenset()
    """Names of `betas` that are boolean fields of the request body."""


_AUDIO = ("audio/wav", "audio/mpeg", "audio/mp3")
_GPT_OSS = ThinkingRule(models="gpt-oss")
_ANY_EFFORT = ThinkingRule(models="", off_by_silence=True)
_TEMPLATE = ThinkingRule(models="", style="template")

_OPENAI_THINKING = (
    ThinkingRule(models=r"gpt-[34]|chatgpt|^gpt-5(\.\d+)?-chat", style="none"),
    ThinkingRule(models=r"gpt-5-pro", efforts=("high",)),
    ThinkingRule(models=r"gpt-5(-|$)", efforts=("minimal", "low", "medium", "high")),
    ThinkingRule(models=r"gpt-5\.1", efforts=("none", "low", "medium", "high")),
    ThinkingRule(models=r"gpt-(5\.\d|[6-9])", efforts=("none", "low", "medium", "high", "xhigh")),
    ThinkingRule(models=r"^o\d|gpt-oss"),
)

_FIXED_BY_THINKING = ("temperature", "stop")
# The first rule that matches applies, so exceptions come before the models they are taken from.
_OPENAI_SAMPLING = (
    SamplingRule(models=r"gpt-5(\.\d+)?-chat", fields=()),
    SamplingRule(models=r"gpt-5\.[12]", fields=_FIXED_BY_THINKING, kept_at=(None, "off")),
    SamplingRule(models=r"gpt-(5\.\d|[6-9])", fields=_FIXED_BY_THINKING, kept_at=("off",)),
    SamplingRule(models=r"gpt-5|^o\d", fields=_FIXED_BY_THINKING),
)

OPENAI = Dialect(
    name="openai",
    max_tokens_field="max_completion_tokens",
    developer_models=r"^(o\d|gpt-[5-9])",
    thinking=_OPENAI_THINKING,
    refused_sampling=_OPENAI_SAMPLING,
    no_parallel_field_models=r"^o\d",
    strict_output=True,
    messages=MessageRules(refusals=True),
    media=(*WEB_IMAGES, "application/pdf", *_AUDIO, "text/"),
    result_media=WEB_IMAGES,
    media_models={"audio/": "audio"},
    call_id_pattern=r"^[A-Za-z0-9_.:-]{1,40}$",
    switches=frozenset({"store", "logprobs"}),
)

AZURE = msgspec.structs.replace(
    OPENAI,
    name="azure",
    path="/openai/deployments/{model}/chat/completions",
    # The name of a deployment does not reliably say which model is behind it.
    developer_models="",
    thinking=(*_OPENAI_THINKING, _ANY_EFFORT),
    media=(*WEB_IMAGES, *_AUDIO, "text/"),
)

OPENROUTER = Dialect(
    name="openrouter",
    thinking=(
        ThinkingRule(
            models="",
            style="reasoning",
            efforts=("none", "minimal", "low", "medium", "high", "xhigh"),
        ),
    ),
    messages=MessageRules(reasoning_replay="reasoning_details"),
    strict_output=True,
    cache_mark_models=r"^anthropic/|claude",
    media=("image/", "application/pdf", *_AUDIO, "text/"),
    # Some of the models behind it refuse more than 40.
    call_id_pattern=r"^[A-Za-z0-9_.:-]{1,40}$",
    cost="usage_cost",
    switches=frozenset({"logprobs"}),
)

GROQ = Dialect(
    name="groq",
    max_tokens_field="max_completion_tokens",
    thinking=(
        _GPT_OSS,
        ThinkingRule(
            models="qwen", efforts=("none", "default"), extra={"reasoning_format": "parsed"}
        ),
    ),
    # Its schema mode is refused for most of its models, and beside tools; JSON mode never is.
    output="json_object",
)

DEEPSEEK = Dialect(
    name="deepseek",
    thinking=(
        ThinkingRule(
            models="",
            style="thinking_type",
            efforts=("none", "minimal", "low", "medium", "high", "xhigh", "max"),
        ),
    ),
    messages=MessageRules(reasoning_replay="reasoning_content", reasoning_on_every_message=True),
    parallel_tool_calls=False,
    output="json_object",
    media=(*WEB_IMAGES, "text/"),
    result_media=WEB_IMAGES,
    media_models={"image/": "deepseek-flash|vision"},
    switches=frozenset({"logprobs"}),
)

MISTRAL = Dialect(
    name="mistral",
    seed_field="random_seed",
    include_usage=False,
    thinking=(
        ThinkingRule(models="mistral-large", efforts=("none", "low", "medium", "high")),
        ThinkingRule(models="magistral", style="none"),
        ThinkingRule(models=r"mistral-(small|medium)", efforts=("none", "high")),
    ),
    messages=MessageRules(
        reasoning_replay="thinking_parts", tool_to_user_bridge="OK.", empty_content=""
    ),
    strict_output=True,
    media=(*WEB_IMAGES, "text/"),
    result_media=(),
    call_id_pattern=r"^[A-Za-z0-9]{9}$",
    switches=frozenset({"safe_prompt"}),
)

XAI = Dialect(
    name="xai",
    max_tokens_field="max_completion_tokens",
    thinking=(
        ThinkingRule(models="grok-3-mini", efforts=("low", "high")),
        ThinkingRule(models=r"grok-4\.[3-9]|grok-[5-9]", efforts=("none", "low", "medium", "high")),
    ),
    refused_sampling=(
        SamplingRule(models="non-reasoning", fields=()),
        SamplingRule(models=r"grok-(3-mini|[4-9])", fields=("stop",)),
    ),
    messages=MessageRules(reasoning_replay="reasoning_content", empty_content=""),
    strict_output=True,
    media=("image/png", *JPEG, "text/"),
    result_media=("image/png", *JPEG),
    cost="usd_ticks",
)

COHERE = Dialect(
    name="cohere",
    include_usage=False,
    thinking=(ThinkingRule(models="reasoning", efforts=("none", "high")),),
    tool_choice="offered",
    parallel_tool_calls=False,
    output="json_object",
    media=(*WEB_IMAGES, "text/"),
    result_media=WEB_IMAGES,
    media_models={"image/": "vision"},
)
"""For its compatibility API, which refuses or ignores fields that its documentation omits."""

TOGETHER = Dialect(
    name="together",
    thinking=(_GPT_OSS, ThinkingRule(models="", style="reasoning_switch")),
    messages=MessageRules(reasoning_replay="reasoning"),
    parallel_tool_calls=False,
)

FIREWORKS = Dialect(
    name="fireworks",
    thinking=(_GPT_OSS, ThinkingRule(models="", efforts=("none", "low", "medium", "high"))),
    messages=MessageRules(reasoning_replay="reasoning_content"),
)

VLLM = Dialect(
    name="vllm",
    thinking=(_GPT_OSS, _TEMPLATE),
    messages=MessageRules(reasoning_replay="as_received"),
    media=("image/", *_AUDIO, "text/"),
)

LM_STUDIO = Dialect(
    name="lmstudio",
    thinking=(_GPT_OSS,),
    tool_choice="required",
    parallel_tool_calls=False,
    messages=MessageRules(empty_content="", media_urls=False),
)

LLAMA_CPP = Dialect(
    name="llamacpp",
    thinking=(_GPT_OSS, _TEMPLATE),
    messages=MessageRules(reasoning_replay="reasoning_content"),
    tool_choice="required",
    media=("image/", *_AUDIO, "text/"),
)

OLLAMA = Dialect(
    name="ollama",
    thinking=(ThinkingRule(models="", efforts=("none", "low", "medium", "high")),),
    messages=MessageRules(reasoning_replay="reasoning", empty_content="", media_urls=False),
    tool_choice="required",
    parallel_tool_calls=False,
)

GENERIC = Dialect(
    name="compatible",
    thinking=(_ANY_EFFORT,),
    messages=MessageRules(reasoning_replay="as_received"),
)
"""For any other server: only fields that all of them know."""

DIALECTS = {
    dialect.name: dialect
    for dialect in (
        OPENAI,
        AZURE,
        OPENROUTER,
        GROQ,
        DEEPSEEK,
        MISTRAL,
        XAI,
        COHERE,
        TOGETHER,
        FIREWORKS,
        VLLM,
        LM_STUDIO,
        LLAMA_CPP,
        OLLAMA,
        GENERIC,
    )
}
