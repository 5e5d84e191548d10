"""Accepted inputs: the media types that most models accept, and how a tool is described to them."""

from haptera.formats.lenient_json import encode_lenient
from haptera.model.tools import ToolSpec

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


def tool_description(tool: ToolSpec) -> str:
    """Return a tool's description with its examples; only Anthropic has a field for them."""
    examples = "".join(
        f"\nExample input: {encode_lenient(example).decode()}" for example in tool.input_examples
    )
    return f"{tool.description}{examples}".strip()
