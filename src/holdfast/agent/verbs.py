"""Verbs: what a session can be told, by the process that holds it and by any other."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Unpack

from msgspec.structs import replace

from holdfast.agent.option_checks import check_id, check_options, decided, takes
from holdfast.agent.prompts import attach, make_prompt
from holdfast.agent.query_options import AdmissionOptions, Prompt
from holdfast.vocabulary.approvals import ApprovalScope, Approve, Deny
from holdfast.vocabulary.commands import (
    ApproveCall,
    Command,
    DenyCall,
    SendPrompt,
    new_command_id,
)
from holdfast.vocabulary.ids import (
    ApprovalId,
    MessageId,
    QueryId,
    new_input_id,
    new_query_id,
    query_id_for,
)
from holdfast.vocabulary.json_types import Json

if TYPE_CHECKING:
    from holdfast.assembly.composition import Composition


class SessionVerbs(ABC):
    """What a session can be told without waiting for an answer.

    Each verb is checked here and becomes a command. The session that carries it out is in this
    process (`AgentSession`) or in another one (`AgentRemote`).
    """

    def __init__(self, composition: "Composition") -> None:
        self._composition = composition

    @abstractmethod
    async def _tell(self, command: Command) -> None:
        """Hand a command to the session; it is durable when this returns."""

    @takes(AdmissionOptions)
    async def send(self, prompt: Prompt, **options: Unpack[AdmissionOptions]) -> QueryId:
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
        options = check_options(options, AdmissionOptions, door="session.send()")
        message_id = options["message_id"]
        query_id = new_query_id() if message_id is None else query_id_for(message_id)
        message = make_prompt(prompt, options, query_id)
        if message_id is not None:
            message = replace(message, id=MessageId(message_id))
        message = await attach(message, options, cwd=self._composition.configuration.cwd)
        await self._tell(
            SendPrompt(
                id=new_command_id(),
                input_id=new_input_id(),
                message=message,
                delivery=options["delivery"],
                once=message_id is not None,
            )
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
        await self._tell(
            ApproveCall(
                id=new_command_id(),
                by=decision.by,
                approval_id=ApprovalId(approval_id),
                arguments=decision.arguments,
                scope=decision.scope,
                feedback=decision.feedback,
            )
        )

    async def deny(
        self, approval_id: str, reason: str | None = None, *, by: str | None = None
    ) -> None:
        """Refuse a waiting tool call; the model is told why."""
        check_id(approval_id, of="the id of an approval")
        decision = decided(Deny(reason, by=by))
        await self._tell(
            DenyCall(
                id=new_command_id(),
                by=decision.by,
                approval_id=ApprovalId(approval_id),
                reason=decision.reason,
            )
        )
