"""Where endpoints that speak Gemini generateContent differ, as values."""

import msgspec


class GeminiDialect(msgspec.Struct, frozen=True, kw_only=True):
    """Where an endpoint keeps its models, and how it wants to be asked to count."""

    models: str
    count_wraps_request: bool


GEMINI_API = GeminiDialect(models="v1beta/models", count_wraps_request=True)
VERTEX = GeminiDialect(models="publishers/google/models", count_wraps_request=False)
