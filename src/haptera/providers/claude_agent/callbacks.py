"""Callbacks: what the CLI asks while it works, as questions to the `NativeHost`.

Our own tools are offered by the package's in-process MCP server. Such a call does not say which of
the model's calls it is; the hook before it does, so the two are put together by name and arguments.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from haptera.model.canonical import canonical_json
from haptera.model.json_types import JsonObject
from haptera.model.parts import MediaPart
from haptera.model.tools import ToolSpec
from haptera.ports.native_agent import Allow, CallResult, NativeCall, NativeHost, NativeOpening
from haptera.providers.claude_agent.frames import OWN_SERVER, is_own, own_name
from haptera.providers.claude_agent.sdk import package as sdk

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions, SdkMcpTool, ToolPermissionContext

_HOOK_SECONDS = 24 * 3600.0
"""A hook of ours waits for the log and for a slow consumer; the CLI's default is a minute."""


FromPackage: TypeAlias = Any
"""A value of the package's own types, which cannot be imported before they are needed."""


class Extras:
    """What is handed through to the package as it takes it."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.mcp_servers: dict[str, Any] = dict(options.get("mcp_servers") or {})
        self.hooks: dict[str, list[Any]] = {
            event: list(matchers) for event, matchers in (options.get("hooks") or {}).items()
        }
        self.agents: dict[str, Any] | None = options.get("agents")


class Callbacks:
    """Turns the CLI's questions in one session into calls of its host."""

    def __init__(self, opening: NativeOpening, host: NativeHost) -> None:
        self._host = host
        self._tools = opening.tools
        self._announced: dict[str, tuple[str, bytes]] = {}
        """The calls of our tools that have not run yet: tool and arguments by id, in order."""

    def options(
        self,
        extras: Extras,
        *,
        environment: dict[str, str],
        cwd: str,
        transcripts: FromPackage,
    ) -> "ClaudeAgentOptions":
        """Return the options of the package's client."""
        matcher = sdk.HookMatcher(hooks=[self._before_tool], timeout=_HOOK_SECONDS)
        hooks: Any = {
            **extras.hooks,
            "PreToolUse": [matcher, *extras.hooks.get("PreToolUse", [])],
        }
        return sdk.ClaudeAgentOptions(
            can_use_tool=self._may_use,
            hooks=hooks,
            mcp_servers=self.servers(extras),
            agents=extras.agents,
            env=environment,
            cwd=cwd,
            session_store=transcripts,
        )

    def servers(self, extras: Extras) -> dict[str, Any]:
        """Return the MCP servers: the user's, and the one of our own tools."""
        if not self._tools:
            return dict(extras.mcp_servers)
        tools = [self._offered(spec) for spec in self._tools]
        own = sdk.create_sdk_mcp_server(OWN_SERVER, tools=tools)
        return {**extras.mcp_servers, OWN_SERVER: own}

    def end_turn(self) -> None:
        """Forget the calls that did not run: an equal one later must not get their ids."""
        self._announced.clear()

    async def _before_tool(
        self,
        said: FromPackage,
        call_id: str | None,
        _context: object,
    ) -> FromPackage:
        tool, arguments = str(said.get("tool_name", "")), said.get("tool_input") or {}
        call = NativeCall(
            call_id=call_id or said.get("tool_use_id"),
            tool=own_name(tool),
            arguments=arguments,
            agent=said.get("agent_id"),
        )
        if is_own(tool):
            if call.call_id is not None:
                self._announced[call.call_id] = call.tool, canonical_json(arguments)
            return {}
        answer = await self._host.announce(call)
        if answer is None:
            return {}
        # `ask` leads on to the permission check. `allow` would skip it.
        said_back: JsonObject = {"hookEventName": "PreToolUse", "permissionDecision": "ask"}
        if isinstance(answer, Allow):
            said_back["updatedInput"] = answer.arguments
        else:
            said_back["permissionDecision"] = "deny"
            said_back["permissionDecisionReason"] = answer.reason
        return {"hookSpecificOutput": said_back}

    async def _may_use(
        self, tool: str, arguments: JsonObject, context: "ToolPermissionContext"
    ) -> FromPackage:
        call = NativeCall(
            call_id=context.tool_use_id,
            tool=own_name(tool),
            arguments=arguments,
            agent=context.agent_id,
        )
        answer = await self._host.permit(call)
        if isinstance(answer, Allow):
            return sdk.PermissionResultAllow(updated_input=answer.arguments)
        self._announced.pop(call.call_id or "", None)
        return sdk.PermissionResultDeny(message=answer.reason, interrupt=answer.stop)

    def _offered(self, spec: ToolSpec) -> "SdkMcpTool[Any]":
        return sdk.SdkMcpTool(
            name=spec.name,
            description=spec.description,
            input_schema=spec.input_schema,
            handler=self._runner_of(spec.name),
        )

    def _runner_of(self, name: str) -> Callable[[JsonObject], Awaitable[JsonObject]]:
        async def run(arguments: JsonObject) -> JsonObject:
            # A model may make the same call twice in one answer: equal calls run in order.
            wanted = (name, canonical_json(arguments))
            waiting = (key for key, asked in self._announced.items() if asked == wanted)
            call_id = next(waiting, None)
            self._announced.pop(call_id or "", None)
            call = NativeCall(call_id=call_id, tool=name, arguments=arguments)
            return _as_mcp(await self._host.run_tool(call))

        return run


def _as_mcp(result: CallResult) -> JsonObject:
    content: Sequence[JsonObject] = [
        {"type": "image", "data": part.data or "", "mimeType": part.mime}
        if isinstance(part, MediaPart)
        else {"type": "text", "text": part.text}
        for part in result.content
    ]
    return {"content": list(content), "is_error": result.is_error}
