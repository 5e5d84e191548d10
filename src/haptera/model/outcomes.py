"""Success and failure as values, for programs that match instead of catching exceptions."""

from typing import Generic, TypeVar

import msgspec

from haptera.model.errors import AgentError

ValueT = TypeVar("ValueT")


class Ok(msgspec.Struct, Generic[ValueT], frozen=True):
    """Success: what `run_agent_result` returns when there is an answer."""

    value: ValueT


class Err(msgspec.Struct, frozen=True):
    """Failure: the error that would have been raised."""

    error: AgentError
