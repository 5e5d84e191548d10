"""Media that a model does not take: refused when new, replaced by words when old."""

import pytest

from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.parts import MediaPart
from haptera.model.requests import ModelRequest
from haptera.providers.history import adapt_history
from haptera.providers.wire.protocol import HistoryRules
from haptera.testing.decode_reply import PROTOCOLS
from tests.providers.conversations import user

PICTURE = MediaPart(mime="image/png", data="eA==", filename="a.png")
LINK = MediaPart(mime="image/png", url="https://example.org/a.png")
PDF = MediaPart(mime="application/pdf", data="eA==", filename="a.pdf")
LINKED_PDF = MediaPart(mime="application/pdf", url="https://example.org/a.pdf")
GIF = MediaPart(mime="image/gif", data="eA==")
SOUND = MediaPart(mime="audio/wav", data="eA==")
KEPT = MediaPart(mime="image/png", blob="0" * 64)


def refusal(api: str, model: str, *media: MediaPart) -> str | None:
    """Return why media that are handed in now are refused, if they are."""
    request = ModelRequest(model=model, messages=(user("See", *media),), fresh_media=media)
    try:
        adapt_history(request, provider="p", rules=PROTOCOLS[api].history)
    except ConfigError as error:
        assert (error.code, error.provider) == (ErrorCode.CONFIG_INVALID, "p")
        return error.message
    return None


TAKEN = [
    ("anthropic-messages", "claude-sonnet-5", (PICTURE, LINK, PDF, LINKED_PDF, GIF)),
    ("openai-responses", "gpt-5.5", (PICTURE, LINK, PDF, LINKED_PDF, GIF)),
    ("deepseek-responses", "deepseek-flash", (PICTURE, LINK)),
    ("openai-chat", "gpt-5", (PICTURE, LINK, PDF, GIF)),
    ("openai-chat", "gpt-4o-audio-preview", (SOUND,)),
    ("deepseek-chat", "deepseek-flash", (PICTURE, LINK)),
    ("groq-chat", "meta-llama/llama-4-scout-17b-16e-instruct", (PICTURE, LINK)),
    ("compat-chat", "llama-3.1-nemotron-nano-vl-8b", (PICTURE,)),
    ("compat-chat", "llama-3.2-11b-vision-instruct", (PICTURE,)),
    ("gemini-generatecontent", "gemini-2.5-flash", (PICTURE, LINK, PDF, SOUND)),
    ("ollama-native", "gemma3", (PICTURE,)),
]
REFUSED = [
    ("anthropic-messages", "claude-sonnet-5", SOUND, "does not take audio/wav"),
    ("openai-responses", "o3-mini", PICTURE, "does not take image/png; it takes text"),
    ("openai-responses", "gpt-5.5", SOUND, "does not take audio/wav"),
    ("openai-responses", "gpt-5.5", KEPT, "without content"),
    ("deepseek-responses", "deepseek-v4-pro", PICTURE, "does not take image/png"),
    ("deepseek-responses", "deepseek-flash", PDF, "it takes text, image/png"),
    ("openai-chat", "gpt-5", SOUND, "does not take audio/wav"),
    ("openai-chat", "gpt-5", LINKED_PDF, "by its address; attach the content"),
    ("openai-chat", "gpt-3.5-turbo", PICTURE, "does not take image/png; it takes text"),
    ("groq-chat", "llama-3.3-70b-versatile", PICTURE, "does not take image/png"),
    ("lmstudio-chat", "google/gemma-3-4b", LINK, "by its address"),
    ("deepseek-chat", "deepseek-chat", PICTURE, "does not take image/png"),
    ("xai-chat", "grok-4", GIF, "does not take image/gif"),
    ("gemini-generatecontent", "gemini-2.5-flash", GIF, "does not take image/gif"),
    ("ollama-native", "gemma3", LINK, "by its address; attach the content"),
    ("ollama-native", "llama3.1:8b", PICTURE, "does not take image/png"),
]


@pytest.mark.parametrize(("api", "model", "media"), TAKEN)
def test_what_a_model_takes_is_not_refused(
    api: str, model: str, media: tuple[MediaPart, ...]
) -> None:
    assert refusal(api, model, *media) is None


@pytest.mark.parametrize(("api", "model", "part", "words"), REFUSED)
def test_what_the_user_has_just_handed_in_is_refused_if_the_model_does_not_take_it(
    api: str, model: str, part: MediaPart, words: str
) -> None:
    message = refusal(api, model, part)
    assert message is not None
    assert words in message
    assert f"{part.filename or part.url or 'an attachment'!r}: p/{model}" in message


@pytest.mark.parametrize(("api", "model", "part", "words"), REFUSED)
def test_the_same_is_a_line_of_text_once_it_is_old(
    api: str, model: str, part: MediaPart, words: str
) -> None:
    del words
    request = ModelRequest(model=model, messages=(user("See", part),))
    adapted = adapt_history(request, provider="p", rules=PROTOCOLS[api].history).request
    name = f" {part.url or part.filename}" if part.url or part.filename else ""
    line = f"[{part.mime}{name}: not shown, this model cannot read it]"
    assert adapted.messages[0].text == f"See{line}"


@pytest.mark.parametrize("name", ["a.txt", None])
def test_a_text_file_is_sent_as_text_to_a_model_that_takes_no_media(name: str | None) -> None:
    note = MediaPart(mime="text/plain", data="aGk=", filename=name)
    request = ModelRequest(model="m", messages=(user(note),), fresh_media=(note,))
    adapted = adapt_history(request, provider="p", rules=HistoryRules()).request
    assert adapted.messages[0].text == ("a.txt:\nhi" if name else "hi")


def test_a_type_of_which_no_kind_is_taken_is_named_in_full() -> None:
    request = ModelRequest(model="m", messages=(user(PICTURE),), fresh_media=(PICTURE,))
    rules = HistoryRules(media=("audio/", "application/pdf"))
    with pytest.raises(ConfigError, match=r"'a.png': p/m does not take image/png; it takes text, "):
        adapt_history(request, provider="p", rules=rules)
