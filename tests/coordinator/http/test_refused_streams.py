"""Streams that are refused before a coordinator has its parts, or because they came unencrypted."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message

from paimon_magics.coordinator.http.forwarding import Forwarding, Peers
from paimon_magics.coordinator.process.hub_process import Beginning
from paimon_magics.coordinator.protocol.errors import RETRY_AFTER
from paimon_magics.errors import SetupError

STREAM = "/v1/inserts/default/t/stream"


@dataclass
class Refusal:
    status: int
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def error(self) -> dict[str, str]:
        error: dict[str, str] = json.loads(self.body)["error"]
        return error


def refusal(app: ASGIApp, headers: dict[str, str] | None = None) -> Refusal:
    """The HTTP answer to a stream from a proxy at 10.0.0.7."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    named = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    scope = {
        "type": "websocket",
        "scheme": "ws",
        "path": STREAM,
        "query_string": b"",
        "headers": named,
        "client": ("10.0.0.7", 50_000),
        "extensions": {"websocket.http.response": {}},
    }
    asyncio.run(app(scope, receive, send))
    start, body = sent
    assert [start["type"], body["type"]] == [
        "websocket.http.response.start",
        "websocket.http.response.body",
    ]
    return Refusal(start["status"], dict(start["headers"]), body["body"])


def test_stream_to_a_coordinator_that_has_not_started_is_told_why_and_when_to_come() -> None:
    beginning = Beginning("", None, tries_again=True)
    beginning.trouble = SetupError("The store is away.")
    answer = refusal(beginning)
    assert (answer.status, answer.headers[b"retry-after"]) == (503, RETRY_AFTER.encode())
    assert answer.error["type"] == "NotStartedError"
    assert "The store is away" in answer.error["message"]


def test_stream_waits_for_the_parts_of_a_coordinator() -> None:
    beginning = Beginning("", None, tries_again=True)
    parts = PlainTextResponse("the parts", status_code=418)
    later = threading.Timer(0.3, beginning.become, [parts])
    later.start()
    assert refusal(beginning).body == b"the parts"
    later.join()


def test_stream_that_came_unencrypted_is_told_so() -> None:
    forwarding = Forwarding(PlainTextResponse("taken"), Peers.of(["10.0.0.7"]))
    answer = refusal(forwarding, {"x-forwarded-proto": "http"})
    assert (answer.status, answer.error["type"]) == (403, "Insecure")
