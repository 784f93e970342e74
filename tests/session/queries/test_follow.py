"""Following a table: each snapshot's changes once, from where a consumer was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paimon_magics import Session
from paimon_magics.errors import InvalidValueError, UnknownNameError

pytestmark = pytest.mark.spark


@pytest.fixture
def followed(session: Session) -> Session:
    session.run(
        "CREATE TABLE t (k INT NOT NULL, v STRING) "
        "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1'); "
        "INSERT INTO t VALUES (1, 'a'); "
        "INSERT INTO t VALUES (1, 'b'), (2, 'c'); "
        "INSERT OVERWRITE t VALUES (9, 'z'); "
        "INSERT INTO t VALUES (3, 'd')"
    )
    return session


def shown(session: Session, name: str = "t$audit_log", **options: object) -> list[object]:
    return [
        (each.snapshot_id, sorted(tuple(row) for row in each.dataframe.collect()))
        for each in session.changes(name, wait=False, **options)  # type: ignore[arg-type]
    ]


def test_changes_return_each_changing_snapshot_once(followed: Session) -> None:
    assert shown(followed, from_snapshot=1) == [
        (1, [("+I", 1, "a")]),
        (2, [("+I", 1, "b"), ("+I", 2, "c")]),
        (4, [("+I", 3, "d")]),
    ]
    assert shown(followed, "t", from_snapshot=4) == [(4, [(3, "d")])]
    assert shown(followed) == [], "without a start, what comes next"


def test_consumer_resumes_at_its_position(followed: Session, warehouse: Path) -> None:
    following = followed.changes("t", from_snapshot=1, consumer_id="me", wait=False)
    assert next(following).snapshot_id == 1
    file = warehouse / "default.db/t/consumer/consumer-me"
    assert json.loads(file.read_text()) == {"nextSnapshot": 1}, "1 is not done yet"
    assert next(following).snapshot_id == 2
    following.close()
    assert [number for number, _ in shown(followed, "t", consumer_id="me")] == [2, 4]
    assert shown(followed, "t", consumer_id="me") == []
    followed.run("INSERT INTO t VALUES (4, 'e')")
    assert [number for number, _ in shown(followed, "t", consumer_id="me")] == [5]
    consumers = followed.run("SELECT * FROM t$consumers").to_arrow().to_pylist()
    assert consumers == [{"consumer_id": "me", "next_snapshot_id": 6}]


def test_changes_refuse_invalid_table_consumer_or_snapshot(followed: Session) -> None:
    with pytest.raises(InvalidValueError, match="no changes to follow"):
        followed.changes("t$ro")
    with pytest.raises(InvalidValueError, match="can't name a consumer"):
        followed.changes("t", consumer_id="../me")
    with pytest.raises(InvalidValueError, match="no snapshot 0"):
        followed.changes("t", from_snapshot=0)
    with pytest.raises(UnknownNameError):
        followed.changes("missing")
