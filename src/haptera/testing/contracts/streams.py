"""The contract of stream processors: what an answer makes of stream parts."""

from collections.abc import Callable, Sequence

from haptera.kernel.blocks.stream_processor.processor import (
    AnswerInterface,
    AnswerSource,
    StreamProcessorInterface,
)
from haptera.model.errors import ErrorCode
from haptera.model.events import Event, TextDelta
from haptera.model.log.turns import PartCheckpoint, PartEnded, PartStarted
from haptera.model.parts import ReasoningPart, TextPart, ToolCallPart
from haptera.model.settings import Limits
from haptera.model.stream_parts import PartDelta, PartOpened, StreamPart
from haptera.system.clock import Stamp
from haptera.testing.clocks import FakeClock
from haptera.testing.contracts.samples import run_contract
from haptera.testing.promises import Report, require, require_same
from haptera.testing.scripted_provider import calls, reasoning, says


def _begin(subject: StreamProcessorInterface, limits: Limits | None = None) -> AnswerInterface:
    stamp = Stamp(FakeClock())
    return subject.begin(AnswerSource(stamp=stamp, provider="p", limits=limits or Limits()))


def _feed(answer: AnswerInterface, parts: Sequence[StreamPart]) -> list[Event]:
    out: list[Event] = []
    for part in parts:
        answer.feed([part], out)
    return out


async def check_text_comes_as_deltas_and_then_whole(subject: StreamProcessorInterface) -> None:
    """Offsets say where each delta begins; the part is complete at its end."""
    answer = _begin(subject)
    out = _feed(answer, says("Hel", "lo"))
    deltas = [(event.offset, event.text) for event in out if isinstance(event, TextDelta)]
    require_same(deltas, [(0, "Hel"), (3, "lo")], "deltas with their offsets")
    require_same([part.text for part in answer.parts if isinstance(part, TextPart)], ["Hello"], "")
    kinds = [type(event) for event in out]
    expected = [PartStarted, TextDelta, TextDelta, PartEnded]
    require_same(kinds, expected, "started, deltas, ended, in this order")
    require(answer.finished is not None and answer.failure is None, "the answer has finished")


async def check_reasoning_keeps_its_signature(subject: StreamProcessorInterface) -> None:
    """A provider wants back what it signed."""
    answer = _begin(subject)
    _feed(answer, [*reasoning("because", signature="sealed"), *says("so")])
    thought = answer.parts[0]
    require(isinstance(thought, ReasoningPart), "reasoning is a part of its own")
    require_same(getattr(thought, "signature", None), "sealed", "the signature is kept")


async def check_arguments_are_parsed_when_a_call_is_complete(
    subject: StreamProcessorInterface,
) -> None:
    """Pieces of JSON are joined; no text is no arguments; what is no object is kept as text."""
    answer = _begin(subject)
    _feed(answer, calls(("a", {"x": 1}), ("b", ""), ("c", "[1]"), ids=("1", "2", "3")))
    tool_calls = [part for part in answer.parts if isinstance(part, ToolCallPart)]
    require_same([part.arguments for part in tool_calls], [{"x": 1}, {}, {}], "arguments")
    require_same([part.invalid for part in tool_calls], [None, None, "[1]"], "what is no object")
    require_same([str(part.call_id) for part in tool_calls], ["1", "2", "3"], "the provider's ids")


async def check_a_call_id_is_not_used_twice(subject: StreamProcessorInterface) -> None:
    """Two calls of one answer can be told apart, whatever the provider calls them."""
    answer = _begin(subject)
    _feed(answer, calls(("a", {}), ("a", {}), ids=("same", "same")))
    ids = {part.call_id for part in answer.parts if isinstance(part, ToolCallPart)}
    require_same(len(ids), 2, "each call has an id of its own")


async def check_what_is_out_of_order_is_dropped(subject: StreamProcessorInterface) -> None:
    """Deltas of parts that were never opened count for nothing, and so does a second opening."""
    answer = _begin(subject)
    out = _feed(answer, [PartDelta(key="9", text="lost"), *says("a")[:3]])
    out += _feed(answer, [PartOpened(key="0", kind="text"), PartDelta(key="0", text="b")])
    answer.close(out)
    texts = [part.text for part in answer.parts if isinstance(part, TextPart)]
    require_same(texts, ["ab"], "one part, without what was out of order")
    require_same(sum(isinstance(event, PartStarted) for event in out), 1, "it started once")


async def check_answers_do_not_mix(subject: StreamProcessorInterface) -> None:
    """Two answers at the same time, and one after the other, know nothing of each other."""
    first, second = _begin(subject), _begin(subject)
    one, two = says("first"), says("second")
    for index in range(len(one)):
        _feed(first, one[index : index + 1])
        _feed(second, two[index : index + 1])
    texts = [[getattr(part, "text", "") for part in answer.parts] for answer in (first, second)]
    require_same(texts, [["first"], ["second"]], "each has its own text")
    require_same(_begin(subject).parts, (), "a new answer is empty")


async def check_an_answer_that_breaks_off_keeps_its_text(
    subject: StreamProcessorInterface,
) -> None:
    """Text is kept as far as it came; half a tool call is of no use."""
    answer = _begin(subject)
    opened = PartOpened(key="c", kind="tool_call", call_id="1", name="a")
    out = _feed(answer, [*says("half")[:3], opened, PartDelta(key="c", text='{"x"')])
    require(answer.finished is None, "an answer without an end has not finished")
    answer.close(out)
    require_same([getattr(part, "text", part) for part in answer.parts], ["half"], "what is kept")


async def check_checkpoints_save_each_text_once(subject: StreamProcessorInterface) -> None:
    """A checkpoint has what came since the last one; the ended part has only the rest."""
    answer = _begin(subject)
    _feed(answer, says("abc")[:3])
    require_same(answer.unsaved_bytes, 3, "what is not saved yet")
    out: list[Event] = []
    answer.checkpoint(out)
    out += _feed(answer, says("abc", "de")[3:])
    saved = [event.text for event in out if isinstance(event, PartCheckpoint)]
    rest = [getattr(event.part, "text", "") for event in out if isinstance(event, PartEnded)]
    require_same((saved, rest), (["abc"], ["de"]), "each text is saved once")
    require_same([getattr(part, "text", "") for part in answer.parts], ["abcde"], "it is whole")


async def check_an_answer_beyond_its_bounds_fails(subject: StreamProcessorInterface) -> None:
    """The failure is PROTOCOL, and nothing more is taken in."""
    answer = _begin(subject, Limits(answer_characters=3))
    _feed(answer, says("abcdef", "more"))
    require(answer.failure is not None, "the answer has failed")
    require_same(answer.failure and answer.failure.code, ErrorCode.PROTOCOL, "the code says so")
    require(answer.finished is None, "nothing is taken in after the failure")


async def check_what_cannot_be_read_back_fails_the_answer(
    subject: StreamProcessorInterface,
) -> None:
    """Entries of an answer are stored as they come: a log that cannot be read back is lost."""
    answer = _begin(subject)
    out = _feed(answer, [PartOpened(key="c", kind="tool_call", call_id="1", name="\ud800")])
    require(answer.failure is not None, "the answer has failed")
    require_same(answer.failure and answer.failure.code, ErrorCode.PROTOCOL, "the code says so")
    require_same(out, [], "no entry has what cannot be read back")


async def stream_processor_contract(make: Callable[[], StreamProcessorInterface]) -> Report:
    """Check a stream processor; `make` returns a new one."""
    return await run_contract(__name__, make)
