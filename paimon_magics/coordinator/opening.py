"""Opening a transaction and clearing up after one: what every committer does the same way."""

from __future__ import annotations

import time
import uuid

from paimon_magics.planning.commits import Transaction
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.attempts import attempts_folder, close_attempts, open_attempts
from paimon_magics.tables.catalog import Catalog, Table
from paimon_magics.tables.cleaning import delete_files
from paimon_magics.tables.committing import check_can_publish, latest_snapshot_id

__all__ = ["open_transaction", "remove_files"]


def open_transaction(
    catalog: Catalog, name: TableName, base_snapshot_id: int | None
) -> tuple[Table, Transaction]:
    """The table, and a transaction on it whose commit user and file prefix nobody else has.

    Raises errors of ours for a table that is not there, or that can't be committed to safely. A
    process that dies after this leaves an empty folder of attempt markers behind.
    """
    table = catalog.load(name)
    check_can_publish(table)
    identity = uuid.uuid4()
    prefix = f"pm-{identity.hex}-"
    folder = attempts_folder(table.location, prefix)
    if base_snapshot_id is None:
        base_snapshot_id = latest_snapshot_id(table)
    open_attempts(folder)
    return table, Transaction(
        table=name,
        commit_user=f"paimon-magics-{identity}",
        file_prefix=prefix,
        base_snapshot_id=base_snapshot_id,
        attempts_folder=folder,
    )


def remove_files(
    table: Table, transaction: Transaction, keep: frozenset[str], wait_ms_max: int
) -> int:
    """Delete the transaction's files but those of `keep`; return how many were deleted.

    Tasks that were told to stop do so in their own time, and may create a file meanwhile: waits
    for them, `wait_ms_max` where the store can't tell whether any is still at work.
    """
    ended = close_attempts(transaction.attempts_folder, wait_ms_max)
    if not ended and transaction.attempts_folder is None:
        time.sleep(wait_ms_max / 1000)
    return delete_files(table, transaction.file_prefix, keep)
