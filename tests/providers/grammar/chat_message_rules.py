"""What Chat Completions servers refuse in the messages of a request."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise

from tests.providers.grammar.chat_rule import (
    HOSTED,
    LOCAL,
    OPENAI_LIKE,
    OPENAI_REFERENCE,
    Body,
    Check,
    messages_of,
    pieces_of,
    rule,
    user_pieces_of,
)

ROLES = {"system", "developer", "user", "assistant", "tool"}
USER_TYPES = {"text", "image_url", "input_audio", "file"}
ASSISTANT_TYPES = {"text", "refusal", "thinking"}


@rule("model", OPENAI_REFERENCE)
def a_model_is_named(body: Body) -> Iterator[str]:
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "no model"


@rule("messages", OPENAI_REFERENCE)
def there_is_a_message(body: Body) -> Iterator[str]:
    if not body.get("messages"):
        yield "no messages"


@rule("role", OPENAI_REFERENCE)
def roles_are_known(body: Body) -> Iterator[str]:
    for message in body["messages"]:
        if message.get("role") not in ROLES:
            yield f"role {message.get('role')!r}"


@rule(
    "developer",
    "recorded 400: openai-chat/pydantic-ai.test_openai_o1_mini_system_role_developer.0",
    "azure",
    *HOSTED,
    *LOCAL,
)
def developers_speak_to_openai_only(body: Body) -> Iterator[str]:
    if any(messages_of(body, "developer")):
        yield "a developer message"


@rule("system first", "https://github.com/charmbracelet/crush/issues/279")
def instructions_come_first_and_once(body: Body) -> Iterator[str]:
    for message in body["messages"][1:]:
        if message.get("role") in {"system", "developer"}:
            yield "instructions after the first message"


@rule("answer to calls", "https://github.com/RamiAwar/dataline/issues/172")
def every_call_is_answered_at_once(body: Body) -> Iterator[str]:
    waiting: set[str] = set()
    for message in [*body["messages"], {"role": "end"}]:
        if message["role"] == "tool":
            waiting.discard(message.get("tool_call_id", ""))
            continue
        if waiting:
            yield f"no answer to {sorted(waiting)} before {message['role']}"
        waiting = {call["id"] for call in message.get("tool_calls") or ()}


@rule("call of an answer", "https://github.com/charmbracelet/crush/issues/279")
def every_answer_has_its_call(body: Body) -> Iterator[str]:
    waiting: set[str] = set()
    for message in body["messages"]:
        if message.get("role") != "tool":
            waiting = {call["id"] for call in message.get("tool_calls") or ()}
        elif message.get("tool_call_id") not in waiting:
            yield f"an answer to {message.get('tool_call_id')!r}, which no call has"
        else:
            waiting.discard(message["tool_call_id"])


@rule("call ids differ", OPENAI_REFERENCE)
def call_ids_differ_within_a_message(body: Body) -> Iterator[str]:
    for message in messages_of(body, "assistant"):
        ids = [call["id"] for call in message.get("tool_calls") or ()]
        if len(ids) != len(set(ids)):
            yield f"the same id twice: {ids}"


def ids_match(pattern: str) -> Check:
    """Return a check of the ids of calls."""

    def check(body: Body) -> Iterator[str]:
        for message in messages_of(body, "assistant"):
            for call in message.get("tool_calls") or ():
                if not re.fullmatch(pattern, call["id"]):
                    yield f"id {call['id']!r}"

    return check


rule("call id of nine", "https://github.com/nearai/ironclaw/issues/1241", "mistral")(
    ids_match(r"[A-Za-z0-9]{9}")
)
rule(
    "call id of at most forty",
    "https://github.com/agno-agi/agno/issues/5382",
    *OPENAI_LIKE,
    "openrouter",
)(ids_match(r".{1,40}"))
rule("call id", OPENAI_REFERENCE)(ids_match(r"\S{1,64}"))


@rule("arguments", "https://github.com/OpenHands/OpenHands/issues/13949")
def arguments_are_the_text_of_an_object(body: Body) -> Iterator[str]:
    for message in messages_of(body, "assistant"):
        for call in message.get("tool_calls") or ():
            text = call["function"].get("arguments")
            try:
                parsed = json.loads(text)
            except (TypeError, ValueError):
                yield f"arguments {text!r}"
                continue
            if not isinstance(parsed, dict):
                yield f"arguments that are no object: {text}"


@rule("call type", OPENAI_REFERENCE)
def calls_are_functions(body: Body) -> Iterator[str]:
    for message in messages_of(body, "assistant"):
        for call in message.get("tool_calls") or ():
            if call.get("type") != "function":
                yield f"a call of type {call.get('type')!r}"


@rule("no empty list of calls", OPENAI_REFERENCE)
def a_list_of_calls_holds_one(body: Body) -> Iterator[str]:
    for message in messages_of(body, "assistant"):
        if message.get("tool_calls") == []:
            yield "an empty list of calls"


@rule("assistant content", OPENAI_REFERENCE)
def an_assistant_says_or_calls_something(body: Body) -> Iterator[str]:
    for message in messages_of(body, "assistant"):
        if not message.get("content") and not message.get("tool_calls"):
            yield "an assistant message that is empty"
        if "content" not in message:
            yield "an assistant message without the field"


@rule("content types", OPENAI_REFERENCE)
def content_has_types_that_its_role_may_use(body: Body) -> Iterator[str]:
    allowed = {"user": USER_TYPES, "assistant": ASSISTANT_TYPES}
    for message in body["messages"]:
        for piece in pieces_of(message):
            if piece.get("type") not in allowed.get(message.get("role", ""), {"text"}):
                yield f"{piece.get('type')!r} from {message.get('role')!r}"


@rule(
    "results are text",
    "recorded 400: openai-chat/pydantic-ai.test_multimodal_tool_return_matrix",
)
def results_are_text(body: Body) -> Iterator[str]:
    for message in messages_of(body, "tool"):
        if not pieces_of(message):
            yield "a result without content"


@rule("thinking items", "https://docs.mistral.ai/capabilities/reasoning/")
def thinking_items_are_mistrals(body: Body) -> Iterator[str]:
    for message in messages_of(body, "assistant"):
        for piece in pieces_of(message):
            if piece.get("type") == "thinking" and not isinstance(piece.get("thinking"), list):
                yield "thinking that is no list"


@rule("user content", "https://github.com/BiFangKNT/mtga/pull/68")
def a_user_says_something(body: Body) -> Iterator[str]:
    for message in messages_of(body, "user", "system", "developer"):
        if not pieces_of(message) or any(
            piece.get("type") == "text" and not piece.get("text") for piece in pieces_of(message)
        ):
            yield "empty text"


@rule("turns", "https://github.com/charmbracelet/crush/issues/279")
def users_take_turns(body: Body) -> Iterator[str]:
    roles = [message.get("role") for message in body["messages"]]
    for first, second in pairwise(roles):
        if first == second == "user":
            yield "two user messages in a row"


@rule("bridge", "https://github.com/avante-corp/avante.nvim/issues/2562", "mistral")
def only_the_assistant_follows_a_result(body: Body) -> Iterator[str]:
    roles = [message.get("role") for message in body["messages"]]
    for first, second in pairwise(roles):
        if first == "tool" and second == "user":
            yield "a user message after a tool's"


@rule("last word", "https://github.com/0xPlaygrounds/rig/pull/1130")
def the_model_does_not_speak_last(body: Body) -> Iterator[str]:
    if body["messages"] and body["messages"][-1].get("role") not in {"user", "tool"}:
        yield "the last message is not the user's or a tool's"


@rule("text only", "recorded 400: deepseek-chat/rig.wire_shape_matrix_blocking_image", "deepseek")
def deepseek_reads_text_only(body: Body) -> Iterator[str]:
    # But for the models of https://api-docs.deepseek.com/guides/vision, which take pictures.
    sees = re.search(r"deepseek-flash|vision", body["model"]) is not None
    for piece in user_pieces_of(body):
        if piece.get("type") not in ({"text", "image_url"} if sees else {"text"}):
            yield f"{piece.get('type')!r}"


@rule("image", "recorded 400: openai-chat/openinference.TestInputValueImageHiding")
def an_image_has_an_address(body: Body) -> Iterator[str]:
    for piece in user_pieces_of(body):
        url = (piece.get("image_url") or {}).get("url", "") if "image_url" in piece else "data:"
        if not re.match(r"https?://|data:", url):
            yield f"an image at {url!r}"


@rule("inline images", "https://docs.ollama.com/api/openai-compatibility", "ollama", "lmstudio")
def local_servers_fetch_nothing(body: Body) -> Iterator[str]:
    for piece in user_pieces_of(body):
        if (piece.get("image_url") or {}).get("url", "").startswith("http"):
            yield "an image elsewhere"


@rule("sound", OPENAI_REFERENCE)
def sound_is_wav_or_mp3(body: Body) -> Iterator[str]:
    for piece in user_pieces_of(body):
        if piece.get("type") == "input_audio":
            audio = piece.get("input_audio") or {}
            if audio.get("format") not in {"wav", "mp3"} or not audio.get("data"):
                yield f"sound as {audio.get('format')!r}"


@rule("reasoning back", "https://api-docs.deepseek.com/guides/thinking_mode", "deepseek")
def deepseek_wants_its_reasoning_back(body: Body) -> Iterator[str]:
    if (body.get("thinking") or {}).get("type") == "disabled":
        return
    for message in messages_of(body, "assistant"):
        if message.get("tool_calls") and "reasoning_content" not in message:
            yield "a call without its reasoning"
