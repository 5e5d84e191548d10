"""ClaudeAgent: the native agent `claude-agent`; implements `NativeAgent`."""

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from haptera.model.errors import ErrorCode, ProviderError, SessionError
from haptera.model.native_messages import NativeMessage
from haptera.model.native_settings import ClaudeAgentSettings
from haptera.model.parts import Part, TextPart
from haptera.model.vendors import CLAUDE_AGENT
from haptera.ports.native_agent import (
    CallResult,
    FoundTranscript,
    KnownTranscript,
    NativeCall,
    NativeHost,
    NativeOpening,
    NativeSession,
    Permission,
    ReadTranscript,
    Refuse,
)
from haptera.ports.session_store import Store
from haptera.providers.claude_agent.agent_process import AgentProcess
from haptera.providers.claude_agent.callbacks import Callbacks, Extras
from haptera.providers.claude_agent.command_line import (
    clean_environment,
    command_line,
    config_folder,
    refuse_missing_credentials,
)
from haptera.providers.claude_agent.connection import ClaudeConnection
from haptera.providers.claude_agent.sdk import require_sdk
from haptera.providers.claude_agent.session import ClaudeSession, SessionLimits
from haptera.providers.claude_agent.transcript_copies import (
    ConversationPlace,
    LocalTranscripts,
    read_transcript,
)
from haptera.providers.claude_agent.transcripts import TranscriptStore, stored_transcripts
from haptera.providers.vendors import VENDORS
from haptera.system.clock import Clock
from haptera.system.token_source import TokenSource
from haptera.system.token_sources import origin_of

_USUAL_URL = VENDORS[CLAUDE_AGENT].base_url


class AgentSurroundings(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Where an agent runs, and what it may use there."""

    environment: Mapping[str, str]
    cwd: Path
    clock: Clock
    store: Callable[[], Store] | None = None
    """Keeps the transcripts; without one they stay on this machine."""
    tokens: TokenSource | None = None
    base_url: str | None = None
    extras: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """`mcp_servers`, `hooks` and `agents`, as claude-agent-sdk takes them."""
    limits: SessionLimits = SessionLimits()


class ClaudeAgent:
    """Opens sessions of the Claude Code CLI. Keeps nothing of any session."""

    provider = CLAUDE_AGENT

    def __init__(self, settings: ClaudeAgentSettings, surroundings: AgentSurroundings) -> None:
        self._settings = settings
        self._surroundings = surroundings
        self._extras = Extras(surroundings.extras)

    async def open(self, opening: NativeOpening) -> NativeSession:
        """Open a session, or go on with an earlier one.

        Raises:
            ConfigError: CONFIG_MISSING or CONFIG_INVALID naming what is wrong.
            SessionError: NOT_FOUND when there is no such session to go on with.
            ProviderError: when the agent could not be started.

        """
        require_sdk()
        environment = await self._environment()
        refuse_missing_credentials(environment, platform=sys.platform)
        transcripts = self._transcripts_of(opening.owner)
        await self._bring_transcript(opening, environment, transcripts)
        try:
            return await self._start(opening, environment, transcripts)
        except ProviderError as error:
            # What is on this disk may be damaged; what is in the store need not be.
            if error.code is not ErrorCode.BAD_REQUEST or not (opening.resume and transcripts):
                raise
            if not await self._local(environment).restore(transcripts, opening.resume):
                raise
            return await self._start(opening, environment, transcripts)

    async def _start(
        self,
        opening: NativeOpening,
        environment: dict[str, str],
        transcripts: TranscriptStore | None,
    ) -> NativeSession:
        surroundings = self._surroundings
        callbacks = Callbacks(opening, opening.host or _NoHost())
        options = callbacks.options(
            self._extras,
            environment={"CLAUDE_CONFIG_DIR": str(config_folder(environment))},
            cwd=str(surroundings.cwd),
            transcripts=transcripts,
        )
        # Where the CLI makes a copy it names it itself; a session of its own gets its name from us.
        chosen = str(uuid4()) if opening.resume is None else None
        servers: Any = options.mcp_servers
        command = command_line(
            self._executable(),
            opening,
            self._settings,
            mcp_servers=servers,
            session_id=chosen,
            mirrors=transcripts is not None,
        )
        session = ClaudeSession(
            lambda session: ClaudeConnection(
                AgentProcess(command, environment=environment, cwd=str(surroundings.cwd)),
                options,
                take=session.take,
                released=session.released,
                ended=session.ended,
            ),
            # A copy gets its id from the CLI, which tells it once it has started.
            known_id=chosen or (None if opening.fork else opening.resume),
            turn_ended=callbacks.end_turn,
            limits=surroundings.limits,
            place=await self._place_of(opening, environment),
        )
        await session.start()
        return session

    async def resume_session(self, session_id: str, opening: NativeOpening) -> NativeSession:
        """Open an earlier session; its id is known at once."""
        return await self.open(msgspec.structs.replace(opening, resume=session_id))

    async def prompt(self, text: str, opening: NativeOpening) -> Sequence[NativeMessage]:
        """Open a session for one prompt, and return all messages up to the result."""
        parts: tuple[Part, ...] = (TextPart(text=text),)
        session = await self.open(opening)
        try:
            await session.send(parts)
            return [message async for batch in session.stream() for message in batch]
        finally:
            await session.close(within=0)

    async def find(
        self, native_session_id: str, *, owner: str, known: KnownTranscript
    ) -> FoundTranscript | None:
        """Find the longest transcript that agrees with the log, here or in the store."""
        require_sdk()
        local = self._local(await self._environment())
        return await local.find(self._transcripts_of(owner), native_session_id, known)

    async def read(
        self, native_session_id: str, *, owner: str, is_own: bool
    ) -> ReadTranscript | None:
        """Read the transcript of a session of this machine's user, or of sessions of the owner."""
        require_sdk()
        local = self._local(await self._environment()) if is_own else None
        return await read_transcript(local, self._transcripts_of(owner), native_session_id)

    def starts_unasked(self, tool: str) -> bool:
        """Whether a tool with effects may run without a question."""
        settings = self._settings
        if settings.bypass_permissions or settings.permission_mode == "accept_edits":
            return True
        return any(rule.partition("(")[0] == tool for rule in settings.preapproved_tools)

    async def close(self) -> None:
        """Close nothing: every session is its owner's."""

    async def _environment(self) -> dict[str, str]:
        surroundings, own = self._surroundings, {}
        if surroundings.tokens is not None:
            origin = origin_of(surroundings.base_url or _USUAL_URL)
            own["ANTHROPIC_API_KEY"] = (await surroundings.tokens.token(origin)).reveal()
        if surroundings.base_url is not None:
            own["ANTHROPIC_BASE_URL"] = surroundings.base_url
        return clean_environment(surroundings.environment, self._settings, own)

    async def _bring_transcript(
        self,
        opening: NativeOpening,
        environment: Mapping[str, str],
        transcripts: TranscriptStore | None,
    ) -> None:
        """Put the transcript where the CLI looks for it, if it is not there."""
        if opening.resume is None:
            return
        local = self._local(environment)
        if local.has(opening.resume):
            return
        if transcripts is None or not await local.restore(transcripts, opening.resume):
            raise SessionError(
                ErrorCode.NOT_FOUND, f"{CLAUDE_AGENT} has no session {opening.resume} any more"
            )

    async def _place_of(
        self, opening: NativeOpening, environment: Mapping[str, str]
    ) -> ConversationPlace:
        # The CLI tells all lines of a copy anew, and those of its own session only once.
        if opening.resume is None or opening.fork:
            return ConversationPlace()
        return await self._local(environment).place(opening.resume)

    def _local(self, environment: Mapping[str, str]) -> LocalTranscripts:
        return LocalTranscripts(config_folder(environment), self._surroundings.cwd)

    def _transcripts_of(self, owner: str) -> TranscriptStore | None:
        surroundings = self._surroundings
        if surroundings.store is None:
            return None
        # One for each session, which takes what it knows of the session's lines with it.
        return stored_transcripts(surroundings.store, owner, surroundings.clock)

    def _executable(self) -> str:
        if self._settings.executable is not None:
            return str(Path(self._settings.executable).expanduser())
        spec = importlib.util.find_spec("claude_agent_sdk")
        folder = Path(spec.origin).parent if spec is not None and spec.origin else Path()
        return str(folder / "_bundled" / "claude")


class _NoHost(NativeHost):
    """The host of a session that was opened without one: what must be asked about is refused."""

    async def announce(self, call: NativeCall) -> Permission | None:
        """Leave it as it is."""
        del call
        return None

    async def permit(self, call: NativeCall) -> Permission:
        """Refuse."""
        return Refuse(f"{call.tool} needs a permission, and nothing here can give it")

    async def run_tool(self, call: NativeCall) -> CallResult:
        """Have no tool."""
        return CallResult((TextPart(text=f"there is no tool {call.tool}"),), is_error=True)
