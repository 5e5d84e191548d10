"""What the mock provider should answer, encoded in a model name so that any SDK can carry it."""

import re
from dataclasses import asdict, dataclass
from typing import Literal, get_args

Api = Literal["anthropic", "chat", "responses"]
APIS: tuple[Api, ...] = get_args(Api)

_PREFIX = "bench"
_FIELD = re.compile(r"-([a-z]+)(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One answer of the mock provider; `None` means that the field plays no part."""

    deltas: int = 20
    """Text deltas in the answer."""
    size: int = 8
    """Characters of text in each delta."""
    tools: int = 0
    """Tool calls that each prompt is answered with, one a request, before the text."""
    delay: int = 0
    """Microseconds between two deltas; 0 sends the whole answer in one write."""
    status: int | None = None
    """An HTTP error status that is sent instead of an answer."""
    retry: int | None = None
    """Seconds in the Retry-After header of that error."""
    cut: int | None = None
    """Bytes of the answer's body after which the connection is closed."""
    stall: int | None = None
    """Bytes of the answer's body after which nothing more is sent."""
    failing: int | None = None
    """How many first requests of this very model name meet the fault; `None` means every one."""
    tag: int | None = None
    """Any number: makes two equal scripts two model names, so that `failing` counts apart."""

    @property
    def model(self) -> str:
        """The model name that carries this script."""
        fields = ((name, value) for name, value in asdict(self).items() if value is not None)
        return _PREFIX + "".join(f"-{name}{value}" for name, value in fields)

    @property
    def characters(self) -> int:
        """How much text a whole answer holds."""
        return self.deltas * self.size

    @property
    def is_faulty(self) -> bool:
        """Whether the answer is anything but a whole reply."""
        return (self.status, self.cut, self.stall) != (None, None, None)


def parse_model(model: str) -> Script:
    """Read the script out of a model name; an unknown name gives the default answer.

    Raises:
        TypeError: the name holds a field that `Script` does not have.

    """
    if not model.startswith(_PREFIX):
        return Script()
    return Script(**{name: int(value) for name, value in _FIELD.findall(model)})
