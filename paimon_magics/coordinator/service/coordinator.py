"""The coordinator at work: carries out what its core decides.

What is asked goes to the thread that owns the state (`deciding`) as an event, and is answered when
that is saved. Commits, look-ups and removals run in a pool of threads and come back as events; the
core sees to it that a table has one commit at a time.

If the process dies: a transaction that was answered is stored; a commit that was under way is
looked up in the table's snapshots at the next start, before anything else happens to its table.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from paimon_magics.coordinator.core import (
    NOWHERE,
    AbortAsked,
    Adopted,
    Answer,
    BeginAsked,
    CheckTable,
    CommitAsked,
    CommitPublished,
    Committed,
    CommitUnclear,
    Done,
    Effect,
    Event,
    Halted,
    HeartbeatAsked,
    Limits,
    LookUpCommit,
    Noted,
    Occupied,
    Opened,
    Origin,
    Pause,
    PauseAsked,
    Phase,
    RemoveFiles,
    Republish,
    Republished,
    Restored,
    RunCommit,
    State,
    Suspended,
    TransactionState,
    TurnAsked,
    Unknown,
    UnpauseAsked,
)
from paimon_magics.coordinator.ownership.ownership import Ownership
from paimon_magics.coordinator.protocol.documents import (
    digest_of,
    request_of,
    transaction_of,
)
from paimon_magics.coordinator.protocol.errors import RESUME_HINT, PausedError, TableHeldError
from paimon_magics.coordinator.service.adopting import adopted_transaction, check_adopted_id
from paimon_magics.coordinator.service.commit_worker import Worker
from paimon_magics.coordinator.service.expiry import Upkeep
from paimon_magics.coordinator.service.opening import open_transaction
from paimon_magics.coordinator.service.overwritten_cleanup import Overwritten
from paimon_magics.coordinator.service.publication_watch import Watching
from paimon_magics.coordinator.service.recent_errors import RecentErrors
from paimon_magics.coordinator.service.snapshot_leases import Leases
from paimon_magics.coordinator.service.state_thread import Asked, StateThread
from paimon_magics.coordinator.store.database import StoreUnavailableError
from paimon_magics.coordinator.store.store import Store
from paimon_magics.coordinator.turns import Turns
from paimon_magics.errors import (
    CommitConflictError,
    InvalidValueError,
    OutdatedPlanError,
    PaimonMagicsError,
)
from paimon_magics.planning.commits.expiry import NO_FLOOR
from paimon_magics.planning.commits.publications import Publication, PublicationFinding, Verdict
from paimon_magics.planning.commits.requests import CommitRequest, Transaction
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.writes.inserts import takes_one_at_a_time
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.decoded_request import check_names, decoded
from paimon_magics.tables.commits.fencing import DeposedError
from paimon_magics.tables.commits.receipts import find_commit
from paimon_magics.tables.snapshots.provenance import noted_files
from paimon_magics.tables.stores.probes import store_facts
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.cleanup import tidy_up

__all__ = ["Coordinator"]

_WORKERS = 8
_TICK_SECONDS = 1.0
_RETRY_SECONDS = 2.0
_T = TypeVar("_T")


class Coordinator:
    """Owns the commits of one warehouse. Every method may be called from any thread.

    `turns` keeps apart what changes one table; whoever else does so in this process takes one too.
    `watching` knows what was published, `republished` is how many commits were published again
    since the start, and `recent_errors` what went wrong. Without `ownership` (a warehouse whose
    catalog publishes snapshots by its own comparison) any number of coordinators may be at work.
    """

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        settings: Settings,
        limits: Limits | None = None,
        ownership: Ownership | None = None,
    ) -> None:
        self._catalog = catalog
        self._ownership = ownership
        self._epoch = 0
        self._store = store
        limits = limits or Limits()
        self._decider = StateThread(
            store,
            State(limits),
            happened=self._happened,
            carry_out=self._carry_out,
            may_answer=(lambda: None) if ownership is None else ownership.check_time,
        )
        self.republished = 0
        self.recent_errors = RecentErrors()
        self.turns = Turns()
        self.watching = Watching(
            catalog,
            store,
            self.turns,
            state=lambda: self._decider.state,
            request=self._request,
            ask=lambda make: self._decider.ask(lambda ask: Asked(make(ask))),
            fence=None if ownership is None else ownership.fence,
        )
        self._worker = Worker(
            catalog,
            store,
            settings,
            self.turns,
            self.watching,
            ownership,
            stopped=lambda: self._decider.state.stopped,
        )
        self.leases = Leases(catalog, limits.lease_ms, _now_ms())
        self.upkeep = Upkeep(
            catalog,
            self.turns,
            self.leases,
            self._first_needed,
            limits.expire_every_ms,
            Overwritten(
                catalog,
                store,
                self.turns,
                limits.cleanup_grace_ms,
                watched=lambda: self.state.watched,
                check=(lambda: None) if ownership is None else ownership.check,
            ),
            check=None if ownership is None else ownership.check,
            waits=lambda: self.state.pause is not None,
        )
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="commit")
        self.place: Callable[[Table], Callable[[str | None], None]] | None = None
        """Gives a transaction its place among the small inserts of a table that takes them: waits
        until those before it are visible, and returns a function that is told its id, or None
        where it was not opened."""

    def start(self) -> None:
        """Restore what was stored and begin to work.

        Raises SetupError when something is stored and another coordinator owns the warehouse.
        """
        stored = self._store.unfinished()
        for held, opened in stored:
            self._decider.opened[held.id] = transaction_of(opened)
        if stored:
            self._own()
        if self._ownership is not None and self._ownership.succeeded_another:
            stored = [(held, opened) for held, opened in stored if not self._was_committed(held)]
        self._decider.put(
            Asked(
                Restored(
                    tuple(held for held, _ in stored),
                    _now_ms(),
                    tuple(self._store.watched()),
                    tuple(self._store.stopped()),
                    self._store.pause(),
                )
            )
        )
        self.recent_errors.begin()
        self._decider.start()
        self.upkeep.start()

    def stop(self) -> None:
        """End after the commits under way; open transactions stay stored."""
        self._decider.refuse()
        self.upkeep.stop()
        self._pool.shutdown(wait=True)
        self._decider.stop()
        if self._ownership is not None:
            self._ownership.release()
        self._store.close()
        self.recent_errors.end()

    def depose(self, error: DeposedError) -> None:
        """Answer nothing more: another coordinator owns the warehouse. For any thread."""
        self._decider.depose(error)

    @property
    def deposed(self) -> DeposedError | None:
        """What it ended with when another coordinator has taken the warehouse over."""
        return self._decider.deposed

    @property
    def problem(self) -> str | None:
        """Why nothing is taken now: it has stopped for good, or its store does not work."""
        return self._decider.problem

    @property
    def store_trouble(self) -> str:
        """Why the warehouse's store could not be written the last time; "" while it could."""
        return "" if self._ownership is None else self._ownership.trouble

    @property
    def store_facts(self) -> dict[str, str]:
        """How it reaches the warehouse, without secrets."""
        return dict(store_facts(self._catalog.options))

    @property
    def state(self) -> State:
        """The unfinished transactions of this moment; a value, so safe to look at."""
        return self._decider.state

    @property
    def finished(self) -> Mapping[Phase, int]:
        """How many transactions were finished since the start."""
        return self._decider.finished

    @property
    def epoch(self) -> int | None:
        """The epoch in which it owns the warehouse, 0 before it does; None where nobody owns it."""
        return None if self._ownership is None else self._ownership.epoch

    def recent_publications(self, count: int) -> list[Publication]:
        """What was published last, within and outside transactions, the newest first."""
        return self._store.recent_publications(count)

    def held(self, id: str) -> TransactionState | None:
        """A transaction, finished or not, while an answer about it is kept."""
        return self._decider.state.held.get(id) or self._store.finished(id)

    def recently_finished(self, count: int) -> list[TransactionState]:
        """The transactions that were finished last, the newest first."""
        return self._store.recently_finished(count)

    def location_of(self, table: TableName) -> str:
        """Where a table lies, by which the state knows it. Raises UnknownNameError."""
        return self._catalog.load(table).location

    def transaction(self, id: str) -> Transaction | None:
        """What was agreed when a transaction was opened."""
        opened = self._decider.opened.get(id)
        if opened is not None:
            return opened
        stored = self._store.opened(id)
        return None if stored is None else transaction_of(stored)

    def begin(
        self,
        table: TableName,
        base_snapshot_id: int | None,
        owner: str,
        origin: Origin = NOWHERE,
        *,
        in_pause: bool = False,
        ticket: str = "",
    ) -> tuple[str, Transaction, Opened]:
        """Open a transaction; raises errors of ours for a table that can't be committed to, and
        PausedError in a pause, unless it may begin `in_pause`.

        `ticket` will be the transaction's id: who comes with it to a table that takes one
        transaction at a time is in the line from then on, and keeps the place there by asking
        again. Raises TableHeldError while it is not their turn. The base is read after that.
        """
        self._own()
        if self.state.pause is not None and not in_pause:
            raise PausedError(self.state.pause)
        if ticket:
            self._check_turn(table, ticket)
        loaded, transaction = open_transaction(self._catalog, table, base_snapshot_id)
        if self.place is None or in_pause or not loaded.schema.flag("auto_batch_load"):
            return self._begin(loaded, transaction, owner, origin, in_pause, ticket)
        tidy_up(loaded, transaction, frozenset())
        taken_by = self.place(loaded)
        try:
            # Opened anew: its base has what was inserted before.
            loaded, transaction = open_transaction(self._catalog, table, base_snapshot_id)
            begun = self._begin(loaded, transaction, owner, origin, in_pause, ticket)
        except BaseException:
            taken_by(None)
            raise
        taken_by(begun[0])
        return begun

    def _check_turn(self, name: TableName, ticket: str) -> None:
        if self.transaction(ticket) is not None:
            raise InvalidValueError(f"There is a transaction {ticket} already.")
        table = self._catalog.load(name)
        if not takes_one_at_a_time(table.schema):
            return
        answer = self._decider.ask(
            lambda ask: Asked(TurnAsked(ticket, table.location, _now_ms(), ask))
        )
        if answer != Done():
            raise _not_opened(name, answer)

    def _begin(
        self,
        loaded: Table,
        transaction: Transaction,
        owner: str,
        origin: Origin,
        in_pause: bool,
        ticket: str,
    ) -> tuple[str, Transaction, Opened]:
        table = loaded.name
        self.watching.forget_predecessor(loaded)
        id = ticket or uuid.uuid4().hex
        try:
            answer = self._decider.ask(
                lambda ask: Asked(
                    BeginAsked(
                        id,
                        loaded.location,
                        owner,
                        _now_ms(),
                        ask,
                        takes_one_at_a_time(loaded.schema),
                        origin,
                        str(table),
                        in_pause,
                        bool(ticket),
                    ),
                    opened=transaction,
                )
            )
        except StoreUnavailableError as error:
            if not error.unclear:
                tidy_up(loaded, transaction, frozenset())
            raise
        if not isinstance(answer, Opened):
            tidy_up(loaded, transaction, frozenset())
            raise _not_opened(table, answer)
        base = transaction.base_snapshot_id
        if base > 0 and not self.leases.stays(loaded, base):
            self.abort(id, "the snapshot that it was planned on has expired")
            raise OutdatedPlanError(
                f"Snapshot {base} of `{table}`, which the statement was planned on, has expired.",
                hint="Nothing was written. Run the statement again.",
            )
        return id, transaction, answer

    def lease(
        self, holder: str, wanted: Collection[tuple[TableName, int]]
    ) -> tuple[int, list[tuple[TableName, int]]]:
        """Keep the snapshots that `holder` reads, and no other of its; see `Leases.renew`."""
        return self.leases.renew(holder, wanted, _now_ms())

    def heartbeat(self, id: str) -> Answer:
        """Renew a transaction's lease."""
        return self._decider.ask(lambda ask: Asked(HeartbeatAsked(id, _now_ms(), ask)))

    def commit(self, id: str, request: CommitRequest) -> Answer:
        """Commit a transaction, or learn what became of it."""
        digest = digest_of(request)
        files = noted_files(request.properties)
        return self._decider.ask(
            lambda ask: Asked(CommitAsked(id, digest, ask, files=files), request=request)
        )

    def adopt(
        self,
        id: str,
        owner: str,
        document: Any,
        request_for: Callable[[Transaction], CommitRequest] | None,
        origin: Origin = NOWHERE,
    ) -> Answer:
        """Commit what another coordinator has opened, or end it where `request_for` is None.

        `document` is the client's, `request_for` makes of it what is to be committed. Raises
        InvalidValueError for what no coordinator can have opened, UnknownOutcomeError when the
        table no longer tells what became of it.
        """
        check_adopted_id(id)
        self._own()
        table, transaction = adopted_transaction(self._catalog, document)
        asked = None if request_for is None else request_for(transaction)
        if asked is not None:
            check_names(decoded(table, asked))
        found = find_commit(table, transaction)
        if found is not None and asked is not None:
            return Committed(found)
        if self._ownership is None:
            return Unknown()
        digest = None if asked is None else digest_of(asked)
        epoch = self._ownership.epoch
        return self._decider.ask(
            lambda ask: Asked(
                Adopted(
                    id,
                    table.location,
                    owner,
                    digest,
                    epoch,
                    _now_ms(),
                    ask,
                    takes_one_at_a_time(table.schema),
                    origin,
                    str(table.name),
                    None if asked is None else noted_files(asked.properties),
                ),
                opened=transaction,
                request=asked,
            )
        )

    def abort(self, id: str, reason: str) -> Answer:
        """End a transaction without a commit."""
        return self._decider.ask(lambda ask: Asked(AbortAsked(id, reason, _now_ms(), ask)))

    def pause(self, by: str) -> Pause:
        """Let nothing new begin, from the return on; who has paused it before stays the one who is
        named."""
        self._own()
        answer = self._decider.ask(lambda ask: Asked(PauseAsked(by, _now_ms(), ask)))
        assert isinstance(answer, Suspended)
        return answer.pause

    def unpause(self) -> None:
        """Let new things begin again."""
        self._own()
        self._decider.ask(lambda ask: Asked(UnpauseAsked(ask)))

    def sweep(self, id: str, request: CommitRequest) -> int | None:
        """Remove what a committed transaction wrote and did not commit; how many files that were.

        None when the transaction is not committed, or not with this request.
        """
        held = self.held(id)
        if held is None or held.phase is not Phase.COMMITTED or held.digest != digest_of(request):
            return None
        return self._worker.sweep(request)

    # ---- owning the warehouse ----

    def _own(self) -> None:
        if self._ownership is not None and self._ownership.acquire() != self._epoch:
            self._epoch = self._ownership.epoch
            self._worker.drop_claims(_now_ms() - self._decider.state.limits.receipt_retention_ms)

    def _was_committed(self, held: TransactionState) -> bool:
        """Whether a coordinator between this one's two lives has committed the transaction; if so
        that is stored."""
        found = self._worker.receipt(self._decider.opened[held.id])
        if found is None:
            return False
        until_ms = _now_ms() + self._decider.state.limits.receipt_retention_ms
        self._store.save(
            replace(held, phase=Phase.COMMITTED, receipt=found, expires_at_ms=until_ms)
        )
        self._decider.opened.pop(held.id)
        return True

    def _first_needed(self, location: str, branch: str | None) -> int:
        """The first snapshot of a table's branch that a transaction, or the watch over what was
        published, may still look at."""
        state = self._decider.state
        opened = [
            self._decider.opened.get(id) for id, one in state.held.items() if one.table == location
        ]
        needed = [one.base_snapshot_id for one in opened if one and one.table.branch == branch]
        needed += [
            publication.snapshot_id
            for publication in state.watched.get(location, ())
            if publication.table.branch == branch
        ]
        return min(needed, default=NO_FLOOR)

    # ---- what follows from an event ----

    def _happened(self, event: Event) -> None:
        match event:
            case Republished(finding=PublicationFinding(verdict=Verdict.REPUBLISHED)):
                self.republished += 1
            case CommitPublished(publication=Publication() as made) | Noted(publication=made):
                self.upkeep.committed(made.table, made.location)
            case _:
                pass

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case RunCommit(id=id):
                self._run(self._commit, id)
            case LookUpCommit(id=id):
                self._run(self._look_up, id)
            case RemoveFiles(id=id):
                self._run(self._remove, id)
            case CheckTable(table=table):
                self._run(self.watching.check, table)
            case Republish(publication=publication):
                self.upkeep.wrote_over()
                self._run(self.watching.republish, publication)
            case _:
                pass

    def _request(self, id: str) -> CommitRequest | None:
        body, transaction = self._store.request(id), self.transaction(id)
        return (
            None
            if body is None or transaction is None
            else request_of(transaction, json.loads(body))
        )

    # ---- the pool ----

    def _run(self, action: Callable[[_T], Event], argument: _T) -> None:
        def work() -> None:
            try:
                self._decider.put(Asked(action(argument)))
            except DeposedError as error:
                self.depose(error)

        with contextlib.suppress(RuntimeError):  # stopping: it is found again at the next start
            self._pool.submit(work)

    def _commit(self, id: str) -> Event:
        try:
            request = self._request(id)
            assert request is not None
        except Exception:
            return CommitUnclear(id)
        return self._worker.commit(id, request)

    def _look_up(self, id: str) -> Event:
        try:
            request, adopted = self._request(id), self._decider.state.held[id].adopted
            assert request is not None
        except Exception:
            time.sleep(_RETRY_SECONDS)
            return CommitUnclear(id)
        return self._worker.look_up(id, request, adopted)

    def _remove(self, id: str) -> Event:
        held = self._decider.state.held.get(id)
        return self._worker.remove(
            id, self._decider.opened[id], 0 if held is None else held.adopted
        )


def _not_opened(table: TableName, answer: Answer) -> PaimonMagicsError:
    match answer:
        case Suspended(pause=pause):
            return PausedError(pause)
        case Halted(reason=reason):
            return CommitConflictError(reason, hint=RESUME_HINT)
        case Occupied(holder=None, ahead=ahead):
            return TableHeldError(
                f"Table `{table}` has dynamic buckets, so that one transaction at a time may write "
                f"it, and {count_text(ahead, 'statement')} came before this one.",
                ahead,
                hint="Run it again: it waits for them.",
            )
        case Occupied(holder=TransactionState() as holder, ahead=ahead):
            seconds = (_now_ms() - holder.begun_at_ms) // 1000
            return TableHeldError(
                f"Table `{table}` has dynamic buckets, so that one transaction at a time may write "
                f"it. The one of {holder.who}, begun {seconds:,} s ago, is open: {holder.id}.",
                ahead + 1,
                hint=f"Wait for it, or end it: `%paimon abort {holder.id}`.",
            )
        case _:
            raise AssertionError(answer)


def _now_ms() -> int:
    return int(time.time() * 1000)
