"""Verbs: what a session can be told, by the process that holds it and by any other.

Those between the lines `Made by` and `End` are made by scripts/write_verbs.py from the structs of
`model/operations`, never edited by hand. The others prepare what is told: they read files,
check decisions and settings, or follow a signal.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from msgspec.structs import replace

from haptera.agent.agent_options import CONFIGURE
from haptera.agent.keywords import (
    AdmissionKeywords,
    SettingsKeywords,
)
from haptera.agent.option_checks import (
    check_id,
    check_options,
    check_reference,
    checked_options,
    decided,
    settings_changes,
)
from haptera.agent.prompts import make_prompt, with_attachments
from haptera.agent.query_options import AdmissionOptions, Prompt, QueryOptions
from haptera.kernel.session.session_descriptions import Fork, SessionOrigin, SessionRequest
from haptera.model.approvals import ApprovalScope, Approve, Deny
from haptera.model.file_snapshots import RewindReport
from haptera.model.ids import (
    ApprovalId,
    MessageId,
    QueryId,
    new_input_id,
    new_query_id,
    query_id_for,
)
from haptera.model.json_types import Json, writable_or_none
from haptera.model.late_names import on_first_use
from haptera.model.log.compactions import Compaction
from haptera.model.operations.operation import Operation, new_command_id
from haptera.model.operations.session import (
    ApproveCall,
    CompactSession,
    ConfigureSession,
    DeliverResult,
    DenyCall,
    RewindSession,
    SendPrompt,
    UndoRewind,
)
from haptera.options.operations import check_order
from haptera.options.signatures import takes
from haptera.system.abort import AbortSignal

if TYPE_CHECKING:
    from haptera.access.assembly.composition import Composition
    from haptera.kernel.session import command_effects
    from haptera.kernel.session.command_effects import HeldSession
else:
    command_effects = on_first_use("haptera.kernel.session.command_effects")

SessionT = TypeVar("SessionT")
"""What a fork is: an `AgentSession`, whose module imports this one."""
OrderT = TypeVar("OrderT", bound=Operation)
ValueT = TypeVar("ValueT")


class SessionVerbs(ABC, Generic[SessionT]):
    """What a session can be told, wherever it is held.

    The session that carries it out is in this process (`AgentSession`) or in another one
    (`AgentRemote`). `fork` changes nothing in the session. `abort` is not among them: it takes
    effect at once in this process, and is awaited for another one.
    """

    _request: SessionRequest

    def __init__(self, composition: "Composition") -> None:
        self._composition = composition

    @abstractmethod
    async def _carry_out(
        self, handler: "Callable[[HeldSession, OrderT], Awaitable[ValueT]]", order: OrderT
    ) -> ValueT:
        """Have a command carried out; it is durable when this returns."""

    @abstractmethod
    async def _compact(self, order: CompactSession, options: QueryOptions[Any]) -> Compaction:
        """Have the conversation compacted."""

    @abstractmethod
    async def _fork_point(self, after: str | None) -> Fork:
        """Return where a new session branches off."""

    @abstractmethod
    async def _open_session(self, request: SessionRequest) -> SessionT:
        """Open another session in this process."""

    @takes(AdmissionOptions)
    async def send(self, prompt: Prompt, **options: Unpack[AdmissionKeywords]) -> QueryId:
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
        admission = checked_options(options, AdmissionOptions, function="session.send()")
        message_id = admission.message_id
        # Derived from the message: a sender that repeats itself, perhaps to another process, gets
        # the same id without asking the holder.
        query_id = new_query_id() if message_id is None else query_id_for(message_id)
        message = make_prompt(prompt, admission, query_id)
        if message_id is not None:
            message = replace(message, id=MessageId(message_id))
        # Read here: a relative path, and the file itself, may not exist where the session is held.
        message = await with_attachments(
            message, admission, cwd=self._composition.configuration.cwd
        )
        await self._carry_out(
            command_effects.send,
            SendPrompt(
                id=new_command_id(),
                input_id=new_input_id(),
                message=message,
                delivery=admission.delivery,
                once=message_id is not None,
            ),
        )
        return query_id

    async def steer(self, prompt: Prompt) -> None:
        """Say something into the running query; when none runs, it becomes a query.

        It is in the store when this returns.
        """
        await self.send(prompt, delivery="steer")

    async def approve(
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
        check_id(approval_id, of="the id of an approval")
        decision = decided(Approve(arguments=arguments, scope=scope, by=by, feedback=feedback))
        await self._carry_out(
            command_effects.approve,
            ApproveCall(
                id=new_command_id(),
                by=decision.by,
                approval_id=ApprovalId(approval_id),
                arguments=decision.arguments,
                scope=decision.scope,
                feedback=decision.feedback,
            ),
        )

    async def deny(
        self, approval_id: str, reason: str | None = None, *, by: str | None = None
    ) -> None:
        """Refuse a waiting tool call; the model is told why."""
        check_id(approval_id, of="the id of an approval")
        decision = decided(Deny(reason, by=by))
        await self._carry_out(
            command_effects.deny,
            DenyCall(
                id=new_command_id(),
                by=decision.by,
                approval_id=ApprovalId(approval_id),
                reason=decision.reason,
            ),
        )

    @takes(CONFIGURE)
    async def configure(self, **options: Unpack[SettingsKeywords]) -> None:
        """Change settings, from the next turn on.

        Raises:
            ConfigError: CONFIG_INVALID naming the field.

        """
        check_options(options, CONFIGURE, function="session.configure()")
        # Short names of models are those of this process's file; the holder may have another one.
        settings = self._composition.configuration.changed(settings_changes(options))
        order = ConfigureSession(id=new_command_id(), settings=settings)
        await self._carry_out(command_effects.configure, order)

    async def compact(
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
        options: QueryOptions[Any] = checked_options(
            {"signal": signal}, QueryOptions, function="session.compact()"
        )
        order = CompactSession(id=new_command_id(), instructions=writable_or_none(instructions))
        return await self._compact(order, options)

    # Made by scripts/write_verbs.py.

    async def deliver(self, call: str, result: Json = None, *, error: str | None = None) -> None:
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
        order = DeliverResult(id=new_command_id(), call=call, result=result, error=error)
        check_order(order, function="session.deliver()")
        await self._carry_out(command_effects.deliver, order)

    async def undo_rewind(self, *, force: bool = False) -> RewindReport:
        """Take the last rewind back; files that it changed become again what they were before.

        Args:
            force: Whether files that others changed since then are overwritten, too.

        Raises:
            SessionError: BUSY while a query runs, NOT_FOUND when nothing was rewound.
            StoreError: CONFLICT when such files were changed since, unless forced.

        """
        order = UndoRewind(id=new_command_id(), force=force)
        check_order(order, function="session.undo_rewind()")
        return await self._carry_out(command_effects.undo_rewind, order)

    async def rewind(
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
        order = RewindSession(
            id=new_command_id(), to=MessageId(to), files=files, dry_run=dry_run, force=force
        )
        check_order(order, function="session.rewind()")
        return await self._carry_out(command_effects.rewind, order)

    # End.

    async def fork(self, *, after: str | None = None, name: str | None = None) -> SessionT:
        """Go on from a message (itself included) in a new session, which the caller closes.

        It is open, and in the store, when this returns. If another process holds this session, only
        its stored log is read, and it goes on undisturbed.

        Raises:
            SessionError: MESSAGE_NOT_FOUND when there is no such message, NOT_FOUND when the
                session was deleted.
            StoreError: CONFLICT when the name is taken.

        """
        fork = await self._fork_point(after)
        return await open_fork(
            self._composition, self._request, fork, name=name, open_session=self._open_session
        )


async def open_fork(
    composition: "Composition",
    like: SessionRequest,
    fork: Fork,
    *,
    name: str | None,
    open_session: Callable[[SessionRequest], Awaitable[SessionT]],
) -> SessionT:
    """Open a new session that branches off another, for the same owner and project."""
    check_reference(name)
    composition.configuration.check_models(fork.settings)
    # Before the fork is open: the parent may be the session of a single call, whose log is deleted
    # when it closes.
    composition.kept.add(fork.parent)
    return await open_session(
        SessionRequest(
            reference=name,
            owner=like.owner,
            project=like.project,
            origin=SessionOrigin(fork=fork),
            bindings=like.bindings,
        )
    )
