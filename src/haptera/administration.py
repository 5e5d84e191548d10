"""Administration: names for programs that manage sessions, credentials, projects and databases."""

from haptera.access.administration import (
    distrust_project,
    open_postgresql,
    pool_limits,
    prepare_postgresql,
    project_file,
    trust_project,
)
from haptera.access.credentials import find_credentials, log_in, log_out, store_key
from haptera.access.descriptions import SessionTree
from haptera.access.mcp_servers import (
    add_mcp_server,
    check_mcp_server,
    list_mcp_servers,
    remove_mcp_server,
)
from haptera.access.pool import PoolLimits, SessionPool
from haptera.access.worker import SessionWorker

__all__ = [
    "PoolLimits",
    "SessionPool",
    "SessionTree",
    "SessionWorker",
    "add_mcp_server",
    "check_mcp_server",
    "distrust_project",
    "find_credentials",
    "list_mcp_servers",
    "log_in",
    "log_out",
    "open_postgresql",
    "pool_limits",
    "prepare_postgresql",
    "project_file",
    "remove_mcp_server",
    "store_key",
    "trust_project",
]
