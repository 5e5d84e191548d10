"""One query from the command line: the answer, a result object or a line per event."""

import asyncio
import contextlib
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from haptera import AgentError, AgentResult, AgentSession, ConfigError, QueryStream
from haptera.cli.choices import Choices, deny_unanswered, open_agent, open_chosen_session
from haptera.cli.outcomes import (
    Denial,
    Exit,
    OneShotOutcome,
    one_shot_outcome,
    result_object,
)
from haptera.cli.prompt_input import PromptInput
from haptera.cli.terminal import Output, Sanitiser, print_json_line, safe_line
from haptera.model.approvals import ApprovalRequest
from haptera.model.entry_bytes import encode_event
from haptera.model.errors import ErrorCode
from haptera.model.events import Event, LiveEvent, StatusChanged, TextDelta
from haptera.model.log.tools import ToolStarted
from haptera.model.log.turns import TurnEnded
from haptera.options.json_schemas import schema_check

_NO_MODEL = "next: `haptera login PROVIDER`, or `haptera models pull {}` for the local model"
_ABSENT_MODEL = re.compile(r"the model '([\w.-]+)' is not on this machine")
_WRONG_KEY = "next: `haptera doctor` shows where the key comes from; `haptera login {}` stores one"
_HELD = "next: end the program that holds it, or add --fork to continue in a copy"
_PLAIN = re.compile(r"[\w ./:=@,+-]+")
"""Commands that are the same text in a rule and in a shell's single quotes."""
_SIGNALS = {
    signal.SIGINT: Exit.INTERRUPTED,
    signal.SIGTERM: Exit.TERMINATED,
    signal.SIGHUP: Exit.HUNG_UP,
}


async def run_one_shot(choices: Choices, prompt: PromptInput, output: Output) -> Exit:
    """Send one prompt and print what comes of it; returns the exit code."""
    asked: list[ApprovalRequest] = []
    printer = _PRINTERS[choices.output_format](choices, output)
    try:
        async with open_agent(choices, approver=deny_unanswered(asked)) as agent:
            session = await open_chosen_session(agent, choices)
            wanted = choices.output_schema
            # Before `begin` prints anything: a wrong option or schema is an error without output.
            stream: QueryStream[Any] = session.stream(
                prompt.text,
                output_schema=None if wanted is None else _schema_in(wanted),
                attachments=prompt.files,
                total_timeout=choices.timeout,
                on_abort="return",
            )
            printer.begin(session)
            outcome = await _watch(stream, printer, asked)
            await session.close()
    except AgentError as error:
        outcome = one_shot_outcome(None, error, denials=asked)
    printer.end(outcome)
    return outcome.exit


def _schema_in(path: str) -> dict[str, Any]:
    """Return the JSON Schema in a file; its name, which errors have, is that of the file.

    Raises:
        click.UsageError: when the file is not a JSON Schema of an object.

    """
    try:
        schema = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Any])
        schema_check(schema, of=path)
    except (OSError, msgspec.DecodeError) as error:
        raise click.UsageError(f"{path} is not a JSON Schema: {error}") from error
    except ConfigError as error:
        raise click.UsageError(error.message) from error
    return {"title": Path(path).stem} | schema


async def _watch(
    stream: QueryStream[Any], printer: "Printer", asked: list[ApprovalRequest]
) -> OneShotOutcome:
    """Print a query as it goes; a signal, or a reader that went away, stops it."""
    caught: list[Exit] = []
    result: AgentResult[Any] | None = None
    failure: AgentError | None = None
    with _stopped_by_signals(stream, caught):
        try:
            async for event in stream:
                printer.show(event)
                if printer.output.is_left:
                    stream.abort("the reader of the output went away")
            # The stream was consumed above; this only reads how it ended.
            result = await stream.result()
        except AgentError as error:
            failure = error
    return one_shot_outcome(result, failure, denials=asked, signal=caught[0] if caught else None)


@contextlib.contextmanager
def _stopped_by_signals(stream: QueryStream[Any], caught: list[Exit]) -> Iterator[None]:
    """Let signals stop the query instead of the process; what came is kept.

    A person who presses Ctrl-C does not want the answer any more. A process that is
    ended, such as by a system that shuts down, leaves the query suspended.
    """
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        # The first one decides about the exit code.
        caught.append(_SIGNALS[number])
        stop_stream = stream.abort if number is signal.SIGINT else stream.suspend
        stop_stream(f"stopped by {number.name}")

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


class Printer:
    """Prints one query in one of the output formats; what all of them share."""

    def __init__(self, choices: Choices, output: Output) -> None:
        self.choices = choices
        self.output = output
        self._started = time.perf_counter()
        self._session_id: str | None = None

    def begin(self, session: AgentSession) -> None:
        """Print what goes before the first event."""
        self._session_id = session.session_id

    def show(self, event: Event) -> None:
        """Print one event."""

    def end(self, outcome: OneShotOutcome) -> None:
        """Print how it ended."""
        raise NotImplementedError

    def explain(self, outcome: OneShotOutcome) -> None:
        """Say on standard error why the query did not simply end."""
        for line in explanations(outcome):
            self.output.note(f"haptera: {line}")


class TextPrinter(Printer):
    """Prints the answer: to a terminal as it comes, elsewhere as a whole."""

    def __init__(self, choices: Choices, output: Output) -> None:
        super().__init__(choices, output)
        self._text = Sanitiser()
        self._shown = ""

    def show(self, event: Event) -> None:
        """Print a piece of the answer, or that a tool runs."""
        if not self.output.is_terminal:
            return
        if isinstance(event, TextDelta):
            self._write(event.text)
        elif isinstance(event, TurnEnded) and self._shown and not self._shown.endswith("\n"):
            self._write("\n")
        elif isinstance(event, ToolStarted):
            self.output.note(f"· {safe_line(event.tool)}")

    def end(self, outcome: OneShotOutcome) -> None:
        """Print the answer where it was not printed yet."""
        if not self.output.is_terminal and outcome.text:
            # A program reads this: nothing is rewritten, only what a terminal would obey is.
            self._write(outcome.text)
        self._shown = self.output.write_rest(cleaner=self._text) or self._shown
        if self._shown and not self._shown.endswith("\n"):
            self._write("\n")
        self.explain(outcome)

    def _write(self, text: str) -> None:
        self._shown = self.output.write_piece(text, cleaner=self._text) or self._shown


class JsonPrinter(Printer):
    """Prints one result object."""

    def end(self, outcome: OneShotOutcome) -> None:
        """Print the result object."""
        elapsed = max(1, int((time.perf_counter() - self._started) * 1000))
        result = result_object(outcome, session_id=self._session_id, duration_ms=elapsed)
        print_json_line(self.output, result)
        self.explain(outcome)


class StreamJsonPrinter(JsonPrinter):
    """Prints a line of JSON for the session, for each event, and for the result."""

    def begin(self, session: AgentSession) -> None:
        """Print the line that says which session this is."""
        super().begin(session)
        line = {
            "type": "session",
            "session_id": session.session_id,
            "model": session.settings.model,
            "permission_mode": session.settings.permission_mode,
        }
        print_json_line(self.output, line)

    def show(self, event: Event) -> None:
        """Print an event; pieces of an answer only where they were asked for."""
        is_partial = isinstance(event, LiveEvent) and not isinstance(event, StatusChanged)
        if is_partial and not self.choices.include_partial_messages:
            return
        # Only the outermost object is decoded: values are written as the log has them.
        fields = msgspec.json.decode(encode_event(event), type=dict[str, msgspec.Raw])
        fields.pop("type", None)  # an entry of a later version may have one
        print_json_line(self.output, {"type": event.kind, **fields})


_PRINTERS: dict[str, Callable[[Choices, Output], Printer]] = {
    "text": TextPrinter,
    "json": JsonPrinter,
    "stream-json": StreamJsonPrinter,
}


def _rule_for(denial: Denial) -> str:
    """Return a rule that allows this call: of a plain command this one, not every command."""
    command = denial.tool_input.get("command") if denial.tool == "shell" else None
    is_plain = isinstance(command, str) and _PLAIN.fullmatch(command)
    return f"{denial.tool}({command})" if is_plain else denial.tool


def explanations(outcome: OneShotOutcome) -> list[str]:
    """Return what a person should know about how a query ended, and what to do next."""
    lines: list[str] = []
    result, error = outcome.result, outcome.error
    if error is not None and error.code is not ErrorCode.ABORTED:
        lines.append(f"{error.code}: {error.message}")
        if absent := _ABSENT_MODEL.match(error.message):
            lines.append(_NO_MODEL.format(absent[1]))
        elif error.code is ErrorCode.AUTH:
            lines.append(_WRONG_KEY.format(error.provider or "PROVIDER"))
        elif error.code is ErrorCode.BUSY:
            lines.append(_HELD)
    lines.extend(
        f"the tool call {denial.tool!r} was denied: there was no user to approve it. "
        f"Allow it with --allow-tool '{_rule_for(denial)}'"
        for denial in outcome.denials
    )
    if result is not None and result.suspended:
        lines.append("suspended; `haptera -c` and /resume carry it on")
    elif outcome.signal is not None:
        lines.append("interrupted; what was said until then is kept, go on with `haptera -c`")
    elif result is not None and result.stop_reason not in {"complete", "aborted", "error"}:
        detail = f" ({result.stop_detail})" if result.stop_detail else ""
        lines.append(f"stopped: {result.stop_reason}{detail}")
    return lines
