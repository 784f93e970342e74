"""What a MERGE would change: how many rows and files, and some of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_magics.columnar.merging import KIND
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.row_kinds import (
    KIND_NAMES,
    OLDER,
    PARTLY,
    UNCHANGED,
    UPDATE_AFTER,
)
from paimon_magics.planning.row_changes.unseen_counts import unseen_notes
from paimon_magics.planning.writes.losses import loss_texts
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.writes.merge_places import counted_rows
from paimon_magics.session.writes.merging import PreparedMerge, prepare_merge
from paimon_magics.session.writes.row_previews import (
    ROWS_MAX,
    ChangedRows,
    files_told,
    shown_columns,
    with_kinds,
)
from paimon_magics.spark.failures import translate
from paimon_magics.spark.fetching import fetched
from paimon_magics.spark.losses import counted_losses
from paimon_magics.spark.merging import MatchCounts
from paimon_magics.spark.queries import cancellable
from paimon_magics.spark.row_changes import row_counts
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.merge_into import MergeInto
from paimon_magics.tables.row_changes.selected_rows import FILE_COLUMN, PLACE_COLUMN

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = ["preview_merge"]


def preview_merge(
    connection: Connection,
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
        prepared = prepare_merge(connection, merge, parameters, source, released)
        table = prepared.insert.table
        kept = prepared.insert.frame.persist()
        released.callback(kept.unpersist)
        try:
            with cancellable(connection.spark):
                counts, files = _counts(prepared, kept)
                losses = counted_losses(kept)
                sample = _sample(prepared, kept)
        except Exception as error:
            raise located(translate(error), merge.text, merge.target_position) from error
    told = files_told(table, files, by_kinds=table.schema.is_primary_key_table)
    notes = unseen_notes(table.schema, counts.unseen, be="would be")
    notes += loss_texts(table.schema.columns, losses, be="would be")
    line = (
        f"`{table.name}`: {count_text(counts.updated, 'row')} would be updated, {counts.deleted:,} "
        f"deleted, {counts.inserted:,} inserted; {told}{_read(prepared)}"
    )
    return ChangedRows(table, " ".join([line, *notes]), sample)


def _read(prepared: PreparedMerge) -> str:
    """How many files were read, where some were left out."""
    steps = prepared.target.pruning_steps
    if len(steps) < 2:
        return ""
    return f" {count_text(steps[0].files, 'file')} of the table, {steps[-1].files:,} read."


def _counts(prepared: PreparedMerge, rows: DataFrame) -> tuple[MatchCounts, int]:
    """The rows by what becomes of them, and the files that have updated or deleted ones."""
    if prepared.plan.only_inserts:
        inserted, _ = row_counts(rows, None)
        return MatchCounts(inserted, 0, 0, 0), 0
    if prepared.places is None:
        return counted_rows(rows, prepared.insert.table.schema.primary_keys), 0
    counts = counted_rows(rows, (FILE_COLUMN, PLACE_COLUMN))
    _, files = row_counts(rows, FILE_COLUMN)  # inserted rows have none
    return counts, files


def _sample(prepared: PreparedMerge, rows: DataFrame) -> pa.Table:
    """Rows as they are written: an updated one with its new values, a deleted one as it was. Where
    files are written anew these have the columns that the statement needs; others stay."""
    schema = prepared.insert.table.schema
    names = [one.name for one in shown_columns(schema.columns)]
    if prepared.places is not None:
        needed = {schema.columns[at].name for at in prepared.places.needed}
        names = [name for name in names if name in needed]
    has_kinds = KIND in rows.columns
    taken = [*names, KIND] if has_kinds else names
    shown = rows.where(f"{KIND} NOT IN ({OLDER}, {UNCHANGED})") if has_kinds else rows
    found = fetched(shown.select(*(quoted(name) for name in taken)).limit(ROWS_MAX))
    numbers = found.column(KIND).to_pylist() if has_kinds else [0] * found.num_rows
    kinds = [KIND_NAMES[UPDATE_AFTER if number == PARTLY else number] for number in numbers]
    return with_kinds(found.select(names), kinds)
