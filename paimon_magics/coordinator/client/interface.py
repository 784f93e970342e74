"""The interface through which a session commits, in its own process or by a coordinator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from paimon_magics.coordinator.client.administration import Administration
from paimon_magics.coordinator.client.small_inserts import SmallInserts
from paimon_magics.coordinator.protocol.definition_changes import DefinitionChange
from paimon_magics.planning.commits.requests import (
    CommitReceipt,
    CommitRequest,
    Transaction,
    Waiting,
)
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import VersionChange
from paimon_magics.tables.catalog.databases import Visibility
from paimon_magics.tables.snapshots.tags_and_branches import VersionReceipt

__all__ = ["CoordinatorClient"]


class CoordinatorClient(Protocol):
    """Begins, commits and aborts transactions on the tables of one warehouse."""

    def begin(
        self,
        table: TableName,
        base_snapshot_id: int | None = None,
        engine: str = "",
        waits: Callable[[Waiting], None] | None = None,
        *,
        compacts: bool = False,
    ) -> Transaction:
        """Open a transaction with a unique commit user and file prefix.

        `base_snapshot_id` is the table's latest snapshot when the statement was planned, by default
        the latest one now. An overwrite is checked against the snapshots after it. `engine` names
        the writer in lists of open transactions. Where a table takes one transaction at a time,
        this waits; `waits` is called again and again with what is in the way. A transaction that
        only `compacts` does not wait, and keeps nobody waiting.
        """

    def commit(self, request: CommitRequest) -> CommitReceipt:
        """Publish the files as one snapshot, or find the snapshot that an earlier call published.

        Calling it again with the same transaction returns the first call's receipt. Raises
        UnknownOutcomeError when it is unknown whether the snapshot was published. After any other
        error it certainly was not, and `abort` may follow; CommitConflictError means that another
        commit is the reason.
        """

    def claim_buckets(
        self, transaction: Transaction, buckets: Sequence[tuple[bytes, int]]
    ) -> tuple[int, ...]:
        """Claim buckets, each with its serialised partition, for an open transaction that compacts;
        return the positions of those that no other transaction compacts. A claim ends with the
        transaction. It is advice: a commit is checked in any case."""

    def abort(self, transaction: Transaction) -> int:
        """Delete the files of a transaction that is certainly not committed.

        Returns the number of files deleted. Files of a committed transaction are never touched:
        raises UnknownOutcomeError if its snapshot exists.
        """

    def key_of(self, transaction: Transaction) -> str:
        """What the coordinator knows a transaction by that this client has begun; with it another
        process can `end` the transaction. "" where nothing is needed."""

    def end(self, transaction: Transaction, key: str) -> bool:
        """End a transaction that a process which died has begun, and `key_of` gave the key of.

        Returns True if it is certainly not committed, and never will be: its files are deleted.
        Returns False while it is committed, or its commit is under way: then its snapshot tells.
        """

    def sweep(self, request: CommitRequest) -> int:
        """Delete the files that a committed transaction wrote but did not commit: those of task
        attempts that failed or lost to another attempt. Returns the number of files deleted."""

    def change_versions(self, table: TableName, change: VersionChange) -> VersionReceipt:
        """Change tags or branches of a table, or roll it back.

        Raises UnknownNameError and InvalidTableError for an impossible change, with nothing
        changed; and UnknownOutcomeError when it is unknown whether the change was made.
        """

    def change_definition(self, change: DefinitionChange) -> bool:
        """Create, alter, rename or drop a table or a database; `Definitions` has a method for each.
        Return whether anything was created or dropped.

        Raises what `Catalog` raises for it, with nothing changed; SetupError without the right; and
        UnknownOutcomeError when it is unknown whether the change was made.
        """

    def visibility(self) -> Visibility | None:
        """What the user may see, as the coordinator says; None for everything."""

    def database_properties(self, name: str) -> dict[str, str]:
        """The properties of a database, as the coordinator keeps them. Raises SetupError where no
        coordinator answers."""

    def lease(self, table: TableName, snapshot_id: int) -> bool:
        """Keep a snapshot from expiring until `release`. Return False if it has expired already.
        May be called several times for one snapshot."""

    def release(self, table: TableName, snapshot_id: int) -> None:
        """End the lease of one call of `lease`."""

    def inserts(self) -> SmallInserts | None:
        """The sender of small inserts; None without a coordinator that takes them."""

    def administration(self) -> Administration:
        """The administration of the coordinator behind this client.

        Raises SetupError where there is none.
        """

    def delay(self) -> str:
        """What the client waits for at this moment, as progress text: a coordinator that gives no
        answer. "" while nothing is in the way."""

    def close(self) -> None:
        """Close the client's connections and threads; open transactions end by their leases."""
