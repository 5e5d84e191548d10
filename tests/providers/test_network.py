"""Proxies and certificate authorities, as the environment names them."""

import ssl
from pathlib import Path

import pytest

from haptera.model.errors import ConfigError, ErrorCode
from haptera.providers.transport.http import AiohttpTransport
from haptera.providers.transport.network import certificate_context, proxy_for
from tests.providers.exchanges import REQUEST, ask, case, text_of
from tests.providers.faulty_server import faulty_server, replies

URL = "https://api.example.org/v1"
PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": PROXY}, PROXY),
        ({"https_proxy": PROXY}, PROXY),
        ({"ALL_PROXY": "proxy.example:3128"}, PROXY),
        ({"HTTP_PROXY": PROXY}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "localhost, .example.org"}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "example.org"}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "ample.org"}, PROXY),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "api.example.org:8443"}, PROXY),
        ({"HTTPS_PROXY": PROXY, "no_proxy": "10.0.0.0/8"}, PROXY),
    ],
)
def test_a_proxy_is_used_where_the_environment_says(
    environment: dict[str, str], proxy: str | None
) -> None:
    assert proxy_for(URL, environment) == proxy


@pytest.mark.parametrize("host", ["http://10.1.2.3/", "http://[::1]:80/"])
def test_networks_and_addresses_can_be_exempt(host: str) -> None:
    environment = {"HTTP_PROXY": PROXY, "NO_PROXY": "10.0.0.0/8 ::1"}
    assert proxy_for(host, environment) is None


def test_a_proxy_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        proxy_for(URL, {"HTTPS_PROXY": "socks5://user:hunter2pass@proxy.example"})
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert "hunter2pass" not in caught.value.message


def test_certificates_come_from_the_system_or_a_file(tmp_path: Path) -> None:
    assert certificate_context({}).verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(ConfigError) as caught:
        certificate_context({"SSL_CERT_FILE": str(tmp_path / "none.pem")})
    assert caught.value.code is ErrorCode.CONFIG_INVALID
    assert "SSL_CERT_FILE" in caught.value.message


async def test_a_request_goes_through_the_proxy() -> None:
    from haptera.providers.vendor_clients import VendorAccess, make_client
    from haptera.providers.vendors import VENDORS
    from haptera.system.token_sources import StaticTokenSource

    async with faulty_server(replies(case("text"))) as proxy:
        access = VendorAccess(
            tokens=StaticTokenSource("key"),
            transport=AiohttpTransport(environment={"HTTP_PROXY": proxy.url}),
            base_url="http://behind.invalid",
        )
        client = make_client(VENDORS["anthropic"], access)
        parts, error = await ask(client, REQUEST)
        await client.close()
        assert error is None
        assert text_of(parts) == "Grüße, world 🌍"
        assert proxy.requests[0].path == "http://behind.invalid/v1/messages"
