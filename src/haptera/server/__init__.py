"""The server: sessions over HTTP (extra `server`). `create_app(agent)` is the entry point."""

from haptera.server.access import Access, ApiKey, new_token
from haptera.server.app import HapteraApp, create_app
from haptera.server.limits import ServerSettings
from haptera.server.shutdown import until_shutdown

__all__ = [
    "Access",
    "ApiKey",
    "HapteraApp",
    "ServerSettings",
    "create_app",
    "new_token",
    "until_shutdown",
]
