"""Administration: what people and surfaces need beyond an agent.

The weights of local models, where sessions are kept, which projects are trusted, whether the
sandbox holds, and what a server runs beside its agents: a pool of sessions, and a worker that
carries on what other nodes left behind.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from haptera.access.assembly import late
from haptera.access.assembly.agent_inputs import ConfigurationSources
from haptera.access.assembly.configuration import Configuration, find_project
from haptera.access.pool import PoolLimits
from haptera.model.approvals import Grant
from haptera.model.errors import ConfigError, ErrorCode
from haptera.model.local_models import LocalModel, OnPull

if TYPE_CHECKING:
    from haptera.access.assembly.late import PostgresStore
    from haptera.access.config.project_file import ProjectFile


async def pull_model(
    name: str, *, folder: Path | None = None, progress: OnPull | None = None
) -> Path:
    """Fetch the weights of a local model, unless they are there, and return their path.

    `progress` is told size and place first, then how far it is.

    Raises:
        ConfigError: CONFIG_MISSING when they cannot be reached, with what to do.
        StoreError: CORRUPT when they are not what they should be, FULL when there is no space.

    """
    return await late.pull_model(name, folder=folder or model_folder(), progress=progress)


async def list_local_models(*, folder: Path | None = None) -> tuple[LocalModel, ...]:
    """List the local models that are known, and which of them are here."""
    return await asyncio.to_thread(late.list_local_models, folder or model_folder())


async def remove_local_model(name: str, *, folder: Path | None = None) -> int:
    """Remove the weights of a local model; returns how many bytes that frees."""
    where = folder or model_folder()
    return await asyncio.to_thread(late.remove_local_model, name, folder=where)


def key_advice() -> str:
    """Say which variables give an agent a model of a provider, for messages: "set ..."."""
    return late.key_advice()


async def prepare_postgresql(url: str, *, grant_to: Sequence[str] = ()) -> None:
    """Make or migrate the tables of a database, as their owner, and let other roles use them.

    Agents connect as a role that is not the owner of the tables, so that row-level security holds
    for them.

    Raises:
        StoreError: UNAVAILABLE when the database cannot be reached or the role may not do it.

    """
    await asyncio.to_thread(late.prepare_database, url, grant_to=grant_to)


def open_postgresql(
    url: str, *, owner: str | None, lease_seconds: float | None = None
) -> "PostgresStore":
    """Open a PostgreSQL store that agents and a worker share; the caller closes it.

    Without an owner it shows the sessions of all owners, to a role that row-level security does
    not apply to.
    """
    return late.PostgresStore(url, owner=owner, lease_seconds=lease_seconds)


def pool_limits(*, per_owner: int | None = None, otherwise: PoolLimits | None = None) -> PoolLimits:
    """Return the limits of a pool that the user's configuration says.

    These are HAPTERA_MAX_SESSIONS and HAPTERA_SESSION_TIMEOUT, or `max_concurrent_sessions` and
    `session_timeout` of `[runtime]` in the file. What neither says is as in `otherwise`.

    Raises:
        ConfigError: CONFIG_INVALID naming the variable, or the file, line and field.

    """
    resolved = Configuration({}, ConfigurationSources()).resolved
    pool, usual = resolved.pool, otherwise or PoolLimits()
    has_sessions, has_seconds = (
        resolved.origin_of(name) != "default"
        for name in ("max_concurrent_sessions", "session_timeout")
    )
    return msgspec.structs.replace(
        usual,
        sessions=pool.max_concurrent_sessions if has_sessions else usual.sessions,
        idle_seconds=pool.session_timeout if has_seconds else usual.idle_seconds,
        per_owner=usual.per_owner if per_owner is None else per_owner,
    )


def model_folder() -> Path:
    """Return where weights are kept for this user."""
    return Configuration({}, ConfigurationSources()).model_folder


def data_folder() -> Path:
    """Return where sessions are kept for this user."""
    return Configuration({}, ConfigurationSources()).folders.data


def state_folder() -> Path:
    """Return where the history of prompts and the like is kept for this user."""
    return Configuration({}, ConfigurationSources()).folders.state


def project_file(sources: ConfigurationSources | None = None) -> "ProjectFile | None":
    """Return the configuration file of the project in the working folder, trusted or not.

    `sources` says where to look, as the options `cwd`, `environment` and `config_dir` of an agent
    do.
    """
    return find_project(sources or ConfigurationSources())[1]


def trust_project(digest: str, sources: ConfigurationSources | None = None) -> None:
    """Trust the project's file as the caller has seen it, until it changes.

    Raises:
        ConfigError: CONFIG_MISSING when there is no file, CONFIG_INVALID when it has another digest
            by now, or says what a project may not say.
        StoreError: UNAVAILABLE when the decision cannot be kept.

    """
    folders, project = find_project(sources or ConfigurationSources())
    if project is None:
        raise ConfigError(ErrorCode.CONFIG_MISSING, f"{folders.cwd} has no project file")
    if project.digest != digest:
        message = f"{project.path} is not what was shown: its digest is {project.digest}"
        raise ConfigError(ErrorCode.CONFIG_INVALID, message)
    project.as_trusted().config()
    folders.decisions.trust(folders.cwd, digest)


def distrust_project(sources: ConfigurationSources | None = None) -> int:
    """Trust nothing in the project any more; returns how many approvals for it are taken back.

    Raises:
        StoreError: UNAVAILABLE when the decision cannot be kept.

    """
    folders, _ = find_project(sources or ConfigurationSources())
    folders.decisions.trust(folders.cwd, None)
    return folders.decisions.revoke(folders.cwd)


def project_approvals(sources: ConfigurationSources | None = None) -> tuple[Grant, ...]:
    """Return the approvals that were given for the whole project."""
    folders, _ = find_project(sources or ConfigurationSources())
    return folders.decisions.grants_beneath(folders.cwd)


async def check_sandbox(place: Path) -> "late.SandboxCheck":
    """Try twelve ways out of the sandbox in a new folder in `place`, which is removed afterwards.

    The result names what confines commands here, and says whether it holds.
    """
    return await late.check_sandbox(place)
