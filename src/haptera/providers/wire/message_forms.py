"""Message forms: what several protocols write in the same way, and the media types they accept.

Most protocols have no field for a reminder, a failed tool call, arguments that are not an object,
or examples of a tool's input. Here is how such things are written as text.
"""

from haptera.model.parts import ToolResultPart
from haptera.model.tools import ToolSpec
from haptera.providers.wire.lenient_decoding import encode_lenient

JPEG = ("image/jpeg", "image/jpg")
WEB_IMAGES = ("image/png", *JPEG, "image/gif", "image/webp")
"""What most hosted models accept; any other image makes them refuse the whole request."""

TEXT_ONLY_MODELS = (
    r"^(?!.*(?:\bvl\b|vision|llava))"
    r".*(?:gpt-oss|gpt-3\.5|\bo1-(?:mini|preview)|\bo3-mini|llama-?3(?:\.[013])?(?![.\d])|\bgrok-3)"
)
"""Lower-case names of models that are known to read text only, at any provider.

A picture makes every server of such a model refuse the request. For all other names the provider
decides: a name alone is not enough to refuse a user's picture.
"""

CUSTOM_INPUT = "__input__"
"""The argument that holds the input of a custom tool call, which is free text."""


def tool_description(tool: ToolSpec) -> str:
    """Return a tool's description with its examples; only Anthropic has a field for them."""
    examples = "".join(
        f"\nExample input: {encode_lenient(example).decode()}" for example in tool.input_examples
    )
    return f"{tool.description}{examples}".strip()


def marked_result(part: ToolResultPart) -> str:
    """Return a tool result's text; a failed call is marked, for protocols without a flag."""
    if not part.is_error:
        return part.text
    return f"[{part.outcome}] {part.text}".rstrip()
