"""Rows of tables with postponed buckets wait for a compaction, which gives them their buckets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import paimon_magics
from paimon_magics import Session
from paimon_magics.coordinator.client import postponed_buckets
from paimon_magics.errors import OutdatedPlanError
from paimon_magics.session.writes import compaction
from tests.oracle.java_reader import JavaPaimon
from tests.sampling import sampled
from tests.session.rows import rows

pytestmark = [pytest.mark.spark, pytest.mark.java]

COMPACT = "CALL sys.compact(table => 'default.t')"
BUCKETS = "SELECT DISTINCT bucket FROM t$files ORDER BY bucket"
SNAPSHOTS = "SELECT commit_kind, total_record_count FROM t$snapshots ORDER BY snapshot_id"
# By which Java knows the files of one writer (`PostponeBucketFileStoreWrite.getWriteId`).
JAVAS_NAME = re.compile(r"(?:(?!-s-).)*-u-(?:(?!-s-).)*-s-\d+-w-[0-9a-f-]+-\d+\.(avro|parquet)$")


def create(session: Session, options: str = "") -> None:
    session.run(
        "CREATE TABLE t (k INT NOT NULL, v STRING, dt STRING NOT NULL) PARTITIONED BY (dt) "
        "TBLPROPERTIES ('primary-key' = 'k,dt', 'bucket' = '-2', "
        "'postpone.batch-write-fixed-bucket' = 'false', "
        f"'postpone.default-bucket-num' = '2'{options})"
    )


def write(session: Session, first: int, last: int, value: str) -> None:
    session.run(
        f"INSERT INTO t SELECT id, concat('{value}', id), if(id % 3 = 0, 'x', 'y') "
        f"FROM range({first}, {last}, 1, 2)"
    )


def content(first: int, last: int, value: str) -> dict[int, tuple[int, str, str]]:
    return {k: (k, f"{value}{k}", "x" if k % 3 == 0 else "y") for k in range(first, last)}


BY = {"here": False, "by a job": True}


@pytest.mark.parametrize(
    ("kind", "by_spark"),
    [
        *sampled(["arrays", "lookup"], BY),
        *(
            pytest.param("", by, id=f"neither-{name}", marks=pytest.mark.soak)
            for name, by in BY.items()
        ),
    ],
)
def test_postponed_rows_are_visible_after_compaction(
    session: Session,
    java_paimon: JavaPaimon,
    warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    by_spark: bool,
) -> None:
    if by_spark:
        monkeypatch.setattr(compaction, "_IN_PROCESS_BYTES_MAX", 0)
    create(session, ", 'changelog-producer' = 'lookup'" if kind == "lookup" else "")
    if kind == "arrays":  # which our Avro files don't hold
        session.run("ALTER TABLE t ADD COLUMNS (a ARRAY<INT>)")
        session.run("INSERT INTO t SELECT 900, 'n', 'x', array(1, 2)")
        session.run("ALTER TABLE t DROP COLUMN a")
    write(session, 0, 40, "a")
    write(session, 10, 30, "b")
    session.run("INSERT INTO t VALUES (5, 'one', 'y'), (5, 'two', 'y')")
    expected = content(0, 40, "a") | content(10, 30, "b") | {5: (5, "two", "y")}
    if kind == "arrays":
        expected[900] = (900, "n", "x")
    assert rows(session, "SELECT * FROM t") == []
    assert rows(session, BUCKETS) == [] and rows(session, SNAPSHOTS)[-1][0] == "APPEND"
    assert java_paimon.rows(warehouse, "default.t") == []
    names = [path.name for path in (warehouse / "default.db" / "t").glob("dt=*/bucket-postpone/*")]
    assert names and all(JAVAS_NAME.match(name) for name in names)
    planned = session.run(COMPACT, dry_run=True)
    assert "that wait their buckets" in planned.message
    outcome = session.run(COMPACT)
    assert "got their buckets" in outcome.message and outcome.commit_kind == "COMPACT"
    assert [kind for kind, _ in rows(session, SNAPSHOTS)].count("COMPACT") == 1
    actual = sorted(expected.values())
    assert rows(session, "SELECT * FROM t ORDER BY k") == actual
    assert sorted(java_paimon.rows(warehouse, "default.t")) == actual
    assert rows(session, BUCKETS) == [(0,), (1,)]
    # Buckets of partitions stay as many; a later row of a key goes where the earlier is.
    session.run("ALTER TABLE t SET TBLPROPERTIES ('postpone.default-bucket-num' = '5')")
    write(session, 20, 50, "c")
    session.run("INSERT INTO t VALUES (1, 'n', 'z')")
    assert rows(session, "SELECT * FROM t ORDER BY k") == actual
    session.run(COMPACT)
    expected |= content(20, 50, "c")
    assert sorted(java_paimon.rows(warehouse, "default.t")) == sorted(
        [*expected.values(), (1, "n", "z")]
    )
    if kind == "lookup":
        ((end,),) = rows(session, "SELECT max(snapshot_id) FROM t$snapshots")
        changes = rows(
            session, f"SELECT * FROM paimon_incremental_query('`t$audit_log`', '0', '{end}')"
        )
        assert ("+I", 1, "n", "z") in changes and ("-U", 20, "b20", "y") in changes
    last = session.run(COMPACT)
    assert last.to_pylist() == [{"result": True}] and "nothing to compact" in last.message


def test_compaction_assigns_buckets_to_postponed_rows_of_java(
    session: Session, java_paimon: JavaPaimon, warehouse: Path
) -> None:
    create(session, ", 'changelog-producer' = 'input', 'postpone.target-row-num-per-bucket' = '4'")
    first = [(k, f"a{k}", "x") for k in range(10)]
    java_paimon.write(warehouse, "default.t", first)
    java_paimon.write(warehouse, "default.t", [(3, "", "x"), (4, "b", "x")], kinds=["-D", "+U"])
    session.run("INSERT INTO t VALUES (11, 'ours', 'x')")
    assert rows(session, "SELECT * FROM t") == []
    session.run(COMPACT)
    expected = {k: (k, v, dt) for k, v, dt in first} | {4: (4, "b", "x"), 11: (11, "ours", "x")}
    del expected[3]
    assert rows(session, "SELECT * FROM t ORDER BY k") == sorted(expected.values())
    assert sorted(java_paimon.rows(warehouse, "default.t")) == sorted(expected.values())
    assert rows(session, BUCKETS) == [(0,), (1,), (2,), (3,)]
    java_paimon.write(warehouse, "default.t", [(0, "again", "x")])
    session.run(COMPACT)
    assert rows(session, "SELECT v FROM t WHERE k = 0") == [("again",)]


def test_overwrite_replaces_postponed_rows(session: Session) -> None:
    create(session)
    write(session, 0, 9, "a")
    session.run(COMPACT)
    write(session, 0, 9, "b")
    session.run("INSERT OVERWRITE t PARTITION (dt = 'x') VALUES (1, 'new')")
    assert rows(session, "SELECT dt, count(*) FROM t GROUP BY dt") == [("y", 6)]
    session.run(COMPACT)
    assert rows(session, "SELECT v FROM t WHERE dt = 'x'") == [("new",)]
    assert rows(session, "SELECT v FROM t WHERE k = 1 AND dt = 'y'") == [("b1",)]


def test_rows_moved_by_another_compaction_are_not_moved_again(
    spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with paimon_magics.connect(warehouse, spark=spark, conflict_reruns_max=1) as session:
        check_not_moved_again(session, monkeypatch)


def check_not_moved_again(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    create(session)
    write(session, 0, 9, "a")
    claim = postponed_buckets._claim

    def meanwhile(*arguments: object) -> None:
        claim(*arguments)  # type: ignore[arg-type]
        monkeypatch.setattr(postponed_buckets, "_claim", claim)
        session.run("INSERT INTO t VALUES (100, 'late', 'x')")
        with pytest.raises(OutdatedPlanError, match="Another transaction is moving"):
            session.run(COMPACT)
        monkeypatch.setattr(postponed_buckets, "_claim", lambda *_: None)  # as another engine would
        session.run(COMPACT)
        session.run("INSERT INTO t VALUES (101, 'later', 'x')")

    monkeypatch.setattr(postponed_buckets, "_claim", meanwhile)
    outcome = session.run(COMPACT)
    assert any("Planned and run again" in note for note in outcome.notes)
    assert rows(session, "SELECT count(*), max(k) FROM t") == [(11, 101)]
    assert rows(session, SNAPSHOTS) == [
        ("APPEND", 9),
        ("APPEND", 10),
        ("COMPACT", 10),
        ("APPEND", 11),
        ("COMPACT", 11),
    ]
