"""What a server looks at before it starts: its store, its model, and keys of its own user.

A module of its own because `serve` and `rpc` share it, and the file of the commands is about flags.
"""

from collections.abc import Mapping

import click
import msgspec

from holdfast import Agent
from holdfast.administration import list_local_models
from holdfast.administration.unowned import LeftQueries
from holdfast.server.access import ApiKey, KeySource

_LOCAL = "local/"


async def check_store(agent: Agent) -> None:
    """Refuse a store that cannot be used, before a client is told of the server.

    A database that does not answer yet is not refused: the server waits for it.

    Raises:
        ConfigError: CONFIG_INVALID for one that is none, CONFIG_MISSING without its extra.
        StoreError: UNAVAILABLE for files that cannot be read or written.

    """
    if isinstance(agent.sessions.unowned, LeftQueries):  # a store of this machine
        await agent.sessions.list(limit=1)


async def warn_without_model(agent: Agent) -> None:
    """Say on standard error that the default model is a local one that was never fetched."""
    model = agent.settings.model
    name = model.removeprefix(_LOCAL)
    if not model.startswith(_LOCAL):
        return
    absent = {each.name for each in await list_local_models() if not each.is_present}
    if name in absent:
        told = (
            f"warning: queries will fail: no key of a provider is found, and the model {model} is "
            "not on this machine. Set a key such as ANTHROPIC_API_KEY and start again, or install "
            f"the extra `local` and run `holdfast models pull {name}`"
        )
        click.echo(told, err=True)


def own_keys_only_read(keys: KeySource, *, owner: str, has_tools: bool) -> KeySource:
    """Return keys of which those of the server's own user can only read.

    The sessions of that user have files and the shell, and holders of keys must not get these
    unless the server was told so (`has_tools`).
    """
    seen: Mapping[str, ApiKey] | None = None
    made: Mapping[str, ApiKey] = {}

    def limited() -> Mapping[str, ApiKey]:
        nonlocal seen, made
        now = keys()
        if now is not seen:
            seen, made = now, {digest: _limited(key, owner) for digest, key in now.items()}
        return made

    return keys if has_tools else limited


def _limited(key: ApiKey, owner: str) -> ApiKey:
    return msgspec.structs.replace(key, scopes=("read",)) if key.owner == owner else key
