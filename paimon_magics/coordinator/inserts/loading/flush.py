"""Load one batch: the flusher writes files, and an ordinary transaction commits them.

The log notes the transaction before its commit is asked for: after a crash, the next start finds
out what became of it (`settle`) before anything is loaded again. Records leave the log when their
commit is known to have succeeded: all its files are durable then.

If the process dies before the transaction is noted, its lease expires and its files are removed;
after that, `settle` finds its commit, or ends it.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from paimon_magics.coordinator.core import (
    Aborted,
    Committed,
    Gone,
    NotCommitted,
    Origin,
    Phase,
    Refusal,
    Undetermined,
)
from paimon_magics.coordinator.inserts.loading.flusher_process import (
    Flusher,
    FlushJob,
    FlushResult,
    WriteFailedError,
)
from paimon_magics.coordinator.inserts.log.interface import (
    DeadLetter,
    Log,
    LogTable,
    StoredFlush,
)
from paimon_magics.coordinator.inserts.log.records import DamagedError, read_segments
from paimon_magics.coordinator.inserts.queue.values import Batch
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.protocol.documents import transaction_document, transaction_of
from paimon_magics.coordinator.runtime.children import ChildDiedError
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.transactions import Purpose
from paimon_magics.coordinator.store.database import StoreLostError
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
from paimon_magics.tables.commits.log_positions import log_position, log_properties
from paimon_magics.tables.commits.receipts import find_commit
from paimon_magics.tables.reading.keyed_rows import keyed_read
from paimon_magics.tables.schema.identity import Definitions
from paimon_magics.tables.snapshots.latest import latest_snapshot_id
from paimon_magics.tables.snapshots.provenance import PREFIX, noted_users
from paimon_magics.tables.stores.store import StoreRefusedError, failure
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import completed, write_spec

__all__ = ["ENGINE", "Flushing", "Loaded", "NotLoadedError", "StuckError"]

ENGINE = "auto_batch_load"
"""The engine's name in the transactions and snapshots of batches."""

_POLL_SECONDS = 0.2
_NEWEST_MAX = 100

# The native writer's errors when a store refuses access.
_REFUSED = re.compile(
    r"PermissionDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|AccessDenied"
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The outcome of a load: the batch is in the table, except its dead letters (lsn, why)."""

    snapshot_id: int | None
    dead: tuple[tuple[int, str], ...] = ()


class NotLoadedError(Exception):
    """A batch is certainly not in the table. `permanent` if its rows are the reason, `refused` if
    the store refuses access."""

    def __init__(self, why: str, *, permanent: bool = False, refused: bool = False) -> None:
        super().__init__(redacted(why))
        self.permanent = permanent
        self.refused = refused


class StuckError(Exception):
    """An administrator has to look: a batch's outcome is unknown, or the log is damaged."""


class Flushing:
    """Loads batches of any tables. Safe for several threads; one batch of a table at a time."""

    def __init__(
        self,
        catalog: Catalog,
        coordinator: Coordinator,
        log: Log,
        flusher: Flusher,
        settings: Settings,
        stopping: Callable[[], bool],
    ) -> None:
        self._catalog = catalog
        self._coordinator = coordinator
        self._transactions = coordinator.transactions
        self._log = log
        self._flusher = flusher
        self._settings = settings
        self._stopping = stopping
        self._definitions = Definitions()

    def load(self, name: TableName, location: str, batch: Batch) -> Loaded:
        """Load a batch. Raises NotLoadedError, StuckError, and DeposedError when another
        coordinator owns the warehouse."""
        try:
            return self._load(name, location, batch)
        except (DeposedError, NotLoadedError, StuckError):
            raise
        except Exception as error:
            # The error may have come after the commit, or after that was noted.
            _log.error("The batch %d of `%s` was cut off: %r", batch.last, name, error)
            return self._found(name, location, batch, error)

    def _load(self, name: TableName, location: str, batch: Batch) -> Loaded:
        try:
            table = self._catalog.load(name)
            if self._coordinator.table_ids.id_of(table, look=True) != location:
                raise StuckError(
                    f"`{name}` was dropped and created again; records {batch.first} and later were "
                    "acknowledged for the dropped table"
                )
            found = self._loaded_before(table, location, batch)
            if found is not None:
                return found
            id, transaction, _ = self._transactions.begin(
                name, None, ENGINE, Origin(engine=ENGINE), purpose=Purpose.LOGGED_ROWS
            )
        except DeposedError:
            raise
        except PaimonMagicsError as error:
            raise _not_loaded(error) from error
        reach("flush.begun")
        try:
            prepared = self._prepare(table, location, batch, id, transaction)
        except BaseException as error:
            self._give_up(id)
            if isinstance(error, DeposedError | StuckError | NotLoadedError):
                raise
            if isinstance(error, WriteFailedError):
                if error.damaged:
                    raise StuckError(str(error)) from error
                refused = _REFUSED.search(str(error)) is not None
                raise NotLoadedError(
                    str(error), permanent=error.permanent, refused=refused
                ) from error
            if isinstance(error, PaimonMagicsError | ChildDiedError | OSError):
                raise _not_loaded(error) from error
            raise
        result, request = prepared
        dead = tuple((lsn, why) for lsn, why, _ in result.unfit)
        if request is None:
            self._give_up(id)
            self._log.publish(location, batch.last, result.chain, None)
            return Loaded(None, dead)
        receipt = self._commit(name, location, id, batch, request)
        reach("flush.committed")
        self._published(location, batch.last, result.chain, receipt.snapshot_id)
        reach("flush.forgotten")
        return Loaded(receipt.snapshot_id, dead)

    def last_in(self, name: TableName, location: str, above: int) -> int:
        """The last record of this log that the table's newest snapshots name, among those with ids
        above `above`; 0 where none does."""
        table = self._catalog.load(name)
        above = max(above, latest_snapshot_id(table) - _NEWEST_MAX)
        found = log_position(table, _queue_id(self._log, location), above)
        return 0 if found is None else found.last

    def settle(self, table: LogTable, name: TableName) -> bool:
        """Find out what became of a stored table's noted flush. Return whether it is loaded.

        Raises StuckError when that is unknown.
        """
        flush = table.flush
        assert flush is not None
        transaction = transaction_of(flush.transaction)
        found = self._outcome(flush.transaction_id, name, transaction)
        if found is None:
            self._log.drop_flush(table.location, flush.first, flush.last)
            return False
        self._log.publish(table.location, flush.last, flush.chain, found.snapshot_id)
        return True

    def _found(self, name: TableName, location: str, batch: Batch, error: Exception) -> Loaded:
        """The outcome of a batch whose loading ended in an unexpected error. Raises NotLoadedError
        and StuckError."""
        while True:
            try:
                stored = next((s for s in self._log.tables() if s.location == location), None)
                if stored is None or stored.published >= batch.last:
                    break
                if stored.flush is None or stored.flush.last != batch.last:
                    raise NotLoadedError(repr(error)) from error
                if not self.settle(stored, name):
                    raise NotLoadedError(repr(error)) from error
            except PaimonMagicsError as trouble:  # the log, or the warehouse's store
                if self._stopping() or isinstance(trouble, DeposedError | StoreLostError):
                    raise
                _log.warning("The batch %d of `%s` waits: %s", batch.last, name, trouble)
                time.sleep(_POLL_SECONDS)
        dead = tuple(
            (letter.lsn, letter.why)
            for letter in self._log.dead_letters(location)
            if batch.first <= letter.lsn <= batch.last
        )
        return Loaded(None if stored is None else stored.snapshot_id, dead)

    def _loaded_before(self, table: Table, location: str, batch: Batch) -> Loaded | None:
        """The batch, if the table has it already, unknown to the log: published by a process that
        was believed dead. Raises StuckError where the table has other records than the batch."""
        stored = next((s for s in self._log.tables() if s.location == location), None)
        above = 0 if stored is None else stored.snapshot_id or 0
        found = log_position(table, _queue_id(self._log, location), above)
        if found is None or found.last < batch.first:
            return None
        if (found.first, found.last, found.dead) != (batch.first, batch.last, 0):
            raise StuckError(
                f"Snapshot {found.snapshot_id} of `{table.name}` has records {found.first} to "
                f"{found.last}, {found.dead} of them left out, which the log does not know: "
                f"records {batch.first} to {batch.last} are not loaded again"
            )
        segments = self._log.read(location, batch.first, batch.last)
        try:
            _, chain = read_segments(segments, batch.first - 1, upto=batch.last)
        except DamagedError as error:
            raise StuckError(f"The log is damaged: {error}.") from error
        assert chain is not None
        self._published(location, batch.last, chain, found.snapshot_id)
        return Loaded(found.snapshot_id)

    # ---- the steps of a flush ----

    def _prepare(
        self, table: Table, location: str, batch: Batch, id: str, transaction: Transaction
    ) -> tuple[FlushResult, CommitRequest | None]:
        """Write the batch's files, and note the flush in the log."""
        task = write_spec(table, transaction, overwrite=False, slots=1, settings=self._settings)
        segments = self._log.read(location, batch.first, batch.last)
        base, span = transaction.base_snapshot_id, (batch.first, batch.last)
        schemas = self._definitions.of(table)
        job = FlushJob(task, keyed_read(table, base), schemas, table.schema, segments, *span)
        result = self._flusher.write(job, meanwhile=lambda: self._transactions.heartbeat(id))
        at_ms = now_ms()
        dead = [DeadLetter(location, lsn, why, at_ms, body) for lsn, why, body in result.unfit]
        request = None
        if result.written is not None:
            written = completed(table, task, result.written, base)
            properties = {
                "engine": ENGINE,
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
                    *log_properties(_queue_id(self._log, location), *span, len(dead)),
                ),
                # Somebody who goes around the coordinator may change the keys meanwhile.
                read_keys(base) if result.has_read else None,
            )
        flush = StoredFlush(*span, result.chain, id, transaction_document(transaction))
        self._log.begin_flush(location, flush, dead)
        reach("flush.noted")
        return result, request

    def _commit(
        self, name: TableName, location: str, id: str, batch: Batch, request: CommitRequest
    ) -> CommitReceipt:
        while True:
            try:
                answer = self._transactions.commit(id, request)
            except DeposedError:
                raise
            except PaimonMagicsError as error:  # asked again, until there is an answer
                if self._stopping() or self._coordinator.deposed is not None:
                    raise NotLoadedError(str(error)) from error
                _log.warning("The batch %d of `%s` waits: %s", batch.last, name, error)
                time.sleep(_POLL_SECONDS)
                continue
            match answer:
                case Committed(receipt=receipt):
                    return receipt
                case Refusal(reason=reason) | Gone(reason=reason):
                    self._log.drop_flush(location, batch.first, batch.last)
                    raise NotLoadedError(reason)
                case Undetermined(reason=reason):
                    raise StuckError(_unknown(name, batch.first, batch.last, reason))
                case _:
                    raise StuckError(_unknown(name, batch.first, batch.last, str(answer)))

    def _published(self, location: str, last: int, chain: int, snapshot_id: int | None) -> None:
        """Note in the log that a batch is in the table; tries until the log works."""
        while True:
            try:
                self._log.publish(location, last, chain, snapshot_id)
                return
            except StoreLostError:
                raise
            except PaimonMagicsError:
                if self._stopping():
                    raise
                time.sleep(_POLL_SECONDS)

    def _outcome(self, id: str, name: TableName, transaction: Transaction) -> CommitReceipt | None:
        """The commit of a transaction whose end this process has not seen; None when it certainly
        was not committed and never will be. Raises StuckError when that is unknown."""
        while True:
            held = self._coordinator.stored.state(id)
            if held is None:
                try:
                    found = find_commit(self._catalog.load(name), transaction)
                    if found is not None:
                        return found
                    # A process that has begun to publish it must not succeed any more.
                    document = transaction_document(transaction)
                    self._transactions.adopt(id, ENGINE, document, None, Origin(engine=ENGINE))
                except UnknownOutcomeError as error:
                    raise StuckError(str(error)) from error
                held = self._coordinator.stored.state(id)
                if held is None:
                    return None
            match held.phase:
                case Phase.COMMITTED | Phase.LOST:
                    return held.receipt
                case Phase.ABORTED:
                    return None
                case Phase.ABORTING if not held.adopted:
                    return None
                case Phase.UNDETERMINED:
                    raise StuckError(_unknown(name, 0, 0, held.reason))
                case Phase.ACTIVE:
                    answer = self._transactions.abort(id, "its coordinator has died")
                    if not isinstance(answer, Aborted | NotCommitted | Gone):
                        raise StuckError(_unknown(name, 0, 0, str(answer)))
                case _:
                    time.sleep(_POLL_SECONDS)

    def _give_up(self, id: str) -> None:
        try:
            self._transactions.abort(id, "its batch could not be written")
        except PaimonMagicsError as error:  # it ends by its lease
            _log.warning("The transaction %s is left to its lease: %s", id, error)


def _queue_id(log: Log, location: str) -> str:
    """The id of a table's records in a log; it differs from the id before a rename."""
    return f"{log.id}-{hashlib.sha256(location.encode()).hexdigest()[:8]}"


def _unknown(name: TableName, first: int, last: int, why: str) -> str:
    records = f"records {first} to {last}" if last else "the last batch"
    return f"Whether {records} of `{name}` became visible is unknown: {why}"


def _not_loaded(error: Exception) -> NotLoadedError:
    """The NotLoadedError for an error before the commit. A store error's hint is left out: it is
    meant for the user of a statement."""
    refused = isinstance(failure(error, "", hint=""), StoreRefusedError)
    message = error.message if isinstance(error, PaimonMagicsError) else str(error)
    return NotLoadedError(message, refused=refused)
