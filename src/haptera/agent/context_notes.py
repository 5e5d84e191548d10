"""Notes in the context of a session: its own for its project, and what other sessions said."""

from typing import TYPE_CHECKING, Literal, TypeAlias

from haptera.agent import late
from haptera.agent.option_checks import check_id
from haptera.formats.transcript import transcript_of
from haptera.model.errors import ConfigError, ErrorCode, SessionError
from haptera.model.json_types import writable
from haptera.model.log.notes import ContextNoted
from haptera.model.operations.sessions import GetSession, ReadSummary

if TYPE_CHECKING:
    from haptera.access.assembly.composition import Composition
    from haptera.access.descriptions import SessionSummary
    from haptera.kernel.session.live_session import LiveSession
    from haptera.kernel.session.session_descriptions import SessionRequest

IncludedAs: TypeAlias = Literal["summary", "full"]
"""What of another session is told: its summary, or all of its conversation."""


async def keep_note(live: "LiveSession", text: str) -> None:
    """Keep a note for every session of the project."""
    check_id(text, of="a note")
    await _record(live, ContextNoted(**live.stamp(), text=text.strip()))


def check_asked(composition: "Composition", other: str, as_: IncludedAs) -> None:
    """Refuse what cannot be included.

    Raises:
        ConfigError: CONFIG_INVALID saying why.

    """
    if as_ not in ("summary", "full"):
        raise ConfigError(ErrorCode.CONFIG_INVALID, f"as_ must be 'summary' or 'full', not {as_!r}")
    check_id(other, of="a session's name or id")
    if not composition.configuration.resolved.runtime.cross_session_context:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, "the runtime setting cross_session_context is off"
        )


async def include(
    composition: "Composition",
    request: "SessionRequest",
    live: "LiveSession",
    *,
    other: str,
    as_: IncludedAs,
) -> None:
    """Tell the model of a session of another one, with the next prompt."""
    sessions = late.Catalogue(composition, owner=request.owner, project=request.project)
    found = await late.get_session(sessions, GetSession(reference=other))
    # It finds an id in every project of the owner; what is told stays within one project.
    if found.project != request.project:
        raise SessionError(
            ErrorCode.NOT_FOUND, f"there is no session {other!r} in project {request.project!r}"
        )
    asked = ReadSummary(reference=found.id)
    stored = await late.summary(sessions, asked) if as_ == "summary" else None
    told = "" if stored is None else _summary_text(stored)
    if stored is None:
        messages = (await sessions.folded(found.id))[0].committed_messages()
        told = "\n\n".join(transcript_of(messages))
        if as_ != "full" and told:
            resources = composition.session_resources()
            told = await late.ask_for_summary(resources, live.fold.settings, messages)
    if not told.strip():
        raise ConfigError(
            ErrorCode.CONFIG_INVALID, f"there is nothing in session {other!r} to include"
        )
    what = "A summary of" if as_ == "summary" else "The conversation of"
    text = f"{what} an earlier session of this project, {found.title!r}:\n\n{told}"
    # A model, or an import, may have said what no store can keep, such as half of a surrogate
    # pair.
    noted = ContextNoted(**live.stamp(), text=writable(text), source=found.id, included=as_)
    await _record(live, noted)


async def _record(live: "LiveSession", noted: ContextNoted) -> None:
    live.check_open()
    # After a failed append the recorder refuses all others until it has read the log again.
    await live.queue.recover()
    await live.recorder.commit([noted])


def _summary_text(summary: "SessionSummary") -> str:
    lines = [summary.title, summary.body]
    if summary.topics:
        lines.append("Topics: " + ", ".join(summary.topics))
    if summary.files_changed:
        lines.append("Files changed: " + ", ".join(summary.files_changed))
    return "\n\n".join(line for line in lines if line)
