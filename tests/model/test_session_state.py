"""SessionState: a conversation as a small versioned value, checked when it comes back."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given

from haptera import AssistantMessage, ConfigError, ErrorCode, SessionState, TextPart, UserMessage
from haptera.model.ids import MessageId
from haptera.model.session_state import check_state
from tests.strategies_values import values_of

A_STATE = SessionState(
    messages=(
        UserMessage(id=MessageId("msg_1"), parts=(TextPart(text="hi"),)),
        AssistantMessage(id=MessageId("msg_2"), parts=(TextPart(text="hello"),)),
    ),
    provider="scripted",
    model="one",
    thinking="low",
    system_prompt="Be brief.",
    exported_at=1_700_000_000_000,
)


@given(values_of(SessionState))
def test_a_state_survives_json(state: SessionState) -> None:
    assert check_state(msgspec.json.decode(msgspec.json.encode(state))) == state


def test_the_version_is_always_spelled_out() -> None:
    written = [json.dumps(SessionState().to_dict()).encode(), msgspec.json.encode(SessionState())]
    assert [json.loads(raw)["version"] for raw in written] == [1, 1]
    assert SessionState().to_dict()["version"] == 1


def test_a_state_without_messages_is_valid() -> None:
    assert check_state({"version": 1, "messages": []}) == SessionState()


def test_a_state_can_be_handed_in_as_a_value_or_as_json() -> None:
    assert check_state(A_STATE) == A_STATE
    assert check_state(json.loads(msgspec.json.encode(A_STATE))) == A_STATE
    assert check_state(json.loads(json.dumps(A_STATE.to_dict()))) == A_STATE


@pytest.mark.parametrize("version", [99, 0, "1", None, 2, True])
def test_another_version_is_refused_by_its_name(version: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        check_state({"version": version, "messages": []})
    assert caught.value.code is ErrorCode.CONFIG_INVALID


def test_the_refusal_names_the_version() -> None:
    with pytest.raises(ConfigError, match="99"):
        check_state(SessionState(version=99))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stored", "named"),
    [
        (b'"text"', "not str; read JSON with json.loads"),
        (b"5", "takes a SessionState, or the dictionary of its to_dict.., not int"),
        (b"{}", "version None"),
        (b'{"version":1,"messages":7}', "messages"),
        (b'{"version":1,"thinking":"hard"}', "thinking"),
        (b'{"version":1,"messages":[{"role":"user","id":"m","parts":[{"type":"?"}]}]}', "parts"),
    ],
)
def test_what_is_wrong_with_a_state_is_named(stored: bytes, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        check_state(json.loads(stored))
    assert caught.value.code is ErrorCode.CONFIG_INVALID
