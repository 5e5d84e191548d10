"""What an agent knows of its models: the user's own facts first, then the catalogue's."""

from collections.abc import Mapping
from decimal import Decimal

from holdfast.blocks.pricing import PriceList, Pricing
from holdfast.ports.clock import Clock
from holdfast.providers.catalogue import Catalogue, ModelFacts
from holdfast.vocabulary.usage import Usage


class KnownModels:
    """The model catalogue of one agent; a `ModelCatalogue`.

    `prices` and `windows` are the user's own, by `provider/model`. `same_as` says of providers
    under names of the user's own which known provider they are.
    """

    def __init__(
        self,
        *,
        catalogue: Catalogue,
        clock: Clock,
        prices: Mapping[str, PriceList] | None = None,
        windows: Mapping[str, int] | None = None,
        same_as: Mapping[str, str] | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._clock = clock
        self._pricing = Pricing(known=self._known_prices, own=prices)
        self._windows = dict(windows or {})
        self._same_as = dict(same_as or {})

    def cost(self, provider: str, model: str, usage: Usage) -> Decimal | None:
        """Return what a call made now costs in US dollars; None if a price is not known."""
        name = f"{provider}/{model}"
        return self._pricing.cost(usage, model=name, at_ms=self._clock.time_ms())

    def context_window(self, provider: str, model: str) -> int | None:
        """Return how many tokens a model can hold; None if that is not known."""
        own = self._windows.get(f"{provider}/{model}")
        facts = self.facts(provider, model)
        return own or (facts.context_window if facts is not None else None)

    def facts(self, provider: str, model: str) -> ModelFacts | None:
        """Return everything that the catalogue knows of a model."""
        return self._catalogue.find(self._same_as.get(provider, provider), model)

    def _known_prices(self, provider: str, model: str) -> PriceList | None:
        return self._catalogue.prices(self._same_as.get(provider, provider), model)
