"""The guard of every endpoint: who sends a request, whether they may, and how large it may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paimon_magics.coordinator.http.answers import error_answer
from paimon_magics.coordinator.http.authorisation import (
    PUBLIC,
    SCOPES,
    STREAMS,
    Authoriser,
    Principal,
)
from paimon_magics.coordinator.http.authorisation import Scope as Needed
from paimon_magics.coordinator.http.limits import ClientLimits, Turnstile
from paimon_magics.errors import SetupError

__all__ = ["Guard", "TooLargeError", "guarded", "on_too_large", "principal_in", "principal_of"]

_PRINCIPAL = "paimon_magics.principal"
_WEBSOCKET = "WEBSOCKET"
_UNAUTHORISED = 4401  # codes of refused WebSockets
_FORBIDDEN = 4403
_BUSY = 4429
_LOOPBACK = ("127.0.0.1", "::1")


def guarded(routes: Sequence[BaseRoute]) -> list[BaseRoute]:
    """Put each route behind its scope in `SCOPES` or `STREAMS`, and return the routes.

    Raises KeyError for a route without a scope: it would be open to everybody.
    """
    for route in routes:
        if isinstance(route, WebSocketRoute):
            route.app = _Scoped(route.app, {_WEBSOCKET: STREAMS[route.path]})
        elif isinstance(route, Route) and route.path not in PUBLIC:
            methods = (route.methods or set()) - {"HEAD"}
            needed = {method: SCOPES[f"{method} {route.path}"] for method in methods}
            route.app = _Scoped(route.app, needed)
    return list(routes)


def principal_of(request: Request) -> Principal:
    """Return the sender of a request that has passed the guard."""
    return principal_in(request.scope)


def principal_in(scope: Scope) -> Principal:
    """The same, from the request's ASGI scope."""
    principal = scope[_PRINCIPAL]
    assert isinstance(principal, Principal)
    return principal


class Guard:
    """Lets requests of known principals through, and counts the bytes of bodies as they arrive.

    `root` is the path below which everything is served, such as "/services/paimon-coordinator".
    `limits` are those of each client.
    """

    def __init__(
        self,
        app: ASGIApp,
        authoriser: Authoriser,
        request_bytes_max: int,
        root: str = "",
        limits: ClientLimits | None = None,
    ) -> None:
        self._app = app
        self._authoriser = authoriser
        self._bytes_max = request_bytes_max
        self._root = root
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
        if not scope["path"].startswith(self._root) or not path.startswith("/"):
            await error_answer(404, "NotFound", f"There is no {scope['path']} here.", "")(
                scope, receive, send
            )
            return
        scope = {**scope, "root_path": self._root}
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._bytes_max:
            await _too_large(self._bytes_max)(scope, receive, send)
            return
        if path not in self._public:
            connection = HTTPConnection(scope)
            answer = await self._admit(scope, connection)
            if answer is not None:
                await answer(scope, receive, send)
                return
        await self._let_in(scope, self._counted(receive), send)

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
        if wait and is_stream:
            await send({"type": "websocket.close", "code": _BUSY})
            return
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
        is_below = scope["path"].startswith(self._root)
        if not is_below or await self._admit(scope, HTTPConnection(scope)) is not None:
            await send({"type": "websocket.close", "code": _UNAUTHORISED})
            return
        await self._let_in(scope, receive, send)

    async def _admit(self, scope: Scope, connection: HTTPConnection) -> Response | None:
        try:
            principal = await self._authoriser.principal(connection)
        except SetupError as error:
            return error_answer(503, type(error).__name__, error.message, error.hint)
        if principal is None:
            return self._authoriser.challenge(connection)
        scope[_PRINCIPAL] = principal
        return None


@dataclass(frozen=True, slots=True)
class _Scoped:
    """An endpoint that only principals with the scope that a method needs may use."""

    app: ASGIApp
    needed: dict[str, Needed]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            if scope[_PRINCIPAL].may(self.needed[_WEBSOCKET]):
                await self.app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": _FORBIDDEN})
            return
        needed = self.needed.get("GET" if scope["method"] == "HEAD" else scope["method"])
        principal: Principal = scope[_PRINCIPAL]
        # A method without a scope does not exist here, which the route answers itself.
        if needed is None or principal.may(needed):
            await self.app(scope, receive, send)
            return
        answer = error_answer(
            403,
            "Forbidden",
            f"{principal.name} may not do that: it takes the scope `{needed.value}`"
            + (f", not `{principal.scope.value}`." if principal.scope else "."),
            f"Ask an administrator for a role with the scope `{needed.value}` of the coordinator.",
        )
        await answer(scope, receive, send)


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
    """The client whose limits count; None for this machine's own without a name."""
    principal: Principal | None = scope.get(_PRINCIPAL)
    if principal is not None and principal.name is not None:
        return principal.name
    host = (scope.get("client") or ("", 0))[0]
    return None if host in _LOOPBACK else f"at {host}"


def _too_many(wait_seconds: float) -> Response:
    answer = error_answer(
        429,
        "TooMany",
        "This client sends more than the coordinator takes from one.",
        "Send less at once. What was refused may be sent again after the time in Retry-After.",
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
