"""The commands of a chat that begin with a slash."""

import shlex
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeGuard, TypeVar

import msgspec

from haptera import Agent, AgentError, AgentSession, UserMessage
from haptera.cli.chat.screen import Screen
from haptera.cli.choices import EFFORTS, MODES, find_session_by_words
from haptera.cli.session_texts import counted, short_time, shown_titles
from haptera.cli.terminal import guard, safe_line
from haptera.model.operations.held import HeldOperation
from haptera.model.operations.operation import Operation, SessionCommand, operations_of
from haptera.model.operations.session import CompactSession, RewindSession
from haptera.model.operations.sessions import CountUse, ExportSession, ForkSession, RenameSession
from haptera.model.parts import lines_of
from haptera.options.operations import ask, given_fields

RunT = TypeVar("RunT", bound=Callable[[Any, list[str]], Awaitable[None]])


class ChatFace(Protocol):
    """The chat as its commands use it."""

    agent: Agent
    session: AgentSession
    screen: Screen
    leaving: bool

    async def follow(self, session: AgentSession) -> None:
        """Make a session the one that is shown; the one before is closed."""

    def show_tail(self) -> None:
        """Show the last messages of a session that goes on."""

    def carry_on(self) -> None:
        """Carry the query on that was cut off."""


@dataclass(frozen=True)
class SlashCommand:
    """One command: how it is written, what its help says, and what carries it out."""

    usage: str
    help: str
    run: "Callable[[SlashCommands, list[str]], Awaitable[None]]"


SLASH_COMMANDS: dict[str, SlashCommand] = {}
"""By their names: the methods of `SlashCommands`, and operations that have none there."""


def _name_of(usage: str) -> str:
    return usage.partition(" ")[0].removeprefix("/")


def slash(usage: str, help_line: str) -> Callable[[RunT], RunT]:
    """Make a method of `SlashCommands` a command of the chat."""

    def register(run: RunT) -> RunT:
        SLASH_COMMANDS[_name_of(usage)] = SlashCommand(usage, help_line, run)
        return run

    return register


def asks(kind: type[Operation]) -> Callable[[RunT], RunT]:
    """Make a method of `SlashCommands` what asks for an operation in the chat."""
    return slash(*(kind.facts.slash or ("", "")))


class SlashCommands:
    """Carries out what is typed after a slash."""

    def __init__(self, chat: ChatFace) -> None:
        self._chat = chat
        self.session_name = ""

    async def run(self, line: str) -> None:
        """Run one command; what it cannot do is said, and the chat goes on."""
        try:
            name, *words = shlex.split(line[1:])
        except ValueError as error:
            self._screen.complain(f"{line}: {error}")
            return
        except IndexError:
            name, words = "help", []
        command = SLASH_COMMANDS.get(name)
        if command is None:
            self._screen.complain(f"there is no command /{name}; /help lists them")
            return
        try:
            await command.run(self, words)
        except AgentError as error:
            self._screen.fail(error)
        except OSError as error:
            self._screen.complain(str(error))

    @property
    def _screen(self) -> Screen:
        return self._chat.screen

    @slash("/help", "this list")
    async def _help(self, _words: list[str]) -> None:
        width = max(len(command.usage) for command in SLASH_COMMANDS.values())
        for command in SLASH_COMMANDS.values():
            self._screen.print(f"  {command.usage:<{width}}  {command.help}")
        self._screen.note(
            "Enter sends, Ctrl-J begins a line, Ctrl-G opens an editor, @file attaches. While the "
            "model works: Enter steers, Alt-Enter queues, Esc or Ctrl-C interrupts."
        )

    @slash("/new [NAME]", "begin a new session")
    async def _new(self, words: list[str]) -> None:
        name = " ".join(words)
        session = self._chat.agent.session(name or None)
        await self._chat.follow(await session.open())
        self.session_name = name
        self._screen.note("a new session")

    @slash("/resume [ID|NAME|TEXT]", "carry on, or open another")
    async def _resume(self, words: list[str]) -> None:
        sessions = self._chat.agent.sessions
        if words:
            description = await sessions.get(
                await find_session_by_words(self._chat.agent, " ".join(words))
            )
            if description.id == self._chat.session.session_id:
                self._screen.note("this is the session")
                return
            await self._chat.follow(await self._chat.agent.session(description.id).open())
            self.session_name = description.name or ""
            self._chat.show_tail()
        elif self._chat.session.unfinished.query_id is not None:
            self._chat.carry_on()
        else:
            listed = await sessions.list(limit=10)
            titles = await shown_titles(self._chat.agent, listed)
            for each in listed:
                title = safe_line(titles[each.id], width=40)
                self._screen.print(f"  {each.id}  {short_time(each.updated)}  {title}")
            self._screen.note("/resume ID opens one of them")

    @asks(ForkSession)
    async def _fork(self, words: list[str]) -> None:
        name = " ".join(words)
        forked = await self._chat.session.fork(name=name or None)
        await self._chat.follow(forked)
        self.session_name = name
        self._screen.note(f"a copy of the session: {forked.session_id}")

    @asks(RewindSession)
    async def _rewind(self, words: list[str]) -> None:
        prompts = [each for each in self._chat.session.messages if _is_prompt(each)]
        if words == ["undo"]:
            await self._chat.session.undo_rewind()
            self._screen.note("the rewind is taken back")
        elif words and words[0].isdigit() and 1 <= int(words[0]) <= len(prompts):
            await self._go_before(prompts[int(words[0]) - 1])
        else:
            for number, message in enumerate(prompts, 1):
                self._screen.print(f"  {number}  {safe_line(lines_of(message.parts), width=60)}")
            self._screen.note(
                "/rewind N goes back to before that prompt; /rewind undo takes it back"
            )

    async def _go_before(self, prompt: UserMessage) -> None:
        messages = self._chat.session.messages
        index = [each.id for each in messages].index(prompt.id)
        if index == 0:
            self._screen.complain("this is the first prompt; /new begins again")
            return
        await self._chat.session.rewind(to=messages[index - 1].id)
        self._screen.note(f"back to before: {safe_line(lines_of(prompt.parts), width=60)}")

    @asks(CompactSession)
    async def _compact(self, words: list[str]) -> None:
        await self.carry_out(words, kind=CompactSession)

    @slash("/model [PROVIDER/MODEL]", "show or change the model")
    async def _model(self, words: list[str]) -> None:
        if words:
            await self._chat.session.configure(model=words[0])
        self._screen.note(f"model: {self._chat.session.settings.model}")

    @slash("/effort [LEVEL]", "how much the model thinks")
    async def _effort(self, words: list[str]) -> None:
        if words and words[0] in EFFORTS:
            await self._chat.session.configure(thinking=words[0])  # type: ignore[arg-type]
        elif words:
            self._screen.complain(f"the effort is one of {', '.join(EFFORTS)}")
        self._screen.note(
            f"effort: {self._chat.session.settings.thinking or 'the default of the model'}"
        )

    @slash("/tools", "what the model may call")
    async def _tools(self, _words: list[str]) -> None:
        for spec in self._chat.session.tools:
            self._screen.print(
                f"  {safe_line(spec.name):<10}  {safe_line(spec.description, width=60)}"
            )

    @slash("/permissions [MODE]", "what needs approval")
    async def _permissions(self, words: list[str]) -> None:
        if words and words[0] in MODES:
            await self._chat.session.configure(permission_mode=words[0])  # type: ignore[arg-type]
        elif words:
            self._screen.complain(f"the mode is one of {', '.join(MODES)}")
        self._screen.note(f"permission mode: {self._chat.session.settings.permission_mode}")

    @slash("/status", "this session in a few lines")
    async def _status(self, _words: list[str]) -> None:
        session = self._chat.session
        description = await self._chat.agent.sessions.get(session.session_id or "")
        self._screen.print(
            f"  session  {description.id}  {safe_line(description.name or description.title)}"
        )
        self._screen.print(f"  folder   {safe_line(description.project)}")
        self._screen.print(f"  model    {safe_line(session.settings.model)}")
        self._screen.print(f"  mode     {session.settings.permission_mode}")
        self._screen.print(f"  messages {len(session.messages)}")

    @asks(CountUse)
    async def _usage(self, _words: list[str]) -> None:
        stats = await self._chat.agent.sessions.stats(self._chat.session.session_id or "")
        cost = "unknown" if stats.cost is None else f"${stats.cost:.4f}"
        self._screen.print(
            f"  {counted(stats.queries, 'query', 'queries')}, {counted(stats.turns, 'turn')}, "
            f"{counted(stats.tool_calls, 'tool call')}; "
            f"{stats.usage.input} tokens in, {stats.usage.output} out; cost {cost}"
        )

    @asks(ExportSession)
    async def _export(self, words: list[str]) -> None:
        if not words:
            self._screen.complain("/export FILE [FORMAT]")
            return
        target, kind = words[0], words[1] if len(words) > 1 else "markdown"
        session_id = self._chat.session.session_id or ""
        try:
            await self._chat.agent.sessions.export_to(target, session_id, to=kind)
        except FileExistsError:
            self._screen.complain(f"{target} exists already; it is not overwritten")
            return
        self._screen.note(f"written to {target}")

    @asks(RenameSession)
    async def _name(self, words: list[str]) -> None:
        if not words:
            self._screen.complain("/name NAME")
            return
        name = " ".join(words)
        await self._chat.agent.sessions.rename(self._chat.session.session_id or "", name)
        self.session_name = name
        self._screen.note(f"this session is called {name!r}")

    @slash("/copy", "copy the last answer to the clipboard")
    async def _copy(self, _words: list[str]) -> None:
        guard(sys.stdout).to_clipboard(self._screen.last_answer)
        self._screen.note("copied, if this terminal allows it")

    async def carry_out(self, words: list[str], *, kind: type[Operation]) -> None:
        """Ask for an operation on this session; the words are its first field."""
        fields = given_fields(kind)
        values = {name: declared.default for name, declared in fields.items()}
        if named := [name for name in fields if name != "reference"]:
            values[named[0]] = " ".join(words) or values[named[0]]
        if "reference" in values:
            values["reference"] = self._chat.session.session_id or ""
        if msgspec.UNSET in values.values():
            self._screen.complain(kind.facts.slash[0] if kind.facts.slash else "")
            return
        is_of_session = issubclass(kind, SessionCommand | HeldOperation)
        face = self._chat.session if is_of_session else self._chat.agent.sessions
        await ask(face, kind, values)
        if (line := kind.facts.command) is not None and line.done:
            self._screen.note(line.done.format(**values))

    @slash("/quit", "leave")
    @slash("/exit", "leave")
    async def _exit(self, _words: list[str]) -> None:
        self._chat.leaving = True


def _is_prompt(message: object) -> TypeGuard[UserMessage]:
    return isinstance(message, UserMessage) and bool(lines_of(message.parts))


for _kind in operations_of():
    if _kind.facts.slash is not None:
        _usage, _help = _kind.facts.slash
        _run = partial(SlashCommands.carry_out, kind=_kind)
        SLASH_COMMANDS.setdefault(_name_of(_usage), SlashCommand(_usage, _help, _run))
