"""The ports to a user's own code around a tool call: before it is parsed, and after it returned."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from holdfast.vocabulary.json_types import Json
from holdfast.vocabulary.parts import ResultContent, ToolCallPart


class Proceed(msgspec.Struct, frozen=True):
    """A hook lets a call go on, with other arguments if given."""

    arguments: Json | None = None
    message: str | None = None
    """What the hook has to say to people, as a `hook.message`."""


class Block(msgspec.Struct, frozen=True):
    """A hook refuses a call; the model is told why."""

    reason: str
    message: str | None = None


class Answer(msgspec.Struct, frozen=True):
    """A hook answers a call itself; the tool is not run."""

    content: tuple[ResultContent, ...]
    message: str | None = None


Verdict: TypeAlias = Proceed | Block | Answer
BeforeTool: TypeAlias = Callable[[ToolCallPart], Awaitable[Verdict]]
"""Asked about each call before its input is parsed. An exception ends the query."""

OutputTransform: TypeAlias = Callable[[str, object], object]
"""Changes a tool's raw output before it is encoded; gets the tool's name and the output."""
