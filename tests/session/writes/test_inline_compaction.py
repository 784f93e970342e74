"""An INSERT compacts the buckets that it has written, and never fails by that."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from pypaimon.write.commit_message import CommitMessage

from paimon_magics import Session
from paimon_magics.errors import OutdatedPlanError
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.writes.compaction import planned_compaction
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.compaction.planning import CompactionScope
from paimon_magics.tables.writing.commit_messages import written_buckets

pytestmark = pytest.mark.spark

CREATE = "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1'{})"


def kinds(session: Session) -> list[str]:
    rows = session.run("SELECT commit_kind FROM `t$snapshots` ORDER BY snapshot_id").to_pylist()
    return [row["commit_kind"] for row in rows]


def test_table_trigger_decides_when_insert_compacts(session: Session) -> None:
    session.run(CREATE.format(", 'num-sorted-run.compaction-trigger' = '2'"))
    for number in range(2):
        outcome = session.run(f"INSERT INTO t VALUES ({number}, 'a')")
        assert not outcome.notes
    assert kinds(session) == ["APPEND", "APPEND", "COMPACT"]
    assert session.run("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 2}]


def test_files_of_level_0_and_higher_levels_count_as_sorted_runs(session: Session) -> None:
    session.run(CREATE.format(", 'num-sorted-run.compaction-trigger' = '3'"))
    for number in range(6):
        session.run(f"INSERT INTO t VALUES ({number % 2}, 'a{number}')")
    # The first compaction leaves one run, so that two more files are enough for the next.
    assert kinds(session) == [*["APPEND"] * 3, "COMPACT", *["APPEND"] * 2, "COMPACT", "APPEND"]
    session.run("DELETE FROM t WHERE k = 0")
    assert kinds(session)[-2:] == ["APPEND", "COMPACT"]
    assert session.run("SELECT k, v FROM t").to_pylist() == [{"k": 1, "v": "a5"}]


def test_write_only_insert_does_not_compact(session: Session) -> None:
    session.run(CREATE.format(", 'num-sorted-run.compaction-trigger' = '2', 'write-only' = 'true'"))
    for number in range(3):
        session.run(f"INSERT INTO t VALUES ({number}, 'a')")
    assert set(kinds(session)) == {"APPEND"}
    assert session.run("CALL sys.compact('t')").to_pylist() == [{"result": True}]
    assert kinds(session)[-1] == "COMPACT"


def test_delta_commits_option_compacts_after_every_commit(session: Session) -> None:
    session.run(CREATE.format(", 'full-compaction.delta-commits' = '1'"))
    session.run("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    session.run("INSERT INTO t VALUES (1, 'c')")
    levels = session.run("SELECT level, record_count AS n FROM `t$files`").to_pylist()
    assert levels == [{"level": 5, "n": 2}]


def test_failed_compaction_loses_no_row(session: Session, warehouse: Path) -> None:
    session.run(CREATE.format(", 'num-sorted-run.compaction-trigger' = '2'"))
    session.run("INSERT INTO t VALUES (1, 'a')")
    [file] = (warehouse / "default.db" / "t" / "bucket-0").glob("*.parquet")
    content = file.read_bytes()
    file.write_bytes(b"damaged" + content[7:-7] + b"damaged")
    outcome = session.run("INSERT INTO t VALUES (2, 'b')")
    [note] = outcome.notes
    assert note.startswith("The rows are committed; compacting them failed: ")
    assert file.name in note
    assert kinds(session) == ["APPEND", "APPEND"]
    file.write_bytes(content)
    session.run("INSERT INTO t VALUES (3, 'c')")
    assert kinds(session)[-1] == "COMPACT"
    assert session.run("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 3}]


def test_dry_run_shows_files_to_compact(session: Session) -> None:
    session.run(CREATE.format(", 'write-only' = 'true'"))
    assert "nothing to compact" in str(session.explain("CALL sys.compact('t')"))
    for number in range(2):
        session.run(f"INSERT INTO t VALUES (1, '{number}')")
    text = str(session.explain("CALL sys.compact('t')"))
    assert "would compact 1 bucket of snapshot 2" in text
    assert "2 files" in text and "into level 5" in text
    assert set(kinds(session)) == {"APPEND"}


def wait_for_others(session: Session, wait_ms: int) -> None:
    """The session's statements wait for other compactions for so long."""
    connection = session._connection
    settings = replace(connection.settings, exclusive_wait_ms=wait_ms)
    session._connection = replace(connection, settings=settings)


def test_insert_skips_and_call_awaits_bucket_compacted_by_others(session: Session) -> None:
    session.run(CREATE.format(", 'num-sorted-run.compaction-trigger' = '2'"))
    session.run("INSERT INTO t VALUES (1, 'a')")
    scope = StatementScope(session._connection)
    connection = scope.connection
    table = scope.load(TableName("t"), "", 0)
    other = connection.committer.begin(table.name, compacts=True)
    [bucket] = written_buckets(table, [CommitMessage((), 0, [])])
    assert connection.committer.claim_buckets(other, [bucket]) == (0,)
    outcome = session.run("INSERT INTO t VALUES (2, 'b')")
    assert not outcome.notes
    assert kinds(session) == ["APPEND", "APPEND"]
    wait_for_others(session, 10)
    with pytest.raises(OutdatedPlanError, match="Other transactions are compacting 1 bucket"):
        session.run("CALL sys.compact('t')")
    wait_for_others(session, 60_000)
    ending = threading.Timer(0.5, connection.committer.abort, [other])
    ending.start()
    session.run("CALL sys.compact('t')")
    ending.join()
    assert kinds(session)[-1] == "COMPACT"


def test_call_awaits_append_partition_compacted_by_others(session: Session) -> None:
    session.run("CREATE TABLE a (p INT, k INT) PARTITIONED BY (p)")
    for key in range(6):
        session.run(f"INSERT INTO a SELECT * FROM VALUES (1, {key}), (2, {key})")
    scope = StatementScope(session._connection)
    connection = scope.connection
    table = scope.load(TableName("a"), "", 0)
    plan = planned_compaction(scope, table, CompactionScope(is_full=True))
    assert plan is not None
    first = plan.unit_keys()[0]
    other = connection.committer.begin(table.name, compacts=True)
    assert connection.committer.claim_buckets(other, [first]) == (0,)
    wait_for_others(session, 10)
    with pytest.raises(OutdatedPlanError, match="Other transactions are compacting 1 bucket"):
        session.run("CALL sys.compact('a')")
    files = session.run("SELECT partition, count(*) AS n FROM a$files GROUP BY partition")
    assert sorted(row["n"] for row in files.to_pylist()) == [1, 6]
    connection.committer.abort(other)
    session.run("CALL sys.compact('a')")
    files = session.run("SELECT partition, count(*) AS n FROM a$files GROUP BY partition")
    assert sorted(row["n"] for row in files.to_pylist()) == [1, 1]
    assert session.run("SELECT count(*) AS n FROM a").to_pylist() == [{"n": 12}]
