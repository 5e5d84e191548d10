"""Opening a native session for a query: the one that is open, its own earlier one, or a new one."""

from collections.abc import Sequence
from hashlib import sha256
from uuid import NAMESPACE_URL, uuid5

import msgspec

from haptera.formats.transcript import LONGEST_RESULT, part_text, transcript_of
from haptera.kernel.query.query import Query
from haptera.kernel.session.native_link import NativeLink, NativeLive
from haptera.kernel.session.native_turns import TurnDriver, TurnTimes
from haptera.model.canonical import canonical_json
from haptera.model.errors import ErrorCode, ProviderError, SessionError
from haptera.model.ids import MessageId, QueryId
from haptera.model.log.native import NativeSessionState, holds_prompt
from haptera.model.messages import Message
from haptera.model.native_settings import ResumePolicy
from haptera.model.own_name import FORMER_NAME
from haptera.model.parts import ToolCallPart, ToolResultPart
from haptera.model.settings import Settings
from haptera.ports.native_agent import KnownTranscript, NativeAgent, NativeOpening
from haptera.system.logs import scrubbed_logger

_logger = scrubbed_logger(__name__)

_HAND_OVER = (
    "This conversation began elsewhere. Below is what was said so far, oldest first. It is for "
    "your information: do not answer it again, and do not repeat its tool calls. Go on from there "
    "with the message after it."
)
_MISSED = (
    "Below is what was said since your last answer, as far as this session does not have it. It is "
    "for your information: do not answer it again, and do not repeat its tool calls. A call whose "
    "outcome is unknown may have taken effect. Go on with the message after it."
)
_SO_FAR = (
    "The program stopped while this was being answered. Below is what is known of the answer. Do "
    "not repeat calls that have run. A call whose outcome is unknown may have taken effect: check "
    "before you make it again."
)
_CALLS = (
    "The program stopped while you were answering. Below is what is known of the calls that you "
    "made. Do not repeat one that has run. One whose outcome is unknown may have taken effect: "
    "check before you make it again."
)
_LONGEST_HAND_OVER = 200_000
# Errors by which an agent says that it cannot go on with an earlier session.
_STALE = frozenset({ErrorCode.NOT_FOUND, ErrorCode.BAD_REQUEST})


class OpenedNative(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An open native session, and what its next prompt must begin with."""

    live: NativeLive
    hand_over: str | None = None
    """The conversation so far, for an agent that does not have it."""
    cut_off: Sequence[Message] = ()
    """The prompts of a query that is carried on, and what was answered: the agent lacks them."""


class NativeOpener:
    """Opens what one query needs, and notes in its query how the conversation gets there."""

    def __init__(
        self,
        query: Query,
        agent: NativeAgent,
        *,
        opening: NativeOpening,
        resume: ResumePolicy,
        times: TurnTimes,
    ) -> None:
        self._query = query
        self._agent = agent
        self._opening = opening
        self._resume_policy = resume
        self._times = times

    async def open(self) -> OpenedNative:
        """Return the session that is open, the agent's own earlier one, or a new one.

        Raises:
            SessionError: NOT_FOUND when the native session is gone and must not be replaced.
            AgentError: what the agent said.

        """
        query, policy = self._query, self._resume_policy
        history, slot, known = query.native.before, query.session.native, query.native.state
        earlier = history[: cut_off_at(query)]
        has_all, live = known.knows(history), slot.live
        fits = live is not None and live.opened_with == _key_of(self._opening)
        if live is not None and fits and live.driver.usable and has_all:
            query.native.resume = "native" if history else None
            return OpenedNative(live=live)
        # The old process must be gone before a new one takes up the same native session.
        await slot.clear()
        wanted = known.session_id or known.fork_of
        if wanted is not None and history and policy != "replay":
            resumed = await self._resume(wanted, earlier)
            if resumed is not None:
                query.native.resume, query.native.resumed = "native", True
                return resumed
        if wanted is not None and history and policy == "fail":
            raise SessionError(
                ErrorCode.NOT_FOUND,
                f"the native session {wanted} cannot be resumed",
                provider=self._agent.provider,
            )
        live = await self._open(self._opening)
        query.native.resume = "replay" if history else None
        hand_over = hand_over_text(earlier) if earlier else None
        return OpenedNative(live=live, hand_over=hand_over, cut_off=history[len(earlier) :])

    async def _resume(self, wanted: str, earlier: Sequence[Message]) -> OpenedNative | None:
        """Go on with an earlier native session; None when it is gone, or is another than ours."""
        known, query = self._query.native.state, self._query
        # The agent keeps to the system prompt that its session began with.
        if known.system not in {None, system_digest(self._opening.settings)}:
            _logger.info("the native session %s began with another system prompt", wanted)
            return None
        expected = known_transcript(known, query.native.before, resumes=query.input.resumes)
        if expected is None:
            return None
        found = await self._agent.find(wanted, owner=self._opening.owner, known=expected)
        if found is None:
            _logger.info("the native session %s is gone, or is not what the log says", wanted)
            return None
        try:
            live = await self._open(
                msgspec.structs.replace(self._opening, resume=wanted, fork=expected.is_copied)
            )
        except (SessionError, ProviderError) as error:
            if error.code not in _STALE:
                raise
            _logger.info("the native session %s cannot be resumed: %s", wanted, error)
            return None
        if found.has_prompt:
            return OpenedNative(live=live)
        unanswered = known.unanswered(query.native.before)
        missed = earlier[query.native.before.index(unanswered[0]) :] if unanswered else ()
        hand_over = hand_over_text(missed, _MISSED) if missed else None
        return OpenedNative(
            live=live, hand_over=hand_over, cut_off=query.native.before[len(earlier) :]
        )

    async def _open(self, opening: NativeOpening) -> NativeLive:
        slot = self._query.session.native
        if slot.closed:
            raise SessionError(ErrorCode.CLOSED, "the session is closed")
        link = NativeLink()
        session = await self._agent.open(msgspec.structs.replace(opening, host=link))
        slot.live = live = NativeLive(
            driver=TurnDriver(session, times=self._times),
            link=link,
            opened_with=_key_of(opening),
        )
        # The agent took time to start; if the session was closed meanwhile, nothing else ends it.
        if slot.closed:
            await slot.clear()
            raise SessionError(ErrorCode.CLOSED, "the session was closed while its agent started")
        return live


def _key_of(opening: NativeOpening) -> bytes:
    """Return what a process is started with, without how it came to its conversation."""
    settings = opening.settings
    kept = [
        *(opening.model, opening.owner, settings.system_prompts, settings.thinking),
        *(settings.allowed_tools, settings.denied_tools, settings.limits.turns),
        opening.tools,
    ]
    return canonical_json(msgspec.to_builtins(kept))


def system_digest(settings: Settings) -> str:
    """Return what tells system prompts apart."""
    return sha256(canonical_json(list(settings.system_prompts))).hexdigest()[:16]


def prompt_id(query_id: QueryId, message_id: MessageId) -> str:
    """Return the id under which the agent's transcript knows a prompt that a query has sent."""
    # With the former name, because transcripts that were written before hold such ids.
    return str(uuid5(NAMESPACE_URL, f"{FORMER_NAME}:{query_id}/{message_id}"))


def known_transcript(
    known: NativeSessionState, messages: Sequence[Message], *, resumes: QueryId | None
) -> KnownTranscript | None:
    """Return what the transcript must have for a native session to go on; None if it cannot."""
    at = _cut_off_at(messages, resumes)
    if not (known.knows(messages) or known.knows(messages[:at])):
        return None
    unanswered = known.unanswered(messages)
    sent_in = resumes or known.sent_in
    return KnownTranscript(
        entry=known.entry,
        count=known.entries,
        prompt=prompt_id(sent_in, unanswered[-1].id) if unanswered and sent_in else None,
        # A fork only knows its parent's native session, which the parent goes on using.
        is_copied=known.session_id is None,
    )


def cut_off_at(query: Query) -> int | None:
    """Return where the prompt of the query that is carried on is; None when none is."""
    return _cut_off_at(query.native.before, query.input.resumes)


def _cut_off_at(messages: Sequence[Message], resumes: QueryId | None) -> int | None:
    if resumes is None:
        return None
    prompts = [index for index, message in enumerate(messages) if holds_prompt(message)]
    return prompts[-1] if prompts else None


def so_far_text(messages: Sequence[Message]) -> str | None:
    """Say what was answered before a query was cut off; None when nothing was."""
    answers = [message for message in messages if not holds_prompt(message)]
    told = transcript_of(answers, most=LONGEST_RESULT)
    body = "\n\n".join(told)[-_LONGEST_HAND_OVER:]
    return f"{_SO_FAR}\n\n<so-far>\n{body}\n</so-far>" if told else None


def calls_text(messages: Sequence[Message]) -> str | None:
    """Say what is known of calls that were made before a query was cut off; None without any."""
    parts = [part for message in messages for part in message.parts]
    calls = [part for part in parts if isinstance(part, ToolCallPart | ToolResultPart)]
    told = [part_text(part, most=LONGEST_RESULT) for part in calls]
    return "\n".join([_CALLS, *told]) if told else None


# The hand-over.


def hand_over_text(messages: Sequence[Message], why: str = _HAND_OVER) -> str:
    """Write a conversation down for an agent that was not part of it.

    The end of a long one is kept, because it matters most; how much was left out is said.
    """
    told = transcript_of(messages, most=LONGEST_RESULT)
    kept: list[str] = []
    length = 0
    for line in reversed(told):
        length += len(line)
        if length > _LONGEST_HAND_OVER and kept:
            break
        kept.append(line)
    left_out = len(told) - len(kept)
    head = [why] + ([f"[{left_out} earlier messages are left out.]"] if left_out else [])
    # The last message is kept whatever its length, so it may have to be cut.
    body = "\n\n".join(reversed(kept))[-_LONGEST_HAND_OVER:]
    return "\n\n".join([*head, f"<conversation>\n{body}\n</conversation>"])
