"""Requests to the coordinator that owns a warehouse, wherever it is.

Requests are repeated where that is safe: a coordinator answers the same request the same way, also
after a restart. When the coordinator is gone or another one has taken over, the requests go to the
warehouse's new owner.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx

from paimon_magics.coordinator.client.addresses import tls_context
from paimon_magics.coordinator.client.administration import TooLateError
from paimon_magics.coordinator.client.starting import Endpoint, Finder
from paimon_magics.coordinator.client.stored_views import DEFINED, DefinedAlreadyError
from paimon_magics.coordinator.protocol.errors import (
    BrokeOffError,
    NoOwnerError,
    NotStartedError,
    TableHeldError,
)
from paimon_magics.errors import (
    CommitConflictError,
    CompactionConflictError,
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
from paimon_magics.forks import renew_after_fork

_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 120.0
_PATIENCE_SECONDS = 3.0
_LOOK_SECONDS = 1.0
_CONNECTED = ("connection.connect_tcp.complete", "connection.start_tls.complete")
_PAUSE_SECONDS = 0.05
_PAUSE_SECONDS_MAX = 2.0
_PLACES_MAX = 3
_WAITS_MAX = 5  # while owners die one after the other
_UNAUTHORISED = 401
_SETTLED = (409, 410, 416, 422)  # answers about the thing itself

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout)
_BROKEN = (httpx.NetworkError, httpx.RemoteProtocolError)
_OPEN = (408, 423, 425, 429, 502, 503, 504)  # the same request may be answered otherwise
_LATER = "TooLate"  # it does not wait any longer
_STORE_REFUSED = "StoreRefusedError"
_PAUSED = "PausedError"  # an administrator's pause may last long
_NOT_STARTED = NotStartedError.__name__
_UNTOUCHED = ("NotOwnerError", "DeposedError", "NoOwnerError", "TooMany", _NOT_STARTED)

# Errors of a statement keep their class on the way from the coordinator to its client.
_STATEMENT_ERRORS = {
    kind.__name__: kind for kind in (InvalidTableError, StatementError, UnsupportedStatementError)
}
# Errors of a standby, and before the start, say whether the request may have been carried out.
_OWNER_ERRORS = {kind.__name__: kind for kind in (NoOwnerError, BrokeOffError, NotStartedError)}


class UnknownEndpointError(UnknownNameError):
    """The coordinator has no such endpoint: it is of an earlier version."""


@dataclass(frozen=True, slots=True)
class BinaryBody:
    """A body other than a JSON document, with its headers."""

    content: bytes
    headers: dict[str, str]


class Requests:
    """Sends requests to the coordinator that `finder` finds. Safe for several threads.

    `tls` has the certificates that it trusts. `repeat` asks again for `wait_ms`. Meanwhile `delay`
    is what it waits for; else "".
    """

    def __init__(
        self, finder: Finder, wait_ms: int = 60_000, tls: ssl.SSLContext | None = None
    ) -> None:
        self._finder = finder
        self._wait_seconds = wait_ms / 1000
        self.delay = ""
        self._was_answered = False
        self._endpoint: Endpoint | None = None
        self._moving = threading.Lock()
        self._tls = tls_context(None) if tls is None else tls
        self._patience = Patience(finder.succeeded)
        self._http = self._new_http()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """See `Renewed`: other connections, to the same coordinator."""
        self._moving = threading.Lock()
        self.delay = ""
        self._patience.after_fork()
        if not self._http.is_closed:
            self._http = self._new_http()

    def _new_http(self) -> httpx.Client:
        return httpx.Client(
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            trust_env=False,
            verify=self._tls,
        )

    def post_leases(self, document: Any) -> Any:
        """Post a document to `/v1/leases` once. Readers don't start or wait for a coordinator,
        since nothing expires without a coordinator. Raises SetupError if none answers.
        """
        if not self._moving.acquire(blocking=False):
            raise SetupError("The search for the coordinator is still running.")
        try:
            self._endpoint = endpoint = self._endpoint or self._finder.find(start=False)
            if endpoint is None:
                raise SetupError("No coordinator runs.")
        finally:
            self._moving.release()
        outcome = self._request(endpoint, "POST", "/v1/leases", document)
        self._move(endpoint, outcome.owner, start=False)
        if outcome.error is not None:
            raise outcome.error
        return outcome.document

    def repeat(
        self,
        method: str,
        path: str,
        document: Any = None,
        *,
        settles: bool = False,
        again: Any = None,
        wait_seconds: float | None = None,
    ) -> Any:
        """Send a request, repeated while the coordinator can't be reached or is starting. Return
        the answer's document.

        A request that opens a transaction is repeated only if it certainly did not arrive. If it
        may have arrived, `broke_off` is true of the SetupError.

        A request that `settles` something may have succeeded although no answer came. From then on
        only an answer about the thing itself (200, 409, 410) counts; anything else raises
        UnknownOutcomeError. `again` is the document of repetitions, if it differs. `wait_seconds`
        replaces the client's own wait. The wait starts again when a coordinator dies in the middle
        of an answer, since a standby takes over. In total it is at most five times as long. A
        coordinator that has not started is waited for only by a client that knows it.
        """
        waits = (self._wait_seconds, _WAITS_MAX) if wait_seconds is None else (wait_seconds, 1)
        try:
            return self._until(waits, method, path, document, again, settles=settles)
        finally:
            self.delay = ""

    def _until(
        self,
        waits: tuple[float, int],
        method: str,
        path: str,
        document: Any,
        again: Any,
        *,
        settles: bool,
    ) -> Any:
        """Repeat a request. `waits` is the wait in seconds, and the upper bound on waits while
        owners die.
        """
        wait_seconds, waits_max = waits
        pause, strange = _PAUSE_SECONDS, 0
        began = time.monotonic()
        deadline = began + wait_seconds
        may_have_arrived = False
        while True:
            try:
                endpoint = self._where()
                outcome = self._request(endpoint, method, path, document)
                problem, untouched = outcome.error, outcome.untouched
                if problem is None:
                    self._was_answered = True
                    return outcome.document
                if outcome.is_known:
                    is_unclear = may_have_arrived and outcome.status not in _SETTLED
                    raise _no_clear_answer(problem) if is_unclear else problem
                may_have_arrived |= settles and not untouched
                if not outcome.may_repeat:
                    raise _no_clear_answer(problem) if settles else problem
                if outcome.status is None:
                    self.delay = f"waiting for the coordinator at {endpoint.address}"
                if not untouched and again is not None:
                    document = again
                moved = self._move(endpoint, outcome.owner)
            except SetupError as error:  # there is no coordinator, and none can be started
                raise _no_clear_answer(error) if may_have_arrived else error from None
            if isinstance(problem, NotStartedError) and not self._was_answered:
                strange += 1
                if not moved or strange > _PLACES_MAX:
                    raise problem
            broke = broke_off(problem)
            if broke:
                deadline = min(time.monotonic() + wait_seconds, began + waits_max * wait_seconds)
            if path == "/v1/transactions" and not untouched and (broke or not moved):
                # A repetition could open a second transaction. A transaction without an answer ends
                # when its lease expires. This holds elsewhere, too: the new owner has the dead
                # owner's transactions.
                raise problem
            if time.monotonic() > deadline:
                raise problem if untouched and not may_have_arrived else _no_clear_answer(problem)
            time.sleep(_PAUSE_SECONDS if moved else pause)
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)

    def once(self, method: str, path: str, document: Any = None) -> tuple[str, Any]:
        """Send a request once to the warehouse's owner. Return its address and the document. Raises
        UnknownOutcomeError for a change without a clear answer.
        """
        for _ in range(_PLACES_MAX):
            endpoint = self._where()
            outcome = self._request(endpoint, method, path, document)
            problem = outcome.error
            if problem is None:
                return endpoint.address, outcome.document
            is_elsewhere = outcome.status in (None, 503)
            if not is_elsewhere or not self._move(endpoint, outcome.owner):
                break
        assert problem is not None
        is_open = not outcome.is_known and not outcome.untouched
        if method != "GET" and is_open and outcome.status in (None, 500, 502, 504):
            raise _no_clear_answer(problem)
        raise problem

    def answer(self, method: str, path: str, document: Any = None) -> httpx.Response:
        """Send a request once and return the response. Raises `httpx.TransportError`."""
        return self._ask(self._where(), method, path, document)

    def look_ahead(self) -> None:
        """Begin to find or start the coordinator in the background."""

        def look() -> None:
            with contextlib.suppress(PaimonMagicsError, OSError):  # the first request raises it
                self._where()

        threading.Thread(target=look, name="find-coordinator", daemon=True).start()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _request(self, endpoint: Endpoint, method: str, path: str, document: Any) -> Outcome:
        try:
            return _outcome_of(self._ask(endpoint, method, path, document))
        except httpx.TransportError as error:
            return _unanswered(endpoint, error)

    def _ask(
        self, endpoint: Endpoint, method: str, path: str, document: Any = None
    ) -> httpx.Response:
        """Send a request. Send it once more if the token was refused and there is a new token."""
        response = self._send(endpoint, method, path, document)
        if response.status_code != _UNAUTHORISED:
            return response
        renewed = self._finder.renewed(endpoint)
        if renewed is None:
            return response
        with self._moving:
            if self._endpoint is endpoint:
                self._endpoint = renewed
        return self._send(renewed, method, path, document)

    def _send(self, endpoint: Endpoint, method: str, path: str, document: Any) -> httpx.Response:
        url, trace = endpoint.address + path, {"trace": self._patience.trace(endpoint)}
        headers = {"Authorization": f"Bearer {endpoint.token}"}
        with self._patience.waiting(endpoint):
            if not isinstance(document, BinaryBody):
                return self._http.request(
                    method, url, json=document, headers=headers, extensions=trace
                )
            encoded = {
                name.encode(): value.encode()
                for name, value in (headers | document.headers).items()
            }
            return self._http.request(
                method, url, content=document.content, headers=encoded, extensions=trace
            )

    def _where(self) -> Endpoint:
        with self._moving:
            if self._endpoint is None:
                self._endpoint = self._finder.find()
                assert self._endpoint is not None
            return self._endpoint

    def _move(self, failed: Endpoint, address: str | None = None, *, start: bool = True) -> bool:
        """Move on from a failed endpoint. Return whether there is another endpoint. `address` is
        the owner that it named, "" if it answered without naming an owner, None if it did not
        answer.
        """
        if address == "":
            return False
        with self._moving:
            if self._endpoint is failed:
                other = self._finder.find(failed, address or "", start=start)
                if other is None:
                    return False
                self._endpoint = other
            return True


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a request: done (without an `error`), refused by a rule, or not known yet.

    A refusal says that nothing was done. The outcome is unknown without an answer, after the answer
    of a proxy, and if the coordinator reports a failure of its own. Then the request may have been
    carried out, unless it was `untouched`. With `may_repeat`, the same request may get another
    answer in a moment. `status` is the answer's status, None without an answer. `owner` is the
    owner's address in it, "" if it names none.
    """

    document: Any = None
    error: PaimonMagicsError | None = None
    is_known: bool = True
    untouched: bool = False
    may_repeat: bool = False
    status: int | None = None
    owner: str | None = None


def _outcome_of(response: httpx.Response) -> Outcome:
    status, owner = response.status_code, _new_address(response)
    if response.is_success:
        with contextlib.suppress(ValueError):  # a proxy has answered
            return Outcome(response.json(), status=status, owner=owner)
    error, kind = _failure(response)
    other = None if kind == _NOT_STARTED else owner  # any other address may do
    refused = Outcome(None, error, status=status, owner=other)
    if kind in (_LATER, _PAUSED) or (status == 502 and kind == _STORE_REFUSED):
        return refused
    if response.is_success or status in _OPEN:
        untouched = not response.is_success and (status == 429 or kind in _UNTOUCHED)
        return replace(refused, is_known=False, untouched=untouched, may_repeat=True)
    return replace(refused, is_known=status != 500)


def _unanswered(endpoint: Endpoint, error: httpx.TransportError) -> Outcome:
    """The outcome of a request to a coordinator that gave no answer at all."""
    problem = SetupError(
        f"The coordinator at {endpoint.address} can't be reached: {error}",
        hint="Check that it is running, and check its address and token.",
    )
    if isinstance(error, httpx.ReadTimeout):
        problem = SetupError(
            f"The coordinator at {endpoint.address} has the request, and has not answered for "
            f"{_ANSWER_SECONDS:.0f} s. Its process, or what it waits for, may stand still.",
            hint=f"Look at {endpoint.address}/health/ready, or ask who runs the coordinator. With "
            "the addresses of all coordinators of the warehouse, a session goes on at the next "
            "owner by itself.",
        )
    problem.__cause__ = error  # for `broke_off`
    untouched = isinstance(error, _NOT_SENT)
    return Outcome(None, problem, is_known=False, untouched=untouched, may_repeat=True)


def broke_off(error: Exception) -> bool:
    """Whether a connection ended before the answer came: the request may have been carried out."""
    if isinstance(error, BrokeOffError):
        return True
    cause = error.__cause__
    return isinstance(cause, _BROKEN) and not isinstance(cause, _NOT_SENT)


def _no_clear_answer(problem: PaimonMagicsError) -> UnknownOutcomeError:
    """The error for a request that may or may not have been carried out."""
    if isinstance(problem, UnknownOutcomeError):
        return problem
    return UnknownOutcomeError(
        f"The coordinator gave no clear answer: {problem.message}",
        hint="Look at the table's snapshots before running the statement again.",
    )


def _new_address(response: httpx.Response) -> str:
    """The owner's address in the answer of a coordinator that does not own the warehouse; "" if it
    names none."""
    try:
        address = response.json().get("address")
    except (ValueError, AttributeError):
        return ""
    return address if isinstance(address, str) else ""


def _failure(response: httpx.Response) -> tuple[PaimonMagicsError, str]:
    """The error in an answer, by its status and type, and the type. The type is "" if it is not an
    error of ours.
    """
    error, kind = {}, ""
    message, hint = f"The coordinator answered {response.status_code}.", ""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        document = response.json()
        if "error" in document:
            error = document["error"]
            message, hint, kind = str(error["message"]), str(error["hint"]), str(error["type"])
        else:  # of Paimon's REST catalog
            message, kind = str(document["message"]), str(document["resourceType"])
    return _error_of(response.status_code, kind, message, hint, error), kind


def _error_of(
    status: int, kind: str, message: str, hint: str, error: Mapping[str, Any]
) -> PaimonMagicsError:
    if kind in _OWNER_ERRORS:
        return _OWNER_ERRORS[kind](message, hint=hint)
    match status:
        case 400 if kind in _STATEMENT_ERRORS:
            return _STATEMENT_ERRORS[kind](message, hint=hint)
        case 400 | 413 | 416 | 422:
            return InvalidValueError(message, hint=hint)
        case 423 if kind == TableHeldError.__name__:
            in_front = error.get("in_front")
            return TableHeldError(message, in_front if isinstance(in_front, int) else 1, hint=hint)
        case 423:
            return CommitConflictError(message, hint=hint)
        case 500 if kind == "UnknownOutcomeError":
            return UnknownOutcomeError(message, hint=hint)
        case 401:
            return SetupError(message, hint=hint or "Connect with the coordinator's token.")
        case 404 if kind == "NotFound":
            return UnknownEndpointError(message, hint=hint)
        case 404:
            return UnknownNameError(message, hint=hint)
        case 409 if kind in DEFINED:
            return DefinedAlreadyError(message, hint=hint)
        case 409 if kind == "Outdated" or kind == OutdatedPlanError.__name__:
            return OutdatedPlanError(message, hint=hint)
        case 409 if kind == "Compaction":
            conflicting = [at for at in error.get("conflicting") or () if isinstance(at, int)]
            return CompactionConflictError(message, tuple(conflicting), hint=hint)
        case 504 if kind == "TooLate":
            return TooLateError(message, hint=hint)
        case 409 | 410:
            return CommitConflictError(message, hint=hint or "Run the statement again.")
        case _:
            return SetupError(message, hint=hint)


# How long a client waits for an answer: as long as nobody else can give it.
#
# A process that stands still keeps its connections, so a request to it would wait for its timeout.
# A request may also take long for good reasons. So while one has no answer, a thread looks from
# time to time: it is given up only if its coordinator no longer shows a sign of life, and another
# one says that it owns the warehouse. Looking changes nothing; what follows is as after a broken
# connection.


class Patience:
    """Knows the connections, and the requests without an answer. Safe for several threads.

    `succeeded` says whether another coordinator has taken over from an endpoint that shows no sign
    of life; it may take seconds.
    """

    def __init__(self, succeeded: Callable[[Endpoint], bool]) -> None:
        self._succeeded = succeeded
        self._numbers = itertools.count()
        self._sockets: weakref.WeakKeyDictionary[socket.socket, str] = weakref.WeakKeyDictionary()
        self._begin()

    def _begin(self) -> None:
        self._turn = threading.Lock()
        self._waiting: dict[int, tuple[Endpoint, float]] = {}
        self._wakes = threading.Event()
        self._thread: threading.Thread | None = None

    def after_fork(self) -> None:
        """Forget what the parent process does, and close the connections here: nothing is sent."""
        connections = [reference() for reference in self._sockets.keyrefs()]
        self._begin()
        self._sockets = weakref.WeakKeyDictionary()
        for connection in connections:
            if connection is not None:
                connection.close()

    def trace(self, endpoint: Endpoint) -> Callable[[str, Mapping[str, Any]], None]:
        """What notes a new connection to an endpoint, when the HTTP client reports it."""

        def note(event: str, info: Mapping[str, Any]) -> None:
            if event in _CONNECTED:
                with self._turn:
                    connection = info["return_value"].get_extra_info("socket")
                    self._sockets[connection] = endpoint.address

        return note

    @contextlib.contextmanager
    def waiting(self, endpoint: Endpoint) -> Iterator[None]:
        """Watch a request to an endpoint. If it is given up, its connection ends."""
        number = next(self._numbers)
        self._waiting[number] = endpoint, time.monotonic()
        if self._thread is None:
            with self._turn:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="patience", daemon=True)
                    self._thread.start()
        if not self._wakes.is_set():
            self._wakes.set()
        try:
            yield
        finally:
            self._waiting.pop(number, None)

    def _work(self) -> None:
        while True:
            self._wakes.wait()
            time.sleep(_LOOK_SECONDS)
            if not self._waiting:
                self._wakes.clear()
                if self._waiting:  # it came in between
                    self._wakes.set()
                continue
            long_ago = time.monotonic() - _PATIENCE_SECONDS
            for endpoint in {
                each for each, since in list(self._waiting.values()) if since < long_ago
            }:
                with contextlib.suppress(Exception):  # it is looked at again
                    if self._succeeded(endpoint):
                        self._give_up(endpoint.address)

    def _give_up(self, address: str) -> None:
        """End the connections to an address: whoever waits there gets no answer any more."""
        with self._turn:
            ended = [each for each, at in self._sockets.items() if at == address]
        for connection in ended:
            with contextlib.suppress(OSError):
                # The method of plain sockets: that of TLS would drop what another thread uses.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
