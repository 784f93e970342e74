"""Things to look at: snapshots, differences, changes, files, partitions, profiles, pruning."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_magics import Session
from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    SetupError,
    StatementSyntaxError,
    UnknownNameError,
    UnsupportedStatementError,
)
from paimon_magics.planning.reads.row_filters import Order, RowFilter
from paimon_magics.session.reports.paging import rows_of
from paimon_magics.session.reports.profile import Effort
from paimon_magics.session.reports.report import Report

pytestmark = pytest.mark.spark

TABLES = """
CREATE TABLE orders (day STRING NOT NULL, id INT NOT NULL, item STRING, paid DOUBLE,
  tags MAP<STRING, INT>) PARTITIONED BY (day)
  TBLPROPERTIES ('primary-key' = 'day,id', 'bucket' = '2');
INSERT INTO orders VALUES ('mon', 1, 'tea', 1.5, map('a', 1)), ('mon', 2, 'milk', 2.0, NULL);
INSERT INTO orders VALUES ('tue', 3, 'cake', double('NaN'), NULL);
INSERT INTO orders VALUES ('mon', 1, 'coffee', 1.5, map('a', 1)), ('mon', 2, 'milk', 2.0, NULL),
  ('mon', 4, 'bun', 1.0, NULL);
ALTER TABLE orders CREATE TAG three AS OF VERSION 3;
ALTER TABLE orders DROP PARTITION (day = 'tue');
CREATE TABLE logs (at INT, text STRING, `a b` STRING);
INSERT INTO logs VALUES (1, 'a', NULL), (2, 'a text of more than sixteen letters', 'x');
ALTER TABLE logs ADD COLUMN more STRING;
INSERT INTO logs VALUES (NULL, 'b', NULL, 'more');
INSERT OVERWRITE logs SELECT * FROM logs WHERE at > 1;
CREATE TABLE prices (item INT NOT NULL, price INT, op STRING) TBLPROPERTIES (
  'primary-key' = 'item', 'bucket' = '1', 'changelog-producer' = 'input', 'rowkind.field' = 'op');
INSERT INTO prices VALUES (1, 10, '+I'), (2, 20, '+I');
INSERT INTO prices VALUES (1, 10, '-U'), (1, 11, '+U'), (2, 20, '-D');
CREATE TABLE empty (k INT)
"""


@pytest.fixture(scope="module")
def lake(module_session: Session) -> Session:
    module_session.run(TABLES)
    return module_session


def rows(report: Report, section: int = 0) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in report.sections[section].rows.to_pylist()]


def test_timeline_lists_each_commit(lake: Session) -> None:
    report = lake.reports.snapshots("orders")
    shown = report.data.select(["snapshot_id", "commit_kind", "rows", "total_rows", "files_added",
                                "tags"])  # fmt: skip
    assert [tuple(row.values()) for row in shown.to_pylist()] == [
        (4, "OVERWRITE", -1, 5, 0, None),
        (3, "APPEND", 3, 6, 1, "three"),
        (2, "APPEND", 1, 3, 1, None),
        (1, "APPEND", 2, 2, 1, None),
    ]
    assert report.data.column("user").null_count == 0
    assert report.sql.endswith("FROM default.orders$snapshots ORDER BY snapshot_id DESC")
    assert str(report).startswith("orders: 4 snapshots (3 APPEND, 1 OVERWRITE)")
    compare, changes = report.sections[0].actions
    picked = [{"snapshot_id": 3}, {"snapshot_id": 1}]
    assert "snapshot 1 to 3" in compare.run(picked).summary
    assert "after 1 up to 3" in changes.run(picked).summary


def test_diff_of_keyed_table_lists_changed_rows(lake: Session) -> None:
    report = lake.reports.diff("orders", "1", "three")
    assert report.summary == (
        "default.orders, snapshot 1 to 3: rows 2 added, 1 changed; 2 files added, 0 removed; "
        "the same schema"
    )
    assert rows(report) == [("day=mon", 1, 0, 1), ("day=tue", 1, 0, 0)]
    sample = report.sections[1]
    assert [row[:4] for row in rows(report, 1)] == [
        ("-U", "mon", 1, "tea"),
        ("+U", "mon", 1, "coffee"),
        ("+I", "mon", 4, "bun"),
        ("+I", "tue", 3, "cake"),
    ]
    assert sample.changed == ((), ("item",), (), ())


def test_diff_shows_dropped_rows_as_removed(lake: Session) -> None:
    report = lake.reports.diff("orders", "3", "4")
    assert rows(report) == [("day=tue", 0, 1, 0)]
    assert [row[:3] for row in rows(report, 1)] == [("-D", "tue", 3)]


def test_diff_compares_with_empty_state_before_first_snapshot(lake: Session) -> None:
    report = lake.reports.diff("orders", "0", "three")
    assert "snapshot 0 to 3: rows 4 added; 3 files added" in report.summary
    assert {row[0] for row in rows(report, 1)} == {"+I"}
    for at, section in enumerate(report.sections):
        if section.query:
            assert lake.run(section.query).to_arrow().num_rows == len(rows(report, at))
    assert "rows 4 removed" in lake.reports.diff("orders", "3", "0").summary
    report = lake.reports.diff("logs", "0", "1")
    assert report.sections[0].note.endswith("without a Spark job.")
    assert "rows 2 added" in report.summary and len(rows(report, 1)) == 2
    lake.run("CREATE TABLE shortened (id INT)")
    lake.run("INSERT INTO shortened VALUES (1); INSERT INTO shortened VALUES (2)")
    snapshots = Path(lake.warehouse) / "default.db" / "shortened" / "snapshot"
    (snapshots / "snapshot-1").unlink()  # as if it had expired
    assert "rows 2 added" in lake.reports.diff("shortened", "0", "2").summary
    lake.run("CREATE TABLE untouched (id INT)")
    with pytest.raises(UnknownNameError, match=r"`default\.untouched` has no snapshot"):
        lake.reports.diff("untouched", "0", "1")
    with pytest.raises(
        InvalidValueError, match=r"Both states of `default\.untouched` are the empty"
    ):
        lake.reports.diff("untouched", "0", "0")


def test_diff_takes_time_before_first_snapshot_as_empty_state(lake: Session) -> None:
    for time in ("yesterday", "2001-01-01"):
        report = lake.reports.diff("orders", time, "three")
        assert "snapshot 0 to 3: rows 4 added" in report.summary
    lake.run("CREATE TABLE late (id INT)")
    lake.run("INSERT INTO late VALUES (1); INSERT INTO late VALUES (2)")
    snapshots = Path(lake.warehouse) / "default.db" / "late" / "snapshot"
    (snapshots / "snapshot-1").unlink()  # as if it had expired
    (snapshots / "EARLIEST").write_text("2")
    with pytest.raises(UnknownNameError, match="no snapshot at or before"):
        lake.reports.diff("late", "yesterday", "2")
    lake.run("CALL sys.create_tag('default.logs', 'yesterday', 2)")
    assert "snapshot 1 to 2" in lake.reports.diff("logs", "1", "yesterday").summary


def test_diff_of_added_files_is_counted_without_a_job(lake: Session) -> None:
    report = lake.reports.diff("logs", "1", "2")
    assert "rows 1 added" in report.summary
    assert "another schema" in report.summary
    assert report.sections[0].note.endswith("without a Spark job.")
    assert rows(report, 1) == [("+I", None, "b", None, "more")]
    assert rows(report, 3) == [("more", "added", None, "STRING")]


def test_diff_ignores_rewritten_rows(lake: Session) -> None:
    report = lake.reports.diff("logs", "2", "3")
    assert rows(report) == [("", 0, 2, 0)]
    assert sorted(row[2] for row in rows(report, 1)) == ["a", "b"]
    assert "the same rows" in lake.reports.diff("logs", "2", "2").summary


def test_changes_list_rows_with_their_kind(lake: Session) -> None:
    report = lake.reports.changes("orders", "0", "2")
    assert [row[:2] for row in rows(report)] == [(2, "+I"), (1, "+I"), (1, "+I")], "newest first"
    assert sorted(row[1:4] for row in rows(report)) == [
        ("+I", "mon", 1), ("+I", "mon", 2), ("+I", "tue", 3)
    ]  # fmt: skip
    assert "%paimon diff default.orders 1..2 shows" in report.notes[0]
    assert lake.run(report.sql).to_arrow().num_rows == 3
    everything = lake.reports.changes("orders$binlog")
    assert everything.data.num_rows == 7
    assert rows(everything)[0][:4] == (4, "-D", "tue", 3), "an overwrite took it"
    assert "Snapshot 4 is an overwrite" in everything.notes[0]
    assert everything.data.schema.field("item").type == "string"


@pytest.mark.parametrize("table", ["prices", "prices$audit_log", "prices$binlog"])
def test_changes_mark_columns_changed_by_update(lake: Session, table: str) -> None:
    report = lake.reports.changes(table, "1", "2")
    assert [row[1:4] for row in rows(report)] == [("-U", 1, 10), ("+U", 1, 11), ("-D", 2, 20)]
    assert report.sections[0].changed == ((), ("price",), ()), (
        "its kind in a column of its own is none"
    )
    assert report.notes == ()
    assert [row[:2] for row in rows(lake.reports.changes(table, "0", "2"))] == [
        (2, "-U"), (2, "+U"), (2, "-D"), (1, "+I"), (1, "+I")
    ], "one snapshot after the other, the newest first"  # fmt: skip
    assert "(1 before an update, 1 after an update, 1 deleted)" in report.summary


def test_changes_show_user_notebook_and_commit_time(lake: Session) -> None:
    changed = lake.reports.changes("orders", "0", "2").data
    snapshots = {each["snapshot_id"]: each for each in lake.history("orders").to_pylist()}
    for row in changed.to_pylist():
        snapshot = snapshots[row["snapshot_id"]]
        names = ("commit_time", "user", "notebook")
        assert [row[name] for name in names] == [snapshot[name] for name in names]
        assert row["user"] is not None
    lake.run("CREATE TABLE named (user STRING, snapshot_id INT, commit_time STRING)")
    lake.run("INSERT INTO named VALUES ('ada', 7, 'now')")
    report = lake.reports.changes("named")
    assert report.data.column_names == [
        "commit_snapshot_id", "rowkind", "user", "snapshot_id", "commit_time",
        "commit_commit_time", "commit_user", "notebook",
    ]  # fmt: skip
    assert rows(report)[0][:5] == (1, "+I", "ada", 7, "now")


def test_changes_read_only_snapshots_of_shown_rows(lake: Session) -> None:
    lake.run("CREATE TABLE long (id BIGINT, note STRING)")
    lake.run("INSERT INTO long SELECT id, 'first' FROM range(10)")
    (oldest,) = lake.run("SELECT file_path FROM long$files").to_pylist()
    for start in (100, 2_000):
        lake.run(f"INSERT INTO long SELECT id + {start}, 'later' FROM range(600)")
    Path(oldest["file_path"].removeprefix("file:")).unlink()
    report = lake.reports.changes("long")
    assert report.data.num_rows == 1_000
    assert report.data.column("snapshot_id").to_pylist() == [3] * 600 + [2] * 400
    assert "older ones" in report.sections[0].note
    assert lake.run(report.sql).to_arrow().num_rows == 1_000


def test_a_range_of_compactions_has_no_changes(lake: Session) -> None:
    lake.run(
        "CREATE TABLE small (id INT NOT NULL, note STRING) "
        "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1')"
    )
    for note in ("x", "y"):
        lake.run(f"INSERT INTO small VALUES (1, '{note}')")
    lake.run("CALL sys.compact('small')")
    report = lake.reports.changes("small", "2", "3")
    assert (report.data.num_rows, report.data.column_names[:2]) == (0, ["snapshot_id", "rowkind"])


def test_files_and_partitions_are_listed(lake: Session) -> None:
    assert lake.reports.files("orders").data.num_rows == 2
    assert lake.reports.files("orders", "day=mon").data.num_rows == 2
    report = lake.reports.partitions("orders")
    assert [each["partition"] for each in report.data.to_pylist()] == ["day=mon"]
    assert [each["small_share"] for each in report.data.to_pylist()] == [1.0]
    assert "target-file-size of 128 MiB" in report.sections[0].charts[0].title
    for name in ("empty", "logs"):
        assert str(lake.reports.files(name)) == str(lake.reports.files(name))
        assert str(lake.reports.partitions(name)) == str(lake.reports.partitions(name))


def test_profile_names_source_of_each_figure(lake: Session) -> None:
    actual = {row[0]: row[2:] for row in rows(lake.reports.profile("logs"))}
    assert actual["at"] == (0, "2", "2", None, None, "file statistics")
    long = "a text of more than sixteen letters"
    assert actual["text"] == (0, long, long, 1, True, "Spark job")
    assert actual["more"] == (1, None, None, None, None, "file statistics")
    without = lake.reports.profile("logs", Effort.STATISTICS)
    assert "no Spark job" in without.summary
    assert "File statistics lack values of text" in without.notes[0]
    counted = {row[0]: row[2:] for row in rows(lake.reports.profile("logs", Effort.DISTINCT))}
    assert counted["at"] == (0, "2", "2", 1, True, "Spark job")


def test_profile_of_overlapping_files_uses_a_spark_job(lake: Session) -> None:
    report = lake.reports.profile("orders")
    assert "one Spark job for 5 columns" in report.summary
    actual = {row[0]: row[2:] for row in rows(report)}
    assert actual["item"][:3] == (0, "bun", "milk") and actual["item"][3] == 3
    assert actual["tags"] == (2, None, None, None, None, "Spark job")
    assert rows(lake.reports.profile("empty")) == [
        ("k", "INT", 0, None, None, None, None, "file statistics")
    ]


def test_profile_counts_partition_values_and_marks_unique_columns(
    lake: Session,
) -> None:
    lake.run("CREATE TABLE days (id BIGINT, seven BIGINT, day STRING) PARTITIONED BY (day)")
    lake.run(
        "INSERT INTO days SELECT id, id % 7, concat('d', id % 3) FROM range(100) "
        "UNION ALL SELECT 100, 1, NULL"
    )
    statistics = lake.reports.profile("days", Effort.STATISTICS)
    assert "no Spark job" in statistics.summary
    actual = {row[0]: row for row in rows(statistics)}
    assert actual["day"][5:7] == (3, False)
    assert actual["id"][5:7] == (None, None)
    counted = lake.reports.profile("days", Effort.DISTINCT)
    assert "one Spark job for 2 columns" in counted.summary
    unique = {row[0]: (row[5], row[6]) for row in rows(counted)}
    assert unique == {"id": (101, True), "seven": (7, False), "day": (3, False)}
    pasted = lake.run(counted.sql).data
    assert pasted.to_pylist() == counted.data.drop_columns(["unique", "from"]).to_pylist()


def test_profile_estimates_many_distinct_values_and_notes_it(lake: Session) -> None:
    lake.run("CREATE TABLE many (k BIGINT, seven BIGINT, clock TIMESTAMP)")
    lake.run(
        "INSERT INTO many SELECT id, if(id % 10 = 0, NULL, id % 7), "
        "timestamp_seconds(id * 60) FROM range(700000)"
    )
    exact = lake.reports.profile("logs", Effort.DISTINCT)
    assert "distinct" in exact.data.column_names and not exact.notes
    report = lake.reports.profile("many", Effort.DISTINCT)
    assert "≈distinct" in report.data.column_names
    assert report.notes[0].startswith("≈distinct is an estimate (approx_count_distinct)")
    actual = {row[0]: row[5] for row in rows(report)}
    assert actual["seven"] == 7
    for name in ("k", "clock"):
        assert 0.85 * 700_000 < actual[name] <= 700_000
    pasted = lake.run(report.sql).data
    assert pasted.to_pylist() == report.data.drop_columns(["unique", "from"]).to_pylist()
    unique = {row[0]: row[6] for row in rows(report)}
    assert unique == {"k": None, "seven": False, "clock": None}


def test_explain_lists_files_left_after_each_pruning_step(lake: Session) -> None:
    values = {"day": "sun", "n": -1, "at": datetime.date(2026, 1, 2), "x": [1.5, 2.5]}
    query = "SELECT *, ':n' AS `:n`, 1-:n AS m, :at AS a, :x AS x FROM orders WHERE day = :day"
    report = lake.reports.explain(query, values)
    said = ":n = (-1), :at = DATE'2026-01-02', :x = array((1.5D), (2.5D)), :day = 'sun'"
    told, _, with_values = report.notes[0].partition("\n")
    assert told == f"With {said}, the query is:"
    assert f"With {said}" in str(lake.explain(query, values))
    assert "':n' AS `:n`, 1-(-1) AS m" in with_values
    assert lake.run(with_values).to_arrow().schema == lake.run(query, values).to_arrow().schema
    assert [row[:2] for row in rows(report)] == [("all files", 2), ("partitions", 0)]
    assert report.summary == "1 table; 0 of 2 files would be read"
    assert "Files are chosen by day = 'sun'." in report.sections[0].note
    assert lake.reports.explain("SELECT * FROM logs$files").data.num_rows == 0


@pytest.mark.parametrize(
    ("ask", "error", "said"),
    [
        (lambda r: r.snapshots("order"), UnknownNameError, "orders"),
        (lambda r: r.diff("orders", "1", "9"), UnknownNameError, "9"),
        (lambda r: r.diff("orders", "thre", "4"), UnknownNameError, "`three`"),
        (lambda r: r.diff("orders$files", "1", "2"), UnsupportedStatementError, "without `$…`"),
        (lambda r: r.profile("orders$files"), UnsupportedStatementError, "without `$…`"),
        (lambda r: r.changes("orders$files", "1", "2"), InvalidValueError, "$audit_log"),
        (lambda r: r.changes("empty"), InvalidValueError, "no snapshot"),
        (lambda r: r.files("orders", "day=mo"), UnknownNameError, "day=mon"),
        (lambda r: r.profile("order"), UnknownNameError, "orders"),
        (lambda r: r.explain("DROP TABLE orders"), UnsupportedStatementError, "--explain"),
        (lambda r: r.explain("SELECT 1; SELECT 2"), UnsupportedStatementError, "one query"),
        (lambda r: r.explain("SELECT (1"), StatementSyntaxError, ""),
        (lambda r: r.files("logs", "day=mon"), UnknownNameError, "not partitioned"),
        (lambda r: r.queue(), SetupError, "coordinator"),
    ],
)
def test_impossible_report_error_names_the_next_step(
    lake: Session, ask: Any, error: type[PaimonMagicsError], said: str
) -> None:
    with pytest.raises(error) as raised:
        ask(lake.reports)
    assert said in raised.value.text()


def test_sorted_history_sql_uses_only_columns_of_the_query(lake: Session) -> None:
    outcome = lake.history("orders")
    assert outcome.data.column("snapshot_id").to_pylist() == [4, 3, 2, 1]
    rows = rows_of(outcome)
    by_kind = rows.sql(RowFilter((Order("commit_kind"),)))
    assert by_kind.startswith("-- without `operation`, `user`, `notebook`, ")
    assert lake.run(by_kind).to_arrow().column("commit_kind")[0].as_py() == "APPEND"
    assert rows.sql(RowFilter((Order("user"), Order("snapshot_id")))) == ""


def test_profile_of_days_beyond_pythons_years_needs_a_job(lake: Session) -> None:
    lake.run("CREATE TABLE far_days (day DATE)")
    days = pa.array([3_663_478, 0], pa.int32()).cast(pa.date32())
    lake.write(pa.table({"day": days}), "far_days")
    (row,) = lake.reports.profile("far_days").data.to_pylist()
    assert (row["min"], row["from"]) == ("1970-01-01", "Spark job")


@pytest.mark.parametrize(("wider", "shown"), [("BIGINT", [6, 2, 1]), ("STRING", ["6", "2", "1"])])
def test_changes_before_and_after_a_change_of_type_are_shown_together(
    lake: Session, wider: str, shown: list[object]
) -> None:
    name = f"widened_{wider.lower()}"
    lake.run(
        f"CREATE TABLE {name} (x INT); INSERT INTO {name} VALUES (1), (2);"
        f"ALTER TABLE {name} ALTER COLUMN x TYPE {wider}; UPDATE {name} SET x = 6 WHERE x = 2",
        confirm=True,
    )
    values = lake.reports.changes(name).data.column("x").to_pylist()
    assert sorted(set(values), reverse=True) == shown
