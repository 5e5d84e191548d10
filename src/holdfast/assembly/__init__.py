"""The composition root: names concrete providers, stores and tools, and builds each block once.

An agent is built in two steps, `configure` and `compose`. What they need is imported when an agent
is made, not when the package is.
"""

from typing import TYPE_CHECKING

from holdfast.assembly.components import Components, ConfigurationSources
from holdfast.vocabulary.json_types import JsonObject

if TYPE_CHECKING:
    from holdfast.assembly.composition import Composition
    from holdfast.assembly.configuration import Configuration


def configure(arguments: JsonObject, sources: ConfigurationSources) -> "Configuration":
    """Return what arguments, environment and the user's file come to."""
    from holdfast.assembly.configuration import Configuration  # noqa: PLC0415 - see above

    return Configuration(arguments, sources)


def compose(components: Components, configuration: "Configuration") -> "Composition":
    """Return the joined blocks of an agent."""
    from holdfast.assembly.composition import Composition  # noqa: PLC0415 - see above

    return Composition(components, configuration)
