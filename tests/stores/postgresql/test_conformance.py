"""The PostgreSQL store keeps every promise of the store ports."""

import pytest

from holdfast.stores.postgresql.store import PostgresStore
from holdfast.testing.store_conformance import CHECKS
from holdfast.testing.store_conformance.runner import Check
from holdfast.testing.store_conformance.samples import OWNER
from tests.stores.postgresql.server import APP_ROLE, PostgresServer

OTHER_OWNERS = {
    "check_owners_and_projects_are_kept_apart",
    "check_falsy_values_come_back",
    "check_search_stays_with_its_owner_and_project",
}
"""Checks that open sessions of several owners through one store, which one that is bound to an
owner refuses."""

_NAMES = {check.__name__: check for check in CHECKS}
_BOUND = [check for name, check in _NAMES.items() if name not in OTHER_OWNERS]


def _id(check: Check) -> str:
    return check.__name__.removeprefix("check_")


@pytest.mark.parametrize("check", CHECKS, ids=_id)
async def test_a_store_for_all_owners_keeps_its_promise(
    check: Check, postgres: PostgresServer, database: str
) -> None:
    await check(lambda: PostgresStore(postgres.url(database)))


@pytest.mark.parametrize("check", _BOUND, ids=_id)
async def test_a_store_bound_to_one_owner_keeps_its_promise(
    check: Check, postgres: PostgresServer, database: str
) -> None:
    url = postgres.url(database, role=APP_ROLE)
    await check(lambda: PostgresStore(url, owner=OWNER))
