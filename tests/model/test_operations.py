"""Operations: each has one struct, one handler and one method of a face; stored ones are read."""

import inspect
from collections import Counter
from collections.abc import Iterator
from typing import get_args

import msgspec
import pytest

from haptera import AgentRemote, AgentSession, AgentSessions
from haptera.access import changing, finding, maintenance, sharing, transfer
from haptera.formats.formats import ARCHIVE, WRITTEN_FORMATS
from haptera.kernel.session import command_effects, conversation_effects
from haptera.model.operations.held import HeldOperation
from haptera.model.operations.operation import HANDLERS, Operation, SessionCommand, handles
from haptera.model.operations.session import AnsweredCommand, Command, RewindSession
from haptera.model.operations.sessions import ExportSession
from haptera.options.operations import given_fields
from haptera.stores.stored_records import decode_command

HANDLING = (
    command_effects,
    conversation_effects,
    finding,
    changing,
    maintenance,
    sharing,
    transfer,
)


def operations(kind: type[Operation] = Operation) -> Iterator[type[Operation]]:
    """Yield every operation: a struct with facts of its own."""
    for each in kind.__subclasses__():
        if "facts" in vars(each):
            yield each
        yield from operations(each)


EACH = pytest.mark.parametrize("kind", list(operations()), ids=lambda kind: kind.__name__)


def test_every_operation_has_exactly_one_handler() -> None:
    assert set(HANDLERS) == set(operations())
    assert {each.__module__ for each in HANDLERS.values()} == {each.__name__ for each in HANDLING}
    with pytest.raises(TypeError, match="RewindSession has a handler already"):
        handles(RewindSession)(command_effects.rewind)


@EACH
def test_a_handler_takes_its_operation_and_knows_no_surface(kind: type[Operation]) -> None:
    parameters = list(inspect.signature(HANDLERS[kind]).parameters.values())
    assert parameters[1].annotation is kind
    assert HANDLERS[kind].__module__.split(".")[1] in {"kernel", "access"}


@EACH
def test_the_method_of_a_face_takes_the_fields_of_its_operation(kind: type[Operation]) -> None:
    faces: tuple[type, ...] = (AgentSessions,)
    if issubclass(kind, SessionCommand):
        faces = (AgentSession, AgentRemote)
    elif issubclass(kind, HeldOperation):
        faces = (AgentSession,)
    for face in faces:
        method = getattr(face, kind.facts.face, None)
        if kind.facts.by_hand:  # it prepares what is told, or another class has it
            continue
        taken = list(inspect.signature(method).parameters.values())[1:] if method else []
        assert [each.name for each in taken] == list(given_fields(kind))
        assert inspect.getdoc(method), kind


@EACH
def test_every_field_of_a_method_that_is_made_has_its_sentence(kind: type[Operation]) -> None:
    silent = [name for name, each in given_fields(kind).items() if not each.option.sentence]
    assert kind.facts.by_hand or silent == []


def test_no_two_operations_have_one_tag() -> None:
    tags = Counter(str(kind.__struct_config__.tag) for kind in operations())
    assert [tag for tag, count in tags.items() if count > 1] == []


WAITING_IN_0_1 = (
    b'{"kind":"abort","id":"cmd_1"}',
    b'{"kind":"abort","id":"cmd_1","by":"ana","reason":"late","query_id":"qry_1"}',
    b'{"kind":"prompt","id":"cmd_2","input_id":"inp_1","message":{"role":"user","id":"msg_1",'
    b'"parts":[{"type":"text","text":"hi"}]},"delivery":"steer","once":true}',
    b'{"kind":"approve","id":"cmd_3","by":"ana","approval_id":"apr_1","arguments":{"path":"a"},'
    b'"scope":"session","feedback":"ok"}',
    b'{"kind":"deny","id":"cmd_4","approval_id":"apr_1","reason":"no"}',
    b'{"kind":"change","id":"cmd_5","changes":{"title":"T"}}',
    b'{"kind":"rewind","id":"cmd_6","to":"msg_1","files":true,"dry_run":true,"force":true}',
    b'{"kind":"rewind","id":"cmd_6","to":"msg_1"}',
    b'{"kind":"undo_rewind","id":"cmd_7","force":true}',
    b'{"kind":"compact","id":"cmd_8","instructions":"xxx"}',
    b'{"kind":"configure","id":"cmd_9","settings":{"temperature":0.5}}',
)
"""Commands as version 0.1 has put them into inboxes."""


@pytest.mark.parametrize("body", WAITING_IN_0_1, ids=lambda body: body[:24].decode())
def test_a_command_that_waits_since_version_0_1_is_read(body: bytes) -> None:
    command = decode_command(body)
    assert command is not None
    assert msgspec.json.encode(command) == body
    assert isinstance(command, Command)


def test_what_a_store_may_hold_is_not_bounded_by_what_clients_may_send() -> None:
    """A text that HTTP would refuse was put there by a program: it is carried out."""
    told = {"kind": "rewind", "id": "cmd_1", "to": "m" * 1000}
    assert decode_command(msgspec.json.encode(told)) is not None
    told = {"kind": "compact", "id": "cmd_1", "instructions": "x" * 10_000}
    assert decode_command(msgspec.json.encode(told)) is not None


def test_every_command_can_wait_in_an_inbox_and_has_an_end_where_its_sender_waits() -> None:
    commands = set(operations(SessionCommand))
    assert set(get_args(Command)) == commands
    assert set(get_args(AnsweredCommand)) == {kind for kind in commands if kind.facts.waits}
    assert RewindSession in get_args(AnsweredCommand)


def test_the_formats_of_exports_are_those_that_there_are() -> None:
    sentence = given_fields(ExportSession)["to"].option.sentence
    assert sentence == f"The format: {', '.join((ARCHIVE, *WRITTEN_FORMATS))}."
    assert given_fields(ExportSession)["to"].default == ARCHIVE
