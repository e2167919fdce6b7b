"""TLS on TCP: versions, client certificates, and files that can't be used."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_agent.errors import ConfigError
from edge_agent.serve_config import ServeConfig, TcpConfig
from edge_agent.server import sockets
from edge_agent.server.apps import bodies, data_app
from edge_agent.server.auth import NetworkAccess, Tenants
from edge_agent.server.listeners import HttpServer, Listener, event_loop
from edge_agent.server.tokens import Tokens
from tests.agent.server.asgi import metrics
from tests.agent.server.fakes import FakeService, local

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="needs the openssl command")


def certify(folder: Path, name: str, signer: str | None = None) -> None:
    """Makes NAME.pem and NAME.key, signed by another or by itself."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    command: list[str | Path]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", key, "-out", certificate]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    if signer:
        command += ["-CA", folder / f"{signer}.pem", "-CAkey", folder / f"{signer}.key"]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    key.chmod(0o600)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    certify(tmp_path, "gateway")
    certify(tmp_path, "fleet")
    certify(tmp_path, "camera", "fleet")
    certify(tmp_path, "stranger")
    return tmp_path


def config(folder: Path, **more: str | None) -> TcpConfig:
    files = {"certificate": "gateway.pem", "key": "gateway.key", "client_ca": "fleet.pem", **more}
    paths = {name: str(folder / file) for name, file in files.items() if file}
    return TcpConfig(port=0, **paths)  # type: ignore[arg-type]


async def ask(port: int, context: ssl.SSLContext) -> int:
    """Returns the status of a request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        writer.write(b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        return int((await reader.read()).split()[1])
    finally:
        writer.close()


def client(folder: Path, name: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "gateway.pem"))
    if name:
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return context


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, event_loop], ids=["asyncio", "fastest"])
def test_a_client_certificate_is_as_good_as_a_token(
    folder: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def scenario() -> None:
        tcp = config(folder)
        access = NetworkAccess(tcp, Tokens, Tenants(dict))
        app = data_app(FakeService(), bodies(ServeConfig()), access, metrics)
        listener = Listener(app, sockets.tcp_socket(tcp), tls=sockets.tls(tcp))
        port = listener.socket.getsockname()[1]
        server = HttpServer([listener], 8)
        await server.start()
        try:
            assert await ask(port, client(folder, "camera")) == 200
            assert await ask(port, client(folder)) == 401
            with pytest.raises((OSError, IndexError)):
                await ask(port, client(folder, "stranger"))
        finally:
            await server.stop(1.0)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, event_loop], ids=["asyncio", "fastest"])
def test_handshakes_count_as_connections(
    folder: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    refusals: list[tuple[int, str]] = []

    def refused(status: int, kind: str) -> None:
        refusals.append((status, kind))

    async def scenario() -> None:
        tcp = config(folder)
        app = data_app(FakeService(), bodies(ServeConfig()), local(), metrics)
        listener = Listener(app, sockets.tcp_socket(tcp), tls=sockets.tls(tcp))
        port = listener.socket.getsockname()[1]
        server = HttpServer([listener], max_connections=2, refused=refused)
        await server.start()
        try:
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            assert await silent[2][0].read() == b""
            assert refusals == [(503, "HttpError")]
            for _, writer in silent:
                writer.close()
            while True:  # as soon as their end is seen, others get in
                try:
                    assert await ask(port, client(folder, "camera")) == 200
                except OSError:
                    continue
                break
        finally:
            await server.stop(1.0)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())


@pytest.mark.parametrize(
    "more",
    [
        {"key": None},
        {"certificate": None},
        {"certificate": None, "key": None},
        {"key": "camera.key"},
        {"certificate": "none.pem"},
        {"key": "none.key"},
        {"client_ca": "none.pem"},
        {"client_ca": "gateway.key"},
    ],
)
def test_files_that_cant_be_used_are_refused(folder: Path, more: dict[str, str | None]) -> None:
    with pytest.raises(ConfigError):
        sockets.tls(config(folder, **more))


def test_old_versions_of_tls_are_not_spoken(folder: Path) -> None:
    context = sockets.tls(config(folder))
    assert context is not None
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_key_that_others_can_read_is_refused(folder: Path) -> None:
    (folder / "gateway.key").chmod(0o640)
    with pytest.raises(ConfigError, match="others can read"):
        sockets.tls(config(folder))


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "::1"])
def test_without_a_certificate_connections_are_plain_on_this_machine(address: str) -> None:
    assert sockets.tls(TcpConfig(port=0, address=address, tokens_file="/tokens")) is None


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.10", "gateway"])
def test_tokens_dont_go_over_a_network_in_the_clear(address: str) -> None:
    with pytest.raises(ConfigError, match="in the clear"):
        sockets.tls(TcpConfig(port=0, address=address, tokens_file="/tokens"))


def test_a_door_that_nobody_could_pass_is_refused() -> None:
    with pytest.raises(ConfigError, match="nobody could get in"):
        sockets.tls(TcpConfig(port=0))


def test_a_port_that_is_taken_is_an_error_of_the_configuration() -> None:
    with sockets.tcp_socket(TcpConfig(port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError):
            sockets.tcp_socket(TcpConfig(port=port))
