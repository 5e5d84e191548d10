"""A search in PostgreSQL finds what it finds in memory, in every script."""

from haptera.stores.memory import MemoryStore
from haptera.stores.postgresql.store import PostgresStore
from tests.samples import sampled
from tests.stores.postgresql.server import PostgresServer
from tests.stores.test_search import find_the_same


@sampled(40, 600)
async def test_the_same_texts_are_found_as_in_memory(
    postgres: PostgresServer, database: str, sample: int
) -> None:
    await find_the_same([MemoryStore(), PostgresStore(postgres.url(database))], sample)
