"""The tool `load_skill`: a model reads the instructions of a skill when it needs them.

A module of its own because a tool is looked for under its name.
"""

from typing import Annotated

from msgspec import Meta

from holdfast.blocks.tool_registry.tool import AnyTool, tool
from holdfast.ports.context_source import ContextSource


def load_skill_tool(source: ContextSource) -> AnyTool:
    """Make the tool; it returns text, and runs nothing."""

    @tool(effect="read", idempotent=True)
    async def load_skill(name: Annotated[str, Meta(min_length=1, max_length=64)]) -> str:
        """Read the instructions of a skill.

        Args:
            name: The name of the skill, as it is listed.

        """
        text = await source.load_skill(name)
        if text is None:
            known = ", ".join(skill.name for skill in (await source.find()).skills)
            raise ValueError(f"there is no skill {name!r}; there are: {known or 'none'}")
        return text

    return load_skill
