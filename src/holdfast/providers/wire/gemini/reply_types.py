"""What Gemini generateContent sends, as far as we model it."""

import msgspec

from holdfast.providers.wire.gemini.partial_arguments import PartialArgument
from holdfast.vocabulary.json_types import Json


class FunctionCall(msgspec.Struct, rename="camel"):
    """A function call, whole or a piece of one."""

    name: str | None = None
    args: Json = None
    """An object, as it should be."""
    id: str | None = None
    partial_args: list[PartialArgument] | None = None
    will_continue: bool = False


class ContentPart(msgspec.Struct, rename="camel"):
    """A part, as far as we model it."""

    text: str | None = None
    thought: bool = False
    thought_signature: str | None = None
    function_call: FunctionCall | None = None


class Content(msgspec.Struct):
    """What the model says in one frame."""

    parts: list[ContentPart] | None = None


class Candidate(msgspec.Struct, rename="camel"):
    """One answer; we never ask for more than one."""

    content: Content | None = None
    finish_reason: str | None = None
    grounding_metadata: msgspec.Raw = msgspec.Raw()
    url_context_metadata: msgspec.Raw = msgspec.Raw()
    citation_metadata: msgspec.Raw = msgspec.Raw()


class PromptFeedback(msgspec.Struct, rename="camel"):
    """What was found wrong with the prompt."""

    block_reason: str | None = None


class UsageMetadata(msgspec.Struct, rename="camel"):
    """Tokens so far; thoughts are not in the candidates, nor tool results in the prompt."""

    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    total_token_count: int | None = None


class Reply(msgspec.Struct, rename="camel"):
    """One frame."""

    candidates: list[Candidate] | None = None
    prompt_feedback: PromptFeedback | None = None
    usage_metadata: UsageMetadata | None = None
    model_version: str | None = None
    response_id: str | None = None
    error: msgspec.Raw = msgspec.Raw()
