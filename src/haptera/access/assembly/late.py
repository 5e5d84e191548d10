"""Providers, stores and what else only some agents need: each is imported when it is first used.

A driver or a wire protocol costs time and memory, and `import haptera` loads none of them. Use the
names through the module: `late.SqliteStore(path)`.
"""

from typing import TYPE_CHECKING

from haptera.model.late_names import late_names

if TYPE_CHECKING:
    from random import Random

    from haptera.access.assembly.attachments import attachment_part
    from haptera.access.assembly.stored_sources import TransportHttp, stored_source
    from haptera.access.auth.oauth_login import log_in_with_oauth
    from haptera.access.config.context_files import ContextFolders
    from haptera.providers.catalogue import shipped_catalogue
    from haptera.providers.claude_agent.agent import AgentSurroundings, ClaudeAgent
    from haptera.providers.claude_agent.transcripts import stored_transcripts
    from haptera.providers.local.client import LocalModelClient
    from haptera.providers.local.download import pull_model
    from haptera.providers.local.weights import (
        list_local_models,
        load_catalogue,
        remove_local_model,
    )
    from haptera.providers.transport.http import AiohttpTransport
    from haptera.providers.vendor_clients import VendorAccess, make_client
    from haptera.providers.vendors import key_advice
    from haptera.providers.wire.chat_completions.dialects import DIALECTS, GENERIC, Dialect
    from haptera.stores.agents_database import agents_document, agents_sessions
    from haptera.stores.file_trees.git_trees import GitTrees
    from haptera.stores.file_trees.kept_files import forget_kept_files, kept_files_of
    from haptera.stores.jsonl.store import JsonlStore
    from haptera.stores.memory import MemoryStore
    from haptera.stores.opencode_database import opencode_document, opencode_sessions
    from haptera.stores.postgresql.store import PostgresStore, prepare_database
    from haptera.stores.recording import RecordingClient
    from haptera.stores.sqlite.store import SqliteStore
    from haptera.tools import CodingToolkit, check_sandbox
    from haptera.tools.mcp import McpServer, McpStatus, mcp_servers
    from haptera.tools.option_tools import load_skill_tool, recall_tool
    from haptera.tools.sandbox_check import SandboxCheck

__all__ = [
    "DIALECTS",
    "GENERIC",
    "AgentSurroundings",
    "AiohttpTransport",
    "ClaudeAgent",
    "CodingToolkit",
    "ContextFolders",
    "Dialect",
    "GitTrees",
    "JsonlStore",
    "LocalModelClient",
    "McpServer",
    "McpStatus",
    "MemoryStore",
    "PostgresStore",
    "Random",
    "RecordingClient",
    "SandboxCheck",
    "SqliteStore",
    "TransportHttp",
    "VendorAccess",
    "agents_document",
    "agents_sessions",
    "attachment_part",
    "check_sandbox",
    "forget_kept_files",
    "kept_files_of",
    "key_advice",
    "list_local_models",
    "load_catalogue",
    "load_skill_tool",
    "log_in_with_oauth",
    "make_client",
    "mcp_servers",
    "opencode_document",
    "opencode_sessions",
    "prepare_database",
    "pull_model",
    "recall_tool",
    "remove_local_model",
    "shipped_catalogue",
    "stored_source",
    "stored_transcripts",
]

_CLAUDE_AGENT = "haptera.providers.claude_agent.agent"
_DIALECTS = "haptera.providers.wire.chat_completions.dialects"
_VENDOR_CLIENTS = "haptera.providers.vendor_clients"
_AGENTS = "haptera.stores.agents_database"
_OPENCODE = "haptera.stores.opencode_database"
_OPTION_TOOLS = "haptera.tools.option_tools"
_STORED_SOURCES = "haptera.access.assembly.stored_sources"
_MCP = "haptera.tools.mcp"
_POSTGRES_STORE = "haptera.stores.postgresql.store"
_WEIGHT_FILES = "haptera.providers.local.weights"

if not TYPE_CHECKING:
    __getattr__ = late_names(
        __name__,
        {
            "DIALECTS": _DIALECTS,
            "GENERIC": _DIALECTS,
            "VendorAccess": _VENDOR_CLIENTS,
            "AgentSurroundings": _CLAUDE_AGENT,
            "AiohttpTransport": "haptera.providers.transport.http",
            "ClaudeAgent": _CLAUDE_AGENT,
            "CodingToolkit": "haptera.tools",
            "ContextFolders": "haptera.access.config.context_files",
            "Dialect": _DIALECTS,
            "GitTrees": "haptera.stores.file_trees.git_trees",
            "JsonlStore": "haptera.stores.jsonl.store",
            "LocalModelClient": "haptera.providers.local.client",
            "McpServer": _MCP,
            "McpStatus": _MCP,
            "MemoryStore": "haptera.stores.memory",
            "PostgresStore": _POSTGRES_STORE,
            "Random": "random",
            "RecordingClient": "haptera.stores.recording",
            "SandboxCheck": "haptera.tools.sandbox_check",
            "SqliteStore": "haptera.stores.sqlite.store",
            "TransportHttp": _STORED_SOURCES,
            "attachment_part": "haptera.access.assembly.attachments",
            "check_sandbox": "haptera.tools",
            "forget_kept_files": "haptera.stores.file_trees.kept_files",
            "kept_files_of": "haptera.stores.file_trees.kept_files",
            "key_advice": "haptera.providers.vendors",
            "list_local_models": _WEIGHT_FILES,
            "load_catalogue": _WEIGHT_FILES,
            "load_skill_tool": _OPTION_TOOLS,
            "log_in_with_oauth": "haptera.access.auth.oauth_login",
            "make_client": _VENDOR_CLIENTS,
            "mcp_servers": _MCP,
            "agents_document": _AGENTS,
            "agents_sessions": _AGENTS,
            "opencode_document": _OPENCODE,
            "opencode_sessions": _OPENCODE,
            "prepare_database": _POSTGRES_STORE,
            "pull_model": "haptera.providers.local.download",
            "recall_tool": _OPTION_TOOLS,
            "remove_local_model": _WEIGHT_FILES,
            "stored_source": _STORED_SOURCES,
            "shipped_catalogue": "haptera.providers.catalogue",
            "stored_transcripts": "haptera.providers.claude_agent.transcripts",
        },
    )
