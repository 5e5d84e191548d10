"""Which of the sessions of a store are meant, by what is known of them."""

from datetime import datetime
from typing import Annotated

from haptera.model.json_types import JsonObject
from haptera.model.operations.operation import Operation
from haptera.model.option import Option
from haptera.model.results import SessionPhase


class SessionSelection(Operation, frozen=True, kw_only=True):
    """What is asked of all sessions that match; None is any."""

    tag: Annotated[str | None, Option("Only sessions with this tag.")] = None
    tags: Annotated[tuple[str, ...], Option("Only sessions with all of these tags.")] = ()
    metadata: Annotated[
        JsonObject | None,
        Option("Only sessions whose metadata has all of these fields and values."),
    ] = None
    name_prefix: Annotated[str | None, Option("Only sessions whose name begins so.")] = None
    sender: Annotated[
        str | None, Option("Only sessions in which this user spoke (`Sender.user_id`).")
    ] = None
    status: Annotated[
        str | None,
        Option("Only sessions with this status: what a program has set, or else the phase."),
    ] = None
    since: Annotated[
        int | datetime | None,
        Option(
            "Only sessions updated at this time or later: a datetime, or milliseconds since 1970.",
            least=0,
        ),
    ] = None
    parent: Annotated[str | None, Option("Only forks of the session with this id.")] = None
    spawned_by: Annotated[
        str | None,
        Option("Only sessions of sub-agents of the session with this id."),
    ] = None
    children: Annotated[
        bool, Option("Whether sessions of sub-agents are listed with the others.")
    ] = False
    archived: Annotated[
        bool | None,
        Option("Whether archived sessions are listed, or the others; None: both."),
    ] = False
    updated_after: Annotated[
        int | None,
        Option(
            "Only sessions updated after this time, in milliseconds since 1970.",
            least=0,
        ),
    ] = None
    updated_before: Annotated[
        int | None,
        Option(
            "Only sessions updated before this time, in milliseconds since 1970.",
            least=0,
        ),
    ] = None
    phase: Annotated[
        SessionPhase | None,
        Option(
            "Only sessions in this phase: what the log says of the last query, such as `waiting` "
            "for an approval.",
        ),
    ] = None
    everywhere: Annotated[
        bool, Option("Whether the owner's sessions of all projects are listed.")
    ] = False
    project: Annotated[
        str, Option("The project whose sessions are listed.", shown="<the agent's>")
    ] = ""
