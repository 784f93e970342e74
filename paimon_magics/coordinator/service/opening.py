"""Opens a transaction, in the same way for every committer."""

from __future__ import annotations

import uuid

from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.commit import check_can_publish
from paimon_magics.tables.schema.history import creation_of
from paimon_magics.tables.snapshots.latest import latest_snapshot_id
from paimon_magics.tables.stores.store import store_errors
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.attempts import open_attempts
from paimon_magics.tables.writing.cleanup import attempts_of


def open_transaction(
    catalog: Catalog, name: TableName, base_snapshot_id: int | None
) -> tuple[Table, Transaction]:
    """Return the table and a transaction on it; see `open_on`. Raises UnknownNameError for a table
    that does not exist."""
    table = catalog.load(name)
    return table, open_on(table, base_snapshot_id)


def open_on(table: Table, base_snapshot_id: int | None) -> Transaction:
    """Return a transaction on a loaded table, with a commit user and a file prefix of its own.

    Raises errors of ours for a table that can't be committed to safely. A process that dies after
    this leaves a note in the table's folder `.attempts` behind.
    """
    if base_snapshot_id is not None and base_snapshot_id < 0:
        raise InvalidValueError(f"No snapshot has the id {base_snapshot_id}.")
    check_can_publish(table)
    identity = uuid.uuid4()
    prefix = f"pm-{identity.hex}-"
    folder = attempts_of(table, prefix)
    with store_errors(f"Opening a transaction on `{table.name}`"):
        if base_snapshot_id is None:
            base_snapshot_id = latest_snapshot_id(table)
        creation = creation_of(table)
        if folder is not None:
            open_attempts(table.store, folder)
    return Transaction(
        table=table.name,
        commit_user=f"paimon-magics-{identity}",
        file_prefix=prefix,
        base_snapshot_id=base_snapshot_id,
        attempts_folder=folder,
        table_creation=creation,
    )
