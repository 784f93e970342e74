"""What a DELETE, UPDATE or MERGE would change: how many rows and files, and some of the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_magics.columnar.merging import KIND
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.views import KIND_NAMES, OLDER, PARTLY, UNCHANGED, UPDATE_AFTER
from paimon_magics.planning.row_changes.merged_updates import UnseenCounts, unseen_notes
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.planning.writes.losses import ColumnLoss, loss_texts
from paimon_magics.session.row_changes.delete_update import PreparedChange, prepare_row_change
from paimon_magics.session.row_changes.merge import PreparedMerge, prepare_merge
from paimon_magics.session.row_changes.merge_join import counted_rows
from paimon_magics.session.row_changes.point_changes import PreparedKeys
from paimon_magics.session.row_changes.selection import ChangeOnTable
from paimon_magics.session.scope import StatementScope, errors_translated
from paimon_magics.session.writes.prepare import PreparedWrite
from paimon_magics.spark.fetching import fetched
from paimon_magics.spark.losses import counted_losses, without_losses
from paimon_magics.spark.merge_rows import MatchCounts
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.rows import frame_of_rows
from paimon_magics.spark.updated_rows import row_counts, unseen_counts
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.data_types import contains_type
from paimon_magics.statements.statement import VALUE_PREFIX, MergeInto, RowChange, Update
from paimon_magics.tables.row_changes.selected_rows import FILE_COLUMN, PLACE_COLUMN
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.row_counters import LossyRows, UnseenRows

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame


_ROWS_MAX = 10
"""How many rows a preview shows."""

_KIND = "rowkind"


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """What a statement would change: `line` has the numbers. `sample` are at most 10 of the rows,
    with their kind before the columns: -D, or -U and +U for the row before and after."""

    table: Table
    line: str
    sample: pa.Table


def preview_rows(
    scope: StatementScope, change: RowChange, parameters: Mapping[str, object]
) -> ChangedRows:
    """Select the rows that a DELETE or UPDATE would change, by two jobs; nothing is written.

    Raises what planning the statement raises, and JobError where its condition or values fail.
    """
    prepared = prepare_row_change(scope, change, parameters)
    table = prepared.table
    on = ChangeOnTable(scope, change, parameters, table, prepared.base_snapshot_id)
    with errors_translated(change.text, change.target_position), cancellable(scope.spark):
        line = _numbers(change, prepared)
        sample = _sample(on)
    return ChangedRows(table, f"`{table.name}`: {line}", sample)


def _numbers(change: RowChange, prepared: PreparedChange) -> str:
    done = "updated" if isinstance(change, Update) else "deleted"
    unseen = UnseenCounts()
    losses: tuple[ColumnLoss, ...] = ()
    if isinstance(prepared, PreparedKeys):
        marked, lossy = UnseenRows(), LossyRows()
        batches = map(lossy.noted, map(marked.written, prepared.rows().to_batches()))
        rows, files = sum(batch.num_rows for batch in batches), 0
        unseen, losses = marked.counts, lossy.counts
    elif isinstance(prepared, PreparedWrite) and prepared.marks_unseen:
        unseen = unseen_counts(prepared.frame)
        rows, files = row_counts(prepared.frame, None)[0] - unseen.unwritten, 0
    elif isinstance(prepared, PreparedWrite):
        rows, files = row_counts(prepared.frame, None)[0], 0
    elif prepared.plan is not None and prepared.plan.units:
        rows, files = row_counts(prepared.selected, FILE_COLUMN)
        losses = counted_losses(prepared.selected)
    else:
        rows, files = 0, 0
    if isinstance(prepared, PreparedWrite):
        losses = counted_losses(prepared.frame)
    by_kinds = isinstance(prepared, PreparedWrite)
    files_text = _files_text(prepared.table, files, by_kinds=by_kinds)
    schema = prepared.table.schema
    notes = unseen_notes(schema, unseen, be="would be")
    notes += loss_texts(schema.columns, losses, be="would be")
    return " ".join([f"{count_text(rows, 'row')} would be {done}; {files_text}", *notes])


def _files_text(table: Table, files: int, *, by_kinds: bool) -> str:
    """What becomes of the `files` that have changed rows; `by_kinds` rows of a kind are written."""
    if by_kinds:
        return "their new state would be written as rows of a kind, merged by key."
    if table.schema.data_evolution_enabled:
        return (
            f"{count_text(files, 'range')} of rows would get files of the new values, or vectors."
        )
    marks = table.schema.deletion_vectors_enabled
    how = "get deletion vectors" if marks else "be written anew"
    return f"{count_text(files, 'file')} would {how}."


def shown_columns(columns: Sequence[Column]) -> list[Column]:
    """The columns that a preview shows: a VARIANT can't be fetched."""
    return [column for column in columns if not contains_type(column.type, "VARIANT")]


def _sample(on: ChangeOnTable) -> pa.Table:
    """Rows that the statement selects, before and after it. Values are those of this run: the
    statement itself may get others from `rand()`. Columns with a VARIANT are left out."""
    columns = shown_columns(on.table.schema.columns)
    names = [column.name for column in columns]
    shown = [path for path in on.paths if path.column in columns]
    values = [f"{VALUE_PREFIX}{path.number}" for path in shown]
    rows = fetched(_of(on.selected(), [*names, *values]).limit(_ROWS_MAX))
    before = rows.select(names)
    if not isinstance(on.change, Update):
        return with_kinds(before, ["-D"] * before.num_rows)
    again = frame_of_rows(on.scope.spark, rows)
    changed = without_losses(on.new_values(again, columns, paths=shown))
    after = fetched(changed).cast(before.schema) if rows.num_rows else before
    pairs = [at + side for at in range(rows.num_rows) for side in (0, rows.num_rows)]
    both = pa.concat_tables([before, after]).take(pa.array(pairs, pa.int64()))
    return with_kinds(both, ["-U", "+U"] * rows.num_rows)


def _of(frame: DataFrame, names: list[str]) -> DataFrame:
    return frame.select(*(quoted(name) for name in names))


def with_kinds(rows: pa.Table, kinds: list[str]) -> pa.Table:
    """The rows with their kinds as the first column."""
    name = _KIND
    while name in rows.column_names:
        name = f"_{name}"
    return rows.add_column(0, name, pa.array(kinds, pa.string()))


# What a MERGE would change: how many rows and files, and some of the rows.


def preview_merge(
    scope: StatementScope,
    merge: MergeInto,
    parameters: Mapping[str, object],
    source: DataFrame | None = None,
) -> ChangedRows:
    """Join as the MERGE would, once, and count what becomes of the rows; nothing is written.
    `source` takes the place of the statement's.

    Raises what running the statement raises before it writes, InvalidValueError for a row that
    several source rows would change included.
    """
    with ExitStack() as released:
        prepared = prepare_merge(scope, merge, parameters, source, released)
        table = prepared.insert.table
        rows = prepared.insert.frame.persist()
        released.callback(rows.unpersist)
        with errors_translated(merge.text, merge.target_position), cancellable(scope.spark):
            counts, files = _counts(prepared, rows)
            losses = counted_losses(rows)
            sample = _merge_sample(prepared, rows)
    files_text = _files_text(table, files, by_kinds=table.schema.is_primary_key_table)
    notes = unseen_notes(table.schema, counts.unseen, be="would be")
    notes += loss_texts(table.schema.columns, losses, be="would be")
    line = (
        f"`{table.name}`: {count_text(counts.updated, 'row')} would be updated, {counts.deleted:,} "
        f"deleted, {counts.inserted:,} inserted; {files_text}{_read(prepared)}"
    )
    return ChangedRows(table, " ".join([line, *notes]), sample)


def _read(prepared: PreparedMerge) -> str:
    """How many files were read, where some were left out."""
    steps = prepared.target.pruning_steps
    if len(steps) < 2:
        return ""
    return f" {count_text(steps[0].files, 'file')} of the table, {steps[-1].files:,} read."


def _counts(prepared: PreparedMerge, rows: DataFrame) -> tuple[MatchCounts, int]:
    """The rows by kind of change, and the files that have updated or deleted rows."""
    if prepared.plan.only_inserts:
        inserted, _ = row_counts(rows, None)
        return MatchCounts(inserted, 0, 0, 0), 0
    if prepared.places is None:
        return counted_rows(rows, prepared.insert.table.schema.primary_keys), 0
    counts = counted_rows(rows, (FILE_COLUMN, PLACE_COLUMN))
    _, files = row_counts(rows, FILE_COLUMN)  # inserted rows have none
    return counts, files


def _merge_sample(prepared: PreparedMerge, rows: DataFrame) -> pa.Table:
    """Rows as they are written: an updated one with its new values, a deleted one as it was. Where
    files are written anew these have the columns that the statement needs; others stay."""
    schema = prepared.insert.table.schema
    names = [shown_column.name for shown_column in shown_columns(schema.columns)]
    if prepared.places is not None:
        needed = {schema.columns[at].name for at in prepared.places.needed}
        names = [name for name in names if name in needed]
    has_kinds = KIND in rows.columns
    taken = [*names, KIND] if has_kinds else names
    shown = rows.where(f"{KIND} NOT IN ({OLDER}, {UNCHANGED})") if has_kinds else rows
    sample = fetched(shown.select(*(quoted(name) for name in taken)).limit(_ROWS_MAX))
    numbers = sample.column(KIND).to_pylist() if has_kinds else [0] * sample.num_rows
    kinds = [KIND_NAMES[UPDATE_AFTER if number == PARTLY else number] for number in numbers]
    return with_kinds(sample.select(names), kinds)
