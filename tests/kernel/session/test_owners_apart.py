"""Owners and projects are apart: another one's session is not found, by name or by id."""

from pathlib import Path

import pytest

from haptera import Agent
from haptera.model.errors import ErrorCode, SessionError
from haptera.ports.session_store import Store
from tests.kernel.session.echo_provider import EchoProvider
from tests.stores.durable_kinds import durable_kind
from tests.stores.store_factories import DURABLE, open_store

NAME = "diary"


def _agent(store: Store, owner: str = "ana", project: str = "house") -> Agent:
    return Agent(
        "scripted/small", providers=[EchoProvider()], store=store, owner=owner, project=project
    )


async def _refused(agent: Agent, reference: str) -> ErrorCode:
    with pytest.raises(SessionError) as raised:
        await agent.session(reference).chat("What did she say?")
    return raised.value.code


@pytest.mark.parametrize(("owner", "project"), [("bob", "house"), ("ana", "garden")])
@pytest.mark.parametrize("kind", ["memory", *DURABLE])
async def test_a_session_of_another_owner_or_project_cannot_be_opened_by_its_id(
    kind: str, owner: str, project: str, tmp_path: Path
) -> None:
    store = open_store(kind, tmp_path)
    async with _agent(store) as agent, _agent(store, owner, project) as other:
        async with agent.session(NAME) as session:
            await session.chat("a secret")
            session_id = session.session_id
            assert session_id is not None
            # The error does not tell whether it is held, either.
            assert await _refused(other, session_id) is ErrorCode.NOT_FOUND
        assert await _refused(other, session_id) is ErrorCode.NOT_FOUND
        async with agent.session(session_id) as session:
            assert session.messages[0].text == "a secret"
            assert len(session.messages) == 2
    await store.close()


@pytest.mark.parametrize("is_rebuilt", [False, True])
@pytest.mark.parametrize("kind", DURABLE)
async def test_a_session_whose_first_entry_is_damaged_stays_with_its_owner(
    kind: str, is_rebuilt: bool, tmp_path: Path
) -> None:
    store = open_store(kind, tmp_path)
    async with _agent(store) as agent, agent.session(NAME) as session:
        await session.chat("a secret")
        session_id = session.session_id
        assert session_id is not None
    await store.close()
    log = durable_kind(kind).log(tmp_path, session_id)
    assert b'"session.opened"' in log.read_bytes()
    log.write_bytes(log.read_bytes().replace(b'"session.opened"', b'"session.op\0ned"'))

    store = open_store(kind, tmp_path)
    if is_rebuilt:
        assert await store.index.rebuild() == 1
    async with _agent(store) as agent, _agent(store, "bob") as other:
        assert await _refused(other, session_id) is ErrorCode.NOT_FOUND
        async with agent.session(NAME) as session:
            assert session.session_id == session_id
            assert session.messages[0].text == "a secret"
            assert session.settings.model == "scripted/small"
            assert (await session.chat("next")).text == "echo next"
        async with agent.session(session_id, must_exist=True) as session:
            assert len(session.messages) == 4
    assert len(await store.log.inspect(session_id)) == 1
    await store.close()
