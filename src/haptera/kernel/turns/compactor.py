"""Compactor: lets something shorter be sent when a conversation grows too long for its model."""

from collections.abc import Sequence

import msgspec

from haptera.kernel.blocks.token_estimate import estimate_text
from haptera.kernel.query.query import Query
from haptera.kernel.session.session import estimate_all
from haptera.kernel.turns.compaction_plan import (
    Window,
    first_kept,
    holds_reminders,
    id_at,
    is_prompt,
    last_prompt,
    prunable_before,
    window_of,
)
from haptera.kernel.turns.provider_attempts import ProviderAttempts
from haptera.kernel.turns.summaries import (
    PROMPT_MARK,
    SYSTEM_TOKENS,
    Summary,
    SummaryRequest,
    earlier_summary,
    question,
    why_rejected,
)
from haptera.kernel.turns.turn_runner import TurnOutcome, cost_of_call
from haptera.model.errors import (
    AgentError,
    ErrorCode,
    HookError,
    ProviderError,
    SessionError,
    StoreError,
)
from haptera.model.log.carried_state import carried_by
from haptera.model.log.compactions import Compaction, CompactionTrigger
from haptera.model.messages import Message
from haptera.model.settings import RuntimeSettings, Settings
from haptera.model.tools import ToolSpec
from haptera.model.vendors import split_model
from haptera.ports.model_client import ModelCatalogue
from haptera.system.logs import scrubbed_logger

_logger = scrubbed_logger(__name__)

_LARGE_WINDOW = 200_000
"""What is planned with when a user compacts and the model's window is not known."""
_LONGEST_PROMPT = 8_000
"""Characters of a prompt that is repeated because it is not kept."""
_LEFT_OUT = (
    "Earlier messages of this conversation were left out because it is too long for the model."
)


class _Need(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One compaction that is to be done."""

    trigger: CompactionTrigger
    window: Window
    tokens: int
    """What the next request would hold without it."""
    must_fit: bool = False
    """Whether the request cannot be sent without it."""
    instructions: str | None = None


class Compactor:
    """Makes conversations shorter, before a request, after one that was too long, or when asked.

    Owns when and how. Does not own what is sent after a compaction: the fold reads that off the
    entry. Holds nothing of any session; what was measured is in the session's `TokenMeter`. A
    summary that is empty, refused, failed or too long is rejected, and everything stays as it is,
    unless the request would not fit: then the end of the conversation is sent, with a note.
    """

    def __init__(
        self, *, attempts: ProviderAttempts, catalogue: ModelCatalogue, runtime: RuntimeSettings
    ) -> None:
        self._attempts = attempts
        self._catalogue = catalogue
        self._runtime = runtime

    async def make_space(self, query: Query) -> Compaction | None:
        """Compact if the next request would be too long for its model; returns what was done."""
        settings = query.settings
        chosen = settings.compaction
        is_ours = not chosen.enabled and chosen.strategy not in {"server", "off"}
        if not self._runtime.auto_compaction or not is_ours:
            return None
        window = self._window(settings)
        if window is None:
            return None
        tokens = self._measure(query, settings)
        must_fit = tokens > window.fits
        # After a summary that could not be used the conversation has to grow first: otherwise every
        # turn would pay for another attempt.
        if tokens <= window.usable or (tokens <= query.session.meter.waits_until and not must_fit):
            return None
        need = _Need(trigger="auto", window=window, tokens=tokens, must_fit=must_fit)
        return await self._compact(query, need)

    def may_shorten(self, query: Query, error: AgentError) -> bool:
        """Whether a request that its provider refused may be made again, of something shorter."""
        is_on = query.settings.compaction.strategy != "off" and self._runtime.auto_compaction
        return is_on and error.code is ErrorCode.CONTEXT_LENGTH

    async def after_overflow(self, query: Query) -> Compaction | None:
        """Compact after a request that its provider refused as too long, before any answer.

        Returns what was done, or None when nothing shorter can be sent.
        """
        settings = query.settings
        tokens = self._measure(query, settings)
        known = self._window(settings)
        # The provider counts more than we do, or holds less than we know of.
        size = min(known.size if known else tokens, max(tokens * 3 // 4, 256))
        window = window_of(size, settings)
        need = _Need(trigger="overflow", window=window, tokens=tokens, must_fit=True)
        return await self._compact(query, need)

    async def compact_now(self, query: Query) -> None:
        """Compact because the user asked for it.

        Raises:
            SessionError: NOTHING_TO_SEND when there is nothing to compact.
            AgentError: why no summary could be made; the conversation is as it was.

        """
        settings, order = query.settings, query.input.compact
        window = self._window(settings) or window_of(_LARGE_WINDOW, settings)
        need = _Need(
            trigger="manual",
            window=window,
            tokens=self._measure(query, settings),
            instructions=order.instructions if order else None,
        )
        if await self._compact(query, need) is None:
            raise SessionError(ErrorCode.NOTHING_TO_SEND, "there is nothing to compact")

    def _window(self, settings: Settings) -> Window | None:
        provider, model = split_model(settings.model)
        size = settings.compaction.context_window
        size = size or self._catalogue.context_window(provider, model)
        return window_of(size, settings) if size else None

    def _measure(self, query: Query, settings: Settings) -> int:
        return query.session.meter.measure(
            # The fold does not have a prompt that is only staged.
            query.fold.sent_view(query.staged_prompt),
            system=settings.system_prompts,
            tools=_tools_of(query, settings),
        )

    async def _compact(self, query: Query, need: _Need) -> Compaction | None:
        """Prune, or ask for a summary, and record what is sent from now on."""
        await query.recorder.record(())  # a prompt that is staged is part of the conversation
        if await self._is_blocked(query, need):
            return None
        entry = await self._pruned(query, need)
        if entry is None:
            entry = await self._summarised(query, need)
        if entry is not None and query.hooks is not None:
            await query.hooks.after_compaction(entry)
        if entry is not None:
            _logger.info(
                "session %s was compacted (%s, %s): %s tokens before, %s after%s",
                *(query.session.session_id, entry.trigger, entry.strategy),
                *(entry.tokens_before, entry.tokens_after),
                f"; no summary: {entry.rejected}" if entry.rejected else "",
            )
        return entry

    async def _is_blocked(self, query: Query, need: _Need) -> bool:
        """Ask hooks before a compaction; whether one of them blocks it."""
        if query.hooks is None:
            return False
        reason = await query.hooks.before_compaction(
            trigger=need.trigger, tokens=need.tokens, context_window=need.window.size
        )
        if reason is not None and need.trigger == "manual":
            raise HookError(ErrorCode.HOOK_FAILED, f"a hook blocked the compaction: {reason}")
        if reason is not None:
            # Ask hooks again only when it has grown by a twentieth, not before every turn.
            query.session.meter.waits_until = need.tokens + need.window.usable // 20
        return reason is not None

    async def _pruned(self, query: Query, need: _Need) -> Compaction | None:
        """Leave out old results of tools, if that is enough."""
        view = query.fold.settled_view()
        # A user who asks for a compaction gets a summary.
        found = prunable_before(view) if need.trigger != "manual" else None
        if found is None or not query.settings.compaction.prune:
            return None
        index, saved = found
        if need.tokens - saved > need.window.usable:
            return None
        entry = Compaction(
            **query.stamp(),
            trigger=need.trigger,
            strategy="prune",
            summary="",
            kept_from=id_at(view, index),
            tokens_before=need.tokens,
            tokens_after=need.tokens - saved,
        )
        await query.recorder.record([entry])
        query.session.meter.forget()
        return entry

    async def _summarised(self, query: Query, need: _Need) -> Compaction | None:
        view = query.fold.settled_view()
        most = need.window.tail
        if need.trigger == "manual":
            # A short conversation would be kept as a whole, and nothing compacted.
            most = min(most, estimate_all(view) // 4)
        kept = first_kept(view, most)
        if kept is None:
            return None
        summary = await self._ask(query, need, view[:kept])
        # It was paid for, whether it can be used or not.
        query.progress.add_usage(summary.usage, summary.cost)
        if summary.rejected is None:
            text = summary.text + _prompt_note(need, view, kept)
            entry = self._entry(query, need, summary, strategy="summarise", text=text, kept=kept)
            if need.trigger == "manual" or (entry.tokens_after or 0) < need.tokens:
                return await self._record(query, entry)
            told = "the summary makes the conversation no shorter"
            summary = msgspec.structs.replace(summary, rejected=told)
        return await self._reject(query, need, summary)

    async def _reject(self, query: Query, need: _Need, summary: Summary) -> Compaction | None:
        """Go on without a summary: with everything, or with as much of the end as fits."""
        view = query.fold.settled_view()
        if not need.must_fit:
            # It replaces nothing, and records what the summary cost and why it is rejected.
            entry = self._entry(query, need, summary, strategy="none", text="", kept=len(view))
            await self._record(query, msgspec.structs.replace(entry, tokens_after=need.tokens))
            query.session.meter.waits_until = need.tokens + need.window.usable // 20
            if need.trigger == "manual":
                raise summary.failure or ProviderError(
                    ErrorCode.PROTOCOL, f"nothing was compacted: {summary.rejected}"
                )
            return None
        kept = first_kept(view, need.window.usable // 2)
        if kept is None:
            return None
        text = _tail_note(summary, view) + _prompt_note(need, view, kept)
        return await self._record(
            query, self._entry(query, need, summary, strategy="tail", text=text, kept=kept)
        )

    async def _ask(self, query: Query, need: _Need, messages: Sequence[Message]) -> Summary:
        """Ask a model for a summary, with the retries of a turn."""
        settings = _settings_of_summary(query.settings)
        window = need.window
        if settings.model != query.settings.model:
            window = self._window(settings) or window
        most = need.window.summary
        space = max(window.size - window.reserve - most - SYSTEM_TOKENS, window.size // 4)
        text = question(messages, need.instructions, most=space)

        asked = SummaryRequest(query, text, most=most)
        try:
            reply = await self._attempts.run(query, asked, settings=settings)
        # A store that fails ends the query; only a failure of the model rejects the summary.
        except StoreError:
            raise
        except AgentError as error:
            if error.code is ErrorCode.ABORTED or query.abort.signal.aborted:
                raise
            told = f"the model could not be asked: {error.code}: {error.message}"
            return Summary(rejected=told, failure=error)
        usage = reply.finished.usage
        cost = cost_of_call(
            reply.finished, self._catalogue, provider=reply.provider, model=reply.model
        )
        rejected = why_rejected(reply, most=most)
        return Summary(text=reply.text, rejected=rejected, usage=usage, cost=cost)

    def _entry(
        self,
        query: Query,
        need: _Need,
        summary: Summary,
        *,
        strategy: str,
        text: str,
        kept: int,
    ) -> Compaction:
        settings, view = query.settings, query.fold.settled_view()
        # Cached reminders go out once, with the first prompt; without it they are repeated.
        reminders = () if holds_reminders(view[kept:]) else settings.cached_reminders
        fixed = query.session.meter.fixed(settings.system_prompts, _tools_of(query, settings))
        return Compaction(
            **query.stamp(),
            trigger=need.trigger,
            strategy=strategy,
            summary=text,
            kept_from=id_at(view, kept),
            tokens_before=need.tokens,
            tokens_after=fixed
            + estimate_all(view[kept:])
            + sum(map(estimate_text, (text, *reminders))),
            reminders=reminders if text else (),
            rejected=summary.rejected,
            usage=summary.usage,
            cost=summary.cost,
        )

    async def _record(self, query: Query, entry: Compaction) -> Compaction:
        if entry.strategy != "none":
            # With no wait in between: what is carried is what the log says up to `fold.head`.
            reads_from, carried = carried_by(query.fold, entry.kept_from)
            if reads_from is not None:
                entry = msgspec.structs.replace(entry, reads_from=reads_from, carried=carried)
            query.session.meter.forget()
        await query.recorder.record([entry])
        return entry


async def record_provider_summary(query: Query, outcome: TurnOutcome) -> None:
    """Record a compaction that the provider made inside its answer."""
    made = Compaction(
        **outcome.turn.stamp(),
        trigger="provider",
        strategy="server",
        summary="",
        tokens_before=outcome.finished.usage.input or None,
    )
    # Hooks are only told what is in the log; without them it can wait for the next append.
    if query.hooks is None:
        query.recorder.stage([made])
        return
    await query.recorder.record([made])
    await query.hooks.after_compaction(made)


def _settings_of_summary(settings: Settings) -> Settings:
    """Return the settings with the model that writes summaries."""
    model = settings.compaction.model
    if not model or model == settings.model:
        return settings
    # The fallbacks were chosen for the model of the conversation.
    return msgspec.structs.replace(settings, model=model, fallbacks=())


def _tools_of(query: Query, settings: Settings) -> tuple[ToolSpec, ...]:
    # Not `query.offer.tools`: those are of the turn before, and the next one takes what is offered
    # then.
    offered = query.offer.registry.current().view(settings.allowed_tools, settings.denied_tools)
    return offered.wire_tools


def _tail_note(summary: Summary, view: Sequence[Message]) -> str:
    """Say that there is no summary, and repeat an earlier one."""
    earlier = earlier_summary(view).partition(PROMPT_MARK)[0]
    # The note of an earlier compaction without a summary is not said twice.
    if earlier.startswith(_LEFT_OUT):
        earlier = earlier.partition("\n\n")[2]
    reason = " ".join((summary.rejected or "").split())[:300]
    note = (
        f"{_LEFT_OUT} There is no summary of them ({reason}). Ask the user if you need something "
        "from them."
    )
    return f"{note}\n\n{earlier}" if earlier else note


def _prompt_note(need: _Need, view: Sequence[Message], kept: int) -> str:
    """Repeat the prompt that is being answered, if it is not kept."""
    is_answered = need.trigger == "manual" or not view or is_prompt(view[-1])
    if is_answered or any(map(is_prompt, view[kept:])):
        return ""
    earlier = earlier_summary(view).partition(PROMPT_MARK)[2]
    prompt = last_prompt(view[:kept]) or earlier
    return f"{PROMPT_MARK}{prompt[:_LONGEST_PROMPT]}" if prompt else ""
