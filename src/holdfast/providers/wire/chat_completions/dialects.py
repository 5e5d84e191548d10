"""What differs between the servers that speak Chat Completions, as data and nothing else.

A dialect says how a request is written. Replies need none of it but the cost: one decoder reads
what any of these servers sends, because a base URL may hide any of them.
"""

from typing import Literal, TypeAlias

import msgspec

from holdfast.providers.wire.accepted_kinds import JPEG, WEB_PICTURES
from holdfast.vocabulary.settings import Thinking

ThinkingStyle: TypeAlias = Literal[
    "none", "reasoning_effort", "reasoning", "reasoning_switch", "thinking_type", "template"
]
"""Where a request asks for thinking.

`reasoning_effort`: a field of that name. `reasoning`: `{"effort": …}`. `reasoning_switch`:
`{"enabled": …}` under `reasoning`. `thinking_type`: `{"type": "enabled"}` under `thinking`, and
the effort beside it. `template`: `enable_thinking` among `chat_template_kwargs`.
"""

ReasoningReplay: TypeAlias = Literal[
    "never", "as_received", "reasoning_content", "reasoning", "reasoning_details", "thinking_parts"
]
"""Where reasoning goes when it is sent back; `as_received` means the field that it came in."""

OutputMode: TypeAlias = Literal["json_schema", "json_object", "prompt"]
CostField: TypeAlias = Literal["none", "usage_cost", "usd_ticks"]


class ThinkingRule(msgspec.Struct, frozen=True, kw_only=True):
    """How models whose name matches are asked to think; the first rule that matches holds."""

    models: str
    """A regular expression, searched in the lower-cased name."""
    style: ThinkingStyle = "reasoning_effort"
    efforts: tuple[str, ...] = ("low", "medium", "high")
    """What the models accept, weakest first; `none` turns thinking off."""
    off_by_silence: bool = False
    """Whether `off` sends nothing, where turning off may not be possible to ask for."""
    extra: dict[str, str] = msgspec.field(default_factory=dict)
    """Fields that go with it."""


class SamplingRule(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that models whose name matches refuse; settings outlive a change of model."""

    models: str
    fields: tuple[str, ...]
    kept_at: tuple[Thinking | None, ...] = ()
    """Levels of thinking at which they are accepted after all."""


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
    """The first rule that matches a model holds; what it refuses is left out."""
    reasoning_replay: ReasoningReplay = "never"
    reasoning_on_every_message: bool = False
    """Whether an assistant message without reasoning must say so with an empty field."""
    tool_choice: Literal["named", "required", "offered"] = "named"
    """How one tool is demanded: by its name, by offering nothing else, or by that alone."""
    parallel_tool_calls: bool = True
    """Whether the field of that name is known."""
    no_parallel_field_models: str = ""
    """Models that refuse the field, as a regular expression."""
    output: OutputMode = "json_schema"
    strict_output: bool = False
    """Whether a schema that qualifies is marked `strict`."""
    cache_mark_models: str = ""
    """Models for which prompt-cache marks are sent, as a regular expression."""
    refusals: bool = False
    """Whether a refusal can be sent back as one; otherwise it is sent as text."""
    tool_to_user_bridge: str = ""
    """What the assistant is made to say where a user message may not follow a tool's."""
    empty_content: str | None = None
    """The content of an assistant message that only calls tools."""
    media: tuple[str, ...] = ("image/", "text/")
    result_media: tuple[str, ...] = ("image/",)
    media_urls: bool = True
    """Whether pictures can be named by URL; other media must be sent inline in any case."""
    media_models: dict[str, str] = msgspec.field(default_factory=dict)
    """Media that only some models take: by prefix, a regular expression for the models."""
    call_id_pattern: str = r"^[A-Za-z0-9_.:-]{1,64}$"
    cost: CostField = "none"
    switches: frozenset[str] = frozenset()
    """Names of `betas` that are boolean fields of the request body."""


_SOUND = ("audio/wav", "audio/mpeg", "audio/mp3")
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
    refusals=True,
    media=(*WEB_PICTURES, "application/pdf", *_SOUND, "text/"),
    result_media=WEB_PICTURES,
    media_models={"audio/": "audio"},
    call_id_pattern=r"^[A-Za-z0-9_.:-]{1,40}$",
    switches=frozenset({"store", "logprobs"}),
)

AZURE = msgspec.structs.replace(
    OPENAI,
    name="azure",
    path="/openai/deployments/{model}/chat/completions",
    # A deployment's name says nothing certain about the model behind it.
    developer_models="",
    thinking=(*_OPENAI_THINKING, _ANY_EFFORT),
    media=(*WEB_PICTURES, *_SOUND, "text/"),
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
    reasoning_replay="reasoning_details",
    strict_output=True,
    cache_mark_models=r"^anthropic/|claude",
    media=("image/", "application/pdf", *_SOUND, "text/"),
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
    # Its schema mode refuses most of its models, and tools beside it; any model takes an object.
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
    reasoning_replay="reasoning_content",
    reasoning_on_every_message=True,
    parallel_tool_calls=False,
    output="json_object",
    media=(*WEB_PICTURES, "text/"),
    result_media=WEB_PICTURES,
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
    reasoning_replay="thinking_parts",
    strict_output=True,
    tool_to_user_bridge="OK.",
    empty_content="",
    media=(*WEB_PICTURES, "text/"),
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
    reasoning_replay="reasoning_content",
    strict_output=True,
    empty_content="",
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
    media=(*WEB_PICTURES, "text/"),
    result_media=WEB_PICTURES,
    media_models={"image/": "vision"},
)
"""Of its compatibility API; fields that its page does not list are refused or passed over."""

TOGETHER = Dialect(
    name="together",
    thinking=(_GPT_OSS, ThinkingRule(models="", style="reasoning_switch")),
    reasoning_replay="reasoning",
    parallel_tool_calls=False,
)

FIREWORKS = Dialect(
    name="fireworks",
    thinking=(_GPT_OSS, ThinkingRule(models="", efforts=("none", "low", "medium", "high"))),
    reasoning_replay="reasoning_content",
)

VLLM = Dialect(
    name="vllm",
    thinking=(_GPT_OSS, _TEMPLATE),
    reasoning_replay="as_received",
    media=("image/", *_SOUND, "text/"),
)

LM_STUDIO = Dialect(
    name="lmstudio",
    thinking=(_GPT_OSS,),
    tool_choice="required",
    parallel_tool_calls=False,
    empty_content="",
    media_urls=False,
)

LLAMA_CPP = Dialect(
    name="llamacpp",
    thinking=(_GPT_OSS, _TEMPLATE),
    reasoning_replay="reasoning_content",
    tool_choice="required",
    media=("image/", *_SOUND, "text/"),
)

OLLAMA = Dialect(
    name="ollama",
    thinking=(ThinkingRule(models="", efforts=("none", "low", "medium", "high")),),
    reasoning_replay="reasoning",
    tool_choice="required",
    parallel_tool_calls=False,
    empty_content="",
    media_urls=False,
)

GENERIC = Dialect(name="compatible", thinking=(_ANY_EFFORT,), reasoning_replay="as_received")
"""For any base URL: the least common request, and reasoning back in the field it came in."""

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
