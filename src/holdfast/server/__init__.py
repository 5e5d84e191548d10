"""The server: sessions over HTTP (extra `server`). `create_app(agent)` is the entry point."""

from holdfast.server.access import Access, ApiKey, new_token
from holdfast.server.app import HoldfastApp, create_app
from holdfast.server.limits import ServerSettings
from holdfast.server.shutdown import until_shutdown

__all__ = [
    "Access",
    "ApiKey",
    "HoldfastApp",
    "ServerSettings",
    "create_app",
    "new_token",
    "until_shutdown",
]
