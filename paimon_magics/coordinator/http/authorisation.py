"""Who sends requests to a coordinator, and the scope that each of its endpoints needs.

An authoriser finds the sender of a request and their scope: `TokenFile`, where everybody with the
token may do everything, or JupyterHub (`hub`). Every endpoint is listed in `SCOPES`, `STREAMS` or
`PUBLIC`; no other is served. That only its owner may use a transaction is not checked here, but
where the transaction is looked up.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

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
_FRESH_SECONDS = 5.0
_USED_SECONDS_MAX = 600.0
_MS_MAX = 100 * 365 * 86_400_000
# Compared where there is no row, so that an unknown id takes as long as a wrong secret.
_NOBODY = StoredToken("", "", "0" * 64, (), 0, revoked_at_ms=1)


class Authoriser(Protocol):
    """Finds the sender of a request."""

    async def principal(self, connection: HTTPConnection) -> Principal | None:
        """Return the sender, None without a valid token. Raises SetupError while that can't be
        checked."""

    def challenge(self, connection: HTTPConnection) -> Response:
        """Return the response to a request without a valid token."""

    def routes(self) -> list[Route]:
        """Return the authoriser's own routes, which everybody may use."""


class TokenFile:
    """One token, which everybody who can read its file may use for everything."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def principal(self, connection: HTTPConnection) -> Principal | None:
        """See `Authoriser.principal`."""
        token = bearer_token(connection)
        if token is None or not hmac.compare_digest(token.encode(), self._token):
            return None
        return Principal(None, Scope.ADMIN, credential="token file")

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
    long as this process. All others are for `others`."""

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


class NamedTokens:
    """An authoriser that also knows the tokens which administrators have made. All others are for
    `others`."""

    def __init__(self, tokens: Tokens, others: Authoriser) -> None:
        self._tokens = tokens
        self._others = others
        self._reading: tuple[asyncio.Task[None], float] | None = None

    async def principal(self, connection: HTTPConnection) -> Principal | None:
        """See `Authoriser.principal`."""
        token = bearer_token(connection)
        if token is None or not self._tokens.is_one(token):
            return await self._others.principal(connection)
        if not self._tokens.is_fresh:
            await self._read()
        principal = self._tokens.principal(token)
        if principal is None and not self._tokens.is_fresh:  # it may have been made since
            raise SetupError("The token can't be checked now.", hint="Try again.")
        return principal

    async def _read(self) -> None:
        """Read the tokens again; go on with those that are known where that takes long. Raises
        errors of the store where they may not be used any more."""
        if self._reading is None or self._reading[0].done():
            reading = asyncio.ensure_future(run_in_threadpool(self._tokens.read))
            self._reading = reading, time.monotonic()
        reading, began = self._reading
        left = max(0.0, began + _READ_SECONDS - time.monotonic())
        await asyncio.wait({reading}, timeout=left if self._tokens.is_usable else None)
        error = reading.exception() if reading.done() else None
        if error is not None and not self._tokens.is_usable:
            raise error

    def challenge(self, connection: HTTPConnection) -> Response:
        """See `Authoriser.challenge`."""
        if self._tokens.is_one(bearer_token(connection) or ""):
            return unauthorised(
                "The token is wrong, or it has ended.",
                "Ask an administrator for a new one: paimon-coordinator token add NAME.",
            )
        return self._others.challenge(connection)

    def routes(self) -> list[Route]:
        """See `Authoriser.routes`."""
        return self._others.routes()


def bearer_token(connection: HTTPConnection) -> str | None:
    """The token in the header `Authorization: Bearer …`, or `token …` as JupyterHub writes it.

    Paimon's clients with `token.provider = dlf` read their token from a file, again and again, and
    send it in a header of its own (`DLFAuthProvider`). Their signature is not looked at: it tells
    nothing that the token does not.

    The scope keeps it: several authorisers ask for it.
    """
    if _TOKEN not in connection.scope:
        connection.scope[_TOKEN] = _token_of(connection)
    token: str | None = connection.scope[_TOKEN]
    return token


def _token_of(connection: HTTPConnection) -> str | None:
    # By hand: Starlette decodes the names of all headers first.
    given = next((v for name, v in connection.scope["headers"] if name == b"authorization"), b"")
    scheme, _, token = given.decode("latin-1").partition(" ")
    if scheme == _DLF:
        return connection.headers.get(_DLF_TOKEN, "").strip() or None
    return token.strip() or None if scheme.lower() in ("bearer", "token") else None


def unauthorised(message: str, hint: str) -> Response:
    """Return a 401 response, which asks for a bearer token."""
    answer = error_answer(401, "Unauthorized", message, hint)
    answer.headers["www-authenticate"] = "Bearer"
    return answer


_TOKEN = "paimon_magics.token"
_DLF = "DLF4-HMAC-SHA256"
_DLF_TOKEN = "x-dlf-security-token"

PUBLIC = frozenset({"/health/live", "/health/owner", "/health/ready", "/dead-letters"})
"""Paths that are open to everybody. `/dead-letters` asks for a proof of its own, and
`/health/ready` has names only for those with a token."""

_TABLE = "/v1/paimon/databases/{database}/tables/{table}"
_DATABASE = "/v1/paimon/databases/{database}"

_READ = (
    "GET /v1/databases/{database}",
    "GET /",
    "GET /metrics",
    "GET /openapi.json",
    "GET /v1/compactions",
    "GET /v1/coordinator",
    "GET /v1/inserts",
    "GET /v1/inserts/{database}/{table}",
    "GET /v1/inserts/{database}/{table}/buffer",
    "GET /v1/inserts/{database}/{table}/dead-letters",
    "GET /v1/tables/stopped",
    "GET /v1/transactions",
    "GET /v1/transactions/{id}",
    "GET /v1/config",
    "GET /v1/principal",
    "GET /v1/paimon/databases",
    "GET /v1/paimon/functions",
    "GET /v1/paimon/permissions",
    "GET /v1/paimon/tables",
    "GET /v1/paimon/tables/id/{id}",
    "GET /v1/paimon/views",
    f"GET {_DATABASE}",
    f"GET {_DATABASE}/function-details",
    f"GET {_DATABASE}/functions",
    f"GET {_DATABASE}/functions/{{name}}",
    f"GET {_DATABASE}/table-details",
    f"GET {_DATABASE}/tables",
    f"GET {_DATABASE}/view-details",
    f"GET {_DATABASE}/views",
    f"GET {_DATABASE}/views/{{name}}",
    f"GET {_TABLE}",
    f"GET {_TABLE}/branches",
    f"GET {_TABLE}/consumers",
    f"GET {_TABLE}/partitions",
    f"GET {_TABLE}/snapshot",
    f"GET {_TABLE}/snapshots",
    f"GET {_TABLE}/snapshots/{{version}}",
    f"GET {_TABLE}/tags",
    f"GET {_TABLE}/tags/{{tag}}",
    f"GET {_TABLE}/token",
    # POST requests that change nothing.
    "POST /v1/leases",
    f"POST {_TABLE}/auth",
    f"POST {_TABLE}/partitions/list-by-filter",
    f"POST {_TABLE}/partitions/list-by-names",
    # Endpoints that do not exist.
    *(f"{method} /v1/paimon/{{rest:path}}" for method in ("GET", "POST", "PUT", "PATCH", "DELETE")),
)
_WRITE = (
    "POST /v1/changes",
    "POST /v1/inserts/{database}/{table}",
    "POST /v1/inserts/{database}/{table}/flush",
    "POST /v1/inserts/{database}/{table}/dead-letters/{lsn}/retry",
    "DELETE /v1/inserts/{database}/{table}/dead-letters/{lsn}",
    "POST /v1/tables/check",
    "POST /v1/tables/versions",
    "POST /v1/transactions",
    "POST /v1/transactions/{id}/abort",
    "POST /v1/transactions/{id}/commit",
    "POST /v1/transactions/{id}/compactions",
    "POST /v1/transactions/{id}/heartbeat",
    "POST /v1/transactions/{id}/sweep",
    "POST /v1/paimon/databases",
    "POST /v1/paimon/tables/rename",
    "POST /v1/paimon/views/rename",
    f"POST {_DATABASE}",
    f"POST {_DATABASE}/functions",
    f"POST {_DATABASE}/functions/{{name}}",
    f"DELETE {_DATABASE}/functions/{{name}}",
    f"POST {_DATABASE}/register",
    f"POST {_DATABASE}/tables",
    f"POST {_DATABASE}/views",
    f"POST {_DATABASE}/views/{{name}}",
    f"DELETE {_DATABASE}/views/{{name}}",
    f"POST {_TABLE}",
    f"DELETE {_TABLE}",
    f"POST {_TABLE}/branches",
    f"DELETE {_TABLE}/branches/{{branch}}",
    f"POST {_TABLE}/branches/{{branch}}/forward",
    f"POST {_TABLE}/branches/{{branch}}/rename",
    f"POST {_TABLE}/commit",
    f"POST {_TABLE}/consumers/reset",
    f"POST {_TABLE}/partitions",
    f"POST {_TABLE}/partitions/drop",
    f"POST {_TABLE}/partitions/mark",
    f"POST {_TABLE}/replace",
    f"POST {_TABLE}/rollback",
    f"POST {_TABLE}/rollback-schema",
    f"POST {_TABLE}/tags",
    f"DELETE {_TABLE}/tags/{{tag}}",
)
_ADMIN = (
    "POST /v1/inserts/{database}/{table}/reopen",
    "POST /v1/compactions/pause",
    "POST /v1/compactions/resume",
    "POST /v1/coordinator/options",
    "POST /v1/coordinator/pause",
    "POST /v1/coordinator/resume",
    "POST /v1/tables/resume",
    "GET /v1/tokens",
    "POST /v1/tokens",
    "DELETE /v1/tokens/{id}",
    "POST /v1/tokens/{id}/renew",
    # It drops all the tables, whoever made them.
    f"DELETE {_DATABASE}",
    "POST /v1/paimon/permissions/grant",
    "POST /v1/paimon/permissions/revoke",
)

SCOPES: Mapping[str, Scope] = {
    **dict.fromkeys(_READ, Scope.READ),
    **dict.fromkeys(_WRITE, Scope.WRITE),
    **dict.fromkeys(_ADMIN, Scope.ADMIN),
}
"""The scope that each endpoint needs, by its method and path."""

STREAMS: Mapping[str, Scope] = {"/v1/inserts/{database}/{table}/stream": Scope.WRITE}
"""The scope that each WebSocket needs, by its path."""

EVERYWHERE = frozenset(
    {
        "GET /",
        "GET /metrics",
        "POST /v1/coordinator/options",
        "POST /v1/coordinator/pause",
        "POST /v1/coordinator/resume",
        "POST /v1/compactions/pause",
        "POST /v1/compactions/resume",
        "GET /v1/tokens",
        "POST /v1/tokens",
        "DELETE /v1/tokens/{id}",
        "POST /v1/tokens/{id}/renew",
        "GET /v1/paimon/permissions",
        "POST /v1/paimon/permissions/grant",
        "POST /v1/paimon/permissions/revoke",
    }
)
"""The endpoints that need their scope on all tables. All others are about tables: what the sender
may do with those is looked at besides."""


# Tokens with names, scopes and ends, which administrators make and revoke.
#
# A token is `pmt_ID_SECRET`. The id finds its row; of the secret, 256 random bits, the SHA-256 is
# stored and compared in constant time. Rows are read again after a few seconds, so that a token
# that was revoked at another coordinator of the same store ends here, too. While the store does not
# answer, the last rows count for some minutes: nobody can revoke a token then.
#
# If the process dies between storing a token and answering, nobody has the token; it shows in the
# list and can be revoked.


class Tokens:
    """The tokens in a store. For any thread."""

    def __init__(self, table: TokenTable) -> None:
        self._table = table
        self._turn = threading.Lock()
        self._known: Mapping[str, tuple[StoredToken, Principal]] = {}
        self._read_at = float("-inf")

    @staticmethod
    def is_one(text: str) -> bool:
        """Whether a text has the form of such a token."""
        return _TOKEN_TEXT.fullmatch(text) is not None

    @property
    def is_fresh(self) -> bool:
        """Whether the rows were read just now."""
        return time.monotonic() - self._read_at < _FRESH_SECONDS

    @property
    def is_usable(self) -> bool:
        """Whether the rows count where the store does not answer."""
        return time.monotonic() - self._read_at < _USED_SECONDS_MAX

    def principal(self, text: str) -> Principal | None:
        """Whose token a text is, by the rows that were read last; None for one that is none, or has
        ended."""
        match = _TOKEN_TEXT.fullmatch(text)
        if match is None:
            return None
        stored, principal = self._known.get(match[1], (_NOBODY, None))
        digest = hashlib.sha256(match[2].encode()).hexdigest()
        is_right = hmac.compare_digest(digest, stored.digest)
        return principal if is_right and stored.is_good(now_ms()) else None

    def add(
        self, name: str, allows: Sequence[str], expires_in_ms: int | None = None
    ) -> tuple[str, StoredToken]:
        """Make a token; return its text, which is not kept, and what is stored of it.

        Raises InvalidValueError for a name that is none, and for permissions or a time that are
        wrong."""
        if not is_name(name):
            raise InvalidValueError(
                f"`{name}` can't be the name of a token.",
                hint="Use 1 to 100 printable characters; names of services of a hub begin with "
                "`service:`.",
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
        """All tokens, those that have ended among them."""
        return self._table.all()

    def revoke(self, named: str) -> list[StoredToken]:
        """End the token with an id, or all those of a name. Return them. Raises
        UnknownNameError."""
        now = now_ms()
        good = [one for one in self._named(named) if one.is_good(now)]
        for one in good:
            self._table.revoke(one.id, now)
        self.read()
        return good

    def renew(self, named: str, expires_in_ms: int | None = None) -> list[StoredToken]:
        """Give the token with an id, or all of a name, another end from now, also after the old
        one: clients whose token can't be exchanged go on with it. Return them; none that was
        revoked.
        Raises UnknownNameError, and InvalidValueError for a time that is wrong."""
        end = _end_ms(expires_in_ms, now_ms())
        found = [one for one in self._named(named) if not one.revoked_at_ms]
        for one in found:
            self._table.renew(one.id, end)
        self.read()
        return [replace(one, expires_at_ms=end) for one in found]

    def _named(self, named: str) -> list[StoredToken]:
        found = [one for one in self._table.all() if named in (one.id, one.name)]
        if not found:
            raise UnknownNameError(
                f"There is no token `{named}`.",
                hint="`paimon-coordinator token list` shows ids and names.",
            )
        return found

    def read(self) -> None:
        """Read the rows. Raises errors of the store."""
        began = time.monotonic()
        known = {
            one.id: (one, Principal.granted(one.name, grants_of(one.allows), f"token {one.id}"))
            for one in self._table.all()
        }
        with self._turn:
            if began > self._read_at:
                self._known, self._read_at = known, began


def is_name(name: str) -> bool:
    """Whether a text can be the name of a token's user. Names of a hub's services can't."""
    return _NAME.fullmatch(name) is not None and not name.startswith("service:")


def _end_ms(expires_in_ms: int | None, now: int) -> int:
    if expires_in_ms is None:
        return 0
    if not 0 < expires_in_ms <= _MS_MAX:
        raise InvalidValueError(
            "The token would end before it is used, or after a hundred years.",
            hint="Say how long it is good, as 90d or 12h.",
        )
    return now + expires_in_ms
