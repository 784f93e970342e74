"""How long a client asks again, by servers that break off in the middle of their answers."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from paimon_magics.coordinator.client import owner_requests
from paimon_magics.coordinator.client.owner_requests import Requests
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.errors import (
    CommitConflictError,
    InvalidValueError,
    SetupError,
    StatementError,
    UnknownOutcomeError,
)
from paimon_magics.statements.statement import TableName

WAIT_MS = 400
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


@contextlib.contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """The address of a server that gives these answers, the last one again and again; b"" ends the
    connection."""
    left = list(answers)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.recv(65_536)
                        connection.sendall(left.pop(0) if len(left) > 1 else left[0])

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)


def error(status: int, kind: str = "") -> bytes:
    """An answer with an error of ours, or without a type one of a proxy."""
    body = b"<html>"
    if kind:
        body = json.dumps({"error": {"type": kind, "message": kind, "hint": ""}}).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([error(502), error(504), ANSWER], None),  # a proxy whose coordinator starts again
        ([error(503, "StoreUnavailableError"), ANSWER], None),
        ([error(507, "NoRoom")], SetupError),
        ([error(400, "StatementError")], StatementError),
        ([error(429, "TooMany")], SetupError),  # nothing was looked at
        ([error(503, "PausedError")], SetupError),
        ([error(503, "StoreUnavailableError")], UnknownOutcomeError),
        ([error(500, "InternalError")], UnknownOutcomeError),
        ([b"", error(507, "NoRoom")], UnknownOutcomeError),  # the first may have been taken
        ([b"", error(401, "Unauthorized")], UnknownOutcomeError),
        ([error(503, "StoreUnavailableError"), error(400, "StatementError")], UnknownOutcomeError),
        ([b"", error(409, "Mismatch")], CommitConflictError),
        ([b"", error(422, "LabelUsed")], InvalidValueError),
        ([b"", ANSWER], None),
    ],
)
def test_unknown_outcome_is_never_reported_as_refusal(
    answers: list[bytes], outcome: type[Exception] | None
) -> None:
    with answering(*answers) as address:
        requests = Requests(At(address, "token"), wait_ms=WAIT_MS)
        if outcome is None:
            assert requests.repeat("POST", "/v1/any", {}, settles=True) == {}
        else:
            with pytest.raises(outcome) as raised:
                requests.repeat("POST", "/v1/any", {}, settles=True)
            assert type(raised.value) is outcome
        requests.close()


@pytest.mark.parametrize("answer", [b"", error(502), error(500, "InternalError")])
def test_lost_answer_to_a_single_change_leaves_its_outcome_unknown(answer: bytes) -> None:
    with answering(answer) as address:
        requests = Requests(At(address, "token"), wait_ms=WAIT_MS)
        with pytest.raises(UnknownOutcomeError):
            requests.once("POST", "/v1/any", {})
        with pytest.raises(SetupError):
            requests.once("GET", "/v1/any")
        requests.close()


@contextlib.contextmanager
def breaking_off(seconds: float) -> Iterator[str]:
    """The address of a server that ends connections for so long before it answers."""
    begins = time.monotonic() + seconds
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.recv(65_536)
                        if time.monotonic() >= begins:
                            connection.sendall(ANSWER)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)


def test_wait_restarts_after_a_live_coordinator_breaks_off() -> None:
    with breaking_off(2.5 * WAIT_MS / 1000) as address:
        requests = Requests(At(address, "token"), wait_ms=WAIT_MS)
        assert requests.repeat("POST", "/v1/any", {}, settles=True) == {}
        requests.close()


def test_wait_ends_although_coordinators_keep_dying() -> None:
    with breaking_off(600) as address:
        requests = Requests(At(address, "token"), wait_ms=WAIT_MS)
        began = time.monotonic()
        with pytest.raises(UnknownOutcomeError, match="gave no clear answer"):
            requests.repeat("POST", "/v1/any", {}, settles=True)
        assert time.monotonic() - began > 4 * WAIT_MS / 1000
        requests.close()


def test_insert_without_answer_names_table_and_label_to_repeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A coordinator that stands still: the system takes connections, and nothing answers."""
    monkeypatch.setattr(owner_requests, "_ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = RemoteCoordinator(
            At(f"http://127.0.0.1:{listening.getsockname()[1]}", "token"), coordinator_wait_ms=100
        )
        rows = pa.table({"k": pa.array([1], pa.int32())})
        for label in ("mine", None):
            insert = client.inserts().insert(TableName("t", "shop"), rows, label=label)
            with pytest.raises(UnknownOutcomeError) as raised:
                insert.result()
            text = raised.value.text()
            assert "`shop.t`" in text and f"label='{label or ''}" in text
            assert "has the request, and has not answered" in text
        client.close()
