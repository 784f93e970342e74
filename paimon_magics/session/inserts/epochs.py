"""Writes the micro-batches of a stream, its epochs, each in one commit and once.

Spark runs the last epoch of a query again after a restart, with the same number and the same rows.
Before anything of an epoch can be committed, its transaction is noted beside the table
(`tables.commits.epochs`). A coordinator writes the note: it takes that of a query from the query's
owner alone, and the keys of sessions may write no notes. When the epoch comes again, the note says
what to look for:

| it died | then |
|---|---|
| before the note | the epoch is written |
| before the commit | its transaction is ended, its files are removed, the epoch is written again |
| while it was committed | the commit's outcome is awaited; then one of the two other cases |
| after the commit | the epoch is passed over |

The transaction is looked up again after it was ended: a commit that was still on its way can't come
later then. If the snapshots that would show it have expired, UnknownOutcomeError says so.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from paimon_magics.errors import InvalidValueError, UnknownOutcomeError, UnsupportedStatementError
from paimon_magics.faults import reach
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.schemas.table_schema import TableSchema, column_list
from paimon_magics.session.inserts.insert import write_frame_to
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.scope import Attachment, StatementScope
from paimon_magics.spark.updated_rows import with_changes
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.commits.receipts import (
    EpochNote,
    committed_epoch,
    epoch_properties,
    find_commit,
    note_epoch,
    noted_epoch,
)
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

ROW_KINDS = "rowkind"
"""The column of a changelog, as `$audit_log` has it."""

_SETTLE_SECONDS = 120.0  # longer than a commit takes, queued ones included
_PAUSE_SECONDS = 0.2


def takes_changes(schema: TableSchema, names: list[str]) -> bool:
    """Whether rows with the columns `names` are changes for the table: it has keys, and no column
    of its own for the kinds."""
    own = {name.lower() for name in schema.column_names}
    return schema.is_primary_key_table and ROW_KINDS in names and ROW_KINDS not in own


def check_stream_mode(name: TableName, schema: TableSchema, mode: str, names: list[str]) -> None:
    """Raise an error of ours for an output mode that the table does not have.

    UnsupportedStatementError for `update` of a table without keys, and for changes of keys that
    can move between partitions; InvalidValueError for changes in mode `complete`.
    """
    keyed = schema.is_primary_key_table or bool(column_list(schema.stored_option("upsert-key")))
    if mode == "update" and not keyed:
        raise UnsupportedStatementError(
            f"`{name}` has no primary key: updated rows would be added beside the old ones.",
            hint="Create the table with a primary key, or use the mode 'append' or 'complete'.",
        )
    if not takes_changes(schema, names):
        return
    if schema.bucket_mode == "KEY_DYNAMIC":
        raise UnsupportedStatementError(
            f"The keys of `{name}` can move between partitions: a stream of changes can't be "
            "written to it.",
            hint="Leave the column `rowkind` out: then all rows are written as new ones. Or make "
            "the partition columns part of the primary key.",
        )
    if mode == "complete":
        raise InvalidValueError(
            "The mode 'complete' replaces the whole table, and the frame has changes of rows.",
            hint="Use the mode 'append', or leave the column `rowkind` out.",
        )


def write_epoch(
    scope: StatementScope,
    frame: DataFrame,
    name: TableName,
    mode: str,
    query_id: str,
    number: int,
) -> Outcome | None:
    """Write an epoch of a query, in Spark's output mode `mode`; None if it is committed already.

    Raises what writing a frame raises, and UnknownOutcomeError if it is unknown whether the epoch
    was committed before.
    """
    table = scope.tables.load(name)
    if _is_done(scope, table, query_id, number):
        return None
    if takes_changes(table.schema, frame.columns):
        frame = with_changes(frame, ROW_KINDS)

    def begun(transaction: Transaction) -> None:
        if not scope.committer.note_epoch(transaction, query_id, number):
            key = scope.committer.key_of(transaction)
            note_epoch(table, query_id, EpochNote(number, transaction, key))
        reach("epoch.noted")

    epoch = Attachment(begun, epoch_properties(query_id, number))
    outcome = write_frame_to(
        scope.attaching(epoch), frame, name, "overwrite" if mode == "complete" else "append"
    )
    reach("epoch.committed")
    return outcome


def _is_done(scope: StatementScope, table: Table, query_id: str, number: int) -> bool:
    """Whether an epoch is committed. If not, no later commit of it is possible."""
    note = noted_epoch(table, query_id)
    if note is None:
        last = committed_epoch(table, query_id) if number else None
        return last is not None and last >= number
    if note.epoch < number:
        return False
    if note.epoch > number:
        return True
    deadline = time.monotonic() + _SETTLE_SECONDS
    while find_commit(table, note.transaction) is None:
        if scope.committer.end(note.transaction, note.key):
            return find_commit(table, note.transaction) is not None
        if time.monotonic() > deadline:
            raise UnknownOutcomeError(
                f"The commit of epoch {number} to `{table.name}` is under way for "
                f"{_SETTLE_SECONDS:.0f} s.",
                hint="Start the stream again when `%paimon transactions` no longer lists it.",
            )
        time.sleep(_PAUSE_SECONDS)
    return True
