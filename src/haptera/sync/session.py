"""AgentSession, blocking: generated from its async twin, and waits for it.

Made by scripts/write_sync_faces.py, never edited by hand.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Self, Unpack

from haptera.agent.agent_options import CONFIGURE
from haptera.agent.keywords import (
    AdmissionKeywords,
    QueryKeywords,
    ResumeKeywords,
    SettingsKeywords,
)
from haptera.agent.query_options import QUERY, RESUME, AdmissionOptions, Prompt
from haptera.agent.session import AgentSession as AsyncAgentSession
from haptera.agent.session import EventT
from haptera.kernel.session.session_descriptions import SessionView, Unfinished
from haptera.model.approvals import ApprovalScope
from haptera.model.budgets import Budgets
from haptera.model.context_files import ContextFile, Skill
from haptera.model.events import Event, SessionStatus
from haptera.model.file_snapshots import FileDiff, RewindReport
from haptera.model.ids import MessageId, QueryId, SessionId
from haptera.model.json_types import Json
from haptera.model.log.compactions import Compaction
from haptera.model.messages import Message, UserMessage
from haptera.model.parts import Part
from haptera.model.requests import TokenCount
from haptera.model.results import AgentResult, OutputT, ResumeKind
from haptera.model.session_state import SessionState
from haptera.model.settings import Settings
from haptera.model.tools import ToolSpec
from haptera.options.signatures import takes
from haptera.sync.background_loop import LoopAccess
from haptera.sync.query_stream import QueryStream
from haptera.system.abort import AbortSignal


class AgentSession:
    """The blocking face of `haptera.AgentSession`."""

    def __init__(self, inner: AsyncAgentSession, access: LoopAccess) -> None:
        self._inner, self._access = inner, access

    def __enter__(self) -> Self:
        self._access.call(self._inner.__aenter__())
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

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

    def fork(self, *, after: str | None = None, name: str | None = None) -> "AgentSession":
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
    def session_id(self) -> SessionId | None:
        """The session's id; None until it is open."""
        return self._inner.session_id

    @property
    def native_session_id(self) -> str | None:
        """The id of the session that a native agent keeps for this one; None without one."""
        return self._inner.native_session_id

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._inner.closed

    @property
    def status(self) -> SessionStatus:
        """What the session is doing."""
        return self._inner.status

    @property
    def settings(self) -> Settings:
        """The settings in force: they allow no more than those that its agent was given."""
        return self._inner.settings

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far."""
        return self._inner.messages

    @property
    def unfinished(self) -> Unfinished:
        """What an earlier process or query left to be carried on."""
        return self._inner.unfinished

    @property
    def taken_over(self) -> bool:
        """Whether another process has taken the session: nothing more can be written here.

        It is known of sessions in a PostgreSQL store, and False until the session is open.
        """
        return self._inner.taken_over

    @property
    def is_native(self) -> bool:
        """Whether its model is run by an agent that keeps a session of its own."""
        return self._inner.is_native

    def resume_kind(self) -> ResumeKind | None:
        """Find out how the next query gets the conversation; None when there is none.

        `native`: its agent has a session of its own that agrees with the log. `replay`: it is
        handed over, as to any model.
        """
        return self._access.call(self._inner.resume_kind())

    @property
    def context_files(self) -> tuple[ContextFile, ...]:
        """The instruction files that the model is told, as the last query found them."""
        return self._inner.context_files

    @property
    def skills(self) -> tuple[Skill, ...]:
        """The skills that the model can load, as the last query found them."""
        return self._inner.skills

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that its queries offer to the model."""
        return self._inner.tools

    def view(self) -> SessionView:
        """Return what the session is at this moment, as a value."""
        return self._inner.view()

    @takes(QUERY)
    def chat(
        self, prompt: Prompt, **options: Unpack[QueryKeywords[OutputT]]
    ) -> AgentResult[OutputT]:
        """Send a prompt and wait for the answer.

        Raises:
            AgentError: when the query fails or is aborted; its `result` is what was kept.

        """
        return self._access.call(self._inner.chat(prompt, **options))

    @takes(QUERY)
    def stream(
        self, prompt: Prompt, **options: Unpack[QueryKeywords[OutputT]]
    ) -> QueryStream[OutputT]:
        """Send a prompt and watch the answer come; nothing is sent before the first use."""
        return QueryStream(self._inner.stream(prompt, **options), self._access)

    @takes(RESUME)
    def resume(self, **options: Unpack[ResumeKeywords[OutputT]]) -> QueryStream[OutputT]:
        """Carry an unfinished query on; await it for its result, or iterate it.

        Prompts that wait run after it. Without an unfinished query, the first of them is it.

        Raises:
            SessionError: NOTHING_TO_SEND when every query has ended and no prompt waits.

        """
        return QueryStream(self._inner.resume(**options), self._access)

    def remaining_budget(self) -> Budgets:
        """Return the budgets of the agent less what was spent, for what this session starts.

        What an agent of your own does for this session stays within it if it gets these `budgets`.
        """
        return self._access.call(self._inner.remaining_budget())

    def count_tokens(self, prompt: Prompt | None = None) -> TokenCount:
        """Count the tokens that the next request would hold; with a prompt, if it were said now.

        The provider counts where it can; elsewhere it is an estimate, and `exact` is False.

        Raises:
            SessionError: NOTHING_TO_SEND when nothing was said yet and there is no prompt.

        """
        return self._access.call(self._inner.count_tokens(prompt))

    def wait_idle(self) -> SessionStatus:
        """Wait until no query runs and none is about to; returns the status then.

        A session that rests on an approval is idle: `approvals` and `waiting` of the status say
        what it rests on, and how many prompts wait behind it.

        Raises:
            SessionError: BUSY in a tool, an approver or a hook of the query that runs.

        """
        return self._access.call(self._inner.wait_idle())

    def abort(self, reason: str | None = None, *, query_id: str | None = None) -> None:
        """Stop the query (with an id: only that one), from any thread; what came is kept."""
        self._inner.abort(reason, query_id=query_id)

    def expand(self, compaction_id: str | None = None) -> tuple[Message, ...]:
        """Return the messages that a compaction left out, by the id of its event.

        Without an id, those of the last compaction. Nothing is changed by it.

        Args:
            compaction_id: The id of the compaction.

        Raises:
            SessionError: NOT_FOUND when there is no such compaction, or it left nothing out.

        """
        return self._access.call(self._inner.expand(compaction_id))

    def diff(self, turn: str | None = None) -> FileDiff:
        """Return what a turn changed in the workspace, what its commands changed included.

        Args:
            turn: The id of a turn, of an answer or of a whole query; without one, the last query
                whose tools could change files.

        Raises:
            SessionError: NOT_FOUND when the session has nothing of that id.
            StoreError: UNAVAILABLE when no snapshot could be taken, or it is kept no longer.
            ConfigError: CONFIG_MISSING when the agent takes no snapshots of files.

        """
        return self._access.call(self._inner.diff(turn))

    def add_message(
        self,
        content: str | Sequence[Part],
        *,
        role: Literal["user", "assistant"] = "user",
        after: str | None = None,
    ) -> MessageId:
        """Add a message after another, or at the end, and return its id; no model is asked.

        Neighbours of one role become one message, which keeps the id of the first.

        Args:
            content: What it says.
            role: Who says it.
            after: The message that it follows; the last without it.

        """
        return self._access.call(self._inner.add_message(content, role=role, after=after))

    def replace_message(self, message_id: str, content: str | Sequence[Part]) -> None:
        """Let a message say something else; its id, model and usage stay.

        Args:
            message_id: The id of the message.
            content: What it says from now on.

        """
        self._access.call(self._inner.replace_message(message_id, content))

    def remove_message(self, message_id: str) -> None:
        """Take a message out of the conversation.

        Args:
            message_id: The id of the message.

        """
        self._access.call(self._inner.remove_message(message_id))

    def replace_part(self, message_id: str, place: int, part: Part) -> None:
        """Put another part in the place of one; the first part of a message has place 0.

        Args:
            message_id: The id of the message.
            place: The place of the part in the message.
            part: What stands there from now on.

        """
        self._access.call(self._inner.replace_part(message_id, place, part))

    def remove_part(self, message_id: str, place: int) -> None:
        """Take a part out of a message; a message without parts is taken out as a whole.

        Args:
            message_id: The id of the message.
            place: The place of the part in the message.

        """
        self._access.call(self._inner.remove_part(message_id, place))

    def note(self, text: str) -> None:
        """Keep a note for every session of this project.

        The model gets it with the next prompt of this session, and with the first one of each
        session that is opened anew. `agent.sessions.notes()` lists notes, and `forget_note()` takes
        one back.

        Args:
            text: The note.

        Raises:
            ConfigError: CONFIG_INVALID when it is blank.

        """
        self._access.call(self._inner.note(text))

    def export(self) -> SessionState:
        """Return the conversation as a value that a new session can be restored from."""
        return self._access.call(self._inner.export())

    def drain_queue(self) -> tuple[UserMessage, ...]:
        """Take every prompt that waits out of the queue and return them."""
        return self._access.call(self._inner.drain_queue())

    def include(self, other: str, *, as_: Literal["summary", "full"] = "summary") -> None:
        """Tell this session's model of another session, with its next prompt.

        The summary is the stored one (`agent.sessions.set_summary`), or else this session's model
        is asked for one now. `full` is the whole conversation as text, without reasoning.

        Raises:
            SessionError: NOT_FOUND when there is no such session of this owner and project.
            ConfigError: CONFIG_INVALID when there is nothing in it, or sessions are kept apart.
            AgentError: when the model cannot be asked for a summary.

        """
        self._access.call(self._inner.include(other, as_=as_))

    def events(self, *, after: int = 0) -> Iterator[Event]:
        """Observe the session from a `seq` on: what was, then what happens.

        An observer that is too slow gets an `ObserverLagged` as its last event. It misses no entry
        if it goes on with `events(after=lagged.resume_after)`.
        """
        return self._access.iterate(self._inner.events(after=after))

    def on(self, kind: type[EventT], handler: Callable[[EventT], Any]) -> Callable[[], None]:
        """Call `handler` for every event of a kind; returns a function that ends this.

        A coroutine function is awaited, one event at a time; if it falls far behind, the query
        waits for it (`RuntimeSettings.buffer_size`), and only a tool's progress is skipped.

        Raises:
            ConfigError: CONFIG_INVALID when the kind is no class of events, or the handler no
                function.

        """
        return self._inner.on(kind, handler)

    def close(self, *, force: bool = False, abort: bool = False) -> None:
        """Close the session: a running query may end by itself for a while, and is suspended then.

        A suspended query has no end: the next `resume()`, server or worker carries it on. With
        `force` it is suspended at once. With `abort` it ends now, as aborted.
        """
        self._access.close(lambda: self._inner.close(force=force, abort=abort))

    def delete(self) -> None:
        """Close the session by force and delete it, as `agent.sessions.delete()` does."""
        self._access.call(self._inner.delete())

    def open(self) -> Self:
        """Open the session if it is not open yet, and return it.

        Raises:
            SessionError: BUSY when another process holds it, NOT_FOUND when it must exist and does
                not, CLOSED when it was closed.

        """
        self._access.call(self._inner.open())
        return self
