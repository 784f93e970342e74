"""The interface through which a session commits, in its own process or by a coordinator."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from paimon_magics.coordinator.client.administration import Administration
from paimon_magics.coordinator.client.small_inserts import SmallInserts
from paimon_magics.coordinator.client.stored_views import StoredViews
from paimon_magics.coordinator.protocol.definition_changes import (
    DatabaseAlteration,
    DatabaseCreation,
    DatabaseDrop,
    DefinitionChange,
    SchemaRestoration,
    TableAlteration,
    TableCreation,
    TableDrop,
    TableRename,
)
from paimon_magics.errors import OutdatedPlanError, TableDamagedError
from paimon_magics.planning.commits.requests import (
    CommitReceipt,
    CommitRequest,
    Transaction,
    Waiting,
)
from paimon_magics.planning.copying.load_history import LoadRecord
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.schemas.replacements import TableReplacement
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.removals import TableRemoval
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.table_changes import TableChange
from paimon_magics.statements.version_changes import VersionChange
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.databases import Visibility
from paimon_magics.tables.catalog.names import check_name, check_new_table
from paimon_magics.tables.expiry.holders import RemovalReceipt
from paimon_magics.tables.schema.history import created_at_ms
from paimon_magics.tables.snapshots.tags_and_branches import VersionReceipt

_PAUSE_SECONDS = 0.05
_PAUSE_SECONDS_MAX = 2.0


class CoordinatorClient(Protocol):
    """Begins, commits and aborts transactions on the tables of one warehouse. Methods with a body
    are for clients without a coordinator, whose sessions expire nothing."""

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
        """Open a transaction with a unique commit user and file prefix.

        `base_snapshot_id` is the table's latest snapshot when the statement was planned, by default
        the latest one now. `base_manifest_list` names its delta manifest list, if that is known: it
        tells the snapshot from another one that took its id after a roll-back. An overwrite is
        checked against the snapshots after it. `engine` names the writer in lists of open
        transactions. If a table allows one transaction at a time, this waits and calls `waits`
        repeatedly with the obstacle. A transaction that only `compacts` neither waits nor blocks
        others.

        Raises OutdatedPlanError if the base snapshot is gone.
        """

    def commit(self, request: CommitRequest) -> CommitReceipt:
        """Publish the files as one snapshot, or find the snapshot that an earlier call published.

        Calling it again with the same transaction returns the first call's receipt. Raises
        UnknownOutcomeError when it is unknown whether the snapshot was published. After any other
        error it was certainly not published, and `abort` may follow. CommitConflictError means that
        another commit is the reason.
        """

    def claim_buckets(
        self, transaction: Transaction, buckets: Sequence[tuple[bytes, int]]
    ) -> tuple[int, ...]:
        """Claim buckets, each with its serialised partition, for an open transaction that compacts.
        Return the positions of the buckets that no other transaction compacts. A claim ends with
        the transaction. It is only advisory: every commit is checked.
        """

    def abort(self, transaction: Transaction) -> int:
        """Delete the files of a transaction that is certainly not committed.

        Returns the number of files deleted. Files of a committed transaction are never touched:
        raises UnknownOutcomeError if its snapshot exists.
        """

    def key_of(self, transaction: Transaction) -> str:
        """The coordinator's key of a transaction that this client began. With it, another process
        can `end` the transaction. "" if no key is needed.
        """
        return ""

    def note_epoch(self, transaction: Transaction, query_id: str, epoch: int) -> bool:
        """Note beside the table that a streaming query writes an epoch in a transaction.

        Returns False if the caller has to note it. Raises SetupError for the query of somebody
        else, and CommitConflictError if the query has gone on to a later epoch.
        """
        return False

    @property
    def keeps_loads(self) -> bool:
        """Whether the coordinator writes the history of loaded files, see `note_load`."""
        return False

    def note_load(self, transaction: Transaction, records: Sequence[LoadRecord]) -> bool:
        """Note beside the table that a transaction loads these files. The commit completes the
        history, the end of the transaction removes the note.

        Returns False if the caller has to note it, and has to complete it.
        """
        return False

    def end(self, transaction: Transaction, key: str) -> bool:
        """End a transaction of a process that died; `key_of` returned its key.

        Returns True if it is certainly not committed and never will be: its files are deleted.
        Returns False if it is committed or its commit is under way: then its snapshot shows the
        outcome.
        """

    def sweep(self, request: CommitRequest) -> int:
        """Delete the files that a committed transaction wrote but did not commit: the files of task
        attempts that failed or lost to another attempt. Returns the number of files deleted.
        """

    def change_versions(self, table: TableName, change: VersionChange) -> VersionReceipt:
        """Change tags or branches of a table, or roll it back.

        Raises UnknownNameError and InvalidTableError for an impossible change, with nothing
        changed; and UnknownOutcomeError when it is unknown whether the change was made.
        """

    def remove(
        self, table: TableName, removal: TableRemoval, *, is_trial: bool = False
    ) -> RemovalReceipt:
        """Remove snapshots, changelogs, tags or files of a table, or on trial count what would go.

        Raises errors of ours for what can't be removed, with nothing removed. Where it breaks off,
        the same removal can be asked for again: it removes what is left.
        """

    def change_definition(self, change: DefinitionChange) -> bool:
        """Create, alter, rename or drop a table or a database; `Definitions` has a method for each.
        Return whether anything was created or dropped.

        Raises what `Catalog` raises for it, with nothing changed; SetupError without the
        permission; and UnknownOutcomeError when it is unknown whether the change was made.
        """

    def visibility(self) -> Visibility | None:
        """What the user may see according to the coordinator; None if only the store limits it."""
        return None

    def database_properties(self, name: str) -> dict[str, str]:
        """The properties of a database, as the coordinator keeps them. Raises SetupError if no
        coordinator answers.
        """

    def stored_views(self) -> StoredViews | None:
        """The views that the coordinator keeps; None without a coordinator."""
        return None

    def lease(self, table: TableName, snapshot_id: int) -> bool:
        """Keep a snapshot from expiring until `release`. Return False if it has expired already.
        May be called several times for one snapshot."""
        return True

    def release(self, table: TableName, snapshot_id: int) -> None:
        """End the lease of one call of `lease`."""
        return None

    def inserts(self) -> SmallInserts | None:
        """The sender of small inserts; None without a coordinator that takes them."""
        return None

    def administration(self) -> Administration:
        """The administration of the coordinator behind this client.

        Raises SetupError where there is none.
        """

    def delay(self) -> str:
        """What the client waits for now, as progress text: a coordinator that does not answer. ""
        if it does not wait.
        """
        return ""

    def close(self) -> None:
        """Close the client's connections and threads. Open transactions end when their leases
        expire.
        """
        return None


class Attempts:
    """The runs of one statement: the first and up to `reruns_max` reruns, and the notes on them for
    the user.

    With a coordinator, two statements that write a table with dynamic buckets take turns. Other
    writers (another engine, a session without a coordinator) may still commit in between.
    """

    def __init__(self, reruns_max: int) -> None:
        self._reruns_max = reruns_max
        self._reruns = 0
        self._last = ""
        self._since: float | None = None
        self._seconds = 0.0
        self._first: Waiting | None = None
        self._now: Waiting | None = None

    def waits(self, waiting: Waiting) -> None:
        """Note that the statement waits for its turn. Called whenever the wait changes."""
        self._since = self._since or time.monotonic()
        self._first = self._first or waiting
        self._now = waiting

    def doing(self, table: TableName) -> str:
        """What the statement does before its transaction begins, as progress text."""
        if self._now is None:
            return "opening the transaction"
        return f"waiting for `{table}` ({self._now.in_front:,} in front)"

    def opened(self) -> None:
        """Note that the statement's turn has come."""
        if self._since is not None:
            self._seconds += time.monotonic() - self._since
            self._since = self._now = None

    def next(self, error: OutdatedPlanError, *, may_run_again: bool) -> None:
        """Sleep before the next run; raise `error` if the statement may not run again.

        The pause is random and grows, so that some of many competing statements succeed.
        """
        if not may_run_again or self._reruns >= self._reruns_max:
            raise error
        pause = min(_PAUSE_SECONDS * 2**self._reruns, _PAUSE_SECONDS_MAX)
        self._reruns += 1
        # A coordinator's refusal names the next step in its message; that step is done by then.
        self._last = error.message.partition(" Nothing was written.")[0]
        time.sleep(random.uniform(0, pause))

    def notes(self) -> tuple[str, ...]:
        """Notes for the Outcome on waiting and reruns; none if the statement ran at once."""
        notes = []
        if self._first is not None:
            seconds, in_front = f"{self._seconds:.1f} s", f"{self._first.in_front:,} in front"
            notes.append(f"Waited {seconds} for its turn ({in_front}): {self._first.message}")
        if self._reruns:
            times = count_text(self._reruns, "time")
            notes.append(
                f"Planned and run again {times}, before anything was written: {self._last}"
            )
        return tuple(notes)


class Definitions:
    """Changes tables and databases of the warehouse that `catalog` reads, by `change`, which
    returns whether anything was created or dropped. All names have their databases.

    A coordinator checks permissions and ownership, then carries out a change. Without a
    coordinator, the same service carries it out in this process.
    """

    def __init__(self, catalog: Catalog, change: Callable[[DefinitionChange], bool]) -> None:
        self._catalog = catalog
        self._change = change

    def create_table(
        self, name: TableName, schema: TableSchema, *, if_not_exists: bool = False
    ) -> bool:
        """Create a table; return whether it was created. Raises what `Catalog.create_table` and
        `check_schema` raise."""
        check_new_table(name)
        return self._change(TableCreation(name, schema, if_not_exists))

    def drop_table(
        self, name: TableName, *, if_exists: bool = False, only_empty: bool = False
    ) -> bool:
        """Drop a table; return whether it was dropped. With `only_empty` a table that has snapshots
        stays. Raises what `Catalog.drop_table` raises."""
        if if_exists and name.system_table is None and not self._catalog.table_exists(name):
            return False
        return self._change(TableDrop(name, if_exists, only_empty, self._created_at_ms(name)))

    def rename_table(self, name: TableName, new_name: TableName) -> None:
        """Rename a table. Raises what `Catalog.rename_table` raises."""
        check_new_table(new_name)
        self._change(TableRename(name, new_name, self._created_at_ms(name)))

    def alter_table(self, name: TableName, changes: Sequence[TableChange], base: int) -> None:
        """Change a table's columns and options, as planned on the schema `base`. Raises what
        `Catalog.alter_table` raises."""
        self._change(TableAlteration(name, tuple(changes), base))

    def replace_table(self, replacement: TableReplacement) -> None:
        """Replace the definition of a table; its rows go. Raises UnsupportedStatementError for a
        definition that the table can't get and keep its history, CommitConflictError if the table
        was changed, or rows were added to it, since the replacement was planned."""
        created = self._created_at_ms(replacement.name)
        self._change(replace(replacement, created_at_ms=created))

    def restore_schema(self, name: TableName, schema_id: int, base: int) -> None:
        """Give a table its earlier schema again, which was replaced by the schema `base`. Raises
        CommitConflictError if it has another one now."""
        self._change(SchemaRestoration(name, schema_id, base))

    def create_database(
        self, name: str, properties: Mapping[str, str], *, if_not_exists: bool = False
    ) -> bool:
        """Create a database; return whether it was created. Raises StatementError where it exists,
        UnsupportedStatementError where properties can't be kept."""
        check_name(name, "database")
        return self._change(DatabaseCreation(name, tuple(properties.items()), if_not_exists))

    def alter_database(
        self, name: str, updates: Iterable[tuple[str, str]], removals: Iterable[str]
    ) -> None:
        """Change the properties of a database. Raises UnknownNameError where there is none,
        InvalidTableError for another location, UnsupportedStatementError where properties can't be
        kept."""
        self._change(DatabaseAlteration(name, tuple(updates), tuple(removals)))

    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> bool:
        """Drop a database, with `cascade` its tables too; return whether it was dropped. Raises
        what `Catalog.drop_database` raises."""
        return self._change(DatabaseDrop(name, if_exists, cascade))

    def _created_at_ms(self, name: TableName) -> int | None:
        try:
            return created_at_ms(self._catalog.load(name))
        except TableDamagedError:
            return None
