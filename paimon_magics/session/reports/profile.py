"""The profile of a table's columns: NULLs, least and greatest value, number of distinct values,
whether they are unique.

If the statistics of all files are exact and no row hides another, they give it without a job. For
the rest one Spark job reads the table once. The report names the source for each column.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pyarrow as pa

from paimon_magics.columnar.time_zones import rules_of
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.queries.planned_reads import read_plan
from paimon_magics.session.queries.relations import Relation
from paimon_magics.session.queries.table_frames import frame_of_table
from paimon_magics.session.rendering import shown_value
from paimon_magics.session.reports.report import Report, Section
from paimon_magics.session.scope import StatementScope
from paimon_magics.statements.clauses.names import quoted, table_text, text_literal
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.types.type_text import to_spark_sql
from paimon_magics.tables.manifests.column_statistics import Bounds, column_bounds
from paimon_magics.tables.manifests.live_files import live_files
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.reading.data_read import DataRead
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.snapshots.analyzed import TableStatistics, table_statistics
from paimon_magics.tables.snapshots.targets import TableState

_FILES, _JOB, _NOWHERE = "file statistics", "Spark job", "not known"
_ANALYZED = "ANALYZE"
_EXACT_VALUES_MAX = 2_000_000
"""Up to this many values, of all columns together, distinct values are counted, not estimated."""
_EXACT, _ESTIMATED = "distinct", "≈distinct"
_COUNTS = {
    _EXACT: "count(DISTINCT {0})",
    # An estimate can be higher than the number of values.
    _ESTIMATED: "least(approx_count_distinct({0}), count({0}))",
}
_REPEATS_BELOW = 0.8
"""Estimates are within a tenth of the number of values."""
_COUNT_ALL = "Different values of all columns are counted by %paimon profile {} --distinct."


class Effort(Enum):
    """How far to go: only the files' statistics; a job for the values that they lack; or a job that
    also counts distinct values."""

    STATISTICS = "--statistics"
    NEEDED = ""
    DISTINCT = "--distinct"


def profile_of(
    scope: StatementScope, name: TableName, shown: str, effort: Effort = Effort.NEEDED
) -> Report:
    """Report a row for each column, by at most one Spark job. Distinct values are counted if that
    is cheap, else estimated in a column `≈distinct`. Raises UnknownNameError, JobError."""
    _, read = read_plan(scope, Relation(name))
    columns, key = read.schema.columns, read.schema.primary_keys
    needs_merge = bool(read.planned.splits)
    manifests = _of_manifests(scope, name, read, needs_merge=needs_merge)
    known, partitions, rows = manifests.bounds, manifests.partitions, manifests.rows
    lacking = [
        column
        for column in columns
        if rows != 0 and not _is_known(column, known.get(column.name, Bounds()))
    ]
    wants_job = effort is Effort.DISTINCT or (effort is Effort.NEEDED and bool(lacking))
    targets = lacking if wants_job else []
    if effort is Effort.DISTINCT:
        targets = [
            column for column in columns if column in lacking or column.name not in partitions
        ]
    stored = manifests.stored_rows
    is_exact = stored is not None and stored * len(targets) <= _EXACT_VALUES_MAX
    analyzed = None if wants_job else manifests.analyzed
    title = _EXACT if is_exact and not (analyzed and analyzed.is_current) else _ESTIMATED
    counts = {column.name: _COUNTS[title] for column in targets}
    counts |= dict.fromkeys(partitions, _COUNTS[_EXACT])
    counted: Mapping[str, Any] = {}
    if wants_job:
        rows, counted = _counted(scope, name, _query(targets, counts, title))
    if analyzed is not None and analyzed.is_current:
        rows = analyzed.rows if rows is None else rows
        counted = _of_analysis(columns, known, analyzed, scope.zone)
    drawn = []
    for column in columns:
        row = _row(column, known.get(column.name, Bounds()), counted, rows, scope.zone)
        distinct = partitions.get(column.name, row.get(title))
        is_unique = True if key == (column.name,) else _is_unique(distinct, rows, title)
        drawn.append({**row, title: distinct, "unique": is_unique})
    profile = pa.Table.from_pylist(drawn, schema=_schema(title))
    how = f"one Spark job for {count_text(len(targets), 'column')}" if wants_job else "no Spark job"
    count = "an unknown number of rows" if rows is None else count_text(rows, "row")
    notes = _notes(
        shown,
        lacking=[] if wants_job else lacking,
        needs_merge=needs_merge,
        is_estimated=bool(targets) and not is_exact,
    )
    if None in profile.column(5).to_pylist() and effort is not Effort.DISTINCT:
        notes.append(_COUNT_ALL.format(shown))
    if analyzed is not None:
        notes.append(_note_on(analyzed, shown))
    notes += _moments(columns, scope.zone)
    # Without a job, the query would give more than the rows if statistics are lacking.
    query = f"{_query(columns, counts, title)} FROM {table_text(name)})"
    text = query if wants_job or not lacking else ""
    section = Section("", profile, text, in_query=tuple(profile.column_names[:-2]))
    return Report("PROFILE", f"{shown}: {count}, {how}", (section,), tuple(notes))


def _notes(
    shown: str, *, lacking: Sequence[Column], needs_merge: bool, is_estimated: bool
) -> list[str]:
    """What the reader of the profile of the table `shown` needs to know; `lacking` are the columns
    whose values no job has looked for."""
    notes = []
    if needs_merge:
        notes.append(
            "Rows of one key are in several files: only a job can determine which of them count."
        )
    if lacking:
        unsaid = ", ".join(missing.name for missing in lacking)
        notes.append(f"File statistics lack values of {unsaid}: a Spark job would find them.")
    if is_estimated:
        notes.append(
            f"{_ESTIMATED} is an estimate (approx_count_distinct): of three columns two are within "
            "5 %, nearly all within 10 %."
        )
    return notes


def _moments(columns: Sequence[Column], zone: str) -> list[str]:
    """The note on the zone in which instants are shown."""
    moments = ", ".join(
        f"`{column.name}`" for column in columns if to_spark_sql(column.type) == "TIMESTAMP"
    )
    return [f"{moments} in {zone}"] if moments else []


@dataclass(frozen=True, slots=True)
class _Manifests:
    """What is stored beside the rows. `analyzed` is what ANALYZE found, None for nothing. The
    values that manifests have: the rows in files, None if unknown, and the table's rows,
    None if files hide rows of each other; then also the bounds of columns, and how many values each
    partition column has."""

    stored_rows: int | None = None
    rows: int | None = None
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)
    analyzed: TableStatistics | None = None


def _of_analysis(
    columns: Sequence[Column], known: Mapping[str, Bounds], analyzed: TableStatistics, zone: str
) -> dict[str, dict[str, Any]]:
    """The profile rows of the columns that were analyzed. Bounds are those of the files."""
    rows = {}
    for column in columns:
        statistics = analyzed.columns.get(column.name)
        bounds = known.get(column.name, Bounds())
        if statistics is None:
            continue
        least, greatest = (
            _text(bound, column, zone) if bounds.is_exact and bound is not None else None
            for bound in (bounds.least, bounds.greatest)
        )
        rows[column.name] = {
            "column": column.name,
            "type": to_spark_sql(column.type),
            "nulls": statistics.get("nullCount") if bounds.nulls is None else bounds.nulls,
            "min": least,
            "max": greatest,
            _ESTIMATED: statistics.get("distinctCount"),
            "from": _ANALYZED,
        }
    return rows


def _note_on(analyzed: TableStatistics, shown: str) -> str:
    what = f"ANALYZE looked at snapshot {analyzed.snapshot_id}"
    if analyzed.is_current:
        return f"{what}, whose rows are those of now; its numbers of distinct values are estimates."
    return (
        f"{what}, and rows have changed since: its numbers are not shown. To count anew: ANALYZE "
        f"TABLE {shown} COMPUTE STATISTICS FOR ALL COLUMNS."
    )


def _of_manifests(
    scope: StatementScope, name: TableName, read: DataRead, *, needs_merge: bool
) -> _Manifests:
    if not isinstance(read.target, TableState):
        return _Manifests()
    snapshot = read.target.snapshot
    if snapshot is None:
        return _Manifests(0, None if needs_merge else 0)
    table = scope.catalog.load(name)
    folder = scope.manifests(table)
    files = live_files(folder, snapshot)
    stored = sum(files["row_count"].to_pylist())
    analyzed = table_statistics(table, snapshot)
    if needs_merge:
        return _Manifests(stored, analyzed=analyzed)
    bounds = column_bounds(files, TableSchemas(table.paimon).columns, read.schema.columns)
    partitions = _partition_counts(table.paimon, read.schema.partition_keys, files)
    return _Manifests(stored, stored, bounds, partitions, analyzed)


def _partition_counts(paimon: Any, keys: Sequence[str], files: pa.Table) -> dict[str, int]:
    """How many values each partition column has, by the files' manifest entries."""
    if not keys:
        return {}
    partitions, _ = partition_values(paimon, files)
    columns = zip(*partitions, strict=True) if partitions else ([] for _ in keys)
    return {
        key: len({value for value in values if value is not None})
        for key, values in zip(keys, columns, strict=True)
    }


def _schema(title: str) -> pa.Schema:
    return pa.schema(
        [
            ("column", pa.string()),
            ("type", pa.string()),
            ("nulls", pa.int64()),
            ("min", pa.string()),
            ("max", pa.string()),
            (title, pa.int64()),
            ("unique", pa.bool_()),
            ("from", pa.string()),
        ]
    )


def _is_known(column: Column, bounds: Bounds) -> bool:
    return bounds.nulls is not None and (bounds.is_exact or not _is_ordered(column))


def _is_ordered(column: Column) -> bool:
    return isinstance(column.type, AtomicType) and "BINARY" not in to_spark_sql(column.type)


def _query(columns: Sequence[Column], counts: Mapping[str, str], title: str) -> str:
    """The query for the rows of a profile, up to the name of the table. The distinct values of the
    columns that `counts` names are in the column `title`."""
    rows = []
    for column in columns:
        name = quoted(column.name)
        is_ordered = _is_ordered(column)
        bounds = [f"CAST({function}({name}) AS STRING)" if is_ordered else "CAST(NULL AS STRING)"
                  for function in ("min", "max")]  # fmt: skip
        is_counted = is_ordered and column.name in counts
        values = {
            "column": text_literal(column.name),
            "type": text_literal(to_spark_sql(column.type)),
            "nulls": f"count(*) - count({name})",
            "min": bounds[0],
            "max": bounds[1],
            title: counts[column.name].format(name) if is_counted else "CAST(NULL AS BIGINT)",
        }
        parts = (f"{value} AS {quoted(key)}" for key, value in values.items())
        rows.append(f"struct({', '.join(parts)})")
    return f"SELECT inline(columns) FROM (SELECT array({', '.join(rows)}) AS columns"


def _counted(
    scope: StatementScope, name: TableName, query: str
) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run the job; return the number of rows, and the profile row of each column."""
    frame = frame_of_table(scope, name)
    text = query.partition("(SELECT ")[2]
    result = Outcome(f"profile {name}", "SELECT", dataframe=frame).fetched(
        lambda frame: frame.selectExpr("count(*) AS rows", text).toArrow()
    )
    (row,) = result.to_pylist()
    return row["rows"], {profile["column"]: profile for profile in row["columns"]}


def _row(
    column: Column,
    bounds: Bounds,
    counted: Mapping[str, Any],
    rows: int | None,
    zone: str,
) -> dict[str, Any]:
    profile = counted.get(column.name)
    base = {"column": column.name, "type": to_spark_sql(column.type)}
    if profile is not None:
        return {"from": _JOB, **profile}
    if rows == 0:
        return {**base, "nulls": 0, "from": _FILES}
    exact = bounds.is_exact
    least, greatest = (
        _text(bound, column, zone) if exact and bound is not None else None
        for bound in (bounds.least, bounds.greatest)
    )
    return {
        **base,
        "nulls": bounds.nulls,
        "min": least,
        "max": greatest,
        "from": _NOWHERE if bounds.nulls is None and not exact else _FILES,
    }


def _is_unique(distinct: int | None, rows: int | None, title: str) -> bool | None:
    """Whether each row has a value of its own; None if it is not known. An estimate far below the
    number of rows shows that values repeat; no estimate shows that they don't."""
    if distinct is None or rows is None:
        return None
    if title == _EXACT:
        return distinct == rows
    return False if distinct < _REPEATS_BELOW * rows else None


def _text(value: Any, column: Column, zone: str) -> str:
    """A bound as Spark casts it to text, in `zone`; files have instants in UTC."""
    is_instant = isinstance(column.type, AtomicType) and column.type.name == "TIMESTAMP_LTZ"
    if is_instant and isinstance(value, datetime.datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        value = moment.astimezone(rules_of(zone)).replace(tzinfo=None)
    return shown_value(value)
