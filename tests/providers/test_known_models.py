"""The user's own facts go before the catalogue's."""

from decimal import Decimal

from haptera.kernel.blocks.pricing import Price, Rates
from haptera.model.usage import Usage
from haptera.ports.model_client import ModelCatalogue
from haptera.providers.catalogue import CatalogueFile, KnownModels

CONTENT = b"""{"source": "s", "providers": {"p": {"models": [
["m", null, 1000, [[[1, 2]], [[3, 4], null, "2026-01-01"]]]
]}}}"""
NEW_YEAR_MS = 1_767_225_600_000
MILLION = Usage(input=1_000_000)


class StoppedClock:
    def __init__(self, time_ms: int) -> None:
        self._time_ms = time_ms

    def now(self) -> float:
        return 0.0

    def time_ms(self) -> int:
        return self._time_ms

    async def sleep(self, seconds: float) -> None:
        raise AssertionError


def known(*, at_ms: int = 0, own: Decimal | None = None) -> ModelCatalogue:
    rates = Rates(input=own, output=own)
    return KnownModels(
        catalogue=CatalogueFile(CONTENT),
        clock=StoppedClock(at_ms),
        prices={"p/m": (Price(rates=rates),)} if own is not None else None,
        windows={"p/m": 5000, "house/x": 77} if own is not None else None,
        same_as={"mine": "p"},
    )


def test_the_price_is_the_one_of_the_moment() -> None:
    assert known(at_ms=NEW_YEAR_MS - 1).cost("p", "m", MILLION) == 1
    assert known(at_ms=NEW_YEAR_MS).cost("p", "m", MILLION) == 3


def test_own_prices_and_windows_go_first() -> None:
    models = known(own=Decimal("0.5"))
    assert models.cost("p", "m", MILLION) == Decimal("0.5")
    assert models.context_window("p", "m") == 5000
    assert models.context_window("house", "x") == 77
    assert known().context_window("p", "m") == 1000


def test_of_an_unknown_model_nothing_is_known() -> None:
    models = known()
    assert models.cost("q", "m", MILLION) is None
    assert models.context_window("q", "m") is None


def test_a_provider_under_another_name_has_the_facts_of_the_one_it_is() -> None:
    models = known()
    assert models.cost("mine", "m", MILLION) == 1
    assert models.context_window("mine", "m") == 1000
