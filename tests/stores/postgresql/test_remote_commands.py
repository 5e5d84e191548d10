"""A session that another node holds can be rewound, compacted, configured and forked."""

from collections.abc import Awaitable, Callable

import pytest

from haptera.stores.postgresql.store import PostgresStore
from tests.kernel.session.remote_scenarios import SCENARIOS, OpenStore
from tests.stores.postgresql.server import APP_ROLE, PostgresServer


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_session_of_another_node_can_be_changed(
    scenario: Callable[[OpenStore], Awaitable[None]],
    postgres: PostgresServer,
    emptied_database: str,
) -> None:
    url = postgres.url(emptied_database, role=APP_ROLE)
    await scenario(lambda: PostgresStore(url, owner="ana"))
