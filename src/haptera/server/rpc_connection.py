"""One client of JSON-RPC: its calls run at the same time, and events go to it as they happen.

Nothing is buffered without bound. A connection has a limited number of calls in flight, and a call
is in flight until its answer was taken; a batch with more calls than that is refused as a whole.
Whatever a client sends in place of a call counts as a request of its owner. A subscription does not
read on while the client does not: then its observer lags, and the subscription is closed with the
`seq` to go on from.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from haptera import AgentError
from haptera.server.access import Principal
from haptera.server.decoding import decode_body, decoded_in_turn
from haptera.server.operations import EventAnswer, FileAnswer
from haptera.server.problems import ProblemError
from haptera.server.rpc_messages import (
    OVERLOADED,
    RpcError,
    RpcMessage,
    RpcRequest,
    error_to,
    read_rpc_message,
    response_to,
    rpc_error,
    rpc_error_of,
)
from haptera.server.rpc_methods import RpcCaller, RpcMethods, file_result
from haptera.server.rpc_subscription import RpcSubscription, Send
from haptera.system.owned_tasks import OwnedTasks

STOP = "events/stop"


class StopParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which subscription to end."""

    subscription: str


class RpcConnection:
    """Answers the messages of one client.

    Owns the tasks of its calls and subscriptions. It does not own sessions: when the client goes
    away, queries go on.
    """

    def __init__(
        self,
        methods: RpcMethods,
        *,
        caller: Callable[[], Principal],
        send: Send | None = None,
        counted: int = 0,
    ) -> None:
        self._methods = methods
        self._counted = counted
        """How many of the next calls were counted before they were read."""
        self._caller = caller
        self._owner = caller().owner
        self._send = send
        # Calls and subscriptions send at the same time; what one of them sends stays together and
        # in order.
        self._sending = asyncio.Lock()
        self._free_calls = methods.server.hub.settings.calls_per_connection
        self._calls = OwnedTasks()
        self._subscriptions: dict[str, RpcSubscription] = {}
        self._made = 0
        self.left = asyncio.Event()
        """Set when the client has gone."""

    async def read(self, content: bytes) -> RpcMessage:
        """Read a message of the client."""
        return await decoded_in_turn(
            self._methods.server.hub.decoding.of(self._owner),
            content,
            lambda raw: read_rpc_message(raw, most=self._limit),
        )

    async def take(self, message: RpcMessage) -> None:
        """Begin to answer what the client sent; waits only for a client that does not read."""
        count = len(message.requests)
        if count > self._free_calls or all(each.error is not None for each in message.requests):
            await self.send(message.joined(self._refusals(message)))
            return
        self._free_calls -= count
        self._calls.start(self._answer_and_send(message), name="haptera-rpc-call")

    async def answer(self, content: bytes) -> bytes | None:
        """Answer a message to its end, for a client that gets nothing else."""
        message = await self.read(content)
        if len(message.requests) > self._free_calls:
            responses = self._refusals(message)
        else:
            responses = [
                response for response, _ in await self._answers(message) if response is not None
            ]
        return b"".join(message.joined(responses)) or None

    async def send(self, messages: Sequence[bytes]) -> None:
        """Send messages, and wait while the client does not read them.

        Raises:
            ConnectionError: the client has gone.

        """
        if messages and self._send is not None:
            async with self._sending:
                await self._send(messages)

    async def drain(self) -> None:
        """Wait for the calls in flight, and for subscriptions that end by themselves."""
        while waited := [*self._calls, *self._ending()]:
            await asyncio.wait(waited)

    async def subscriptions_ended(self) -> None:
        """Wait until all subscriptions have ended, as they do when the server shuts down."""
        while tasks := [each.task for each in self._subscriptions.values() if each.task]:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """End subscriptions, and what waits for the end of a query; other calls end first."""
        self.left.set()
        await self._stop_all()
        while self._calls:
            await asyncio.wait(tuple(self._calls))
        await self._stop_all()  # those that the last calls began

    async def _stop_all(self) -> None:
        for subscription in tuple(self._subscriptions.values()):
            await subscription.stop()

    def _ending(self) -> list[asyncio.Task[None]]:
        subscriptions = self._subscriptions.values()
        return [
            each.task for each in subscriptions if each.task is not None and not each.is_endless
        ]

    @property
    def _limit(self) -> int:
        return self._methods.server.hub.settings.calls_per_connection

    def _refusals(self, message: RpcMessage) -> list[bytes]:
        full = rpc_error(OVERLOADED, "OVERLOADED", f"at most {self._limit} calls are in flight")
        return [
            error_to(each, error)
            for each, error in [(each, self._refusal(each, full)) for each in message.requests]
            if not each.is_notification or each.error is not None
        ]

    def _refusal(self, request: RpcRequest, full: RpcError) -> RpcError:
        try:
            self._count()
        except ProblemError as problem:
            return rpc_error_of(problem)
        return request.error or full

    def _count(self) -> Principal:
        """Count a call, also one that cannot be carried out; returns whose it is."""
        principal = self._caller()
        if self._counted:
            self._counted -= 1
        else:
            self._methods.server.count(principal)
        return principal

    async def _answer_and_send(self, message: RpcMessage) -> None:
        begun: list[RpcSubscription] = []
        try:
            answers = await self._answers(message)
            begun = [subscription for _, subscription in answers if subscription is not None]
            await self.send(
                message.joined([response for response, _ in answers if response is not None])
            )
            for subscription in begun:
                subscription.start(self.send)  # events follow the answer that names them
            begun = []
        except ConnectionError:
            pass  # the client has gone; what it asked for was done
        finally:
            self._free_calls += len(message.requests)
            for subscription in begun:
                await subscription.stop()

    async def _answers(
        self, message: RpcMessage
    ) -> list[tuple[bytes | None, RpcSubscription | None]]:
        """Return the response to each request, and what follows it."""
        requests = message.requests
        with self._methods.server.hub.loop.watched():
            results = await asyncio.gather(*map(self._result, requests), return_exceptions=True)
        return [
            _failed(request, result)
            if isinstance(result, BaseException)
            else (_unless_silent(request, response_to(request, result[0])), result[1])
            for request, result in zip(requests, results, strict=True)
        ]

    async def _result(self, request: RpcRequest) -> tuple[Any, RpcSubscription | None]:
        principal = self._count()
        if request.error is not None:
            raise request.error
        if request.method == STOP:
            return await self._stop(request.params), None
        can_stream = self._send is not None and not request.is_notification
        with self._methods.server.in_progress(principal.owner):
            answer = await self._methods.call(
                request.method,
                request.params,
                RpcCaller(principal, self.left),
                can_stream=can_stream,
            )
            if isinstance(answer, FileAnswer):
                return await file_result(answer), None
        match answer:
            case EventAnswer():
                subscription = self._subscribe(answer)
                result = {"subscription": subscription.id}
                return result | msgspec.to_builtins(answer.value or {}), subscription
        return answer.value, None

    def _subscribe(self, answer: EventAnswer) -> RpcSubscription:
        self._made += 1
        subscription = RpcSubscription(f"sub_{self._made}", answer, self._methods.server.hub)
        self._subscriptions[subscription.id] = subscription
        subscription.on_end = lambda: self._subscriptions.pop(subscription.id, None)
        return subscription

    async def _stop(self, params: dict[str, Any]) -> dict[str, bool]:
        named = decode_body(msgspec.json.encode(params), StopParams)
        subscription = self._subscriptions.get(named.subscription)
        if subscription is not None:
            await subscription.stop()
        return {"stopped": subscription is not None}


def _failed(request: RpcRequest, error: BaseException) -> tuple[bytes | None, None]:
    """Return the response to a call that failed; what was not foreseen is reported here, too."""
    # A cancellation is no answer of a call.
    if not isinstance(error, Exception):
        raise error
    if not isinstance(error, RpcError | ProblemError | AgentError):
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"the method {request.method[:60]!r} failed", "exception": error}
        )
    return _unless_silent(request, error_to(request, rpc_error_of(error))), None


def _unless_silent(request: RpcRequest, response: bytes) -> bytes | None:
    return None if request.is_notification and request.error is None else response
