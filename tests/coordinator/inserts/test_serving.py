"""Small inserts over HTTP, into real tables, by a real coordinator and its flusher."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pytest

from paimon_magics.coordinator.inserts.loading.dead_letter_table import NAME
from paimon_magics.planning.commits.requests import Append, CommitRequest, OverwritePartitions
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.table_changes import AlterTable
from tests.coordinator.inserts.serving import QUICK, SLOW, Served, table_sql
from tests.coordinator.process import read, wait_until, write


def error(answer: Any) -> str:
    return str(answer.json()["error"]["type"])


def snapshots(served: Served) -> list[dict[str, Any]]:
    folder = served.process.warehouse / "default.db" / served.name.table / "snapshot"
    names = sorted(folder.glob("snapshot-*"), key=lambda path: int(path.name[9:]))
    return [json.loads(path.read_text()) for path in names]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A coordinator for all tests that leave it alone."""
    with Served(tmp_path_factory.mktemp("shared"), table_sql()) as served:
        yield served


def letters_told(served: Served) -> list[dict[str, object]]:
    """What the table of dead letters says of this table."""
    if not served.catalog.database_exists("paimon_magics"):
        return []
    if not served.catalog.table_exists(NAME):
        return []
    rows = read(served.catalog, NAME)
    return [row for row in rows if row["table_name"] == f"default.{served.name.table}"]


def alter(served: Served, change: str) -> None:
    statement = parse_statement(f"ALTER TABLE t {change}")
    assert isinstance(statement, AlterTable)
    served.catalog.alter_table(served.name, statement.changes)


def test_inserts_are_acknowledged_at_once_and_loaded_together(shared: Served) -> None:
    with Served(shared.folder, table_sql(options=SLOW), shared=shared) as served:
        answers = [served.insert([[n, "a"], [n, "b"]]).json() for n in range(3)]
        assert answers == [{"lsn": n, "label": None, "mode": "async_mode"} for n in (1, 2, 3)]
        assert served.rows() == []
        queue = served.queue()
        assert (queue["acknowledged"], queue["published"], queue["waiting_rows"]) == (3, 0, 6)
        assert served.flush() == {"lsn": 3, "snapshot_id": 1}
        assert served.ids() == [0, 0, 1, 1, 2, 2]
        assert [row["name"] for row in served.rows()] == ["a", "b"] * 3
        noted = snapshots(served)[0]["properties"]
        actual = {key.removeprefix("paimon-magics."): value for key, value in noted.items()}
        assert (actual["log.first"], actual["log.last"], actual["rows"]) == ("1", "3", "6")
        assert served.queue()["waiting_bytes"] == 0


def test_statements_of_a_request_are_a_single_insert(shared: Served) -> None:
    with Served(shared.folder, table_sql(options=SLOW), shared=shared) as served:
        statements = [{"columns": ["id"], "rows": [[n]]} for n in range(64)]
        answer = served.call("POST", "", {"statements": statements})
        assert answer.json()["lsn"] == 1
        served.flush()
        assert served.ids() == list(range(64))


def test_arrow_stream_is_accepted_as_an_insert(shared: Served) -> None:
    table = pa.table({"name": ["a", None], "id": pa.array([1, 2], pa.int16())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    kind = {"content-type": "application/vnd.apache.arrow.stream"}
    with Served(shared.folder, table_sql(options=SLOW), shared=shared) as served:
        body = sink.getvalue().to_pybytes()
        assert served.call("POST", "", body, kind).status_code == 200
        served.insert([[3, "c"]])
        served.flush()
        assert [list(row.values()) for row in served.rows()] == [
            [1, "a"],
            [2, None],
            [3, "c"],
        ]
        refused = served.call("POST", "", b"no stream", kind)
        assert (refused.status_code, error(refused)) == (400, "InvalidValueError")


def test_insert_mode_decides_when_it_is_answered(shared: Served) -> None:
    with Served(shared.folder, table_sql(options=QUICK), shared=shared) as served:
        seen = served.insert([[1, "a"]], mode="sync_mode").json()
        assert seen == {"lsn": 1, "label": None, "mode": "sync_mode", "snapshot_id": 1}
        assert served.ids() == [1]
        alone = served.insert([[2, "a"]], mode="off_mode").json()
        assert (alone["mode"], served.ids()) == ("off_mode", [1, 2])
        assert served.insert([[3, "a"]], mode="some_mode").status_code == 400


def test_a_repeated_label_or_offset_gets_the_first_answer(tmp_path: Path) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        first = served.insert([[1, "a"]], idempotency_key="one")
        again = served.insert([[1, "a"]], idempotency_key="one")
        assert again.json() == {**first.json(), "duplicate": True}
        spaced = b'{ "rows" :[[1,"a"]] }'  # as another library writes it
        again = served.call("POST", "", spaced, {"idempotency-key": "one"})
        assert again.json()["duplicate"]
        other = served.insert([[2, "a"]], idempotency_key="one")
        assert (other.status_code, error(other)) == (422, "LabelUsed")
        served.insert([[2, "a"]], paimon_channel="c", paimon_offset="7")
        repeated = served.insert([[2, "a"]], paimon_channel="c", paimon_offset="7")
        assert repeated.json() == {
            "lsn": 2,
            "label": None,
            "mode": "async_mode",
            "duplicate": True,
        }
        gap = served.insert([[4, "a"]], paimon_channel="c", paimon_offset="9")
        assert (gap.status_code, error(gap)) == (416, "OffsetOutOfRange")
        served.insert([[3, "a"]], paimon_channel="c", paimon_offset="8")
        served.process.kill()
        served.process.start()
        assert served.insert([[1, "a"]], idempotency_key="one").json()["duplicate"]
        assert served.insert([[3, "a"]], paimon_channel="c", paimon_offset="8").json()["lsn"] == 3
        served.flush()
        assert served.ids() == [1, 2, 3]
        assert served.insert([[1, "a"]], idempotency_key="one").json()["lsn"] == 1


_CHANGES = {
    "ADD COLUMN more INT": {"rows": [[1, "a"]]},
    "DROP COLUMN name": {"columns": ["id", "name"], "rows": [[1, "a"]]},
    "RENAME COLUMN name TO title": {"columns": ["id", "name"], "rows": [[1, "a"]]},
    "SET TBLPROPERTIES ('auto_batch_load' = 'false')": {"rows": [[1, "a"]]},
}
"""Changes of the table, and rows that it accepts before them only."""


@pytest.mark.parametrize("change", _CHANGES)
@pytest.mark.parametrize(
    "name",
    [{"idempotency_key": "a-label"}, {"paimon_channel": "c", "paimon_offset": "0"}],
    ids=["label", "channel"],
)
def test_repeated_insert_gets_the_first_answer_after_its_table_was_altered(
    shared: Served, change: str, name: dict[str, str]
) -> None:
    with Served(shared.folder, table_sql(), shared=shared) as served:
        headers = {key.replace("_", "-"): value for key, value in name.items()}
        first = served.call("POST", "", _CHANGES[change], headers)
        assert first.status_code == 200
        served.flush()
        alter(served, change)
        time.sleep(1.1)  # a table is known for a second
        again = served.call("POST", "", _CHANGES[change], headers)
        assert (again.status_code, again.json().get("duplicate")) == (200, True)
        assert again.json()["lsn"] == first.json()["lsn"]
        visible = served.call(
            "POST", "", _CHANGES[change], {**headers, "group_commit": "sync_mode"}
        )
        assert (visible.status_code, visible.json()["mode"]) == (200, "sync_mode")
        other = {**_CHANGES[change], "rows": [[2, "b"]]}
        used = served.call("POST", "", other, headers)
        assert (used.status_code, error(used)) == (422, "LabelUsed")
        new = served.call("POST", "", _CHANGES[change], {"idempotency-key": "another"})
        assert new.status_code == 400
        assert served.call("POST", "", _CHANGES[change]).status_code == 400
        assert served.ids() == [1]


def test_repeated_arrow_stream_gets_the_first_answer_after_a_column_was_added(
    shared: Served,
) -> None:
    with Served(shared.folder, table_sql(), shared=shared) as served:
        sink = pa.BufferOutputStream()
        table = pa.table({"id": pa.array([1], pa.int64()), "name": ["a"]})
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        body = sink.getvalue().to_pybytes()
        headers = {
            "content-type": "application/vnd.apache.arrow.stream",
            "idempotency-key": "a-stream",
        }
        assert served.call("POST", "", body, headers).status_code == 200
        alter(served, "ADD COLUMN more INT")
        time.sleep(1.1)
        again = served.call("POST", "", body, headers)
        assert (again.status_code, again.json().get("duplicate")) == (200, True)
        served.flush()
        assert served.ids() == [1]


def test_invalid_insert_is_refused_without_side_effects(shared: Served) -> None:
    with Served(shared.folder, table_sql(options=SLOW), shared=shared) as served:
        served.insert([[1, "a"]])
        assert error(served.insert([[2, "a"], ["x", "a"]])) == "InvalidValueError"
        assert error(served.call("POST", "", b"{")) == "InvalidValueError"
        unknown = served.call("POST", "", {"columns": ["id", "nme"], "rows": [[2, "a"]]})
        assert (unknown.status_code, "Did you mean `name`?" in unknown.text) == (400, True)
        assert served.call("POST", "/v1/inserts/default/u", {"rows": []}).status_code == 404
        assert served.insert([[3, "a"]], idempotency_key="x" * 129).status_code == 400
        twice = served.call("POST", "", b'{"rows": [[3, "a"]], "rows": [[4, "b"]]}')
        assert twice.status_code == 400 and "the member 'rows' twice" in twice.text
        served.flush()
        assert served.ids() == [1]


def test_a_table_without_the_option_takes_no_small_inserts(shared: Served) -> None:
    with Served(shared.folder, "CREATE TABLE t (id BIGINT)", shared=shared) as served:
        answer = served.insert([[1]])
        assert (answer.status_code, error(answer)) == (400, "InvalidTableError")
        assert "'auto_batch_load' = 'true'" in answer.json()["error"]["hint"]


def test_too_deep_types_are_refused(shared: Served) -> None:
    for depth, status in ((49, 200), (50, 400)):
        deep = f"{'ARRAY<' * depth}INT{'>' * depth}"
        options = f"'auto_batch_load' = 'true', {SLOW}"
        sql = f"CREATE TABLE t (id BIGINT, deep {deep}) TBLPROPERTIES ({options})"
        with Served(shared.folder, sql, shared=shared) as served:
            answer = served.insert([[1, None]])
            assert answer.status_code == status, answer.text
            if status == 200:
                served.flush()
                assert served.ids() == [1]
    assert "`deep` has more than 50 levels" in answer.text


@pytest.mark.parametrize("suffix", ["$branch_b", "$audit_log", "$branch_main"])
def test_only_the_main_branch_takes_small_inserts(shared: Served, suffix: str) -> None:
    with Served(shared.folder, table_sql(), shared=shared) as served:
        table = served.catalog.load(served.name)
        table.paimon.branch_manager().create_branch("b")
        for path in (f"{served.name.table}{suffix}", f"{served.name.table}{suffix}/flush"):
            refused = served.call("POST", f"/v1/inserts/default/{path}", {"rows": [[1, "a"]]})
            assert refused.status_code == 400, refused.text
            assert f"Insert into `default.{served.name.table}`" in refused.json()["error"]["hint"]
        assert served.insert([[1, "a"]]).json()["lsn"] == 1
        served.flush()
        assert served.ids() == [1]


def test_insert_with_a_wrong_token_is_refused(shared: Served) -> None:
    with Served(shared.folder, table_sql(), shared=shared) as served:
        wrong = served.call("POST", "", {"rows": []}, {"authorization": "Bearer no"})
        assert wrong.status_code == 401


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ("id BIGINT NOT NULL, name STRING", "'primary-key' = 'id', 'bucket' = '2'"),
        ("id BIGINT NOT NULL, name STRING", "'primary-key' = 'id'"),
        ("id BIGINT NOT NULL, name STRING", "'primary-key' = 'id', 'bucket' = '-2'"),
    ],
    ids=["fixed", "dynamic", "postponed"],
)
def test_the_later_acknowledged_row_of_a_key_wins(
    shared: Served, columns: str, options: str
) -> None:
    with Served(shared.folder, table_sql(columns, f"{options}, {SLOW}"), shared=shared) as served:
        for number in range(20):
            served.insert([[number % 3, f"{number}"]])
            if number == 10:
                served.flush()
        served.flush()
        actual = {row["id"]: row["name"] for row in served.rows()}
        assert actual == {0: "18", 1: "19", 2: "17"}


def test_partial_update_keeps_values_of_absent_columns(shared: Served) -> None:
    columns = "id BIGINT NOT NULL, a STRING, b STRING"
    options = f"'primary-key' = 'id', 'bucket' = '1', 'merge-engine' = 'partial-update', {SLOW}"
    with Served(shared.folder, table_sql(columns, options), shared=shared) as served:
        for name, value in (("a", "x"), ("b", "y"), ("a", "z")):
            body = {"columns": ["id", name], "rows": [[1, value]]}
            assert served.call("POST", "", body).status_code == 200
        served.flush()
        assert served.rows() == [{"id": 1, "a": "z", "b": "y"}]


def test_rows_go_to_their_partitions_and_buckets(shared: Served) -> None:
    sql = (
        "CREATE TABLE t (id BIGINT, day STRING) PARTITIONED BY (day) TBLPROPERTIES "
        f"('auto_batch_load' = 'true', 'bucket' = '2', 'bucket-key' = 'id', {SLOW})"
    )
    with Served(shared.folder, sql, shared=shared) as served:
        served.insert([[n, f"d{n % 2}"] for n in range(40)])
        served.flush()
        actual = served.rows()
        assert sorted(row["id"] for row in actual) == list(range(40))  # type: ignore[type-var]
        assert all(row["day"] == f"d{row['id'] % 2}" for row in actual)  # type: ignore[operator]


def test_acknowledged_inserts_are_loaded_after_a_kill(tmp_path: Path) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        for number in range(50):
            assert served.insert([[number, "a"]]).status_code == 200
        served.process.kill()
        served.process.start()
        served.insert([[50, "a"]])
        served.flush()
        assert served.ids() == list(range(51))


def test_shutdown_loads_waiting_rows(tmp_path: Path) -> None:
    with Served(tmp_path, table_sql(options=SLOW)) as served:
        served.insert([[1, "a"]])
        assert served.process.end() == 0
        assert served.ids() == [1]


class TestOtherStatements:
    def test_an_overwrite_has_its_place_between_the_inserts(self, shared: Served) -> None:
        with Served(shared.folder, table_sql(options=QUICK), shared=shared) as served:
            served.insert([[1, "a"]])
            client = served.process.client()
            transaction = client.begin(served.name)
            assert served.ids() == [1]  # it sees what was acknowledged before
            served.insert([[2, "b"]])
            time.sleep(0.5)  # longer than the interval: nothing passes it
            assert served.ids() == [1]
            messages = write(served.catalog, transaction, [{"id": 9, "name": "o"}], overwrite=True)
            client.commit(CommitRequest(transaction, OverwritePartitions(), messages))
            served.flush()
            assert sorted(served.ids()) == [2, 9]  # type: ignore[type-var]

    def test_aborted_transaction_releases_waiting_inserts(self, shared: Served) -> None:
        with Served(shared.folder, table_sql(options=QUICK), shared=shared) as served:
            client = served.process.client()
            transaction = client.begin(served.name)
            served.insert([[1, "a"]])
            client.abort(transaction)
            wait_until(lambda: served.ids() == [1])

    def test_expired_lease_releases_waiting_inserts(self, tmp_path: Path) -> None:
        with Served(tmp_path, table_sql(options=QUICK), "--lease-ms=1000") as served:
            client = served.process.client()
            client.begin(served.name)
            client.close()
            served.insert([[1, "a"]])
            wait_until(lambda: served.ids() == [1])

    def test_concurrent_inserts_and_appends_are_all_kept(self, shared: Served) -> None:
        with Served(shared.folder, table_sql(options=QUICK), shared=shared) as served:
            done = threading.Event()

            def insert() -> None:
                for number in range(100):
                    assert served.insert([[number, "i"]]).status_code == 200
                done.set()

            thread = threading.Thread(target=insert)
            thread.start()
            client = served.process.client()
            appended = 0
            while not done.is_set() or appended == 0:
                transaction = client.begin(served.name)
                messages = write(served.catalog, transaction, [{"id": -1, "name": "t"}])
                client.commit(CommitRequest(transaction, Append(), messages))
                appended += 1
            thread.join()
            served.flush()
            actual = served.ids()
            assert [id for id in actual if id != -1] == list(range(100))
            assert actual.count(-1) == appended


class TestSchemaChanges:
    def test_waiting_rows_are_mapped_to_the_new_schema(self, shared: Served) -> None:
        with Served(shared.folder, table_sql(options=SLOW), shared=shared) as served:
            served.insert([[1, "a"]])
            alter(served, "RENAME COLUMN name TO title")
            alter(served, "ADD COLUMN more INT")
            time.sleep(1.1)  # the coordinator looks at a schema once a second
            served.call("POST", "", {"columns": ["more", "id"], "rows": [[5, 2]]})
            served.flush()
            assert served.rows() == [
                {"id": 1, "title": "a", "more": None},
                {"id": 2, "title": None, "more": 5},
            ]

    def test_unmappable_row_becomes_a_dead_letter(self, shared: Served) -> None:
        letters = "/dead-letters"
        sql = table_sql(
            "id BIGINT, n BIGINT", f"'alter-column-null-to-not-null.disabled' = 'false', {SLOW}"
        )
        with Served(shared.folder, sql, shared=shared) as served:
            served.insert([[1, 5]])
            served.insert([[2, None]])
            served.insert([[3, 7]])
            alter(served, "ALTER COLUMN n SET NOT NULL")
            served.flush()
            assert served.ids() == [1, 3]
            (letter,) = served.call("GET", letters).json()["dead_letters"]
            assert letter["lsn"] == 2
            assert "`n` is NOT NULL now" in letter["why"]
            assert json.loads(letter["request"]) == {"rows": [[2, None]]}
            again = served.call("POST", f"{letters}/2/retry")
            assert (again.status_code, error(again)) == (400, "InvalidValueError")
            alter(served, "ALTER COLUMN n DROP NOT NULL")
            time.sleep(1.1)
            assert served.call("POST", f"{letters}/2/retry").json()["lsn"] == 4
            assert served.call("POST", f"{letters}/2/retry").status_code == 404
            served.flush()
            assert served.ids() == [1, 3, 2]
            told = letters_told(served)
            assert [(row["record"], row["state"]) for row in told] == [(2, "retried")]
            assert "`n` is NOT NULL now" in str(told[0]["reason"])
            assert told[0]["request"] == '{"rows": [[2, null]]}'

    def test_dead_letter_is_discarded_on_request(self, shared: Served) -> None:
        letters = "/dead-letters"
        sql = table_sql(
            "id BIGINT, n BIGINT", f"'alter-column-null-to-not-null.disabled' = 'false', {SLOW}"
        )
        with Served(shared.folder, sql, shared=shared) as served:
            served.insert([[2, None]])
            alter(served, "ALTER COLUMN n SET NOT NULL")
            served.flush()
            assert served.call("DELETE", f"{letters}/2").status_code == 404
            wait_until(lambda: [row["state"] for row in letters_told(served)] == ["waiting"])
            assert served.call("DELETE", f"{letters}/1").status_code == 200
            assert served.call("GET", letters).json() == {"dead_letters": []}
            assert [row["state"] for row in letters_told(served)] == ["discarded"]


def test_the_page_has_buttons_for_dead_letters(shared: Served) -> None:
    sql = table_sql(
        "id BIGINT, n BIGINT", f"'alter-column-null-to-not-null.disabled' = 'false', {SLOW}"
    )
    with Served(shared.folder, sql, shared=shared) as served:
        served.insert([[1, None]])
        served.insert([[2, None]])
        alter(served, "ALTER COLUMN n SET NOT NULL")
        served.flush()

        def forms() -> list[dict[str, str]]:
            text = served.call("GET", "//").text
            assert "`n` is NOT NULL now" in text
            actual = re.findall(r"<form.*?</form>", text)
            fields = [dict(re.findall(r'name="(\w+)" value="([^"]*)"', form)) for form in actual]
            return [each for each in fields if each.get("table") == served.name.table]

        def press(form: dict[str, str], button: str) -> httpx.Response:
            fields = {key: value for key, value in form.items() if key not in ("retry", "discard")}
            address = f"{served.process.address}/dead-letters"
            with httpx.Client(trust_env=False) as browser:  # without a token
                return browser.post(address, data={**fields, button: "1"})

        first, second = forms()
        assert press({**first, "record": second["record"]}, "discard").status_code == 403
        assert press({**first, "until": "9999999999"}, "discard").status_code == 403
        assert press({}, "discard").status_code == 403
        done = press(first, "discard")
        assert (done.status_code, done.headers["location"]) == (303, "./")
        assert press(second, "retry").status_code == 400  # it still does not fit
        alter(served, "ALTER COLUMN n DROP NOT NULL")
        assert press(second, "retry").status_code == 303
        served.flush()
        assert served.ids() == [2]
        assert served.call("GET", "/dead-letters").json() == {"dead_letters": []}


def test_duplicate_header_is_refused(shared: Served) -> None:
    headers = [
        ("authorization", f"Bearer {shared.process.token()}"),
        ("idempotency-key", "one"),
        ("idempotency-key", "two"),
    ]
    url = shared.process.address + shared.path
    for _ in range(2):  # with and without what is known of the table
        answer = httpx.post(
            url, headers=headers, content=b'{"rows": [[1, "a"]]}', trust_env=False, timeout=60
        )
        assert (answer.status_code, "2 headers `idempotency-key`" in answer.text) == (400, True)
    assert shared.queue()["acknowledged"] == 0


def test_pipelined_requests_are_answered_in_order(shared: Served) -> None:
    with Served(shared.folder, table_sql(options=SLOW), shared=shared) as served:
        place = urlsplit(served.process.address)
        assert place.hostname is not None and place.port is not None
        served.insert([[0, "a"]])

        def request(number: int, version: str = "1.1", more: str = "") -> bytes:
            body = json.dumps({"rows": [[number, "a"]]})
            return (
                f"POST {served.path} HTTP/{version}\r\nhost: {place.netloc}\r\n{more}"
                f"authorization: Bearer {served.process.token()}\r\n"
                f"content-length: {len(body)}\r\n\r\n{body}"
            ).encode()

        def answers(sent: bytes) -> list[tuple[bytes, Any]]:
            """The heads and documents of all answers until the server closes."""
            with socket.create_connection((place.hostname, place.port), timeout=30) as http:
                http.sendall(sent)
                content = b"".join(iter(lambda: http.recv(65_536), b""))
            assert content.startswith(b"HTTP/1.1 200 OK\r\n")
            parts = [each.split(b"\r\n\r\n") for each in content.split(b"HTTP/1.1 ")[1:]]
            assert all(f"content-length: {len(body)}".encode() in head for head, body in parts)
            return [(head, json.loads(body)) for head, body in parts]

        close = "connection: close\r\n"
        three = answers(request(1) + request(2) + request(3, more=close))
        assert [body["lsn"] for _, body in three] == [2, 3, 4]
        assert [close[:-2].encode() in head for head, _ in three] == [False, False, True]
        assert [body["lsn"] for _, body in answers(request(4, "1.0"))] == [5]
        served.flush()
        assert served.ids() == [0, 1, 2, 3, 4]


def test_disconnecting_client_is_no_error(shared: Served) -> None:
    with Served(shared.folder, table_sql(), shared=shared) as served:
        place = urlsplit(served.process.address)
        assert place.hostname is not None and place.port is not None
        head = (
            f"POST {served.path} HTTP/1.1\r\nhost: {place.netloc}\r\ncontent-length: 100\r\n"
            f"authorization: Bearer {served.process.token()}\r\n"
            "content-type: application/vnd.apache.arrow.stream\r\n\r\nhalf"
        )
        with socket.create_connection((place.hostname, place.port)) as gone:
            gone.sendall(head.encode())
            time.sleep(0.2)
        assert served.insert([[1, "a"]]).status_code == 200
        assert "ClientDisconnect" not in served.call("GET", "//").text


def test_page_and_metrics_show_waiting_rows(shared: Served) -> None:
    with Served(shared.folder, table_sql(options=SLOW), shared=shared) as served:
        served.insert([[1, "a"], [2, "a"]], idempotency_key="one")
        served.insert([[1, "a"], [2, "a"]], idempotency_key="one")
        metrics = served.call("GET", "//metrics").text
        assert f'paimon_coordinator_insert_waiting_rows{{table="{served.name}"}} 2.0' in metrics
        assert "paimon_coordinator_insert_duplicates_total " in metrics
        assert 'paimon_coordinator_inserts_refused_total{reason="full"} 0.0' in metrics
        page = served.call("GET", "//").text
        assert "Small inserts" in page
        assert str(served.name) in page
        assert served.call("GET", "//health/ready").status_code == 200


class TestBackPressure:
    def test_full_backlog_refuses_inserts_and_loses_none(self, tmp_path: Path) -> None:
        with Served(tmp_path, table_sql(options=SLOW), "--log-bytes-max=4000") as served:
            client = served.process.client()
            transaction = client.begin(served.name)  # nothing is loaded meanwhile
            taken = 0
            threads = []
            while served.queue()["waiting_bytes"] < 2_000:
                assert served.insert([[taken, "x" * 200]]).json()["mode"] == "async_mode"
                taken += 1

            def wait_for(number: int) -> None:
                answers.append(served.insert([[number, "x" * 200]]).json())

            answers: list[Any] = []
            while served.queue()["waiting_bytes"] < 3_700:
                waiting = served.queue()["acknowledged"]
                threads.append(threading.Thread(target=wait_for, args=(taken,)))
                threads[-1].start()
                taken += 1
                wait_until(lambda: served.queue()["acknowledged"] > waiting)  # noqa: B023
            refused = served.insert([[taken, "x" * 400]])
            assert (refused.status_code, error(refused)) == (429, "TooMuchWaits")
            assert int(refused.headers["retry-after"]) >= 1
            client.abort(transaction)
            wait_until(lambda: served.queue()["held_by"] == 0)
            served.flush()
            for thread in threads:
                thread.join()
            # One that fitted below the half may have been acknowledged at once.
            modes = [answer["mode"] for answer in answers]
            assert "sync_mode" in modes
            assert all("fallback" in each for each in answers if each["mode"] == "sync_mode")
            assert served.ids() == list(range(taken))

    def test_almost_full_disk_refuses_inserts(self, tmp_path: Path) -> None:
        with Served(tmp_path, table_sql(), f"--log-reserve-bytes={2**60}") as served:
            answer = served.insert([[1, "a"]])
            assert (answer.status_code, error(answer)) == (507, "NoRoom")

    def test_paused_coordinator_refuses_inserts_and_loads_waiting_rows(
        self, tmp_path: Path
    ) -> None:
        with Served(tmp_path, table_sql(options=SLOW)) as served:
            served.insert([[1, "a"]])
            served.call("POST", "/v1/coordinator/pause", {})
            assert served.insert([[2, "a"]]).status_code == 503
            served.flush()
            assert served.ids() == [1]


class TestLostLogs:
    def lose(self, served: Served) -> None:
        served.process.kill()
        for file in served.process.state.glob("log.sqlite*"):
            file.unlink()
        served.process.start()

    def test_table_with_a_lost_log_stays_closed_until_the_loss_is_accepted(
        self, tmp_path: Path
    ) -> None:
        with Served(tmp_path, table_sql(options=SLOW)) as served:
            served.insert([[1, "a"]])
            served.flush()
            served.insert([[2, "a"]])
            self.lose(served)
            answer = served.insert([[3, "a"]])
            assert (answer.status_code, error(answer)) == (409, "TableClosed")
            assert "another log" in served.queue()["closed"]
            path = "/reopen"
            assert served.call("POST", path, {}).status_code == 503
            assert served.call("POST", path, {"accept_loss": True}).status_code == 200
            assert served.insert([[4, "a"]]).status_code == 200
            served.flush()
            assert served.ids() == [1, 4]

    def test_log_lost_after_a_shutdown_loses_no_rows(self, tmp_path: Path) -> None:
        with Served(tmp_path, table_sql(options=SLOW)) as served:
            served.insert([[1, "a"]])
            assert served.process.end() == 0
            for file in served.process.state.glob("log.sqlite*"):
                file.unlink()
            served.process.start()
            assert served.insert([[2, "a"]]).status_code == 200
            served.flush()
            assert served.ids() == [1, 2]

    def test_a_damaged_record_closes_the_table_with_the_reason(self, tmp_path: Path) -> None:
        from paimon_magics.coordinator.store.database import Change
        from paimon_magics.coordinator.store.sqlite import SqliteDatabase

        with Served(tmp_path, table_sql(options=SLOW)) as served:
            for number in range(3):
                served.insert([[number, "a"]])
            served.process.kill()
            database = SqliteDatabase(served.process.state / "log.sqlite")
            (body,) = database.read("SELECT body FROM log_segments WHERE first = 2")[0]
            spoilt = body[:-3] + bytes([body[-3] ^ 1]) + body[-2:]
            database.write([Change("UPDATE log_segments SET body = ? WHERE first = 2", (spoilt,))])
            database.close()
            served.process.start()
            answer = served.insert([[3, "a"]])
            assert (answer.status_code, error(answer)) == (409, "TableClosed")
            assert "record 2: its checksum is wrong" in served.queue()["closed"]
            assert served.rows() == []


def test_rows_are_loaded_after_the_store_recovers(shared: Served) -> None:
    with Served(shared.folder, table_sql(options=SLOW), shared=shared) as served:
        served.insert([[1, "a"]])
        folder = served.process.warehouse / "default.db" / served.name.table / "bucket-0"
        folder.write_text("a file where the folder should be")
        served.insert([[2, "a"]])
        for _ in range(5):  # a store that refuses makes no dead letters, however often
            assert served.call("POST", "/flush", {"wait_ms": 100}).status_code == 504
            wait_until(lambda: served.queue()["last_error"] is not None)
        folder.unlink()
        served.flush()
        assert served.queue()["dead_letters"] == 0
        assert served.ids() == [1, 2]


def test_recreated_table_has_its_own_labels_and_records(shared: Served) -> None:
    with Served(shared.folder, table_sql(options=SLOW), shared=shared) as served:
        served.insert([[1, "a"]], idempotency_key="one")
        served.flush()
        schema = served.catalog.load(served.name).schema
        served.catalog.drop_table(served.name)
        served.catalog.create_table(served.name, schema)
        time.sleep(1.1)  # the coordinator looks at a table once a second
        answer = served.insert([[2, "a"]], idempotency_key="one")
        assert answer.json() == {"lsn": 1, "label": "one", "mode": "async_mode"}
        served.flush()
        assert served.ids() == [2]
