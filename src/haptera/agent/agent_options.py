"""What an agent can be told, and settings of any scope, by the structs that declare the options.

Settings are fields of `Settings`, what else a file can say of agents of `AgentDefaults`; the others
are declared in `assembly.agent_inputs`, for what they are used. `query_options` has those of
prompts, queries and openings.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from haptera.access.assembly.agent_inputs import (
    AgentOptions,
    ConfigurationSources,
    ObserverOptions,
    OwnAccess,
)
from haptera.model.agent_defaults import AgentDefaults
from haptera.model.option import Option
from haptera.model.settings import (
    ModelStep,
    Settings,
)
from haptera.model.tools import ApprovalMode, ToolRules
from haptera.options.declarations import ELSEWHERE, Keywords, is_anything


def _is_system_prompt(value: object) -> bool:
    if value is None or isinstance(value, str):
        return True
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


class WrittenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that a program writes in another way than they are stored."""

    system_prompt: Annotated[
        str | Sequence[str] | None,
        Option(
            of=Settings,
            field="system_prompts",
            fits=_is_system_prompt,
            wanted="a text or a list of texts",
        ),
    ] = ELSEWHERE
    fallbacks: Annotated[Sequence[ModelStep | str], Option(of=Settings, fits=is_anything)] = (
        ELSEWHERE
    )


class SubAgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `as_tool` may be told beside the name and the description of the tool."""

    approval: Annotated[ApprovalMode, Option(of=ToolRules)] = ELSEWHERE
    timeout: Annotated[float | None, Option(of=ToolRules)] = ELSEWHERE
    output_type: Annotated[
        object,
        Option(
            "The type of the answers, as for a query; the model that calls the tool gets JSON.",
            fits=is_anything,
        ),
    ] = None


CONFIGURE = Keywords(structs=(WrittenSettings,), configured=(Settings,))
"""What outlives a query; also what `configure` takes."""
AGENT = Keywords(
    structs=(
        WrittenSettings,
        AgentDefaults,
        AgentOptions,
        ObserverOptions,
        OwnAccess,
        ConfigurationSources,
    ),
    configured=(Settings,),
    without=("log",),
)


def _other_names() -> dict[str, str]:
    """Return how an option is written here, by the names that other libraries have for it."""
    names = {
        "system_prompt": "instructions system system_message system_instruction",
        "model": "llm model_name model_id",
        "max_tokens": "max_output_tokens max_completion_tokens max_new_tokens",
        "stop": "stop_sequences",
        "thinking": "effort reasoning reasoning_effort thinking_budget",
        "limits=Limits(turns=...)": "max_turns max_iterations max_steps recursion_limit",
        "limits=Limits(cost=...)": "max_budget_usd max_cost",
        "tools": "functions toolsets",
        "output_type": "output_format response_format response_model result_type",
        "deps": "context dependencies",
        "store": "checkpointer db memory",
        "hooks": "callbacks",
        "base_url": "api_base endpoint",
        "fallbacks": "fallback_model fallback_models",
        "workspace": "working_directory root",
    }
    return {name: here for here, listed in names.items() for name in listed.split()}


OTHER_NAMES = _other_names()
"""For the error of an option that is called something else here."""
