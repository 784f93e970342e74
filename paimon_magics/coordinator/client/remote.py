"""The client of a coordinator in another process.

Requests are repeated where that is safe: each names its transaction, and a coordinator answers the
same request the same way, also after a restart. When the coordinator is gone or another one has
taken over, the requests go to the warehouse's new owner, and carry the transaction's document,
since the new owner has not opened it. While a transaction is open, a thread renews its lease.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from paimon_magics.coordinator.client.administration import Administration
from paimon_magics.coordinator.client.finding import Finder
from paimon_magics.coordinator.client.open_transactions import OpenTransactions
from paimon_magics.coordinator.client.outcomes import broke_off
from paimon_magics.coordinator.client.read_leases import ReadLeases
from paimon_magics.coordinator.client.requests import BinaryBody, Requests
from paimon_magics.coordinator.client.seen_names import SeenNames
from paimon_magics.coordinator.client.small_inserts import SmallInserts
from paimon_magics.coordinator.core import Origin
from paimon_magics.coordinator.protocol.clock import lease_ms_of
from paimon_magics.coordinator.protocol.definition_changes import (
    DefinitionChange,
    definition_document,
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
from paimon_magics.coordinator.protocol.members import member
from paimon_magics.coordinator.protocol.version_documents import change_document, version_receipt_of
from paimon_magics.errors import (
    CommitConflictError,
    SetupError,
    UnknownNameError,
    UnknownOutcomeError,
)
from paimon_magics.origin import host_name, notebook_name, user_name
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

__all__ = ["RemoteCoordinator"]

_TURN_PAUSE_SECONDS = 0.1
_ENDED = 410
_END_SECONDS = 1.0  # the caller asks again
_ABORT_SECONDS = 5.0  # a transaction that nobody aborts ends by its lease


class RemoteCoordinator:
    """A `CoordinatorClient` that talks HTTP. Safe for several threads.

    `finder` finds the coordinator. `coordinator_wait_ms` is how long requests are repeated while it
    gives no answer. `exclusive_wait_ms` is how long `begin` waits for a table that
    takes one transaction at a time, `read_lease_ms_max` how long a read lease lasts that is never
    released. `transactions` has the transactions that this client has opened. `is_own` is for the
    user's own coordinator, which lets them do everything.
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
        self._visibility = None if is_own else SeenNames(self._requests.once)
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
        """How the coordinator reaches the warehouse; empty if it does not tell."""
        found = self._requests.repeat("GET", "/v1/coordinator").get("store", {})
        return found if isinstance(found, dict) else {}

    def begin(
        self,
        table: TableName,
        base_snapshot_id: int | None = None,
        engine: str = "",
        waits: Callable[[Waiting], None] | None = None,
        *,
        compacts: bool = False,
    ) -> Transaction:
        """See `CoordinatorClient.begin`."""
        document = {
            "table": table_document(table),
            "base_snapshot_id": base_snapshot_id,
            "compacts": compacts,
            **_sender(engine),
        }
        opened = self._open(document, waits)
        transaction = transaction_of(member(opened, "transaction", dict))
        lease_ms = lease_ms_of(opened)
        self.transactions.opened(
            transaction.commit_user, str(member(opened, "id", str)), max(lease_ms, 1000) / 1000
        )
        return transaction

    def commit(self, request: CommitRequest) -> CommitReceipt:
        """See `CoordinatorClient.commit`."""
        transaction = request.transaction
        id = self.transactions.id_of(transaction)
        document = request_document(request) | _brought(transaction)
        path = f"/v1/transactions/{id}/commit"
        try:
            answer = self._requests.repeat("POST", path, document, settles=True)
        except UnknownOutcomeError:  # no request follows: if it is still open, its lease may end
            self.transactions.ended(transaction.commit_user, id)
            raise
        self.transactions.ended(transaction.commit_user, id)
        return receipt_of(member(answer, "receipt", dict))

    def claim_buckets(
        self, transaction: Transaction, buckets: Sequence[tuple[bytes, int]]
    ) -> tuple[int, ...]:
        """See `CoordinatorClient.claim_buckets`. A coordinator that does not know the transaction
        knows of no other compaction either: all are granted."""
        id = self.transactions.id_of(transaction)
        document = {"buckets": [bucket_document(*bucket) for bucket in buckets]}
        try:
            answer = self._requests.repeat("POST", f"/v1/transactions/{id}/compactions", document)
        except UnknownNameError:
            return tuple(range(len(buckets)))
        return tuple(int(at) for at in member(answer, "granted", Sequence))

    def abort(self, transaction: Transaction) -> int:
        """See `CoordinatorClient.abort`; the coordinator removes the files, so the count is 0."""
        id = self.transactions.id_of(transaction)
        self.transactions.ended(transaction.commit_user, id)
        with contextlib.suppress(CommitConflictError):  # it has ended by itself
            document = {"reason": "its owner ended it"} | _brought(transaction)
            path = f"/v1/transactions/{id}/abort"
            self._requests.repeat("POST", path, document, wait_seconds=_ABORT_SECONDS)
        return 0

    def key_of(self, transaction: Transaction) -> str:
        """See `CoordinatorClient.key_of`."""
        return self.transactions.id_of(transaction)

    def end(self, transaction: Transaction, key: str) -> bool:
        """See `CoordinatorClient.end`."""
        document = {"reason": "its epoch is run again"} | _brought(transaction)
        path = f"/v1/transactions/{key}/abort"
        try:
            self._requests.repeat("POST", path, document, wait_seconds=_END_SECONDS)
        except (CommitConflictError, UnknownOutcomeError):  # it is committed, or on the way
            return False
        return True

    def sweep(self, request: CommitRequest) -> int:
        """See `CoordinatorClient.sweep`."""
        id = self.transactions.id_of(request.transaction)
        try:
            answer = self._requests.repeat(
                "POST", f"/v1/transactions/{id}/sweep", request_document(request)
            )
        except UnknownNameError:  # a coordinator that had not opened it has found the commit
            return 0
        return int(member(answer, "removed", int))

    def change_versions(self, table: TableName, change: VersionChange) -> VersionReceipt:
        """See `CoordinatorClient.change_versions`."""
        document = {
            "table": table_document(table),
            "change": change_document(change),
            "repeated": False,
        }
        again = {**document, "repeated": True}
        answer = self._requests.repeat("POST", "/v1/tables/versions", document, again=again)
        return version_receipt_of(member(answer, "receipt", dict))

    def change_definition(self, change: DefinitionChange) -> bool:
        """See `CoordinatorClient.change_definition`."""
        document = {
            "id": uuid.uuid4().hex,
            "change": definition_document(change),
            "repeated": False,
        }
        again = {**document, "repeated": True}
        answer = self._requests.repeat("POST", "/v1/changes", document, again=again)
        return bool(member(answer, "done", bool))

    def visibility(self) -> Visibility | None:
        """See `CoordinatorClient.visibility`."""
        return self._visibility

    def database_properties(self, name: str) -> dict[str, str]:
        """See `CoordinatorClient.database_properties`."""
        _, answer = self._requests.once("GET", f"/v1/databases/{quote(name, safe='')}")
        return dict(member(answer, "properties", dict))

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
            self._inserts = SmallInserts(
                lambda path, content, headers: self._requests.repeat(
                    "POST", path, BinaryBody(content, headers), settles=True
                )
            )
        return self._inserts

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
        """Open a transaction; wait for its turn where the table takes one at a time. Each repeated
        request, with the same ticket, keeps the place in the coordinator's line."""
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
                    # The coordinator died, maybe after it had opened one: another one is opened
                    # when it is back and has ended that one.
                    try:
                        self._give_up(ticket, "its opening was not heard of")
                    except (SetupError, UnknownOutcomeError):
                        raise error from None
                    ticket = uuid.uuid4().hex
        except (KeyboardInterrupt, TableHeldError):
            # Give up the place in line, or the transaction if its opening was not heard of.
            with contextlib.suppress(Exception):
                self._give_up(ticket, "its owner was interrupted")
            raise

    def _give_up(self, ticket: str, reason: str) -> None:
        with contextlib.suppress(CommitConflictError, UnknownNameError):  # nothing is open
            self._requests.repeat("POST", f"/v1/transactions/{ticket}/abort", {"reason": reason})


def _brought(transaction: Transaction) -> dict[str, Any]:
    """The members by which a coordinator adopts a transaction that it has not opened."""
    return {"transaction": transaction_document(transaction), **_sender("")}


def _sender(engine: str) -> dict[str, Any]:
    """The members that tell who sends a request, as far as this process knows."""
    origin = Origin(notebook_name(), host_name(), engine)
    return {"owner": user_name(), "origin": origin_document(origin)}
