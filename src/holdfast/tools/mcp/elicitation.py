"""Questions of a server to a person, answered through the approver of the session.

A server may ask for a few fields while a call runs. The approver gets them as an `ApprovalRequest`;
the arguments of its approval are the filled-in form. Without an approver the answer is no.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

import mcp_types as types

from holdfast.ports.logs import scrubbed_logger
from holdfast.ports.tools import ToolContext
from holdfast.tools.mcp.offered_tools import clean
from holdfast.vocabulary.approvals import Approve, Decision
from holdfast.vocabulary.json_types import Json, JsonObject

_MOST_FIELDS = 50
_MOST_TEXT = 4_000
_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
}
_logger = scrubbed_logger(__name__)


async def answer_of_person(
    server: str, context: ToolContext[Any] | None, asked: types.ElicitRequestParams
) -> types.ElicitResult:
    """Let a person answer what a server asks while it works on a call."""
    if context is None:
        return types.ElicitResult(action="decline")  # it is not clear on whose behalf it asks
    message = clean(asked.message)[:_MOST_TEXT]
    question: JsonObject = {"message": message}
    fields: JsonObject = {}
    if isinstance(asked, types.ElicitRequestURLParams):
        question["url"] = clean(asked.url)[:_MOST_TEXT]
    else:
        fields = _fields(asked.requested_schema)
        question["fields"] = fields
    tool, reason = f"{server}__elicitation", f"the MCP server {server!r} asks: {message}"
    decision = await _while_the_call_runs(context, context.ask(tool, question, reason=reason))
    if not isinstance(decision, Approve):
        return types.ElicitResult(action="decline")
    if isinstance(asked, types.ElicitRequestURLParams):
        return types.ElicitResult(action="accept")
    given = decision.arguments if isinstance(decision.arguments, dict) else {}
    filled = {name: field["default"] for name, field in fields.items() if "default" in field}
    filled |= {name: given[name] for name in fields if name in given}
    required = asked.requested_schema.get("required")
    for name in required if isinstance(required, list) else ():
        if name not in filled:
            _logger.warning("MCP server %r: an answer lacks the field %r", server, name)
            return types.ElicitResult(action="cancel")
    if wrong := [name for name, value in filled.items() if not _fits(value, fields[name])]:
        _logger.warning("MCP server %r: an answer does not fit the field %r", server, wrong[0])
        return types.ElicitResult(action="cancel")
    return types.ElicitResult(action="accept", content=filled)


async def _while_the_call_runs(
    context: ToolContext[Any], asking: Awaitable[Decision]
) -> Decision | None:
    """Wait for an answer until the call ends or is aborted; the approver is cancelled then."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as limit:

            def expire() -> None:
                if is_asking:  # it may be answered by the time that the loop gets here
                    limit.reschedule(loop.time())

            def stop() -> None:  # in the thread that aborts
                loop.call_soon_threadsafe(expire)

            is_asking = True
            forget = context.signal.add_listener(stop)
            try:
                return await asking
            finally:
                is_asking = False
                forget()
    except TimeoutError:
        return None


def _fields(schema: Json) -> JsonObject:
    """Return the fields of a form, each with its type and what is said of it, for a person."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    fields: JsonObject = {}
    for name, field in list((properties or {}).items())[:_MOST_FIELDS]:
        if isinstance(field, dict) and isinstance(name, str):
            fields[name] = _shown(field)
    return fields


def _shown(value: Json) -> Json:
    if isinstance(value, str):
        return clean(value)[:_MOST_TEXT]
    if isinstance(value, list):
        return [_shown(item) for item in value[:_MOST_FIELDS]]
    if isinstance(value, dict):
        return {clean(str(key)): _shown(item) for key, item in list(value.items())[:_MOST_FIELDS]}
    return value


def _fits(value: Json, field: JsonObject) -> bool:
    """Whether an answer is of the type of its field; what else it must be, the server checks."""
    kinds = _KINDS.get(field.get("type", "string"), ())
    # A bool is an int in Python, and no answer where a number is wanted.
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        return False
    allowed = field.get("enum") or [each.get("const") for each in _choices(field)]
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    return not allowed or value in allowed


def _choices(field: JsonObject) -> list[JsonObject]:
    choices = field.get("oneOf") or field.get("anyOf") or []
    return [each for each in choices if isinstance(each, dict)]
