"""Opening a transaction, the same for every committer, and owning the warehouse before."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from paimon_magics.coordinator.ownership.ownership import Ownership
from paimon_magics.coordinator.service.commit_worker import Worker
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


# Owning the warehouse before anything in it is changed.


class Owning:
    """Takes the warehouse when that is needed. Without `ownership` nobody owns it.

    Once in each epoch it drops the claims that are older than `claims_kept_ms`: no client can ask
    about them any more. For any thread.
    """

    def __init__(
        self,
        ownership: Ownership | None,
        worker: Worker,
        claims_kept_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._ownership = ownership
        self._worker = worker
        self._claims_kept_ms = claims_kept_ms
        self._now_ms = now_ms
        self._epoch = 0

    @property
    def epoch(self) -> int | None:
        """The epoch in which the warehouse is owned, 0 before; None without ownership."""
        return None if self._ownership is None else self._ownership.epoch

    def own(self) -> None:
        """Own the warehouse from now on. Raises what `Ownership.acquire` raises."""
        if self._ownership is not None and self._ownership.acquire() != self._epoch:
            self._epoch = self._ownership.epoch
            self._worker.drop_claims(self._now_ms() - self._claims_kept_ms)
