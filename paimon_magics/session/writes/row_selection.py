"""The rows that a DELETE or UPDATE selects, as a frame, and the values that they get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from paimon_magics.errors import OutdatedPlanError, PaimonMagicsError, UnsupportedStatementError
from paimon_magics.planning.commits.requests import CommitReceipt
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.predicates import ColumnPredicate, column_predicates
from paimon_magics.planning.row_changes.assignments import AssignedPath, assigned_paths
from paimon_magics.planning.row_changes.engine_rules import check_moves
from paimon_magics.planning.row_changes.merged_updates import (
    ALL_SEEN,
    MergedUpdate,
    UnseenCounts,
    merged_update,
    unseen_notes,
)
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.planning.writes.inserts import FromInput
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.parameters import bind
from paimon_magics.session.planned_work import made_of
from paimon_magics.session.provenance import Operation
from paimon_magics.session.queries.frames import frame_of_query
from paimon_magics.session.queries.planned_reads import SnapshotLeases
from paimon_magics.session.queries.relations import Selection
from paimon_magics.session.scope import StatementScope, located
from paimon_magics.session.writes.exactness import check_policy
from paimon_magics.session.writes.outcomes import WrittenFiles, write_outcome
from paimon_magics.spark.casting import project
from paimon_magics.spark.failures import translate
from paimon_magics.spark.losses import lossy_columns
from paimon_magics.spark.row_changes import (
    before_columns,
    kind_text,
    with_assigned,
    with_merged_kinds,
)
from paimon_magics.spark.row_places import placed_rows
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.queries.query_traits import input_file_call
from paimon_magics.statements.row_changes import Delete, RowChange, Update
from paimon_magics.tables.row_changes.looked_up_keys import LookedUpKeys
from paimon_magics.tables.row_changes.selected_rows import PlacedFiles
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame


def kind_of(change: RowChange) -> str:
    """DELETE or UPDATE."""
    return "DELETE" if isinstance(change, Delete) else "UPDATE"


def check_no_file_calls(text: str, position: int, kind: str) -> None:
    """Raise UnsupportedStatementError if a text asks for the files of rows that a statement of this
    kind changes: Python reads these, and Spark does not know their files."""
    call = input_file_call(text[position:])
    if call is not None:
        raise UnsupportedStatementError(
            f"{call} has no answer for the rows that {kind} changes.",
            hint="Name the rows by their columns; SELECT input_file_name() tells where they lie.",
            statement=text,
            position=position,
        )


def paths_of(change: RowChange, schema: TableSchema) -> tuple[AssignedPath, ...]:
    """What a statement assigns; a DELETE assigns nothing. Raises what `assigned_paths` does."""
    return assigned_paths(change, schema) if isinstance(change, Update) else ()


def merged_update_of(change: RowChange, table: Table) -> MergedUpdate | None:
    """What the merge engine makes of the rows that a statement updates; None for a DELETE.

    Raises the errors of wrong assignments, and UnsupportedStatementError for those that the engine
    does not carry out.
    """
    if not isinstance(change, Update):
        return None
    paths = paths_of(change, table.schema)
    assigned = {path.column.name for path in paths}
    nulls = {path.column.name for path in paths if _is_null(change, path)}
    try:
        check_moves(table.name, table.schema, assigned)
        return merged_update(table.name, table.schema, assigned, nulls)
    except PaimonMagicsError as error:
        raise located(error, change.text, change.target_position) from None


def _is_null(update: Update, path: AssignedPath) -> bool:
    """Whether a column gets NULL in all rows, as far as the statement's text says."""
    value = update.assignments[path.number].value
    if path.fields or path.column.default is not None:
        return False
    return value is None or update.text[value.start : value.end].strip().upper() == "NULL"


def operation_of(change: RowChange, rows: int) -> Operation:
    """What a snapshot tells of a DELETE or UPDATE that changed `rows`."""
    if isinstance(change, Delete):
        return Operation("DELETE", deleted=rows)
    return Operation("UPDATE", updated=rows)


def selected_rows(
    scope: StatementScope,
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
    return frame_of_query(scope, change.text, chosen.query, parameters, selection=selection)


def predicates_of(
    scope: StatementScope, change: RowChange, parameters: Mapping[str, object], table: Table
) -> tuple[ColumnPredicate, ...]:
    """Conditions on columns that all selected rows meet; there may be others."""
    query = change.selection.query
    bound = bind(query.parameters, parameters, change.text, scope.zone)
    filters = [
        one
        for reference in query.references
        if reference.range.start == change.selection.target_position
        for one in reference.filters
    ]
    return tuple(column_predicates(filters, table.schema.columns, bound))


def new_values(
    scope: StatementScope,
    change: RowChange,
    selected: DataFrame,
    columns: Sequence[Column],
    paths: Sequence[AssignedPath],
    kind: int | None = None,
    merged: MergedUpdate | None = None,
) -> DataFrame:
    """`columns` of the selected rows, with the values that are assigned, cast to the columns' types
    as those of an INSERT; then the rows' `kind`, Paimon's number, if it is given. `merged` says
    what the merge engine makes of updated rows.

    What is not assigned stays as it is: a NULL from before its column got a default, too."""
    changed = {path.column.name for path in paths}
    columns = [
        column if column.name in changed else replace(column, default=None) for column in columns
    ]
    before = {} if merged is None else before_columns(merged)
    try:
        carried = [f"{quoted(name)} AS {quoted(to)}" for name, to in before.items()]
        assigned = with_assigned(selected, columns, paths, carried)
        if scope.settings.store_assignment != "ansi":
            check_policy(scope.spark, assigned, [*columns, *[None] * len(before)])
        sources = [FromInput(position) for position in range(len(columns))]
        stored = [column if column.name in changed else None for column in columns]
        losses = lossy_columns(assigned, [*stored, *[None] * len(before)])
        kinds = [] if kind is None else [kind_text(kind)]
        more: list[Any] = [*map(quoted, before.values()), *kinds, *losses]
        rows = project(scope.spark, assigned, columns, sources, {}, more=more)
        if merged is not None and not merged.is_plain:
            rows = with_merged_kinds(rows, columns, merged, before)
        return made_of(rows, selected)
    except Exception as error:
        raise located(translate(error), change.text, change.target_position) from error


def changed_outcome(
    change: RowChange,
    table: Table,
    receipt: CommitReceipt | None,
    rows: int,
    written: WrittenFiles,
    unseen: UnseenCounts = ALL_SEEN,
) -> Outcome:
    """The outcome of a DELETE or UPDATE that changed `rows`; None where it committed nothing. The
    `unseen` rows of an UPDATE did not change, or in part."""
    deletes = isinstance(change, Delete)
    done = f"{count_text(rows, 'row')} {'deleted' if deletes else 'updated'}"
    outcome = write_outcome(change.text, kind_of(change), table, receipt, written, done)
    if deletes:
        outcome.rows_deleted = rows
    else:
        outcome.rows_updated, outcome.rows_unchanged = rows, unseen.unwritten
        outcome.notes = unseen_notes(table.schema, unseen)
    return outcome


# The rows of a snapshot's files with their places, as a frame that keeps the snapshot.


def placed_frame(
    scope: StatementScope,
    table: Table,
    snapshot_id: int,
    files: PlacedFiles | None,
    columns: Sequence[Column],
    more: Sequence[Column] = (),
    keys: LookedUpKeys | None = None,
) -> DataFrame:
    """`placed_rows` of files of a snapshot, 0 for none, which stays for as long as the frame does.
    Raises OutdatedPlanError if it has expired."""
    with SnapshotLeases(scope.committer) as leases:
        if snapshot_id and not leases.hold(replace(table.name, system_table=None), snapshot_id):
            raise OutdatedPlanError(
                f"Snapshot {snapshot_id} of `{table.name}` expired before it was read.",
                hint="Nothing was written. Run the statement again, or keep snapshots longer: "
                "'snapshot.num-retained.min', 'snapshot.time-retained'.",
            )
        rows = placed_rows(scope.spark, files, columns, more, scope.slots, keys)
        return leases.noted(rows)
