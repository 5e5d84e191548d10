"""The server: sessions over HTTP and JSON-RPC (extra `server`). `create_app(agent)` is the door."""

from holdfast.server.access import Access, Principal
from holdfast.server.app import create_app

__all__ = ["Access", "Principal", "create_app"]
