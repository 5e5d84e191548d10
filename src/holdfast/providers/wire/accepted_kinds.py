"""Kinds of media that several protocols name, and models that take none."""

JPEG = ("image/jpeg", "image/jpg")
WEB_PICTURES = ("image/png", *JPEG, "image/gif", "image/webp")
"""What most hosted models read; others refuse the whole request."""

TEXT_MODELS = (
    r"^(?!.*(?:\bvl\b|vision|llava))"
    r".*(?:gpt-oss|gpt-3\.5|\bo1-(?:mini|preview)|\bo3-mini|llama-?3(?:\.[013])?(?![.\d])|\bgrok-3)"
)
"""Models that are known to read nothing but text, whoever serves them; names in lower case.

A picture makes every server of such a model refuse the request. What is not named here is left to
its provider to judge: a name says too little to refuse somebody's picture because of it.
"""
