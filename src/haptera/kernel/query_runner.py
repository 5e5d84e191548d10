"""QueryRunner: one prompt, answered to rest through as many turns as it takes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from haptera.kernel.blocks.approval_coordinator import NEW_PROMPT
from haptera.kernel.blocks.request_builder import lead_with_reminders
from haptera.kernel.query.query import Query
from haptera.kernel.turns.model_turns import ModelBlocks, ModelTurns
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.ids import InputId
from haptera.model.log.entry import Entry
from haptera.model.log.queries import InputPromoted, QueryStarted
from haptera.model.log.tools import said_at
from haptera.model.log.workspace import ContextLoaded
from haptera.model.messages import (
    UserMessage,
    kept_options,
)
from haptera.ports.context_source import NO_CONTEXT, ContextSource, FoundContext
from haptera.ports.runner import QueryOutcome

if TYPE_CHECKING:
    from haptera.kernel.native.native_query import NativeQueries


class Turns(Protocol):
    """The turns of one query: those with a model, or those with a native agent."""

    async def begin(self) -> QueryOutcome | None:
        """Make ready; returns how the query rests where there is nothing to answer."""
        ...

    async def next(self) -> QueryOutcome | None:
        """Run the next turn, with what belongs to it; returns how the query rests, or None."""
        ...


def _never(_model: str) -> bool:
    """Without native agents a model is asked, whatever it is called."""
    return False


class QueryRunner:
    """Runs turns until the prompt is answered, something is asked for, or it may not go on.

    The `Runner` of agents. Owns the loop, and how a query begins: whether a model or a native agent
    is asked is found out once for each. Does not own what happens in a turn (`Turns`) or the
    terminal entry (`Query`).
    """

    def __init__(
        self,
        blocks: ModelBlocks,
        *,
        is_native: Callable[[str], bool] = _never,
        make_native: "Callable[[], NativeQueries] | None" = None,
    ) -> None:
        self._blocks = blocks
        self._is_native = is_native
        self._make_native = make_native
        self._native: NativeQueries | None = None
        """Made for the first session that has an agent: most programs have none."""

    async def start(self, query: Query) -> None:
        """Record the prompt. From here on it is part of the session, whatever happens next.

        It is recorded in one append with the start of the turn that sends it.
        """
        is_native = self._is_native(query.settings.model)
        if is_native or query.fold.native.session_id or query.session.native.live:
            self._native_queries.remember(query)
        if query.session.host.context is not None and not is_native:
            await _load_context(query, query.session.host.context)
        message = query.input.message
        if message is not None:
            reminders = query.settings.cached_reminders
            message = lead_with_reminders(message, reminders, query.fold.sent_view())
        started, entries = self._begun(query, message)
        # A prompt that settles calls or an open turn is folded before the request is built.
        if message is None or query.fold.calls or query.fold.open_turn is not None:
            await query.recorder.record(entries)
        else:
            query.recorder.stage(entries)
            # As the fold will have it: requests are the same before and after it is recorded.
            query.prompt = said_at(message, started.time)

    async def run(self, query: Query) -> QueryOutcome:
        """Answer the prompt that was put into the conversation by `start`.

        Raises:
            AgentError: when the query cannot go on.

        """
        turns: Turns | None = None
        if query.native.is_remembered:
            turns = await self._native_queries.turns_of(query)
        turns = turns or ModelTurns(query, self._blocks)
        outcome = await turns.begin()
        while outcome is None:
            outcome = await turns.next()
        return outcome

    @property
    def _native_queries(self) -> "NativeQueries":
        if self._native is None:
            if self._make_native is None:
                raise ConfigError(ErrorCode.CONFIG_INVALID, "native agents need a session")
            self._native = self._make_native()
        return self._native

    def _begun(self, query: Query, message: UserMessage | None) -> tuple[QueryStarted, list[Entry]]:
        """Return the start of a query, and all that is recorded with it."""
        entries: list[Entry] = []
        if query.input.resumes is None:
            # After a rewind a prompt that waited may find questions open that it makes void.
            entries += query.session.approvals.cancellations(NEW_PROMPT)
        policy = self._blocks.dispatcher.permissions.policy(query)
        started = QueryStarted(
            **query.stamp(),
            message=message,
            resumes=query.input.resumes,
            # A message names its sender itself.
            options=kept_options(query.input, but=("reminders", *(("sender",) if message else ()))),
            # Only when it has changed: there may be a thousand rules, and most queries have the
            # same.
            policy=None if policy == query.fold.standing.policy else policy,
        )
        entries.append(started)
        if query.input.input_id is not None:
            entries.append(InputPromoted(**query.stamp(), input_id=InputId(query.input.input_id)))
        return started, entries


async def _load_context(query: Query, context: ContextSource) -> None:
    """Record the context files and skills if they are others than before."""
    found, known = await context.find(), query.fold.context
    before = FoundContext(files=known.files, skills=known.skills) if known else NO_CONTEXT
    if found != before:
        loaded = ContextLoaded(**query.stamp(), files=found.files, skills=found.skills)
        await query.recorder.record([loaded])
