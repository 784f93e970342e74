"""Who sends requests to a coordinator, and the scope that each of its endpoints needs.

An authoriser finds the sender of a request and their scope: `TokenFile`, where everybody with the
token may do everything, or JupyterHub (`hub`). Every endpoint is listed in `SCOPES`, `STREAMS` or
`PUBLIC`; no other endpoint is served. A transaction's owner is not checked here, but at the look-up
of the transaction.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import Route

from paimon_magics.coordinator.http.answers import error_answer
from paimon_magics.coordinator.http.limits import run_in_threadpool
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.protocol.principals import Principal, Scope, grants_of
from paimon_magics.coordinator.store.tables import StoredToken, TokenTable
from paimon_magics.errors import InvalidValueError, SetupError, UnknownNameError

_READ_SECONDS = 0.25  # shorter than a probe waits

_TOKEN_TEXT = re.compile(r"pmt_([0-9a-f]{12})_([\w-]{43})")
_NAME = re.compile(r"[^\s\x00-\x1f\x7f](?:[^\x00-\x1f\x7f]{0,98}[^\s\x00-\x1f\x7f])?")
_FRESH_SECONDS = 1.0
_MS_MAX = 100 * 365 * 86_400_000
# Compared if there is no row, so that an unknown id takes as long as a wrong secret.
_NOBODY = StoredToken("", "", "0" * 64, (), 0, revoked_at_ms=1)

_HOLDER = Principal(None, Scope.ADMIN, credential="token file")

Value = TypeVar("Value")


class Authoriser(Protocol):
    """Finds the sender of a request."""

    async def principal(self, connection: HTTPConnection) -> Principal | None:
        """Return the sender, None without a valid token. Raises SetupError while the token can't be
        checked.
        """

    def challenge(self, connection: HTTPConnection) -> Response:
        """Return the response to a request without a valid token."""

    def routes(self) -> list[Route]:
        """Return the authoriser's own routes, which everybody may use."""


class TokenFile:
    """One token, which everybody who can read its file may use for everything: that which `accepts`
    says is good."""

    def __init__(self, accepts: Callable[[str], bool]) -> None:
        self._accepts = accepts

    async def principal(self, connection: HTTPConnection) -> Principal | None:
        """See `Authoriser.principal`."""
        token = bearer_token(connection)
        if token is None or not self._accepts(token):
            return None
        return _HOLDER

    def challenge(self, connection: HTTPConnection) -> Response:
        """See `Authoriser.challenge`."""
        return unauthorised(
            "The token is missing or wrong.",
            "Connect with the token in the coordinator's token file, or set "
            "PAIMON_COORDINATOR_TOKEN to it.",
        )

    def routes(self) -> list[Route]:
        """See `Authoriser.routes`: there are none."""
        return []


class OwnProcesses:
    """An authoriser that also knows the coordinator's own processes, by a `token` that lasts as
    long as this process. All other tokens are for `others`."""

    def __init__(self, token: str, others: Authoriser) -> None:
        self._token = token.encode()
        self._others = others

    async def principal(self, connection: HTTPConnection) -> Principal | None:
        """See `Authoriser.principal`."""
        token = bearer_token(connection)
        if token is not None and hmac.compare_digest(token.encode(), self._token):
            return Principal(None, Scope.WRITE, credential="own process", is_own=True)
        return await self._others.principal(connection)

    def challenge(self, connection: HTTPConnection) -> Response:
        """See `Authoriser.challenge`."""
        return self._others.challenge(connection)

    def routes(self) -> list[Route]:
        """See `Authoriser.routes`."""
        return self._others.routes()


class CachedRows(ABC, Generic[Value]):
    """What a store's rows say, read again after a second. For any thread.

    So a change at another coordinator of the same store counts here. While the store does not
    answer, nobody can change rows: the last ones count for some minutes.
    """

    _used_seconds_max: ClassVar[float]

    def __init__(self, before_reading: Value) -> None:
        self._turn = threading.Lock()
        self._value = before_reading
        self._read_at = float("-inf")

    @property
    def is_fresh(self) -> bool:
        """Whether the rows were read just now."""
        return time.monotonic() - self._read_at < _FRESH_SECONDS

    @property
    def is_usable(self) -> bool:
        """Whether the rows still count while the store does not answer."""
        return time.monotonic() - self._read_at < self._used_seconds_max

    def read(self) -> None:
        """Read the rows. Raises errors of the store."""
        began = time.monotonic()
        value = self._from_store()
        with self._turn:
            if began > self._read_at:
                self._value, self._read_at = value, began

    @abstractmethod
    def _from_store(self) -> Value:
        """Read the store. Raises its errors."""


class Rereading:
    """Reads rows again, once for all requests that need them. For one event loop."""

    def __init__(self, rows: CachedRows[Any]) -> None:
        self._rows = rows
        self._reading: tuple[asyncio.Task[None], float] | None = None

    async def read(self) -> None:
        """Read the rows again; go on with those that are known where that takes long. Raises
        errors of the store where they may not be used any more."""
        if self._reading is None or self._reading[0].done():
            reading = asyncio.ensure_future(run_in_threadpool(self._rows.read))
            self._reading = reading, time.monotonic()
        reading, began = self._reading
        left = max(0.0, began + _READ_SECONDS - time.monotonic())
        await asyncio.wait({reading}, timeout=left if self._rows.is_usable else None)
        error = reading.exception() if reading.done() else None
        if error is not None and not self._rows.is_usable:
            raise error


class NamedTokens:
    """An authoriser that also knows the tokens which administrators have made. All others are for
    `others`."""

    def __init__(self, tokens: Tokens, others: Authoriser) -> None:
        self._tokens = tokens
        self._others = others
        self._rereading = Rereading(tokens)

    async def principal(self, connection: HTTPConnection) -> Principal | None:
        """See `Authoriser.principal`."""
        token = bearer_token(connection)
        if token is None or not self._tokens.matches(token):
            return await self._others.principal(connection)
        if not self._tokens.is_fresh:
            await self._rereading.read()
        principal = self._tokens.principal(token)
        if principal is None and not self._tokens.is_fresh:  # it may have been made since
            raise SetupError("The token can't be checked now.", hint="Try again.")
        return principal

    def challenge(self, connection: HTTPConnection) -> Response:
        """See `Authoriser.challenge`."""
        if self._tokens.matches(bearer_token(connection) or ""):
            return unauthorised(
                "The token is wrong, expired or revoked.",
                "Ask an administrator for a new token: paimon-coordinator token add NAME.",
            )
        return self._others.challenge(connection)

    def routes(self) -> list[Route]:
        """See `Authoriser.routes`."""
        return self._others.routes()


def bearer_token(connection: HTTPConnection) -> str | None:
    """The token in the header `Authorization: Bearer …`, or `token …` as JupyterHub writes it.

    Paimon's clients with `token.provider = dlf` read their token from a file repeatedly, and send
    it in a header of its own (`DLFAuthProvider`). Their signature is ignored: it adds nothing to
    the token.

    The ASGI scope caches it, since several authorisers need it.
    """
    if _TOKEN not in connection.scope:
        connection.scope[_TOKEN] = _token_of(connection)
    token: str | None = connection.scope[_TOKEN]
    return token


def _token_of(connection: HTTPConnection) -> str | None:
    # By hand: Starlette decodes the names of all headers first.
    for name, header in connection.scope["headers"]:
        if name == b"authorization":
            scheme, _, token = header.decode("latin-1").partition(" ")
            if scheme == _DLF:
                token = connection.headers.get(_DLF_TOKEN, "")
            elif scheme.lower() not in ("bearer", "token"):
                return None
            return token.strip() or None
    return None


def unauthorised(message: str, hint: str) -> Response:
    """Return a 401 response, which asks for a bearer token."""
    answer = error_answer(401, "Unauthorized", message, hint)
    answer.headers["www-authenticate"] = "Bearer"
    return answer


_TOKEN = "paimon_magics.token"
_DLF = "DLF4-HMAC-SHA256"
_DLF_TOKEN = "x-dlf-security-token"

PUBLIC = frozenset(
    {"/health/live", "/health/owner", "/health/ready", "/health/startup", "/dead-letters"}
)
"""Paths that are open to everybody. `/dead-letters` requires a proof of its own, and
`/health/ready` shows names only to clients with a token.
"""

_ENDPOINTS = """
read     GET    /v1/databases/{database}
read*    GET    /
read*    GET    /metrics
read     GET    /openapi.json
read     GET    /v1/compactions
read     GET    /v1/coordinator
read     GET    /v1/inserts
read     GET    /v1/inserts/{database}/{table}
read     GET    /v1/inserts/{database}/{table}/buffer
read     GET    /v1/inserts/{database}/{table}/dead-letters
read     GET    /v1/tables/stopped
read     GET    /v1/transactions
read     GET    /v1/transactions/{id}
read     GET    /v1/config
read     GET    /v1/data-token
read     GET    /v1/principal
read     GET    /v1/paimon/databases
read     GET    /v1/paimon/functions
read*    GET    /v1/paimon/permissions
read     GET    /v1/paimon/tables
read     GET    /v1/paimon/tables/id/{id}
read     GET    /v1/paimon/views
read     GET    DATABASE
read     GET    DATABASE/function-details
read     GET    DATABASE/functions
read     GET    DATABASE/functions/{name}
read     GET    DATABASE/table-details
read     GET    DATABASE/tables
read     GET    DATABASE/view-details
read     GET    DATABASE/views
read     GET    DATABASE/views/{name}
read     GET    TABLE
read     GET    TABLE/branches
read     GET    TABLE/consumers
read     GET    TABLE/partitions
read     GET    TABLE/snapshot
read     GET    TABLE/snapshots
read     GET    TABLE/snapshots/{version}
read     GET    TABLE/tags
read     GET    TABLE/tags/{tag}
read     GET    TABLE/token
read     POST   /v1/leases                                             - changes no table
read     POST   TABLE/auth                                             - a question
read     POST   TABLE/partitions/list-by-filter                        - a question
read     POST   TABLE/partitions/list-by-names                         - a question
read     GET    /v1/paimon/{rest:path}
read     POST   /v1/paimon/{rest:path}                                 - not offered
read     PUT    /v1/paimon/{rest:path}                                 - not offered
read     PATCH  /v1/paimon/{rest:path}                                 - not offered
read     DELETE /v1/paimon/{rest:path}                                 - not offered
alter    POST   /v1/changes                                            = change definition
insert   POST   /v1/inserts/{database}/{table}                         - kept with its load
insert   POST   /v1/inserts/{database}/{table}/flush                   - kept as a load
change   POST   /v1/inserts/{database}/{table}/dead-letters/{lsn}/retry = retry dead letter
change   DELETE /v1/inserts/{database}/{table}/dead-letters/{lsn}      = discard dead letter
read     POST   /v1/tables/check                                       - changes no table
maintain POST   /v1/tables/removals                                    = remove files
read     POST   /v1/tables/versions                                    = change versions
read     POST   /v1/transactions                                       - its commit is kept
read     POST   /v1/transactions/{id}/abort                            = abort
read     POST   /v1/transactions/{id}/commit                           = commit
read     POST   /v1/transactions/{id}/compactions                      - its commit is kept
read     POST   /v1/transactions/{id}/epoch                            - its commit is kept
read     POST   /v1/transactions/{id}/heartbeat                        - its commit is kept
read     POST   /v1/transactions/{id}/load                             - its commit is kept
read     POST   /v1/transactions/{id}/sweep                            - its commit is kept
alter    POST   /v1/paimon/databases                                   = create database
alter    POST   /v1/paimon/tables/rename                               = rename table
alter    POST   /v1/paimon/views/rename                                = rename view
alter    POST   DATABASE                                               = alter database
alter    POST   DATABASE/functions                                     = create function
alter    POST   DATABASE/functions/{name}                              = alter function
alter    DELETE DATABASE/functions/{name}                              = drop function
alter    POST   DATABASE/register                                      - not offered
alter    POST   DATABASE/tables                                        = create table
alter    POST   DATABASE/views                                         = create view
alter    POST   DATABASE/views/{name}                                  = alter view
alter    DELETE DATABASE/views/{name}                                  = drop view
alter    POST   TABLE                                                  = alter table
alter    DELETE TABLE                                                  = drop table
alter    POST   TABLE/branches                                         = create branch
alter    DELETE TABLE/branches/{branch}                                = delete branch
alter    POST   TABLE/branches/{branch}/forward                        = fast-forward
alter    POST   TABLE/branches/{branch}/rename                         = rename branch
change   POST   TABLE/commit                                           = commit
maintain POST   TABLE/consumers/reset                                  = reset consumer
alter    POST   TABLE/partitions                                       - not offered
alter    POST   TABLE/partitions/drop                                  - not offered
alter    POST   TABLE/partitions/mark                                  - not offered
alter    POST   TABLE/replace                                          = replace table
alter    POST   TABLE/rollback                                         = roll back
alter    POST   TABLE/rollback-schema                                  = roll back schema
alter    POST   TABLE/tags                                             = create tag
alter    DELETE TABLE/tags/{tag}                                       = delete tag
admin    POST   /v1/inserts/{database}/{table}/reopen                  = reopen table
admin*   POST   /v1/compactions/pause                                  = pause compactions
admin*   POST   /v1/compactions/resume                                 = resume compactions
admin*   POST   /v1/coordinator/backup                                 = back up
admin*   POST   /v1/coordinator/rotated                                = rotate
admin*   POST   /v1/coordinator/options                                = change options
admin*   POST   /v1/coordinator/pause                                  = pause
admin*   POST   /v1/coordinator/resume                                 = resume
admin    POST   /v1/tables/resume                                      = resume table
admin*   GET    /v1/tokens
admin*   POST   /v1/tokens                                             = add token
admin*   DELETE /v1/tokens/{id}                                        = revoke token
admin*   POST   /v1/tokens/{id}/allow                                  = allow token
admin*   POST   /v1/tokens/{id}/renew                                  = renew token
read     GET    /v1/grants
admin*   POST   /v1/grants                                             = grant
admin*   POST   /v1/grants/revoke                                      = revoke
admin    DELETE DATABASE                                               = drop database
admin*   POST   /v1/paimon/permissions/grant                           - not offered
admin*   POST   /v1/paimon/permissions/revoke                          - not offered
"""
"""Every endpoint: its scope, method and path, and what the audit log keeps.

A `*` after the scope: it is needed on all tables. Other endpoints are about tables, where the
sender's permissions are checked too. `=` names an audited action. `-` is the reason why the audit
log keeps only refused requests of a non-GET endpoint.
"""

_SHORT = {
    "DATABASE": "/v1/paimon/databases/{database}",
    "TABLE": "/v1/paimon/databases/{database}/tables/{table}",
}
_ENDPOINT = re.compile(r"(\w+)(\*?) +(\w+) +([A-Z]*)(\S*)(?: +([=-]) (.+))?")

SCOPES: dict[str, Scope] = {}
"""The scope that each endpoint needs, by its method and path."""

EVERYWHERE: set[str] = set()
"""The endpoints that need their scope on all tables."""

ACTIONS: dict[str, str] = {}
"""The actions that the audit log keeps, by method and path."""

UNAUDITED: dict[str, str] = {}
"""Non-GET endpoints of which only refused requests are kept, with the reason."""

for _line in _ENDPOINTS.split("\n")[1:-1]:
    _match = _ENDPOINT.fullmatch(_line)
    assert _match is not None, _line
    _scope, _star, _method, _short, _path, _sign, _note = _match.groups()
    _endpoint = f"{_method} {_SHORT.get(_short, '')}{_path}"
    SCOPES[_endpoint] = Scope(_scope)
    if _star:
        EVERYWHERE.add(_endpoint)
    if _sign:
        (ACTIONS if _sign == "=" else UNAUDITED)[_endpoint] = _note

STREAMS: Mapping[str, Scope] = {"/v1/inserts/{database}/{table}/stream": Scope.INSERT}
"""The scope that each WebSocket needs, by its path."""


class Tokens(CachedRows[Mapping[str, tuple[StoredToken, Principal]]]):
    """Tokens with names, scopes and expiry, which administrators make and revoke. For any thread.

    A token is `pmt_ID_SECRET`. The id finds its row. Of the secret, 256 random bits, the SHA-256 is
    stored, and compared in constant time.

    If the process dies between storing a token and answering, nobody has the token; it shows in the
    list and can be revoked. `when_taken` is called after rights were taken away.
    """

    _used_seconds_max = 600.0

    def __init__(self, table: TokenTable, when_taken: Callable[[], object] = lambda: None) -> None:
        super().__init__({})
        self._table = table
        self._when_taken = when_taken

    @staticmethod
    def matches(text: str) -> bool:
        """Whether a text has the form of such a token."""
        return _TOKEN_TEXT.fullmatch(text) is not None

    def principal(self, text: str) -> Principal | None:
        """The principal of a token, by the rows that were read last; None if the text is not a
        token, or the token has ended.
        """
        match = _TOKEN_TEXT.fullmatch(text)
        if match is None:
            return None
        stored, principal = self._value.get(match[1], (_NOBODY, None))
        digest = hashlib.sha256(match[2].encode()).hexdigest()
        is_right = hmac.compare_digest(digest, stored.digest)
        return principal if is_right and stored.is_good(now_ms()) else None

    def add(
        self, name: str, allows: Sequence[str], expires_in_ms: int | None = None
    ) -> tuple[str, StoredToken]:
        """Make a token. Return its text, which is not kept, and its stored form.

        Raises InvalidValueError for an invalid name, invalid permissions or an invalid time."""
        if not is_name(name):
            raise InvalidValueError(
                f"`{name}` is not a valid name of a token.",
                hint=(
                    "Use 1 to 100 printable characters. The prefix `service:` is reserved for a "
                    "hub's services."
                ),
            )
        grants = grants_of(allows)
        now = now_ms()
        id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        stored = StoredToken(
            id,
            name,
            hashlib.sha256(secret.encode()).hexdigest(),
            tuple(map(str, grants)),
            now,
            _end_ms(expires_in_ms, now),
        )
        self._table.add(stored)
        self.read()
        return f"pmt_{id}_{secret}", stored

    def all(self) -> list[StoredToken]:
        """All tokens, including ended tokens."""
        return self._table.all()

    def revoke(self, named: str) -> list[StoredToken]:
        """End the token with an id, or all tokens of a name. Return them. Raises
        UnknownNameError."""
        now = now_ms()
        good = [token for token in self._named(named) if token.is_good(now)]
        for token in good:
            self._table.revoke(token.id, now)
        self._when_taken()
        self.read()
        return good

    def renew(self, named: str, expires_in_ms: int | None = None) -> list[StoredToken]:
        """Set a new expiry, from now, for the token with an id, or for all tokens of a name. This
        also works after the old expiry: clients whose token can't be exchanged continue with it.
        Return the tokens, without revoked tokens. Raises UnknownNameError, and InvalidValueError
        for an invalid time.
        """
        end = _end_ms(expires_in_ms, now_ms())
        renewed = [token for token in self._named(named) if not token.revoked_at_ms]
        for token in renewed:
            before = token.expires_at_ms
            self._table.renew(token.id, end, is_sooner=bool(end) and (not before or end < before))
        self._when_taken()
        self.read()
        return [replace(token, expires_at_ms=end) for token in renewed]

    def allow(self, named: str, allows: Sequence[str]) -> list[StoredToken]:
        """Replace what the token with an id, or all of a name, allows; its secret stays. Return
        them, without those that have ended. Raises UnknownNameError, and InvalidValueError for
        permissions that are wrong."""
        texts = tuple(map(str, grants_of(allows)))
        now = now_ms()
        good = [token for token in self._named(named) if token.is_good(now)]
        for token in good:
            self._table.allow(token.id, texts)
        self._when_taken()
        self.read()
        return [replace(token, allows=texts) for token in good]

    def _named(self, named: str) -> list[StoredToken]:
        tokens = [token for token in self._table.all() if named in (token.id, token.name)]
        if not tokens:
            raise UnknownNameError(
                f"There is no token `{named}`.",
                hint="`paimon-coordinator token list` shows ids and names.",
            )
        return tokens

    def _from_store(self) -> Mapping[str, tuple[StoredToken, Principal]]:
        return {
            row.id: (row, Principal.granted(row.name, grants_of(row.allows), f"token {row.id}"))
            for row in self._table.all()
        }


def is_name(name: str) -> bool:
    """Whether a text is a valid name of a token's user. Names of a hub's services are not valid."""
    return _NAME.fullmatch(name) is not None and not name.startswith("service:")


def _end_ms(expires_in_ms: int | None, now: int) -> int:
    if expires_in_ms is None:
        return 0
    if not 0 < expires_in_ms <= _MS_MAX:
        raise InvalidValueError(
            "The token would expire at once, or after more than a hundred years.",
            hint="Set its validity, such as 90d or 12h.",
        )
    return now + expires_in_ms
