"""An owner whose log has rows that it can't acknowledge any more, since another one took over."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from websockets.sync.client import connect

from tests.backends.s3 import Reply, S3Server
from tests.coordinator.inserts.serving import SLOW, TABLE, table_sql
from tests.coordinator.process import Process, create_table, read, wait_until
from tests.coordinator.team import TOKEN, asked

HEADERS = {"authorization": f"Bearer {TOKEN}"}
UNKNOWN = "It is not known whether the rows were accepted"


def post(process: Process, path: str, body: Any, **headers: str) -> httpx.Response:
    return httpx.post(
        f"{process.address}/v1/inserts/default/t{path}",
        content=json.dumps(body),
        headers={**HEADERS, **headers},
        trust_env=False,
        timeout=90,
    )


def streamed(process: Process, id: int) -> Any:
    """The answer to a message of a stream without a channel."""
    url = process.address.replace("http", "ws", 1)
    with connect(
        f"{url}/v1/inserts/default/t/stream", additional_headers=HEADERS, proxy=None
    ) as socket:
        socket.send(json.dumps({"rows": [[id, "a"]]}))
        (answer,) = json.loads(socket.recv(60))
        return answer


class Pair:
    """An owner and another one that stands by, whose log lies in the warehouse. From `cut_off` on
    the owner's requests to the store are answered at `go_on` only; what it writes to the log is
    written at once. What it reads of definitions is answered: a second after an insert the next
    one reads the table's again, before it is written to the log."""

    def __init__(self, folder: Path, s3: S3Server) -> None:
        bucket = s3.bucket()
        self._s3 = s3
        self._key = ""
        self._answers = threading.Event()
        self._lease_answers = threading.Event()
        self.written = threading.Event()
        self.catalog = create_table(bucket.options, table_sql(options=SLOW))
        self._members = []
        for number in range(2):
            state = folder / f"state-{number}"
            state.mkdir(mode=0o700)
            (state / "token").touch(0o600)
            (state / "token").write_text(TOKEN)
            options = {**bucket.options, "s3.access-key": f"member-{number}"}
            member = Process(
                options["warehouse"],
                state,
                "--standby",
                "--log=warehouse",
                "--ownership-lease-ms=4000",
                catalog=options,
            )
            self._members.append(member)
            member.start()
        wait_until(lambda: any(asked(each, "/health/owner") == 200 for each in self._members), 60)
        self.owner, self.next = sorted(
            self._members, key=lambda each: asked(each, "/health/owner") != 200
        )
        s3.between = self._between

    def _between(self, environment: dict[str, Any], hand_on: Callable[[], Reply]) -> Reply:
        named = re.search(r"Credential=([^/]+)/", environment.get("HTTP_AUTHORIZATION", ""))
        if named is None or named[1] != self._key:
            return hand_on()
        asked_for = unquote(environment["PATH_INFO"] + "?" + environment["QUERY_STRING"])
        if environment["REQUEST_METHOD"] != "PUT" and "/t/schema" in asked_for:
            return hand_on()
        if environment["REQUEST_METHOD"] == "PUT" and "/log/" in environment["PATH_INFO"]:
            reply = hand_on()
            self.written.set()
            self._answers.wait(60)
            return reply
        self._answers.wait(60)
        if "owner-" in asked_for:
            self._lease_answers.wait(60)
        return hand_on()

    def cut_off(self) -> None:
        self._key = f"member-{self._members.index(self.owner)}"

    def wait_for_takeover(self) -> None:
        """Wait until the other one owns the warehouse."""
        wait_until(lambda: asked(self.next, "/health/owner") == 200, 60)

    def go_on(self, lease_after_seconds: float = 0.0) -> None:
        """Answer the owner, once the other one has taken over; its requests about the lease later
        than others."""
        self.wait_for_takeover()
        self._answers.set()
        time.sleep(lease_after_seconds)
        self._lease_answers.set()

    def close(self) -> None:
        self._key = ""
        self._answers.set()
        self._lease_answers.set()
        self._s3.between = lambda _, hand_on: hand_on()
        for member in self._members:
            member.close()


@pytest.fixture
def pair(tmp_path: Path, s3: S3Server) -> Iterator[Pair]:
    made = Pair(tmp_path, s3)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(("label", "wait_seconds"), [(None, 2.0), ("two", 0.0)])
def test_insert_logged_by_a_deposed_owner_has_an_unknown_outcome(
    pair: Pair, label: str | None, wait_seconds: float
) -> None:
    named = {} if label is None else {"idempotency-key": label}
    assert post(pair.owner, "", {"rows": [[1, "a"]]}).status_code == 200
    with ThreadPoolExecutor(1) as pool:
        time.sleep(wait_seconds)
        pair.cut_off()
        given = pool.submit(post, pair.owner, "", {"rows": [[2, "a"]]}, **named)
        assert pair.written.wait(30)
        pair.go_on()
        answer = given.result(90)
    error = answer.json()["error"]
    # Clients repeat by themselves what is answered 503.
    assert (answer.status_code, error["type"]) == (503 if label else 502, "BrokeOffError")
    assert error["message"].startswith(UNKNOWN)
    assert "Idempotency-Key" in error["hint"]
    if label is not None:
        again = post(pair.next, "", {"rows": [[2, "a"]]}, **named)
        assert (again.status_code, again.json()["lsn"], again.json()["duplicate"]) == (200, 2, True)
    assert post(pair.next, "", {"rows": [[3, "a"]]}).status_code == 200
    assert post(pair.next, "/flush", {}).json()["lsn"] == 3
    assert [row["id"] for row in read(pair.catalog, TABLE)] == [1, 2, 3]


def test_stream_insert_logged_by_a_deposed_owner_has_unknown_outcome(pair: Pair) -> None:
    assert post(pair.owner, "", {"rows": [[1, "a"]]}).status_code == 200
    with ThreadPoolExecutor(1) as pool:
        pair.cut_off()
        given: Future[Any] = pool.submit(streamed, pair.owner, 2)
        assert pair.written.wait(30)
        pair.go_on()
        error = given.result(90)["error"]
    assert error["type"] == "BrokeOffError"
    assert error["message"].startswith(UNKNOWN)
    assert post(pair.next, "/flush", {}).json()["lsn"] == 2
    assert [row["id"] for row in read(pair.catalog, TABLE)] == [1, 2]


def test_deposed_owner_closes_no_table_whose_rows_its_successor_has_loaded(pair: Pair) -> None:
    assert post(pair.owner, "", {"rows": [[1, "a"]]}).status_code == 200
    with ThreadPoolExecutor(1) as pool:
        pair.cut_off()
        flushed = pool.submit(post, pair.owner, "/flush", {})
        pair.wait_for_takeover()
        assert post(pair.next, "", {"rows": [[2, "a"]]}).status_code == 200
        assert post(pair.next, "/flush", {}).json()["lsn"] == 2
        pair.go_on(lease_after_seconds=5)  # by then the owner has read the table
        answer = flushed.result(90)
    # Its successor's address, so that clients ask there; not that the table has strange records.
    assert answer.status_code == 503
    assert answer.json()["error"]["type"] == "DeposedError"
    assert answer.json()["address"] == pair.next.address
    assert [row["id"] for row in read(pair.catalog, TABLE)] == [1, 2]
