"""CallPermissions: whether a tool call may run, must be asked about, or is refused."""

import msgspec

from haptera.kernel.blocks.permission_rules.decisions import (
    CallSite,
    PermissionQuestion,
    PermissionRules,
    find_grant,
)
from haptera.kernel.blocks.permission_rules.rules import NamedTools, names_without_tool
from haptera.kernel.blocks.tool_registry.registry import Ready, ToolSet
from haptera.kernel.query.query import Query
from haptera.model.approvals import NO_FACTS, ApprovalRequest, CallFacts, Grant, Ruling
from haptera.model.canonical import approval_key, tool_digest
from haptera.model.errors import StoreError
from haptera.model.json_types import JsonObject, writable
from haptera.model.log.approvals import ApprovalRequested, ApprovalSettled
from haptera.model.parts import ToolCallPart
from haptera.model.settings import allows_tool
from haptera.ports.permissions import ProjectGrants
from haptera.system.logs import scrubbed_logger

_logger = scrubbed_logger(__name__)

_MOST_SHOWN = 100_000
"""Characters of a diff that a question shows; the arguments have all of it."""

_CHANGED = "This call was not run: what it would do is not what was approved any more."
_NO_RULES = PermissionRules()
_NOT_ALLOWED = Ruling(action="deny", reason="this tool is not allowed", source="setting")
_ASKED_ALWAYS = Ruling(action="ask", reason="every call is asked about", source="setting")
_UNKNOWN = Ruling(action="ask", reason="what it would do could not be found out")


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A call, and what is decided about it."""

    ruling: Ruling
    folder: str
    """Where the call would be made; an approval is bound to it."""
    key: str
    """What a lasting approval of exactly this call is bound to."""
    tool_digest: str | None = None
    """What the tool is now; it may have been changed since it was offered to the model."""
    facts: CallFacts = NO_FACTS

    @property
    def is_unconfined(self) -> bool:
        """Whether it would run a command without a sandbox."""
        return self.facts.is_confined is False


class CallPermissions:
    """Decides by the rules in force, by what a call would really do, and by what was approved.

    Made once, keeps nothing of a call. Owns what an approval is bound to: the tool as it describes
    itself, its arguments, the folder, and whether there is a sandbox. Does not own what rules mean
    (`PermissionRules`) or who is asked (the dispatcher).
    """

    def __init__(
        self,
        rules: PermissionRules = _NO_RULES,
        *,
        folder: str = "",
        project: ProjectGrants | None = None,
    ) -> None:
        self._rules = rules
        self._folder = folder
        self._project = project
        self._recorded: dict[str, JsonObject] = {}
        """What a log has of the rules, by the mode: it is compared before each query."""
        self._warned: set[str] = set()
        """Names of tools that a warning was logged about."""

    def policy(self, query: Query) -> JsonObject:
        """Return the mode and the rules in force, for the log. Only for reading."""
        mode = query.settings.permission_mode
        if mode not in self._recorded:
            self._recorded[mode] = self._rules.in_mode(mode).as_recorded()
        return self._recorded[mode]

    def warn_about_names(self, query: Query) -> None:
        """Log a warning, once for each name, where a rule or a setting names no offered tool.

        It is not refused: a source of tools may offer the tool later, and another session or query
        may have tools of its own.
        """
        settings, rules = query.settings, self._rules.rules
        allowed, denied = settings.allowed_tools or (), settings.denied_tools
        if not (rules or allowed or denied):
            return
        named = NamedTools(rules=rules, allowed=allowed, denied=denied)
        offered = (item.name for item in query.offer.tools.wire_tools)
        for name, message in names_without_tool(named, offered):
            if name not in self._warned:
                self._warned.add(name)
                _logger.warning("%s", message)

    async def judge(self, query: Query, tool: str, ready: Ready) -> Judged:
        """Decide about a call about which no question was asked yet."""
        judged = await self._judge(query, tool, ready)
        if judged.ruling.action != "ask":
            return judged
        # Only for what would be asked: a grant answers a question and never lifts a denial.
        grant = await self._grant(query, judged)
        if grant is not None:
            approved = f"exactly this was approved for the {grant.scope}"
            ruling = Ruling(action="allow", reason=approved, source=grant.by)
        else:
            ruling = self._in_force(query).settle(judged.ruling)
        return msgspec.structs.replace(judged, ruling=ruling)

    async def confirm(
        self,
        query: Query,
        tool: str,
        ready: Ready,
        *,
        asked: ApprovalRequested | None,
        answer: ApprovalSettled | None,
    ) -> Judged:
        """Decide about a call that was approved: a denial still wins, and so does a change.

        A change is: the tool describes itself in another way, another program would be started,
        a path leads elsewhere, other lines of a file would change, or the sandbox is gone.
        """
        judged = await self._judge(query, tool, ready)
        if judged.ruling.action == "deny":
            return judged
        changed = answer is not None and answer.arguments is not None
        if asked is not None and _is_other(asked, judged, changed=changed):
            refused = Ruling(action="deny", reason=_CHANGED, source="approval")
            return msgspec.structs.replace(judged, ruling=refused)
        by = None if answer is None else answer.by
        ruling = Ruling(action="allow", reason="it was approved", source=by)
        # Only here: the approval of a call that has changed since must not last.
        if answer is not None and answer.scope == "project":
            await self._keep(judged, by=by)
        return msgspec.structs.replace(judged, ruling=ruling)

    async def _keep(self, judged: Judged, *, by: str | None) -> None:
        """Keep an approval for the project; where that fails, it holds for this call only."""
        grant = Grant(key=judged.key, scope="project", folder=judged.folder, by=by)
        try:
            if self._project is not None:
                await self._project.add(grant)
        except StoreError as error:
            _logger.warning("an approval is not kept for the project: %s", error.message)

    async def _judge(self, query: Query, tool: str, ready: Ready) -> Judged:
        found = await _facts_of(tool, ready)
        facts = found or NO_FACTS
        asks_always = query.settings.approval == "ask" and ready.rules.approval != "ask"
        question = PermissionQuestion(
            tool=tool,
            arguments=ready.arguments,
            approval="ask" if asks_always else ready.rules.approval,
            effect=ready.rules.effect,
            resolved_paths=() if facts.path is None else (facts.path,),
            is_confined=facts.is_confined is not False,
        )
        ruling = self._in_force(query).judge(question)
        # The tools that were offered say the same, except of those that an agent brings itself.
        if ruling.action != "deny" and not allows_tool(query.settings, tool):
            ruling = _NOT_ALLOWED
        # What a call would do is part of what rules allow. A denial needs no facts and stands.
        if found is None and ruling.action == "allow":
            ruling = _UNKNOWN
        # The rules name the tool as the source, but it was the setting that asked.
        elif asks_always and ruling.action == "ask" and ruling.source == "tool":
            ruling = _ASKED_ALWAYS
        folder = self._folder_of(facts)
        # As it is offered now, not as in the turn: what a server says of it may have changed while
        # a person was asked.
        digest = query.offer.registry.current().digest(tool)
        if digest is None:
            digest = tool_digest(ready.tool.spec, ready.rules.effect)
        key = approval_key(
            tool, ready.arguments, folder, tool_digest=digest, is_confined=question.is_confined
        )
        return Judged(ruling=ruling, folder=folder, key=key, tool_digest=digest, facts=facts)

    async def _grant(self, query: Query, judged: Judged) -> Grant | None:
        session = query.session.session_id
        site = CallSite(query_id=query.query_id, session_id=session, folder=judged.folder)
        own = [grant for grant in query.fold.standing.grants if grant.scope != "project"]
        grant = find_grant(own, judged.key, site)
        if grant is None and self._project is not None:
            # Not from the log: it could have been taken back, or come from another machine.
            grant = find_grant(await self._project.find(judged.folder), judged.key, site)
        return grant

    def _in_force(self, query: Query) -> PermissionRules:
        return self._rules.in_mode(query.settings.permission_mode)

    def _folder_of(self, facts: CallFacts) -> str:
        if facts.root is None:
            return self._folder
        return facts.root if facts.folder in {None, "."} else f"{facts.root}/{facts.folder}"


def _is_other(asked: ApprovalRequested, judged: Judged, *, changed: bool) -> bool:
    """Whether a call would do something else than what the question showed.

    With changed arguments, only the tool, the root and the sandbox can be compared. A question of
    an older version shows nothing.
    """
    if asked.folder is None:
        return False
    if asked.tool_digest not in {None, judged.tool_digest}:
        return True
    lost_sandbox = judged.is_unconfined and asked.facts.is_confined is not False
    if changed:
        return lost_sandbox or judged.facts.root != asked.facts.root
    was, now = asked.facts, judged.facts
    shown = (asked.folder, was.path, was.argv, _changed_lines(was.difference))
    return lost_sandbox or shown != (
        judged.folder,
        now.path,
        now.argv,
        _changed_lines(now.difference),
    )


def _changed_lines(difference: str | None) -> list[str]:
    """Return what a diff takes out and puts in; where that is, another call may have moved."""
    lines = (difference or "").split("\n")
    return [line for line in lines if line[:1] in {"+", "-"}]


async def _facts_of(tool: str, ready: Ready) -> CallFacts | None:
    """Find out what a call would do; None where its tool fails at that."""
    try:
        return _readable(await ready.facts())
    except Exception:  # a tool of the user's may raise anything
        _logger.exception("what a call of %r would do could not be found out", tool)
        return None


async def shown_anew(asked: ApprovalRequest, tools: ToolSet) -> ApprovalRequest:
    """Return a recorded question with what its call would do now.

    Of a call whose tool is not here, as that of a sub-agent, nothing is known: what the log says it
    would do is not shown as if it were found out.
    """
    call = ToolCallPart(call_id=asked.call_id, name=asked.tool, arguments=asked.arguments)
    ready = tools.resolve(call) if asked.child is None else None
    facts = await _facts_of(asked.tool, ready) if isinstance(ready, Ready) else None
    return msgspec.structs.replace(asked, facts=facts or NO_FACTS)


def _readable(facts: CallFacts) -> CallFacts:
    """Return facts that a log can keep: names of files may hold bytes that are no text."""
    shown = facts.difference
    if shown is not None and len(shown) > _MOST_SHOWN:
        shown = f"{shown[:_MOST_SHOWN]}\n[{len(shown) - _MOST_SHOWN} more characters]"
    return CallFacts(
        root=None if facts.root is None else writable(facts.root),
        path=None if facts.path is None else writable(facts.path),
        argv=None if facts.argv is None else tuple(map(writable, facts.argv)),
        folder=None if facts.folder is None else writable(facts.folder),
        difference=None if shown is None else writable(shown),
        is_confined=facts.is_confined,
    )
