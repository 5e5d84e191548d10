"""Questions of a server to a person, answered through the approver of the session.

A server may ask for a few fields while a call runs. The approver gets them as an `ApprovalRequest`;
the arguments of its approval are the filled-in form. Without an approver the answer is no.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

import mcp_types as types
import msgspec

from haptera.model.approvals import Approve, Decision
from haptera.model.json_types import Json, JsonObject
from haptera.ports.tools import ToolContext
from haptera.system.logs import scrubbed_logger
from haptera.tools.mcp.offered_tools import clean

_MOST_ASKED = 16_000
"""Bytes of a question that a person can be expected to read."""
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
    question: JsonObject = {"message": clean(asked.message)}
    fields: JsonObject = {}
    if isinstance(asked, types.ElicitRequestURLParams):
        question["url"] = clean(asked.url)
    else:
        fields = _fields(asked.requested_schema)
        question["fields"] = fields
    # Not cut: what is left of a long one would be answered as if it were all of it. Without a
    # context it is not clear on whose behalf it asks.
    if context is None or len(msgspec.json.encode(question)) > _MOST_ASKED:
        _logger.warning("MCP server %r: a question is declined", server)
        return types.ElicitResult(action="decline")
    # What it asks stays among the arguments, which are shown as its words.
    tool, reason = f"{server}__elicitation", f"the MCP server {server!r} asks you"
    decision = await _while_the_call_runs(context, context.ask(tool, question, reason=reason))
    if not isinstance(decision, Approve):
        return types.ElicitResult(action="decline")
    if isinstance(asked, types.ElicitRequestURLParams):
        return types.ElicitResult(action="accept")
    arguments = decision.arguments if isinstance(decision.arguments, dict) else {}
    filled = {name: field["default"] for name, field in fields.items() if "default" in field}
    filled |= {name: arguments[name] for name in fields if name in arguments}
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
    for name, field in (properties or {}).items():
        if isinstance(field, dict) and isinstance(name, str):
            fields[name] = _shown(field)
    return fields


def _shown(value: Json) -> Json:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if isinstance(value, dict):
        return {clean(str(key)): _shown(item) for key, item in value.items()}
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
