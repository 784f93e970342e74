"""Clients' requests about transactions: to open, renew, commit or end them.

A question becomes an event for the thread that owns the state, and is answered when the state is
saved. If the process dies, every transaction that was reported to a client is stored. A commit that
was under way is looked up in the table's snapshots at the next start, before anything else happens
to its table.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from paimon_magics.coordinator.core.events import (
    AbortRequested,
    Adopted,
    BeginRequested,
    CommitRequested,
    HeartbeatRequested,
    TurnRequested,
)
from paimon_magics.coordinator.core.values import (
    NOWHERE,
    Answer,
    Committed,
    Done,
    Halted,
    Occupied,
    Opened,
    Origin,
    Phase,
    Suspended,
    TransactionState,
    Unknown,
    reason_of,
)
from paimon_magics.coordinator.protocol.documents import digest_of, request_body, transaction_of
from paimon_magics.coordinator.protocol.errors import (
    RESUME_HINT,
    NotTheirsError,
    PausedError,
    TableHeldError,
)
from paimon_magics.coordinator.runtime.work import Steps, waited
from paimon_magics.coordinator.service.commit_worker import CommitWorker
from paimon_magics.coordinator.service.opening import open_on, open_transaction
from paimon_magics.coordinator.service.publication_watch import PublicationMonitor
from paimon_magics.coordinator.service.snapshot_leases import Leases
from paimon_magics.coordinator.service.state_thread import QueuedEvent, StateThread
from paimon_magics.coordinator.store.database import StoreUnavailableError
from paimon_magics.errors import (
    CommitConflictError,
    InvalidValueError,
    OutdatedPlanError,
    PaimonMagicsError,
    SetupError,
)
from paimon_magics.planning.commits.requests import (
    BATCH_COMMIT_IDENTIFIER,
    CommitRequest,
    Compact,
    OverwritePartitions,
    Transaction,
    commit_user_of,
    names_of,
)
from paimon_magics.planning.copying.load_history import LoadRecord, PendingLoad
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.writes.inserts import takes_one_at_a_time
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.decoded_request import check_names, decoded
from paimon_magics.tables.commits.receipts import EpochNote, find_commit, note_epoch, noted_epoch
from paimon_magics.tables.snapshots.latest import latest_snapshot_id
from paimon_magics.tables.snapshots.load_history import LoadHistory
from paimon_magics.tables.snapshots.provenance import PREFIX, noted_files
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.cleanup import attempts_of, tidy_up, was_committed

_UPKEEP = "paimon-magics coordinator"
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Place:
    """A transaction's place among the small inserts of the table `table_id`, "" for a table without
    small inserts. `taken_by` keeps it until the transaction with an id ends; with None, it releases
    the place.
    """

    table_id: str
    taken_by: Callable[[str | None], None]


PlaceOf = Callable[[Table], Steps[Place]]
"""Waits for a transaction's place among a table's small inserts; see
`StatementHolds.of_transaction`."""


class Purpose(Enum):
    """The purpose of a transaction: rows of a statement; rows of the log of small inserts, which
    are loaded also in a pause; or a compaction, which takes no turns since it adds no key.
    """

    ROWS = "rows"
    LOGGED_ROWS = "logged rows"
    COMPACTION = "compaction"


class Transactions:
    """Opens, commits and ends the transactions of one warehouse. For any thread."""

    def __init__(
        self,
        catalog: Catalog,
        state_thread: StateThread,
        worker: CommitWorker,
        watching: PublicationMonitor,
        leases: Leases,
    ) -> None:
        self._now_ms = state_thread.now_ms
        self._catalog = catalog
        self._state_thread = state_thread
        self._stored = state_thread.stored
        self._worker = worker
        self._watching = watching
        self._leases = leases

    def begin(
        self,
        table: TableName,
        base_snapshot_id: int | None,
        owner: str,
        origin: Origin = NOWHERE,
        *,
        purpose: Purpose = Purpose.ROWS,
        base_manifest_list: str = "",
    ) -> tuple[str, Transaction, Opened]:
        """Open a transaction without a place among small inserts; see `begin_steps`."""
        base = None if base_snapshot_id is None else (base_snapshot_id, base_manifest_list)
        return waited(self.begin_steps(table, base, owner, origin, purpose=purpose))

    def begin_steps(
        self,
        table: TableName,
        base: tuple[int, str] | None,
        owner: str,
        origin: Origin = NOWHERE,
        *,
        purpose: Purpose = Purpose.ROWS,
        ticket: str = "",
        place_of: PlaceOf | None = None,
    ) -> Steps[tuple[str, Transaction, Opened]]:
        """Open a transaction. Raises errors of ours for a table that can't be committed to, and
        PausedError in a pause, unless its `purpose` is to load acknowledged rows.

        `base` is the snapshot that it was planned on: its id and delta manifest list, "" if that is
        unknown. None is the latest snapshot now.
        `ticket` will be the transaction's id. On a table that allows one transaction at a time, it
        is in line from the first call on, and keeps its place by calling again; TableHeldError is
        raised until its turn comes. The base snapshot is read after that, and after the wait for
        the place among small inserts that `place_of` gives.
        """
        self._worker.own()
        pause = self._state_thread.state.pause
        if pause is not None and purpose is not Purpose.LOGGED_ROWS:
            raise PausedError(pause)
        loaded = self._catalog.load(table)
        if ticket and purpose is not Purpose.COMPACTION and self._took_turn(loaded, ticket):
            loaded = self._catalog.load(table)
        transaction = open_on(loaded, base, owner)
        is_placed = place_of is not None and purpose is not Purpose.COMPACTION
        if place_of is None or not is_placed or not loaded.schema.flag("auto_batch_load"):
            return self._begin(loaded, transaction, owner, origin, purpose, ticket)
        tidy_up(loaded, transaction)
        place = yield from place_of(loaded)
        try:
            # Opened anew: its base snapshot has the rows that were inserted before.
            base = None if base is None else transaction.base
            loaded, transaction = open_transaction(self._catalog, table, base, owner)
            begun = self._begin(
                loaded, transaction, owner, origin, purpose, ticket, placed=place.table_id
            )
        except BaseException:
            place.taken_by(None)
            raise
        place.taken_by(begun[0])
        return begun

    def drop_partitions(
        self, table: Table, specs: Sequence[Sequence[tuple[str, str | None]]], base: tuple[int, str]
    ) -> int | None:
        """Remove partitions as they were in the state `base`, by a commit of the coordinator's own;
        return its snapshot's id. Raises SetupError where others have written them since, or the
        commit failed otherwise."""
        id, transaction, _ = self.begin(
            table.name, base[0], _UPKEEP, Origin(engine=_UPKEEP), base_manifest_list=base[1]
        )
        noted = {"engine": _UPKEEP, "user": _UPKEEP, "operation": "EXPIRE PARTITIONS"}
        properties = tuple((PREFIX + key, value) for key, value in noted.items())
        change = OverwritePartitions(tuple(map(tuple, specs)))
        answer = self.commit(id, CommitRequest(transaction, change, (), properties))
        if not isinstance(answer, Committed):
            raise SetupError(f"The commit was not made: {reason_of(answer)}.")
        return answer.receipt.snapshot_id

    def heartbeat(self, id: str) -> Answer:
        """Renew a transaction's lease."""
        return self._state_thread.ask_event(lambda ask: HeartbeatRequested(id, self._now_ms(), ask))

    def commit(self, id: str, request: CommitRequest) -> Answer:
        """Commit a transaction, or return its outcome if it was committed or ended before."""
        return self.commit_soon(id, request).result()

    def commit_soon(self, id: str, request: CommitRequest) -> Future[Answer]:
        """Like `commit`, but return the future of the outcome."""
        body = request_body(request)
        files = noted_files(request.properties)
        return self._state_thread.ask_soon(
            lambda ask: QueuedEvent(
                CommitRequested(id, digest_of(body), ask, files=files), request=request, body=body
            )
        )

    def adopt(
        self,
        id: str,
        owner: str,
        document: Any,
        request_for: Callable[[Transaction], CommitRequest] | None,
        origin: Origin = NOWHERE,
        *,
        is_named: bool = False,
    ) -> Answer:
        """Commit a transaction that another coordinator opened, or end it if `request_for` is None.

        `document` is the transaction as the client has it; `request_for` makes the commit request
        for it. `is_named`: a token vouches for the name of `owner`. Raises InvalidValueError for a
        document that no coordinator can have made, NotTheirsError for another owner's transaction,
        UnknownOutcomeError when the table no longer shows the transaction's outcome, and
        CommitConflictError for a transaction that has lost its place among small inserts.
        """
        check_adopted_id(id)
        self._worker.own()
        table, transaction = adopted_transaction(self._catalog, document)
        if is_named:
            _check_owner(transaction, owner)
        request = None if request_for is None else request_for(transaction)
        if request is not None:
            check_names(decoded(table, request))
        commit = find_commit(table, transaction)
        if commit is None:
            self._check_uncommitted(id, table, transaction)
        elif request is not None:
            return Committed(commit)
        if request is not None and self._lost_its_place(id, table, request):
            self.adopt(id, owner, document, None, origin, is_named=is_named)
            raise _lost_place(table.name)
        epoch = self._worker.epoch
        if epoch is None:
            return Unknown()
        body = None if request is None else request_body(request)
        digest = None if body is None else digest_of(body)
        compacts = request is not None and isinstance(request.change, Compact)
        adopted = TransactionState(
            id,
            table.location,
            owner=owner,
            exclusive=not compacts and takes_one_at_a_time(table.schema),
            adopted=epoch,
            table=str(table.name),
            origin=origin,
            files=None if request is None else noted_files(request.properties),
        )
        return self._state_thread.ask(
            lambda ask: QueuedEvent(
                Adopted(adopted, digest, self._now_ms(), ask),
                opened=transaction,
                request=request,
                body=body,
            )
        )

    def _check_uncommitted(self, id: str, table: Table, transaction: Transaction) -> None:
        """Raise InvalidValueError for a document of a transaction that is open here under another
        id, or that was committed before the base that the document names. To end it would delete
        files of the table, or of somebody's statement: file names follow from commit users, and
        whoever may read the table's folder knows both."""
        prefix = transaction.file_prefix
        opened = list(self._state_thread.opened.items())
        if any(other.file_prefix == prefix for of, other in opened if of != id):
            raise InvalidValueError("The transaction is open here, under another id.")
        if was_committed(table, prefix):
            raise InvalidValueError(
                f"The transaction was committed to `{table.name}` before snapshot "
                f"{transaction.base_snapshot_id}, on which it says that it began."
            )

    def _lost_its_place(self, id: str, table: Table, request: CommitRequest) -> bool:
        """Whether an unknown transaction would replace rows that others added, including small
        inserts that were acknowledged after it.
        """
        swallows = isinstance(request.change, OverwritePartitions) and request.change.swallow_newer
        is_unknown = self._stored.state(id) is None
        return swallows and is_unknown and table.schema.flag("auto_batch_load")

    def abort(self, id: str, reason: str) -> Answer:
        """End a transaction without a commit."""
        return self.abort_soon(id, reason).result()

    def abort_soon(self, id: str, reason: str) -> Future[Answer]:
        """Like `abort`, but return the future of the answer."""
        return self._state_thread.ask_soon(
            lambda ask: QueuedEvent(AbortRequested(id, reason, self._now_ms(), ask))
        )

    def sweep(self, id: str, request: CommitRequest) -> int | None:
        """Remove the files that a committed transaction wrote and did not commit; return how many.

        Return None when the transaction is not committed, or not with this request.
        """
        state = self._stored.state(id)
        digest = digest_of(request_body(request))
        if state is None or state.phase is not Phase.COMMITTED or state.digest != digest:
            return None
        return self._worker.sweep(request)

    def brought(self, id: str, document: Any) -> Transaction:
        """The transaction in the document of a client, for an id that is unknown here. Raises
        InvalidValueError for one that no coordinator can have opened."""
        check_adopted_id(id)
        return adopted_transaction(self._catalog, document)[1]

    def note_epoch(self, query_id: str, note: EpochNote, *, may_replace: bool) -> None:
        """Note beside the table that a query writes an epoch; see `tables.commits.epochs`.

        A note decides what a stream passes over, so a query belongs to the first who notes it, and
        to those who `may_replace` the rows of the table. Raises NotTheirsError for the query of
        somebody else, and CommitConflictError if the query has gone on to a later epoch.
        """
        self._worker.own()
        table = self._catalog.load(note.transaction.table)
        before = noted_epoch(table, query_id)
        if before is not None and not may_replace and before.owner not in ("", note.owner):
            raise NotTheirsError(
                f"The streaming query {query_id} into `{table.name}` belongs to {before.owner}, "
                f"not to {note.owner}.",
                hint="Start the stream with a new checkpoint, or ask for the permission `change` "
                "on the table.",
            )
        if before is not None and before.epoch > note.epoch:
            raise CommitConflictError(
                f"The streaming query {query_id} into `{table.name}` has gone on to epoch "
                f"{before.epoch:,}: epoch {note.epoch:,} is not written again.",
                hint="Nothing was written. See where else the stream of this checkpoint runs.",
            )
        note_epoch(table, query_id, note)

    def note_load(self, transaction: Transaction, records: Sequence[LoadRecord]) -> None:
        """Note beside the table that a transaction loads files; see `LoadHistory`. The times are
        this coordinator's: with a time of its own choice a client could replace the records of
        others."""
        self._worker.own()
        history = LoadHistory(self._catalog.load(transaction.table))
        now_ms = self._now_ms()
        history.settle(now_ms)
        mine = tuple(replace(record, loaded_ms=now_ms, snapshot_id=0) for record in records)
        history.note(
            PendingLoad(transaction.commit_user, transaction.base_snapshot_id, now_ms, mine)
        )

    def _took_turn(self, table: Table, ticket: str) -> bool:
        """Whether the table allows one transaction at a time, and it is the ticket's turn. Raises
        TableHeldError while it is not, InvalidValueError for the id of an open transaction."""
        if self._stored.opened(ticket) is not None:
            raise InvalidValueError(f"There is a transaction {ticket} already.")
        if not takes_one_at_a_time(table.schema):
            return False
        answer = self._state_thread.ask_event(
            lambda ask: TurnRequested(ticket, table.location, self._now_ms(), ask)
        )
        if answer != Done():
            raise _not_opened(table.name, answer, self._now_ms())
        return True

    def _begin(
        self,
        loaded: Table,
        transaction: Transaction,
        owner: str,
        origin: Origin,
        purpose: Purpose,
        ticket: str,
        *,
        placed: str = "",
    ) -> tuple[str, Transaction, Opened]:
        table = loaded.name
        self._watching.forget_predecessor(loaded)
        id = ticket or uuid.uuid4().hex
        takes_turns = purpose is not Purpose.COMPACTION and takes_one_at_a_time(loaded.schema)
        begun = TransactionState(
            id,
            loaded.location,
            owner=owner,
            exclusive=takes_turns,
            table=str(table),
            origin=origin,
            placed=placed,
        )
        in_pause = purpose is Purpose.LOGGED_ROWS
        waits = bool(ticket) and takes_turns
        try:
            answer = self._state_thread.ask(
                lambda ask: QueuedEvent(
                    BeginRequested(begun, self._now_ms(), ask, in_pause, waits), opened=transaction
                )
            )
        except StoreUnavailableError as error:
            if not error.unclear:
                tidy_up(loaded, transaction)
            raise
        if not isinstance(answer, Opened):
            tidy_up(loaded, transaction)
            raise _not_opened(table, answer, self._now_ms())
        base = transaction.base_snapshot_id
        if base > 0 and not self._leases.stays(loaded, base):
            self.abort(id, "the snapshot that it was planned on has expired")
            raise OutdatedPlanError(
                f"Snapshot {base} of `{table}`, which the statement was planned on, has expired.",
                hint="Nothing was written. Run the statement again.",
            )
        return id, transaction, answer


def _lost_place(table: TableName) -> CommitConflictError:
    return CommitConflictError(
        f"The statement on `{table}` began at another coordinator, and has lost its place among "
        "small inserts. Its commit would lose rows that were acknowledged after it began.",
        hint="Nothing was committed. Run the statement again.",
    )


def _check_owner(transaction: Transaction, owner: str) -> None:
    """Raise NotTheirsError for a transaction of somebody else. Whoever may read a table's folder
    knows the names of the transactions that write to it."""
    if not transaction.file_prefix.startswith(names_of(owner)):
        raise NotTheirsError(
            f"The transaction belongs to somebody else, not to {owner}.",
            hint="Only its owner may use it.",
        )


def _not_opened(table: TableName, answer: Answer, now_ms: int) -> PaimonMagicsError:
    match answer:
        case Suspended(pause=pause):
            return PausedError(pause)
        case Halted(reason=reason):
            return CommitConflictError(reason, hint=RESUME_HINT)
        case Occupied(holder=None, ahead=ahead):
            return TableHeldError(
                f"Table `{table}` has dynamic buckets, so only one transaction at a time may "
                f"write it, and {count_text(ahead, 'statement')} came before this statement.",
                ahead,
                hint="Run the statement again: it waits for its turn.",
            )
        case Occupied(holder=TransactionState() as holder, ahead=ahead):
            seconds = (now_ms - holder.begun_at_ms) // 1000
            return TableHeldError(
                f"Table `{table}` has dynamic buckets, so only one transaction at a time may "
                f"write it. The transaction {holder.id} of {holder.who}, which began {seconds:,} "
                "s ago, is open.",
                ahead + 1,
                hint=f"Wait for it, or end it: `%paimon abort {holder.id}`.",
            )
        case _:
            raise AssertionError(answer)


# Checks a transaction that another coordinator opened and a client brings to this one. The client
# sends the transaction's document. It is trusted only as far as needed: names must have the form
# that coordinators give, paths are computed here again, and files belong to the transaction by
# their names.


def check_adopted_id(id: str) -> None:
    """Raise InvalidValueError for an id that no coordinator gives to a transaction."""
    if _ID.fullmatch(id) is None:
        raise InvalidValueError(f"{id!r} is not the id of a transaction.")


def adopted_transaction(catalog: Catalog, document: Any) -> tuple[Table, Transaction]:
    """Return the table and the transaction in a client's document.

    Raises InvalidValueError for a transaction that no coordinator can have opened on that table,
    and UnknownNameError for a table that does not exist.
    """
    brought = transaction_of(document)
    try:
        is_made = brought.commit_user == commit_user_of(brought.file_prefix)
    except ValueError:
        is_made = False
    if not is_made:
        raise InvalidValueError(
            "The transaction's commit user or file prefix does not come from a coordinator."
        )
    if brought.commit_identifier != BATCH_COMMIT_IDENTIFIER:
        raise InvalidValueError(
            "The transaction's commit identifier does not come from a coordinator."
        )
    table = catalog.load(brought.table)
    if not 0 <= brought.base_snapshot_id <= latest_snapshot_id(table):
        raise InvalidValueError(
            f"The transaction was planned on snapshot {brought.base_snapshot_id}, which "
            f"`{table.name}` does not have."
        )
    folder = attempts_of(table, brought.file_prefix)
    return table, replace(brought, attempts_folder=folder)
