"""Keywords of functions with options, by `scripts/write_keywords.py`: not by hand.

A module of its own because it is data that a script writes.
"""

from collections.abc import Sequence
from typing import TypedDict

from haptera.model.json_types import JsonObject
from haptera.model.results import SessionPhase


class ListKeywords(TypedDict, total=False):
    """Which sessions to list; None is any."""

    tag: str | None
    """Only sessions with this tag."""
    parent: str | None
    """Only forks of the session with this id."""
    spawned_by: str | None
    """Only sessions of sub-agents of the session with this id."""
    children: bool
    """Whether sessions of sub-agents are listed with the others."""
    archived: bool | None
    """Whether archived sessions are listed, or the others; None: both."""
    updated_after: int | None
    """Only sessions updated after this time, in milliseconds since 1970."""
    updated_before: int | None
    """Only sessions updated before this time, in milliseconds since 1970."""
    phase: SessionPhase | None
    """Only sessions in this phase: what the log says of the last query, such as `waiting` for an
    approval."""
    everywhere: bool
    """Whether the owner's sessions of all projects are listed."""
    project: str
    """The project whose sessions are listed."""
    limit: int | None
    """Sessions on one page; None: all of them."""
    after: str | None
    """The id of the last session of the previous page."""


class SessionChangeKeywords(TypedDict, total=False):
    """What can be changed of a session; None clears a field."""

    name: str | None
    """The name, unique within the owner and project."""
    title: str | None
    """The title; None: one made from the time of creation."""
    tags: Sequence[str]
    """All tags; they replace the previous ones."""
    metadata: JsonObject | None
    """Metadata fields to set; a field with the value None is removed."""
    status: str | None
    """The metadata field `status`, shown instead of the phase."""
    error_message: str | None
    """The metadata field `error_message`, shown instead of the error of the last query."""
    workflow_id: str | None
    """The metadata field `workflow_id`."""
    system_prompt: str | None
    """The system prompt."""
    native_session_id: str | None
    """The session of a native agent to go on with, for a session without a conversation; None: the
    next query begins a new one."""


class ExportKeywords(TypedDict, total=False):
    """What an export may be told."""

    to: str
    """The format: archive, claude-code, codex, opencode, pi, openai, anthropic, markdown, html."""
    redact: bool
    """Whether secrets, paths and media are masked."""
