"""Keys while STS is slow, away, or has another clock. The STS is moto's, behind a gate."""

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest

from paimon_magics.coordinator.data_tokens.issuing import DataToken, DataTokens, Flights
from paimon_magics.coordinator.data_tokens.sts import StsIssuer, StsSettings
from paimon_magics.coordinator.protocol.principals import Principal, grants_of
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.runtime.work import waited
from paimon_magics.coordinator.service.health import key_facts
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.stores.store import StoreRefusedError, UnreachableError
from tests.backends.s3 import Bucket, Reply, S3Server, s3_server
from tests.coordinator.process import TABLE, Process, create_table, read, wait_until, write

ROLE = "arn:aws:iam::123456789012:role/lake"
READER = Principal.granted("ada", grants_of(["read"]))


class Gate:
    """Between clients and STS: `answer` makes the replies to its requests."""

    def __init__(self, server: S3Server) -> None:
        self.policies: list[str] = []
        self.answer: Callable[[Callable[[], Reply]], Reply] = lambda hand_on: hand_on()
        server.between = self

    def __call__(self, environment: dict[str, Any], hand_on: Callable[[], Reply]) -> Reply:
        if "/sts/" not in environment.get("HTTP_AUTHORIZATION", ""):
            return hand_on()
        body = environment["wsgi.input"].read(int(environment["CONTENT_LENGTH"]))
        environment["wsgi.input"] = io.BytesIO(body)
        self.policies.append(parse_qs(body.decode())["Policy"][0])
        return self.answer(hand_on)

    def stand_still(self) -> threading.Event:
        """Let requests wait until the event, at most 30 s."""
        goes_on = threading.Event()

        def wait(hand_on: Callable[[], Reply]) -> Reply:
            goes_on.wait(30)
            return hand_on()

        self.answer = wait
        return goes_on


@pytest.fixture
def server() -> Iterator[S3Server]:
    with s3_server() as made:
        yield made


@pytest.fixture
def gate(server: S3Server) -> Gate:
    return Gate(server)


@pytest.fixture
def bucket(server: S3Server) -> Bucket:
    return server.bucket()


@pytest.fixture
def catalog(bucket: Bucket) -> Catalog:
    return create_table(bucket.options, "CREATE TABLE t (k INT)")


def tokens(catalog: Catalog, seconds: int = 900) -> DataTokens:
    issuer = StsIssuer(catalog.warehouse, lambda: catalog.options, StsSettings(ROLE))
    made = DataTokens(catalog, issuer, seconds)
    made.start(Runtime())
    return made


def of_table(keys: DataTokens, catalog: Catalog, who: Principal = READER) -> DataToken:
    return waited(keys.of_table(who, load_stored(catalog, TableName("t", "default"))))


def named(name: str) -> Principal:
    return Principal.granted(name, grants_of(["read"]))


def unavailable(hand_on: Callable[[], Reply]) -> Reply:
    return Reply("503 Service Unavailable", [], b"no")


def test_those_who_ask_for_one_key_at_once_wait_for_one_request(
    gate: Gate, catalog: Catalog
) -> None:
    keys, goes_on = tokens(catalog), gate.stand_still()
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(of_table, keys, catalog) for _ in range(8)]
        wait_until(lambda: bool(gate.policies))
        goes_on.set()
        assert len({answer.result(20).options["s3.session-token"] for answer in answers}) == 1
    assert len(gate.policies) == 1


def test_sts_that_stands_still_keeps_no_other_request_of_a_coordinator_waiting(
    gate: Gate, bucket: Bucket, catalog: Catalog, tmp_path: Path
) -> None:
    options = ("--data-tokens=sts", f"--sts-role={ROLE}")
    warehouse = bucket.options["warehouse"]
    process = Process(warehouse, tmp_path / "state", *options, catalog=bucket.options)
    process.start()
    goes_on = threading.Event()
    try:
        root = {"Authorization": f"Bearer {process.token()}"}
        made = [
            httpx.post(
                f"{process.address}/v1/tokens",
                json={"name": f"u{number}", "allow": ["read"]},
                headers=root,
            ).json()["token"]
            for number in range(45)
        ]
        goes_on = gate.stand_still()
        gate.policies.clear()
        client = process.client()

        def ask(path: str, token: str) -> httpx.Response:
            headers = {"Authorization": f"Bearer {token}"}
            return httpx.get(f"{process.address}{path}", headers=headers, timeout=60)

        def commit() -> None:
            transaction = client.begin(TABLE)
            messages = write(catalog, transaction, [{"k": 1}])
            client.commit(CommitRequest(transaction, Append(), messages))

        table = "/v1/paimon/databases/default/tables/t"
        with ThreadPoolExecutor(60) as pool:
            asked = [pool.submit(ask, f"{table}/token", token) for token in made]
            wait_until(lambda: bool(gate.policies))
            began = time.monotonic()
            others = [pool.submit(ask, path, process.token()) for path in (table, "/v1/tables")]
            pool.submit(commit).result(20)
            assert others[0].result(20).status_code == 200
            assert time.monotonic() - began < 8
            answers = [answer.result(60) for answer in asked]
        assert {answer.status_code for answer in answers} == {503}
        assert all("STS at" in answer.text for answer in answers)
        assert read(catalog) == [{"k": 1}]
    finally:
        goes_on.set()
        process.close()


def test_request_without_an_answer_ends_and_the_next_ones_are_refused_at_once(
    gate: Gate, catalog: Catalog
) -> None:
    runtime = Runtime()
    flights = Flights[int](runtime, "STS at x", answer_seconds=0.5)
    goes_on = threading.Event()
    try:
        waits = flights.ask(("a",), lambda: int(goes_on.wait(20)))
        with pytest.raises(UnreachableError, match="STS at x gave no answer within"):
            waits.result(10)
        with pytest.raises(UnreachableError, match=r"STS at x gives no keys now: .*again in"):
            flights.ask(("b",), lambda: 1)
        assert flights.trouble

        def tried() -> bool:
            try:
                return flights.ask(("b",), lambda: 2).result(10) == 2
            except UnreachableError:
                return False

        wait_until(tried)
        assert flights.trouble == ""
        assert flights.ask(("c",), lambda: 3).result(10) == 3
    finally:
        goes_on.set()
        flights.end()


def test_pauses_after_failures_grow(catalog: Catalog, gate: Gate) -> None:
    gate.answer = unavailable
    keys = tokens(catalog)
    until = time.monotonic() + 6
    while time.monotonic() < until:
        with pytest.raises(UnreachableError):
            of_table(keys, catalog, named("eve"))
        time.sleep(0.05)
    assert 1 <= len(gate.policies) <= 2 * 4, "each request is one and a repetition"


def test_refusal_of_one_key_leaves_the_others(catalog: Catalog, gate: Gate) -> None:
    gate.answer = lambda _: Reply.error("403 Forbidden", "AccessDenied")
    keys = tokens(catalog)
    for _ in range(3):
        with pytest.raises(StoreRefusedError, match="issued no key"):
            of_table(keys, catalog, named("eve"))
    assert len(gate.policies) == 1
    gate.answer = lambda hand_on: hand_on()
    assert of_table(keys, catalog, named("ada"))


def test_key_that_has_not_ended_is_given_while_sts_is_away(catalog: Catalog, gate: Gate) -> None:
    keys = tokens(catalog, seconds=12)
    first = of_table(keys, catalog)
    gate.answer = unavailable
    time.sleep(4.2)
    assert of_table(keys, catalog) is first, "a third of its time has passed"
    time.sleep(5)
    with pytest.raises(UnreachableError):
        of_table(keys, catalog)


@pytest.mark.parametrize("ahead", [-300, 300])
def test_key_lasts_its_time_by_the_stores_clock(
    catalog: Catalog, gate: Gate, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def date(*_: object) -> str:
        return format_datetime(datetime.now(UTC) + timedelta(seconds=ahead), usegmt=True)

    monkeypatch.setattr(BaseHTTPRequestHandler, "date_time_string", date)
    keys = tokens(catalog, seconds=20)
    token = of_table(keys, catalog)
    assert abs(keys.ahead_ms - ahead * 1000) < 3_000
    document = json.loads(gate.policies[-1])
    (end,) = [s["Condition"]["DateGreaterThan"] for s in document["Statement"]
              if "DateGreaterThan" in s.get("Condition", {})]  # fmt: skip
    by_store = datetime.fromisoformat(end["aws:CurrentTime"]) - timedelta(seconds=ahead)
    assert abs((by_store - datetime.now(UTC)).total_seconds() - 20) < 4
    assert 15_000 < token.ends_at_ms - time.time() * 1000 <= 20_000
    (problem,) = [fact.problem for fact in key_facts(keys) if fact.problem]
    assert "The store's clock is" in problem
    assert ("ahead of" if ahead > 0 else "behind") in problem


@pytest.mark.parametrize("body", [b"<html>hello", b"", b"<AssumeRoleResponse/>"])
def test_answer_that_is_no_key_is_none(catalog: Catalog, gate: Gate, body: bytes) -> None:
    gate.answer = lambda _: Reply("200 OK", [("Content-Type", "text/xml")], body)
    with pytest.raises(UnreachableError, match=r"STS at http://127.* gave no answer"):
        of_table(tokens(catalog), catalog)


def test_sts_that_throttles_is_asked_again_later(catalog: Catalog, gate: Gate) -> None:
    error = "<Error><Code>Throttling</Code><Message>x</Message></Error>"
    text = f"<ErrorResponse>{error}</ErrorResponse>"
    gate.answer = lambda _: Reply("400 Bad Request", [("Content-Type", "text/xml")], text.encode())
    keys = tokens(catalog)
    with pytest.raises(UnreachableError, match="Throttling"):
        of_table(keys, catalog)
    gate.answer = lambda hand_on: hand_on()

    def is_given() -> bool:
        try:
            return bool(of_table(keys, catalog))
        except UnreachableError:
            return False

    wait_until(is_given)
