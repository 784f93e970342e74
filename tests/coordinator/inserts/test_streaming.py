"""Many inserts under way over one WebSocket, each answered in its order."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.coordinator.inserts.serving import SLOW, Served, table_sql
from tests.coordinator.process import create_table


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("streams"), table_sql()) as served:
        yield served


@pytest.fixture
def served(shared: Served) -> Iterator[Served]:
    with Served(shared.folder, table_sql(options=SLOW), shared=shared) as served:
        yield served


def stream(served: Served, query: str = "", token: str | None = None) -> ClientConnection:
    address = served.process.address.replace("http", "ws", 1)
    token = served.process.token() if token is None else token
    return connect(
        f"{address}{served.path}/stream{query}",
        additional_headers={"Authorization": f"Bearer {token}"},
        proxy=None,
    )


def row(number: int) -> str:
    return json.dumps({"rows": [[number, "s"]]})


def answers(socket: ClientConnection, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < count:
        found += json.loads(socket.recv(timeout=30))
    return found


def test_answers_come_in_the_order_of_the_messages(served: Served) -> None:
    with stream(served) as socket:
        for number in range(3_000):
            socket.send(row(number))
        told = answers(socket, 3_000)
    assert told == [{"offset": n, "lsn": n + 1} for n in range(3_000)]
    served.flush()
    assert served.ids() == list(range(3_000))


def test_channel_resumes_after_its_last_offset(served: Served) -> None:
    with stream(served, "?channel=a&offset=0") as socket:
        for number in range(10):
            socket.send(row(number))
        answers(socket, 10)
    with stream(served, "?channel=a&offset=5") as socket:
        for number in range(5, 15):
            socket.send(row(number))
        told = answers(socket, 10)
    assert told[0] == {"offset": 5, "lsn": 6, "duplicate": True}
    assert told[-1] == {"offset": 14, "lsn": 15}
    served.flush()
    assert served.ids() == list(range(15))


def test_a_stream_that_begins_before_its_channel_is_refused(served: Served) -> None:
    with stream(served, "?channel=a&offset=5") as socket:
        socket.send(row(5))
        answers(socket, 1)
    with stream(served, "?channel=a&offset=4") as socket:
        socket.send(row(4))
        (told,) = answers(socket, 1)
    assert told["error"]["type"] == "OffsetOutOfRange"
    assert "its channel begins with 5" in told["error"]["message"]
    served.flush()
    assert served.ids() == [5]


def test_errors_of_streams_are_those_of_requests(served: Served) -> None:
    """Refused by the queue, by the check of the rows, and by the size."""
    with stream(served, "?channel=a&offset=5") as socket:
        socket.send(row(5))
        answers(socket, 1)
    for query, message in (
        ("?channel=a&offset=4", row(4)),
        ("?channel=a&offset=5", row(6)),
        ("", json.dumps({"rows": [["x", "s"]]})),
        ("", "no json"),
    ):
        with stream(served, query) as socket:
            socket.send(message)
            (streamed,) = answers(socket, 1)
        names = {}
        if query:
            names = {"paimon-channel": "a", "paimon-offset": query[-1]}
        answer = served.call("POST", "", message.encode(), names)
        assert streamed["error"] == {"status": answer.status_code, **answer.json()["error"]}
        assert streamed["error"]["status"] in (400, 416, 422)


def test_refused_insert_ends_the_stream_before_later_inserts(served: Served) -> None:
    with stream(served) as socket:
        socket.send(row(1))
        socket.send(json.dumps({"rows": [["x", "s"]]}))
        socket.send(row(2))
        told = answers(socket, 2)
        with pytest.raises(ConnectionClosed) as raised:
            socket.recv(timeout=30)
    assert raised.value.rcvd is not None
    assert raised.value.rcvd.code == 4400
    assert told[0] == {"offset": 0, "lsn": 1}
    assert told[1]["error"]["type"] == "InvalidValueError"
    served.flush()
    assert served.ids() == [1]


@pytest.mark.parametrize("offset", ["x", "-3", "1.5"])
def test_invalid_offset_ends_the_stream_with_the_reason(served: Served, offset: str) -> None:
    with stream(served, f"?channel=a&offset={offset}") as socket:
        with pytest.raises(ConnectionClosed) as raised:
            while True:
                told = json.loads(socket.recv(timeout=30))
        assert raised.value.rcvd is not None
        assert raised.value.rcvd.code == 4400
        assert f"`{offset}` is not an offset" in json.dumps(told)


def test_stream_mode_decides_when_inserts_are_answered(served: Served) -> None:
    with stream(served, "?group_commit=off_mode") as socket:
        socket.send(row(1))
        (told,) = answers(socket, 1)
    assert (told["mode"], told["snapshot_id"], served.ids()) == ("off_mode", 1, [1])


@pytest.mark.parametrize(
    ("case", "status", "kind"),
    [
        ("wrong token", 401, "Unauthorized"),
        ("missing scope", 403, "Forbidden"),
        ("other right", 403, "NotTheirsError"),
        ("hidden table", 404, "UnknownNameError"),
        ("unknown table", 404, "UnknownNameError"),
        ("unknown endpoint", 404, "NotFound"),
        ("table without small inserts", 400, "InvalidTableError"),
    ],
)
def test_stream_that_is_refused_at_once_is_answered_as_over_http(
    served: Served, case: str, status: int, kind: str
) -> None:
    create_table(served.process.warehouse, "CREATE TABLE IF NOT EXISTS plain (id INT)")
    path, token = served.path, served.process.token()
    match case:
        case "wrong token":
            token = "no"
        case "missing scope":
            token = named(served, f"a{served.name.table}", "read")
        case "other right":
            own = f"read=default.{served.name.table}"
            token = named(served, f"b{served.name.table}", own, "insert=default.other")
        case "hidden table":
            token = named(served, f"c{served.name.table}", "insert=default.other")
        case "unknown table":
            path = "/v1/inserts/default/plein"
        case "unknown endpoint":
            path = "/v1/outserts/default/t"
        case "table without small inserts":
            path = "/v1/inserts/default/plain"
    bearer = {"authorization": f"Bearer {token}"}
    address = served.process.address.replace("http", "ws", 1)
    with (
        pytest.raises(InvalidStatus) as raised,
        connect(f"{address}{path}/stream", additional_headers=bearer, proxy=None),
    ):
        pass
    told = raised.value.response
    error = json.loads(told.body)["error"]
    assert (told.status_code, error["type"]) == (status, kind)
    if case != "unknown endpoint":
        answer = served.call("POST", path, {"rows": [[1, "s"]]}, bearer)
        assert (answer.status_code, answer.json()["error"]) == (status, error)


def test_one_stream_too_many_is_told_when_to_come_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Served(tmp_path, table_sql(), "--client-streams-max=1") as served:
        token = named(served, "ann")
        with stream(served, token=token):
            with pytest.raises(InvalidStatus) as raised, stream(served, token=token):
                pass
            told = raised.value.response
            assert (told.status_code, told.headers["retry-after"]) == (429, "1")
            assert json.loads(told.body)["error"]["type"] == "TooMany"
    assert "ERROR" not in capfd.readouterr().err


def named(served: Served, name: str, *allowed: str) -> str:
    """A new token, which may write if nothing is said."""
    body = {"name": name, "allow": allowed or ["write"]}
    return str(served.call("POST", "/v1/tokens", body).json()["token"])


def test_load_names_the_users_of_its_rows(served: Served) -> None:
    def insert(number: int, token: str | None = None, **headers: str) -> None:
        said = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            said["authorization"] = f"Bearer {token}"
        assert served.call("POST", "", {"rows": [[number, "s"]]}, said).status_code == 200

    def users() -> dict[str, str]:
        served.flush()
        table = served.catalog.load(served.name)
        snapshot = table.paimon.snapshot_manager().get_latest_snapshot()
        said = dict(snapshot.properties).items()
        return {key: value for key, value in said if key.endswith((".user", ".users"))}

    ada, etl = named(served, "ada"), named(served, "etl, nightly")
    insert(1, ada)
    insert(2, ada, paimon_user="somebody else")
    assert users() == {"paimon-magics.user": "ada"}
    with stream(served, token=etl) as socket:
        socket.send(row(3))
        answers(socket, 1)
    insert(4, paimon_user="bob")
    insert(5, ada)
    insert(6)
    insert(7, ada)
    assert users() == {
        "paimon-magics.user": "etl, nightly, bob, ada, auto_batch_load",
        "paimon-magics.users": '["etl, nightly", "bob", "ada", "auto_batch_load"]',
    }
    for number in range(60):
        insert(100 + number, paimon_user=f"user {number}")
    told = users()
    assert told["paimon-magics.user"].endswith("user 49 and 10 more")
    assert len(json.loads(told["paimon-magics.users"])) == 50


def test_stream_ends_soon_after_its_token_is_revoked(served: Served) -> None:
    token = named(served, "ended")
    taken = 0
    with stream(served, "?channel=z", token=token) as socket:
        socket.send(row(0))
        taken += len(answers(socket, 1))
        assert served.call("DELETE", "/v1/tokens/ended").status_code == 200
        began = time.monotonic()
        with pytest.raises(ConnectionClosed) as raised:
            while time.monotonic() - began < 30:
                socket.send(row(taken))
                taken += len(answers(socket, 1))
                time.sleep(0.1)
    assert raised.value.rcvd is not None
    assert raised.value.rcvd.code == 4401
    assert time.monotonic() - began < 15
    served.flush()
    assert served.ids() == list(range(taken))
