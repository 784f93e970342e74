"""The verbs of `%paimon`, run through IPython."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from IPython.core.interactiveshell import InteractiveShell

from paimon_magics.errors import (
    HealthError,
    PaimonMagicsError,
    SetupError,
    StatementError,
    StatementSyntaxError,
    UnknownNameError,
    UnsupportedStatementError,
)
from paimon_magics.magics.help import PROCEDURE_PURPOSES
from paimon_magics.magics.line import VERBS
from paimon_magics.planning.commits.procedures import PROCEDURES
from paimon_magics.session.opening import active_session, connect
from paimon_magics.session.reports.health import Health
from paimon_magics.session.reports.layout import Layout
from paimon_magics.session.reports.report import Report
from paimon_magics.session.session import Session
from tests.magics.conftest import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("line", "error", "said"),
    [
        ("tabels", UnknownNameError, "Did you mean `tables`?"),
        ("SELECT 1", UnknownNameError, "SQL is written in a cell that begins with %%paimon"),
        ("connect /lake", StatementSyntaxError, "%paimon connect warehouse=/lake"),
        ("connect warehose=/lake", UnknownNameError, "Did you mean `warehouse`?"),
        ("connect catalog.=x", UnknownNameError, "no option `catalog.`"),
        ("connect --clos", UnknownNameError, "It has `--close`; write everything else"),
        ("connect --warehouse /lake", UnknownNameError, "%paimon connect warehouse=…"),
        ("connect --batch-rows=5", UnknownNameError, "%paimon connect batch_rows=…"),
        ("connect warehouse=a warehouse=b", StatementSyntaxError, "`warehouse` is given twice"),
        ("connect spark=nothing", UnknownNameError, "`spark=nothing` names no variable"),
        ("connect batch_rows=many", PaimonMagicsError, "`batch_rows` can't be `many`"),
        ("connect warehouse={nothing}", UnknownNameError, "`{nothing}` names no variable"),
        ("describe", StatementSyntaxError, "needs the name of a table"),
        ("describe a b", StatementSyntaxError, "not `a b`"),
        ("describe a; DROP TABLE a", StatementSyntaxError, "takes the name of a table"),
        ("layout", StatementSyntaxError, "needs the name of a table"),
        ("snapshots", StatementSyntaxError, "needs the name of a table"),
        ("diff orders", StatementSyntaxError, "%paimon diff orders 3..7"),
        ("diff orders 3", StatementSyntaxError, "takes two states as A..B, not `3`"),
        ("diff orders 3..", StatementSyntaxError, "the earlier one first"),
        ("changes orders 3", StatementSyntaxError, "takes two states as A..B, not `3`"),
        ("files a --partition", PaimonMagicsError, "--partition day=2026-11-20"),
        ("files a --part=x", UnknownNameError, "It has --partition."),
        ("files a b", StatementSyntaxError, "not `a b`"),
        ("partitions", StatementSyntaxError, "needs the name of a table"),
        ("profile a --all", UnknownNameError, "has no option `--all`"),
        ("profile a --statistics --distinct", StatementSyntaxError, "given together"),
        ("explain", StatementSyntaxError, "needs a query"),
        ("health a b", StatementSyntaxError, "takes one name: `b` is left over"),
        ("health --jsn", UnknownNameError, "It has --json and --fail-on."),
        ("health a; DROP TABLE a", StatementSyntaxError, "is left over"),
        ("health --fail-on", PaimonMagicsError, "--fail-on small=0.3"),
        ("health --fail-on bad", PaimonMagicsError, "--fail-on small=0.3"),
        ("health --fail-on small=2", PaimonMagicsError, "--fail-on small=0.3"),
        ("use", StatementSyntaxError, "needs the name of a database"),
        ("config a=1 b=2", StatementSyntaxError, "`b=2` is left over"),
        ("coordinator stauts", UnknownNameError, "Did you mean `status`?"),
        ("coordinator pause now", StatementSyntaxError, "takes no `now`"),
        ("coordinator drain soon", PaimonMagicsError, "a number of seconds, not `soon`"),
        ("coordinator drain nan", PaimonMagicsError, "a number of seconds, not `nan`"),
        ("coordinator resume a b", StatementSyntaxError, "takes the name of a table"),
        ("tables --all", UnknownNameError, "has no option `--all`"),
        ("transactions all", StatementSyntaxError, "takes no argument, but got `all`"),
        ("abort", StatementSyntaxError, "needs the id of a transaction"),
        ("abort ../x", StatementSyntaxError, "not `../x`"),
        ("help selct", UnknownNameError, "Did you mean `SELECT`?"),
    ],
)
def test_wrong_line_error_names_the_next_step(
    shell: InteractiveShell, line: str, error: type[Exception], said: str
) -> None:
    failed = shell.run_cell(f"%paimon {line}").error_in_exec
    assert isinstance(failed, error)
    assert said in str(failed)
    assert active_session() is None


@pytest.mark.parametrize("line", ["", "help", "--help"])
def test_help_lists_every_verb_option_and_statement(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    shell.run_cell(f"%paimon {line}").raise_error()
    shown = capsys.readouterr().out
    assert all(f"%paimon {verb.usage}" in shown for verb in VERBS)
    assert "--dry-run" in shown
    assert "INSERT OVERWRITE" in shown


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("connect", "%paimon connect [warehouse=…]"),
        ("insert into", "INSERT INTO t [PARTITION (c = v, …)]"),
        ("ALTER", "ALTER TABLE t DROP [IF EXISTS] PARTITION"),
        ("create", "CREATE DATABASE"),
        ("%%paimon", "NAME <<"),
        ("delete", "DELETE FROM t [[AS] alias] [WHERE condition]"),
        ("update", "UPDATE t [[AS] alias] SET column = value"),
        ("merge into", "WHEN NOT MATCHED BY SOURCE [AND condition]"),
        ("upsert", "a row replaces the row with the same key"),
        ("compact", "CALL sys.compact('t')"),
        ("streams", "consumer-id"),
        ("expire_snapshots", "CALL sys.expire_snapshots(table [, retain_max]"),
        ("sys.remove_orphan_files", "remove files that nothing refers to"),
        ("call purge_files", "keep the empty table"),
        ("vacuum", "CALL sys.remove_orphan_files(table => 't')"),
    ],
)
def test_help_explains_a_topic(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], topic: str, said: str
) -> None:
    shell.run_cell(f"%paimon help {topic}").raise_error()
    assert said in capsys.readouterr().out


def test_every_procedure_has_its_own_help(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    assert PROCEDURE_PURPOSES.keys() == PROCEDURES.keys()
    for name, purpose in PROCEDURE_PURPOSES.items():
        shell.run_cell(f"%paimon help sys.{name}").raise_error()
        shown = capsys.readouterr().out
        assert f"CALL sys.{name}(" in shown and purpose in shown


def test_every_verb_has_its_own_help(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in VERBS:
        shell.run_cell(f"%paimon {verb.name} --help").raise_error()
        shell.run_cell(f"%paimon help {verb.name}").raise_error()
        shown = capsys.readouterr().out
        assert shown[: len(shown) // 2] == shown[len(shown) // 2 :], verb.name
        assert f"%paimon {verb.usage}" in shown
    assert active_session() is None


def test_help_suggests_option_with_similar_name(shell: InteractiveShell) -> None:
    done = shell.run_cell("%paimon help merge-enginee")
    assert isinstance(done.error_in_exec, UnknownNameError)
    assert "Did you mean `merge-engine`?" in done.error_in_exec.hint


@pytest.mark.spark
def test_connect_returns_the_session(
    shell: InteractiveShell, spark: SparkSession, closed_at_the_end: None, tmp_path: Path
) -> None:
    shell.user_ns.update(spark=spark, place=tmp_path)
    done = shell.run_cell(
        "session = %paimon connect warehouse='{place}/my lake' spark=spark display_rows=3"
    )
    done.raise_error()
    session = shell.user_ns["session"]
    assert isinstance(session, Session)
    assert session.warehouse == str(tmp_path / "my lake")
    assert session.spark is spark
    assert session.settings.display_rows == 3


@pytest.mark.spark
def test_connect_accepts_catalog_options(
    shell: InteractiveShell, spark: SparkSession, closed_at_the_end: None, tmp_path: Path
) -> None:
    shell.run_cell(
        "%paimon connect catalog.metastore=filesystem warehouse=lake database=default"
    ).raise_error()
    session = active_session()
    assert session is not None
    assert session.catalog_options["metastore"] == "filesystem"
    assert session.warehouse == str(tmp_path / "lake")


@pytest.mark.spark
def test_connecting_elsewhere_requires_closing_the_connection(
    connected: InteractiveShell, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = connected.run_cell("%paimon connect warehouse=other").error_in_exec
    assert isinstance(failed, SetupError)
    assert "%paimon connect --close" in failed.hint
    assert str(run("%paimon connect --close warehouse=other")) == (
        f"Session({tmp_path / 'other'}, new warehouse, database default)"
    )
    capsys.readouterr()
    run("%paimon connect --close")
    run("%paimon connect --close")
    assert capsys.readouterr().out == (
        f"{tmp_path / 'other'} is closed.\nNo connection was open.\n"
    )


@pytest.mark.spark
def test_layout_and_health_verbs_return_their_reports(
    connected: InteractiveShell, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = run("%paimon layout orders")
    assert isinstance(layout, Layout)
    assert str(layout).startswith("orders, snapshot 1: 2 partitions, 2 buckets, 2 files, 3 rows, ")
    assert layout.data.column("partition").to_pylist() == ["day=mon", "day=tue"]
    assert layout.small_share == 1
    health = run("%paimon health")
    assert isinstance(health, Health)
    assert str(health).startswith("default.orders, snapshot 1: ")
    assert str(run("%paimon health default.*")) == str(health)
    assert "good: " in str(run("%paimon health orders --fail-on notice"))
    capsys.readouterr()
    assert run("%paimon health orders --json") is None
    assert json.loads(capsys.readouterr().out)["orders"]["files"] == 2
    failed = connected.run_cell("%paimon health orders --fail-on small=0.3").error_in_exec
    assert isinstance(failed, HealthError)
    assert "orders, snapshot 1" in str(failed)
    missing = connected.run_cell("%paimon layout orderz").error_in_exec
    assert isinstance(missing, UnknownNameError)
    assert "orders" in missing.hint
    wrong = connected.run_cell("%paimon layout orders$files").error_in_exec
    assert isinstance(wrong, UnsupportedStatementError)


@pytest.mark.spark
def test_open_connection_refuses_other_settings(connected: InteractiveShell, run: Run) -> None:
    failed = connected.run_cell("%paimon connect warehouse=warehouse batch_rows=7").error_in_exec
    assert isinstance(failed, SetupError)
    assert "`batch_rows` = 65536" in failed.message
    assert "--close" in failed.hint
    run("%paimon connect --close warehouse=warehouse batch_rows=7 display_rows=1")
    session = active_session()
    assert session is not None
    assert session.settings.batch_rows == 7
    assert "the first row; more follow" in str(run("%%paimon\nSELECT * FROM orders"))


@pytest.mark.spark
def test_cells_follow_display_rows_of_the_connection(
    shell: InteractiveShell, spark: SparkSession, tmp_path: Path
) -> None:
    with connect(tmp_path / "lake", spark=spark, display_rows=1):
        shown = shell.run_cell("%%paimon\nVALUES (1), (2)").result
    assert str(shown).endswith("the first row; more follow")


@pytest.mark.spark
def test_wrong_connect_option_leaves_connection_open(connected: InteractiveShell) -> None:
    done = connected.run_cell("%paimon connect --close warehose=other")
    assert isinstance(done.error_in_exec, UnknownNameError)
    assert active_session() is not None


@pytest.mark.spark
def test_tail_shows_changes_snapshot_by_snapshot(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run("%paimon tail orders$audit_log from=1 snapshots=1")
    shown = capsys.readouterr().out
    assert shown.startswith("snapshot 1 (APPEND)\nrowkind")
    assert "+I" in shown
    run("%paimon tail orders snapshots=1")
    said = "orders has no newer snapshot. To show earlier ones, use from=N.\n"
    assert capsys.readouterr().out == said


@pytest.mark.parametrize("word", ["since=1", "from", "from=", "from=x", "snapshots=0"])
def test_tail_refuses_wrong_options_by_name(run: Run, word: str) -> None:
    with pytest.raises(StatementError, match=word.partition("=")[0]):
        run(f"%paimon tail orders {word}")


def test_history_verb_lists_snapshots(run: Run) -> None:
    shown = str(run("%paimon history orders"))
    assert "snapshot_id" in shown and "APPEND" in shown


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        ("snapshots orders", "TIMELINE", "orders: 1 snapshot (1 APPEND)"),
        ("diff orders 1..1", "DIFFERENCE", "the same rows"),
        ("changes orders", "CHANGES", "3 rows (3 inserted)"),
        ("files orders --partition day=mon", "FILES", "orders, day=mon: 1 file"),
        ("partitions orders", "PARTITIONS", "2 partitions"),
        ("profile orders --distinct", "PROFILE", "3 rows, one Spark job for 2 columns"),
        ("explain SELECT * FROM orders WHERE day = :which", "PRUNING", "1 of 2 files"),
    ],
)
def test_report_verbs_return_their_reports(
    connected: InteractiveShell, run: Run, line: str, kind: str, said: str
) -> None:
    connected.user_ns["which"] = "mon"
    report = run(f"%paimon {line}")
    assert isinstance(report, Report)
    assert (report.kind, said in report.summary) == (kind, True), report.summary


def test_tables_verb_lists_tables(run: Run) -> None:
    run("%%paimon\nCREATE DATABASE shop; CREATE TABLE shop.events (id INT)")
    assert "default    orders" in str(run("%paimon tables"))
    assert "shop       events" in str(run("%paimon tables shop"))


@pytest.mark.spark
@pytest.mark.parametrize("name", ["orders", "default.orders", "`orders`", "paimon.default.orders"])
def test_describe_verb_lists_columns(run: Run, name: str) -> None:
    assert "\nitem " in str(run(f"%paimon describe {name}"))


@pytest.mark.spark
def test_dollar_in_table_name_is_not_expanded_as_python_variable(run: Run) -> None:
    run("files = 'x'")
    assert "\nrecord_count " in str(run("%paimon describe orders$files"))


@pytest.mark.spark
def test_use_changes_the_database_of_unqualified_names(run: Run) -> None:
    run("%%paimon\nCREATE DATABASE shop; CREATE TABLE shop.events (id INT)")
    assert str(run("%paimon use shop")) == "The current database is `shop`."
    assert str(run("%%paimon\nSELECT * FROM events")) == "id\n--\n0 rows"


@pytest.mark.spark
@pytest.mark.parametrize("line", ["layout numbers", "diff `numbers` 1..2", "history numbers"])
def test_temporary_view_is_distinguished_from_missing_table(
    connected: InteractiveShell, line: str
) -> None:
    connected.run_cell("%%paimon\nCREATE OR REPLACE TEMPORARY VIEW numbers AS SELECT 1 AS n")
    failed = connected.run_cell(f"%paimon {line}").error_in_exec
    assert isinstance(failed, UnsupportedStatementError)
    assert "`numbers` is a temporary view of Spark's" in failed.message
    connected.run_cell("%%paimon\nDROP VIEW numbers")
    assert isinstance(connected.run_cell(f"%paimon {line}").error_in_exec, UnknownNameError)
