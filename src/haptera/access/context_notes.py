"""Notes in the context of a session: what other sessions said."""

from typing import TYPE_CHECKING

from haptera.access.assembly.side_questions import ask_for_summary
from haptera.access.catalogue import Catalogue
from haptera.access.descriptions import SessionSummary
from haptera.access.finding import get_session, summary
from haptera.formats.transcript import transcript_of
from haptera.kernel.session.conversation_effects import record_note
from haptera.model.errors import ConfigError, ErrorCode, SessionError
from haptera.model.json_types import writable
from haptera.model.log.notes import ContextNoted
from haptera.model.operations.held import IncludeSession
from haptera.model.operations.operation import handles
from haptera.model.operations.sessions import GetSession, ReadSummary
from haptera.options.operations import check_order

if TYPE_CHECKING:
    from haptera.access.assembly.composition import Composition
    from haptera.kernel.session.command_effects import HeldSession


def check_asked(composition: "Composition", order: IncludeSession) -> None:
    """Refuse what cannot be included.

    Raises:
        ConfigError: CONFIG_INVALID saying why.

    """
    check_order(order, function="session.include()")
    if not order.other.strip():
        raise ConfigError(ErrorCode.CONFIG_INVALID, "a session's name or id must not be empty")
    if not composition.configuration.resolved.runtime.cross_session_context:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, "the runtime setting cross_session_context is off"
        )


@handles(IncludeSession)
async def include(sessions: Catalogue, order: IncludeSession, held: "HeldSession") -> None:
    """Tell the model of a session of another one, with the next prompt."""
    composition, other = sessions.composition, order.other
    session = await get_session(sessions, GetSession(reference=other))
    # It finds an id in every project of the owner; what is told stays within one project.
    if session.project != sessions.project:
        raise SessionError(
            ErrorCode.NOT_FOUND, f"there is no session {other!r} in project {sessions.project!r}"
        )
    asked = ReadSummary(reference=session.id)
    stored = await summary(sessions, asked) if order.as_ == "summary" else None
    content = "" if stored is None else _summary_text(stored)
    if stored is None:
        messages = (await sessions.folded(session.id))[0].committed_messages()
        content = "\n\n".join(transcript_of(messages))
        if order.as_ != "full" and content:
            resources = composition.session_resources()
            content = await ask_for_summary(resources, held.live.fold.settings, messages)
    if not content.strip():
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"there is nothing in session {other!r} to include"
        )
    what = "A summary of" if order.as_ == "summary" else "The conversation of"
    text = f"{what} an earlier session of this project, {session.title!r}:\n\n{content}"
    # A model, or an import, may have said what no store can keep, such as half of a surrogate
    # pair.
    noted = ContextNoted(
        **held.live.stamp(), text=writable(text), source=session.id, included=order.as_
    )
    await record_note(held, noted)


def _summary_text(summary: SessionSummary) -> str:
    lines = [summary.title, summary.body]
    if summary.topics:
        lines.append("Topics: " + ", ".join(summary.topics))
    if summary.files_changed:
        lines.append("Files changed: " + ", ".join(summary.files_changed))
    return "\n\n".join(line for line in lines if line)
