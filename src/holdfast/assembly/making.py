"""Making: reads configuration and joins blocks when an agent is made, not when it is imported."""

from typing import TYPE_CHECKING

from holdfast.assembly.configuration_places import ConfigurationPlaces
from holdfast.assembly.ingredients import Ingredients
from holdfast.vocabulary.json_types import JsonObject

if TYPE_CHECKING:
    from holdfast.assembly.composition import Composition
    from holdfast.assembly.configuration import Configuration


def configure(arguments: JsonObject, places: ConfigurationPlaces) -> "Configuration":
    """Return what arguments, environment and the user's file come to."""
    from holdfast.assembly.configuration import Configuration  # noqa: PLC0415 - see above

    return Configuration(arguments, places)


def compose(ingredients: Ingredients, configuration: "Configuration") -> "Composition":
    """Return the joined blocks of an agent."""
    from holdfast.assembly.composition import Composition  # noqa: PLC0415 - see above

    return Composition(ingredients, configuration)
