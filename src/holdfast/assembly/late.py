"""Providers, stores and what else only some agents need: each is imported when it is first used.

A driver or a wire protocol costs time and memory, and `import holdfast` loads none of them. Use the
names through the module: `late.SqliteStore(path)`.
"""

from typing import TYPE_CHECKING

from holdfast.vocabulary.late_names import late_names

if TYPE_CHECKING:
    from random import Random

    from holdfast.assembly.attachments import attachment_part
    from holdfast.assembly.stored_sources import TransportHttp, stored_source
    from holdfast.auth.oauth_login import log_in_with_oauth
    from holdfast.config.context_files import ContextFolders
    from holdfast.providers.catalogue import shipped_catalogue
    from holdfast.providers.claude_agent.agent import AgentSurroundings, ClaudeAgent
    from holdfast.providers.claude_agent.transcripts import stored_transcripts
    from holdfast.providers.local.client import LocalModelClient
    from holdfast.providers.local.download import pull_model
    from holdfast.providers.local.weights import list_local_models, remove_local_model
    from holdfast.providers.transport.http import AiohttpTransport
    from holdfast.providers.vendor_clients import VendorAccess, make_client, offered_client
    from holdfast.providers.vendors import key_advice
    from holdfast.providers.wire.chat_completions.dialects import DIALECTS, GENERIC, Dialect
    from holdfast.stores.file_trees.git_trees import GitTrees
    from holdfast.stores.file_trees.kept_files import forget_kept_files, kept_files_of
    from holdfast.stores.jsonl.store import JsonlStore
    from holdfast.stores.memory import MemoryStore
    from holdfast.stores.opencode_database import opencode_document, opencode_sessions
    from holdfast.stores.postgresql.store import PostgresStore, prepare_database
    from holdfast.stores.recording import RecordingClient
    from holdfast.stores.sqlite.store import SqliteStore
    from holdfast.tools import CodingToolkit, check_sandbox
    from holdfast.tools.mcp import McpServer, McpStatus, mcp_servers
    from holdfast.tools.option_tools import load_skill_tool, recall_tool
    from holdfast.tools.sandbox_check import SandboxCheck

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
    "attachment_part",
    "check_sandbox",
    "forget_kept_files",
    "kept_files_of",
    "key_advice",
    "list_local_models",
    "load_skill_tool",
    "log_in_with_oauth",
    "make_client",
    "mcp_servers",
    "offered_client",
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

_CLAUDE_AGENT = "holdfast.providers.claude_agent.agent"
_DIALECTS = "holdfast.providers.wire.chat_completions.dialects"
_VENDOR_CLIENTS = "holdfast.providers.vendor_clients"
_OPENCODE = "holdfast.stores.opencode_database"
_OPTION_TOOLS = "holdfast.tools.option_tools"
_STORED_SOURCES = "holdfast.assembly.stored_sources"
_MCP = "holdfast.tools.mcp"
_POSTGRES_STORE = "holdfast.stores.postgresql.store"
_WEIGHT_FILES = "holdfast.providers.local.weights"

if not TYPE_CHECKING:
    __getattr__ = late_names(
        __name__,
        {
            "DIALECTS": _DIALECTS,
            "GENERIC": _DIALECTS,
            "VendorAccess": _VENDOR_CLIENTS,
            "AgentSurroundings": _CLAUDE_AGENT,
            "AiohttpTransport": "holdfast.providers.transport.http",
            "ClaudeAgent": _CLAUDE_AGENT,
            "CodingToolkit": "holdfast.tools",
            "ContextFolders": "holdfast.config.context_files",
            "Dialect": _DIALECTS,
            "GitTrees": "holdfast.stores.file_trees.git_trees",
            "JsonlStore": "holdfast.stores.jsonl.store",
            "LocalModelClient": "holdfast.providers.local.client",
            "McpServer": _MCP,
            "McpStatus": _MCP,
            "MemoryStore": "holdfast.stores.memory",
            "PostgresStore": _POSTGRES_STORE,
            "Random": "random",
            "RecordingClient": "holdfast.stores.recording",
            "SandboxCheck": "holdfast.tools.sandbox_check",
            "SqliteStore": "holdfast.stores.sqlite.store",
            "TransportHttp": _STORED_SOURCES,
            "attachment_part": "holdfast.assembly.attachments",
            "check_sandbox": "holdfast.tools",
            "forget_kept_files": "holdfast.stores.file_trees.kept_files",
            "kept_files_of": "holdfast.stores.file_trees.kept_files",
            "key_advice": "holdfast.providers.vendors",
            "list_local_models": _WEIGHT_FILES,
            "load_skill_tool": _OPTION_TOOLS,
            "log_in_with_oauth": "holdfast.auth.oauth_login",
            "make_client": _VENDOR_CLIENTS,
            "mcp_servers": _MCP,
            "offered_client": _VENDOR_CLIENTS,
            "opencode_document": _OPENCODE,
            "opencode_sessions": _OPENCODE,
            "prepare_database": _POSTGRES_STORE,
            "pull_model": "holdfast.providers.local.download",
            "recall_tool": _OPTION_TOOLS,
            "remove_local_model": _WEIGHT_FILES,
            "stored_source": _STORED_SOURCES,
            "shipped_catalogue": "holdfast.providers.catalogue",
            "stored_transcripts": "holdfast.providers.claude_agent.transcripts",
        },
    )
