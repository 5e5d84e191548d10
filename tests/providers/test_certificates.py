"""Certificates: ours are checked, and those of aiohttp are read when a program first needs them."""

import asyncio
import datetime
import os
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from haptera import ConfigError, ErrorCode
from haptera.providers.transport.http import AiohttpTransport
from haptera.providers.transport.protocol import HttpRequest

PROBE = """
import asyncio, gc, ssl, sys, threading
from haptera.providers.transport.http_library import aiohttp

contexts = [each for each in gc.get_objects() if isinstance(each, ssl.SSLContext)]
# Asked of the class, because a context that is asked itself reads its certificates.
known = [ssl.SSLContext.cert_store_stats(each)["x509"] for each in contexts]

async def ask():
    try:
        async with aiohttp.ClientSession() as session, session.get(sys.argv[1]) as reply:
            return reply.status
    except aiohttp.ClientError as error:
        return type(error).__name__

def ask_at_once(barrier):
    barrier.wait()
    answers.append(asyncio.run(ask()))

reading = ssl.SSLContext.set_default_verify_paths.__qualname__
if "replaced" in sys.argv:
    class OtherContext(ssl.SSLContext):
        def __init__(self, protocol):
            self.own = object()
        def wrap_bio(self, *arguments, **options):
            self.own
            return super().wrap_bio(*arguments, **options)
    ssl.SSLContext = OtherContext
answers = []
barrier = threading.Barrier(4 if "threads" in sys.argv else 1)
threads = [threading.Thread(target=ask_at_once, args=[barrier]) for _ in range(barrier.parties)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sum(known), *answers, reading)
"""
READING = "_SSLContext.set_default_verify_paths"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a certificate for localhost, which is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("authority") / "localhost.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


@asynccontextmanager
async def secure_server(authority: Path) -> AsyncIterator[str]:
    """Serve over TLS; gives the URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority)
    server = await asyncio.start_server(answer, "localhost", 0, ssl=context)
    async with server:
        yield f"https://localhost:{server.sockets[0].getsockname()[1]}/"


async def probe(url: str, *how: str, **variables: str) -> list[str]:
    environment = {**os.environ, **variables}  # noqa: TID251 - handed on to a child process
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROBE, url, *how), env=environment, stdout=subprocess.PIPE
    )
    told, _ = await process.communicate()
    return told.decode().split()


@asynccontextmanager
async def closing(transport: AiohttpTransport) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await transport.close()


@pytest.mark.slow
async def test_aiohttp_reads_certificates_when_the_program_itself_first_uses_it(
    authority: Path,
) -> None:
    async with secure_server(authority) as url:
        assert await probe(url, SSL_CERT_FILE=str(authority)) == ["0", "200", READING]
        refused = ["0", "ClientConnectorCertificateError", READING]
        assert await probe(url, SSL_CERT_FILE="") == refused


@pytest.mark.slow
async def test_threads_that_use_aiohttp_at_once_all_have_its_certificates(
    authority: Path, tmp_path: Path
) -> None:
    many = tmp_path / "many.pem"
    many.write_bytes(authority.read_bytes() * 1000)  # so that it takes a while to read them
    async with secure_server(authority) as url:
        told = await probe(url, "threads", SSL_CERT_FILE=str(many))
    assert told == ["0", *["200"] * 4, READING]


@pytest.mark.slow
async def test_a_program_may_replace_the_class_of_tls_contexts_later(authority: Path) -> None:
    async with secure_server(authority) as url:
        told = await probe(url, "replaced", SSL_CERT_FILE=str(authority))
        assert told == ["0", "200", READING]


async def test_a_certificate_is_trusted_by_the_file_that_names_its_issuer(authority: Path) -> None:
    transport = AiohttpTransport(environment={"SSL_CERT_FILE": str(authority)})
    async with secure_server(authority) as url, closing(transport):
        reply = await transport.send(HttpRequest(url=url, headers={}))
        assert reply.status == 200
        reply.close()


async def test_a_certificate_that_is_not_trusted_is_refused_with_what_to_set(
    authority: Path,
) -> None:
    transport = AiohttpTransport()
    async with secure_server(authority) as url, closing(transport):
        with pytest.raises(ConfigError, match="not trusted; set SSL_CERT_FILE") as caught:
            await transport.send(HttpRequest(url=url, headers={}))
        assert caught.value.code is ErrorCode.CONFIG_INVALID
