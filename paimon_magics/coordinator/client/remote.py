"""The client of a coordinator in another process.

Requests are repeated where that is safe: each names its transaction, and a coordinator answers the
same request the same way, also after a restart. When the coordinator is gone or another one has
taken over, the requests go to the warehouse's new owner, and carry the transaction's document,
since the new owner has not opened it. While a transaction is open, a thread renews its lease.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from paimon_magics.coordinator.client.administration import Administration, Ask
from paimon_magics.coordinator.client.owner_requests import (
    BinaryBody,
    Requests,
    UnknownEndpointError,
    broke_off,
)
from paimon_magics.coordinator.client.read_leases import ReadLeases
from paimon_magics.coordinator.client.small_inserts import SmallInserts
from paimon_magics.coordinator.client.starting import Finder
from paimon_magics.coordinator.client.stored_views import StoredViews
from paimon_magics.coordinator.core.values import Origin
from paimon_magics.coordinator.protocol.clock import renewal_seconds
from paimon_magics.coordinator.protocol.definition_changes import (
    DefinitionChange,
    change_document,
    removal_document,
    removal_receipt_of,
    version_receipt_of,
)
from paimon_magics.coordinator.protocol.documents import (
    bucket_document,
    origin_document,
    receipt_of,
    request_document,
    table_document,
    transaction_document,
    transaction_of,
)
from paimon_magics.coordinator.protocol.errors import TableHeldError
from paimon_magics.coordinator.protocol.json_text import member
from paimon_magics.coordinator.protocol.principals import Principal, principal_of_document
from paimon_magics.errors import (
    CommitConflictError,
    SetupError,
    UnknownNameError,
    UnknownOutcomeError,
)
from paimon_magics.forks import renew_after_fork
from paimon_magics.origin import host_name, notebook_name, user_name
from paimon_magics.planning.commits.requests import (
    CommitReceipt,
    CommitRequest,
    Transaction,
    Waiting,
)
from paimon_magics.planning.copying.load_history import LoadRecord
from paimon_magics.statements.removals import TableRemoval
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import VersionChange
from paimon_magics.tables.catalog.databases import Visibility
from paimon_magics.tables.expiry.holders import RemovalReceipt
from paimon_magics.tables.snapshots.tags_and_branches import VersionReceipt

_log = logging.getLogger(__name__)

_TURN_PAUSE_SECONDS = 0.1
_ENDED = 410
_END_SECONDS = 1.0  # the caller asks again
_ABORT_SECONDS = 5.0  # a transaction that nobody aborts ends when its lease expires

_REMOVAL_SECONDS = 3_600.0  # many files may have to go

_AGAIN_SECONDS = 1.0

ENDED_MAX = 1_000
"""Upper bound on the ended transactions that are kept: far more than end at the same time. The
requests that follow the end of a transaction come at once.
"""


class RemoteCoordinator:
    """A `CoordinatorClient` that talks HTTP. Safe for several threads.

    `finder` finds the coordinator. `coordinator_wait_ms` is how long requests are repeated while it
    gives no answer. `exclusive_wait_ms` is how long `begin` waits for a table that allows one
    transaction at a time. `read_lease_ms_max` is how long an unreleased read lease lasts.
    `transactions` has the transactions that this client opened. `is_own` is for the user's own
    coordinator, which allows them everything.
    """

    def __init__(
        self,
        finder: Finder,
        *,
        coordinator_wait_ms: int = 60_000,
        exclusive_wait_ms: int = 600_000,
        read_lease_ms_max: int = 86_400_000,
        is_own: bool = False,
    ) -> None:
        self._requests = Requests(finder, coordinator_wait_ms, finder.tls)
        self._exclusive_wait_ms = exclusive_wait_ms
        self._inserts: SmallInserts | None = None
        self._read_leases = ReadLeases(self._requests.post_leases, read_lease_ms_max)
        self._visibility = None if is_own else _SeenNames(self._requests.once)
        self.transactions = OpenTransactions(self._renew)

    def delay(self) -> str:
        """See `CoordinatorClient.delay`."""
        return self._requests.delay

    def look_ahead(self) -> None:
        """Begin to find or start the coordinator in the background."""
        self._requests.look_ahead()

    def warehouse(self) -> str:
        """The warehouse whose commits the coordinator owns."""
        about = self._requests.repeat("GET", "/v1/coordinator")
        return str(member(about, "warehouse", str))

    def store(self) -> Mapping[str, str]:
        """How the coordinator reaches the warehouse; empty if it does not report that."""
        facts = self._requests.repeat("GET", "/v1/coordinator").get("store", {})
        return facts if isinstance(facts, dict) else {}

    def key(self) -> Mapping[str, str] | None:
        """A key of the store for this user, as catalog options, with the store's address; None if
        the coordinator hands out none."""
        if not self._requests.repeat("GET", "/v1/coordinator").get("hands_out_keys"):
            return None
        answer = self._requests.repeat("GET", "/v1/data-token")
        return {str(k): str(v) for k, v in member(answer, "options", Mapping).items()}

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
        """See `CoordinatorClient.begin`."""
        document = {
            "table": table_document(table),
            "base_snapshot_id": base_snapshot_id,
            "base_manifest_list": base_manifest_list,
            "compacts": compacts,
            **_sender(engine),
        }
        opened = self._open(document, waits)
        transaction = transaction_of(member(opened, "transaction", dict))
        pause_seconds = renewal_seconds(opened)
        self.transactions.opened(transaction.commit_user, member(opened, "id", str), pause_seconds)
        return transaction

    def commit(self, request: CommitRequest) -> CommitReceipt:
        """See `CoordinatorClient.commit`."""
        transaction = request.transaction
        id = self.transactions.id_of(transaction)
        document = request_document(request) | _adoption(transaction)
        try:
            answer = self._transaction(id, "commit", document, settles=True)
        except UnknownOutcomeError:  # no request follows: if it is still open, its lease may end
            self.transactions.ended(transaction.commit_user, id)
            raise
        self.transactions.ended(transaction.commit_user, id)
        return receipt_of(member(answer, "receipt", dict))

    def _transaction(self, id: str, action: str, document: Any, **options: Any) -> Any:
        path = f"/v1/transactions/{id}/{action}"
        return self._requests.repeat("POST", path, document, **options)

    def claim_buckets(
        self, transaction: Transaction, buckets: Sequence[tuple[bytes, int]]
    ) -> tuple[int, ...]:
        """See `CoordinatorClient.claim_buckets`. A coordinator that does not know the transaction
        knows of no other compaction either: all are granted."""
        id = self.transactions.id_of(transaction)
        document = {"buckets": [bucket_document(*bucket) for bucket in buckets]}
        try:
            answer = self._transaction(id, "compactions", document)
        except UnknownNameError:
            return tuple(range(len(buckets)))
        return tuple(int(at) for at in member(answer, "granted", Sequence))

    def abort(self, transaction: Transaction) -> int:
        """See `CoordinatorClient.abort`; the coordinator removes the files, so the count is 0."""
        id = self.transactions.id_of(transaction)
        self.transactions.ended(transaction.commit_user, id)
        with contextlib.suppress(CommitConflictError):  # it ended by itself
            document = {"reason": "its owner ended it"} | _adoption(transaction)
            self._transaction(id, "abort", document, wait_seconds=_ABORT_SECONDS)
        return 0

    def key_of(self, transaction: Transaction) -> str:
        """See `CoordinatorClient.key_of`."""
        return self.transactions.id_of(transaction)

    def note_epoch(self, transaction: Transaction, query_id: str, epoch: int) -> bool:
        """See `CoordinatorClient.note_epoch`. A coordinator of an earlier version notes nothing."""
        document = {"query": query_id, "epoch": epoch} | _adoption(transaction)
        try:
            self._transaction(self.transactions.id_of(transaction), "epoch", document)
        except UnknownEndpointError:
            return False
        return True

    @property
    def keeps_loads(self) -> bool:
        """See `CoordinatorClient.keeps_loads`."""
        return True

    def note_load(self, transaction: Transaction, records: Sequence[LoadRecord]) -> bool:
        """See `CoordinatorClient.note_load`. A coordinator of an earlier version notes nothing."""
        document = {"records": [record.document for record in records]} | _adoption(transaction)
        try:
            self._transaction(self.transactions.id_of(transaction), "load", document)
        except UnknownEndpointError:
            return False
        return True

    def end(self, transaction: Transaction, key: str) -> bool:
        """See `CoordinatorClient.end`."""
        document = {"reason": "its epoch runs again"} | _adoption(transaction)
        try:
            self._transaction(key, "abort", document, wait_seconds=_END_SECONDS)
        except (CommitConflictError, UnknownOutcomeError):  # it is committed, or on the way
            return False
        return True

    def sweep(self, request: CommitRequest) -> int:
        """See `CoordinatorClient.sweep`."""
        id = self.transactions.id_of(request.transaction)
        try:
            answer = self._transaction(id, "sweep", request_document(request))
        except UnknownNameError:  # a coordinator that had not opened it has found the commit
            return 0
        return int(member(answer, "removed", int))

    def change_versions(self, table: TableName, change: VersionChange) -> VersionReceipt:
        """See `CoordinatorClient.change_versions`."""
        document = {"table": table_document(table), "change": change_document(change)}
        answer = self._change("/v1/tables/versions", document)
        return version_receipt_of(member(answer, "receipt", dict))

    def remove(
        self, table: TableName, removal: TableRemoval, *, is_trial: bool = False
    ) -> RemovalReceipt:
        """See `CoordinatorClient.remove`. A repeated request waits for the run that is under
        way."""
        document = {
            "id": uuid.uuid4().hex,
            "table": table_document(table),
            "removal": removal_document(removal),
            "is_trial": is_trial,
        }
        answer = self._requests.repeat(
            "POST", "/v1/tables/removals", document, wait_seconds=_REMOVAL_SECONDS
        )
        return removal_receipt_of(member(answer, "receipt", dict))

    def change_definition(self, change: DefinitionChange) -> bool:
        """See `CoordinatorClient.change_definition`."""
        document = {"id": uuid.uuid4().hex, "change": change_document(change)}
        return bool(member(self._change("/v1/changes", document), "done", bool))

    def _change(self, path: str, document: dict[str, Any]) -> Any:
        first, again = {**document, "repeated": False}, {**document, "repeated": True}
        return self._requests.repeat("POST", path, first, again=again)

    def visibility(self) -> Visibility | None:
        """See `CoordinatorClient.visibility`."""
        return self._visibility

    def database_properties(self, name: str) -> dict[str, str]:
        """See `CoordinatorClient.database_properties`."""
        _, answer = self._requests.once("GET", f"/v1/databases/{quote(name, safe='')}")
        return dict(member(answer, "properties", dict))

    def stored_views(self) -> StoredViews:
        """See `CoordinatorClient.stored_views`."""
        return StoredViews(
            lambda method, path, body: self._requests.once(method, f"/v1/paimon{path}", body)[1]
        )

    def lease(self, table: TableName, snapshot_id: int) -> bool:
        """See `CoordinatorClient.lease`."""
        return self._read_leases.take(table, snapshot_id)

    def release(self, table: TableName, snapshot_id: int) -> None:
        """See `CoordinatorClient.release`."""
        self._read_leases.give_up(table, snapshot_id)

    def administration(self) -> Administration:
        """See `CoordinatorClient.administration`."""
        return Administration(self._requests.once)

    def inserts(self) -> SmallInserts:
        """See `CoordinatorClient.inserts`."""
        if self._inserts is None:
            self._inserts = SmallInserts(self._send)
        return self._inserts

    def _send(self, path: str, content: bytes, headers: dict[str, str]) -> Any:
        body = BinaryBody(content, headers)
        return self._requests.repeat("POST", path, body, settles=True)

    def close(self) -> None:
        """Close the connections and stop renewing leases."""
        if self._inserts is not None:
            self._inserts.close()
        self._read_leases.close()
        self.transactions.close()
        self._requests.close()

    def _renew(self, id: str) -> bool:
        response = self._requests.answer("POST", f"/v1/transactions/{id}/heartbeat")
        if response.status_code == _ENDED:
            return False
        return not response.is_success or "expires_at_ms" in response.json()

    def _open(self, document: Mapping[str, Any], waits: Callable[[Waiting], None] | None) -> Any:
        """Open a transaction. Wait for its turn if the table allows one transaction at a time. Each
        repeated request has the same ticket, which keeps the place in the coordinator's line.
        """
        ticket = uuid.uuid4().hex
        deadline = time.monotonic() + self._exclusive_wait_ms / 1000
        try:
            while True:
                try:
                    return self._requests.repeat(
                        "POST", "/v1/transactions", {**document, "ticket": ticket}
                    )
                except TableHeldError as error:
                    if time.monotonic() > deadline:
                        raise
                    if waits is not None:
                        waits(Waiting(error.message, error.in_front))
                    time.sleep(_TURN_PAUSE_SECONDS)
                except SetupError as error:
                    if not broke_off(error) or time.monotonic() > deadline:
                        raise
                    # The coordinator died, maybe after it had opened a transaction. Another
                    # transaction is opened when the coordinator is back and has ended the first.
                    try:
                        self._give_up(ticket, "its opening was not confirmed")
                    except (SetupError, UnknownOutcomeError):
                        raise error from None
                    ticket = uuid.uuid4().hex
        except (KeyboardInterrupt, TableHeldError):
            # Give up the place in line, or the transaction if its opening was not confirmed.
            try:
                self._give_up(ticket, "its owner was interrupted")
            except Exception as failure:  # the interrupt takes precedence
                _log.info("The transaction ends when its lease expires: %r", failure)
            raise

    def _give_up(self, ticket: str, reason: str) -> None:
        with contextlib.suppress(CommitConflictError, UnknownNameError):  # nothing is open
            self._transaction(ticket, "abort", {"reason": reason})


def _adoption(transaction: Transaction) -> dict[str, Any]:
    """The members by which a coordinator adopts a transaction that it has not opened."""
    return {"transaction": transaction_document(transaction), **_sender("")}


def _sender(engine: str) -> dict[str, Any]:
    """The members that identify the sender of a request, as far as this process knows."""
    origin = Origin(notebook_name(), host_name(), engine)
    return {"owner": user_name(), "origin": origin_document(origin)}


class _SeenNames:
    """Which databases and tables a user may see: a `Visibility`. For any thread.

    `ask` sends one request to the coordinator. It is asked when a name is first looked at, and
    again after a second, so that a changed right holds soon. While it does not answer the last
    answer counts; without one names can't be looked at.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._principal: Principal | None = None
        self._read_at = float("-inf")
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()

    def sees_database(self, database: str) -> bool:
        return self._known().sees_database(database)

    def sees_table(self, database: str, table: str) -> bool:
        return self._known().sees_table(database, table)

    def __reduce__(self) -> tuple[Callable[[Principal], Principal], tuple[Principal]]:
        """For another process, what the user may see now."""
        return replace, (self._known(),)

    def _known(self) -> Principal:
        with self._lock:
            if time.monotonic() - self._read_at > _AGAIN_SECONDS or self._principal is None:
                try:
                    self._principal = principal_of_document(self._ask("GET", "/v1/principal")[1])
                except SetupError:
                    if self._principal is None:
                        raise
                self._read_at = time.monotonic()
            return self._principal


@dataclass(frozen=True, slots=True)
class _Open:
    id: str
    ended: threading.Event


class OpenTransactions:
    """A client's transactions, by commit user. Safe for several threads.

    A thread renews the lease of each open transaction until the transaction ends here or the
    coordinator reports its end. `renew` does so for an id, and returns whether the transaction is
    still open. If `renew` raises, it is called again later. The ids of the last ended transactions
    are kept: a commit may be repeated, its left-out files swept, or a refused transaction aborted.
    """

    def __init__(self, renew: Callable[[str], bool]) -> None:
        self._renew = renew
        self._turn = threading.Lock()
        self._open: dict[str, _Open] = {}
        self._ended: dict[str, str] = {}
        self._of_parent: set[str] = set()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """See `Renewed`: the parent's transactions are the parent's alone."""
        self._turn = threading.Lock()
        self._of_parent |= self._open.keys() | self._ended.keys()
        self._open, self._ended = {}, {}

    def __len__(self) -> int:
        """The number of known transactions, open and ended."""
        with self._turn:
            return len(self._open) + len(self._ended)

    def opened(self, commit_user: str, id: str, pause_seconds: float) -> None:
        """Renew the lease of a transaction until it ends, with that pause between renewals."""
        transaction = _Open(id, threading.Event())
        with self._turn:
            self._open[commit_user] = transaction

        def renew() -> None:
            while not transaction.ended.wait(pause_seconds):
                try:
                    if not self._renew(id):
                        self.ended(commit_user, id)
                except Exception as error:  # the next renewal comes before the lease ends
                    _log.info("The lease of a transaction could not be renewed: %r", error)

        threading.Thread(target=renew, name=f"lease-{id[:8]}", daemon=True).start()

    def ended(self, commit_user: str, id: str) -> None:
        """Stop renewing a transaction's lease, and keep its id among the ended ones."""
        with self._turn:
            transaction = self._open.pop(commit_user, None)
            if transaction is not None:
                transaction.ended.set()
            self._ended.pop(commit_user, None)
            self._ended[commit_user] = id
            while len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]

    def id_of(self, transaction: Transaction) -> str:
        """The coordinator's id of a transaction. Raises UnknownNameError if this client did not
        open the transaction, or it ended long ago.
        """
        user = transaction.commit_user
        with self._turn:
            known = self._open.get(user)
            id = self._ended.get(user) if known is None else known.id
        if id is None and user in self._of_parent:
            raise UnknownNameError(
                f"The transaction of the commit user {user} on `{transaction.table}` belongs to "
                "the parent of this forked process.",
                hint="Commit or abort it there, or begin a new transaction here.",
            )
        if id is None:
            raise UnknownNameError(
                f"This session has no transaction of the commit user {user}, or it ended long ago.",
                hint=f"Look at `{transaction.table}$snapshots` for its snapshot.",
            )
        return id

    def close(self) -> None:
        """Stop renewing all leases."""
        with self._turn:
            for transaction in self._open.values():
                transaction.ended.set()
