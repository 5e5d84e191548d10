"""Workspace: the folder that an agent works in: its tools, context files and snapshots."""

from collections.abc import Iterator
from pathlib import Path

from holdfast.assembly import late
from holdfast.assembly.agent_inputs import AgentInputs
from holdfast.assembly.configuration import Configuration
from holdfast.blocks.tool_registry.registry import ToolInput
from holdfast.ports.context_source import ContextSource
from holdfast.ports.snapshots import Snapshotter


class Workspace:
    """What an agent has of its folder; without `workspace=`, nothing."""

    def __init__(self, inputs: AgentInputs, configuration: Configuration) -> None:
        self._configuration = configuration
        given = inputs.workspace
        self.folder = None if given is None else configuration.cwd / Path(given).expanduser()
        self.tools: list[ToolInput] = []
        self.context: ContextSource | None = None
        """Reads context files and skills; None when there are none to look for."""
        if self.folder is not None:
            self.tools += late.coding_tools(self.folder)
            self._look_for_context(self.folder)
        self.snapshotter: Snapshotter | None = None
        """Records the files; None when no snapshots are taken."""
        if self.folder is not None and configuration.resolved.agent.snapshots:
            self.snapshotter = late.GitTrees(
                self.folder,
                data=configuration.folders.data,
                environment=configuration.environment.variables,
                apart=[*_own_files(inputs, configuration.cwd)],
            )

    def _look_for_context(self, folder: Path) -> None:
        agent = self._configuration.resolved.agent
        if not agent.context_files and not agent.skill_folders:
            return
        self.context = context = late.ContextFolders(
            folder,
            files=agent.context_files,
            skills=agent.skill_folders,
            user=self._configuration.config_folder,
            environment=self._configuration.environment.variables,
        )
        if context.look().skills:
            self.tools.append(late.load_skill_tool(context))


def _own_files(inputs: AgentInputs, cwd: Path) -> Iterator[Path]:
    """Yield files that the agent itself writes: going back in them would lose sessions."""
    place = getattr(inputs.store, "place", None)
    if isinstance(inputs.store, str):
        place = Path(inputs.store.partition(":")[2]).expanduser() if ":" in inputs.store else None
    if place is not None:
        yield place
    if inputs.record_to is not None:
        yield cwd / inputs.record_to
