"""The rows that a DELETE or UPDATE selects, as a frame, and the values that they get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from paimon_magics.planning.commits.requests import CommitReceipt
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.predicates import ColumnPredicate, column_predicates
from paimon_magics.planning.row_changes.assignments import AssignedPath
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.planning.writes.inserts import FromInput
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.parameters import bind
from paimon_magics.session.planned_work import made_of
from paimon_magics.session.queries.frames import frame_of_query
from paimon_magics.session.queries.selections import Selection
from paimon_magics.session.writes.exactness import check_policy
from paimon_magics.session.writes.outcomes import WrittenFiles, write_outcome
from paimon_magics.spark.casting import project
from paimon_magics.spark.failures import translate
from paimon_magics.spark.row_changes import kind_text, with_assigned
from paimon_magics.statements.row_changes import Delete, RowChange
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = [
    "changed_outcome",
    "kind_of",
    "new_values",
    "predicates_of",
    "selected_rows",
]


def kind_of(change: RowChange) -> str:
    """DELETE or UPDATE."""
    return "DELETE" if isinstance(change, Delete) else "UPDATE"


def selected_rows(
    connection: Connection,
    change: RowChange,
    parameters: Mapping[str, object],
    table: Table,
    snapshot_id: int,
    frame: DataFrame | None = None,
) -> DataFrame:
    """The rows of a snapshot that a statement selects, with the values that it assigns. `frame`
    takes the place of the table's own."""
    chosen = change.selection
    selection = Selection(
        replace(table.name, system_table=None),
        snapshot_id,
        chosen.target_position,
        chosen.replacements,
        frame,
    )
    return frame_of_query(connection, change.text, chosen.query, parameters, selection=selection)


def predicates_of(
    connection: Connection, change: RowChange, parameters: Mapping[str, object], table: Table
) -> tuple[ColumnPredicate, ...]:
    """Conditions on columns that all selected rows meet; there may be others."""
    query = change.selection.query
    bound = bind(query.parameters, parameters, change.text, connection.zone)
    filters = [
        one
        for reference in query.references
        if reference.range.start == change.selection.target_position
        for one in reference.filters
    ]
    return tuple(column_predicates(filters, table.schema.columns, bound))


def new_values(
    connection: Connection,
    change: RowChange,
    selected: DataFrame,
    columns: Sequence[Column],
    paths: Sequence[AssignedPath],
    kind: int | None = None,
) -> DataFrame:
    """`columns` of the selected rows, with the values that are assigned, cast to the columns' types
    as those of an INSERT; then the rows' `kind`, Paimon's number, if it is given.

    What is not assigned stays as it is: a NULL from before its column got a default, too."""
    changed = {path.column.name for path in paths}
    columns = [one if one.name in changed else replace(one, default=None) for one in columns]
    try:
        assigned = with_assigned(selected, columns, paths)
        if connection.settings.store_assignment != "ansi":
            check_policy(connection.spark, assigned, columns)
        sources = [FromInput(position) for position in range(len(columns))]
        more = () if kind is None else (kind_text(kind),)
        rows = project(connection.spark, assigned, columns, sources, {}, more=more)
        return made_of(rows, selected)
    except Exception as error:
        raise located(translate(error), change.text, change.target_position) from error


def changed_outcome(
    change: RowChange, table: Table, receipt: CommitReceipt | None, rows: int, written: WrittenFiles
) -> Outcome:
    """The outcome of a DELETE or UPDATE that changed `rows`; None where it committed nothing."""
    deletes = isinstance(change, Delete)
    done = f"{count_text(rows, 'row')} {'deleted' if deletes else 'updated'}"
    outcome = write_outcome(change.text, kind_of(change), table, receipt, written, done)
    if deletes:
        outcome.rows_deleted = rows
    else:
        outcome.rows_updated = rows
    return outcome
