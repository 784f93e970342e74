"""Load one batch: the flusher writes files, and an ordinary transaction commits them.

The log notes the transaction before its commit is requested. After a crash, and after any error
with an unclear outcome, `settle` determines the outcome before anything is loaded again. Records
leave the log when their commit is known to have succeeded: all its files are durable then.

If the process dies before the transaction is noted, its lease expires and its files are removed;
after that, `settle` finds its commit, or ends it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from paimon_magics.coordinator.core.values import (
    Aborted,
    Answer,
    Committed,
    Gone,
    NotCommitted,
    Origin,
    Phase,
    Refusal,
    Undetermined,
    reason_of,
)
from paimon_magics.coordinator.inserts.loading.flusher_process import (
    FlushJob,
    FlushProcesses,
    FlushResult,
    WriteFailedError,
)
from paimon_magics.coordinator.inserts.log.log import (
    DeadLetter,
    LogTable,
    StoredFlush,
    queue_id,
    stored_name,
)
from paimon_magics.coordinator.inserts.log.records import DamagedError, read_segments
from paimon_magics.coordinator.inserts.log.registry import RegisteredLog
from paimon_magics.coordinator.inserts.queue.values import Batch
from paimon_magics.coordinator.protocol.documents import transaction_document, transaction_of
from paimon_magics.coordinator.runtime.children import ChildDiedError
from paimon_magics.coordinator.runtime.work import Steps
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.transactions import Purpose
from paimon_magics.coordinator.store.database import StoreLostError, StoreUnavailableError
from paimon_magics.errors import PaimonMagicsError, UnknownOutcomeError
from paimon_magics.faults import reach
from paimon_magics.planning.commits.read_sets import read_keys
from paimon_magics.planning.commits.requests import (
    Append,
    CommitReceipt,
    CommitRequest,
    Transaction,
)
from paimon_magics.redaction import redacted
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.fencing import DeposedError
from paimon_magics.tables.commits.receipts import (
    LogPosition,
    find_commit,
    log_position,
    log_properties,
)
from paimon_magics.tables.reading.keyed_rows import keyed_read
from paimon_magics.tables.schema.history import Definitions
from paimon_magics.tables.snapshots.latest import latest_snapshot_id
from paimon_magics.tables.snapshots.provenance import PREFIX, noted_users
from paimon_magics.tables.stores.store import StoreRefusedError, failure
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import completed, write_spec

ENGINE = "auto_batch_load"
"""The engine's name in the transactions and snapshots of batches."""

_NEWEST_MAX = 100

_REFUSED = re.compile(  # the native writer's errors when a store refuses access
    r"PermissionDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|AccessDenied"
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The outcome of a load: the batch is in the table, except its dead letters (lsn, why)."""

    snapshot_id: int | None
    dead: tuple[tuple[int, str], ...] = ()


class NotLoadedError(Exception):
    """A batch is certainly not in the table. `permanent` if its rows are the reason, `refused` if
    the store refuses access, `dropped` if a drop here removed the table and its rows.
    """

    def __init__(
        self, why: str, *, permanent: bool = False, refused: bool = False, dropped: bool = False
    ) -> None:
        super().__init__(redacted(why))
        self.permanent, self.refused, self.dropped = permanent, refused, dropped


class StuckError(Exception):
    """An administrator must check: a batch's outcome is unknown, the log is damaged, or somebody
    else replaced the table by another table of the same name.
    """


class NotYetKnownError(Exception):
    """The outcome of a batch can't be determined now."""


class Loading(Protocol):
    """The place of a load among the loads of other tables."""

    def check(self) -> None:
        """Raise if the load has to give up its place."""

    def end(self) -> None:
        """Give up the place."""


class BatchLoader:
    """Loads batches of any tables. Safe for several threads; one batch of a table at a time.

    A table is known by its id, and loaded by the last name that it had.
    """

    def __init__(
        self,
        catalog: Catalog,
        coordinator: Coordinator,
        log: RegisteredLog,
        flusher: FlushProcesses,
        settings: Settings,
    ) -> None:
        self._now_ms = coordinator.runtime.clock.now_ms
        self._catalog = catalog
        self._coordinator = coordinator
        self._transactions = coordinator.transactions
        self._log = log.log
        self._registry = log.registry
        self.flusher = flusher
        self._settings = settings
        self._ids = coordinator.table_ids
        self._definitions = Definitions()

    def load(self, name: TableName, table_id: str, batch: Batch, place: Loading) -> Steps[Loaded]:
        """Load a batch, in a place that ends when its files are written. Raises NotLoadedError,
        StuckError, and what `place.check` raises; after any other error the outcome of the batch is
        unknown.
        """
        try:
            table = self._table(name, table_id, batch)
            loaded = self._loaded_before(table, table_id, batch)
            if loaded is not None:
                return loaded
            id, transaction, _ = self._transactions.begin(
                table.name, None, ENGINE, Origin(engine=ENGINE), purpose=Purpose.LOGGED_ROWS
            )
        except (DeposedError, StoreLostError):
            raise
        except PaimonMagicsError as error:
            raise _not_loaded(error) from error
        reach("flush.begun")

        def lasts() -> None:
            self._transactions.heartbeat(id)
            place.check()

        result, request = self._prepared(table, table_id, batch, (id, transaction), lasts)
        place.end()  # a commit takes turns of its own
        dead = tuple((lsn, why) for lsn, why, _ in result.unfit)
        if request is None:
            self._give_up(id)
            self._log.publish(table_id, batch.last, result.chain, None)
            return Loaded(None, dead)
        answer = yield self._transactions.commit_soon(id, request)
        receipt = self._receipt(table.name, table_id, batch, answer)
        reach("flush.committed")
        self._log.publish(table_id, batch.last, result.chain, receipt.snapshot_id)
        reach("flush.forgotten")
        return Loaded(receipt.snapshot_id, dead)

    def settle(self, name: TableName, table_id: str, batch: Batch) -> Steps[Loaded]:
        """Determine the outcome of a batch. Raises NotLoadedError if it is certainly not in the
        table, StuckError if that can't be determined; after any other error it is not known yet.
        """
        stored = self.stored(table_id)
        if stored is not None and stored.published < batch.last:
            flush = stored.flush
            if flush is None or flush.last != batch.last:
                raise NotLoadedError("its loading was cut off")
            transaction = transaction_of(flush.transaction)
            receipt = yield from self._outcome(flush.transaction_id, name, transaction)
            if receipt is None:
                self._log.drop_flush(table_id, flush.first, flush.last)
                raise NotLoadedError("its loading was cut off")
            self._log.publish(table_id, flush.last, flush.chain, receipt.snapshot_id)
            stored = replace(stored, snapshot_id=receipt.snapshot_id)
        dead = tuple(
            (letter.lsn, letter.why)
            for letter in self._log.dead_letters(table_id)
            if batch.first <= letter.lsn <= batch.last
        )
        return Loaded(None if stored is None else stored.snapshot_id, dead)

    def note_name(self, table_id: str, name: TableName) -> None:
        """Note a table's new name."""
        self._log.rename_table(table_id, stored_name(name))
        self._ids.expect(table_id, name)
        reach("rename.moved")

    def last_in(self, name: TableName, table_id: str, above: int) -> int:
        """The last record of this log that the table's newest snapshots name, among those with ids
        above `above`; 0 where none does."""
        table = self._catalog.load(name)
        above = max(above, latest_snapshot_id(table) - _NEWEST_MAX)
        position = self._position(table, self.stored(table_id), table_id, above)
        return 0 if position is None else position.last

    def table_of(self, name: TableName, table_id: str) -> Table | None:
        """The table with an id, even if somebody renamed it; None if it is gone."""
        table = self._catalog.find(name)
        if table is not None and self._ids.is_of(table, table_id):
            return table
        other = self._ids.find(table_id)
        return None if other is None else self._catalog.load(other)

    def stored(self, table_id: str) -> LogTable | None:
        """A table as the log has it; None for an unknown table."""
        return next((s for s in self._log.tables() if s.table_id == table_id), None)

    def _position(
        self, table: Table, stored: LogTable | None, table_id: str, above: int
    ) -> LogPosition | None:
        """The last records of this log that snapshots above an id name, also by the id that older
        versions gave the table's queue."""
        position = log_position(table, queue_id(self._log.id, table_id), above)
        if position is None and stored is not None and stored.legacy:
            position = log_position(table, queue_id(self._log.id, stored.legacy), above)
        return position

    def _table(self, name: TableName, table_id: str, batch: Batch) -> Table:
        """See `table_of`; raises NotLoadedError for a table that is gone, StuckError if somebody
        else put another table in its place.
        """
        table = self.table_of(name, table_id)
        if table is not None:
            return table
        self.check_not_dropped(name, table_id)
        if self._catalog.find(name) is None:
            raise NotLoadedError(f"there is no table `{name}`")
        raise StuckError(
            f"`{name}` was dropped and created again; records {batch.first} and later were "
            "acknowledged for the dropped table"
        )

    def check_not_dropped(self, name: TableName, table_id: str) -> None:
        """Raise NotLoadedError if the table is gone and its drop began here."""
        if self._registry.has_drop(table_id):
            raise NotLoadedError(f"`{name}` was dropped", dropped=True)

    def _loaded_before(self, table: Table, table_id: str, batch: Batch) -> Loaded | None:
        """The batch, if the table has it already, unknown to the log: a process that was considered
        dead published it. Raises StuckError if the table has other records than the batch.
        """
        stored = self.stored(table_id)
        above = 0 if stored is None else stored.snapshot_id or 0
        position = self._position(table, stored, table_id, above)
        if position is None or position.last < batch.first:
            return None
        if (position.first, position.last, position.dead) != (batch.first, batch.last, 0):
            raise StuckError(
                f"Snapshot {position.snapshot_id} of `{table.name}` has records {position.first} "
                f"to {position.last}, without {position.dead} dead letters. The log does not "
                f"know of this load: records {batch.first} to {batch.last} are not loaded again"
            )
        segments = self._log.read(table_id, batch.first, batch.last)
        try:
            _, chain = read_segments(segments, batch.first - 1, upto=batch.last)
        except DamagedError as error:
            raise StuckError(f"The log is damaged: {error}.") from error
        assert chain is not None
        self._log.publish(table_id, batch.last, chain, position.snapshot_id)
        return Loaded(position.snapshot_id)

    # ---- the steps of a flush ----

    def _prepared(
        self,
        table: Table,
        table_id: str,
        batch: Batch,
        opened: tuple[str, Transaction],
        lasts: Callable[[], object],
    ) -> tuple[FlushResult, CommitRequest | None]:
        """Write the batch's files, and note the flush in the log. `lasts` is called meanwhile. Ends
        the transaction if that fails. Raises NotLoadedError if it is certain that nothing was
        noted.
        """
        id, _ = opened
        try:
            return self._prepare(table, table_id, batch, opened, lasts)
        except BaseException as error:
            self._give_up(id)
            if isinstance(error, WriteFailedError):
                if error.damaged:
                    raise StuckError(str(error)) from error
                refused = _REFUSED.search(str(error)) is not None
                permanent = error.permanent
                raise NotLoadedError(str(error), permanent=permanent, refused=refused) from error
            if isinstance(error, StoreUnavailableError | StoreLostError | DeposedError):
                raise
            if isinstance(error, PaimonMagicsError | ChildDiedError | OSError):
                raise _not_loaded(error) from error
            raise

    def _prepare(
        self,
        table: Table,
        table_id: str,
        batch: Batch,
        opened: tuple[str, Transaction],
        lasts: Callable[[], object],
    ) -> tuple[FlushResult, CommitRequest | None]:
        """Write the batch's files, and note the flush in the log."""
        id, transaction = opened
        task = write_spec(table, transaction, overwrite=False, slots=1, settings=self._settings)
        segments = self._log.read(table_id, batch.first, batch.last)
        base, span = transaction.base_snapshot_id, (batch.first, batch.last)
        schemas = self._definitions.of(table)
        job = FlushJob(task, keyed_read(table, base), schemas, table.schema, segments, *span)
        result = self.flusher.write(job, meanwhile=lasts)
        at_ms = self._now_ms()
        dead = [DeadLetter(table_id, lsn, why, at_ms, body) for lsn, why, body in result.unfit]
        request = None
        if result.written is not None:
            written = completed(table, task, result.written, base)
            properties = {
                "engine": ENGINE,
                "operation": "GROUP COMMIT",
                **noted_users([name or ENGINE for name in result.users] or [ENGINE]),
                "rows": str(result.rows),
                "files": str(written.files),
            }
            request = CommitRequest(
                transaction,
                Append(),
                written.messages,
                (
                    *((PREFIX + key, value) for key, value in properties.items()),
                    *log_properties(queue_id(self._log.id, table_id), *span, len(dead)),
                ),
                # Somebody who goes around the coordinator may change the keys meanwhile.
                read_keys(base, manifest_list=transaction.base_manifest_list)
                if result.has_read
                else None,
            )
        flush = StoredFlush(*span, result.chain, id, transaction_document(transaction))
        self._log.begin_flush(table_id, flush, dead)
        reach("flush.noted")
        return result, request

    def _receipt(
        self, name: TableName, table_id: str, batch: Batch, answer: Answer
    ) -> CommitReceipt:
        match answer:
            case Committed(receipt=receipt):
                return receipt
            case Refusal(reason=reason) | Gone(reason=reason):
                self._log.drop_flush(table_id, batch.first, batch.last)
                raise NotLoadedError(reason)
            case Undetermined(reason=reason):
                raise StuckError(_unknown(name, batch.first, batch.last, reason))
            case _:
                raise StuckError(_unknown(name, batch.first, batch.last, reason_of(answer)))

    def _outcome(
        self, id: str, name: TableName, transaction: Transaction
    ) -> Steps[CommitReceipt | None]:
        """The commit of a transaction whose end this process has not seen. None when it certainly
        was not committed and never will be. Raises StuckError when that is unknown, and
        NotYetKnownError when it can't be determined now.
        """
        state = self._coordinator.stored.state(id)
        if state is None:
            try:
                receipt = find_commit(self._catalog.load(name), transaction)
                if receipt is not None:
                    return receipt
                # A process that has begun to publish it must not succeed any more.
                document = transaction_document(transaction)
                self._transactions.adopt(id, ENGINE, document, None, Origin(engine=ENGINE))
            except UnknownOutcomeError as error:
                raise StuckError(str(error)) from error
            state = self._coordinator.stored.state(id)
            if state is None:
                return None
        if state.phase is Phase.ACTIVE:
            reason = "the outcome of its batch is not known"
            answer = yield self._transactions.abort_soon(id, reason)
            if not isinstance(answer, Aborted | NotCommitted | Gone):
                raise StuckError(_unknown(name, 0, 0, reason_of(answer)))
            state = self._coordinator.stored.state(id) or state
        match state.phase:
            case Phase.COMMITTED | Phase.LOST:
                return state.receipt
            case Phase.ABORTED:
                return None
            case Phase.ABORTING if not state.adopted:
                return None
            case Phase.UNDETERMINED:
                raise StuckError(_unknown(name, 0, 0, state.reason))
            case phase:
                raise NotYetKnownError(f"the transaction {id} of `{name}` is {phase.value}")

    def _give_up(self, id: str) -> None:
        """End a transaction; if that fails, it ends when its lease expires."""
        self._coordinator.runtime.attempt(
            f"transaction {id}",
            lambda: self._transactions.abort_soon(id, "its batch could not be written"),
        )


def _unknown(name: TableName, first: int, last: int, why: str) -> str:
    records = f"records {first} to {last}" if last else "the last batch"
    return f"Whether {records} of `{name}` became visible is unknown: {why}"


def _not_loaded(error: Exception) -> NotLoadedError:
    """The NotLoadedError for an error before the commit. A store error's hint is left out: it is
    meant for the user of a statement."""
    refused = isinstance(failure(error, "", hint=""), StoreRefusedError)
    message = error.message if isinstance(error, PaimonMagicsError) else str(error)
    return NotLoadedError(message, refused=refused)
