"""Doctor: what of this machine works for Haptera, what does not, and the command that mends it."""

import asyncio
import importlib.util
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from haptera.access.administration import check_sandbox, list_local_models
from haptera.access.assembly import late
from haptera.access.assembly.agent_inputs import ConfigurationSources
from haptera.access.assembly.configuration import Configuration, provider_variables
from haptera.access.assembly.store_strings import STORES, make_store
from haptera.access.configured import configured_store
from haptera.access.credentials import find_credentials
from haptera.access.plugins import BUILT_IN_TOOLS, group_of, names_offered_twice, noun_of
from haptera.formats.formats import ARCHIVE, FORMATS
from haptera.kernel.blocks.pricing import PriceList, Rates
from haptera.model.errors import AgentError
from haptera.providers.vendors import VENDORS

FindingLevel: TypeAlias = Literal["ok", "note", "problem"]
"""`note` is something that is not there and may be wanted; `problem` keeps something from working.
"""

_EXTRAS = {
    "cli": "click",
    "claude": "claude_agent_sdk",
    "keyring": "keyring",
    "local": "xllamacpp",
    "mcp": "mcp",
    "otel": "opentelemetry",
    "postgres": "psycopg",
    "server": "uvicorn",
}
_CHMOD = "make it private with chmod 600, as the message says"


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was looked at."""

    subject: str
    verdict: FindingLevel
    found: str
    remedy: str | None = None
    """The command, or the step, that mends it."""


class KnownModel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model of the built-in catalogue."""

    name: str
    """`provider/model`."""
    context_window: int | None = None
    price: str | None = None
    """US dollars per million tokens of input and of output."""
    has_key: bool = False
    """Whether a key for its provider is found."""


def known_models(sources: ConfigurationSources | None = None) -> tuple[KnownModel, ...]:
    """Return the models of the catalogue, those of providers with a key first."""
    catalogue = late.shipped_catalogue()
    keyed = {each.provider for each in find_credentials(sources)}
    models = [
        KnownModel(
            name=f"{provider}/{facts.model}",
            context_window=facts.context_window,
            price=_price(facts.prices),
            has_key=provider in keyed,
        )
        for provider in provider_variables()
        for facts in catalogue.models(provider)
        if not facts.deprecated
    ]
    return tuple(sorted(models, key=lambda each: not each.has_key))


async def examine(sources: ConfigurationSources | None = None) -> tuple[Finding, ...]:
    """Look at everything that Haptera needs on this machine. Contacts no provider."""
    sources = sources or ConfigurationSources()
    # First, because it needs no configuration: it is told even when nothing else can be.
    findings = [_versions()]
    try:
        configuration = Configuration({}, sources)
    except AgentError as error:
        findings.append(
            Finding(
                subject="configuration",
                verdict="problem",
                found=error.message,
                remedy="correct the file or the variable that is named",
            )
        )
        return tuple(findings)
    findings += [
        _configuration(configuration),
        *_variables(configuration),
        *_keys(configuration, sources),
        await _store(configuration, sources),
        await _local_model(),
        await _sandbox(configuration.folders.cache),
        _git(),
        _extras(),
        *_mcp_servers(configuration),
        *_plugins(configuration),
    ]
    return tuple(findings)


def _versions() -> Finding:
    names = ("haptera", "msgspec", "aiohttp", "apsw")
    python = ".".join(map(str, sys.version_info[:3]))
    versions = ", ".join(
        [f"Python {python}", *(f"{name} {metadata.version(name)}" for name in names)]
    )
    return Finding(subject="versions", verdict="ok", found=versions)


def _configuration(configuration: Configuration) -> Finding:
    path = configuration.folders.config_file
    place = f"{path}" if path.exists() else f"none ({path} would be read)"
    project = configuration.project_file
    if project is not None and not project.is_trusted:
        return Finding(
            subject="configuration",
            verdict="note",
            found=f"{place}; the project's file {project.path} is not trusted, so it is ignored",
            remedy="read the file, then trust it with `haptera trust`",
        )
    return Finding(subject="configuration", verdict="ok", found=place)


def _variables(configuration: Configuration) -> list[Finding]:
    unread = configuration.environment.unread()
    if not unread:
        return []
    names = ", ".join(f"{name} is not read{meant}" for name, meant in unread.items())
    remedy = "docs/configuration.md lists the variables; unset those that are not meant"
    return [Finding(subject="environment", verdict="note", found=names, remedy=remedy)]


def _keys(configuration: Configuration, sources: ConfigurationSources) -> list[Finding]:
    try:
        configuration.credentials.credentials()
    except AgentError as error:
        return [
            Finding(subject="keys", verdict="problem", found=error.message, remedy=_CHMOD),
            *_found_keys(sources),
        ]
    return _found_keys(sources) or [
        Finding(
            subject="keys",
            verdict="note",
            found="none found",
            remedy=f"haptera login PROVIDER, or {late.key_advice()}",
        )
    ]


def _found_keys(sources: ConfigurationSources) -> list[Finding]:
    credentials = find_credentials(sources)
    names = ", ".join(f"{each.provider} ({each.source})" for each in credentials)
    findings = [Finding(subject="keys", verdict="ok", found=names)] if credentials else []
    for each in credentials:
        if each.problem is not None:
            remedy = f"set it again, or run `haptera login {each.provider}`"
            findings.append(
                Finding(subject="keys", verdict="problem", found=each.problem, remedy=remedy)
            )
    return findings


async def _store(configuration: Configuration, sources: ConfigurationSources) -> Finding:
    location, owner = "the store", configuration.resolved.agent.owner
    try:
        location = configured_store(sources)
        # Opened for real: a location that can be parsed may still not be writable.
        store = make_store(location, owner=owner, plugins=configuration.plugins)
        try:
            await store.index.browse(owner, None, limit=1)
            # Only a store that others operate has something to say about how it is operated.
            warning: str | None = getattr(store, "warning", None)
        finally:
            await store.close()
    except AgentError as error:
        return Finding(
            subject="store",
            verdict="problem",
            found=f"{location}: {error.message}",
            remedy="make the folder writable, or choose another with HAPTERA_STORE",
        )
    if warning is not None:
        return Finding(
            subject="store",
            verdict="note",
            found=warning,
            remedy="set synchronous_commit to on or remote_apply on the server",
        )
    return Finding(subject="store", verdict="ok", found=location)


async def _local_model() -> Finding:
    if importlib.util.find_spec("xllamacpp") is None:
        remedy = "pip install 'haptera[local]'"
        state = "the runtime for local models is not installed"
        return Finding(subject="local model", verdict="note", found=state, remedy=remedy)
    present = [model.name for model in await list_local_models() if model.is_present]
    if not present:
        remedy = "haptera models pull smollm2 (or another of `haptera models list`)"
        return Finding(subject="local model", verdict="note", found="none fetched", remedy=remedy)
    return Finding(subject="local model", verdict="ok", found=", ".join(present))


async def _sandbox(folder: Path) -> Finding:
    # Not in the folder for temporary files: the sandbox has one of its own.
    try:
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    except OSError as error:
        reason = f"cannot be tried: {error}"
        return Finding(
            subject="sandbox", verdict="note", found=reason, remedy=f"make {folder} writable"
        )
    check = await check_sandbox(folder)
    if check.holds:
        verdict = f"{check.report.backend}: all {len(check.probes)} ways out are closed"
        return Finding(subject="sandbox", verdict="ok", found=verdict)
    escaped = [probe.name for probe in check.probes if not probe.denied]
    reasons = (*check.report.missing, *(f"not denied: {name}" for name in escaped))
    missing = "; ".join(reasons) or "the self-test could not run"
    return Finding(
        subject="sandbox",
        verdict="problem" if escaped else "note",
        found=f"{check.report.backend}: {missing}",
        remedy="shell commands are asked about one by one; a Linux kernel with Landlock and user "
        "namespaces confines them",
    )


def _git() -> Finding:
    path = shutil.which("git")
    if path is None:
        version = "not found: files cannot be rewound with a conversation"
        return Finding(subject="git", verdict="note", found=version, remedy="install git")
    return Finding(subject="git", verdict="ok", found=path)


def _extras() -> Finding:
    here = [name for name, module in _EXTRAS.items() if importlib.util.find_spec(module)]
    absent = [name for name in _EXTRAS if name not in here]
    message = f"installed: {', '.join(here)}" + (f"; not: {', '.join(absent)}" if absent else "")
    return Finding(subject="extras", verdict="ok", found=message)


def _mcp_servers(configuration: Configuration) -> list[Finding]:
    servers = [name for name, each in configuration.file.mcp_servers.items() if not each.disabled]
    if not servers:
        return []
    names = ", ".join(servers)
    if importlib.util.find_spec(_EXTRAS["mcp"]):
        return [Finding(subject="MCP servers", verdict="ok", found=names)]
    return [
        Finding(
            subject="MCP servers",
            verdict="problem",
            found=f"{names}: configured, but the extra `mcp` is not installed",
            remedy="pip install 'haptera[mcp]', or remove them with `haptera mcp remove`",
        )
    ]


_BUILT_IN = {
    "provider": frozenset(VENDORS),
    "store": frozenset(string.partition(":")[0] for string in STORES),
    "format": frozenset((ARCHIVE, *FORMATS)),
    "tool": BUILT_IN_TOOLS,
}


def _plugins(configuration: Configuration) -> list[Finding]:
    """List what installed packages offer. None of it is imported."""
    if not configuration.plugins.is_on:
        return [Finding(subject="plugins", verdict="note", found="turned off")]
    installed = configuration.plugins.installed
    twice = names_offered_twice(installed)
    findings = []
    for each in installed:
        noun, label = noun_of(each.kind), f"{each.name} ({group_of(each.kind)}), of {each.origin}"
        uninstall = f"pip uninstall {each.distribution}"
        if each.name in _BUILT_IN[noun]:
            state = f"{label}: never used, because a built-in {noun} has the name"
            finding = Finding(subject="plugin", verdict="note", found=state, remedy=uninstall)
        elif (noun, each.name) in twice:
            state = f"{label}: refused, because another package offers a {noun} of the name"
            finding = Finding(subject="plugin", verdict="problem", found=state, remedy=uninstall)
        else:
            finding = Finding(subject="plugin", verdict="ok", found=label)
        findings.append(finding)
    return findings


def _price(prices: PriceList | None) -> str | None:
    rates = prices[0].rates if prices else Rates()
    if rates.input is None or rates.output is None:
        return None
    return f"{rates.input.normalize():f} / {rates.output.normalize():f}"
