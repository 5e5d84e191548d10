"""Secrets come from where the file says they are, when a request needs them."""

import sys

import pytest

from haptera.access.config.connections import key_source
from haptera.access.config.environment import Environment
from haptera.access.config.schema import KeyReference
from haptera.model.errors import AgentError, ConfigError, ErrorCode
from haptera.system.token_source import Origin

ORIGIN = Origin(scheme="https", host="models.example", port=443)
NOWHERE = Environment({})


class FakeKeyring:
    def get_password(self, service_name: str, username: str) -> str | None:
        return {("team/house", "ana"): "from the keyring"}.get((service_name, username))


async def test_a_key_is_read_from_the_environment_for_each_request() -> None:
    variables = {"HOUSE_KEY": "first"}
    source = key_source(KeyReference(env="HOUSE_KEY"), environment=Environment(variables))
    assert (await source.token(ORIGIN)).reveal() == "first"
    variables["HOUSE_KEY"] = "second-key"
    assert (await source.token(ORIGIN)).reveal() == "second-key"


async def test_a_variable_that_is_not_set_is_named() -> None:
    source = key_source(KeyReference(env="HOUSE_KEY"), environment=NOWHERE)
    with pytest.raises(AgentError, match="HOUSE_KEY") as caught:
        await source.token(ORIGIN)
    assert caught.value.code is ErrorCode.CONFIG_MISSING


async def test_a_key_is_printed_by_a_command() -> None:
    command = (sys.executable, "-c", "print('from a command')")
    source = key_source(KeyReference(command=command), environment=NOWHERE)
    assert (await source.token(ORIGIN)).reveal() == "from a command"


async def test_a_key_is_taken_from_the_keyring() -> None:
    reference = KeyReference(keyring="team/house/ana")
    source = key_source(reference, environment=NOWHERE, keyring=FakeKeyring)
    assert (await source.token(ORIGIN)).reveal() == "from the keyring"


async def test_a_keyring_without_the_key_is_an_error() -> None:
    reference = KeyReference(keyring="house/missing")
    source = key_source(reference, environment=NOWHERE, keyring=FakeKeyring)
    with pytest.raises(AgentError) as caught:
        await source.token(ORIGIN)
    assert caught.value.code is ErrorCode.AUTH


def test_a_keyring_that_is_not_installed_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(ConfigError, match=r"package 'keyring' is not installed"):
        key_source(KeyReference(keyring="house/ana"), environment=NOWHERE)
