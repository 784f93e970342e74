"""The outcome of a statement that writes rows, and what follows its commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.commits.requests import (
    Append,
    CommitReceipt,
    InsertChange,
    OverwritePartitions,
    OverwriteTouched,
)
from paimon_magics.planning.compaction.schedule import INLINE_BYTES_MAX, compacts_inline, is_full
from paimon_magics.planning.formatting import count_text, size_text, stored_rows_text
from paimon_magics.planning.options.changelog_producers import NO_CHANGELOG
from paimon_magics.planning.schemas.written_options import options_not_applied
from paimon_magics.planning.writes.inserts import rows_hidden_by
from paimon_magics.planning.writes.losses import ColumnLoss, in_order, loss_texts
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.scope import StatementScope, errors_translated
from paimon_magics.session.writes.compaction import compact_plan, planned_compaction
from paimon_magics.session.writes.prepare import PreparedWrite
from paimon_magics.spark.queries import cancellable
from paimon_magics.statements.clauses.names import table_text
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.commits.replaced_partitions import PartitionSize, sizes_of_replaced
from paimon_magics.tables.compaction.planning import CompactionScope
from paimon_magics.tables.compaction.plans import may_be_due
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import BucketKey
from paimon_magics.tables.writing.table_write import CompletedWrite

_CLAIMS_WAIT_MS = 60_000  # the rows are committed, and show after the next compaction


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """What a statement wrote. `rewritten` files took the place of others, `vectors` are those that
    were written; None if the statement did neither."""

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
    """The outcome of a statement that was committed, or had nothing to commit (None). `done` is the
    change of the rows in words: "3 rows deleted"."""
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
    outcome.values_changed = {loss.column: loss.rows for loss in in_order(columns, losses)}
    outcome.notes = (*outcome.notes, *loss_texts(columns, losses))
    return outcome


def finished(
    scope: StatementScope,
    outcome: Outcome,
    table: Table,
    buckets: frozenset[BucketKey],
    *,
    overwrote: bool = False,
    files_each: int | None = None,
) -> Outcome:
    """The outcome with notes, after the written `buckets` were compacted, where the table's options
    ask for that. With `overwrote` their rows took the place of others. `files_each` is the upper
    bound on the files that each of them got, None if unknown."""
    notes = _write_notes(table, compacts=scope.settings.inline_compaction)
    if outcome.snapshot_id is not None and buckets:
        id = outcome.snapshot_id
        if overwrote:
            notes += _compact_written(scope, table, buckets, outcome.statement, overwritten=id)
        else:
            added = None if files_each is None else (id, files_each)
            notes += _compact_written(scope, table, buckets, outcome.statement, added=added)
    outcome.notes = (*outcome.notes, *notes)
    return outcome


def _write_notes(table: Table, *, compacts: bool) -> tuple[str, ...]:
    """What the user of a written table may need to know."""
    schema = table.schema
    notes = []
    compacted = compacts and compacts_inline(schema)
    if schema.is_primary_key_table and schema.producer.looks_up and not compacted:
        notes.append("Changes appear in the changelog after the next compaction.")
    if schema.is_primary_key_table and schema.producer.compacts_fully:
        notes.append("Changes appear in the changelog after the next full compaction.")
    hidden = rows_hidden_by(schema)
    if hidden is not None and not compacted:
        notes.append(f"The rows appear after the next compaction ({hidden}).")
    idle = options_not_applied(schema)
    if idle:
        shown = ", ".join(f"'{key}'" for key in idle)
        notes.append(
            f"Not applied by a statement; others apply them when they compact or commit: {shown}."
        )
    return tuple(notes)


# Compacts the buckets that a statement has written, as Paimon's writers do after their flush.
#
# The statement's rows are committed before. So whatever becomes of the compaction, no row depends
# on it: a failure or an interrupt leaves it out, and a note says so.


def _compact_written(
    scope: StatementScope,
    table: Table,
    buckets: frozenset[BucketKey],
    statement: str,
    *,
    overwritten: int | None = None,
    added: tuple[int, int] | None = None,
) -> tuple[str, ...]:
    """Compact the buckets that were written, if the table's options ask for it; return notes.
    `overwritten` is the snapshot in which their rows replaced others. `added` is the snapshot that
    added files to them, and the upper bound on the files for each."""
    if not (scope.settings.inline_compaction and compacts_inline(table.schema)):
        return ()
    try:
        if not buckets:
            return ()
        if added is not None and table.schema.is_primary_key_table:
            manifests = scope.manifests(table)
            if not may_be_due(table, added[0], buckets, added[1], manifests):
                return ()
        extent = CompactionScope(
            is_full(table.schema), buckets=buckets, overwritten_snapshot=overwritten
        )
        plan = planned_compaction(scope, table, extent)
        if plan is None:
            return ()
        if plan.read_bytes > INLINE_BYTES_MAX:
            return (
                f"{size_text(plan.read_bytes)} of `{table.name}` wait for a compaction, too much "
                f"to run after a statement. Run CALL sys.compact('{table_text(table.name)}').",
            )
        # Where rows show without a compaction, another one that runs on the bucket is enough.
        wait_ms = _CLAIMS_WAIT_MS if table.schema.looks_up else 0
        compact_plan(scope, plan, extent, statement, claims_wait_ms=wait_ms)
        return ()
    except Exception as error:
        reason = error.message if isinstance(error, PaimonMagicsError) else repr(error)
        return (f"The rows are committed; compacting them failed: {reason}",)
    except KeyboardInterrupt:
        return ("The rows are committed; the compaction after it was interrupted.",)


# What a statement removes from a table: partitions, files, bytes and rows.


@dataclass(frozen=True, slots=True)
class Replaced:
    """The partitions of a table that lose rows, and what they lose."""

    table: Table
    sizes: Sequence[PartitionSize]


def replaced_by_insert(prepared: PreparedWrite) -> Replaced:
    """Return what an INSERT replaces. A dynamic overwrite runs its query to find partitions."""
    table, frame = prepared.table, prepared.frame
    change: InsertChange = prepared.change
    match change:
        case Append():
            return Replaced(table, ())
        case OverwritePartitions(specs=specs):
            return Replaced(table, sizes_of_replaced(table, specs=specs))
        case OverwriteTouched():
            keys = list(table.schema.partition_keys)
            with errors_translated(), cancellable(frame.sparkSession):
                written = frame.select(*keys).distinct().toArrow()
            values = [tuple(row.values()) for row in written.to_pylist()]
            return Replaced(table, sizes_of_replaced(table, partitions=values))


def rows_back(name: TableName, snapshot_id: int) -> str:
    """Return how to get a table's rows back as they were in a snapshot."""
    return (
        f"CALL sys.rollback('{name}', '{snapshot_id}') brings the rows back as they were, until "
        f"snapshot {snapshot_id} expires."
    )


def removal_notes(table: Table, snapshot_id: int) -> tuple[str, ...]:
    """What to know after whole partitions were removed: how to get their rows back as they were in
    a snapshot, and the note of `overwrite_notes`."""
    return (rows_back(table.name, snapshot_id), *overwrite_notes(table))


def overwrite_notes(table: Table) -> tuple[str, ...]:
    """A note that a changelog does not have what a commit of whole partitions changed, as in Paimon
    (`FileStoreCommitImpl.overwritePartition`); () for a table without changelog."""
    if table.schema.producer == NO_CHANGELOG:
        return ()
    return (
        "The changelog does not have this change, and streams pass over it. With "
        "'delete.force-produce-changelog' = 'true' a DELETE of the rows is in both.",
    )


def rows_taken(sizes: Sequence[PartitionSize]) -> str:
    """Return `9,200,000 rows in 48 files (3.1 GiB) of 365 partitions`, or `nothing`. It says
    `stored rows` if reading merges some of them."""
    if not sizes:
        return "nothing"
    rows, files = sum(size.rows for size in sizes), sum(size.files for size in sizes)
    size = size_text(sum(size.size_bytes for size in sizes))
    where = f" of {count_text(len(sizes), 'partition')}" if sizes[0].partition else ""
    rows_text = stored_rows_text(rows, is_merged=any(size.is_merged for size in sizes))
    return f"{rows_text} in {count_text(files, 'file')} ({size}){where}"
