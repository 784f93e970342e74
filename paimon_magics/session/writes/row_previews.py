"""What a DELETE or UPDATE would change: how many rows and files, and some of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.row_changes.assignments import assigned_paths
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.writes.prepare import PreparedInsert
from paimon_magics.session.writes.row_changes import PreparedChange, prepare_row_change
from paimon_magics.session.writes.row_selection import new_values, selected_rows
from paimon_magics.spark.failures import translate
from paimon_magics.spark.fetching import fetched
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.row_changes import row_counts
from paimon_magics.spark.rows import frame_of_rows
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import contains_type
from paimon_magics.statements.row_changes import VALUE_PREFIX, RowChange, Update
from paimon_magics.tables.row_changes.rewriting import FILE_COLUMN
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = ["ChangedRows", "preview_rows"]

_ROWS_MAX = 10
_KIND = "rowkind"


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """What a statement would change: `line` has the numbers. `sample` are at most 10 of the rows,
    with their kind before the columns: -D, or -U and +U for the row before and after."""

    table: Table
    line: str
    sample: pa.Table


def preview_rows(
    connection: Connection, change: RowChange, parameters: Mapping[str, object]
) -> ChangedRows:
    """Select the rows that a DELETE or UPDATE would change, by two jobs; nothing is written.

    Raises what planning the statement raises, and JobError where its condition or values fail.
    """
    prepared = prepare_row_change(connection, change, parameters)
    table = prepared.table
    try:
        with cancellable(connection.spark):
            line = _numbers(change, prepared)
            sample = _sample(connection, change, parameters, prepared)
    except Exception as error:
        raise located(translate(error), change.text, change.target_position) from error
    return ChangedRows(table, f"`{table.name}`: {line}", sample)


def _numbers(change: RowChange, prepared: PreparedChange) -> str:
    done = "updated" if isinstance(change, Update) else "deleted"
    if isinstance(prepared, PreparedInsert):
        rows, _ = row_counts(prepared.frame, None)
        return f"{count_text(rows, 'row')} would be {done}, by rows that are added; no file goes."
    rows, files = 0, 0
    if prepared.plan is not None and prepared.plan.units:
        rows, files = row_counts(prepared.selected, FILE_COLUMN)
    marks = prepared.table.schema.deletion_vectors_enabled
    how = "get deletion vectors" if marks else "be written anew"
    return f"{count_text(rows, 'row')} would be {done}; {count_text(files, 'file')} would {how}."


def _sample(
    connection: Connection,
    change: RowChange,
    parameters: Mapping[str, object],
    prepared: PreparedChange,
) -> pa.Table:
    """Rows that the statement selects, and what becomes of them. Values are those of this run: the
    statement itself may get others from `rand()`. Columns with a VARIANT are left out."""
    table = prepared.table
    columns = [one for one in table.schema.columns if not contains_type(one.type, "VARIANT")]
    names = [one.name for one in columns]
    paths = assigned_paths(change, table.schema) if isinstance(change, Update) else ()
    shown = [path for path in paths if path.column in columns]
    given = [f"{VALUE_PREFIX}{path.number}" for path in shown]
    selected = selected_rows(connection, change, parameters, table, prepared.base_snapshot_id)
    rows = fetched(_of(selected, [*names, *given]).limit(_ROWS_MAX))
    before = rows.select(names)
    if not isinstance(change, Update):
        return _with_kinds(before, ["-D"] * before.num_rows)
    again = frame_of_rows(connection.spark, rows)
    values = new_values(connection, change, again, columns, shown)
    after = fetched(values).cast(before.schema) if rows.num_rows else before
    pairs = [at + side for at in range(rows.num_rows) for side in (0, rows.num_rows)]
    both = pa.concat_tables([before, after]).take(pa.array(pairs, pa.int64()))
    return _with_kinds(both, ["-U", "+U"] * rows.num_rows)


def _of(frame: DataFrame, names: list[str]) -> DataFrame:
    return frame.select(*(quoted(name) for name in names))


def _with_kinds(rows: pa.Table, kinds: list[str]) -> pa.Table:
    name = _KIND
    while name in rows.column_names:
        name = f"_{name}"
    return rows.add_column(0, name, pa.array(kinds, pa.string()))
