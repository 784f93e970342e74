"""A coordinator on the network: TLS, proxies, limits of clients, slow clients, draining."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from paimon_magics.coordinator.client.addresses import Addresses, tls_context
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At, check_answers
from paimon_magics.coordinator.http.forwarding import Forwarding, Peers
from paimon_magics.coordinator.http.limits import ClientLimits, Turnstile
from paimon_magics.coordinator.process.arguments import parser
from paimon_magics.coordinator.process.network import (
    LOOPBACK,
    Certificate,
    Network,
    listen,
    network_of,
)
from paimon_magics.coordinator.process.server import (
    Bounds,
    Server,
    Shutdown,
    process_connections_max,
)
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits.requests import Append, CommitRequest
from tests.coordinator.process import TABLE, Process, create_table, read, wait_until, write


def options(*given: str) -> argparse.Namespace:
    return parser().parse_args(["--state=unused", *given])


def certificate(authority: trustme.CA, folder: Path) -> tuple[Path, Path]:
    """Write a certificate for this machine's loopback, in one step each as tools do."""
    folder.mkdir(exist_ok=True)
    issued = authority.issue_cert(LOOPBACK, "localhost")
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    for name, content in (("tls.crt", chain), ("tls.key", issued.private_key_pem.bytes())):
        (folder / f"{name}.new").write_bytes(content)
        (folder / f"{name}.new").replace(folder / name)
    return folder / "tls.crt", folder / "tls.key"


@pytest.fixture
def authority(tmp_path: Path) -> tuple[trustme.CA, Path]:
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return made, tmp_path / "ca.pem"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "lake.example.org"])
def test_plain_http_is_refused_outside_the_loopback(host: str) -> None:
    with pytest.raises(SetupError, match=f"On {host} tokens would travel unencrypted") as refused:
        network_of(options(f"--host={host}"))
    assert all(
        word in refused.value.hint for word in ("--tls-cert", "--behind-proxy", "--insecure")
    )
    assert network_of(options(f"--host={host}", "--insecure-http")).host == host
    assert network_of(options(f"--host={host}", "--behind-proxy=10.0.0.0/24")).peers.all


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([f"--tls-key={__file__}"], "--tls-key is given without --tls-cert"),
        (["--tls-cert=/nowhere.pem"], "which is not a file"),
        (["--host=bad host"], "not an address"),
        (["--behind-proxy=the-proxy"], "--behind-proxy takes addresses"),
        (["--root-path=lake"], "--root-path can't be `lake`"),
        (["--root-path=/../x?y"], "--root-path can't be"),
        (["--advertise=lake.example.org"], "--advertise can't be"),
        (["--advertise=https://u:p@lake.example.org"], "--advertise can't be"),
        (
            ["--embedded", "--host=0.0.0.0", "--insecure-http"],
            "with --embedded listens only on 127.0.0.1",
        ),
        (["--hub", "--root-path=/x"], "with --hub has the path that the hub gives"),
    ],
)
def test_invalid_network_options_are_named(given: list[str], message: str) -> None:
    with pytest.raises(SetupError, match=message) as refused:
        network_of(options(*given))
    assert refused.value.hint


def test_advertised_address_is_reachable_by_others() -> None:
    assert Network().address(8123) == "http://127.0.0.1:8123"
    assert Network(host="::1", root="/lake").address(1) == "http://[::1]:1/lake"
    everywhere = Network(host="0.0.0.0", certificate=Path("c")).address(443)
    assert everywhere == f"https://{socket.gethostname()}:443"
    assert Network(host="0.0.0.0", advertised="https://lake.test").address(1) == "https://lake.test"


def test_tls_serves_commits_and_a_new_certificate_breaks_no_connection(
    tmp_path: Path, authority: tuple[trustme.CA, Path]
) -> None:
    ca, ca_file = authority
    catalog = create_table(tmp_path / "warehouse", "CREATE TABLE t (k INT)")
    cert, key = certificate(ca, tmp_path / "tls")
    process = Process(
        tmp_path / "warehouse", tmp_path / "state", f"--tls-cert={cert}", f"--tls-key={key}"
    )
    process.start()
    client = None
    try:
        assert process.address.startswith("https://127.0.0.1:")
        tls = tls_context(Addresses.of(process.address), str(ca_file))
        client = RemoteCoordinator(At(process.address, process.token(), tls=tls))
        transaction = client.begin(TABLE)
        client.commit(CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}])))
        assert read(catalog) == [{"k": 1}]
        check_answers(process.address, str(ca_file))
        with pytest.raises(SetupError, match="CERTIFICATE_VERIFY_FAILED") as untrusted:
            check_answers(process.address)
        assert "coordinator_ca" in untrusted.value.hint
        old = ssl.create_default_context()
        old.load_verify_locations(ca_file)
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{process.address}/health/live", verify=old, trust_env=False)

        other = trustme.CA()
        other.cert_pem.write_to_path(str(tmp_path / "other.pem"))
        port = int(process.address.rsplit(":", 1)[1])
        with (
            socket.create_connection((LOOPBACK, port)) as raw,
            tls.wrap_socket(raw, server_hostname=LOOPBACK) as opened,
        ):
            assert is_live(opened)
            (tmp_path / "tls" / "tls.crt").write_text("no certificate yet")  # midway
            time.sleep(1.3)  # it looks once a second
            check_answers(process.address, str(ca_file))
            assert is_live(opened)
            certificate(other, tmp_path / "tls")
            wait_until(lambda: answers(process.address, tmp_path / "other.pem"))
            assert is_live(opened)
        assert not answers(process.address, ca_file)
    finally:
        if client is not None:
            client.close()
        process.close()


def is_live(opened: socket.socket) -> bool:
    opened.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = b""
    while not answer.endswith(b"}"):
        part = opened.recv(1_000)
        assert part, "the connection was ended"
        answer += part
    return answer.startswith(b"HTTP/1.1 200")


def answers(address: str, ca: Path) -> bool:
    with contextlib.suppress(SetupError):
        check_answers(address, str(ca))
        return True
    return False


def test_unusable_certificate_is_named(tmp_path: Path, authority: tuple[trustme.CA, Path]) -> None:
    cert, _ = certificate(authority[0], tmp_path / "a")
    _, other_key = certificate(authority[0], tmp_path / "b")
    with pytest.raises(SetupError, match=r"tls\.crt can't be used: key values mismatch"):
        Certificate(cert, other_key)
    cert.write_text("nothing")
    with pytest.raises(SetupError, match="can't be used"):
        Certificate(cert, other_key)


async def told(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
    request = Request(scope)
    await JSONResponse([request.client.host if request.client else "", request.url.scheme])(
        scope, receive, send
    )


@pytest.mark.parametrize(
    ("peer", "headers", "status", "client", "scheme"),
    [
        ("10.0.0.7", {"x-forwarded-for": "203.0.113.5"}, 200, "203.0.113.5", "http"),
        # What stands before the last unknown hop was written by the client itself.
        ("10.0.0.7", {"x-forwarded-for": "1.2.3.4, 203.0.113.5"}, 200, "203.0.113.5", "http"),
        ("10.0.0.7", {"x-forwarded-for": "203.0.113.5, 10.0.0.8"}, 200, "203.0.113.5", "http"),
        ("10.0.0.7", {"x-forwarded-for": "203.0.113.5, evil"}, 200, "10.0.0.7", "http"),
        ("10.0.0.7", {"x-forwarded-for": "[2001:db8::1]:80"}, 200, "2001:db8::1", "http"),
        ("10.0.0.7", {"x-forwarded-proto": "https"}, 200, "10.0.0.7", "https"),
        ("10.0.0.7", {"x-forwarded-proto": "http"}, 403, "", ""),
        ("127.0.0.1", {"x-forwarded-for": "203.0.113.5"}, 200, "127.0.0.1", "http"),
        ("192.0.2.9", {"x-forwarded-proto": "https"}, 403, "", ""),
    ],
)
def test_forwarded_headers_are_trusted_only_from_named_proxies(
    peer: str, headers: dict[str, str], status: int, client: str, scheme: str
) -> None:
    answer = asked(Forwarding(told, Peers.of(["10.0.0.0/24"])), peer, headers)
    assert answer.status_code == status
    if status == 200:
        assert answer.json() == [client, scheme]
    else:
        assert answer.json()["error"]["type"] == "Insecure"
    trusting = Forwarding(told, Peers.of(["10.0.0.0/24"]), is_insecure=True)
    assert asked(trusting, peer, headers).status_code == 200


def asked(app: ASGIApp, peer: str, headers: dict[str, str]) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, client=(peer, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.get(
                "/", headers=[(k.encode(), v.encode()) for k, v in headers.items()]
            )

    return asyncio.run(ask())


def test_client_behind_a_proxy_has_its_own_limits(tmp_path: Path) -> None:
    process = Process(
        tmp_path / "warehouse",
        tmp_path / "state",
        "--behind-proxy=127.0.0.1",
        "--root-path=/lake",
        "--client-rate-max=5",
        "--client-requests-max=1",
    )
    process.start()
    try:
        assert process.address.endswith("/lake")
        headers = {"Authorization": f"Bearer {process.token()}", "X-Forwarded-Proto": "https"}
        with httpx.Client(trust_env=False, headers=headers) as http:
            address = f"{process.address}/v1/coordinator"
            assert http.get(address.replace("/lake", "")).status_code == 404
            assert http.get(address, headers={"X-Forwarded-Proto": "http"}).status_code == 403
            answers = [
                http.get(address, headers={"X-Forwarded-For": f"203.0.113.{client}"})
                for client in (1, 2)
                for _ in range(20)
            ]
        for mine in (answers[:20], answers[20:]):
            codes = [answer.status_code for answer in mine]
            assert codes[:10] == [200] * 10 and 429 in codes
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["type"] == "TooMany"
        # Its own requests, from this machine and without a name, are not counted.
        with httpx.Client(trust_env=False) as http:
            plain = {"Authorization": headers["Authorization"]}
            assert {http.get(address, headers=plain).status_code for _ in range(30)} == {200}
    finally:
        process.close()


def test_turnstile_limits_rate_requests_and_streams_of_a_client() -> None:
    now = 100.0
    turnstile = Turnstile(ClientLimits(2, 10, 1), clock=lambda: now)
    assert [turnstile.enter("a") for _ in range(3)] == [0, 0, 1]
    assert turnstile.enter("b") == 0
    turnstile.leave("a")
    assert turnstile.enter("a") == 0
    for _ in range(17):  # of 20 at once
        turnstile.leave("a")
        assert turnstile.enter("a") == 0
    turnstile.leave("a")
    assert turnstile.enter("a") == pytest.approx(0.1)
    now += 0.11
    assert turnstile.enter("a") == 0
    assert [turnstile.enter("a", is_stream=True) for _ in range(2)] == [0, 1]
    turnstile.leave("a", is_stream=True)
    assert turnstile.enter("a", is_stream=True) == 0


@pytest.fixture
def slow_server() -> Iterator[tuple[int, Bounds]]:
    async def app(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        assert scope["type"] == "http"
        request = Request(scope, receive)
        if request.url.path == "/large":
            await Response(b"x" * 50_000_000)(scope, receive, send)
            return
        await JSONResponse(len(await request.body()))(scope, receive, send)

    bounds = Bounds(
        head_seconds=1,
        body_seconds=1,
        body_bytes_per_second=1_000,
        answer_seconds=1,
        head_bytes_max=10_000,
        idle_seconds=3,
        connections_max=20,
        process_max=30,
    )
    shutdown = Shutdown()
    server = Server(app, shutdown, 1_000_000, bounds)
    server.config.lifespan = "off"
    with listen(LOOPBACK, 0) as listening:
        thread = threading.Thread(target=server.run_on, args=([listening], []), daemon=True)
        thread.start()
        yield listening.getsockname()[1], bounds
        shutdown.request()
        thread.join(20)


def received(connection: socket.socket, seconds: float) -> bytes:
    """All that comes until the other side ends the connection."""
    connection.settimeout(seconds)
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize(
    ("first", "then", "status"),
    [
        (b"", b"", b"408"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", b"", b"408"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", b"X: y\r\n", b"408"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", b"1", b"408"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 20_000, b"", b"431"),
    ],
    ids=["nothing", "half a head", "a dripping head", "a dripping body", "an endless head"],
)
def test_slow_client_is_disconnected(
    slow_server: tuple[int, Bounds], first: bytes, then: bytes, status: bytes
) -> None:
    port, bounds = slow_server
    with socket.create_connection((LOOPBACK, port)) as connection:
        connection.sendall(first)
        began = time.monotonic()
        drips = threading.Thread(target=drip, args=(connection, then), daemon=True)
        drips.start()
        answer = received(connection, 10)
        assert answer.split(b" ")[1:2] == [status], answer
        assert time.monotonic() - began < 6
    wait_until(lambda: not bounds.opened, 5)


def drip(connection: socket.socket, part: bytes) -> None:
    with contextlib.suppress(OSError):
        for _ in range(20 if part else 0):
            connection.sendall(part)
            time.sleep(0.2)


def test_client_that_does_not_read_is_disconnected_but_large_body_is_not(
    slow_server: tuple[int, Bounds],
) -> None:
    port, bounds = slow_server
    with socket.create_connection((LOOPBACK, port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: bounds.opened[LOOPBACK] == 1, 5)
        wait_until(lambda: not bounds.opened, 10)
    # A body may take longer than its first second, as long as it comes fast enough.
    with socket.create_connection((LOOPBACK, port)) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n")
        for _ in range(20):
            connection.sendall(b"x" * 1_000)
            time.sleep(0.12)
        connection.settimeout(5)
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200")


def test_connections_of_an_address_are_limited(slow_server: tuple[int, Bounds]) -> None:
    port, bounds = slow_server
    with contextlib.ExitStack() as opened:
        several = [
            opened.enter_context(socket.create_connection((LOOPBACK, port))) for _ in range(25)
        ]
        wait_until(lambda: bounds.opened[LOOPBACK] <= 20, 5)
        assert [is_ended(connection) for connection in several] == [True] * 5 + [False] * 20


REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n"


def test_idle_connections_make_room_for_requests_of_the_same_address(
    slow_server: tuple[int, Bounds],
) -> None:
    port, bounds = slow_server
    with contextlib.ExitStack() as opened:
        idle = [opened.enter_context(kept_alive(port)) for _ in range(18)]
        busy = [opened.enter_context(connected(port, REQUEST)) for _ in range(2)]
        wait_until(lambda: bounds.opened[LOOPBACK] == 20, 5)
        for _ in range(30):
            with connected(port, REQUEST + b"abc") as asked:
                assert asked.recv(1_000).startswith(b"HTTP/1.1 200")
        assert is_ended(idle[0])
        for connection in busy:
            connection.sendall(b"abc")
            assert connection.recv(1_000).startswith(b"HTTP/1.1 200")


def test_idle_connection_sending_empty_lines_is_ended(
    slow_server: tuple[int, Bounds],
) -> None:
    with kept_alive(slow_server[0]) as connection:
        connection.sendall(b"\r\n")
        assert received(connection, 8) == b""


def test_slow_heads_and_crowded_addresses_make_room_for_requests(
    slow_server: tuple[int, Bounds],
) -> None:
    port, bounds = slow_server
    bounds.head_seconds = 60
    with contextlib.ExitStack() as opened:
        slow = [opened.enter_context(connected(port, b"POST / HT")) for _ in range(20)]
        time.sleep(1.2)
        with connected(port, REQUEST + b"abc") as asked:
            assert asked.recv(1_000).startswith(b"HTTP/1.1 200")
        assert [is_ended(connection) for connection in slow] == [True] + [False] * 19
        # The process is full: the address with the most connections makes room.
        others = [
            opened.enter_context(connected(port, REQUEST, f"127.0.0.{at}")) for at in range(2, 14)
        ]
        wait_until(lambda: sum(map(is_ended, slow)) == 2, 5)
        for connection in others:
            connection.sendall(b"abc")
            assert connection.recv(1_000).startswith(b"HTTP/1.1 200")


def test_idle_connections_do_not_block_inserts(tmp_path: Path) -> None:
    assert process_connections_max() > 1_100  # this process has them open, too
    create_table(
        tmp_path / "warehouse", "CREATE TABLE t (k INT) TBLPROPERTIES ('auto_batch_load' = 'true')"
    )
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    process.start()
    port = int(process.address.rsplit(":", 1)[1])
    request = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    path = f"{process.address}/v1/inserts/default/t"
    headers = {"Authorization": f"Bearer {process.token()}"}
    try:
        first = httpx.post(path, json={"rows": [[0]]}, headers=headers, trust_env=False)
        assert first.status_code == 200, first.text
        with contextlib.ExitStack() as opened:
            for _ in range(1_100):
                opened.enter_context(connected(port, request))
            for number in range(20):
                answer = httpx.post(
                    path, json={"rows": [[number]]}, headers=headers, trust_env=False, timeout=2
                )
                assert answer.status_code == 200
    finally:
        process.close()


def connected(port: int, first: bytes, source: str = LOOPBACK) -> socket.socket:
    """A connection that has sent these bytes."""
    connection = socket.create_connection((LOOPBACK, port), 5, (source, 0))
    connection.sendall(first)
    return connection


def kept_alive(port: int) -> socket.socket:
    """A connection that has had an answer."""
    connection = connected(port, REQUEST + b"abc")
    assert connection.recv(1_000).startswith(b"HTTP/1.1 200")
    return connection


def is_ended(connection: socket.socket) -> bool:
    connection.settimeout(0.02)
    try:
        return connection.recv(1_000, socket.MSG_PEEK) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_client_takes_the_first_answering_address(tmp_path: Path) -> None:
    with listen(LOOPBACK, 0) as taken:
        dead = f"http://{LOOPBACK}:{taken.getsockname()[1]}"
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    process.start()
    client = None
    try:
        at = At(f"{dead}, {process.address}/", process.token())
        actual = at.find()
        assert actual is not None and actual.address == process.address
        client = RemoteCoordinator(at)
        assert client.warehouse() == str(tmp_path / "warehouse")
        check_answers(f"{dead},{process.address}")
        with pytest.raises(SetupError, match=dead):
            check_answers(f"{dead},{dead}x")
        # A token goes to no address that somebody else has named.
        assert at.find(actual, "https://elsewhere.example.org") is None
    finally:
        if client is not None:
            client.close()
        process.close()


@pytest.mark.parametrize(
    "text",
    ["https://", "http://a, b", "http://u:p@h", "https://h?x=1", "http://[::1", "https://h:0"],
)
def test_invalid_address_is_rejected_without_its_password(text: str) -> None:
    with pytest.raises(SetupError) as refused:
        Addresses.of(text)
    assert refused.value.hint and "u:p" not in str(refused.value)


def test_draining_coordinator_is_unready_and_still_commits(tmp_path: Path) -> None:
    catalog = create_table(tmp_path / "warehouse", "CREATE TABLE t (k INT)")
    process = Process(tmp_path / "warehouse", tmp_path / "state", "--drain-ms=2000")
    process.start()
    try:
        client = process.client()
        transaction = client.begin(TABLE)
        headers = {"Authorization": f"Bearer {process.token()}"}
        ready = f"{process.address}/health/ready"
        assert httpx.get(ready, headers=headers, trust_env=False).status_code == 200
        assert process.running is not None
        process.running.send_signal(signal.SIGTERM)
        wait_until(lambda: httpx.get(ready, headers=headers, trust_env=False).status_code == 503)
        told = httpx.get(ready, headers=headers, trust_env=False).json()["error"]["message"]
        assert "about to end" in told
        client.commit(CommitRequest(transaction, Append(), write(catalog, transaction, [{"k": 1}])))
        assert read(catalog) == [{"k": 1}]
        assert process.running.wait(10) == 0
    finally:
        process.close()
