"""The committer inside the session's own process.

Any number of processes may commit to one table this way. The snapshot file is created only if it
does not exist (`publish`): of two commits that race for one snapshot id, one wins, and the other is
planned again on top of it. A commit is idempotent by its commit user and identifier, which are in
the snapshot.

If the process dies before the snapshot is published, the table is unchanged and the transaction's
files stay behind, unreferenced; if it dies after, the commit happened.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence

from paimon_magics.coordinator.client.administration import Administration
from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.coordinator.core.state import CompactedBucket, claimed, still_claimed
from paimon_magics.coordinator.protocol.definition_changes import DefinitionChange
from paimon_magics.coordinator.runtime.work import waited
from paimon_magics.coordinator.service.definition_changes import DefinitionChanges
from paimon_magics.coordinator.service.opening import open_on
from paimon_magics.coordinator.service.removals import remove
from paimon_magics.coordinator.service.served import Context
from paimon_magics.coordinator.service.tags_and_branches import change_versions
from paimon_magics.errors import PaimonMagicsError, SetupError, UnknownOutcomeError
from paimon_magics.forks import renew_after_fork
from paimon_magics.planning.commits.requests import (
    CommitReceipt,
    CommitRequest,
    Transaction,
    Waiting,
)
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.writes.inserts import takes_one_at_a_time
from paimon_magics.settings import Settings
from paimon_magics.statements.removals import TableRemoval
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import VersionChange
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.commit import commit as publish_commit
from paimon_magics.tables.commits.decoded_request import DecodedRequest, decoded, settle
from paimon_magics.tables.commits.receipts import find_commit
from paimon_magics.tables.expiry.holders import RemovalReceipt
from paimon_magics.tables.snapshots.tags_and_branches import VersionReceipt
from paimon_magics.tables.stores.corruption import ASK, write_obstacle
from paimon_magics.tables.stores.store import store_errors
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.cleanup import failures_logged, remove_uncommitted

_REPORT_SECONDS = 0.2


class InProcessCommitter(CoordinatorClient):
    """A `CoordinatorClient` that commits in this process, for the tables of `catalog`.

    Safe for several threads; commits of one process take turns.
    """

    def __init__(self, catalog: Catalog, settings: Settings) -> None:
        self._catalog = catalog
        self._settings = settings
        self._turn = threading.Lock()
        self._lines = _Lines()
        self._context = Context(catalog, catalog.publish)
        # Commit users that certainly have no snapshot, so that no look-up is needed.
        self._uncommitted: set[str] = set()
        self._tickets: dict[str, str] = {}  # of open transactions, by commit user
        self._claims: dict[CompactedBucket, str] = {}
        self._claiming = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """See `Renewed`. The parent may have committed transactions that were uncommitted at the
        fork.
        """
        self._turn, self._claiming = threading.Lock(), threading.Lock()
        self._uncommitted, self._tickets, self._claims = set(), {}, {}

    def begin(
        self,
        table: TableName,
        base_snapshot_id: int | None = None,
        engine: str = "",
        waits: Callable[[Waiting], None] | None = None,
        *,
        compacts: bool = False,
        base_manifest_list: str = "",
    ) -> Transaction:
        """See `CoordinatorClient.begin`. With `waits` the transaction takes turns with others of
        this process.

        Raises UnsupportedStatementError for a store where publishing a snapshot is not safe.
        """
        ticket = uuid.uuid4().hex
        loaded = self._catalog.load(table)
        try:
            if waits is not None and not compacts and takes_one_at_a_time(loaded.schema):
                wait_ms = self._settings.exclusive_wait_ms
                self._lines.wait(loaded.location, ticket, wait_ms, waits)
                loaded = self._catalog.load(table)  # others may have changed it meanwhile
            base = None if base_snapshot_id is None else (base_snapshot_id, base_manifest_list)
            transaction = open_on(loaded, base)
        except BaseException:
            self._lines.leave(ticket)
            raise
        self._tickets[transaction.commit_user] = ticket
        self._uncommitted.add(transaction.commit_user)
        return transaction

    def commit(self, request: CommitRequest) -> CommitReceipt:
        """See `CoordinatorClient.commit`."""
        loaded = self._catalog.load(request.transaction.table)
        try:
            commit = decoded(loaded, request)
            with self._turn:
                receipt = self._commit(commit)
        finally:
            self._leave(request.transaction)
        with failures_logged(loaded):
            settle(commit)
        return receipt

    def claim_buckets(
        self, transaction: Transaction, buckets: Sequence[tuple[bytes, int]]
    ) -> tuple[int, ...]:
        """See `CoordinatorClient.claim_buckets`: among the transactions of this process."""
        name = transaction.table
        place = f"{name.database}.{name.table}"
        wanted = [CompactedBucket(place, name.branch, *bucket) for bucket in buckets]
        with self._claiming:
            claims = still_claimed(self._claims, self._tickets.keys())
            self._claims, granted = claimed(claims, wanted, transaction.commit_user)
        return granted

    def abort(self, transaction: Transaction) -> int:
        """See `CoordinatorClient.abort`."""
        self._leave(transaction)
        loaded = self._catalog.load(transaction.table)
        is_certain = transaction.commit_user in self._uncommitted
        self._uncommitted.discard(transaction.commit_user)
        with store_errors(f"Looking for the outcome of a statement on `{transaction.table}`"):
            is_committed = not is_certain and find_commit(loaded, transaction) is not None
        if is_committed:
            raise UnknownOutcomeError(
                f"The files of a statement on `{transaction.table}` were not removed: its commit "
                "is in the table.",
                hint=f"Look at `{transaction.table}$snapshots` before running the statement again.",
            )
        return self._remove(loaded, transaction)

    def end(self, transaction: Transaction, key: str) -> bool:
        """See `CoordinatorClient.end`. The process that began it is dead, or its commit has
        ended."""
        loaded = self._catalog.load(transaction.table)
        with self._turn, store_errors(f"Looking for a commit to `{transaction.table}`"):
            if find_commit(loaded, transaction) is not None:
                return False
        self._remove(loaded, transaction)
        return True

    def sweep(self, request: CommitRequest) -> int:
        """See `CoordinatorClient.sweep`."""
        loaded = self._catalog.load(request.transaction.table)
        keep = decoded(loaded, request).file_names
        return self._remove(loaded, request.transaction, keep)

    def change_versions(self, table: TableName, change: VersionChange) -> VersionReceipt:
        """See `CoordinatorClient.change_versions`."""
        with self._turn:
            return waited(change_versions(self._context, table, change))

    def remove(
        self, table: TableName, removal: TableRemoval, *, is_trial: bool = False
    ) -> RemovalReceipt:
        """See `CoordinatorClient.remove`. It knows only the writers of this process, and those that
        leave notes beside the table."""
        with self._turn:
            return waited(remove(self._context, table, removal, is_trial=is_trial))

    def change_definition(self, change: DefinitionChange) -> bool:
        """See `CoordinatorClient.change_definition`."""
        return waited(DefinitionChanges(self._context).make(change))

    def database_properties(self, name: str) -> dict[str, str]:
        """See `CoordinatorClient.database_properties`: raises SetupError."""
        raise SetupError(
            f"Only a coordinator keeps the properties of the database `{name}`, and this session "
            "commits in its own process.",
            hint="Connect with coordinator='embedded' or the address of a coordinator.",
        )

    def administration(self) -> Administration:
        """See `CoordinatorClient.administration`: raises SetupError."""
        obstacle = write_obstacle(self._context.catalog.warehouse)
        if obstacle is not None:
            raise SetupError(
                f"This session has no coordinator, since it can only read: {obstacle}.", hint=ASK
            )
        raise SetupError(
            "This session commits in its own process, without a coordinator: its transactions "
            "end with their statements.",
            hint=(
                "To use the coordinator that all your notebooks share, run `%paimon connect "
                "--close coordinator=embedded`. To use another coordinator, connect with its "
                "address."
            ),
        )

    def _commit(self, request: DecodedRequest) -> CommitReceipt:
        user = request.request.transaction.commit_user
        is_first_run = user in self._uncommitted
        self._uncommitted.discard(user)
        try:
            return publish_commit(request, self._catalog.publish, is_first_run=is_first_run)
        except UnknownOutcomeError:
            raise
        except PaimonMagicsError:
            self._uncommitted.add(user)
            raise

    def _leave(self, transaction: Transaction) -> None:
        """Leave the line, so that the next waiting transaction may begin."""
        self._lines.leave(self._tickets.pop(transaction.commit_user, ""))

    def _remove(
        self, table: Table, transaction: Transaction, keep: frozenset[str] = frozenset()
    ) -> int:
        wait_ms_max = self._settings.attempt_wait_ms_max
        since = transaction.base_snapshot_id
        return remove_uncommitted(table, transaction, keep, wait_ms_max, since)


class _Lines:
    """Lines of transactions by their table's location, for tables that allow one transaction at a
    time; the first in each line has its turn. Safe for several threads.

    They order the transactions of this process only; commits find conflicts with other processes.
    If a transaction never leaves, those behind it wait until their wait times out.
    """

    def __init__(self) -> None:
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """See `Renewed`: the parent's transactions never leave the lines of this process."""
        self._changed = threading.Condition()
        self._lines: defaultdict[str, list[str]] = defaultdict(list)

    def wait(
        self, location: str, id: str, wait_ms_max: int, waits: Callable[[Waiting], None]
    ) -> None:
        """Join the line, and return when it is this transaction's turn, or after `wait_ms_max`.
        After that timeout others may write at the same time, and the commits find conflicts.
        `waits` is called repeatedly with the number of transactions in front. An interrupted
        transaction leaves the line.
        """
        deadline = time.monotonic() + wait_ms_max / 1000
        with self._changed:
            self._lines[location].append(id)
        try:
            while (in_front := self._in_front(location, id)) and time.monotonic() < deadline:
                waits(
                    Waiting(
                        "The table has dynamic buckets, so only one statement at a time may "
                        f"write it. In this process, {count_text(in_front, 'statement')} came "
                        "before this statement.",
                        in_front,
                    )
                )
                with self._changed:
                    self._changed.wait_for(
                        lambda: self._in_front(location, id) != in_front, _REPORT_SECONDS
                    )
        except BaseException:
            self.leave(id)
            raise

    def leave(self, id: str) -> None:
        """Remove a transaction from its line, if it is in one."""
        with self._changed:
            for location, line in list(self._lines.items()):
                if id in line:
                    line.remove(id)
                    if not line:
                        del self._lines[location]
            self._changed.notify_all()

    def _in_front(self, location: str, id: str) -> int:
        with self._changed:
            return self._lines[location].index(id)
