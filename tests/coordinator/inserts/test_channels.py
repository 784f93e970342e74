"""What a channel answers to offsets before its first one, which it never took."""

from __future__ import annotations

import socket
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from paimon_magics.statements.statement import TableName
from tests.coordinator.inserts.serving import SLOW, Served, table_sql
from tests.coordinator.inserts.test_order import rest_catalog
from tests.coordinator.inserts.test_renaming import LOGS, named, serve


def send(served: Served, offset: int) -> httpx.Response:
    """Insert the row of an offset in a channel."""
    return served.insert([[offset, "a"]], paimon_channel="c", paimon_offset=str(offset))


def check_refused(served: Served, offset: int, first: int) -> None:
    """The offset comes before the channel's first one: nothing is acknowledged."""
    answer = send(served, offset)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (416, "OffsetOutOfRange")
    assert f"its offset is {offset}, but its channel begins with {first}" in error["message"]
    assert "another channel, or with a label" in error["hint"]


@pytest.mark.parametrize("where", LOGS)
def test_offset_before_the_first_is_always_refused(
    tmp_path: Path, where: str, request: pytest.FixtureRequest
) -> None:
    with serve(tmp_path, where, request) as served:
        assert send(served, 5).json()["lsn"] == 1
        check_refused(served, 4, 5)
        assert send(served, 6).json()["lsn"] == 2
        served.process.kill()
        served.process.start()
        check_refused(served, 4, 5)
        assert send(served, 5).json()["duplicate"]
        served.flush()  # what is loaded leaves the log
        check_refused(served, 0, 5)
        assert send(served, 5).json()["duplicate"]
        rest_catalog(served).rename_table(str(served.name), "default.renamed")
        named(served, TableName("renamed", "default"))
        check_refused(served, 4, 5)
        assert send(served, 7).json()["lsn"] == 3
        served.flush()
        assert served.ids() == [5, 6, 7]


def test_acknowledged_offsets_of_a_new_channel_reach_the_table(
    tmp_path: Path,
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        send(served, 100)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda offset: send(served, offset), range(107, 93, -1)))
        taken = {
            offset
            for offset, answer in zip(range(107, 93, -1), answers, strict=True)
            if answer.status_code == 200
        }
        assert {answer.status_code for answer in answers} <= {200, 416}
        served.flush()
        assert set(served.ids()) == taken | {100}


def test_channel_of_an_older_version_answers_as_before(tmp_path: Path) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        send(served, 5)
        served.process.kill()
        with closing(sqlite3.connect(tmp_path / "state" / "log.sqlite")) as database:
            database.execute("DELETE FROM log_keys WHERE off < -1")
            database.commit()
        served.process.start()
        assert send(served, 4).json()["duplicate"]
        assert send(served, 6).json()["lsn"] == 2


def test_offset_accepts_only_digits(tmp_path: Path) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        for text in ("1_0", "+1", "5 5", "1e1", "-1", "9" * 30):
            answer = served.insert([[1, "a"]], paimon_channel="c", paimon_offset=text)
            assert answer.status_code == 400, (text, answer.text)
            assert "is not an offset" in answer.json()["error"]["message"]
        assert send(served, 7).status_code == 200


@pytest.mark.parametrize("head", ["", "Paimon-User: ada\r\n", "Paimon-Table: x\r\n"])
@pytest.mark.parametrize("framing", ["Content-Length: 200", "Transfer-Encoding: chunked"])
def test_insert_with_a_truncated_body_is_not_applied(
    tmp_path: Path, framing: str, head: str
) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        served.insert([[0, "a"]])  # the table is known now
        place = urlsplit(served.process.address)
        body = b'{"rows": [[1, "a"]]}'
        if "chunked" in framing:
            body = b"%x\r\n%s\r\n" % (len(body), body)
        with socket.create_connection((place.hostname or "", place.port or 0)) as connection:
            connection.sendall(
                f"POST {served.path} HTTP/1.1\r\nHost: x\r\n{head}{framing}\r\n"
                f"Authorization: Bearer {served.process.token()}\r\n\r\n".encode()
                + body
            )
            time.sleep(0.2)
        served.insert([[2, "a"]])
        served.flush()
        assert served.ids() == [0, 2]
