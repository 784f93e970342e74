"""The interface that a session commits through, whoever stands behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from paimon_magics.coordinator.client.administration import Administration
from paimon_magics.coordinator.client.small_inserts import SmallInserts
from paimon_magics.planning.commits.requests import (
    CommitReceipt,
    CommitRequest,
    Transaction,
    Waiting,
)
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import VersionChange
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
    ) -> Transaction:
        """Open a transaction with a commit user and a file prefix that nobody else has.

        `base_snapshot_id` is the table's latest snapshot when the statement was planned; left out,
        it is the latest one now. An overwrite is checked against what came after it. `engine`
        is what writes, as others are told who look at open transactions. A table may take one
        transaction at a time: `waits` is told again and again, while it is waited for, what is in
        the way.
        """

    def commit(self, request: CommitRequest) -> CommitReceipt:
        """Publish the files as one snapshot, or find the snapshot that an earlier call published.

        Calling it again with the same transaction returns the first call's receipt. Raises
        UnknownOutcomeError when it could not be determined whether it was published; after any
        other error it certainly was not (CommitConflictError because of another commit), and
        `abort` may follow.
        """

    def abort(self, transaction: Transaction) -> int:
        """Delete the files of a transaction that is certainly not committed.

        Returns the number of files deleted. Files of a committed transaction are never touched:
        raises UnknownOutcomeError if its snapshot exists.
        """

    def sweep(self, request: CommitRequest) -> int:
        """Delete what a committed transaction wrote but did not commit: files of task attempts
        that failed or lost to another attempt. Returns the number of files deleted."""

    def change_versions(self, table: TableName, change: VersionChange) -> VersionReceipt:
        """Change tags or branches of a table, or roll it back.

        Raises UnknownNameError and InvalidTableError for what can't be, with nothing changed, and
        UnknownOutcomeError when it could not be determined whether it was done.
        """

    def create_database(
        self, name: str, properties: Mapping[str, str], *, if_not_exists: bool = False
    ) -> bool:
        """Create a database with properties in a warehouse that can't keep them; False when it
        exists and may.

        Raises UnsupportedStatementError where nobody keeps them, InvalidTableError for a location
        of its own, StatementError for a name that is taken.
        """

    def database_properties(self, name: str) -> dict[str, str]:
        """The properties of a database in such a warehouse. Raises SetupError where nobody who
        keeps them answers."""

    def lease(self, table: TableName, snapshot_id: int) -> bool:
        """Keep a snapshot from expiring while it is read, until `release`; False when it has
        expired already. May be called several times for one snapshot."""

    def release(self, table: TableName, snapshot_id: int) -> None:
        """End what one call of `lease` began."""

    def inserts(self) -> SmallInserts | None:
        """What sends small inserts; None where nobody takes any."""

    def administration(self) -> Administration:
        """To look at the coordinator behind this client, and to act on it.

        Raises SetupError where there is none.
        """

    def close(self) -> None:
        """Give up what the client holds open; transactions that are open end by their lease."""
