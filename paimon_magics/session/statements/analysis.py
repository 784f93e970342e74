"""ANALYZE TABLE: one job over the table as it is now, whose counts and bounds are kept in a file of
table statistics, by a snapshot of the kind ANALYZE.

The numbers are those of Spark's own ANALYZE, in the form of Paimon's connector:
distinct values are estimated, texts have lengths and no bounds.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from functools import partial
from typing import Any

from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import UnknownNameError, UnsupportedStatementError, nearest
from paimon_magics.planning.commits.requests import Analyze, CommitRequest
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.provenance import Operation, provenance
from paimon_magics.session.queries.table_frames import frame_of_table
from paimon_magics.session.scope import StatementScope, errors_translated
from paimon_magics.session.statements.handler import Handler, done
from paimon_magics.session.writes.transactions import begun, committed
from paimon_magics.spark.queries import cancellable
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import AtomicType, family_of
from paimon_magics.statements.statement import AnalyzeTable
from paimon_magics.statements.types.type_text import to_spark_sql
from paimon_magics.tables.commits.replaced_partitions import sizes_of_replaced
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.table import Table

_DISTINCT_ERROR = "spark.sql.statistics.ndv.maxError"
# The sizes of values of a type, as Spark counts them (`DataType.defaultSize`).
_SIZES = {
    **{"BOOLEAN": 1, "TINYINT": 1, "SMALLINT": 2, "INT": 4, "BIGINT": 8, "FLOAT": 4, "DOUBLE": 8},
    **{"DATE": 4, "TIMESTAMP": 8, "TIMESTAMP_LTZ": 8},
}
_DECIMAL_DIGITS_MAX = 18  # of a DECIMAL that takes 8 bytes
_DECIMAL_SIZES = (8, 16)
_TIMESTAMP_DIGITS = 6  # of a type that names none
_PLAIN_FROM, _PLAIN_TO = 1e-3, 1e7  # Java writes other numbers with an exponent


def analyze_handler(scope: StatementScope, statement: AnalyzeTable) -> Handler:
    """ANALYZE TABLE."""

    def lines() -> list[str]:
        table, columns = _checked(scope, statement)
        what = f"and of {count_text(len(columns), 'column')}" if columns else "alone"
        how = "No job runs" if statement.no_scan else "One job reads the table"
        return [
            f"{table.name}: statistics of its rows {what} are kept in a snapshot of the kind "
            f"ANALYZE. {how}."
        ]

    return Handler(
        run=partial(_run, scope, statement),
        dry_run=lambda: "Would run. " + " ".join(lines()),
        explain=lambda mode: lines(),
        changed=lambda: (statement.name,),
        needs=(statement.name,),
    )


def _checked(scope: StatementScope, statement: AnalyzeTable) -> tuple[Table, list[Column]]:
    """The table and the columns to analyze. Raises UnknownNameError for a missing column,
    UnsupportedStatementError for a type that has no statistics."""
    table = scope.load(statement.name, statement.text, statement.name_position)
    schema = table.schema
    names = {name.lower(): name for name in schema.column_names}
    columns = []
    wanted = schema.column_names if statement.columns is None else statement.columns
    for name in wanted:
        if name.lower() not in names:
            raise UnknownNameError(
                f"There is no column `{name}` in `{table.name}`.",
                hint=nearest(name, schema.column_names, what="columns"),
                statement=statement.text,
                position=max(statement.text.rfind(name), 0),
            )
        column = schema.column(names[name.lower()])
        if not _has_statistics(column):
            raise UnsupportedStatementError(
                f"`{column.name}` is a column of type {to_spark_sql(column.type)}, which has no "
                "statistics.",
                hint="Name the columns to analyze: FOR COLUMNS "
                f"{', '.join(c.name for c in schema.columns if _has_statistics(c))}.",
                statement=statement.text,
                position=statement.name_position,
            )
        columns.append(column)
    if statement.no_scan and (schema.is_primary_key_table or schema.deletion_vectors_enabled):
        raise UnsupportedStatementError(
            f"NOSCAN does not tell the rows of `{table.name}`: rows of a key are merged, and some "
            "can be deleted.",
            hint="Leave NOSCAN out: one job counts the rows.",
            statement=statement.text,
            position=statement.name_position,
        )
    return table, columns


def _has_statistics(column: Column) -> bool:
    if not isinstance(column.type, AtomicType):
        return False
    known = column.type.name in _SIZES or column.type.name == "DECIMAL"
    return known or family_of(column.type) in ("text", "binary")


def _run(scope: StatementScope, statement: AnalyzeTable) -> Outcome:
    table, columns = _checked(scope, statement)
    snapshot = latest_snapshot(table.paimon)
    if snapshot is None:
        message = f"`{table.name}` has no rows to analyze."
        return done(statement, "ANALYZE TABLE", table.name, message)
    stored = int(snapshot.total_record_count or 0)
    counted = {"rows": stored}
    if not statement.no_scan:
        counted = _counted(scope, statement, table, columns, int(snapshot.id))
    count = int(counted["rows"])
    size = sum(of.size_bytes for of in sizes_of_replaced(table, specs=()))
    statistics = {
        "snapshotId": int(snapshot.id),
        "schemaId": table.schema.schema_id,
        "mergedRecordCount": count,
        "mergedRecordSize": size * count // stored if stored else 0,
        "colStats": {
            column.name: _column_statistics(column, counted, at)
            for at, column in enumerate(columns)
        },
    }
    attempts = Attempts(reruns_max=0)
    transaction = begun(scope, table.name, None, attempts, compacts=True)
    properties = provenance(scope, statement.text, Operation("ANALYZE"))
    change = Analyze(json.dumps(statistics, indent=2))
    receipt = committed(scope, CommitRequest(transaction, change, properties=properties))
    of_columns = f" and {count_text(len(columns), 'column')}" if columns else ""
    outcome = done(
        statement,
        "ANALYZE TABLE",
        table.name,
        f"ANALYZE `{table.name}`: statistics of {count_text(count, 'row')}{of_columns} are in "
        f"`{table.name}$statistics` (snapshot {receipt.snapshot_id}).",
    )
    outcome.snapshot_id, outcome.commit_kind = receipt.snapshot_id, receipt.commit_kind
    outcome.notes = attempts.notes()
    return outcome


def _counted(
    scope: StatementScope,
    statement: AnalyzeTable,
    table: Table,
    columns: list[Column],
    snapshot_id: int,
) -> dict[str, Any]:
    """The counts and bounds of the snapshot's rows, by one job. The names of those of a column
    begin with its place in `columns`."""
    wanted = ["count(1) AS rows"]
    error = scope.spark.conf.get(_DISTINCT_ERROR, "0.05")
    for at, column in enumerate(columns):
        name = quoted(column.name)
        wanted += [
            f"count({name}) AS `{at} values`",
            f"least(approx_count_distinct({name}, {error}), count({name})) AS `{at} distinct`",
        ]
        if _is_of_length(column):
            wanted += [
                f"ceil(avg(length({name}))) AS `{at} average`",
                f"max(length({name})) AS `{at} longest`",
            ]
        else:
            least, greatest = (_python(column, f"{end}({name})") for end in ("min", "max"))
            wanted += [f"{least} AS `{at} least`", f"{greatest} AS `{at} greatest`"]
    frame = frame_of_table(scope, table.name, {"scan.snapshot-id": str(snapshot_id)})
    with errors_translated(statement.text, statement.name_position), cancellable(scope.spark):
        row = frame.selectExpr(*wanted).head()
    assert row is not None
    return dict(row.asDict())


def _is_of_length(column: Column) -> bool:
    return family_of(column.type) in ("text", "binary")


def _python(column: Column, value: str) -> str:
    """A value as Python takes it: it has no years beyond 9999, and shows instants in its zone."""
    assert isinstance(column.type, AtomicType)
    match column.type.name:
        case "TIMESTAMP_LTZ":
            return f"unix_micros({value})"
        case "DATE":
            return f"unix_date({value})"
        case "TIMESTAMP":
            return f"CAST({value} AS STRING)"
    return value


def _column_statistics(column: Column, counted: dict[str, Any], at: int) -> dict[str, Any]:
    """As Paimon's `ColStats`; what is not known is left out."""
    assert isinstance(column.type, AtomicType)
    if _is_of_length(column):
        least = greatest = None
        average, longest = counted[f"{at} average"] or 0, counted[f"{at} longest"] or 0
    else:
        least, greatest = (_text(column, counted[f"{at} {end}"]) for end in ("least", "greatest"))
        average = longest = _size(column.type)
    document = {
        "colId": column.id,
        "distinctCount": int(counted[f"{at} distinct"]),
        "min": least,
        "max": greatest,
        "nullCount": int(counted["rows"]) - int(counted[f"{at} values"]),
        "avgLen": int(average),
        "maxLen": int(longest),
    }
    return {key: value for key, value in document.items() if value is not None}


def _size(data_type: AtomicType) -> int:
    if data_type.name != "DECIMAL":
        return _SIZES[data_type.name]
    return _DECIMAL_SIZES[data_type.parameters[0] > _DECIMAL_DIGITS_MAX]


def _text(column: Column, value: Any) -> str | None:
    """A bound as Paimon's serializer of its type writes it (`InternalSerializers`)."""
    assert isinstance(column.type, AtomicType)
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case Decimal():
            return format(value, "f")
        case float():
            return _java_number(value, is_single=column.type.name == "FLOAT")
        case int() if column.type.name == "TIMESTAMP_LTZ":
            import numpy as np

            return _clock(str(np.datetime64(value, "us")).replace("T", " "), column.type)
        case str():
            return _clock(value.removeprefix("+"), column.type)
    return str(value)


def _clock(text: str, data_type: AtomicType) -> str:
    """As `DateTimeUtils.formatTimestamp`: the fraction has the digits of the type, and others only
    where they are not 0."""
    digits = data_type.parameters[0] if data_type.parameters else _TIMESTAMP_DIGITS
    time, _, fraction = text.partition(".")
    fraction = fraction.ljust(9, "0")
    shown = fraction[:digits] + fraction[digits:].rstrip("0")
    return f"{time}.{shown}" if shown else time


def _java_number(value: float, *, is_single: bool) -> str:
    """A number as Java's `toString` writes it, with as few digits as tell it apart."""
    import numpy as np

    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    number = np.float32(value) if is_single else np.float64(value)
    if number == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_TO:
        return str(np.format_float_positional(number, trim="0"))
    text = str(np.format_float_scientific(number, trim="0", exp_digits=1))
    digits, _, exponent = text.partition("e")
    return f"{digits}E{int(exponent)}"
