"""SessionCommands: carries out what other processes ask of a session that is held here."""

from haptera.kernel.session.command_effects import CommandOrigin, HeldSession
from haptera.model.errors import AgentError, ErrorCode, SessionError, StoreError
from haptera.model.log.sessions import CommandEnded
from haptera.model.operations.operation import HANDLERS, CommandId
from haptera.model.operations.session import AbortQuery, Command
from haptera.system.clock import Clock

_REST_SECONDS = 1.0
"""How long a store that failed is left alone."""


class SessionCommands:
    """Carries out the commands in the inbox, in their order.

    Owns which commands of the inbox were seen; each is consumed in the append that carries it out.
    One that comes too late (an approval that was answered already) is consumed by an append of its
    own. One whose sender waits for it has its end in the log (`command.ended`). One that meets a
    session which is closing stays in the inbox for the next holder. A store that fails is asked
    again later; a session that another process took over is left alone.
    """

    def __init__(self, held: HeldSession, *, clock: Clock) -> None:
        self.held = held
        self._queue = held.live.queue
        self._inbox = held.live.store.inbox
        self._recorder = held.live.recorder
        self._clock = clock
        self._seen: set[CommandId] = set()

    async def pump(self) -> None:
        """Carry out what comes into the inbox until cancelled."""
        session_id = self.held.live.session_id
        while True:
            try:
                await self._inbox.wait(session_id, seen=self._seen)
                await self.carry_out_pending()
            except SessionError:
                return  # the session is closing: what is pending is for the next holder
            except StoreError as error:
                if error.code is ErrorCode.FENCED:
                    return
                await self._clock.sleep(_REST_SECONDS)

    async def carry_out_pending(self, *, opening: bool = False) -> None:
        """Carry out what is in the inbox now; while the session is opened, prompts only wait."""
        pending = await self._inbox.pending(self.held.live.session_id)
        # What is consumed does not come again; a session may live for years.
        self._seen.intersection_update([command.id for command in pending])
        for command in pending:
            if command.id not in self._seen:
                # Also if it stays in the inbox: `wait` would return for it at once, every time.
                self._seen.add(command.id)
                await self._take(command, opening=opening)

    async def _take(self, command: Command, *, opening: bool) -> None:
        """Carry out a command of the inbox, and see that it is consumed.

        Raises:
            SessionError: CLOSED; the command stays for the next holder.

        """
        try:
            # Before the command: it must not meet a conversation that is being moved, nor a
            # recorder that a failed append has stopped.
            await self._queue.recover()
            try:
                await self._carry_out(command, CommandOrigin((command.id,), opening))
            except AgentError as error:
                if error.code is ErrorCode.CLOSED:
                    raise
                await self._refuse(command, error)
        except StoreError:
            # What may be repeated is; an abort would hit whatever runs by then.
            if not isinstance(command, AbortQuery):
                self._seen.discard(command.id)
            raise

    async def _carry_out(self, command: Command, asked: CommandOrigin) -> None:
        await HANDLERS[type(command)](self.held, command, asked)

    async def _refuse(self, command: Command, error: AgentError) -> None:
        """Consume a command that has no effect; a sender that waits is told why.

        Raises:
            AgentError: the error itself, where the command is to be carried out later.

        """
        if command.facts.waits:
            live = self.held.live
            # An error can follow the append that held the end (reading the log again, for one): the
            # command must not get a second end.
            if any(item.id == command.id for item in await self._inbox.pending(live.session_id)):
                ended = CommandEnded(**live.stamp(), command_id=command.id, error=error.report)
                await self._recorder.commit([ended], consumed=(command.id,))
        elif isinstance(error, SessionError):
            # It came too late (an approval that was answered), or is refused for good (BUSY).
            await self._recorder.commit((), consumed=(command.id,))
        else:
            raise error
