"""Who may ask: peers of sockets, tokens and certificates; hosts and pages; classes of tenants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge_agent.calls import Priority
from edge_agent.errors import BadInputError, ConfigError
from edge_agent.serve_config import ServeConfig, TcpConfig, TenantConfig
from edge_agent.server import tokens
from edge_agent.server.auth import PEER, Caller, NetworkAccess, SocketAccess, Tenants
from edge_agent.server.errors import NotAllowedError, NotAuthenticatedError, WrongHostError
from tests.agent.server.asgi import asked, data
from tests.agent.server.fakes import FakeService

TOKEN = "0123456789abcdef0123"
OTHER = "fedcba9876543210fedc"


def file(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    made = tmp_path / "tokens"
    made.write_text(text)
    made.chmod(mode)
    return made


def access(tmp_path: Path, **more: Any) -> NetworkAccess:
    known = tokens.read(file(tmp_path, f"camera {TOKEN}\n# a comment\n\ncamera {OTHER}\n"))
    config = TcpConfig(port=0, **more)
    return NetworkAccess(config, lambda: known, Tenants(dict))


def call(
    one: NetworkAccess,
    headers: dict[str, str],
    peer: str | None = None,
    server: str = "127.0.0.1",
) -> Caller:
    listed = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    scope = {"headers": listed, "state": {PEER: peer}, "server": (server, 80)}
    return one.caller(scope, dict(listed))


def bearer(token: str = TOKEN, **more: str) -> dict[str, str]:
    return {"host": "127.0.0.1:80", "authorization": f"Bearer {token}", **more}


def test_a_peer_of_a_socket_is_its_user() -> None:
    service = FakeService()
    body = b'{"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}'
    asked(data(service), "POST", "/v2/models/demo/open/infer", body, peer="uid:7")
    assert service.calls[0].tenant == "uid:7"
    assert asked(data(service), "GET", "/v2/health/live", peer=None).status == 401


def test_sockets_ask_for_no_host_and_no_token() -> None:
    one = SocketAccess(Tenants(dict))
    assert one.caller({"state": {PEER: "uid:7"}}, {b"host": b"evil.example"}) == Caller("uid:7")


@pytest.mark.parametrize("token", [TOKEN, OTHER])
def test_a_token_names_its_holder(tmp_path: Path, token: str) -> None:
    found = call(access(tmp_path), bearer(token))
    assert (found.tenant, found.is_local) == ("token:camera", False)
    assert call(access(tmp_path), {"host": "127.0.0.1", "authorization": f"bearer  {token} "})


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Bearer wrong-token-here", f"Basic {TOKEN}", TOKEN, "Bearer é"],
)
def test_without_a_good_token_nobody_gets_in(tmp_path: Path, authorization: str) -> None:
    headers = {"host": "127.0.0.1", "authorization": authorization}
    with pytest.raises(NotAuthenticatedError):
        call(access(tmp_path), headers, peer="cert:a")
    with pytest.raises(NotAuthenticatedError):
        call(access(tmp_path), {"host": "127.0.0.1"})


def test_a_certificate_names_its_holder(tmp_path: Path) -> None:
    assert call(access(tmp_path), {"host": "127.0.0.1"}, peer="cert:a").tenant == "cert:a"


@pytest.mark.parametrize(
    ("host", "server", "hosts"),
    [
        ("127.0.0.1", "127.0.0.1", ()),
        ("127.0.0.1:8443", "127.0.0.1", ()),
        ("LOCALHOST:80", "127.0.0.1", ()),
        ("localhost", "::1", ()),
        ("[::1]:80", "::1", ()),
        ("gateway.example:80", "192.0.2.1", ("Gateway.Example",)),
        ("192.0.2.1", "192.0.2.1", ()),
    ],
)
def test_hosts_of_its_own_are_taken(
    tmp_path: Path, host: str, server: str, hosts: tuple[str, ...]
) -> None:
    assert call(access(tmp_path, hosts=hosts), bearer(host=host), server=server)
    origin = f"https://{host}"
    assert call(access(tmp_path, hosts=hosts), bearer(host=host, origin=origin), server=server)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "evil@127.0.0.1",
        "",
        ":80",
        "127.0.0.1:x",
        "127.0.0.1:99999",
        "[::1",
        "192.0.2.7",
    ],
)
def test_other_hosts_and_pages_are_not(tmp_path: Path, host: str) -> None:
    with pytest.raises(WrongHostError):
        call(access(tmp_path), bearer(host=host))
    with pytest.raises(NotAllowedError):
        call(access(tmp_path), bearer(origin=f"http://{host}"))


def test_localhost_is_a_name_of_loopback_only(tmp_path: Path) -> None:
    with pytest.raises(WrongHostError):
        call(access(tmp_path), bearer(host="localhost"), server="192.0.2.1")


@pytest.mark.parametrize("origin", ["null", "file://", "127.0.0.1", "chrome-extension://abc"])
def test_pages_without_a_host_are_refused(tmp_path: Path, origin: str) -> None:
    with pytest.raises(NotAllowedError):
        call(access(tmp_path), bearer(origin=origin))


@pytest.mark.parametrize("count", [0, 2])
def test_there_is_exactly_one_host(tmp_path: Path, count: int) -> None:
    scope: dict[str, Any] = {
        "headers": [(b"host", b"127.0.0.1")] * count,
        "state": {},
        "server": None,
    }
    with pytest.raises(BadInputError):
        access(tmp_path).caller(scope, {})


@pytest.mark.parametrize("name", ["authorization", "origin"])
def test_what_says_who_asks_is_said_once(tmp_path: Path, name: str) -> None:
    headers = bearer(origin="http://127.0.0.1")
    listed = [(key.encode(), value.encode()) for key, value in headers.items()]
    scope: dict[str, Any] = {"headers": listed, "state": {}, "server": None}
    assert access(tmp_path).caller(scope, dict(listed)).tenant == "token:camera"
    twice = [*listed, (name.encode(), headers[name].encode())]
    with pytest.raises(BadInputError, match="once"):
        access(tmp_path).caller(scope | {"headers": twice}, dict(twice))


@pytest.mark.parametrize(
    "text",
    [
        f"camera {TOKEN[:15]}",
        f"camera {TOKEN} more",
        "camera",
        f"cam/era {TOKEN}",
        f"{'x' * 65} {TOKEN}",
        f"camera {TOKEN}é",
        f"camera {TOKEN}\nother {TOKEN}",
        "x" * 300_000,
    ],
)
def test_a_wrong_file_of_tokens_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        tokens.read(file(tmp_path, text))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match="others can read"):
        tokens.read(file(tmp_path, f"camera {TOKEN}", mode))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        tokens.read(tmp_path / "none")
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o700)
    with pytest.raises(ConfigError):
        tokens.read(folder)


@pytest.mark.parametrize(
    ("asked_for", "given"),
    [("critical", Priority.NORMAL), ("normal", Priority.NORMAL), ("bulk", Priority.BULK)],
)
def test_a_tenant_gets_no_higher_class_than_its_own(asked_for: str, given: Priority) -> None:
    table = {"uid:7": TenantConfig(highest_class="normal")}
    caller = Tenants(lambda: table).caller("uid:7", is_local=True)
    assert caller.highest == Priority.NORMAL
    assert Tenants(lambda: table).caller("uid:8", is_local=True).highest == Priority.CRITICAL

    from edge_agent.calls import Query
    from edge_agent.server.exchange import Exchange

    async def receive() -> Any:
        raise AssertionError

    one = Exchange({}, receive, {b"edge-agent-priority": asked_for.encode()})
    one.caller = caller
    assert one.call(Query("outputs")).priority == given


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("edge-agent-priority", "urgent"),
        ("edge-agent-priority", "HIGH"),
        ("edge-agent-timeout-ms", "0"),
        ("edge-agent-timeout-ms", "-5"),
        ("edge-agent-timeout-ms", "1.5"),
        ("edge-agent-timeout-ms", "3600001"),
        ("edge-agent-timeout-ms", "1\n"),
        ("idempotency-key", ""),
        ("idempotency-key", "a b"),
        ("idempotency-key", "x" * 256),
    ],
)
def test_headers_that_cant_be_used_are_refused(name: str, value: str) -> None:
    service = FakeService()
    body = b'{"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}'
    got = asked(data(service), "POST", "/v2/models/demo/open/infer", body, {name: value})
    assert got.status == 400
    assert not service.calls


def test_the_key_reaches_the_model() -> None:
    service = FakeService()
    body = b'{"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}'
    headers = {"Idempotency-Key": "order-5", "X-Request-ID": "id-5"}
    asked(data(service, ServeConfig()), "POST", "/v2/models/demo/open/infer", body, headers)
    assert (service.calls[0].idempotency_key, service.calls[0].request_id) == ("order-5", "id-5")
