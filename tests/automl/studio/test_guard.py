"""Who is refused: without a token, from other sites, under other names, too often."""

from __future__ import annotations

import socket
from contextlib import ExitStack, closing
from http.client import HTTPConnection

import pytest
from studio_stores import Client, serving

from automl.errors import UsageError
from automl.ledger import Ledger
from automl.studio import guard, server
from automl.studio.server import Listening, StudioServer
from automl.studio.tokens import Role, Tokens

API = ("/api/sweeps", "/api/overview", "/api/sweeps/toy", "/api/sweeps/toy/table", "/api/events")


@pytest.mark.parametrize("authorization", ["", "Bearer ", "Bearer wrong", "Basic x", "bearer\tx"])
def test_nothing_is_told_without_a_token(client: Client, authorization: str) -> None:
    for path in API:
        status, body, _ = client.ask(path, role=None, Authorization=authorization)
        assert status == 401
        assert b"toy" not in body


def test_a_token_in_the_address_counts_for_nothing(client: Client) -> None:
    token = client.server.tokens.secrets[Role.OPERATOR]
    assert client.ask(f"/api/sweeps?token={token}", role=None)[0] == 401
    assert client.ask("/api/sweeps", role=None, Cookie=f"token={token}")[0] == 401


@pytest.mark.parametrize("role", list(Role))
def test_each_role_may_read(client: Client, role: Role) -> None:
    assert client.ask("/api/sweeps", role=role)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_the_api_only_reads(client: Client, method: str) -> None:
    for path in API:
        assert client.ask(path, role=Role.OPERATOR, method=method)[0] == 405


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost@evil"])
def test_other_host_names_are_refused(client: Client, host: str) -> None:
    for path in ("/", "/api/sweeps"):
        assert client.ask(path, Host=host)[0] in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "LOCALHOST"])
def test_names_of_this_machine_are_accepted(client: Client, host: str) -> None:
    assert client.ask("/api/sweeps", Host=f"{host}:{client.server.port}")[0] == 200


def test_other_origins_are_refused(client: Client) -> None:
    own = f"127.0.0.1:{client.server.port}"
    for origin in (
        "http://evil.example",
        "null",
        f"http://{own}.evil.example",
        "http://127.0.0.1:1",
        "http://[",
    ):
        assert client.ask("/api/sweeps", Origin=origin)[0] == 403
    assert client.ask("/api/sweeps", Sec_Fetch_Site="cross-site")[0] == 403
    assert client.ask("/api/sweeps", Origin=f"http://{own}", Sec_Fetch_Site="same-origin")[0] == 200


def test_every_answer_has_a_strict_policy(client: Client) -> None:
    for path in ("/", "/static/main.js", "/api/sweeps", "/nothing", "/static/../app.py"):
        _, _, headers = client.ask(path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers


def test_wrong_tokens_are_counted(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MAX_REFUSED", 3)
    found = [client.ask("/api/sweeps", role=None)[0] for _ in range(5)]
    assert found == [401, 401, 401, 429, 429]
    assert client.ask("/api/sweeps")[0] == 200, "who has the token is still answered"


def test_too_many_requests_are_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MAX_REQUESTS", 5)
    assert 429 in [client.ask("/api/sweeps")[0] for _ in range(7)]


def test_malformed_idle_and_many_connections_hurt_nobody(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "IDLE_SECONDS", 1.0)
    with serving(store) as client:
        place = ("127.0.0.1", client.server.port)
        client.get("/api/sweeps")
        for data in (
            b"\0\xff\n\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET " + b"x" * 70_000,
            b"\x16\x03\x01",
        ):
            with socket.create_connection(place, timeout=10) as one:
                one.sendall(data + b"\r\n\r\n")
                one.settimeout(10)
                assert b"200" not in one.recv(100)
        idle = [socket.create_connection(place, timeout=10) for _ in range(100)]
        idle[0].sendall(b"GET /api/sweeps HTTP/1.1\r\nHost: ")  # and never goes on
        assert client.get("/api/sweeps")
        for one in idle[:3]:
            one.settimeout(20)
            assert one.recv(100) == b"", "an idle connection is closed"
        for one in idle:
            one.close()
        assert client.get("/api/sweeps")


def test_a_viewer_takes_nothing_from_an_operator(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limits, name, value in (
        (server, "MAX_CONNECTIONS", 60),
        (server, "MAX_IDLE", 10),
        (guard, "MAX_OPEN", 20),
        (guard, "MAX_REQUESTS", 40),
        (guard, "WINDOW_SECONDS", 1000.0),
    ):
        monkeypatch.setattr(limits, name, value)
    with serving(store) as client, ExitStack() as opened:
        place = ("127.0.0.1", client.server.port)
        half_open = [
            opened.enter_context(socket.create_connection(place, timeout=30)) for _ in range(50)
        ]
        assert half_open[0].recv(1) == b"", "there are too many of them"
        token = {"Authorization": f"Bearer {client.server.tokens.secrets[Role.VIEWER]}"}
        for _ in range(20):
            one = opened.enter_context(closing(HTTPConnection(*place, timeout=30)))
            one.request("GET", "/api/events", headers=token)
            assert one.getresponse().status == 200
        assert b"at once" in client.ask("/api/role")[1], "viewers have the streams that they may"
        for _ in range(20):
            status, body, _ = client.ask("/api/role")
        assert status == 429
        assert b"wait 10 s" in body
        assert client.ask("/api/role", role=Role.OPERATOR)[0] == 200


def test_a_port_in_use_is_said(store: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ledger = Ledger.open(store, readonly=True)
        with pytest.raises(UsageError, match=f"port {port} cannot be used"):
            StudioServer(ledger, Listening(port=port))
        ledger.close()


def test_a_role_needs_its_own_token() -> None:
    tokens = Tokens.new()
    assert len(set(tokens.secrets.values())) == len(Role)
    for role, secret in tokens.secrets.items():
        assert tokens.role(f"Bearer {secret}") is role
        assert tokens.role(f"Bearer {secret}x") is None
    assert tokens.role("Bearer \udcff") is None
