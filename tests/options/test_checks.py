"""Options that were given are checked against their declarations, whichever function takes them."""

import pickle
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest

from haptera import ConfigError, ErrorCode
from haptera.model.option import Option
from haptera.options.checks import UnknownOptionError, check, check_names, checked
from haptera.options.declarations import ELSEWHERE, options_of


class Brush(msgspec.Struct, frozen=True, kw_only=True):
    """A struct whose fields are options."""

    width: Annotated[int, Option("How wide it is.", least=1, most=9)] = 3
    hairs: Annotated[str, Option("What it is made of.", fits=str.islower, wanted="a word")] = "hog"


class PaintOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `paint` may be told."""

    colour: Annotated[Literal["red", "blue"], Option("What is painted.")] = "red"
    layers: Annotated[list[str], Option("What is below.")] = msgspec.field(default_factory=list)
    place: Annotated[str, Option("Where it is painted.", shown="<the wall>")] = ""
    brush_width: Annotated[int, Option(of=Brush, field="width")] = ELSEWHERE
    hairs: Annotated[str, Option(of=Brush)] = ELSEWHERE


ROUND: list[object] = []
ROUND.append(ROUND)


def paint(**options: Any) -> PaintOptions:
    return checked(options, PaintOptions, function="paint()")


def test_what_was_not_given_has_its_default() -> None:
    first, second = paint(), paint(colour="blue", place="shelf")
    assert (first.colour, first.layers) == ("red", [])
    assert (second.colour, second.layers, second.place) == ("blue", [], "shelf")
    first.layers.append("primer")
    assert second.layers == []


def test_an_option_that_is_a_field_has_the_sentence_default_and_bounds_of_the_field() -> None:
    width, hairs = options_of(PaintOptions)["brush_width"], options_of(PaintOptions)["hairs"]
    assert (width.option.sentence, width.default, width.option.field) == (
        "How wide it is.",
        3,
        "width",
    )
    assert (hairs.option.wanted, hairs.default, hairs.option.field) == ("a word", "hog", "hairs")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"colour": "blu"}, "'colour' is not valid: 'blu' is not allowed (did you mean 'blue'?)"),
        ({"colour": 5}, "option 'colour' is not valid: "),
        ({"layers": "primer"}, "option 'layers' is not valid: "),
        ({"layers": [b"primer"]}, "option 'layers' is not valid: Expected `str`, got `bytes`"),
        ({"layers": "\ud800"}, "option 'layers' is not valid: "),
        ({"layers": ROUND}, "option 'layers' is not valid: it is nested too deeply"),
        ({"place": b"shelf"}, "option 'place' is not valid: Expected `str`, got `bytes`"),
        ({"place": UUID(int=7)}, "option 'place' is not valid: Expected `str`, got `uuid`"),
        ({"brush_width": 0}, "option 'brush_width' must be 1 to 9, not 0"),
        ({"brush_width": 10**400}, "'brush_width' must be 1 to 9, not a number with so many"),
        ({"hairs": "HOG"}, "option 'hairs' must be a word, not str"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_with_the_names_of_function_and_option(
    given: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check(given, PaintOptions, function="paint()")
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert caught.value.message.startswith("paint(): option ")
    assert told in caught.value.message


@pytest.mark.parametrize("kind", [UnknownOptionError, ConfigError, TypeError])
def test_an_unknown_option_is_a_wrong_configuration_and_a_type_error(
    kind: type[Exception],
) -> None:
    with pytest.raises(kind, match=r"paint\(\): color is unknown; did you mean 'colour'\?"):
        paint(color="red")


def test_an_unknown_option_can_be_told_where_it_belongs() -> None:
    def elsewhere(name: str) -> str | None:
        return f"{name} is for ladders" if name == "rungs" else None

    with pytest.raises(UnknownOptionError) as caught:
        check_names(["rungs", "size"], PaintOptions, function="paint()", elsewhere=elsewhere)
    assert caught.value.message == "paint(): rungs is for ladders; size is unknown"


def test_the_error_of_an_unknown_option_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(UnknownOptionError("paint(): size is unknown")))  # noqa: S301 - our own
    assert (type(error), error.code) == (UnknownOptionError, ErrorCode.CONFIG_INVALID)
    assert error.message == "paint(): size is unknown"
