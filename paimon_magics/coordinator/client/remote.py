"""The client of a coordinator in another process.

Repeats what is safe to repeat: every request names its transaction, and a coordinator answers the
same question the same way, also after a restart. When the coordinator is gone or was taken over
from, the new owner of the warehouse is asked, and gets to see the transaction that it has not
opened. While a transaction is open a thread renews its lease.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from paimon_magics.coordinator.client.administration import Administration
from paimon_magics.coordinator.client.finding import Endpoint, Finder
from paimon_magics.coordinator.client.queue_administration import TooLateError
from paimon_magics.coordinator.client.read_leases import ReadLeases
from paimon_magics.coordinator.client.small_inserts import SmallInserts
from paimon_magics.coordinator.core import Origin
from paimon_magics.coordinator.protocol.documents import (
    member,
    origin_document,
    receipt_of,
    request_document,
    table_document,
    transaction_document,
    transaction_of,
)
from paimon_magics.coordinator.protocol.version_documents import change_document, version_receipt_of
from paimon_magics.errors import (
    CommitConflictError,
    InvalidTableError,
    InvalidValueError,
    OutdatedPlanError,
    PaimonMagicsError,
    SetupError,
    StatementError,
    UnknownNameError,
    UnknownOutcomeError,
    UnsupportedStatementError,
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
from paimon_magics.tables.snapshots.tags_and_branches import VersionReceipt

__all__ = ["RemoteCoordinator"]

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 120.0
_REPEAT_SECONDS_MAX = 60.0
_PAUSE_SECONDS = 0.05
_PAUSE_SECONDS_MAX = 2.0
_HEARTBEATS_PER_LEASE = 4
_HELD_PAUSE_SECONDS = 0.1
_PLACES_MAX = 3


# Errors of a statement that a coordinator tells by their own names.
_TOLD: Mapping[str, type[StatementError]] = {
    kind.__name__: kind for kind in (InvalidTableError, StatementError, UnsupportedStatementError)
}


@dataclass(frozen=True, slots=True)
class _Body:
    """A body that is no JSON document, with its headers."""

    content: bytes
    headers: Mapping[str, str]


class _TableHeldError(CommitConflictError):
    """The table takes one transaction at a time, and `in_front` others come first."""

    in_front: int = 1


class RemoteCoordinator:
    """A `CoordinatorClient` that talks HTTP. Safe for several threads.

    `finder` tells where. `exclusive_wait_ms` is how long `begin` waits for a table that takes one
    transaction at a time, `read_lease_ms_max` how long a read lease lasts at most that nobody gives
    up.
    """

    def __init__(
        self,
        finder: Finder,
        *,
        exclusive_wait_ms: int = 600_000,
        read_lease_ms_max: int = 86_400_000,
    ) -> None:
        self._finder = finder
        self._endpoint: Endpoint | None = None
        self._moving = threading.Lock()
        self._exclusive_wait_ms = exclusive_wait_ms
        self._http = httpx.Client(
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            trust_env=False,
        )
        self._inserts: SmallInserts | None = None
        self._ids: dict[str, str] = {}
        self._leases: dict[str, threading.Event] = {}
        self._read_leases = ReadLeases(self._post_leases, read_lease_ms_max)

    def look_ahead(self) -> None:
        """Begin to find the coordinator, or to start it, while the caller does something else."""

        def look() -> None:
            with contextlib.suppress(Exception):  # told when it is needed
                self._where()

        threading.Thread(target=look, name="find-coordinator", daemon=True).start()

    def warehouse(self) -> str:
        """The warehouse whose commits the coordinator owns."""
        about = self._call("GET", "/v1/coordinator")
        return str(member(about, "warehouse", str))

    def store(self) -> Mapping[str, str]:
        """How the coordinator reaches the warehouse, as far as it tells."""
        found = self._call("GET", "/v1/coordinator").get("store", {})
        return found if isinstance(found, dict) else {}

    def begin(
        self,
        table: TableName,
        base_snapshot_id: int | None = None,
        engine: str = "",
        waits: Callable[[Waiting], None] | None = None,
    ) -> Transaction:
        """See `CoordinatorClient.begin`."""
        document = {
            "table": table_document(table),
            "base_snapshot_id": base_snapshot_id,
            **_sender(engine),
        }
        opened = self._open(document, waits)
        transaction = transaction_of(member(opened, "transaction", dict))
        id = str(member(opened, "id", str))
        self._ids[transaction.commit_user] = id
        lease_ms = int(member(opened, "expires_at_ms", int)) - int(time.time() * 1000)
        self._renew(id, transaction.commit_user, max(lease_ms, 1000) / 1000)
        return transaction

    def commit(self, request: CommitRequest) -> CommitReceipt:
        """See `CoordinatorClient.commit`."""
        id = self._ids[request.transaction.commit_user]
        document = request_document(request) | _brought(request.transaction)
        answer = self._call("POST", f"/v1/transactions/{id}/commit", document, settles=True)
        self._end(request.transaction)
        return receipt_of(member(answer, "receipt", dict))

    def abort(self, transaction: Transaction) -> int:
        """See `CoordinatorClient.abort`; the coordinator removes the files, so the count is 0."""
        self._end(transaction)
        id = self._ids[transaction.commit_user]
        with contextlib.suppress(CommitConflictError):  # it has ended by itself
            document = {"reason": "its owner ended it"} | _brought(transaction)
            self._call("POST", f"/v1/transactions/{id}/abort", document)
        return 0

    def sweep(self, request: CommitRequest) -> int:
        """See `CoordinatorClient.sweep`."""
        id = self._ids[request.transaction.commit_user]
        try:
            answer = self._call("POST", f"/v1/transactions/{id}/sweep", request_document(request))
        except UnknownNameError:  # the coordinator that found the commit had not opened it
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
        answer = self._call("POST", "/v1/tables/versions", document, again=again)
        return version_receipt_of(member(answer, "receipt", dict))

    def create_database(
        self, name: str, properties: Mapping[str, str], *, if_not_exists: bool = False
    ) -> bool:
        """See `CoordinatorClient.create_database`."""
        document = {"name": name, "properties": dict(properties), "if_not_exists": if_not_exists}
        again = {**document, "if_not_exists": True}
        answer = self._call("POST", "/v1/databases", document, again=again)
        return bool(member(answer, "created", bool))

    def database_properties(self, name: str) -> dict[str, str]:
        """See `CoordinatorClient.database_properties`."""
        _, answer = self._once("GET", f"/v1/databases/{quote(name, safe='')}")
        return dict(member(answer, "properties", dict))

    def lease(self, table: TableName, snapshot_id: int) -> bool:
        """See `CoordinatorClient.lease`."""
        return self._read_leases.take(table, snapshot_id)

    def release(self, table: TableName, snapshot_id: int) -> None:
        """See `CoordinatorClient.release`."""
        self._read_leases.give_up(table, snapshot_id)

    def administration(self) -> Administration:
        """See `CoordinatorClient.administration`."""
        return Administration(self._once)

    def inserts(self) -> SmallInserts:
        """See `CoordinatorClient.inserts`."""
        if self._inserts is None:
            self._inserts = SmallInserts(
                lambda path, content, headers: self._call("POST", path, _Body(content, headers))
            )
        return self._inserts

    def close(self) -> None:
        """Give the connections up and stop renewing leases."""
        if self._inserts is not None:
            self._inserts.close()
        self._read_leases.close()
        for stop in self._leases.values():
            stop.set()
        self._http.close()

    def _open(self, document: Mapping[str, Any], waits: Callable[[Waiting], None] | None) -> Any:
        """Open a transaction, in turn where the table takes one at a time: each question keeps the
        place in the coordinator's line."""
        ticket = uuid.uuid4().hex
        deadline = time.monotonic() + self._exclusive_wait_ms / 1000
        try:
            while True:
                try:
                    return self._call("POST", "/v1/transactions", {**document, "ticket": ticket})
                except _TableHeldError as error:
                    if time.monotonic() > deadline:
                        raise
                    if waits is not None:
                        waits(Waiting(error.message, error.in_front))
                    time.sleep(_HELD_PAUSE_SECONDS)
        except (KeyboardInterrupt, _TableHeldError):
            # Give the place up, or what was opened while nobody listened.
            with contextlib.suppress(Exception):
                answer = {"reason": "its owner was interrupted"}
                self._call("POST", f"/v1/transactions/{ticket}/abort", answer)
            raise

    def _end(self, transaction: Transaction) -> None:
        stop = self._leases.pop(transaction.commit_user, None)
        if stop is not None:
            stop.set()

    def _renew(self, id: str, commit_user: str, lease_seconds: float) -> None:
        stop = threading.Event()
        self._leases[commit_user] = stop

        def renew() -> None:
            while not stop.wait(lease_seconds / _HEARTBEATS_PER_LEASE):
                with contextlib.suppress(Exception):
                    self._ask(self._where(), "POST", f"/v1/transactions/{id}/heartbeat")

        threading.Thread(target=renew, name=f"lease-{id[:8]}", daemon=True).start()

    def _post_leases(self, document: Any) -> Any:
        """One request to the coordinator, if there is one: none is started for who only reads, nor
        waited for, because without it nothing expires."""
        if not self._moving.acquire(blocking=False):
            raise SetupError("The coordinator is being looked for.")
        try:
            self._endpoint = endpoint = self._endpoint or self._finder.find(start=False)
            if endpoint is None:
                raise SetupError("No coordinator runs.")
        finally:
            self._moving.release()
        try:
            response = self._ask(endpoint, "POST", "/v1/leases", document)
        except httpx.TransportError as error:
            self._move(endpoint, start=False)
            raise _unreachable(endpoint, error) from error
        self._move(endpoint, _new_address(response), start=False)
        return _document(response)

    def _call(
        self,
        method: str,
        path: str,
        document: Any = None,
        *,
        settles: bool = False,
        again: Any = None,
    ) -> Any:
        """The answer's document; repeated while the coordinator can't be reached or is starting.

        A request that `settles` something may have done so although no answer came: only an answer
        about the thing itself ends it then, anything else is an UnknownOutcomeError. `again` is
        the document of a repetition, where it is another.
        """
        deadline = time.monotonic() + _REPEAT_SECONDS_MAX
        pause = _PAUSE_SECONDS
        may_have_arrived = False
        while True:
            try:
                endpoint = self._where()
                try:
                    response = self._ask(endpoint, method, path, document)
                except httpx.TransportError as error:
                    may_have_arrived |= settles and not isinstance(error, httpx.ConnectError)
                    problem: PaimonMagicsError = _unreachable(endpoint, error)
                    moved = self._move(endpoint)
                    document = document if again is None else again
                else:
                    if response.status_code not in (423, 429, 503):
                        if may_have_arrived and response.status_code not in (200, 409, 410):
                            raise _no_clear_answer(_problem(response))
                        return _document(response)
                    may_have_arrived = settles
                    problem = _problem(response)
                    moved = self._move(endpoint, _new_address(response))
            except SetupError as error:  # there is none, and none can be started
                raise _no_clear_answer(error) if may_have_arrived else error from None
            if path == "/v1/transactions" and not moved:
                # A second one would be opened; an unanswered one is ended by its lease.
                raise problem
            if time.monotonic() > deadline:
                raise _no_clear_answer(problem) from problem
            time.sleep(_PAUSE_SECONDS if moved else pause)
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)

    def _once(self, method: str, path: str, document: Any = None) -> tuple[str, Any]:
        """Who owns the warehouse, and its answer to one request."""
        for _ in range(_PLACES_MAX):
            endpoint = self._where()
            try:
                response = self._ask(endpoint, method, path, document)
            except httpx.TransportError as error:
                problem: PaimonMagicsError = _unreachable(endpoint, error)
                moved = self._move(endpoint)
            else:
                if response.status_code != 503:
                    return endpoint.address, _document(response)
                problem = _problem(response)
                moved = self._move(endpoint, _new_address(response))
            if not moved:
                break
        raise problem

    def _ask(
        self, endpoint: Endpoint, method: str, path: str, document: Any = None
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {endpoint.token}"}
        if isinstance(document, _Body):
            headers.update(document.headers)
            return self._http.request(
                method,
                endpoint.address + path,
                content=document.content,
                headers={name.encode(): value.encode() for name, value in headers.items()},
            )
        return self._http.request(method, endpoint.address + path, json=document, headers=headers)

    def _where(self) -> Endpoint:
        with self._moving:
            if self._endpoint is None:
                self._endpoint = self._finder.find()
                assert self._endpoint is not None
            return self._endpoint

    def _move(self, failed: Endpoint, address: str | None = None, *, start: bool = True) -> bool:
        """Whether there is another endpoint than the failed one; "" for one that answered
        and named no other."""
        if address == "":
            return False
        with self._moving:
            if self._endpoint is failed:
                found = self._finder.find(failed, address or "", start=start)
                if found is None:
                    return False
                self._endpoint = found
            return True


def _unreachable(endpoint: Endpoint, error: httpx.TransportError) -> SetupError:
    return SetupError(
        f"The coordinator at {endpoint.address} can't be reached: {error}",
        hint="Check that it runs, and its address and token.",
    )


def _brought(transaction: Transaction) -> dict[str, Any]:
    """What a coordinator needs that has not opened the transaction."""
    return {"transaction": transaction_document(transaction), **_sender("")}


def _sender(engine: str) -> dict[str, Any]:
    """Who asks, as far as this process knows."""
    origin = Origin(notebook_name(), host_name(), engine)
    return {"owner": user_name(), "origin": origin_document(origin)}


def _no_clear_answer(problem: PaimonMagicsError) -> UnknownOutcomeError:
    return UnknownOutcomeError(
        f"The coordinator gave no clear answer: {problem.message}",
        hint="Look at the table's snapshots before running the statement again.",
    )


def _new_address(response: httpx.Response) -> str:
    """Where a coordinator that does not own the warehouse sends its clients."""
    try:
        address = response.json().get("address")
    except (ValueError, AttributeError):
        return ""
    return address if isinstance(address, str) else ""


def _document(response: httpx.Response) -> Any:
    if response.is_success:
        return response.json()
    raise _problem(response)


def _problem(response: httpx.Response) -> PaimonMagicsError:
    try:
        error = response.json()["error"]
        message, hint, kind = str(error["message"]), str(error["hint"]), str(error["type"])
    except (ValueError, KeyError, TypeError):
        message, hint, kind = f"The coordinator answered {response.status_code}.", "", ""
    match response.status_code:
        case 400 if kind in _TOLD:
            return _TOLD[kind](message, hint=hint)
        case 400 | 413 | 416 | 422:
            return InvalidValueError(message, hint=hint)
        case 423 if kind == "TableHeldError":
            held = _TableHeldError(message, hint=hint)
            in_front = response.json()["error"].get("in_front")
            held.in_front = in_front if isinstance(in_front, int) else held.in_front
            return held
        case 423:
            return CommitConflictError(message, hint=hint)
        case 500 if kind == "UnknownOutcomeError":
            return UnknownOutcomeError(message, hint=hint)
        case 401:
            return SetupError(message, hint=hint or "Connect with the coordinator's token.")
        case 404:
            return UnknownNameError(message, hint=hint)
        case 409 if kind == "Outdated" or kind == OutdatedPlanError.__name__:
            return OutdatedPlanError(message, hint=hint)
        case 504 if kind == "TooLate":
            return TooLateError(message, hint=hint)
        case 409 | 410:
            return CommitConflictError(message, hint=hint or "Run the statement again.")
        case _:
            return SetupError(message, hint=hint)
