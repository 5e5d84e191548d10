"""`stream.partial()`: the output as it grows, for every kind of type, in time in proportion."""

import datetime
import enum
import time
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, NotRequired, TypedDict, TypeVar

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptera import AbortController, AgentError, AgentSession, ConfigError, ErrorCode, sync, tool
from haptera.agent.growing_output import NOTHING, GrowingValue, shape_of
from haptera.agent.outputs import output_spec
from haptera.system.clock import SystemClock
from haptera.testing import FakeClock, ScriptedProvider, calls, says
from haptera.testing.scripted_provider import Step
from tests.scripted_agents import playing

ItemT = TypeVar("ItemT")


class City(msgspec.Struct):
    name: str
    people: int = 0


class Strict(msgspec.Struct, rename="camel"):
    long_name: str

    def __post_init__(self) -> None:
        if len(self.long_name) < 3:
            raise ValueError("too short")


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    tags: list[str] = field(default_factory=list)


class Street(TypedDict):
    name: str
    length: NotRequired[int]


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    name: str = pydantic.Field(alias="Name", min_length=3)
    points: list[Point] = []


class Numbers(pydantic.RootModel[list[int]]):
    pass


class Tree(msgspec.Struct):
    name: str
    below: list["Tree"] = []


@dataclass
class Leaf:
    weight: int


@dataclass
class Branch:
    left: "Branch | Leaf"
    name: str = ""


@dataclass
class Box(Generic[ItemT]):
    item: ItemT


class Cat(msgspec.Struct, tag="cat"):
    name: str = ""


class Dog(msgspec.Struct, tag="dog"):
    name: str = ""


@dataclass
class Circle:
    kind: Literal["circle"]
    size: int = 0


@dataclass
class Square:
    kind: Literal["square"]
    size: int = 0


class Colour(enum.Enum):
    RED = "red"
    REDDER = "redder"


async def shown(session: AgentSession, clock: FakeClock | None, **options: Any) -> list[Any]:
    """Return what a stream shows of an output; with a clock, time enough passes for each."""
    values: list[Any] = []
    async for value in session.stream("go", **options).partial():
        values.append(value)
        if clock is not None:
            clock.advance(0.05)
    return values


async def play(steps: list[Step], **options: Any) -> list[Any]:
    """Return what is shown of an output whose deltas come 50 ms apart."""
    clock = FakeClock()
    # A buffer of none: each delta waits until the one before it was looked at.
    async with playing(steps, clock=clock, runtime={"buffer_size": 0}) as (session, _):
        return await shown(session, clock, **options)


def values_of(hint: Any, *texts: str) -> list[Any]:
    """Return the value after each piece of an answer."""
    growing = GrowingValue(shape_of(hint))
    values: list[Any] = []
    for text in texts:
        growing.feed(text)
        values.append(growing.value())
    return values


@pytest.mark.parametrize(
    ("hint", "texts", "values"),
    [
        (City, ["{", '"name": "Pa', 'ris", "people": 2', "0}"],
         [City(None), City("Pa"), City("Paris"), City("Paris", 20)]),  # type: ignore[arg-type]
        (Strict, ["{", '"longName": "a', 'bc"}'], [NOTHING, NOTHING, Strict("abc")]),
        (Point, ["{", '"tags": ["a', '", "b"', '], "x": 3}'],
         [Point(None), Point(None, ["a"]), Point(None, ["a", "b"]), Point(3, ["a", "b"])]),  # type: ignore[arg-type]
        (Street, ["{", '"name": "R', '"}'], [{}, {"name": "R"}, {"name": "R"}]),
        (list[City], ["[", '{"name":"a"}', ', {"name":"b', '"}]'],
         [[], [City("a")], [City("a"), City("b")], [City("a"), City("b")]]),
        (tuple[int, str], ["[", "1,", '"a', '"]'], [(None, None), (1, None), (1, "a"), (1, "a")]),
        (tuple[int, ...], ["[1", ",2", "]"], [(), (1,), (1, 2)]),
        (set[int], ["[1,", "2,2]"], [{1}, {1, 2}]),
        (dict[str, int], ['{"a": 1', ', "b": 2', "}"], [{}, {"a": 1}, {"a": 1, "b": 2}]),
        (dict[int, str], ['{"1": "a', '"}'], [NOTHING, {1: "a"}]),
        (Colour, ['"red', 'der"'], [NOTHING, Colour.REDDER]),
        (Literal["a", "ab"], ['"a', 'b"'], [NOTHING, "ab"]),
        (datetime.date, ['"2026-01-0', '3"'], [NOTHING, datetime.date(2026, 1, 3)]),
        (City | None, ["{", '"name": "a"}'], [City(None), City("a")]),  # type: ignore[arg-type]
        (list[str | None], ['["a', '", null', "]"], [["a"], ["a"], ["a", None]]),
        (Street | City, ['{"name": "a', '", "people": 3}'], [{"name": "a"}, City("a", 3)]),
        (Cat | Dog, ['{"type": "dog"', ', "name": "R'], [Dog(), Dog("R")]),
        (list[Circle | Square], ['[{"kind": "square', '", "size": 3'],
         [[Circle(None)], [Square("square")]]),  # type: ignore[arg-type]
        (Annotated[str, msgspec.Meta(min_length=3)], ['"ab', 'c"'], ["ab", "abc"]),
        (Any, ['{"a": [1, {"b": "c', '"}]}'], [{"a": [1, {"b": "c"}]}, {"a": [1, {"b": "c"}]}]),
        (list[int], ['{"a": 1}'], [NOTHING]),
        (City, ["[1]"], [NOTHING]),
        (Numbers, ["[1, 2", "]"], [NOTHING, Numbers([1, 2])]),
        (Tree, ['{"name": "a", "below": [{"name": "b', '"}, {"name": "c"}]}'],
         [Tree("a", [Tree("b")]), Tree("a", [Tree("b"), Tree("c")])]),
        (Box[City], ['{"item": {"name": "a"}'], [Box({"name": "a"})]),
    ],
    ids=str,
)  # fmt: skip
def test_the_value_has_what_is_there(hint: Any, texts: list[str], values: list[Any]) -> None:
    assert values_of(hint, *texts) == values


def test_a_model_has_what_is_there_and_none_of_it_is_validated() -> None:
    begun, grown = values_of(Model, "{", '"Name": "P", "points": [{"x": 1}')
    assert (begun.name, begun.points) == (None, [])
    assert (grown.name, grown.points) == ("P", [Point(1)])


def test_a_value_that_was_shown_does_not_change() -> None:
    texts = ['{"a": [[1', ",2", "], [3", '], "x"', ", 4]}"]
    growing = GrowingValue(shape_of(dict[str, list[Any]]))
    values: list[Any] = []
    copies: list[bytes] = []
    for text in texts:
        growing.feed(text)
        values.append(growing.value())
        copies.append(msgspec.json.encode(values[-1]))
    assert [msgspec.json.encode(value) for value in values] == copies
    assert len(set(copies)) == len(copies)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=10,
)
_PLAIN = st.lists(_JSON, max_size=3) | st.dictionaries(st.text(max_size=2), _JSON, max_size=3)


@given(value=_PLAIN, step=st.integers(1, 5), every=st.integers(1, 4))
def test_the_last_value_is_the_whole_one_however_often_it_is_looked_at(
    value: object, step: int, every: int
) -> None:
    text = msgspec.json.encode(value).decode()
    growing = GrowingValue(shape_of(Any))
    for count, place in enumerate(range(0, len(text), step)):
        growing.feed(text[place : place + step])
        if count % every == 0:
            growing.value()
    assert growing.value() == value


@pytest.mark.parametrize(
    ("hint", "text", "last"),
    [
        (City, '{"name":"Paris","people":2}', City("Paris", 2)),
        (list[City], '{"value":[{"name":"a"},{"name":"b"}]}', [City("a"), City("b")]),
        (int | None, '{"value":null}', None),
        (dict[str, int], '{"value":1}', {"value": 1}),
        (Branch, '{"left":{"left":{"weight":1},"name":"in"}}', Branch(Branch(Leaf(1), "in"))),
        (str, "Paris", "Paris"),
    ],
    ids=str,
)
async def test_values_grow_and_the_last_one_is_that_of_the_result(
    hint: Any, text: str, last: Any
) -> None:
    values = await play([says(*text)], output_type=hint)
    assert values[-1] == last
    assert all(type(value) is type(last) for value in values)


async def test_a_value_is_shown_at_most_every_50_ms_and_at_the_end() -> None:
    text = '{"name":"' + "x" * 500 + '"}'
    async with playing([says(*text)]) as (session, _):
        values = await shown(session, None, output_type=City)
    assert len(values) <= 2
    assert values[-1] == City("x" * 500)


async def test_an_answer_by_call_grows_as_one_in_words_does() -> None:
    city = calls(("City", '{"name":"Paris","people":2}'), text="Here it is: {")
    values = await play([city], output_type=City)
    assert values[0].name in ("Paris", "Pari", None)
    assert values[-1] == City("Paris", 2)


async def test_an_answer_that_is_tried_again_begins_anew() -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "Paris"

    steps: list[Step] = [
        calls(("look", {}), text='{"name":"not this one'),
        says('{"name":"Rome",', '"people":"none"}'),
        says('{"na', 'me":"Paris"}'),
    ]
    clock = FakeClock()
    async with playing(steps, clock=clock, tools=[look], runtime={"buffer_size": 0}) as (
        session,
        _,
    ):
        values = await shown(session, clock, output_type=City)
    names = [value.name for value in values]
    assert names[-1] == "Paris"
    assert "Rome" in names
    assert None in names[names.index("Rome") :]


async def test_an_answer_that_never_fits_ends_partial_with_its_error() -> None:
    async with playing([says('{"name":1}')]) as (session, _):
        stream = session.stream("go", output_type=City, output_attempts=1)
        with pytest.raises(AgentError) as caught:
            async for _value in stream.partial():
                pass
    assert caught.value.code is ErrorCode.OUTPUT_INVALID


async def test_without_a_complete_answer_there_is_no_last_value() -> None:
    async with playing([says('{"name":"Par', finish="length")]) as (session, _):
        values = await shown(session, None, output_type=City)
    assert values == [City("Par")]


async def test_a_stream_that_was_aborted_before_shows_nothing() -> None:
    controller = AbortController()
    controller.abort()
    async with playing([]) as (session, _):
        stream = session.stream("go", output_type=City, signal=controller.signal, on_abort="return")
        assert [value async for value in stream.partial()] == []


async def test_partial_needs_a_type() -> None:
    async with playing([]) as (session, _):
        with pytest.raises(ConfigError) as caught:
            session.stream("go").partial()
    assert caught.value.code is ErrorCode.CONFIG_INVALID


async def test_the_result_can_be_asked_for_after_partial() -> None:
    async with (
        playing([says('{"name":"Paris"}')]) as (session, _),
        session.stream("go", output_type=City) as stream,
    ):
        async for value in stream.partial():
            assert value.name == "Paris"
        result = await stream.result()
    assert result.output == City("Paris")


def test_the_blocking_stream_shows_the_same() -> None:
    provider = ScriptedProvider([says('{"name":', '"Paris"}')])
    with (
        sync.Agent("scripted/one", providers=[provider], environment={}, snapshots=False) as agent,
        agent.stream("go", output_type=City) as stream,
    ):
        assert list(stream.partial())[-1] == City("Paris")
        assert stream.result().output == City("Paris")


class Ticking(SystemClock):
    """A clock on which 50 ms are over whenever it is looked at."""

    seconds = 0.0

    def now(self) -> float:
        """Return the next moment."""
        self.seconds += 0.05
        return self.seconds


@pytest.mark.parametrize(
    ("hint", "unit"),
    [(list[Tree], '{"name":"x","below":[{"name":"y"}]},'), (list[str], '"a few words",')],
)
async def test_a_value_for_every_delta_takes_time_in_proportion(hint: Any, unit: str) -> None:
    async def seconds_per_delta(deltas: int) -> float:
        size = 8
        inner = (unit * (deltas * size // len(unit)))[:-1]
        text = f'{{"value":[{inner}]}}'
        script = says(*(text[place : place + size] for place in range(0, len(text), size)))
        options: dict[str, Any] = {"clock": Ticking(), "runtime": {"buffer_size": 0}}
        async with playing([script], **options) as (session, _):
            begun, count = time.thread_time(), 0
            async for _value in session.stream("go", output_type=hint).partial():
                count += 1
            seconds = time.thread_time() - begun
        assert count > deltas / 2
        return seconds / deltas

    await seconds_per_delta(500)
    # In turns: a machine that gets busy slows both.
    pairs = [(await seconds_per_delta(500), await seconds_per_delta(4_000)) for _ in range(5)]
    assert min(long for _, long in pairs) <= 1.3 * min(short for short, _ in pairs), pairs


def test_a_spec_says_whether_the_value_is_in_an_object() -> None:
    specs = {kind: output_spec(kind) for kind in (City, list[City], City | None, dict[str, int])}
    assert [spec.is_wrapped for spec in specs.values() if spec is not None] == [
        *(False, True, True, False)
    ]
