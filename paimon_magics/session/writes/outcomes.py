"""The outcome of a statement that writes rows, and what follows its commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paimon_magics.planning.commits.requests import CommitReceipt
from paimon_magics.planning.compaction.inline import compacts_inline
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.schemas.written_options import options_not_applied
from paimon_magics.planning.writes.inserts import rows_hidden_by
from paimon_magics.planning.writes.losses import ColumnLoss, in_order, loss_texts
from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.writes.inline_compaction import compact_written
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import CompletedWrite
from paimon_magics.tables.writing.written_buckets import BucketKey

__all__ = [
    "NOTHING_WRITTEN",
    "WrittenFiles",
    "finished",
    "of_write",
    "with_losses",
    "write_outcome",
]


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """What a statement wrote. `rewritten` files took the place of others, `vectors` are those that
    were written; None where the statement did neither."""

    rows: int
    files: int
    size_bytes: int
    rewritten: int | None = None
    vectors: int | None = None

    @property
    def how(self) -> str:
        """The end of a sentence: which files were rewritten, or how many vectors written."""
        if self.rewritten:
            return f", {count_text(self.rewritten, 'file')} rewritten"
        if self.vectors:
            return f", {count_text(self.vectors, 'deletion vector')} written"
        return ""


NOTHING_WRITTEN = WrittenFiles(0, 0, 0)


def of_write(written: CompletedWrite) -> WrittenFiles:
    """What the writers of rows wrote."""
    return WrittenFiles(written.rows, written.files, written.size_bytes)


def write_outcome(
    statement: str,
    kind: str,
    table: Table,
    receipt: CommitReceipt | None,
    written: WrittenFiles,
    done: str,
) -> Outcome:
    """The outcome of a statement that was committed, or had nothing to commit (None). `done` says
    what became of the rows: "3 rows deleted"."""
    snapshot_id = None if receipt is None else receipt.snapshot_id
    snapshot = f"snapshot {snapshot_id}" if snapshot_id is not None else "no new snapshot"
    return Outcome(
        statement=statement,
        kind=kind,
        table=str(table.name),
        snapshot_id=snapshot_id,
        commit_kind=None if receipt is None else receipt.commit_kind,
        rows_written=written.rows,
        files_written=written.files,
        bytes_written=written.size_bytes,
        files_rewritten=written.rewritten,
        vectors_written=written.vectors,
        message=f"{kind} `{table.name}`: {done}{written.how} ({snapshot}).",
    )


def with_losses(outcome: Outcome, table: Table, losses: Sequence[ColumnLoss]) -> Outcome:
    """The outcome with the numbers of values that were rounded or cut."""
    columns = table.schema.columns
    outcome.values_changed = {one.column: one.rows for one in in_order(columns, losses)}
    outcome.notes = (*outcome.notes, *loss_texts(columns, losses))
    return outcome


def finished(
    connection: Connection,
    outcome: Outcome,
    table: Table,
    buckets: frozenset[BucketKey],
    *,
    overwrote: bool = False,
    files_each: int | None = None,
) -> Outcome:
    """The outcome with notes, after the written `buckets` were compacted, where the table's options
    ask for that. With `overwrote` their rows took the place of others. `files_each` is how many
    files one of them got at most, None if that is not known."""
    notes = _write_notes(table, compacts=connection.settings.inline_compaction)
    if outcome.snapshot_id is not None and buckets:
        id = outcome.snapshot_id
        if overwrote:
            notes += compact_written(connection, table, buckets, outcome.statement, overwritten=id)
        else:
            added = None if files_each is None else (id, files_each)
            notes += compact_written(connection, table, buckets, outcome.statement, added=added)
    outcome.notes = (*outcome.notes, *notes)
    return outcome


def _write_notes(table: Table, *, compacts: bool) -> tuple[str, ...]:
    """What the user of a written table may need to know."""
    schema = table.schema
    notes = []
    compacted = compacts and compacts_inline(schema)
    producer = schema.changelog_producer
    if schema.is_primary_key_table and producer == "lookup" and not compacted:
        notes.append("Changes appear in the changelog after the next compaction.")
    if schema.is_primary_key_table and producer == "full-compaction":
        notes.append("Changes appear in the changelog after the next full compaction.")
    hidden = rows_hidden_by(schema)
    if hidden is not None and not compacted:
        notes.append(f"The rows appear after the next compaction ({hidden}).")
    idle = options_not_applied(schema)
    if idle:
        shown = ", ".join(f"'{key}'" for key in idle)
        notes.append(
            f"Not applied here; other engines apply them when they compact or commit: {shown}."
        )
    return tuple(notes)
