"""The rows that a DELETE or UPDATE selects, as a frame, and the values that they get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.predicates import ColumnPredicate, column_predicates
from paimon_magics.planning.row_changes.assignments import AssignedPath
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.planning.writes.inserts import FromInput
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.parameters import bind
from paimon_magics.session.planned_work import made_of
from paimon_magics.session.queries.frames import Selection, frame_of_query
from paimon_magics.session.writes.exactness import check_policy
from paimon_magics.spark.casting import project
from paimon_magics.spark.failures import translate
from paimon_magics.spark.row_changes import with_assigned
from paimon_magics.statements.row_changes import Delete, RowChange
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = [
    "Changed",
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
) -> DataFrame:
    """`columns` of the selected rows, with the values that are assigned, cast to the columns' types
    as those of an INSERT."""
    try:
        assigned = with_assigned(selected, columns, paths)
        if connection.settings.store_assignment != "ansi":
            check_policy(connection.spark, assigned, columns)
        sources = [FromInput(position) for position in range(len(columns))]
        return made_of(project(connection.spark, assigned, columns, sources, {}), selected)
    except Exception as error:
        raise located(translate(error), change.text, change.target_position) from error


@dataclass(frozen=True, slots=True)
class Changed:
    """What a statement changed: rows, and what was written for that."""

    rows: int
    rows_written: int
    files_written: int
    bytes_written: int
    files_rewritten: int | None = None
    vectors_written: int | None = None

    @property
    def how(self) -> str:
        """The end of a sentence: which files were rewritten, or how many vectors written."""
        if self.files_rewritten:
            return f", {count_text(self.files_rewritten, 'file')} rewritten"
        if self.vectors_written:
            return f", {count_text(self.vectors_written, 'deletion vector')} written"
        return ""


def changed_outcome(
    change: RowChange,
    table: Table,
    snapshot_id: int | None,
    commit_kind: str | None,
    changed: Changed,
) -> Outcome:
    """The outcome of a DELETE or UPDATE that looked at rows."""
    kind = kind_of(change)
    snapshot = f"snapshot {snapshot_id}" if snapshot_id is not None else "no new snapshot"
    deletes = isinstance(change, Delete)
    how = changed.how
    done = f"{count_text(changed.rows, 'row')} {'deleted' if deletes else 'updated'}"
    return Outcome(
        statement=change.text,
        kind=kind,
        table=str(table.name),
        snapshot_id=snapshot_id,
        commit_kind=commit_kind,
        rows_written=changed.rows_written,
        files_written=changed.files_written,
        bytes_written=changed.bytes_written,
        rows_deleted=changed.rows if deletes else None,
        rows_updated=None if deletes else changed.rows,
        files_rewritten=changed.files_rewritten,
        vectors_written=changed.vectors_written,
        message=f"{kind} `{table.name}`: {done}{how} ({snapshot}).",
    )
