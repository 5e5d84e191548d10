"""The contract of request builders: pure, complete, and reminders only where they belong."""

from collections.abc import Callable

import msgspec

from haptera.kernel.blocks.request_builder import RequestBuilder, RequestExtras
from haptera.model.compaction_settings import CompactionSettings
from haptera.model.errors import ErrorCode, SessionError
from haptera.model.parts import ReminderPart
from haptera.model.requests import OutputSchema
from haptera.model.settings import Limits, Settings, Timeouts
from haptera.model.tools import ToolSpec
from haptera.testing.contracts.samples import assistant, run_contract, user
from haptera.testing.promises import Report, require, require_same

_MESSAGES = (user("1"), assistant("2"), user("3"), assistant("4"))
_TOOL = ToolSpec(name="look", description="Look.", input_schema={"type": "object"})
_SETTINGS = Settings(
    model="scripted/any",
    thinking="high",
    system_prompts=("one", "two"),
    max_tokens=77,
    temperature=0.5,
    stop=("END",),
    seed=7,
    betas={"beta": True},
    cache_ttl="1h",
    compaction=CompactionSettings(enabled=True),
    parallel_tool_calls=False,
    timeouts=Timeouts(connect=3.0),
    limits=Limits(reply_bytes=1234),
)
_EXTRAS = RequestExtras(
    model="any",
    tools=(_TOOL,),
    require_tool="look",
    output_schema=OutputSchema(name="City", schema={"type": "object"}),
)


async def check_the_same_arguments_give_an_equal_request(build: RequestBuilder) -> None:
    """Nothing of one request is left for the next one."""
    noted = msgspec.structs.replace(_EXTRAS, reminders=("note",))
    first = build(_SETTINGS, _MESSAGES, _EXTRAS)
    build(Settings(), (user("other"),), noted)
    require_same(build(_SETTINGS, _MESSAGES, _EXTRAS), first, "a request is a pure function")


async def check_nothing_to_send_is_an_error(build: RequestBuilder) -> None:
    """Without a user message there is nothing to answer."""
    for messages in ((), (assistant("1"),)):
        try:
            build(_SETTINGS, messages, _EXTRAS)
        except SessionError as error:
            require_same(error.code, ErrorCode.NOTHING_TO_SEND, "the code says so")
        else:
            require(condition=False, promise="a request without a user message is refused")


async def check_messages_are_sent_as_they_are(build: RequestBuilder) -> None:
    """Without reminders nothing is added, removed or changed."""
    require_same(build(_SETTINGS, _MESSAGES, _EXTRAS).messages, _MESSAGES, "messages are unchanged")


async def check_reminders_end_the_last_user_message(build: RequestBuilder) -> None:
    """They are in the request only: the messages that were given keep their parts."""
    before = msgspec.json.encode(_MESSAGES)
    noted = msgspec.structs.replace(_EXTRAS, reminders=("a", "b"))
    sent = build(_SETTINGS, _MESSAGES, noted).messages
    added = (ReminderPart(text="a"), ReminderPart(text="b"))
    require_same(sent[2].parts, _MESSAGES[2].parts + added, "reminders end the last prompt")
    others = (sent[0], sent[1], sent[3])
    require_same(others, (_MESSAGES[0], _MESSAGES[1], _MESSAGES[3]), "no other message has them")
    require_same(msgspec.json.encode(_MESSAGES), before, "the messages given are unchanged")


async def check_settings_reach_the_request(build: RequestBuilder) -> None:
    """Whatever the settings say about a request is in it."""
    request = build(_SETTINGS, _MESSAGES, _EXTRAS)
    require_same(request.system, _SETTINGS.system_prompts, "system")
    for name in (
        *("thinking", "max_tokens", "temperature", "stop", "seed", "betas", "cache_ttl"),
        *("compaction", "parallel_tool_calls", "timeouts"),
    ):
        require_same(getattr(request, name), getattr(_SETTINGS, name), name)
    require_same(request.reply_bytes, _SETTINGS.limits.reply_bytes, "reply_bytes")


async def check_extras_reach_the_request(build: RequestBuilder) -> None:
    """Whatever belongs to this request only is in it."""
    request = build(_SETTINGS, _MESSAGES, _EXTRAS)
    asked = build(_SETTINGS, _MESSAGES, msgspec.structs.replace(_EXTRAS, context=("file",)))
    require_same(asked.system, (*_SETTINGS.system_prompts, "file"), "context follows the system")
    for name in ("model", "tools", "require_tool", "output_schema", "fresh_media"):
        require_same(getattr(request, name), getattr(_EXTRAS, name), name)


async def request_builder_contract(make: Callable[[], RequestBuilder]) -> Report:
    """Check a request builder; `make` returns one."""
    return await run_contract(__name__, make)
