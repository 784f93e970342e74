"""What a client sees when the owner dies with a request that was passed on to it."""

from __future__ import annotations

import contextlib
import socketserver
import ssl
import threading
from collections.abc import Iterator

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from paimon_magics.coordinator.http.relaying import Relay
from tests.coordinator.rest_server import serving

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 20\r\n\r\n"


@contextlib.contextmanager
def passed_on(answer: bytes) -> Iterator[str]:
    """The URL of one that stands by, whose owner sends `answer` to each request and dies."""

    class Owner(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            self.wfile.write(answer)

    async def standing_by(scope: Scope, receive: Receive, send: Send) -> None:
        relay = Relay(owner, "", ssl.create_default_context())
        try:
            assert await relay.pass_on(scope, receive, send)
        finally:
            await relay.close()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Owner) as server:
        owner = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with serving(standing_by) as url:
                yield url
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/tables", 503),
        ("POST", "/v1/commit", 503),
        ("POST", "/v1/changes", 502),
    ],
)
@pytest.mark.parametrize("answer", [b"", HEAD], ids=["nothing said", "head of an answer"])
def test_death_of_the_owner_during_a_request_is_reported(
    method: str, path: str, status: int, answer: bytes
) -> None:
    with passed_on(answer) as url:
        actual = httpx.request(method, url + path, trust_env=False)
    assert actual.status_code == status
    assert "may have been carried out" in actual.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Idempotency-Key": "a"}, 503),
        ({"Paimon-Channel": "c", "Paimon-Offset": "1"}, 503),
        ({"Paimon-Channel": "c"}, 502),
    ],
)
def test_identifiable_insert_may_be_repeated_after_the_owner_dies(
    headers: dict[str, str], status: int
) -> None:
    with passed_on(b"") as url:
        answer = httpx.post(f"{url}/v1/inserts/default/t", headers=headers, trust_env=False)
    assert answer.status_code == status


def test_truncated_answer_is_never_taken_for_whole(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with passed_on(HEAD + b'{"half":') as url, pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"{url}/v1/tables", trust_env=False)
    assert "broke off its answer" in caplog.text
    assert "Traceback" not in caplog.text + capfd.readouterr().err
