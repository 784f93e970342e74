"""Settings of the Spark session: honored, or refused by name before anything happens."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import partial

import pandas as pd
import pytest

from paimon_magics import Session
from paimon_magics.errors import InvalidValueError, UnsupportedStatementError
from paimon_magics.planning.reads.spark_settings import REFUSED
from paimon_magics.session.reports.profile import Effort
from tests.session.rows import rows
from tests.session.spark_settings import settings

pytestmark = pytest.mark.spark

_OTHER = {
    "true": "false",
    "false": "true",
    "timestamp_ltz": "TIMESTAMP_NTZ",
    "ansi": "LEGACY",
    "second": "first",
    "^[._]": "^data",
}


def paimon(**options: str) -> dict[str, str]:
    return {f"spark.paimon.{key}": value for key, value in options.items()}


@pytest.fixture
def table(session: Session) -> Session:
    session.run("CREATE TABLE t (k INT, s STRING, at TIMESTAMP)")
    for k in (1, 2, 3):
        session.run(f"INSERT INTO t VALUES ({k}, '{k}', TIMESTAMP '2026-01-0{k} 12:00:00')")
    return session


_WAYS: dict[str, Callable[[Session], object]] = {
    "SELECT": lambda each: each.run("SELECT * FROM t"),
    "aggregate": lambda each: each.run("SELECT count(*) FROM t"),
    "view": lambda each: each.run("CREATE TEMPORARY VIEW v AS SELECT k FROM t"),
    "EXPLAIN": lambda each: each.run("EXPLAIN SELECT * FROM t"),
    "spark.sql": lambda each: each.spark.sql("SELECT * FROM t"),
    "spark.table": lambda each: each.spark.table("t"),
    "frame": lambda each: each.table("t", where="k = 1"),
    "python frame": lambda each: each.run(
        "SELECT * FROM df", frames={"df": pd.DataFrame({"a": [1]})}
    ),
    "INSERT": lambda each: each.run("INSERT INTO t VALUES (4, '4', NULL)"),
    "write": lambda each: each.write(pd.DataFrame({"k": [4]}), "t"),
    "insert": lambda each: each.insert("t", [(4, "4", None)]),
    "create": lambda each: each.write(pd.DataFrame({"k": [4]}), "made", create=True),
    "DELETE": lambda each: each.delete("t", "k = 1"),
    "UPDATE": lambda each: each.run("UPDATE t SET s = 'x'"),
    "merge": lambda each: (
        each.merge(pd.DataFrame({"k": [1]}), "t", on="k").when_matched_delete().run()
    ),
    "CREATE TABLE": lambda each: each.run("CREATE TABLE made (at TIMESTAMP)"),
    "ALTER": lambda each: each.run("ALTER TABLE t ADD COLUMN made TIMESTAMP"),
    "dry run": lambda each: each.run("DELETE FROM t WHERE k = 1", dry_run=True),
    "preview": lambda each: each.preview("DELETE FROM t WHERE k = 1"),
    "stream": lambda each: each.stream("t"),
    "changes": lambda each: next(each.changes("t", from_snapshot=1, wait=False)),
    "readStream": lambda each: each.spark.readStream.format("paimon").load("t"),
    "diff": lambda each: each.reports.diff("t", "1", "2"),
    "report of changes": lambda each: each.reports.changes("t"),
    "profile": lambda each: each.reports.profile("t", Effort.DISTINCT),
    "explain": lambda each: each.reports.explain("SELECT * FROM t WHERE k = 1"),
    "compact": lambda each: each.compact("t"),
    **{
        statement: partial(Session.run, text=statement)
        for statement in (
            "COPY INTO t FROM '/data/orders' FILE_FORMAT = (TYPE = CSV)",
            "COPY INTO '/data/export' FROM t FILE_FORMAT = (TYPE = CSV)",
            "COPY INTO '/data/export' FROM (SELECT k FROM t) FILE_FORMAT = (TYPE = CSV)",
            "CREATE TABLE made LIKE t",
            "CREATE OR REPLACE TABLE t (made INT)",
            "CREATE OR REPLACE TABLE t AS SELECT 7 AS k",
            "REPLACE TABLE t (made INT)",
            "INSERT INTO t REPLACE WHERE k = 1 SELECT 7, '7', NULL",
            "INSERT OVERWRITE t SELECT 7, '7', NULL",
            "TRUNCATE TABLE t",
            "DROP TABLE t",
            "COMMENT ON TABLE t IS 'made'",
            "ANALYZE TABLE t COMPUTE STATISTICS FOR ALL COLUMNS",
            "OPTIMIZE t",
            "RESTORE TABLE t TO VERSION AS OF 1",
            "ALTER TABLE t CREATE TAG made",
            "CALL sys.expire_snapshots(table => 't', retain_max => 1)",
            "CALL sys.copy('t', 'made')",
            "CALL sys.create_tag('t', 'made')",
            "CALL sys.compact_database()",
            "CREATE DATABASE made",
            "EXPLAIN DELETE FROM t WHERE k = 1",
        )
    },
}


@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize(
    ("key", "value"),
    [("spark.sql.timestampType", "TIMESTAMP_NTZ"), ("spark.paimon.file.format", "orc")],
)
def test_unsupported_setting_is_refused_for_every_operation(
    table: Session, way: str, key: str, value: str
) -> None:
    if way == "python frame" and key.startswith("spark.paimon"):
        return  # it names no table of Paimon's
    with (
        settings(table.spark, **{key: value}),
        pytest.raises(UnsupportedStatementError, match=f"{key} = {value}") as caught,
    ):
        _WAYS[way](table)
    assert key in caught.value.hint
    assert "Nothing was read or written" in caught.value.hint
    assert sorted(k for k, *_ in rows(table, "SELECT * FROM t")) == [1, 2, 3]
    assert rows(table, "SHOW TABLES LIKE 'made'") == []
    assert [name for name, *_ in rows(table, "DESCRIBE t")][:3] == ["k", "s", "at"]


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_setting_changing_semantics_is_refused_until_reset(table: Session, key: str) -> None:
    conf = table.spark.conf
    try:
        other = conf.get(key)
    except Exception:
        pytest.skip("this Spark does not have the setting")
    assert other is not None
    assert other.lower() == REFUSED[key].default
    with settings(table.spark, **{key: _OTHER[REFUSED[key].default]}):
        for statement in ("SELECT * FROM t", "DELETE FROM t WHERE k = 1"):
            with pytest.raises(UnsupportedStatementError, match=key.replace(".", r"\.")) as caught:
                table.run(statement)
        # As the hint says.
        table.run(caught.value.hint.rpartition(" or ")[2].removesuffix(" in a cell."))
        assert len(rows(table, "SELECT * FROM t")) == 3


def test_set_in_a_cell_applies_to_following_statements(table: Session) -> None:
    with settings(table.spark), pytest.raises(UnsupportedStatementError, match="timestampType"):
        table.run(
            "SET spark.sql.timestampType = TIMESTAMP_NTZ; "
            "INSERT INTO t SELECT 4, '4', TIMESTAMP '2026-01-04 12:00:00'"
        )
    table.run("RESET spark.sql.timestampType")
    assert len(rows(table, "SELECT * FROM t")) == 3


def test_double_quoted_identifiers_setting_is_refused(table: Session) -> None:
    with settings(table.spark, **{"spark.sql.ansi.doubleQuotedIdentifiers": "true"}):
        for statement in ('SELECT "k" FROM "t"', 'DELETE FROM t WHERE "k" = 1'):
            with pytest.raises(UnsupportedStatementError, match="doubleQuotedIdentifiers"):
                table.run(statement)
        assert rows(table, 'SELECT "a" FROM VALUES (1) AS x(a)') == [(1,)]


@pytest.mark.parametrize(
    ("key", "text", "count"),
    [
        ("spark.sql.ansi.doubleQuotedIdentifiers", 's = "s"', 3),
        ("spark.sql.parser.escapedStringLiterals", r"s = '\1' OR k = 2", 1),
    ],
)
def test_setting_does_not_change_conditions_of_existing_frame(
    table: Session, key: str, text: str, count: int
) -> None:
    frame = table.table("t")
    with settings(table.spark, **{key: "true"}):
        chosen = frame.where(text)
        assert chosen.count() == count
        assert len(chosen.collect()) == count
    assert len(chosen.collect()) == count


def test_strict_store_assignment_is_honoured(table: Session) -> None:
    with settings(table.spark, **{"spark.sql.storeAssignmentPolicy": "STRICT"}):
        assert len(rows(table, "SELECT * FROM t")) == 3
        with pytest.raises(InvalidValueError, match="STRICT"):
            table.run("INSERT INTO t SELECT 4.5D, '4', NULL")


def numbers(session: Session, query: str) -> list[object]:
    return sorted(k for (k,) in rows(session, query))


def test_session_read_options_apply_to_queries_and_frames(table: Session) -> None:
    with settings(table.spark, **paimon(**{"scan.snapshot-id": "2"})):
        assert numbers(table, "SELECT k FROM t") == [1, 2]
        assert rows(table, "SELECT count(*), max(k) FROM t") == [(2, 2)]
        assert sorted(row.k for row in table.table("t").collect()) == [1, 2]
        assert sorted(row.k for row in table.spark.table("t").collect()) == [1, 2]
        assert table.spark.read.format("paimon").load("t").count() == 2
        assert len(rows(table, "SELECT * FROM t$files")) == 2
        # What the read itself says goes before it.
        assert numbers(table, "SELECT k FROM t VERSION AS OF 1") == [1]
        assert numbers(table, "SELECT k FROM t WITH ('scan.mode' = 'latest-full')") == [1, 2, 3]
        assert table.table("t", **{"incremental-between": "2,3"}).count() == 1
    assert numbers(table, "SELECT k FROM t") == [1, 2, 3]
    with settings(table.spark, **paimon(**{"incremental-between": "1,3"})):
        assert numbers(table, "SELECT k FROM t") == [2, 3]


def test_set_of_read_option_applies_within_a_cell(table: Session) -> None:
    try:
        actual = table.run("SET `spark.paimon.scan.version` = 1; SELECT k FROM t")
        assert actual.to_arrow().column("k").to_pylist() == [1]
    finally:
        table.run("RESET `spark.paimon.scan.version`")
    assert numbers(table, "SELECT k FROM t") == [1, 2, 3]


def test_table_specific_options_apply_to_their_table_only(table: Session) -> None:
    table.run("CREATE TABLE u AS SELECT k FROM t")
    table.run("INSERT INTO u VALUES (9)")
    both = "SELECT t.k FROM t JOIN u ON t.k = u.k"
    with settings(table.spark, **paimon(**{"paimon.default.t.scan.snapshot-id": "2"})):
        assert numbers(table, "SELECT k FROM t") == [1, 2]
        assert numbers(table, "SELECT k FROM u") == [1, 2, 3, 9]
        assert numbers(table, both) == [1, 2]
        table.run("INSERT INTO u SELECT k + 10 FROM t")
        table.run("DELETE FROM u WHERE k > 9")
    with settings(
        table.spark, **paimon(**{"*.*.t.scan.snapshot-id": "1", "scan.snapshot-id": "2"})
    ):
        assert numbers(table, "SELECT k FROM t") == [1]
        assert numbers(table, "SELECT k FROM u") == [1, 2, 3, 9]
    with settings(table.spark, **paimon(**{"other.default.t.scan.snapshot-id": "1"})):
        assert numbers(table, "SELECT k FROM t") == [1, 2, 3]
    with settings(table.spark, **paimon(**{"paimon.default.t.file.format": "orc"})):
        assert len(rows(table, "SELECT k FROM u")) == 4
        with pytest.raises(UnsupportedStatementError, match=r"paimon\.default\.t\.file\.format"):
            table.run("INSERT INTO t SELECT k, NULL, NULL FROM u")


@pytest.mark.parametrize(
    "statement",
    [
        "CALL sys.compact('t')",
        "CALL sys.compact_database()",
        "CALL sys.copy('u', 't')",
        "CALL sys.copy('t', 'made')",
        "CALL sys.create_tag('t', 'made')",
        "CALL sys.expire_snapshots(table => 't', retain_max => 1)",
        "OPTIMIZE t",
        "RESTORE TABLE t TO VERSION AS OF 1",
    ],
)
def test_settings_of_a_table_are_refused_for_procedures(table: Session, statement: str) -> None:
    table.run("CREATE TABLE u AS SELECT * FROM t")
    key = "spark.paimon.paimon.default.t.file.format"
    with settings(table.spark, **{key: "orc"}):
        with pytest.raises(UnsupportedStatementError, match=key):
            table.run(statement)
        table.run("CALL sys.compact('u')")
    assert numbers(table, "SELECT k FROM t") == [1, 2, 3]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM t WHERE k = 3",
        "UPDATE t SET s = 'x'",
        "MERGE INTO t USING (SELECT 1 AS k) s ON t.k = s.k WHEN MATCHED THEN DELETE",
    ],
)
def test_changes_are_refused_while_session_reads_older_state(
    table: Session, statement: str
) -> None:
    with (
        settings(table.spark, **paimon(**{"scan.snapshot-id": "2"})),
        pytest.raises(UnsupportedStatementError, match=r"spark\.paimon\.scan\.snapshot-id = 2"),
    ):
        table.run(statement)
    assert numbers(table, "SELECT k FROM t") == [1, 2, 3]


def test_write_is_refused_while_session_reads_a_branch(table: Session) -> None:
    table.run("CALL sys.create_branch('t', 'b')")
    with settings(table.spark, **paimon(branch="b")):
        assert numbers(table, "SELECT k FROM t") == []
        with pytest.raises(UnsupportedStatementError, match=r"spark\.paimon\.branch = b"):
            table.run("INSERT INTO t VALUES (4, '4', NULL)")
    assert numbers(table, "SELECT k FROM t") == [1, 2, 3]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ignore-delete", "true"),
        ("postpone.default-bucket-num", "4"),
        ("read.allow.fullScan", "false"),
        ("read.changelog", "true"),
        ("scan.snapshotid", "1"),
        ("paimon.default.t.write.merge-schema", "true"),
    ],
)
def test_unsupported_paimon_options_are_refused_by_name(
    table: Session, key: str, value: str
) -> None:
    with settings(table.spark, **paimon(**{key: value})):
        for statement in ("SELECT * FROM t", "INSERT INTO t VALUES (4, '4', NULL)"):
            with pytest.raises(UnsupportedStatementError) as caught:
                table.run(statement)
            assert f"spark.paimon.{key} = {value}" in str(caught.value)
    assert numbers(table, "SELECT k FROM t") == [1, 2, 3]


def test_options_without_effect_are_accepted(table: Session) -> None:
    options = {"write.use-v2-write": "true", "read.allow.fullScan": "true", "read.batch-size": "9"}
    with settings(table.spark, **paimon(**options)):
        assert numbers(table, "SELECT k FROM t") == [1, 2, 3]
        table.run("INSERT INTO t VALUES (4, '4', NULL)")


def test_times_are_stored_correctly_after_setting_is_removed(table: Session) -> None:
    moment = datetime.datetime(2026, 1, 4, 12, tzinfo=datetime.UTC)
    frame = pd.DataFrame({"k": [4], "at": [moment]})
    with settings(table.spark, **{"spark.sql.timestampType": "TIMESTAMP_NTZ"}):
        for write in (
            lambda: table.write(frame, "t"),
            lambda: table.run("INSERT INTO t SELECT 4, '4', at FROM df", frames={"df": frame}),
        ):
            with pytest.raises(UnsupportedStatementError):
                write()
    table.write(frame, "t")
    assert rows(table, "SELECT unix_seconds(at) FROM t WHERE k = 4") == [(moment.timestamp(),)]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT k FROM t WHERE s = '${spark.wanted}'",
        "SELECT count(*) FROM t WHERE s = '${spark.wanted}'",
        "CREATE TEMPORARY VIEW v AS SELECT k FROM t WHERE s = '${spark.wanted}'",
        "DELETE FROM t WHERE s = '${spark.wanted}'",
        "INSERT INTO t VALUES (4, '${spark.wanted}', NULL)",
    ],
)
def test_spark_variable_substitution_is_refused(table: Session, statement: str) -> None:
    """Files were left out by the text that stood there before."""
    with settings(table.spark, **{"spark.wanted": "2"}):
        with pytest.raises(UnsupportedStatementError, match=r"\$\{spark\.wanted\}") as caught:
            table.run(statement)
        assert "parameters=" in caught.value.hint
        assert rows(table, "SELECT '${spark.wanted}' AS v") == [("2",)]
        with settings(table.spark, **{"spark.sql.variable.substitute": "false"}):
            table.run(statement)
    assert len(rows(table, "SELECT * FROM t")) == 3 + statement.startswith("INSERT")


def test_variable_text_is_stored_verbatim_without_substitution(table: Session) -> None:
    insert = "INSERT INTO t VALUES (4, '${nobody.knows}', NULL)"
    with pytest.raises(UnsupportedStatementError, match=r"\$\{nobody\.knows\}"):
        table.run(insert)  # Spark would store an empty text
    with settings(table.spark, **{"spark.sql.variable.substitute": "false"}):
        table.run(insert)
        assert numbers(table, "SELECT k FROM t WHERE s = '${nobody.knows}'") == [4]
