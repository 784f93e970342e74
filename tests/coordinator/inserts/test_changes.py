"""Changes of rows by key among small inserts, over HTTP: let in, kept in order, refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.table_changes import AlterTable
from tests.coordinator.inserts.serving import SLOW, Served, table_sql

COLUMNS = "id BIGINT NOT NULL, name STRING DEFAULT 'new', v INT NOT NULL, w DOUBLE"
BY_KEY = f"'primary-key' = 'id', 'bucket' = '2', {SLOW}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("changes"), table_sql()) as served:
        yield served


@pytest.fixture
def served(shared: Served) -> Iterator[Served]:
    with Served(shared.folder, table_sql(COLUMNS, BY_KEY), shared=shared) as served:
        yield served


def found(served: Served) -> dict[object, object]:
    served.flush()
    return {row["id"]: row["v"] for row in served.rows()}


def test_changes_and_inserts_are_loaded_in_the_order_of_their_records(served: Served) -> None:
    served.insert([[1, "a", 1, None], [2, "a", 2, None]])
    served.flush()
    documents: list[Any] = [
        {"delete": {"keys": [[1], [2]]}},
        {"rows": [[1, "b", 3, 0.5]]},
        {
            "update": {
                "keys": [[1], [2]],
                "set": {"V": 4, "w": "NaN"},
                "where": [["name", "=", "b"]],
            }
        },
        {
            "statements": [
                {"rows": [[3, "c", 1, None]]},
                {"delete": {"columns": ["ID"], "keys": [[3]]}},
            ]
        },
        {"delete": {"keys": [[1]], "where": [["v", "in", 5, 6], ["name", "is not null"]]}},
    ]
    answers = [served.call("POST", "", document).json() for document in documents]
    assert [answer["lsn"] for answer in answers] == [2, 3, 4, 5, 6]
    assert (served.queue()["waiting_rows"], len(served.rows())) == (8, 2)
    assert found(served) == {1: 4}
    assert served.flush()["snapshot_id"] == 2


def test_repeat_gets_the_first_answer_and_reused_label_is_refused(served: Served) -> None:
    served.insert([[1, "a", 1, None]])
    named = {"idempotency-key": "one"}
    first = served.call("POST", "", {"delete": {"keys": [[1]]}}, named).json()
    served.insert([[1, "b", 2, None]])
    again = served.call("POST", "", b'{ "delete" : {"keys": [[1]]} }', named).json()
    assert (again["lsn"], again["duplicate"]) == (first["lsn"], True)
    assert served.call("POST", "", {"delete": {"keys": [[2]]}}, named).status_code == 422
    assert found(served) == {1: 2}


def test_stream_applies_changes_in_order(served: Served) -> None:
    address = served.process.address.replace("http", "ws") + f"{served.path}/stream?channel=c"
    headers = {"authorization": f"Bearer {served.process.token()}"}
    with connect(address, additional_headers=headers) as stream:
        for n in range(30):
            stream.send(json.dumps({"rows": [[1, "a", n, None]]}))
            stream.send(json.dumps({"delete": {"keys": [[1]], "where": [["v", "<", 29]]}}))
        answered: list[Any] = []
        while len(answered) < 60:
            answered += json.loads(stream.recv())
    assert [each["lsn"] for each in answered] == list(range(1, 61))
    assert found(served) == {1: 29}


def test_synchronous_change_returns_its_snapshot(served: Served) -> None:
    served.insert([[1, "a", 1, None]])
    sync = {"group_commit": "sync_mode"}
    served.call("POST", "/flush")
    told: Any = None

    def delete() -> None:
        nonlocal told
        told = served.call("POST", "", {"delete": {"keys": [[1]]}}, sync).json()

    import threading

    thread = threading.Thread(target=delete)
    thread.start()
    while served.queue()["waiting_rows"] == 0:
        pass
    served.flush()
    thread.join()
    assert (told["mode"], told["snapshot_id"], served.rows()) == ("sync_mode", 2, [])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"delete": {}}, "`delete` must be an object with `keys`"),
        ({"delete": {"keys": []}}, "at least one key"),
        ({"delete": {"keys": [1]}}, "Key 1 must be a list of 1 values"),
        ({"delete": {"keys": [["x"]]}}, "`id` of key 1: "),
        ({"delete": {"keys": [[1], [None]]}}, "`id` of key 2: NULL"),
        ({"delete": {"keys": [[1]], "columns": ["v"]}}, "a value for each of `id`"),
        ({"delete": {"keys": [[1]], "set": {"v": 1}}}, "`delete` must be an object"),
        ({"delete": {"keys": [[1]], "where": [["none", "=", 1]]}}, "no column `none`"),
        ({"delete": {"keys": [[1]], "where": [["v", "~", 1]]}}, "`~` is not an operator"),
        ({"delete": {"keys": [[1]], "where": [["v", "="]]}}, "`=` on `v` takes 1 values"),
        ({"delete": {"keys": [[1]], "where": [["v", "=", None]]}}, "NULL is not allowed"),
        ({"delete": {"keys": [[1]], "where": [["v", "<", 2**40]]}}, "does not fit into INT"),
        ({"delete": {"keys": [[1]], "where": [["w", "<", 1.5]]}}, "`w` of .* can't be compared"),
        ({"update": {"keys": [[1]]}}, "`set` must be an object"),
        ({"update": {"keys": [[1]], "set": {"id": 2}}}, "`id` of .* belongs to the key"),
        ({"update": {"keys": [[1]], "set": {"v": None}}}, "`v` of `set`: NULL"),
        ({"update": {"keys": [[1]], "set": {"name": None}}}, "`name` of .* has a default"),
        ({"update": {"keys": [[1]], "set": {"v": 1, "V": 2}}}, "`v` is assigned twice"),
        ({"delete": {"keys": [[1]]}, "rows": []}, "A statement must be an object"),
        (
            {"statements": [{"rows": [[1, "a", 1, None]]}, {"delete": {"keys": [["x"]]}}]},
            "Statement 2: Value of `id` of key 1",
        ),
    ],
)
def test_a_change_that_does_not_fit_is_refused_whole(
    served: Served, change: Any, said: str
) -> None:
    import re

    answer = served.call("POST", "", change)
    assert answer.status_code == 400
    assert re.search(said, answer.json()["error"]["message"]), answer.text
    assert served.queue()["acknowledged"] == 0


@pytest.mark.parametrize(
    ("columns", "options", "verb", "said"),
    [
        ("id BIGINT, v INT", SLOW, "delete", "it has no primary key"),
        ("id BIGINT NOT NULL, v INT", f"{BY_KEY}, 'ignore-delete' = 'true'", "delete", "ignores"),
        (
            "id BIGINT NOT NULL, v INT",
            f"{BY_KEY}, 'merge-engine' = 'partial-update'",
            "delete",
            "merge engine partial-update takes no rows of the kind -D",
        ),
        (
            "id BIGINT NOT NULL, v INT",
            f"{BY_KEY}, 'merge-engine' = 'aggregation', "
            "'aggregation.remove-record-on-delete' = 'true'",
            "delete",
            "merge engine aggregation folds",
        ),
        (
            "id BIGINT NOT NULL, v INT",
            f"{BY_KEY}, 'merge-engine' = 'aggregation'",
            "update",
            "aggregation",
        ),
        (
            "id BIGINT NOT NULL, v STRING",
            f"{BY_KEY}, 'rowkind.field' = 'v'",
            "delete",
            "`v` holds the row kinds",
        ),
        (
            "id BIGINT NOT NULL, v INT",
            f"{BY_KEY}, 'sequence.field' = 'v'",
            "update",
            "belongs to the key or orders",
        ),
    ],
)
def test_unsuitable_table_refuses_changes(
    shared: Served, columns: str, options: str, verb: str, said: str
) -> None:
    with Served(shared.folder, table_sql(columns, options), shared=shared) as served:
        change: dict[str, Any] = {"keys": [[1]]} | ({"set": {"v": 1}} if verb == "update" else {})
        answer = served.call("POST", "", {verb: change})
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert said in error["message"] and error["hint"]
        assert served.queue()["acknowledged"] == 0


def test_condition_on_a_dropped_column_makes_a_dead_letter(tmp_path: Path) -> None:
    """And hurts no other record; it is carried out where the column is there again."""
    with Served(tmp_path, table_sql(COLUMNS, BY_KEY)) as served:
        served.insert([[1, "a", 1, None], [2, "a", 1, None]])
        served.call("POST", "", {"delete": {"keys": [[1]], "where": [["name", "=", "a"]]}})
        served.call("POST", "", {"delete": {"keys": [[2]]}})

        def alter(text: str) -> None:
            statement = parse_statement(f"ALTER TABLE t {text}")
            assert isinstance(statement, AlterTable)
            served.catalog.alter_table(served.name, statement.changes)

        alter("DROP COLUMN name")  # by an engine that goes around the coordinator
        assert found(served) == {1: 1}
        (letter,) = served.call("GET", "/dead-letters").json()["dead_letters"]
        assert "column `name`, which it names, was dropped" in letter["why"]
        assert json.loads(letter["request"])["delete"]["keys"] == [[1]]
        alter("ADD COLUMN name STRING")
        retried = served.call("POST", f"/dead-letters/{letter['lsn']}/retry")
        assert retried.status_code == 200, retried.text
        assert found(served) == {1: 1}  # its new name has no value that it could meet
