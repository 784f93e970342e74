"""The SQL that stands beside a view gives what the view shows.

Every view that the code has needs a case here: they are enumerated, and one without a case fails.
The session is in a zone with summer time, the process is not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import paimon_widgets
from paimon_magics import Session
from paimon_magics.columnar.python_values import python_values
from paimon_magics.columnar.row_filters import kinds_of
from paimon_magics.planning.reads.row_filters import Condition, Order, RowFilter
from paimon_magics.session.opening import connect
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.reports.administration import Administration
from paimon_magics.session.reports.health import Health
from paimon_magics.session.reports.layout import Layout
from paimon_magics.session.reports.paging import ArrowRows, rows_of
from paimon_magics.session.reports.profile import Effort
from paimon_magics.session.reports.report import Report
from paimon_magics.session.reports.surface import Reporting
from paimon_widgets.health_view import HealthView
from paimon_widgets.layout_view import LayoutView
from paimon_widgets.report_view import ReportView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TABLES = """
CREATE TABLE orders (day STRING NOT NULL, id INT NOT NULL, item STRING, at TIMESTAMP, f FLOAT,
  tags MAP<STRING, INT>) PARTITIONED BY (day)
  TBLPROPERTIES ('primary-key' = 'day,id', 'bucket' = '2');
INSERT INTO orders VALUES
  ('mon', 1, 'tea', TIMESTAMP'2026-10-25 02:30:00+01:00', 1.1F, map('a', 1)),
  ('mon', 2, 'milk', NULL, 2.0F, NULL);
INSERT INTO orders VALUES ('tue', 3, 'cake', TIMESTAMP'2026-07-01 12:00:00', NULL, NULL);
INSERT INTO orders VALUES ('mon', 1, 'coffee', NULL, 1.1F, map('a', 1)),
  ('mon', 4, 'bun', NULL, 1.0F, NULL);
ALTER TABLE orders CREATE TAG three AS OF VERSION 3;
ALTER TABLE orders DROP PARTITION (day = 'tue');
CREATE TABLE `a``b.c` (d DATE, `r n` STRING, k INT) PARTITIONED BY (d, `r n`);
INSERT INTO `a``b.c` VALUES (DATE'2026-01-02', 'x', 1), (NULL, 'y', 2), (NULL, NULL, 4);
INSERT INTO `a``b.c` VALUES (DATE'2026-01-02', 'x', 3);
INSERT OVERWRITE `a``b.c` PARTITION (d = DATE'2026-01-02', `r n` = 'x') VALUES (3), (5);
CREATE TABLE prices (item INT NOT NULL, price INT, op STRING) TBLPROPERTIES (
  'primary-key' = 'item', 'bucket' = '1', 'changelog-producer' = 'input', 'rowkind.field' = 'op');
INSERT INTO prices VALUES (1, 10, '+I'), (2, 20, '+I');
INSERT INTO prices VALUES (1, 10, '-U'), (1, 11, '+U'), (2, 20, '-D');
INSERT OVERWRITE prices VALUES (3, 30, '+I')
"""

VIEWS: dict[str, tuple[Callable[[Session], Any], ...]] = {
    "Session.history": (lambda s: s.history("orders"), lambda s: s.history("`a``b.c`")),
    "Session.layout": (
        lambda s: s.layout("orders"),
        lambda s: s.layout("`a``b.c`"),
        lambda s: s.layout("prices"),
    ),
    "Session.health": (lambda s: s.health("orders"), lambda s: s.health()),
    "Session.run": (
        lambda s: s.run("SELECT * FROM orders ORDER BY id"),
        lambda s: s.run("SELECT * FROM orders ORDER BY id -- all", limit=2),
        lambda s: s.run(
            "SELECT id FROM orders WHERE item = :i OR id > :n", {"i": "bun", "n": 1}, limit=1
        ),
        lambda s: s.run("SHOW PARTITIONS orders"),
        lambda s: s.run("DESCRIBE orders"),
    ),
    "Reporting.snapshots": (
        lambda s: s.reports.snapshots("orders"),
        lambda s: s.reports.snapshots("prices"),
    ),
    "Reporting.diff": (
        lambda s: s.reports.diff("orders", "1", "three"),
        lambda s: s.reports.diff("orders", "3", "4"),
        lambda s: s.reports.diff("`a``b.c`", "1", "2"),
        lambda s: s.reports.diff("`a``b.c`", "2", "3"),
        lambda s: s.reports.diff("`a``b.c`", "2", "2"),
    ),
    "Reporting.changes": (
        lambda s: s.reports.changes("orders"),
        lambda s: s.reports.changes("orders$binlog", "0", "3"),
        lambda s: s.reports.changes("prices"),
        lambda s: s.reports.changes("prices$binlog"),
        lambda s: s.reports.changes("`a``b.c`"),
    ),
    "Reporting.files": (
        lambda s: s.reports.files("orders"),
        lambda s: s.reports.files("`a``b.c`", "d=2026-01-02"),
    ),
    "Reporting.partitions": (
        lambda s: s.reports.partitions("orders"),
        lambda s: s.reports.partitions("`a``b.c`"),
    ),
    "Reporting.profile": (
        lambda s: s.reports.profile("orders"),
        lambda s: s.reports.profile("`a``b.c`"),
        lambda s: s.reports.profile("prices", Effort.DISTINCT),
    ),
}
"""What gives rows by SQL."""

WITHOUT: dict[str, Callable[[Session], Any]] = {
    "Session.preview": lambda s: s.preview("TRUNCATE TABLE orders"),
    "Session.explain": lambda s: s.explain("INSERT OVERWRITE orders SELECT * FROM orders"),
    "Session.run": lambda s: s.run("DROP TABLE orders", dry_run=True),
    "Session.run --limit": lambda s: s.run("SHOW TABLES", limit=1),
    "Session.run --include-buffer": lambda s: s.run("SELECT * FROM orders", include_buffer=True),
    "Session.copy_into": lambda s: s.copy_into(
        f"{s.warehouse}-files/orders", "orders", "PARQUET", overwrite=True
    ),
    "Reporting.explain": lambda s: s.reports.explain("SELECT * FROM orders WHERE id = 1"),
    "Reporting.profile": lambda s: s.reports.profile("orders", Effort.STATISTICS),
}
"""What no SQL gives: none is offered."""

OF_COORDINATORS = {"Reporting.queue", *(
    f"Administration.{name}" for name in ("transactions", "queues", "dead_letters",
                                              "compactions")
)}  # fmt: skip
"""Looked at below, through a coordinator."""

MESSAGES = {
    *(f"Session.{name}" for name in ("write", "insert", "insert_async", "delete", "update",
                                    "flush", "compact")),
    *(f"Administration.{name}" for name in ("status", "retry", "discard", "reopen", "abort",
                                            "pause", "resume", "drain", "pause_compactions",
                                            "resume_compactions")),
}  # fmt: skip
"""What did something and tells of it: no rows, and nothing to copy."""


@pytest.fixture(scope="module")
def lake(spark: SparkSession, module_session: Session) -> Iterator[Session]:
    module_session.run("SET spark.sql.session.timeZone = Europe/Berlin")
    module_session.run(TABLES)
    yield module_session
    spark.conf.unset("spark.sql.session.timeZone")


def test_every_view_has_a_case() -> None:
    shown = {"Outcome", "Report", "Layout", "Health"}
    # A stream's view is of a query that runs: no statement makes it again.
    assert {name.rpartition(".")[2] for name in paimon_widgets._VIEWS} == shown | {"Stream"}
    methods = {
        f"{owner.__name__}.{name}"
        for owner in (Session, Reporting, Administration)
        for name, method in inspect.getmembers(owner, inspect.isfunction)
        if not name.startswith("_") and inspect.signature(method).return_annotation in shown
    }
    assert methods == {name.partition(" ")[0] for name in (*VIEWS, *WITHOUT)} | OF_COORDINATORS | (
        MESSAGES
    )


def test_coordinator_views_offer_no_sql(
    spark: SparkSession, tmp_path: Path, state_home: Path
) -> None:
    # Before the session of the other tests is opened: a process has one at a time.
    with connect(tmp_path / "lake", coordinator="embedded", spark=spark) as session:
        session.run("CREATE TABLE t (k INT) TBLPROPERTIES ('auto_batch_load' = 'true')")
        administration = session.administration
        for outcome in (
            administration.transactions(),
            administration.queues(),
            administration.dead_letters("t"),
            administration.compactions(),
        ):
            assert outcome.sql == ""
        assert [section.sql for section in session.reports.queue().sections] == [""] * 4


def as_text(rows: pa.Table) -> list[str]:
    columns = [python_values(column) for column in rows.columns]
    return sorted(str(row) for row in zip(*columns, strict=True))


def check(lake: Session, sql: str, rows: pa.Table, given: Sequence[str] | None, what: str) -> None:
    found = lake.run(sql).to_arrow()
    if given is not None:
        rows = rows.select([name for name in rows.column_names if name in given])
    assert found.column_names == rows.column_names, what
    assert as_text(found) == as_text(rows), f"{what}: {sql}"


def check_looks(lake: Session, rows: ArrowRows, given: Sequence[str] | None, what: str) -> None:
    """The same of rows that were filtered and sorted."""
    whole = rows.page(RowFilter(), 0, 1_000).rows
    kinds = kinds_of(whole.schema)
    names = [n for n in whole.column_names if given is None or n in given]
    by = next(name for name in names if kinds[name].kind.operators[0] == "=")
    row_filter = RowFilter((Order(by, descending=True),), (Condition(by, "is not null"),))
    check(
        lake, rows.sql(row_filter), rows.page(row_filter, 0, 1_000).rows, given, f"{what}, filtered"
    )


# The first of each in every run, and one in three of the others.
CASES = [
    pytest.param(name, number, marks=[pytest.mark.soak] if number and (place + number) % 3 else [])
    for place, (name, looks) in enumerate(VIEWS.items())
    for number in range(len(looks))
]


@pytest.mark.parametrize(("name", "number"), CASES)
def test_view_sql_returns_the_rows_of_the_view(lake: Session, name: str, number: int) -> None:
    view, what = VIEWS[name][number](lake), f"{name} {number}"
    match view:
        case Report():
            assert view.sql == view.sections[0].sql == ReportView(view).sql
            for section in view.sections:
                if section.heading == "Schema":
                    assert section.sql == ""
                    continue
                where = f"{what} {section.heading}"
                check(lake, section.sql, section.rows, section.in_query, where)
                if section.rows.num_rows and number == 0:
                    rows = ArrowRows(section.rows, section.query, section.in_query)
                    check_looks(lake, rows, section.in_query, where)
        case Outcome():
            check(lake, view.sql, view.data, view.in_query, what)
            rows = rows_of(view)
            if isinstance(rows, ArrowRows) and view.kind in ("SELECT", "HISTORY"):
                check_looks(lake, rows, view.in_query, what)
        case Layout():
            assert view.sql == LayoutView(view).sql
            check(lake, view.sql, view.data, None, what)
        case Health():
            widget = HealthView(view)
            check(lake, view.sql, view.partitions, None, what)
            check(lake, widget.sql, widget.data, None, f"{what}, chosen")
        case _:
            pytest.fail(f"{view!r} is no view")


@pytest.mark.parametrize("name", WITHOUT)
def test_views_without_equivalent_sql_offer_none(lake: Session, name: str) -> None:
    view = WITHOUT[name](lake)
    assert view.sql == ""
    if isinstance(view, Report) or view.shows_rows:
        assert [sheet["sql"] for sheet in ReportView(view).report["sheets"]] == [""]
    assert lake.run("SELECT count(*) AS n FROM orders").data.to_pylist() == [{"n": 3}]


def test_filter_after_limit_applies_to_limited_rows(lake: Session) -> None:
    outcome = lake.run("SELECT id, item FROM orders ORDER BY id", limit=2)
    rows = rows_of(outcome)
    row_filter = RowFilter((Order("id"),), (Condition("id", ">", "1"),))
    assert rows.page(row_filter, 0, 20).rows.column("id").to_pylist() == [2]
    check(lake, rows.sql(row_filter), rows.page(row_filter, 0, 20).rows, None, "limited")
