"""The guard of every endpoint: who sends a request, whether they may, and how large it may be."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paimon_magics.coordinator.audit.trail import Trail
from paimon_magics.coordinator.http.answers import BEGINNINGS, error_answer, on_error
from paimon_magics.coordinator.http.audited import Audited, refused_entry, report
from paimon_magics.coordinator.http.authorisation import (
    ACTIONS,
    EVERYWHERE,
    PUBLIC,
    SCOPES,
    STREAMS,
    Authoriser,
    bearer_token,
)
from paimon_magics.coordinator.http.limits import (
    Capacity,
    ClientLimits,
    Lanes,
    Threads,
    Turnstile,
    Using,
    run_in_threadpool,
)
from paimon_magics.coordinator.protocol.errors import (
    CURRENT,
    HEADER,
    RequestId,
    request_id,
)
from paimon_magics.coordinator.protocol.principals import (
    PRINCIPAL,
    Principal,
    closed_table,
    grantee_text,
)
from paimon_magics.coordinator.protocol.principals import Scope as Needed
from paimon_magics.coordinator.protocol.visibility import Load, check_table
from paimon_magics.coordinator.store.database import StoreUnavailableError
from paimon_magics.errors import PaimonMagicsError, SetupError, UnknownNameError
from paimon_magics.statements.statement import NAME_BYTES_MAX, TableName

_WEBSOCKET = "WEBSOCKET"
_DIGITS_MAX = 19  # of a length
_BYTES_A_CHARACTER = 4  # at most, in UTF-8
_LOOPBACK = ("127.0.0.1", "::1")
_NOT_CHECKED = "The token can't be checked now."
_READY = "/health/ready"
_READY_SECONDS = 0.5  # while a store stands still, a token's owner is unknown
_TABLE_PARTS = {"database", "table"}
_OWN_TABLES = ("/v1/inserts", "/v1/databases")

_log = logging.getLogger(__name__)

UNAUTHORISED = 4401
"""The close code of a stream whose sender is no longer known."""

_AGAIN_SECONDS = 1.0  # how long what a stream's token allows is taken as said

_WRONG_MAX = 20
_FORGIVEN_SECONDS = 60.0
_CACHED_MAX = 10_000


def guarded(
    routes: Sequence[BaseRoute],
    load: Load = lambda _: None,
    trail: Trail | None = None,
    threads: Threads | None = None,
) -> list[BaseRoute]:
    """Put each route behind its scope in `SCOPES` or `STREAMS`, and return the routes. Routes with
    a database and table in their paths also check the permissions on it. Routes of the REST catalog
    decode names by themselves, so they check themselves. `load` loads a table, `trail` keeps the
    requests, `threads` are the threads that requests use.

    Raises KeyError for a route without a scope: it would be open to everybody.
    """
    threads = threads or Threads()
    for route in routes:
        if isinstance(route, WebSocketRoute):
            needed = {_WEBSOCKET: STREAMS[route.path]}
            used = {_WEBSOCKET: threads.of(Capacity.INSERTS)}
            route.app = _Scoped(route.app, needed, load, used, names_table=True)
            if trail is not None:
                route.app = Audited(route.app, trail)
        elif isinstance(route, Route) and route.path not in PUBLIC:
            methods = (route.methods or set()) - {"HEAD"}
            needed = {method: SCOPES[f"{method} {route.path}"] for method in methods}
            everywhere = frozenset(m for m in methods if f"{m} {route.path}" in EVERYWHERE)
            names_table = route.path.startswith(_OWN_TABLES)
            used = {method: threads.of_endpoint(f"{method} {route.path}") for method in methods}
            route.app = _Scoped(route.app, needed, load, used, everywhere, names_table)
            if trail is not None:
                named = {m: ACTIONS.get(f"{m} {route.path}", "") for m in methods}
                route.app = Audited(route.app, trail, named)
    return list(routes)


def principal_of(request: Request) -> Principal:
    """Return the sender of a request that has passed the guard."""
    return principal_in(request.scope)


def principal_in(scope: Scope) -> Principal:
    """The same, from the request's ASGI scope."""
    principal = scope[PRINCIPAL]
    assert isinstance(principal, Principal)
    return principal


async def check_named(request: Request, needed: Needed, name: TableName, load: Load) -> None:
    """Report the table that a request names, and raise unless its sender has the permission
    on it."""
    report(request.scope, database=name.database, table=name.object_name)
    await run_in_threadpool(check_table, principal_of(request), needed, name, load)


class Guard:
    """Lets requests of known principals through, and counts the bytes of bodies as they arrive.

    `root` is the path below which everything is served, such as "/services/paimon-coordinator".
    `limits` are the limits of each client, `threads` the threads that requests use. `trail` keeps
    the requests that are refused here; its table is for administrators.
    """

    def __init__(
        self,
        app: ASGIApp,
        authoriser: Authoriser,
        request_bytes_max: int,
        root: str = "",
        limits: ClientLimits | None = None,
        trail: Trail | None = None,
        threads: Threads | None = None,
    ) -> None:
        self._app = app
        self._identity = (threads or Threads()).of(Capacity.IDENTITY)
        self._trail = trail
        self._closed = frozenset() if trail is None else frozenset({closed_table(*trail.name)})
        self._authoriser = authoriser
        self._bytes_max = request_bytes_max
        self._root = root
        self._throttle = LoginThrottle()
        self._turnstile = Turnstile(limits) if limits is not None and limits.are_any else None
        self._public = PUBLIC | {route.path for route in authoriser.routes()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "websocket":
            await self._admit_socket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._root and scope["path"] == self._root:
            await RedirectResponse(self._root + "/")(scope, receive, send)
            return
        path = scope["path"].removeprefix(self._root)
        if self._root:
            scope = {**scope, "root_path": self._root}
        connection = HTTPConnection(scope)
        headers = dict(scope["headers"])
        answer = self._refusal(scope, path, headers)
        if answer is not None:
            pass
        elif path not in self._public:
            answer = await self._admit(scope, connection)
        elif path == _READY and bearer_token(connection):
            with contextlib.suppress(TimeoutError):  # the client gets the usual answer
                admission = self._admit(scope, connection)
                answer = await asyncio.wait_for(admission, _READY_SECONDS)
            if answer is not None and answer.status_code == 503:  # it is known later
                answer = None
        if answer is not None:
            await answer(scope, receive, send)
            return
        if b"content-length" not in headers or b"transfer-encoding" in headers:
            receive = self._counted(receive)  # else the server ends the body where the header says
        let_in = self._app if self._turnstile is None else self._let_in
        await let_in(scope, receive, send)

    def _refusal(self, scope: Scope, path: str, headers: dict[bytes, bytes]) -> Response | None:
        """The answer to a request that nobody may send."""
        if not scope["path"].startswith(self._root) or not path.startswith("/"):
            return error_answer(404, "NotFound", f"There is no endpoint {scope['path']}.", "")
        if len(path) * _BYTES_A_CHARACTER > NAME_BYTES_MAX and any(
            len(part.encode(errors="replace")) > NAME_BYTES_MAX for part in path.split("/")
        ):
            return error_answer(
                400,
                "NameTooLong",
                f"A name in the path has more than {NAME_BYTES_MAX} bytes.",
                "No table or database can have such a name, because names become names of folders.",
            )
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > _DIGITS_MAX or int(length) > self._bytes_max:
            return _too_large(self._bytes_max)
        encoding = headers.get(b"content-encoding")
        if encoding is not None and encoding.lower() not in (b"", b"identity"):
            shown = encoding.decode("latin-1")
            message = f"The body has the content-encoding {shown}, which is not supported."
            return error_answer(415, "Unsupported", message, "Send the body without an encoding.")
        return None

    def _counted(self, receive: Receive) -> Receive:
        """The body's parts, until there are too many bytes."""
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._bytes_max:
                raise TooLargeError(self._bytes_max)
            return message

        return counted

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an admitted request within its client's limits."""
        client = None if self._turnstile is None else _client_of(scope)
        if client is None or self._turnstile is None:
            await self._app(scope, receive, send)
            return
        is_stream = scope["type"] == "websocket"
        wait = self._turnstile.enter(client, is_stream=is_stream)
        if wait:
            await _too_many(wait)(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._turnstile.leave(client, is_stream=is_stream)

    async def _admit_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The same for a WebSocket, whose messages the server limits."""
        scope = {**scope, "root_path": self._root}
        connection = HTTPConnection(scope)
        path = scope["path"].removeprefix(self._root)
        answer = self._refusal(scope, path, dict(scope["headers"]))
        if answer is None:
            answer = await self._admit(scope, connection)
        if answer is not None:
            await answer(scope, receive, send)
            return
        sender = _StreamSender(self._principal_again, connection, scope[PRINCIPAL], receive)
        await self._let_in(scope, sender.receive, send)
        if sender.has_ended:
            await send({"type": "websocket.close", "code": UNAUTHORISED})

    async def _principal(self, connection: HTTPConnection) -> Principal | None:
        """The sender, who sees the audit log only as an administrator. Outside an endpoint,
        blocking work runs in threads of no class, so a slow issuer of tokens takes no thread from a
        class.
        """
        principal = await self._authoriser.principal(connection)
        return None if principal is None else principal.without(self._closed)

    async def _principal_again(self, connection: HTTPConnection) -> Principal | None:
        """The sender of a stream, inside its endpoint."""
        with Using(self._identity):
            return await self._principal(connection)

    async def _admit(self, scope: Scope, connection: HTTPConnection) -> Response | None:
        answer = await self._checked(scope, connection)
        if answer is not None and self._trail is not None:
            self._trail.refuse(refused_entry(scope, answer.status_code))
        return answer

    async def _checked(self, scope: Scope, connection: HTTPConnection) -> Response | None:
        token = bearer_token(connection) or ""
        host = (scope.get("client") or ("", 0))[0]
        wait = self._throttle.wait_seconds(host, token)
        if wait:
            return _too_many(wait, "This address has sent too many wrong tokens.")
        try:
            principal = await self._principal(connection)
        except Exception as error:  # of whoever knows the tokens
            if isinstance(error, SetupError) and not isinstance(error, StoreUnavailableError):
                return error_answer(503, type(error).__name__, error.message, error.hint)
            _log.error("A token could not be checked: %r", error)
            return error_answer(503, "TokenNotChecked", _NOT_CHECKED, "Try again.")
        if principal is None:
            if token:
                self._throttle.was_wrong(host, token)
            return self._authoriser.challenge(connection)
        self._throttle.was_right(host, token)
        scope[PRINCIPAL] = principal
        return None


@dataclass(frozen=True, slots=True)
class _Scoped:
    """An endpoint that only principals with the scope that a method needs may use."""

    app: ASGIApp
    needed: dict[str, Needed]
    load: Load
    threads: dict[str, Lanes]
    everywhere: frozenset[str] = frozenset()
    names_table: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = _WEBSOCKET if scope["type"] == "websocket" else scope["method"]
        method = "GET" if method == "HEAD" else method
        # A method without a scope does not exist here; the route itself answers that.
        if method not in self.needed:
            await self.app(scope, receive, send)
            return
        names = scope.get("path_params", {})
        table = f"{names['database']}.{names['table']}" if names.keys() >= _TABLE_PARTS else ""
        id = request_id(next((v for name, v in scope["headers"] if name == HEADER), None))
        token = CURRENT.set(RequestId(id, table))
        try:
            with Using(self.threads[method], table):
                answer = await self._refusal(scope, method)
                await (answer or self.app)(scope, receive, _named(send, id))
        finally:
            CURRENT.reset(token)

    async def _refusal(self, scope: Scope, method: str) -> Response | None:
        """The answer to a sender without the permission; None for a sender with it."""
        principal: Principal = scope[PRINCIPAL]
        needed = self.needed[method]
        may = principal.may_everywhere if method in self.everywhere else principal.may
        if not may(needed):
            return _forbidden(principal, needed, everywhere=method in self.everywhere)
        try:
            await self._check_path(scope, principal, needed)
        except PaimonMagicsError as error:
            return await on_error(HTTPConnection(scope), error)
        return None

    async def _check_path(self, scope: Scope, principal: Principal, needed: Needed) -> None:
        """Raise UnknownNameError or NotTheirsError unless the principal has the scope on the table
        or database that the path names."""
        if not self.names_table or principal.is_free:
            return
        names = scope["path_params"]
        if "table" in names:
            name = TableName(names["table"], names["database"])
            await run_in_threadpool(check_table, principal, needed, name, self.load)
        elif "database" in names and not principal.sees_database(names["database"]):
            raise UnknownNameError(f"There is no database `{names['database']}`.")


def _named(send: Send, id: str) -> Send:
    """Give an answer the header with its request's id."""

    async def sending(message: Message) -> None:
        if message["type"] in BEGINNINGS:
            headers = [*message.get("headers", ()), (HEADER, id.encode())]
            message = {**message, "headers": headers}
        await send(message)

    return sending


def _forbidden(principal: Principal, needed: Needed, *, everywhere: bool) -> Response:
    scope = principal.scope
    return error_answer(
        403,
        "Forbidden",
        (
            f"{principal.name} lacks permission for this request: it requires the scope "
            f"`{needed.value}`"
        )
        + (f", not `{scope.value}`." if scope and not principal.may(needed) else " on all tables."),
        f"Ask an administrator: GRANT {needed.value.upper()} ON "
        f"{'WAREHOUSE' if everywhere else 'what the statement names'} "
        f"TO {grantee_text(principal.name)}.",
    )


class TooLargeError(Exception):
    """A request's body is larger than `bytes_max`."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self.bytes_max = bytes_max


async def on_too_large(_: Request | None, error: Exception) -> Response:
    """Return the response to a request whose body was too large."""
    assert isinstance(error, TooLargeError)
    return _too_large(error.bytes_max)


def _client_of(scope: Scope) -> str | None:
    """The client whose limits count; None for this machine's own client without a name."""
    principal: Principal | None = scope.get(PRINCIPAL)
    if principal is not None and principal.name is not None:
        return principal.name
    host = (scope.get("client") or ("", 0))[0]
    return None if host in _LOOPBACK else f"at {host}"


def _too_many(
    wait_seconds: float,
    message: str = "This client sends more than the coordinator accepts from one client.",
) -> Response:
    answer = error_answer(
        429,
        "TooMany",
        message,
        "Send less at once. Retry the request after the time in Retry-After.",
    )
    answer.headers["retry-after"] = str(max(1, math.ceil(wait_seconds)))
    return answer


def _too_large(bytes_max: int) -> Response:
    return error_answer(
        413,
        "TooLarge",
        f"The request has more than {bytes_max:,} bytes.",
        "Send less at once, or raise the coordinator's limit: --request-bytes-max.",
    )


@dataclass(slots=True)
class _StreamSender:
    """The sender of a WebSocket's messages. A stream may outlive its token, so its sender is looked
    up again every few seconds. If the sender has changed, no further message is accepted; accepted
    messages are still answered.
    """

    ask: Callable[[HTTPConnection], Awaitable[Principal | None]]
    connection: HTTPConnection
    principal: Principal
    arriving: Receive
    has_ended: bool = False
    checked_at: float = field(default_factory=time.monotonic)

    async def receive(self) -> Message:
        """The next message; the end of the connection if its sender may not send any more."""
        message = await self.arriving()
        if message["type"] == "websocket.receive" and (
            self.has_ended or time.monotonic() - self.checked_at > _AGAIN_SECONDS
        ):
            self.has_ended = self.has_ended or not await self._is_the_same()
            self.checked_at = time.monotonic()
        if self.has_ended:
            return {"type": "websocket.disconnect", "code": UNAUTHORISED}
        return message

    async def _is_the_same(self) -> bool:
        try:
            return await self.ask(self.connection) == self.principal
        except Exception as error:  # of whoever knows the tokens
            _log.warning("The sender of a stream could not be checked: %r", error)
            return False


class LoginThrottle:
    """Throttles guesses of tokens, by address. For one thread, the server's. It allows `wrong_max`
    wrong tokens in a minute. `clock` is in seconds.

    Tokens that were right before from this address are still checked: one client of a network must
    not lock out the others.
    """

    def __init__(
        self, wrong_max: int = _WRONG_MAX, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._wrong_max = wrong_max
        self._clock = clock
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._right: OrderedDict[tuple[str, str], None] = OrderedDict()

    def wait_seconds(self, address: str, token: str) -> float:
        """How long tokens from an address are throttled; 0 if this token is checked."""
        wrong = self._wrong.get(address)
        if wrong is None or wrong[0] < self._wrong_max or (address, token) in self._right:
            return 0.0
        left = wrong[1] + _FORGIVEN_SECONDS - self._clock()
        if left <= 0:
            del self._wrong[address]
        return max(left, 0.0)

    def was_wrong(self, address: str, token: str) -> None:
        """Note a wrong token."""
        self._right.pop((address, token), None)  # it has ended
        count, since = self._wrong.pop(address, (0, self._clock()))
        if self._clock() - since > _FORGIVEN_SECONDS:
            count, since = 0, self._clock()
        self._wrong[address] = count + 1, since if count + 1 < self._wrong_max else self._clock()
        _cut(self._wrong)

    def was_right(self, address: str, token: str) -> None:
        """Note a token that was right."""
        if (address, token) not in self._right:
            self._right[address, token] = None
            _cut(self._right)


def _cut(cache: OrderedDict[Any, Any]) -> None:
    while len(cache) > _CACHED_MAX:
        cache.popitem(last=False)
