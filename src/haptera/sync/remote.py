"""AgentRemote, blocking: generated from its async twin, and waits for it.

Made by scripts/write_sync_faces.py, never edited by hand.
"""

from collections.abc import Iterator
from typing import Unpack

from haptera.agent.agent_options import CONFIGURE
from haptera.agent.keywords import AdmissionKeywords, SettingsKeywords
from haptera.agent.query_options import AdmissionOptions, Prompt
from haptera.agent.remote import AgentRemote as AsyncAgentRemote
from haptera.kernel.session.session_descriptions import SessionView, Unfinished
from haptera.model.approvals import ApprovalRequest, ApprovalScope
from haptera.model.events import Event, SessionStatus
from haptera.model.file_snapshots import RewindReport
from haptera.model.ids import QueryId, SessionId
from haptera.model.json_types import Json
from haptera.model.log.compactions import Compaction
from haptera.model.messages import Message
from haptera.model.requests import TokenCount
from haptera.model.results import ResumeKind
from haptera.options.signatures import takes
from haptera.sync.background_loop import LoopAccess
from haptera.sync.session import AgentSession
from haptera.system.abort import AbortSignal


class AgentRemote:
    """The blocking face of `haptera.AgentRemote`."""

    def __init__(self, inner: AsyncAgentRemote, access: LoopAccess) -> None:
        self._inner, self._access = inner, access

    @takes(AdmissionOptions)
    def send(self, prompt: Prompt, **options: Unpack[AdmissionKeywords]) -> QueryId:
        """Send a prompt without waiting for the answer, and return the id of its query.

        The prompt is in the store when this returns. Nothing that the caller does afterwards aborts
        the query except `abort`. The answer comes through `events` and the other observers. With
        `delivery="steer"` a prompt may join the query that runs; then no query has the id.

        With a `message_id` it may be sent again: the session takes it in once, and the id of its
        query is the same each time.

        Raises:
            SessionError: BUSY with `delivery="reject"`, CLOSED when the session is closed.
            StoreError: CONFLICT when the session has another message with this `message_id`. A
                session that another process holds does not raise it, and ignores the prompt.

        """
        return self._access.call(self._inner.send(prompt, **options))

    def steer(self, prompt: Prompt) -> None:
        """Say something into the running query; when none runs, it becomes a query.

        It is in the store when this returns.
        """
        self._access.call(self._inner.steer(prompt))

    def approve(
        self,
        approval_id: str,
        *,
        arguments: Json | None = None,
        scope: ApprovalScope = "once",
        by: str | None = None,
        feedback: str | None = None,
    ) -> None:
        """Let a waiting tool call run, with other arguments if given.

        `scope` says how long exactly this call may be made again without a question. `feedback` is
        a note to the model, which gets it with the result.

        Raises:
            ConfigError: CONFIG_INVALID when the id, the arguments or the scope cannot be meant.
            SessionError: NOT_FOUND when it was answered already or never asked.
            ToolError: TOOL_INVALID_INPUT when the tool does not take the arguments; it waits on.

        A session that another process holds raises only the first: its holder decides later.

        """
        self._access.call(
            self._inner.approve(
                approval_id, arguments=arguments, scope=scope, by=by, feedback=feedback
            )
        )

    def deny(self, approval_id: str, reason: str | None = None, *, by: str | None = None) -> None:
        """Refuse a waiting tool call; the model is told why."""
        self._access.call(self._inner.deny(approval_id, reason, by=by))

    @takes(CONFIGURE)
    def configure(self, **options: Unpack[SettingsKeywords]) -> None:
        """Change settings, from the next turn on.

        Raises:
            ConfigError: CONFIG_INVALID naming the field.

        """
        self._access.call(self._inner.configure(**options))

    def compact(
        self, instructions: str | None = None, *, signal: AbortSignal | None = None
    ) -> Compaction:
        """Replace the earlier messages by a summary in what is sent, and return what was done.

        The process that holds the session asks a model for the summary (`compaction.model`, or the
        session's). `instructions` say what it is to pay attention to.

        Raises:
            SessionError: BUSY while a query runs, is unfinished or waits for an approval, and when
                another process opened the session before it was compacted; NOTHING_TO_SEND when
                there is nothing to compact.
            ConfigError: CONFIG_INVALID with a native agent, which compacts its own history.
            HookError: HOOK_FAILED when a hook blocks it.
            AgentError: when no usable summary could be made, or it was aborted; the conversation
                is as it was.

        """
        return self._access.call(self._inner.compact(instructions, signal=signal))

    def deliver(self, call: str, result: Json = None, *, error: str | None = None) -> None:
        """Give a tool call that waits its answer: once, from any process, in any order.

        The same answer may be delivered again. The query goes on with `resume`, or by itself where
        a worker or a server carries sessions on.

        Args:
            call: The id of the call, or its ref.
            result: The answer, as JSON.
            error: Why there is no answer.

        Raises:
            ConfigError: CONFIG_INVALID when there is a result and an error.
            SessionError: NOT_FOUND when no such call waits, or it waits no longer.
            StoreError: CONFLICT when it has another answer already.
            ToolError: TOOL_INVALID_INPUT when the answer is not what was asked for; it waits on.

        """
        self._access.call(self._inner.deliver(call, result, error=error))

    def undo_rewind(self, *, force: bool = False) -> RewindReport:
        """Take the last rewind back; files that it changed become again what they were before.

        Args:
            force: Whether files that others changed since then are overwritten, too.

        Raises:
            SessionError: BUSY while a query runs, NOT_FOUND when nothing was rewound.
            StoreError: CONFLICT when such files were changed since, unless forced.

        """
        return self._access.call(self._inner.undo_rewind(force=force))

    def rewind(
        self, *, to: str, files: bool = False, dry_run: bool = False, force: bool = False
    ) -> RewindReport:
        """Make the message with the id `to` the last one of the conversation; nothing is lost.

        The files are those of the process that holds the session.

        Args:
            to: The message that becomes the last one.
            files: Whether the files of the workspace become what they were after that message; only
                those that this session changed since then are touched.
            dry_run: Whether to say only which messages and files would change.
            force: Whether files that others changed since then are overwritten, too.

        Raises:
            SessionError: BUSY while a query runs, MESSAGE_NOT_FOUND when there is no such message.
            StoreError: CONFLICT when others changed files that would be overwritten; UNAVAILABLE
                when the files of that time are not known. Nothing is changed then.
            ConfigError: CONFIG_MISSING when the agent takes no snapshots of files.

        """
        return self._access.call(
            self._inner.rewind(to=to, files=files, dry_run=dry_run, force=force)
        )

    def fork(self, *, after: str | None = None, name: str | None = None) -> AgentSession:
        """Go on from a message (itself included) in a new session, which the caller closes.

        It is open, and in the store, when this returns. If another process holds this session, only
        its stored log is read, and it goes on undisturbed.

        Raises:
            SessionError: MESSAGE_NOT_FOUND when there is no such message, NOT_FOUND when the
                session was deleted.
            StoreError: CONFLICT when the name is taken.

        """
        return AgentSession(
            self._access.call(self._inner.fork(after=after, name=name)), self._access
        )

    @property
    def session_id(self) -> SessionId:
        """The session's id."""
        return self._inner.session_id

    def messages(self) -> tuple[Message, ...]:
        """Read the conversation so far."""
        return self._access.call(self._inner.messages())

    def pending(self) -> tuple[ApprovalRequest, ...]:
        """Read the approvals without an answer; one that was just sent from anywhere counts.

        Their `facts` are found out now, by the tools of this agent.
        """
        return self._access.call(self._inner.pending())

    def status(self) -> SessionStatus:
        """Read what the session is doing, by its log.

        `Busy` while a query has no recorded end, also when the process that ran it is gone.
        """
        return self._access.call(self._inner.status())

    def view(self) -> SessionView:
        """Read what the session is at this moment, by its log."""
        return self._access.call(self._inner.view())

    def unfinished(self) -> Unfinished:
        """Read what has no recorded end: a query that runs elsewhere, too."""
        return self._access.call(self._inner.unfinished())

    def is_native(self) -> bool:
        """Read whether its model is run by an agent that keeps a session of its own."""
        return self._access.call(self._inner.is_native())

    def resume_kind(self) -> ResumeKind | None:
        """Read how the next query would get the conversation; None when there is none."""
        return self._access.call(self._inner.resume_kind())

    def count_tokens(self) -> TokenCount:
        """Count the tokens that the next request would hold, with the tools of this agent.

        Raises:
            SessionError: NOTHING_TO_SEND when nothing was said yet.

        """
        return self._access.call(self._inner.count_tokens())

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """Read what happened after a `seq`, then what happens, until closed or deleted."""
        return self._access.iterate(self._inner.events(after=after))

    def abort(self, reason: str | None = None, *, query_id: str | None = None) -> None:
        """Ask for the running query to be stopped; with an id, only if it is that one."""
        self._access.call(self._inner.abort(reason, query_id=query_id))
