"""Short-lived keys of the warehouse's store, for engines a table at a time, for sessions at once.

A `KeyIssuer` makes a key from a policy; `StsIssuer` (module `sts`) is the only one. Keys are kept,
and given out again for the first third of their time: whoever gets one has two thirds of it left.
A right that is revoked is no longer in the next key: the keys before it end by themselves.

Paimon's clients take a token for ended an hour before the time that they are told, which keys of
minutes would always be. So they are told the moment at which to ask again, and an hour.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from paimon_magics.coordinator.data_tokens.policies import (
    Folder,
    Level,
    level_of,
    reach_of,
    session_policy,
    table_policy,
)
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.protocol.principals import Principal
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.runtime.work import Steps
from paimon_magics.planning.commits.requests import ANY_NAMES, names_of
from paimon_magics.redaction import conceal
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.s3_access import s3_access
from paimon_magics.tables.stores.store import StoreRefusedError, UnreachableError
from paimon_magics.tables.table import StoredTable

_log = logging.getLogger(__name__)

PAIMON_SAFE_MS = 3_600_000
"""How long before its end Paimon's clients replace a token: `TOKEN_EXPIRATION_SAFE_TIME_MILLIS`."""

STORE_SECONDS_MIN = 900
"""The shortest key that STS makes. A shorter one is ended by a condition in its policy."""

_GIVEN_PART = 3
_KEPT_MAX = 10_000
_LEFT_MS_MIN = 3_000
_TRIES = 2
_AHEAD_MS_MAX = 1_500  # the store tells its time in seconds


def _names(principal: Principal) -> str:
    """How the files' names begin that a principal's tasks may write. Who has no name, as the
    coordinator's own token, may call themselves as they like."""
    return ANY_NAMES if principal.name is None else names_of(principal.name)


@dataclass(frozen=True, slots=True)
class StoreKey:
    """Temporary keys, and when they end, in epoch milliseconds."""

    access_key: str
    secret_key: str
    session_token: str
    ends_at_ms: int

    def __repr__(self) -> str:
        return f"StoreKey(ends_at_ms={self.ends_at_ms})"


class KeyIssuer(Protocol):
    """Makes keys of a store. Safe for several threads."""

    @property
    def shown(self) -> str:
        """What errors call it."""

    @property
    def ahead_ms(self) -> int:
        """How far the store's clock was ahead of this machine's at the last answer, in
        milliseconds; 0 before."""

    def issue(self, policy: str, who: str, seconds: int) -> StoreKey:
        """A key that a policy limits, for somebody, for so many seconds, at least
        `STORE_SECONDS_MIN`. Raises UnreachableError without an answer, StoreRefusedError after a
        refusal."""


@dataclass(frozen=True, slots=True)
class DataToken:
    """A key as catalog options, when it ends, and when to ask for the next one, in epoch
    milliseconds."""

    options: Mapping[str, str]
    ends_at_ms: int
    renew_at_ms: int

    def __repr__(self) -> str:
        return f"DataToken(ends_at_ms={self.ends_at_ms})"

    @property
    def told_end_ms(self) -> int:
        """The end that Paimon's clients are told, so that they ask again at `renew_at_ms`."""
        return self.renew_at_ms + PAIMON_SAFE_MS


class DataTokens:
    """The keys of one warehouse in S3, each for `seconds`. The tables in `closed`, by database and
    name, are for administrators. Safe for several threads. `start` comes before the first key."""

    def __init__(
        self,
        catalog: Catalog,
        issuer: KeyIssuer,
        seconds: int,
        closed: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._catalog = catalog
        self._issuer = issuer
        self._closed = closed
        self.seconds = seconds
        self._turn = threading.Lock()
        self._flights: Flights[DataToken] | None = None
        self._known: OrderedDict[tuple[str, ...], DataToken] = OrderedDict()

    def start(self, runtime: Runtime) -> None:
        """Issue keys from now on, in threads of a runtime."""
        self._flights = Flights(runtime, self._issuer.shown)

    def end(self) -> None:
        """Issue no more keys."""
        if self._flights is not None:
            self._flights.end()

    @property
    def trouble(self) -> str:
        """Why no keys are issued now, "" if they are."""
        return "" if self._flights is None else self._flights.trouble

    @property
    def ahead_ms(self) -> int:
        """How far the store's clock was ahead of this machine's when it answered last, in
        milliseconds; 0 before."""
        return self._issuer.ahead_ms

    def of_table(self, principal: Principal, table: StoredTable) -> Steps[DataToken]:
        """A key for the folder of a table that the principal may read. Raises errors of the issuer,
        and UnsupportedStatementError for a folder to which no key can be limited."""
        folder = Folder.of(table.location)
        level = level_of(principal, table.name.database or "", table.name.table)
        key = ("table", principal.name or "", folder.bucket, folder.path, level.name)
        names = _names(principal)
        return self._current(key, principal, lambda end: table_policy(folder, level, names, end))

    def of_session(self, principal: Principal) -> Steps[DataToken]:
        """A key for all that a session of the principal reads and writes itself. Raises
        UnsupportedStatementError where that is too much for one key, and errors of the issuer."""
        reach = reach_of(principal, self._tables, self._closed)
        warehouse = Folder.of(self._catalog.warehouse)
        names = _names(principal)
        text = session_policy(warehouse, reach, names)
        digest = hashlib.sha256(text.encode()).hexdigest()
        key = ("session", principal.name or "", digest)
        return self._current(
            key, principal, lambda end: session_policy(warehouse, reach, names, end)
        )

    def check(self) -> None:
        """Issue a key that can do nothing. Raises what `KeyIssuer.issue` raises."""
        denied = table_policy(Folder("paimon-magics-trial", "trial"), Level.READ)
        self._issuer.issue(denied, "trial", max(self.seconds, STORE_SECONDS_MIN))

    def _tables(self) -> list[tuple[str, str]]:
        catalog = self._catalog
        return [
            (database, table)
            for database in catalog.stored_databases()
            for table in catalog.list_tables(database)
        ]

    def _current(
        self, key: tuple[str, ...], principal: Principal, policy: Callable[[int | None], str]
    ) -> Steps[DataToken]:
        """The key that is kept, or the next one. While none can be issued, one that has not ended
        is given again."""
        known = self._known.get(key)
        if known is not None and now_ms() < known.renew_at_ms:
            return known
        assert self._flights is not None, "it was not started"
        try:
            token = yield self._flights.ask(key, lambda: self._issued(principal, policy))
        except UnreachableError:
            if known is not None and now_ms() < known.ends_at_ms - _LEFT_MS_MIN:
                return known
            raise
        with self._turn:
            self._known[key] = token
            self._known.move_to_end(key)
            while len(self._known) > _KEPT_MAX:
                self._known.popitem(last=False)
        return token  # type: ignore[no-any-return]

    def _issued(self, principal: Principal, policy: Callable[[int | None], str]) -> DataToken:
        """A new key. A condition in its policy is read by the store's clock, which the answer
        tells: where that differs from what is known, the key is issued again."""
        who = principal.name or "paimon"
        for _ in range(_TRIES):
            ahead, now = self._issuer.ahead_ms, now_ms()
            wanted_end = now + self.seconds * 1000
            text = policy(wanted_end + ahead if self.seconds < STORE_SECONDS_MIN else None)
            key = self._issuer.issue(text, who, max(self.seconds, STORE_SECONDS_MIN))
            conceal(key.secret_key)
            conceal(key.session_token)
            if abs(self._issuer.ahead_ms - ahead) <= _AHEAD_MS_MAX:
                break
        end = min(key.ends_at_ms - self._issuer.ahead_ms, wanted_end)
        _log.info("A key of the store was issued to %s.", who)
        return DataToken(self._options(key), end, now + (end - now) // _GIVEN_PART)

    def _options(self, key: StoreKey) -> dict[str, str]:
        """The key in the spellings of pypaimon, of Paimon's Java library, and of Hadoop behind it.
        They stand over keys that a client has among its options."""
        access = s3_access(self._catalog.options)
        named = {
            **dict.fromkeys(("fs.s3.accessKeyId", "s3.access-key"), key.access_key),
            **dict.fromkeys(("fs.s3.accessKeySecret", "s3.secret-key"), key.secret_key),
            **dict.fromkeys(
                ("fs.s3.securityToken", "s3.session-token", "s3.session.token"), key.session_token
            ),
            "s3.endpoint": access.endpoint,
            "s3.region": access.region,
            "s3.endpoint.region": access.region,
            "s3.path-style-access": "true" if access.path_style else None,
        }
        return {option: value for option, value in named.items() if value}


# Requests for keys: one at a time for each key, in threads of their own, and fewer after failures.
#
# STS may be slow, or away. Nobody who waits for a key has a thread or a lock meanwhile: those who
# ask for the same key wait for the same future, which ends after `ANSWER_SECONDS` at the latest.
# After a failure the next requests are refused at once, until a trial is due; only one trial is
# under way.

ANSWER_SECONDS = 12.0
"""How long a request may take. A session's own request for a key lasts 30 s."""

_WORKERS = 8
_LOOK_MS = 250.0
_PAUSE_MS = 1_000.0
_PAUSE_MS_MAX = 30_000.0
_REFUSED_MS = 5_000.0
_REFUSED_MAX = 1_000

T = TypeVar("T")
Key = tuple[str, ...]


@dataclass(slots=True)
class _Flight(Generic[T]):
    until_ms: float
    future: Future[T] = field(default_factory=Future)


class Flights(Generic[T]):
    """The requests under way to one service, which errors call `service`. For any thread."""

    def __init__(
        self, runtime: Runtime, service: str, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self._service = service
        self._seconds = answer_seconds
        self._steady_ms = runtime.clock.steady_ms
        self._pool = runtime.pool("store keys", _WORKERS)
        self._timer = runtime.every("store keys late", _LOOK_MS, self._end_late)
        self._turn = threading.Lock()
        self._flying: dict[Key, _Flight[T]] = {}
        self._refused: OrderedDict[Key, tuple[float, Exception]] = OrderedDict()
        self._failures = 0
        self._next_ms = 0.0
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """Why the service gives no keys now; "" while it does."""
        return self._trouble

    def ask(self, key: Key, ask: Callable[[], T]) -> Future[T]:
        """The future of a request for a key: one that is under way, or a new one by `ask`. Raises
        UnreachableError or StoreRefusedError at once, soon after such a failure."""
        with self._turn:
            now = self._steady_ms()
            flight = self._flying.get(key)
            if flight is not None:
                return flight.future
            until, refusal = self._refused.get(key, (0.0, None))
            if refusal is not None and now < until:
                raise refusal
            if self._failures and (now < self._next_ms or self._flying):
                raise self._absent(max(self._next_ms - now, 0) / 1000)
            flight = self._flying[key] = _Flight(now + self._seconds * 1000)

        def fly() -> list[T] | Exception:
            return [] if flight.future.done() else [ask()]  # it may have waited for a thread

        self._pool.effect(
            "a request for a key",
            fly,
            lambda error: error,
            lambda landed: self._land(key, flight, landed),
        )
        return flight.future

    def end(self) -> None:
        """Ask no more. Requests under way are left."""
        self._timer.stop()

    def _land(self, key: Key, flight: _Flight[T], landed: list[T] | Exception) -> None:
        """End a request with its answer in a list, or its error."""
        error = landed if isinstance(landed, Exception) else None
        with self._turn:
            if self._flying.get(key) is not flight:  # it was late
                return
            del self._flying[key]
            now = self._steady_ms()
            if isinstance(error, UnreachableError):
                if now >= self._next_ms:  # else it is one of those that failed together
                    self._failures += 1
                    pause_ms = min(_PAUSE_MS * 2 ** (self._failures - 1), _PAUSE_MS_MAX)
                    self._next_ms = now + pause_ms
                self._trouble = error.message
            else:
                self._failures, self._trouble = 0, ""
            if isinstance(error, StoreRefusedError):
                self._trouble = error.message
                self._refused[key] = now + _REFUSED_MS, error
                while len(self._refused) > _REFUSED_MAX:
                    self._refused.popitem(last=False)
        if isinstance(landed, Exception):
            flight.future.set_exception(landed)
        else:
            flight.future.set_result(landed[0])

    def _end_late(self) -> None:
        now = self._steady_ms()
        with self._turn:
            late = [(key, f) for key, f in self._flying.items() if now > f.until_ms]
        for key, flight in late:
            self._land(key, flight, self._late())

    def _late(self) -> UnreachableError:
        return UnreachableError(
            f"{self._service} gave no answer within {self._seconds:.0f} s.", hint=_HINT
        )

    def _absent(self, seconds: float) -> UnreachableError:
        return UnreachableError(
            f"{self._service} gives no keys now: {self._trouble} It is asked again in "
            f"{seconds:.0f} s.",
            hint=_HINT,
        )


_HINT = (
    "Try again soon. An administrator of the coordinator checks --sts-endpoint and the network; "
    "until then, sessions with keys of their own still work."
)
