"""CALL sys.rescale."""

from __future__ import annotations

import pytest

from paimon_magics import Session
from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    UnknownNameError,
    UnsupportedStatementError,
)
from tests.session.rows import rows

pytestmark = pytest.mark.spark

SNAPSHOTS = "SELECT snapshot_id, commit_kind, total_record_count FROM {}$snapshots ORDER BY 1"


@pytest.fixture
def orders(session: Session) -> Session:
    """A primary-key table of two partitions with a bucket each."""
    session.run(
        "CREATE TABLE orders (k INT NOT NULL, v STRING, dt STRING NOT NULL) PARTITIONED BY (dt) "
        "TBLPROPERTIES ('primary-key' = 'k,dt', 'bucket' = '1', 'write-only' = 'true');"
        "INSERT INTO orders SELECT id, 'a', if(id < 90, 'x', 'y') FROM range(100);"
        "INSERT INTO orders SELECT id, 'b', 'x' FROM range(10)"
    )
    return session


def buckets(session: Session, table: str = "orders") -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    files = f"SELECT DISTINCT partition, bucket FROM {table}$files ORDER BY ALL"
    for partition, bucket in rows(session, files):
        found.setdefault(str(partition), []).append(int(bucket))
    return found


def test_rescale_changes_bucket_count_of_partitions(orders: Session) -> None:
    before = rows(orders, "SELECT * FROM orders ORDER BY k")
    call = "CALL sys.rescale(table => 'orders', bucket_num => 4, partitions => 'dt=x')"
    planned = orders.run(call, dry_run=True)
    assert "(2 files, " in planned.message and "from 1 into 4 buckets." in planned.message
    outcome = orders.run(call)
    assert outcome.to_pylist() == [{"result": True}]
    assert outcome.message == (
        "`default.orders`: 90 rows written into 4 buckets of 1 partition (snapshot 3)."
    )
    assert "SET TBLPROPERTIES ('bucket' = '4')" in outcome.notes[-1]
    assert rows(orders, "SELECT * FROM orders ORDER BY k") == before
    assert rows(orders, SNAPSHOTS.format("orders"))[-1] == (3, "OVERWRITE", 100)
    assert buckets(orders) == {"{x}": [0, 1, 2, 3], "{y}": [0]}
    levels = "SELECT DISTINCT partition, level FROM orders$files ORDER BY ALL"
    assert rows(orders, levels) == [("{x}", 5), ("{y}", 0)]
    assert rows(orders, "SELECT count(*) FROM orders$ro") == [(90,)]
    with pytest.raises(PaimonMagicsError, match="was written with 4 buckets"):
        orders.run("INSERT INTO orders VALUES (1, 'c', 'x')")
    orders.run("ALTER TABLE orders SET TBLPROPERTIES ('bucket' = '4')")
    orders.run("INSERT INTO orders VALUES (1, 'c', 'x')")
    orders.run("CALL sys.rescale(table => 'orders', where => \"dt = 'y'\")")
    assert buckets(orders) == {"{x}": [0, 1, 2, 3], "{y}": [0, 1, 2, 3]}
    assert rows(orders, "SELECT v, count(*) FROM orders GROUP BY v ORDER BY v") == [
        ("a", 90),
        ("b", 9),
        ("c", 1),
    ]


@pytest.mark.parametrize(
    ("options", "hidden"),
    [
        pytest.param("'bucket' = '2', 'bucket-key' = 'k'", False, marks=pytest.mark.soak),
        ("'bucket' = '2', 'bucket-key' = 'k', 'file.format' = 'orc'", False),
        pytest.param(
            "'primary-key' = 'k', 'bucket' = '2', 'file.format' = 'avro'",
            False,
            marks=pytest.mark.soak,
        ),
        pytest.param(
            "'primary-key' = 'k', 'bucket' = '2', 'merge-engine' = 'first-row'",
            True,
            marks=pytest.mark.soak,
        ),
        ("'primary-key' = 'k', 'bucket' = '2', 'deletion-vectors.enabled' = 'true'", True),
        ("'primary-key' = 'k', 'bucket' = '-2', 'postpone.default-bucket-num' = '2'", False),
    ],
    ids=["append", "append in ORC", "Avro", "first-row", "deletion vectors", "postponed"],
)
def test_rescale_loses_no_row(session: Session, options: str, hidden: bool) -> None:
    session.run(f"CREATE TABLE t (k INT NOT NULL, v INT) TBLPROPERTIES ({options})")
    session.run("INSERT INTO t SELECT id, 1 FROM range(20)")
    expected = rows(session, "SELECT * FROM t ORDER BY k")
    if hidden:  # its rows show after a compaction only
        session.run("ALTER TABLE t SET TBLPROPERTIES ('write-only' = 'true')")
        session.run("INSERT INTO t SELECT id, 1 FROM range(20, 30)")
        expected += [(k, 1) for k in range(20, 30)]
    session.run("CALL sys.rescale('t', 3)")
    assert buckets(session, "t") == {"{}": [0, 1, 2]}
    assert rows(session, "SELECT * FROM t ORDER BY k") == expected


def test_rescale_keeps_concurrent_changes(orders: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    others = iter(["INSERT INTO orders VALUES (1000, 'n', 'x')", "DELETE x", None])
    run = Session.run
    from paimon_magics.session.statements import compaction

    prepare = compaction._prepared

    def prepared(*arguments: object) -> object:
        actual = prepare(*arguments)  # type: ignore[arg-type]
        match next(others):
            case "DELETE x":
                run(orders, "ALTER TABLE orders DROP PARTITION (dt = 'x')")
            case str(text):
                run(orders, text)
        return actual

    monkeypatch.setattr(compaction, "_prepared", prepared)
    outcome = orders.run("CALL sys.rescale('orders', 2)")
    assert any("Planned and run again 2 times" in note for note in outcome.notes)
    assert rows(orders, "SELECT dt, count(*) FROM orders GROUP BY dt") == [("y", 10)]
    assert buckets(orders) == {"{y}": [0, 1]}


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        ("'orders', 0", InvalidValueError, "`bucket_num` can't be 0"),
        ("'orders', 32768", InvalidValueError, "`bucket_num` can't be 32768"),
        ("'orders', 2, 'dt=x', \"dt = 'x'\"", InvalidValueError, "used together"),
        ("table => 'orders', partitions => 'k=1'", UnknownNameError, "`k`"),
        ("table => 'orders', where => 'k = 1'", UnknownNameError, "k = 1"),
        ("'orders', 'two'", InvalidValueError, "bucket_num"),
        ("'free', 2", UnsupportedStatementError, "has no buckets"),
        ("'dynamic', 2", UnsupportedStatementError, "has dynamic buckets"),
        ("'postponed'", InvalidValueError, "postponed buckets"),
        ("'empty', 2", UnknownNameError, "no snapshot"),
    ],
)
def test_error_names_the_wrong_argument(
    module_session: Session, call: str, error: type[PaimonMagicsError], told: str
) -> None:
    columns = "(k INT NOT NULL, v STRING, dt STRING NOT NULL)"
    for name, options in {
        "orders": "'primary-key' = 'k,dt', 'bucket' = '1'",
        "dynamic": "'primary-key' = 'k,dt'",
        "postponed": "'primary-key' = 'k,dt', 'bucket' = '-2'",
        "empty": "'primary-key' = 'k,dt', 'bucket' = '1'",
        "free": "'bucket' = '-1'",
    }.items():
        module_session.run(
            f"CREATE TABLE IF NOT EXISTS {name} {columns} PARTITIONED BY (dt) "
            f"TBLPROPERTIES ({options})"
        )
        if name != "empty" and not rows(module_session, f"SELECT 1 FROM {name}$snapshots"):
            module_session.run(f"INSERT INTO {name} VALUES (1, 'a', 'x')")
    with pytest.raises(error) as caught:
        module_session.run(f"CALL sys.rescale({call})")
    assert told in caught.value.message and caught.value.hint
