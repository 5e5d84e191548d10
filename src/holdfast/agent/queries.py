"""Queries: from what a user says to a stream that runs it, in a session that lasts or its own."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.agent.consumption import Consumption
from holdfast.agent.keywords import Prompt, QueryOptions, make_prompt
from holdfast.agent.option_checks import check_options
from holdfast.agent.output_types import output_spec
from holdfast.agent.query_stream import QueryStream
from holdfast.assembly.attachments import AttachmentInput, read_attachments
from holdfast.assembly.components import PathInput
from holdfast.engine.query_input import QueryInput
from holdfast.session.recovery import resume_input
from holdfast.vocabulary.ids import new_query_id

if TYPE_CHECKING:
    from holdfast.session.live_session import LiveSession
    from holdfast.session.query_handle import QueryHandle


def make_query(prompt: Prompt, options: QueryOptions) -> QueryInput:
    """Make the input of one query, checked.

    Raises:
        ConfigError: CONFIG_INVALID when the prompt is empty or the output type cannot be used.

    """
    check_options(options, QueryOptions, of="a query")
    query_id = new_query_id()
    return QueryInput(
        query_id=query_id,
        message=make_prompt(prompt, options, query_id),
        reminders=tuple(options.get("reminders", ())),
        require_tool=options.get("require_tool"),
        transform=options.get("transform"),
        output=output_spec(options.get("output_type")),
        timeout=options.get("timeout"),
    )


def stream_query(
    open_live: Callable[[], Awaitable["LiveSession"]],
    query: QueryInput | None,
    options: QueryOptions,
    *,
    finish: Callable[[], Awaitable[None]],
    cwd: PathInput,
) -> QueryStream[Any]:
    """Return the stream of a query; without one, it carries on what is unfinished.

    Attachments by a relative path are taken from `cwd`.
    """

    async def start() -> "QueryHandle":
        asked = query and await _with_attachments(query, options.get("attachments", ()), cwd)
        live = await open_live()
        handle = live.new_handle(
            asked or resume_input(live.fold, live.recorder.waiting().values()),
            total_timeout=options.get("total_timeout"),
        )
        await live.submit(handle, options.get("delivery", "queue"))
        return handle

    return QueryStream(
        Consumption(
            start, finish, signal=options.get("signal"), on_abort=options.get("on_abort", "raise")
        )
    )


async def _with_attachments(
    query: QueryInput, sources: Sequence[AttachmentInput], cwd: PathInput
) -> QueryInput:
    """Return the query with its attachments, which are read now."""
    if not sources or query.message is None:
        return query
    parts = (*query.message.parts, *await read_attachments(sources, cwd=cwd))
    return replace(query, message=replace(query.message, parts=parts))
