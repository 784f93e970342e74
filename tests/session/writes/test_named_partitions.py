"""Partitions that statements name: CHAR values are padded as stored ones are, and the text of
partition.default-name stands for NULL."""

from __future__ import annotations

import pytest

from paimon_magics import Session
from paimon_magics.errors import InvalidValueError

pytestmark = pytest.mark.spark


def rows(session: Session, table: str = "t") -> list[tuple[object, ...]]:
    found = session.run(f"SELECT id, p FROM {table} ORDER BY id").to_pylist()
    return [tuple(row.values()) for row in found]


@pytest.fixture
def char(session: Session) -> Session:
    session.run("CREATE TABLE t (id INT, p CHAR(3)) PARTITIONED BY (p)")
    session.run("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    return session


@pytest.fixture
def null(session: Session) -> Session:
    session.run(
        "CREATE TABLE t (id INT, p STRING) PARTITIONED BY (p) "
        "TBLPROPERTIES ('partition.default-name' = 'none')"
    )
    session.run("INSERT INTO t VALUES (1, NULL), (2, 'b')")
    return session


@pytest.mark.parametrize("value", ["'a'", "'a  '", "concat('a', '')"])
def test_char_partition_value_is_padded(char: Session, value: str) -> None:
    shown = char.run(f"SHOW PARTITIONS t PARTITION (p = {value})").to_pylist()
    assert [row["partition"] for row in shown] == ["p=a  "]
    char.run(f"INSERT OVERWRITE t PARTITION (p = {value}) SELECT 9")
    assert rows(char) == [(2, "b  "), (9, "a  ")]
    char.run(f"TRUNCATE TABLE t PARTITION (p = {value})")
    assert rows(char) == [(2, "b  ")]
    char.run("ALTER TABLE t DROP PARTITION (p = 'b')")
    assert rows(char) == []


def test_compaction_accepts_unpadded_char_partition(char: Session) -> None:
    for id in range(3, 9):
        char.run(f"INSERT INTO t VALUES ({id}, 'a')")
    done = char.run("CALL sys.compact(table => 't', partitions => 'p=a')")
    assert done.commit_kind == "COMPACT"


def test_default_partition_name_stands_for_null(null: Session) -> None:
    shown = null.run("SHOW PARTITIONS t PARTITION (p = 'none')").to_pylist()
    assert [row["partition"] for row in shown] == ["p=null"]
    null.run("INSERT OVERWRITE t PARTITION (p = 'none') SELECT 9")
    assert rows(null) == [(2, "b"), (9, None)]
    null.run("TRUNCATE TABLE t PARTITION (p = 'none')")
    assert rows(null) == [(2, "b")]


def test_default_partition_name_stands_for_null_in_date_column(session: Session) -> None:
    session.run("CREATE TABLE t (id INT, p DATE) PARTITIONED BY (p)")
    session.run("INSERT INTO t VALUES (1, NULL), (2, DATE '2026-11-28')")
    session.run("ALTER TABLE t DROP PARTITION (p = '__DEFAULT_PARTITION__')")
    assert [id for id, _ in rows(session)] == [2]


def test_partition_overwrite_rejects_key_of_another_partition(session: Session) -> None:
    session.run(
        "CREATE TABLE t (id INT, p STRING) PARTITIONED BY (p) "
        "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '-1')"
    )
    session.run("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    with pytest.raises(
        InvalidValueError, match=r"already exists in the partition \('b',\)"
    ) as refused:
        session.run("INSERT OVERWRITE t PARTITION (p = 'a') SELECT 2")
    assert "INSERT INTO, which moves a key" in refused.value.hint
    assert rows(session) == [(1, "a"), (2, "b")]
