"""`%%paimon` cells, run through IPython on a real table with real Spark."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pandas
import pytest
from IPython.core.interactiveshell import InteractiveShell

from paimon_magics.errors import (
    InvalidValueError,
    JobError,
    PaimonMagicsError,
    StatementSyntaxError,
    UnknownNameError,
    UnsupportedStatementError,
)
from paimon_magics.magics.help import cell_help
from paimon_magics.session.opening import active_session
from paimon_magics.session.outcome import Outcome
from tests.magics.conftest import Run
from tests.session.evidence import jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ALL = "SELECT id, item, day FROM orders ORDER BY id"
WIDGET = "application/vnd.jupyter.widget-view+json"
ROWS = [
    {"id": 1, "item": "tea", "day": "mon"},
    {"id": 2, "item": None, "day": "mon"},
    {"id": 3, "item": "milk", "day": "tue"},
]
TEXT = """\
id  item  day
--  ----  ---
 1  tea   mon
 2  NULL  mon
 3  milk  tue
3 rows"""


def test_a_cells_value_is_the_outcome_of_its_last_statement(run: Run) -> None:
    outcome = run(f"%%paimon\nSELECT 1;\n{ALL};\n")
    assert isinstance(outcome, Outcome)
    assert outcome.to_arrow().to_pylist() == ROWS


def test_cell_reads_notebook_frame_by_name_and_notes_it(
    connected: InteractiveShell, run: Run
) -> None:
    connected.user_ns["harvest"] = pandas.DataFrame({"id": [3, 4]})
    shown = str(run("%%paimon\nSELECT item FROM harvest JOIN orders USING (id)"))
    assert shown == (
        "item\n----\nmilk\n1 row\n`harvest` is Python's variable, a pandas frame of 2 rows."
    )
    run("%%paimon -o kept\nSELECT id FROM harvest")
    assert "5" in str(run("%%paimon --limit 3\nSELECT max(id) + 1 AS n FROM kept"))
    assert "harvest: Python's variable" in str(run("%%paimon --explain\nSELECT * FROM harvest"))
    assert "a pandas frame" not in str(run(f"%%paimon\n{ALL}"))


def test_a_result_is_shown_as_text_and_as_html(connected: InteractiveShell, run: Run) -> None:
    outcome = run(f"%%paimon\n{ALL}")
    shown, _ = connected.display_formatter.format(outcome)
    assert set(shown) == {"text/plain", "text/html", WIDGET}
    assert shown["text/plain"] == TEXT
    assert '<th style="text-align:right">id</th>' in shown["text/html"]
    assert '<td style="text-align:left">NULL</td>' in shown["text/html"]


def test_same_result_is_displayed_identically_each_time(
    connected: InteractiveShell, run: Run
) -> None:
    first, second = (
        connected.display_formatter.format(run(f"%%paimon\n{ALL}"))[0] for _ in range(2)
    )
    for shown in (first, second):
        assert shown.pop(WIDGET)["model_id"], "each has a grid of its own"
    assert first == second


def test_small_query_is_displayed_without_a_spark_job(
    connected: InteractiveShell, run: Run, spark: SparkSession
) -> None:
    before = jobs(spark)
    outcome = run("%%paimon -o rows\nSELECT id, item FROM orders WHERE id > 0")
    connected.display_formatter.format(outcome)
    assert jobs(spark) <= before


@pytest.mark.parametrize("cell", ["%%paimon -o rows\n{}", "%%paimon --out rows\n{}"])
def test_out_option_stores_outcome_and_shows_it(
    connected: InteractiveShell, run: Run, cell: str
) -> None:
    shown = run(cell.format(ALL))
    assert shown is connected.user_ns["rows"]
    assert str(shown) == TEXT


@pytest.mark.parametrize("cell", ["%%paimon rows <<\n{}", "%%paimon\nrows << {}"])
def test_arrow_assignment_stores_outcome_and_shows_nothing(
    connected: InteractiveShell, run: Run, cell: str
) -> None:
    assert run(cell.format(ALL)) is None
    assert str(connected.user_ns["rows"]) == TEXT


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("arrow", "pyarrow.lib.Table"),
        ("pandas", "pandas.core.frame.DataFrame"),
        ("spark", "pyspark.sql.classic.dataframe.DataFrame"),
        ("outcome", "paimon_magics.session.outcome.Outcome"),
    ],
)
def test_type_option_decides_class_of_the_value(run: Run, name: str, kind: str) -> None:
    value = run(f"%%paimon -t {name}\n{ALL}")
    assert f"{type(value).__module__}.{type(value).__name__}" == kind


def test_polars_frame_contains_the_rows(run: Run) -> None:
    polars = pytest.importorskip("polars", reason="polars is not among the requirements")
    value = run(f"%%paimon -t polars\n{ALL}")
    assert isinstance(value, polars.DataFrame)
    assert value.to_dicts() == ROWS


def test_out_option_stores_value_of_requested_type(connected: InteractiveShell, run: Run) -> None:
    value = run(f"%%paimon -o frame -t pandas\n{ALL}")
    assert value is connected.user_ns["frame"]
    assert list(connected.user_ns["frame"]["id"]) == [1, 2, 3]


def test_statement_without_rows_returns_outcome_for_any_type(run: Run) -> None:
    value = run("%%paimon -t pandas\nINSERT INTO orders VALUES (4, 'jam', 'tue')")
    assert isinstance(value, Outcome)
    assert str(value) == "INSERT INTO `default.orders`: 1 row written (snapshot 2)."


def test_a_spark_frame_is_lazy(run: Run, spark: SparkSession) -> None:
    before = jobs(spark)
    frame = run("%%paimon -t spark\nSELECT count(*) AS n FROM orders")
    assert jobs(spark) <= before
    assert frame.collect()[0].n == 3  # type: ignore[attr-defined]


def test_limit_option_cuts_query_and_shows_all_remaining_rows(run: Run) -> None:
    outcome = run(f"%%paimon --limit 2\n{ALL}")
    assert isinstance(outcome, Outcome)
    assert outcome.to_arrow().to_pylist() == ROWS[:2]
    assert str(outcome).endswith("\n2 rows")


def test_configured_limit_applies_to_cells_without_limit_option(run: Run) -> None:
    run("%config PaimonMagics.limit = 1")
    assert len(run(f"%%paimon -t arrow\n{ALL}")) == 1  # type: ignore[arg-type]
    assert len(run(f"%%paimon -t arrow --limit 3\n{ALL}")) == 3  # type: ignore[arg-type]


def test_display_rows_limits_display_but_not_the_result(run: Run) -> None:
    run("%paimon config display_rows=2")
    outcome = run(f"%%paimon\n{ALL}")
    assert isinstance(outcome, Outcome)
    assert str(outcome).endswith(" 2  NULL  mon\nthe first 2 rows; more follow")
    assert outcome.to_arrow().num_rows == 3
    assert str(run("%paimon describe orders")).endswith("6 rows")  # a list stays whole


def test_cells_return_configured_result_type(run: Run) -> None:
    run("%paimon config result_type=arrow")
    assert run(f"%%paimon\n{ALL}").to_pylist() == ROWS  # type: ignore[attr-defined]


def test_bind_parameters_take_values_of_notebook_variables(
    connected: InteractiveShell, run: Run
) -> None:
    run("wanted = 'tue'\nunused = lambda: None\nframe = spark.range(1)")
    value = run("%%paimon -t arrow\nSELECT id FROM orders WHERE day = :wanted")
    assert value.to_pylist() == [{"id": 3}]  # type: ignore[attr-defined]
    run("hostile = \"' OR 'a' = 'a\"")
    value = run("%%paimon -t arrow\nSELECT id FROM orders WHERE day = :hostile")
    assert value.to_pylist() == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("value", "bound"),
    [
        ("numpy.int64(3)", 3),
        ("numpy.float64(0.5)", 0.5),
        ("numpy.bool_(True)", True),
        ("numpy.datetime64('2026-11-20T01:02:03', 'ns')", datetime.datetime(2026, 11, 20, 1, 2, 3)),
        ("numpy.timedelta64(90, 's')", datetime.timedelta(seconds=90)),
        ("numpy.datetime64('NaT')", None),
        ("pandas.NA", None),
        ("pandas.NaT", None),
        ("pandas.Timestamp('2026-11-20').date()", datetime.date(2026, 11, 20)),
        ("decimal.Decimal('1.50')", decimal.Decimal("1.50")),
        ("(1, 2)", [1, 2]),
        ("b'x'", b"x"),
    ],
)
def test_values_of_numpy_and_pandas_are_bound(run: Run, value: str, bound: object) -> None:
    run(f"import decimal, numpy, pandas\nvalue = {value}")
    run("%%paimon\nSET spark.sql.session.timeZone = UTC")
    table = run("%%paimon -t arrow\nSELECT :value AS v")
    (actual,) = table["v"].to_pylist()  # type: ignore[index]
    if isinstance(actual, datetime.datetime):
        actual = actual.replace(tzinfo=None)
    assert (actual, type(actual)) == (bound, type(bound))


@pytest.mark.parametrize("value", ["{'a': 1}", "{1}", "object()", "1j", "lambda: 1", "spark"])
def test_unbindable_parameter_value_is_refused(
    connected: InteractiveShell, run: Run, value: str
) -> None:
    run(f"value = {value}")
    failed = connected.run_cell("%%paimon\nSELECT :value").error_in_exec
    assert isinstance(failed, InvalidValueError)
    assert "`:value` is a" in failed.message


@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        ("SELECT :wantd", UnknownNameError, "Did you mean `wanted`?"),
        ("SELECT :_secret", UnknownNameError, "`:_secret` has no value"),
        ("SELECT :In", UnknownNameError, "`:In` has no value"),
        ("SELECT :frame", InvalidValueError, "is a DataFrame, which can't be bound"),
    ],
)
def test_error_names_parameter_without_a_value(
    connected: InteractiveShell, run: Run, statement: str, error: type[Exception], said: str
) -> None:
    run("wanted, _secret, frame = 1, 2, spark.range(1)")
    failed = connected.run_cell(f"%%paimon\n{statement}").error_in_exec
    assert isinstance(failed, error)
    assert said in str(failed)


def test_truncate_partition_ignores_unrelated_notebook_variables(run: Run) -> None:
    run("def function(): ...\nframe = spark.range(1)\nwanted = 'mon'")
    run("%%paimon\nTRUNCATE TABLE orders PARTITION (day = :wanted)")
    assert run(f"%%paimon -t arrow\n{ALL}").to_pylist() == ROWS[2:]  # type: ignore[attr-defined]


def test_a_dry_run_checks_every_statement_and_runs_none(run: Run) -> None:
    cell = "%%paimon --dry-run\nINSERT INTO orders VALUES (9, 'x', 'mon');\nTRUNCATE TABLE orders"
    assert "`default.orders`: 3 rows in" in str(run(cell))
    assert run(f"%%paimon -t arrow\n{ALL}").to_pylist() == ROWS  # type: ignore[attr-defined]


def test_a_dry_run_finds_the_error_in_a_later_statement(connected: InteractiveShell) -> None:
    done = connected.run_cell("%%paimon --dry-run\nSELECT 1;\nSELECT nothing FROM orders")
    assert isinstance(done.error_in_exec, UnknownNameError)


def test_explain_shows_the_plan_and_runs_nothing(run: Run) -> None:
    text = str(run("%%paimon --explain\nINSERT INTO orders VALUES (9, 'x', 'mon')"))
    assert text.startswith("default.orders: rows are merged in by key.")
    assert run(f"%%paimon -t arrow\n{ALL}").to_pylist() == ROWS  # type: ignore[attr-defined]


def test_help_lists_the_options_and_runs_nothing(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("%%paimon --help\nTRUNCATE TABLE orders") is None
    assert "--dry-run" in capsys.readouterr().out
    assert run(f"%%paimon -t arrow\n{ALL}").to_pylist() == ROWS  # type: ignore[attr-defined]


FAILING = [
    ("SELECT amount FROM orders", UnknownNameError),
    ("SELECT 'open", StatementSyntaxError),
    ("SELECT raise_error('no') FROM orders", JobError),
    ("SHOW BRANCHES orders", UnsupportedStatementError),
    ("INSERT INTO orders VALUES ('x', 'y', 'z')", InvalidValueError),
]


@pytest.mark.parametrize(("statement", "error"), FAILING)
def test_failed_cell_shows_error_text_without_traceback(
    connected: InteractiveShell,
    capsys: pytest.CaptureFixture[str],
    statement: str,
    error: type[PaimonMagicsError],
) -> None:
    capsys.readouterr()
    done = connected.run_cell(f"%%paimon -o kept\n{statement}")
    assert type(done.error_in_exec) is error
    shown = capsys.readouterr()
    assert shown.out.rstrip("\n") == done.error_in_exec.text()
    assert shown.err == ""
    assert "kept" not in connected.user_ns


def test_full_tracebacks_option_shows_the_traceback(
    connected: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    connected.run_cell("%paimon config full_tracebacks=True").raise_error()
    connected.run_cell("%%paimon\nSELECT amount FROM orders")
    assert "Traceback (most recent call last)" in capsys.readouterr().out


def test_error_position_counts_lines_of_the_cell(connected: InteractiveShell) -> None:
    done = connected.run_cell("%%paimon\nkept << SELECT 1;\n\nSELECT id,\n  amount\nFROM orders")
    assert isinstance(done.error_in_exec, UnknownNameError)
    assert "\n  line 4:   amount\n            ^\n" in done.error_in_exec.text()


def test_the_first_error_stops_the_cell(connected: InteractiveShell, run: Run) -> None:
    done = connected.run_cell(
        "%%paimon\nINSERT INTO orders VALUES (4, 'jam', 'tue');\nSELECT nothing;\nDROP TABLE orders"
    )
    assert isinstance(done.error_in_exec, UnknownNameError)
    assert run("%%paimon -t arrow\nSELECT count(*) AS n FROM orders").to_pylist() == [{"n": 4}]  # type: ignore[attr-defined]


@pytest.mark.parametrize("body", ["-- nothing\n", ";;\n"])
def test_empty_cell_reports_no_statement(run: Run, body: str) -> None:
    assert str(run(f"%%paimon\n{body}")) == "There is no statement."


@pytest.mark.parametrize(
    "cell", ["%%paimon --help", "%%paimon -h", "%%paimon", "%%paimon\n\n", "\n%%paimon -h \n"]
)
def test_single_line_cell_shows_its_help(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], cell: str
) -> None:
    shell.run_cell(cell).raise_error()
    assert capsys.readouterr().out == cell_help() + "\n"
    assert active_session() is None


@pytest.mark.parametrize(
    ("cell", "hint"),
    [
        ("%%paimon -o kept", "Statements begin on the line below %%paimon"),
        ("%%paimon --explain\n\n", "Statements begin on the line below %%paimon"),
        ("%%paimon tables", "as in: %paimon tables"),
        ("%%paimon describe orders\n", "as in: %paimon describe orders"),
    ],
)
def test_cell_without_a_body_hints_where_statements_go(
    shell: InteractiveShell, cell: str, hint: str
) -> None:
    failed = shell.run_cell(cell).error_in_exec
    assert isinstance(failed, StatementSyntaxError)
    assert hint in failed.hint
    assert active_session() is None


def test_cell_connects_as_configured_and_reports_warehouse(
    shell: InteractiveShell,
    spark: SparkSession,
    closed_at_the_end: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shell.run_cell("%paimon config warehouse=lake").raise_error()
    shell.run_cell("%paimon config database=default").raise_error()
    capsys.readouterr()
    shell.run_cell("%%paimon\nSHOW DATABASES").raise_error()
    lake = tmp_path / "lake"
    assert capsys.readouterr().out.startswith(
        f"Connected to {lake}.\nNew warehouse at {lake}: no tables yet.\n"
    )
    shell.run_cell("%%paimon\nSHOW DATABASES").raise_error()
    assert "Connected" not in capsys.readouterr().out
    session = active_session()
    assert session is not None
    assert session.warehouse == str(tmp_path / "lake")
