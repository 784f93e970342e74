"""The profile of a table's columns: NULLs, least and greatest value, number of distinct values.

If the statistics of all files are exact and no row hides another, they give it without a job. For
the rest one Spark job reads the table once. The report says for each column which it was.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence, Set
from enum import Enum
from typing import Any

import pyarrow as pa

from paimon_magics.columnar.time_zones import rules_of
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.queries.frames import read_plan
from paimon_magics.session.queries.relations import Relation
from paimon_magics.session.queries.table_frames import frame_of_table
from paimon_magics.session.rendering import shown_value
from paimon_magics.session.reports.report import Report, Section
from paimon_magics.statements.clauses.names import quoted, table_text, text_literal
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.types.type_text import to_spark_sql
from paimon_magics.tables.manifests.column_statistics import Bounds, column_bounds
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.snapshots.targets import TableState

__all__ = ["Effort", "profile_of"]

_FILES, _JOB, _NOWHERE = "file statistics", "Spark job", "not known"
_EXACT_VALUES_MAX = 2_000_000
"""Up to this many values, of all columns together, distinct values are counted, not estimated."""
_ESTIMATED = "≈distinct"
_COUNT_ALL = "Different values of all columns are counted by %paimon profile {} --distinct."


class Effort(Enum):
    """How far to go: only the files' statistics; a job for what they don't say; or a job that also
    counts distinct values."""

    STATISTICS = "--statistics"
    NEEDED = ""
    DISTINCT = "--distinct"


def profile_of(
    connection: Connection, name: TableName, shown: str, effort: Effort = Effort.NEEDED
) -> Report:
    """Report a row for each column, by at most one Spark job. Distinct values are counted if that
    is cheap, else estimated in a column `≈distinct`. Raises UnknownNameError, JobError."""
    _, read = read_plan(connection, Relation(name))
    columns = read.schema.columns
    known: dict[str, Bounds] = {}
    rows: int | None = None
    stored: int | None = None
    needs_merge = bool(read.planned.splits)
    if isinstance(read.target, TableState):
        table = connection.catalog.load(name)
        folder = connection.manifests(table.location, lambda: ManifestCache(table.paimon))
        snapshot = read.target.snapshot
        files = None if snapshot is None else live_files(folder, snapshot)
        stored = 0 if files is None else sum(files["row_count"].to_pylist())
        if not needs_merge:
            rows = stored
            if files is not None:
                known = column_bounds(files, TableSchemas(table.paimon).columns, columns)
    lacking = [
        one for one in columns if rows != 0 and not _is_known(one, known.get(one.name, Bounds()))
    ]
    wants_job = effort is Effort.DISTINCT or (effort is Effort.NEEDED and bool(lacking))
    asked = columns if effort is Effort.DISTINCT else tuple(lacking) if wants_job else ()
    is_exact = stored is not None and stored * len(asked) <= _EXACT_VALUES_MAX
    names = frozenset(one.name for one in asked)
    counted: Mapping[str, Any] = {}
    if wants_job:
        rows, counted = _counted(connection, name, _query(asked, names, is_exact=is_exact))
    found = pa.Table.from_pylist(
        [_row(one, known.get(one.name, Bounds()), counted, rows, connection.zone)
         for one in columns],
        schema=_schema(is_exact=is_exact),
    )  # fmt: skip
    how = f"one Spark job for {count_text(len(asked), 'column')}" if wants_job else "no Spark job"
    count = "an unknown number of rows" if rows is None else count_text(rows, "row")
    notes = []
    if needs_merge:
        notes.append(
            "Rows of one key lie in several files: only a job can tell which of them count."
        )
    if not wants_job and lacking:
        unsaid = ", ".join(one.name for one in lacking)
        notes.append(f"File statistics do not have all of {unsaid}: a Spark job would.")
    if asked and not is_exact:
        notes.append(
            f"{_ESTIMATED} is an estimate (approx_count_distinct): of three columns two are within "
            "5 %, nearly all within 10 %."
        )
    if None in found.column(5).to_pylist() and effort is not Effort.DISTINCT:
        notes.append(_COUNT_ALL.format(shown))
    notes += _moments(columns, connection.zone)
    # Without a job, the query would give more than the rows if statistics are lacking.
    query = f"{_query(columns, names, is_exact=is_exact)} FROM {table_text(name)})"
    text = query if wants_job or not lacking else ""
    section = Section("", found, text, in_query=tuple(found.column_names[:-1]))
    return Report("PROFILE", f"{shown}: {count}, {how}", (section,), tuple(notes))


def _moments(columns: Sequence[Column], zone: str) -> list[str]:
    """The note on the zone in which instants are shown."""
    moments = ", ".join(f"`{one.name}`" for one in columns if to_spark_sql(one.type) == "TIMESTAMP")
    return [f"{moments} in {zone}"] if moments else []


def _schema(*, is_exact: bool) -> pa.Schema:
    return pa.schema(
        [
            ("column", pa.string()),
            ("type", pa.string()),
            ("nulls", pa.int64()),
            ("min", pa.string()),
            ("max", pa.string()),
            ("distinct" if is_exact else _ESTIMATED, pa.int64()),
            ("from", pa.string()),
        ]
    )


def _is_known(column: Column, bounds: Bounds) -> bool:
    return bounds.nulls is not None and (bounds.is_exact or not _is_ordered(column))


def _is_ordered(column: Column) -> bool:
    return isinstance(column.type, AtomicType) and "BINARY" not in to_spark_sql(column.type)


def _query(columns: Sequence[Column], counted: Set[str], *, is_exact: bool) -> str:
    """The query for the rows of a profile, up to the name of the table. It counts the distinct
    values of the `counted` columns."""
    rows = []
    for column in columns:
        name = quoted(column.name)
        is_ordered = _is_ordered(column)
        bounds = [f"CAST({one}({name}) AS STRING)" if is_ordered else "CAST(NULL AS STRING)"
                  for one in ("min", "max")]  # fmt: skip
        # An estimate can be higher than the number of values.
        count = (
            "count(DISTINCT {0})" if is_exact else "least(approx_count_distinct({0}), count({0}))"
        )
        is_counted = is_ordered and column.name in counted
        values = {
            "column": text_literal(column.name),
            "type": text_literal(to_spark_sql(column.type)),
            "nulls": f"count(*) - count({name})",
            "min": bounds[0],
            "max": bounds[1],
            "distinct" if is_exact else _ESTIMATED: count.format(name)
            if is_counted
            else "CAST(NULL AS BIGINT)",
        }
        parts = (f"{value} AS {quoted(key)}" for key, value in values.items())
        rows.append(f"struct({', '.join(parts)})")
    return f"SELECT inline(columns) FROM (SELECT array({', '.join(rows)}) AS columns"


def _counted(
    connection: Connection, name: TableName, query: str
) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run the job; return the number of rows, and the profile row of each column."""
    frame = frame_of_table(connection, name)
    text = query.partition("(SELECT ")[2]
    found = Outcome(f"profile {name}", "SELECT", dataframe=frame).fetched(
        lambda frame: frame.selectExpr("count(*) AS rows", text).toArrow()
    )
    (row,) = found.to_pylist()
    return row["rows"], {one["column"]: one for one in row["columns"]}


def _row(
    column: Column,
    bounds: Bounds,
    counted: Mapping[str, Any],
    rows: int | None,
    zone: str,
) -> dict[str, object]:
    found = counted.get(column.name)
    base = {"column": column.name, "type": to_spark_sql(column.type)}
    if found is not None:
        return {**found, "from": _JOB}
    if rows == 0:
        return {**base, "nulls": 0, "from": _FILES}
    exact = bounds.is_exact
    least, greatest = (
        _text(one, column, zone) if exact and one is not None else None
        for one in (bounds.least, bounds.greatest)
    )
    return {
        **base,
        "nulls": bounds.nulls,
        "min": least,
        "max": greatest,
        "from": _NOWHERE if bounds.nulls is None and not exact else _FILES,
    }


def _text(value: Any, column: Column, zone: str) -> str:
    """A bound as Spark casts it to text, in `zone`; files have instants in UTC."""
    is_instant = isinstance(column.type, AtomicType) and column.type.name == "TIMESTAMP_LTZ"
    if is_instant and isinstance(value, datetime.datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        value = moment.astimezone(rules_of(zone)).replace(tzinfo=None)
    return shown_value(value)
