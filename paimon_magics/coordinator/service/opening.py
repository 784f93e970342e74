"""Opens a transaction, in the same way for every committer."""

from __future__ import annotations

import secrets

from paimon_magics.errors import InvalidValueError, OutdatedPlanError
from paimon_magics.planning.commits.requests import Transaction, transaction_names
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.commit import check_can_publish
from paimon_magics.tables.schema.history import creation_of, identity_of
from paimon_magics.tables.snapshots.latest import latest_state, read_snapshot, state_of
from paimon_magics.tables.stores.store import store_errors
from paimon_magics.tables.table import Table, gone
from paimon_magics.tables.writing.attempts import open_attempts
from paimon_magics.tables.writing.cleanup import attempts_of


def open_transaction(
    catalog: Catalog, name: TableName, base: tuple[int, str] | None, owner: str = ""
) -> tuple[Table, Transaction]:
    """Return the table and a transaction on it; see `open_on`. Raises UnknownNameError for a table
    that does not exist."""
    table = catalog.load(name)
    return table, open_on(table, base, owner)


def open_on(table: Table, base: tuple[int, str] | None, owner: str = "") -> Transaction:
    """Return a transaction on a loaded table, with a commit user and a file prefix of its own. The
    prefix begins with `names_of(owner)`.

    `base` is the snapshot that it was planned on, as `state_of` returns it, with "" if its manifest
    list is unknown; None is the latest snapshot. Raises OutdatedPlanError if that snapshot is gone,
    and errors of ours for a table that can't be committed to safely. A process that dies after this
    leaves a note in the table's folder `.attempts` behind.
    """
    if base is not None and base[0] < 0:
        raise InvalidValueError(f"No snapshot has the id {base[0]}.")
    check_can_publish(table)
    prefix, commit_user = transaction_names(owner, secrets.token_hex(8))
    folder = attempts_of(table, prefix)
    with store_errors(f"Opening a transaction on `{table.name}`"):
        base_id, base_name = latest_state(table) if base is None else _stored(table, *base)
        creation = creation_of(table)
        if folder is not None:
            try:
                open_attempts(table.store, folder)
            except FileNotFoundError as error:
                raise gone(table) from error
    return Transaction(
        table=table.name,
        commit_user=commit_user,
        file_prefix=prefix,
        base_snapshot_id=base_id,
        attempts_folder=folder,
        table_creation=creation,
        base_manifest_list=base_name,
        base_schema=identity_of(table.paimon.table_schema),
    )


def _stored(table: Table, snapshot_id: int, manifest_list: str) -> tuple[int, str]:
    """The `state_of` a snapshot that a client has named."""
    if not snapshot_id:
        return state_of(None)
    snapshot = read_snapshot(table.paimon, snapshot_id)
    if snapshot is None:
        raise OutdatedPlanError(
            f"Snapshot {snapshot_id} of `{table.name}`, which the statement was planned on, has "
            "expired, or the table was rolled back.",
            hint="Nothing was written. Run the statement again.",
        )
    stored = state_of(snapshot)
    if manifest_list not in ("", stored[1]):
        raise OutdatedPlanError(
            f"Since this statement was planned, `{table.name}` was rolled back to before snapshot "
            f"{snapshot_id}.",
            hint="Nothing was written. Run the statement again.",
        )
    return stored
