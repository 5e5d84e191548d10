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

# Made by scripts/write_late_names.py.
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

if not TYPE_CHECKING:
    __getattr__ = late_names(
        __name__,
        {
            "DIALECTS": "haptera.providers.wire.chat_completions.dialects",
            "GENERIC": "haptera.providers.wire.chat_completions.dialects",
            "AgentSurroundings": "haptera.providers.claude_agent.agent",
            "AiohttpTransport": "haptera.providers.transport.http",
            "ClaudeAgent": "haptera.providers.claude_agent.agent",
            "CodingToolkit": "haptera.tools",
            "ContextFolders": "haptera.access.config.context_files",
            "Dialect": "haptera.providers.wire.chat_completions.dialects",
            "GitTrees": "haptera.stores.file_trees.git_trees",
            "JsonlStore": "haptera.stores.jsonl.store",
            "LocalModelClient": "haptera.providers.local.client",
            "McpServer": "haptera.tools.mcp",
            "McpStatus": "haptera.tools.mcp",
            "MemoryStore": "haptera.stores.memory",
            "PostgresStore": "haptera.stores.postgresql.store",
            "Random": "random",
            "RecordingClient": "haptera.stores.recording",
            "SandboxCheck": "haptera.tools.sandbox_check",
            "SqliteStore": "haptera.stores.sqlite.store",
            "TransportHttp": "haptera.access.assembly.stored_sources",
            "VendorAccess": "haptera.providers.vendor_clients",
            "agents_document": "haptera.stores.agents_database",
            "agents_sessions": "haptera.stores.agents_database",
            "attachment_part": "haptera.access.assembly.attachments",
            "check_sandbox": "haptera.tools",
            "forget_kept_files": "haptera.stores.file_trees.kept_files",
            "kept_files_of": "haptera.stores.file_trees.kept_files",
            "key_advice": "haptera.providers.vendors",
            "list_local_models": "haptera.providers.local.weights",
            "load_catalogue": "haptera.providers.local.weights",
            "load_skill_tool": "haptera.tools.option_tools",
            "log_in_with_oauth": "haptera.access.auth.oauth_login",
            "make_client": "haptera.providers.vendor_clients",
            "mcp_servers": "haptera.tools.mcp",
            "opencode_document": "haptera.stores.opencode_database",
            "opencode_sessions": "haptera.stores.opencode_database",
            "prepare_database": "haptera.stores.postgresql.store",
            "pull_model": "haptera.providers.local.download",
            "recall_tool": "haptera.tools.option_tools",
            "remove_local_model": "haptera.providers.local.weights",
            "shipped_catalogue": "haptera.providers.catalogue",
            "stored_source": "haptera.access.assembly.stored_sources",
            "stored_transcripts": "haptera.providers.claude_agent.transcripts",
        },
    )
# End.
