"""Spending: what sessions have cost, read from their logs, and whether a budget allows more.

The logs are the only record. What was read of a log is remembered by its last `seq`, so that a
check reads only what was appended since the one before.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal

import msgspec

from haptera.model.budgets import Budgets, Spent
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.ids import SessionId
from haptera.model.log.compactions import Compaction
from haptera.model.log.entry import Entry
from haptera.model.log.sessions import SessionOpened
from haptera.model.log.turns import TurnEnded
from haptera.model.usage import Usage
from haptera.model.vendors import split_model
from haptera.ports.model_client import ModelCatalogue
from haptera.ports.session_store import SessionFilter, SessionRecord, Store
from haptera.system.clock import Clock
from haptera.system.logs import scrubbed_logger

_DAY_MS = 86_400_000
_PAGE = 500
# A bound, so that logs which name each other as parents end the search for the root.
_MOST_GENERATIONS = 100
_logger = scrubbed_logger(__name__)


class _Read(msgspec.Struct, kw_only=True):
    """What was read of one log so far."""

    head: int = 0
    days: dict[int, Spent] = msgspec.field(default_factory=dict)
    """By the number of the day since 1970, UTC."""
    spawned_by: SessionId | None = None

    def take(self, entries: Sequence[Entry]) -> None:
        """Count entries that follow those that were read before."""
        for entry in entries:
            self.head = max(self.head, entry.seq)
            if isinstance(entry, SessionOpened):
                self.spawned_by = entry.spawned_by
            elif isinstance(entry, TurnEnded | Compaction) and entry.usage.total:
                day = entry.time // _DAY_MS
                self.days[day] = self.days.get(day, Spent()) + _spent_on(entry)

    @property
    def total(self) -> Spent:
        """What it came to on all days."""
        return sum(self.days.values(), Spent())


class Spending:
    """What the sessions of one owner have spent. Owns only what it remembers of their logs.

    What was rewound counts: it was paid for. A session that was deleted with its log does not.
    """

    def __init__(self, store: Callable[[], Store], *, owner: str, clock: Clock) -> None:
        self._store = store
        self._owner = owner
        self._clock = clock
        self._logs: dict[SessionId, _Read] = {}

    async def of_session(self, session_id: SessionId) -> Spent:
        """Return what a session and all sessions that were started in it have spent.

        For one that was itself started by another, that is the whole family: a child has no budget
        of its own.
        """
        root = session_id
        for _ in range(_MOST_GENERATIONS):
            parent = (await self._read(root)).spawned_by
            if parent is None:
                break
            root = parent
        return await self._of_family(root, seen=set())

    async def _of_family(self, session_id: SessionId, *, seen: set[SessionId]) -> Spent:
        seen.add(session_id)
        spent = (await self._read(session_id)).total
        # Also those that were deleted and whose log is kept for forks: they were paid for.
        for record in await self._browse(SessionFilter(spawned_by=session_id, deleted=None)):
            if record.id not in seen:
                spent += await self._of_family(record.id, seen=seen)
        return spent

    async def of_owner(self) -> Spent:
        """Return what all sessions of the owner have spent."""
        records = await self._browse(SessionFilter(deleted=None))
        return sum([(await self._read_to(record)).total for record in records], Spent())

    async def of_day(self) -> Spent:
        """Return what they have spent today."""
        today = self._clock.time_ms() // _DAY_MS
        # A session without an entry of today has spent nothing today.
        # One less, because the bound itself does not count.
        matching = SessionFilter(deleted=None, updated_after=today * _DAY_MS - 1)
        reads = [await self._read_to(record) for record in await self._browse(matching)]
        return sum((read.days.get(today, Spent()) for read in reads), Spent())

    async def _browse(self, matching: SessionFilter) -> list[SessionRecord]:
        found: list[SessionRecord] = []
        after: SessionId | None = None
        while True:
            page = await self._store().index.browse(
                self._owner, None, matching=matching, limit=_PAGE, after=after
            )
            found += page
            if len(page) < _PAGE:
                return found
            after = page[-1].id

    async def _read_to(self, record: SessionRecord) -> _Read:
        known = self._logs.get(record.id)
        # The index knows how long a log is: one that has not grown is not read.
        if known is not None and known.head >= record.head:
            return known
        return await self._read(record.id)

    async def _read(self, session_id: SessionId) -> _Read:
        known = self._logs.setdefault(session_id, _Read())
        entries = await self._store().log.read(session_id, after=known.head)
        # Another check may have read the same entries meanwhile.
        known.take([entry for entry in entries if entry.seq > known.head])
        return known


class SpendingCheck:
    """Says before each call of a model whether the budgets of an agent allow it.

    - What was spent is read from the log, so it is the same for every process that asks.
    - An unknown price is never taken for zero: it is refused, or said.
    """

    def __init__(self, budgets: Budgets, spending: Spending, *, catalogue: ModelCatalogue) -> None:
        self._budgets = budgets
        self._spending = spending
        self._catalogue = catalogue
        self._warned: set[str] = set()

    def if_needed(self) -> "SpendingCheck | None":
        """Return this check; None when nothing is limited."""
        return None if self._budgets.is_empty else self

    async def refusal(self, session_id: SessionId, model: str) -> str | None:
        """Return which budget is used up, as `day_cost=5: 5.02 spent`; None to go on.

        Raises:
            ConfigError: CONFIG_MISSING when a budget in US dollars meets a model without a price.

        """
        budgets = self._budgets
        if budgets.has_costs:
            self._check_price(model)
        checks = (
            ("session", (budgets.session_cost, budgets.session_tokens)),
            ("day", (budgets.day_cost, budgets.day_tokens)),
            ("owner", (budgets.owner_cost, budgets.owner_tokens)),
        )
        for name, (cost, tokens) in checks:
            if cost is None and tokens is None:
                continue
            spent = await self._spent(name, session_id)
            # By its text: the exact value of a float such as 0.1 is not the number that the user
            # wrote.
            if cost is not None and spent.cost >= Decimal(str(cost)):
                return f"{name}_cost={cost:g}: {_dollars(spent)} spent"
            if tokens is not None and spent.tokens >= tokens:
                return f"{name}_tokens={tokens}: {spent.tokens} used"
        return None

    async def remaining(self, session_id: SessionId) -> Budgets:
        """Return the budgets of a session less what was spent, for what it starts."""
        budgets, left = self._budgets, dict[str, float | int]()
        for name in ("session", "day", "owner"):
            cost: float | None = getattr(budgets, f"{name}_cost")
            tokens: int | None = getattr(budgets, f"{name}_tokens")
            if cost is None and tokens is None:
                continue
            spent = await self._spent(name, session_id)
            if cost is not None:
                left[f"{name}_cost"] = max(0.0, float(Decimal(str(cost)) - spent.cost))
            if tokens is not None:
                left[f"{name}_tokens"] = max(0, tokens - spent.tokens)
        return msgspec.structs.replace(budgets, **left)

    async def _spent(self, name: str, session_id: SessionId) -> Spent:
        if name == "session":
            return await self._spending.of_session(session_id)
        return await (self._spending.of_day() if name == "day" else self._spending.of_owner())

    def _check_price(self, model: str) -> None:
        provider, name = split_model(model)
        # Any usage will do: only whether there is a price matters.
        price = self._catalogue.cost(provider, name, Usage(input=1, output=1))
        if price is not None or model in self._warned:
            return
        if self._budgets.unknown_price == "refuse":
            raise ConfigError(
                ErrorCode.CONFIG_MISSING,
                f"there is a budget in US dollars, and the price of {model} is not known: give its "
                "price in the configuration file, limit tokens, or set unknown_price to 'allow'",
            )
        self._warned.add(model)
        _logger.warning("the price of %s is not known; its calls count for no cost budget", model)


def _spent_on(ended: TurnEnded | Compaction) -> Spent:
    is_known = ended.cost is not None
    return Spent(
        cost=ended.cost or Decimal(0), tokens=ended.usage.total, unpriced=0 if is_known else 1
    )


def _dollars(spent: Spent) -> str:
    unknown = f" and {spent.unpriced} calls of unknown price" if spent.unpriced else ""
    return f"{spent.cost.normalize():f}{unknown}"
