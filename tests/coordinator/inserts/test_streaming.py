"""Many inserts under way over one WebSocket, each answered in its order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.coordinator.inserts.serving import SLOW, Served, table_sql


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


def test_a_channel_goes_on_where_it_was(served: Served) -> None:
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


def test_a_refused_insert_ends_the_stream_and_nothing_passes_it(served: Served) -> None:
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
def test_what_is_no_offset_ends_the_stream_with_the_reason(served: Served, offset: str) -> None:
    with stream(served, f"?channel=a&offset={offset}") as socket:
        with pytest.raises(ConnectionClosed) as raised:
            while True:
                told = json.loads(socket.recv(timeout=30))
        assert raised.value.rcvd is not None
        assert raised.value.rcvd.code == 4400
        assert f"`{offset}` is not an offset" in json.dumps(told)


def test_the_mode_of_a_stream_says_when_it_answers(served: Served) -> None:
    with stream(served, "?group_commit=off_mode") as socket:
        socket.send(row(1))
        (told,) = answers(socket, 1)
    assert (told["mode"], told["snapshot_id"], served.ids()) == ("off_mode", 1, [1])


def test_a_stream_takes_a_valid_token(served: Served) -> None:
    with pytest.raises(InvalidStatus) as raised, stream(served, token="no"):
        pass
    assert raised.value.response.status_code == 403
