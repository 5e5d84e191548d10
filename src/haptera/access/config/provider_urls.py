"""URLs of providers, as users write them: what is wrong with one, and what may be meant."""

import re
from urllib.parse import urlsplit

from haptera.access.config.schema import HOW_TO_NAME_A_KEY
from haptera.options.wording import did_you_mean

_BARE_HOST = r"[\w.-]+(:\d+)?(/|$)"


def host_fault(url: str) -> str | None:
    """Say why a URL leads to no server; None if nothing is wrong."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "is not a URL"
    if parts.scheme in {"http", "https"} and has_host:
        return None
    message = "must begin with http:// or https:// and a host"
    if not re.match(_BARE_HOST, url):
        return message
    # A name without a dot and an address are mostly near, where there is no TLS.
    name = re.split("[:/]", url, maxsplit=1)[0]
    scheme = "http" if "." not in name or name.replace(".", "").isdigit() else "https"
    return f"{message}; {did_you_mean([f'{scheme}://{url}'])}"


def url_fault(url: str) -> str | None:
    """Say what is wrong with the URL of a provider in the file or the environment."""
    if (fault := host_fault(url)) is not None:
        return fault
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        return f"must hold no user or password; {HOW_TO_NAME_A_KEY}"
    if parts.query or parts.fragment:
        return "must hold neither ? nor #"
    return None
