"""Append tables that statements compact: by CALL sys.compact, and after an INSERT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from paimon_magics.errors import InvalidValueError, UnsupportedStatementError
from paimon_magics.session.writes import compaction
from tests.session.rows import rows

if TYPE_CHECKING:
    import paimon_magics

pytestmark = pytest.mark.spark

KINDS = "SELECT snapshot_id, commit_kind, total_record_count FROM `{}$snapshots`"
FILES = "SELECT partition, bucket, record_count, min_sequence_number FROM `{}$files`"


def snapshots(session: paimon_magics.Session, table: str) -> list[tuple[Any, ...]]:
    return sorted(rows(session, KINDS.format(table)))


def files(session: paimon_magics.Session, table: str) -> list[tuple[Any, ...]]:
    return sorted(rows(session, FILES.format(table)))


@pytest.mark.parametrize("by_job", [False, True])
def test_call_merges_small_files_of_append_table(
    session: paimon_magics.Session, monkeypatch: pytest.MonkeyPatch, by_job: bool
) -> None:
    if by_job:
        monkeypatch.setattr(compaction, "_APPENDS_IN_PROCESS_BYTES_MAX", 0)
    session.run("CREATE TABLE t (k INT, p STRING) PARTITIONED BY (p)")
    for number in range(5):
        session.run(f"INSERT INTO t VALUES ({number}, 'a'), ({number}, 'b'), ({number}, 'b')")
    lines = session.explain("CALL sys.compact('t')")
    assert "would compact 2 groups of files of snapshot 5: 10 files" in str(lines)
    before = sorted(rows(session, "SELECT * FROM t"))
    assert len(snapshots(session, "t")) == 5
    outcome = session.run("CALL sys.compact(table => 't', partitions => 'p=a')")
    assert outcome.to_arrow().column("result").to_pylist() == [True]
    assert (outcome.commit_kind, outcome.snapshot_id, outcome.files_written) == ("COMPACT", 6, 1)
    assert "compacted: 5 files became 1 file" in outcome.message
    session.run("CALL sys.compact(table => 't', where => 'p > \"a\"')")
    assert snapshots(session, "t")[-2:] == [(6, "COMPACT", 15), (7, "COMPACT", 15)]
    assert sorted(rows(session, "SELECT * FROM t")) == before
    assert files(session, "t") == [("{a}", 0, 5, 0), ("{b}", 0, 10, 0)]
    assert session.run("CALL sys.compact('t')").message.endswith("nothing to compact.")


def test_call_options_set_minimum_file_count(session: paimon_magics.Session) -> None:
    session.run("CREATE TABLE t (k INT)")
    for number in range(2):
        session.run(f"INSERT INTO t VALUES ({number})")
    session.run("CALL sys.compact('t')")
    assert len(snapshots(session, "t")) == 2
    session.run("CALL sys.compact(table => 't', options => 'compaction.min.file-num=2')")
    assert snapshots(session, "t")[-1] == (3, "COMPACT", 2)


@pytest.mark.parametrize("write_only", [False, True])
def test_insert_compacts_its_buckets_unless_write_only(
    session: paimon_magics.Session, write_only: bool
) -> None:
    session.run(
        "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('bucket' = '2', 'bucket-key' = 'k', "
        f"'compaction.min.file-num' = '3', 'write-only' = '{str(write_only).lower()}')"
    )
    for word in ("a", "b", "c"):
        session.run(f"INSERT INTO t VALUES (1, '{word}')")
    session.run("INSERT INTO t VALUES (0, 'other')")
    kinds = [kind for _, kind, _ in snapshots(session, "t")]
    if write_only:
        assert kinds == ["APPEND"] * 4
        assert [count for _, bucket, count, _ in files(session, "t")] == [1, 1, 1, 1]
        assert sorted(least for *_, least in files(session, "t")) == [0, 0, 1, 2]
    else:
        assert kinds == ["APPEND", "APPEND", "APPEND", "COMPACT", "APPEND"]
        assert sorted(count for _, bucket, count, _ in files(session, "t")) == [1, 3]
    assert sorted(rows(session, "SELECT v FROM t WHERE k = 1")) == [("a",), ("b",), ("c",)]


def test_call_sorts_table_but_refuses_data_evolution(session: paimon_magics.Session) -> None:
    session.run("CREATE TABLE t (k INT)")
    session.run("INSERT INTO t VALUES (2), (1)")
    session.run("CALL sys.compact(table => 't', order_strategy => 'order', order_by => 'k')")
    assert snapshots(session, "t")[-1] == (2, "COMPACT", 2)
    assert rows(session, "SELECT * FROM t") == [(1,), (2,)]
    session.run(
        "CREATE TABLE u (k INT) TBLPROPERTIES ('row-tracking.enabled' = 'true', "
        "'data-evolution.enabled' = 'true', 'compaction.min.file-num' = '2')"
    )
    for k in (1, 2):
        session.run(f"INSERT INTO u VALUES ({k})")
    with pytest.raises(UnsupportedStatementError, match="cannot be sorted"):
        session.run("CALL sys.compact(table => 'u', order_strategy => 'order', order_by => 'k')")
    session.run("CALL sys.compact('u')")
    assert rows(session, "SELECT record_count FROM `u$files`") == [(2,)]
    assert rows(session, "SELECT k, _ROW_ID FROM u") == [(1, 0), (2, 1)]


def test_clustered_table_is_sorted_by_clustering_columns(session: paimon_magics.Session) -> None:
    session.run(
        "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('clustering.incremental' = 'true', "
        "'clustering.columns' = 'k', 'num-sorted-run.compaction-trigger' = '2')"
    )
    levels = "SELECT level, record_count FROM `t$files` ORDER BY level"
    session.run("INSERT INTO t VALUES (3, 'a'), (1, 'a')")
    session.run("CALL sys.compact('t')")
    assert rows(session, levels) == [(0, 2)], "one run is too few, and minor is the default"
    session.run("INSERT INTO t VALUES (2, 'b')")
    assert "sorted by k (order)" in str(session.explain("CALL sys.compact('t')"))
    session.run("CALL sys.compact('t')")
    assert rows(session, levels) == [(2, 3)]
    assert rows(session, "SELECT k FROM t") == [(1,), (2,), (3,)]
    session.run("INSERT INTO t VALUES (0, 'c')")
    session.run("CALL sys.compact(table => 't', compact_strategy => 'full')")
    assert rows(session, levels) == [(2, 4)]
    session.run(
        "CREATE TABLE b (k INT, v STRING) TBLPROPERTIES ('clustering.incremental' = 'true', "
        "'clustering.columns' = 'k', 'num-sorted-run.compaction-trigger' = '2', 'bucket' = '1', "
        "'bucket-key' = 'v', 'bucket-append-ordered' = 'false')"
    )
    for values in ("(3, 'a'), (1, 'a')", "(2, 'b')"):
        session.run(f"INSERT INTO b VALUES {values}")
    assert rows(session, levels.replace("`t$", "`b$")) == [(2, 3)], "its writer compacts"
    assert rows(session, "SELECT k FROM b") == [(1,), (2,), (3,)]
    with pytest.raises(InvalidValueError, match="incremental clustering"):
        session.run("CALL sys.compact(table => 't', order_strategy => 'order', order_by => 'v')")
