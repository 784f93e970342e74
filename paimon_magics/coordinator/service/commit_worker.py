"""A coordinator's slow work: commits, look-ups and removals, each of which returns an event.

All of it may be interrupted anywhere, and is done again when the coordinator restarts or a client
asks the next coordinator. A commit is looked up in the table's snapshots first. Files are removed
only after that, under a claim that no other coordinator can hold for a commit.

A commit is refused if a rule is violated, or if a store reported an error before anything was
published. After any other error its outcome is unknown, and the caller makes an event of that.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from paimon_magics.coordinator.core.events import (
    CheckFailed,
    CheckTable,
    CommitPublished,
    CommitRefused,
    CommitUnclear,
    CommitUndetermined,
    Effect,
    Event,
    FilesRemoved,
    LookUpCommit,
    RemoveFiles,
    Republish,
    RepublishUnclear,
    RunCommit,
    Ticked,
)
from paimon_magics.coordinator.core.values import Cause
from paimon_magics.coordinator.ownership.lease import Claims, Fate
from paimon_magics.coordinator.ownership.ownership import Ownership
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.protocol.errors import about
from paimon_magics.coordinator.service.opening import open_on
from paimon_magics.coordinator.service.publication_watch import PublicationMonitor, publication_of
from paimon_magics.coordinator.service.state_thread import QueuedEvent, StateThread
from paimon_magics.coordinator.store.database import StoreLostError, StoreUnavailableError
from paimon_magics.coordinator.store.state_store import StateStore
from paimon_magics.coordinator.turns import Turns
from paimon_magics.errors import (
    CommitConflictError,
    CompactionConflictError,
    OutdatedPlanError,
    PaimonMagicsError,
    SetupError,
    StatementError,
    TableDamagedError,
    UnknownNameError,
    UnknownOutcomeError,
)
from paimon_magics.faults import reach
from paimon_magics.planning.commits.publications import Verdict
from paimon_magics.planning.commits.requests import (
    Append,
    CommitReceipt,
    CommitRequest,
    Transaction,
)
from paimon_magics.settings import Settings
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.commit import remove_run
from paimon_magics.tables.commits.decoded_request import (
    DecodedRequest,
    check_files,
    check_names,
    decoded,
    settle,
)
from paimon_magics.tables.commits.fencing import DeposedError, commit_fenced, is_fenced
from paimon_magics.tables.commits.message_checks import has_other_creation
from paimon_magics.tables.commits.publication_checks import unnamed_receipt
from paimon_magics.tables.commits.receipts import find_commit
from paimon_magics.tables.snapshots.load_history import LoadHistory
from paimon_magics.tables.snapshots.provenance import LOAD, PREFIX
from paimon_magics.tables.stores.store import UnreachableError
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.cleanup import LeftTo, remove_uncommitted

_log = logging.getLogger(__name__)

_WORKERS = 8
_PAUSE_MS = 2_000
_TAKEOVER = ((PREFIX + "engine", "coordinator"), (PREFIX + "operation", "TAKEOVER"))


class CommitWorker:
    """Does the work in the calling thread, which may be any; a table has one commit at a time.

    Every method that changes something raises DeposedError when another coordinator has taken over.
    """

    def __init__(
        self,
        catalog: Catalog,
        store: StateStore,
        settings: Settings,
        turns: Turns,
        watching: PublicationMonitor,
        ownership: Ownership | None,
        state_thread: StateThread,
    ) -> None:
        self._now_ms = state_thread.now_ms
        self._attempt = state_thread.runtime.attempt
        self._leftovers = state_thread.runtime.pool("leftovers", 1)
        self._cleaned: set[str] = set()
        self._state_thread = state_thread
        self._catalog = catalog
        self._store = store
        self._settings = settings
        self._turns = turns
        self._watching = watching
        self._ownership = ownership
        self._owned_epoch = 0
        files = catalog.stores.of(catalog.warehouse)
        self._claims = (
            None if ownership is None else Claims(files, catalog.warehouse, ownership.instance)
        )

    def commit(
        self, id: str, request: CommitRequest, adopted: int = 0, *, again: bool = False
    ) -> Event:
        """Publish a commit that a client asked for.

        `adopted` is the epoch in which this coordinator took the transaction over from another
        coordinator, 0 for its own. `again`: it was tried before, so a table that can't be read now
        is checked later.
        """
        try:
            return self._publish(id, request, adopted)
        except (DeposedError, StoreLostError):
            raise
        except (UnknownOutcomeError, UnreachableError, StoreUnavailableError) as error:
            # Nothing was published, or that is unknown: the commit is looked up, and retried.
            with about(table := request.transaction.table):
                _log.warning("Commit %s of `%s` waits: %s", id, table, error)
            return CommitUnclear(id)
        except PaimonMagicsError as error:
            if again and isinstance(error, TableDamagedError):
                return CommitUnclear(id)
            conflicting = error.conflicting if isinstance(error, CompactionConflictError) else ()
            return CommitRefused(id, str(error), self._now_ms(), _cause(error), conflicting)

    def look_up(self, id: str, request: CommitRequest, adopted: int) -> Event:
        """Look for a commit that may have happened; publish it if it certainly has not."""
        transaction = request.transaction
        try:
            table = self._catalog.load(transaction.table)
            if has_other_creation(table, transaction.table_creation):
                reason = (
                    f"`{table.name}` is another table now: the transaction's table was "
                    "dropped or renamed."
                )
                return CommitUndetermined(id, reason, self._now_ms())
            decoded_request = decoded(table, request)
            receipt = find_commit(table, transaction) or unnamed_receipt(decoded_request)
            if receipt is not None:
                self._tidy(table, id, transaction, adopted)
                self._record_load(decoded_request, receipt)
                self._settle(decoded_request)
                publication = publication_of(id, decoded_request, receipt, now_ms())
                return CommitPublished(id, receipt, self._now_ms(), publication)
            if not self._claim(transaction, Fate.COMMIT):
                return CommitRefused(id, "its files are being removed", self._now_ms())
            check_files(decoded_request)
        except DeposedError:
            raise
        except UnknownOutcomeError as error:
            return CommitUndetermined(id, error.message, self._now_ms())
        except UnknownNameError as error:
            # It may have been published before a drop that broke off with this process.
            return CommitUndetermined(id, error.message, self._now_ms())
        except CommitConflictError as error:
            return self._refused(id, request, str(error), adopted)
        event = self.commit(id, request, adopted, again=True)
        match event:
            case CommitRefused(reason=reason, cause=cause):
                return self._refused(id, request, reason, adopted, cause)
            case CommitPublished():
                self._attempt("claim", lambda: self._drop_claim(transaction))
        return event

    def remove(self, id: str, transaction: Transaction, adopted: int) -> Event:
        """Remove the files of an ended transaction, unless it turns out to be committed."""
        if self._ownership is not None:
            self._ownership.check()
        try:
            table = self._catalog.load(transaction.table)
        except UnknownNameError:
            return FilesRemoved(id, self._now_ms())  # the table itself is gone
        if has_other_creation(table, transaction.table_creation):
            return FilesRemoved(id, self._now_ms())
        if not self._claim(transaction, Fate.REMOVAL):
            return Ticked(self._now_ms())  # another coordinator was about to commit it
        commit = find_commit(table, transaction)
        if commit is None and self._may_be_others(adopted):
            if not self._fence(table):
                return Ticked(self._now_ms())
            commit = find_commit(table, transaction)
        if commit is None:
            reach("removal.claimed")
            self._remove_runs(table, id, transaction, adopted)
            wait_ms_max = self._settings.attempt_wait_ms_max
            # Another coordinator may have committed it, and somebody rolled that back: branches
            # and tags may have its files. The document of an adopted one says nothing about when
            # it began.
            since = None if self._may_be_others(adopted) else transaction.base_snapshot_id
            remove_uncommitted(
                table, transaction, frozenset(), wait_ms_max, since, self._left_to(table)
            )
            reach("files.removed")
            history = LoadHistory(table)
            self._attempt("load history", lambda: history.forget(transaction.commit_user))
        self._drop_claim(transaction)
        if commit is not None:
            return CommitPublished(id, commit, self._now_ms())
        return FilesRemoved(id, self._now_ms())

    def sweep(self, request: CommitRequest) -> int:
        """Remove the files that a committed transaction wrote and did not commit; return how
        many."""
        table = self._catalog.load(request.transaction.table)
        keep = decoded(table, request).file_names
        wait_ms_max = self._settings.attempt_wait_ms_max
        return remove_uncommitted(
            table, request.transaction, keep, wait_ms_max, left_to=self._left_to(table)
        )

    @property
    def epoch(self) -> int | None:
        """The epoch in which the warehouse is owned, 0 before; None without ownership."""
        return None if self._ownership is None else self._ownership.epoch

    def own(self) -> None:
        """Own the warehouse from now on. Once in each epoch, drop the claims that no client can use
        any more. Raises what `Ownership.acquire` raises.
        """
        if self._ownership is not None and self._ownership.acquire() != self._owned_epoch:
            self._owned_epoch = self._ownership.epoch
            kept_ms = self._state_thread.state.limits.receipt_retention_ms
            self._attempt("old claims", lambda: self._drop_claims(self._now_ms() - kept_ms))

    def _drop_claims(self, before_ms: int) -> None:
        assert self._claims is not None  # where the warehouse is owned
        self._claims.drop_older(before_ms)

    def receipt(self, transaction: Transaction) -> CommitReceipt | None:
        """The receipt of a transaction's commit; None when the table has none, or no longer shows
        it."""
        try:
            return find_commit(self._catalog.load(transaction.table), transaction)
        except PaimonMagicsError:
            return None

    def _publish(self, id: str, request: CommitRequest, adopted: int) -> Event:
        table = self._catalog.load(request.transaction.table)
        stopped = self._state_thread.state.stopped.get(table.location)
        if stopped is not None:
            raise CommitConflictError(stopped.reason)
        decoded_request = decoded(table, request)
        check_names(decoded_request)
        run = self._store.transactions.runs(id)
        with self._turns(table.location):
            findings = self._watching.look(table.location, table)
            if any(f.verdict not in (Verdict.INTACT, Verdict.SETTLED) for f in findings):
                return self._watching.finished_check(table.location, findings, before=id)
            # A commit runs again only after a look-up has found it absent.
            receipt = commit_fenced(
                decoded_request,
                self._catalog.publish,
                None if self._ownership is None else self._ownership.fence(),
                token=_token(id, run, adopted),
                only_here=not self._may_be_others(adopted),
            )
        self._settle(decoded_request)
        self._record_load(decoded_request, receipt)
        reach("commit.published")
        if run > 1:
            self._tidy(table, id, request.transaction, adopted)
        publication = publication_of(id, decoded_request, receipt, now_ms())
        return CommitPublished(id, receipt, self._now_ms(), publication, findings)

    def _record_load(self, commit: DecodedRequest, receipt: CommitReceipt) -> None:
        """Complete the history of the files that a commit has loaded. If it fails, whoever notes a
        load next tries again; the note and the snapshot tell readers until then."""
        if PREFIX + LOAD not in dict(commit.request.properties):
            return
        reach("load.published")
        user = commit.request.transaction.commit_user
        history = LoadHistory(commit.table)
        with about(commit.table.name):
            self._attempt("load history", lambda: history.record(user, receipt.snapshot_id))

    def _settle(self, commit: DecodedRequest) -> None:
        """Clean up after a commit. A failure is logged and counted: a later transaction of the
        table tries again."""
        with about(commit.table.name):
            self._attempt("clean-up", lambda: settle(commit, self._left_to(commit.table)))

    def _left_to(self, table: Table) -> LeftTo:
        """Has the removal of what other transactions left done later, by one thread, for a table
        once at a time: it may take long, and no commit waits."""

        def later(remove: Callable[[], int]) -> None:
            if table.location in self._cleaned:
                return
            self._cleaned.add(table.location)

            def work() -> None:
                try:
                    remove()
                finally:
                    self._cleaned.discard(table.location)

            self._leftovers.run("clean-up", work)

        return later

    def end(self) -> None:
        """Stop after the removal that was started."""
        self._leftovers.end()

    def _remove_runs(self, table: Table, id: str, transaction: Transaction, adopted: int) -> None:
        """Remove the metadata files of interrupted runs, of this process or an earlier process."""
        for run in range(1, self._store.transactions.runs(id) + 1):
            remove_run(table, transaction, _token(id, run, adopted))

    def _tidy(self, table: Table, id: str, transaction: Transaction, adopted: int) -> None:
        """Remove the files that interrupted runs of a commit left, once the commit is in the
        table."""
        self._attempt("clean-up", lambda: self._remove_runs(table, id, transaction, adopted))

    def _fence(self, table: Table) -> bool:
        """Publish a snapshot without changes, unless the latest one is this coordinator's. From
        then on an earlier coordinator that was interrupted while it published can't succeed any
        more. Return False for a table that is stopped, so that nothing may be published."""
        assert self._ownership is not None
        if is_fenced(table, self._ownership.epoch):
            return True
        if table.location in self._state_thread.state.stopped:
            return False
        request = CommitRequest(open_on(table, None), Append(makes_snapshot=True), (), _TAKEOVER)
        decoded_request = decoded(table, request)
        with self._turns(table.location):
            commit_fenced(decoded_request, self._catalog.publish, self._ownership.fence())
        self._settle(decoded_request)
        return True

    def _may_be_others(self, adopted: int) -> bool:
        """Whether another coordinator may have been interrupted while it published a
        transaction."""
        succeeded = self._ownership is not None and self._ownership.succeeded_another
        return bool(adopted) or succeeded

    def _refused(
        self,
        id: str,
        request: CommitRequest,
        reason: str,
        adopted: int,
        cause: Cause = Cause.CONFLICT,
    ) -> Event:
        """The event of a refusal. An earlier coordinator that was interrupted while publishing the
        transaction can still succeed until this coordinator publishes on its table. Until then the
        outcome is undetermined; if the store was the reason, the commit is retried.
        """
        if self._ownership is not None and self._may_be_others(adopted):
            table = self._catalog.load(request.transaction.table)
            if not is_fenced(table, self._ownership.epoch):
                if cause is Cause.STORAGE:
                    return CommitUnclear(id)
                return CommitUndetermined(id, reason, self._now_ms())
        # It will not be committed: a removal of its files must be able to claim it.
        self._attempt("claim", lambda: self._drop_claim(request.transaction))
        return CommitRefused(id, reason, self._now_ms())

    def _claim(self, transaction: Transaction, fate: Fate) -> bool:
        return self._claims is None or self._claims.take(transaction.file_prefix, fate)

    def _drop_claim(self, transaction: Transaction) -> None:
        if self._claims is not None:
            self._claims.drop(transaction.file_prefix)


def _cause(error: PaimonMagicsError) -> Cause:
    match error:
        case SetupError():
            return Cause.STORAGE
        case StatementError():
            return Cause.REQUEST
        case OutdatedPlanError():
            return Cause.OUTDATED
        case CompactionConflictError():
            return Cause.COMPACTION
        case _:
            return Cause.CONFLICT


def _token(id: str, run: int, adopted: int) -> str:
    """The token in the names of the metadata files of a run. For an adopted transaction it differs
    from the tokens of the coordinator that opened it, which may still be at work."""
    return f"{id}-{adopted}-{run}" if adopted else f"{id}-{run}"


# The threads that carry out the core's decisions: commits, look-ups, removals, checks of tables.
# Each effect ends in one event. An unexpected exception in `commit_worker` or `publication_watch`
# becomes an event that reports it: the outcome of a commit is unknown then, and is looked up. The
# core ensures that a table has one commit at a time.


class CommitPool:
    """Carries out effects, and hands the events that follow to `state_thread`.

    `retries` counts, by transaction or location, the tries since the last clear outcome, of checks
    of a table's commits, too.
    """

    def __init__(
        self,
        state_thread: StateThread,
        worker: CommitWorker,
        watching: PublicationMonitor,
    ) -> None:
        self._now_ms = state_thread.now_ms
        self._state_thread = state_thread
        self._worker = worker
        self._watching = watching
        self._pool = state_thread.runtime.pool("commits", _WORKERS)
        self.retries: Counter[str] = Counter()

    def carry_out(self, effect: Effect) -> None:
        """Start the work of an effect, if it is one for the pool."""
        match effect:
            case RunCommit(id=id):
                self._begin(id, lambda: self._commit(id), lambda why: CommitUnclear(id))
            case LookUpCommit(id=id):
                self._begin(id, lambda: self._look_up(id), lambda why: CommitUnclear(id))
            case RemoveFiles(id=id):  # tried again after the grace period
                self._begin(id, lambda: self._remove(id), lambda why: Ticked(self._now_ms()))
            case CheckTable(location=location):
                self._begin(
                    location,
                    lambda: self._watching.check(location),
                    lambda why: CheckFailed(location, _unread(why), self._now_ms()),
                )
            case Republish(publication=publication):
                self._begin(
                    publication.location,
                    lambda: self._watching.republish(publication),
                    lambda why: RepublishUnclear(publication.location),
                )

    def end(self) -> None:
        """Stop after the work that was started."""
        self._pool.end()
        self._worker.end()

    def _begin(
        self, key: str, work: Callable[[], Event], otherwise: Callable[[Exception], Event]
    ) -> None:
        def crashed(error: Exception) -> Event:
            if isinstance(error, DeposedError | StoreLostError):
                self._state_thread.depose(error)
                return Ticked(self._now_ms())
            return otherwise(error)

        def deliver(event: Event) -> None:
            if isinstance(event, CommitUnclear | RepublishUnclear | CheckFailed):
                self.retries[key] += 1
            else:
                self.retries.pop(key, None)
            self._state_thread.put(QueuedEvent(event))

        # The first look-up follows at once; later look-ups wait for the obstacle to change.
        pause_ms = _PAUSE_MS if self.retries[key] > 1 else 0
        self._pool.effect(key, work, crashed, deliver, after_ms=pause_ms)

    def _commit(self, id: str) -> Event:
        return self._worker.commit(id, self._request(id))

    def _look_up(self, id: str) -> Event:
        transaction = self._state_thread.state.transactions[id]
        return self._worker.look_up(id, self._request(id), transaction.adopted)

    def _request(self, id: str) -> CommitRequest:
        request = self._state_thread.stored.request(id)
        assert request is not None
        return request

    def _remove(self, id: str) -> Event:
        transaction, opened = (
            self._state_thread.state.transactions.get(id),
            self._state_thread.opened.get(id),
        )
        if opened is None:  # an earlier try has removed them
            return Ticked(self._now_ms())
        return self._worker.remove(id, opened, 0 if transaction is None else transaction.adopted)


def _unread(why: Exception) -> str:
    return f"The table's snapshots can't be read: {why}"
