"""Whether a model process still answers."""

import asyncio
from urllib.parse import urlsplit

from holdfast.providers.local.model_process import ProcessEndpoint

_REQUEST = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


async def is_healthy(endpoint: ProcessEndpoint, *, seconds: float = 5.0) -> bool:
    """Ask the process how it is; no answer within `seconds` is an answer, too."""
    address = urlsplit(endpoint.url)
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            try:
                writer.write(_REQUEST)
                return b" 200 " in await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
