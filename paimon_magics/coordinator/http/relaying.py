"""Relays requests from a standby to the coordinator that owns the warehouse.

A request is passed on as it came, with its token, and the owner's answer as it comes; streams of
small inserts likewise. Only the owner checks permissions. `PASSED_ON` marks relayed requests: two
coordinators that take each other for the owner must not pass a request to and fro.

If the owner dies while it has a request, nobody knows whether the request was carried out, and the
answer says so. A request that certainly did not arrive may be passed to the next owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Coroutine
from typing import Any, Protocol

import httpx
import websockets
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from paimon_magics.coordinator.http.answers import error_answer
from paimon_magics.coordinator.http.forwarding import address_in, is_loopback
from paimon_magics.coordinator.http.limits import run_in_threadpool
from paimon_magics.coordinator.protocol.errors import BrokeOffError
from paimon_magics.errors import PaimonMagicsError

_log = logging.getLogger(__name__)
PASSED_ON = "paimon-coordinator-passed-on"
"""The header of requests that a coordinator has passed on: by what the owner knows that one, see
`Introductions`."""

_PASSED_ON = PASSED_ON.encode()
_MARK = "1"  # of a standby that the owner does not know
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
# The names of headers in ASGI are in lower case.
_CHANNEL = {b"paimon-channel", b"paimon-offset"}
# Of one connection only, in HTTP.
_HOP_BY_HOP = frozenset(
    b"connection host keep-alive proxy-connection te trailer transfer-encoding upgrade".split()
)
_SOCKETS_OWN = b"sec-websocket-"
_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 180.0  # longer than clients wait
_CONNECTIONS_MAX = 1_000
_RESTARTING = 1012  # the code by which streams end


class Relay:
    """Passes requests on to one owner. For one event loop.

    `address` is the owner's URL with its path prefix, `root` the path prefix here. `tls` has the
    certificates to trust. `mark` is sent in `PASSED_ON`.
    """

    def __init__(self, address: str, root: str, tls: ssl.SSLContext, mark: str = _MARK) -> None:
        self.mark = mark
        self.address = address
        self._root = root
        self._tls = tls
        self._base = httpx.URL(address)
        self._over = asyncio.Event()
        limits = httpx.Limits(max_connections=_CONNECTIONS_MAX, max_keepalive_connections=100)
        self._http = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(verify=tls, limits=limits, trust_env=False),
            trust_env=False,
        )

    async def close(self) -> None:
        """End: this coordinator is no longer the owner. Its open requests are answered as broken
        off.
        """
        self._over.set()
        await self._http.aclose()

    async def get(self, path: str, scope: Scope) -> httpx.Response | None:
        """Ask the owner for a path with a request's token. None if it does not answer."""
        timeout = dict.fromkeys(("connect", "pool", "read", "write"), _CONNECT_SECONDS)
        request = httpx.Request(
            "GET",
            self.address + path,
            headers=_headers(scope, self.mark),
            extensions={"timeout": timeout},
        )
        try:
            return await self._http.send(request)
        except Exception as error:  # after any error, nothing was answered
            _log.info("The coordinator at %s does not answer: %r", self.address, error)
            return None

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Pass a request on, and its answer back. Return False when it certainly did not arrive;
        then it was neither read nor answered.
        """
        request = self._request(scope, receive)
        async with contextlib.AsyncExitStack() as resources:
            try:
                response = await self._until_over(self._http.send(request, stream=True))
                resources.push_async_callback(response.aclose)
                parts = response.aiter_raw()
                # Before anything is answered: the death of the owner can still be reported.
                first = await anext(parts, b"")
            except _NOT_SENT:
                return False
            except ClientDisconnect:
                return True
            except Exception as error:  # after any error, it may have arrived
                await _broke_off(scope, self.address, error)(scope, receive, send)
                return True
            try:
                await _answer(response, first, parts, send)
            except Exception as error:
                # The connection ends without the rest, which shows the client the failure.
                _log.warning("The coordinator at %s broke off its answer: %s", self.address, error)
        return True

    async def pass_on_socket(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """The same for a stream, whose messages are passed both ways until one side ends it."""
        address = self.address.replace("http", "ws", 1) + self._target(scope)
        named = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in _headers(scope, self.mark)
            if not name.startswith(_SOCKETS_OWN)
        ]
        try:
            inner = await connect(
                address,
                additional_headers=named,
                subprotocols=list(map(Subprotocol, scope.get("subprotocols", []))) or None,
                ssl=self._tls if address.startswith("wss") else None,
                open_timeout=_CONNECT_SECONDS,
                compression=None,
                max_size=None,
                proxy=None,
                user_agent_header=None,
            )
        except websockets.InvalidStatus as error:
            await _refused(error.response)(scope, receive, send)
            return True
        except Exception as error:  # after any error, nothing was sent
            _log.info("The coordinator at %s accepts no stream: %r", self.address, error)
            return False
        async with inner:
            await receive()  # websocket.connect
            await send({"type": "websocket.accept", "subprotocol": inner.subprotocol})
            tasks = [
                asyncio.ensure_future(_to_owner(inner, receive)),
                asyncio.ensure_future(_to_client(inner, send)),
                asyncio.ensure_future(self._over.wait()),
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            code = inner.close_code
            if code is None or code == websockets.CloseCode.ABNORMAL_CLOSURE:
                code = _RESTARTING
            with contextlib.suppress(Exception):  # the client may have ended it
                await send({"type": "websocket.close", "code": code})
        return True

    def _request(self, scope: Scope, receive: Receive) -> httpx.Request:
        names = dict(scope["headers"])
        has_body = names.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in names
        seconds = {"connect": _CONNECT_SECONDS, "pool": _CONNECT_SECONDS}
        timeout = {**seconds, "read": _ANSWER_SECONDS, "write": _ANSWER_SECONDS}
        path = self._base.raw_path.split(b"?")[0].rstrip(b"/")
        return httpx.Request(
            scope["method"],
            self._base,
            headers=_headers(scope, self.mark),
            content=_body(receive) if has_body else None,
            # The unchanged target: a URL object would be written differently.
            extensions={"timeout": timeout, "target": path + self._target(scope).encode()},
        )

    def _target(self, scope: Scope) -> str:
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        query: bytes = scope["query_string"]
        target = path.decode("latin-1").removeprefix(self._root)
        return target + (f"?{query.decode('latin-1')}" if query else "")

    async def _until_over(self, request: Coroutine[Any, Any, httpx.Response]) -> httpx.Response:
        """The answer. Raises _OverError when the owner is no longer the owner."""
        answer = asyncio.ensure_future(request)
        over = asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait({answer, over}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise _OverError("it no longer owns the warehouse")
            return answer.result()
        finally:
            over.cancel()
            if not answer.done():
                answer.cancel()


class _OverError(Exception):
    """Another coordinator succeeded the owner that has a request."""


async def _answer(
    response: httpx.Response, first: bytes, parts: AsyncIterator[bytes], send: Send
) -> None:
    """Answer as the owner did; `first` are the first bytes of its body, then come `parts`."""
    headers = [
        (name.lower(), value)
        for name, value in response.headers.raw
        if name.lower() not in _HOP_BY_HOP
    ]
    status = response.status_code
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": first, "more_body": True})
    async for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _refused(answer: websockets.Response) -> Response:
    """The owner's answer to a stream that it refuses."""
    response = Response(bytes(answer.body), status_code=answer.status_code)
    response.raw_headers += [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in answer.headers.raw_items()
        if name.lower().encode("latin-1") not in {*_HOP_BY_HOP, b"content-length"}
    ]
    return response


async def _to_owner(inner: ClientConnection, receive: Receive) -> None:
    while True:
        message: Message = await receive()
        if message["type"] == "websocket.disconnect":
            await inner.close(message.get("code") or 1000)
            return
        text = message.get("text")
        await inner.send(message["bytes"] if text is None else text)


async def _to_client(inner: ClientConnection, send: Send) -> None:
    async for part in inner:
        kind = "text" if isinstance(part, str) else "bytes"
        await send({"type": "websocket.send", kind: part})


def _headers(scope: Scope, mark: str) -> list[tuple[bytes, bytes]]:
    """The headers of a relayed request: its own, who sent it, and the mark."""
    passed = [(name, value) for name, value in scope["headers"] if name not in _HOP_BY_HOP]
    hops = [value for name, value in passed if name == b"x-forwarded-for"]
    client = (scope.get("client") or ("", 0))[0]
    hops += [client.encode()] if client else []
    scheme = b"https" if scope["scheme"] in ("https", "wss") else b"http"
    own = {
        b"x-forwarded-for": b", ".join(hops),
        b"x-forwarded-proto": scheme,
        _PASSED_ON: mark.encode(),
    }
    return [*((name, value) for name, value in passed if name not in own), *own.items()]


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


def _broke_off(scope: Scope, address: str, error: Exception) -> Response:
    """The answer to a request that may have been carried out. Engines repeat a request that is
    answered 503, so only requests that may be sent twice get 503.
    """
    may_repeat = scope["method"] in ("GET", "HEAD") or scope["path"].endswith("/commit")
    names = {name for name, _ in scope["headers"]}
    may_repeat = may_repeat or b"idempotency-key" in names or names >= _CHANNEL
    return error_answer(
        503 if may_repeat else 502,
        BrokeOffError.__name__,
        f"The coordinator at {address} received the request but has not answered: {error}.",
        "The request may have been carried out. Check its effect before you send it again.",
    )


# The sender of a request that a standby has passed on, as the owner sees it.
#
# Limits of wrong tokens and of requests are counted by address. Counted by the standby's, one
# client would use them up for all who ask there.


class KnownStandbys(Protocol):
    """The standbys by their keys."""

    @property
    def is_due(self) -> bool:
        """Whether `look` may see more."""

    def has(self, key: str) -> bool:
        """Whether a standby with a key is known."""

    def look(self) -> None:
        """Read which there are. May block."""


class FromStandbys:
    """An ASGI application around the owner's, which gets the address of the client that a known
    standby names. From anybody else, such a name counts for nothing."""

    def __init__(self, app: ASGIApp, standbys: KnownStandbys) -> None:
        self._app = app
        self._standbys = standbys

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request. A coroutine of its own would cost each insert 2 % of its time."""
        for name, _ in scope.get("headers", ()):
            if name == _PASSED_ON:
                return self._relayed(scope, receive, send)
        return self._app(scope, receive, send)

    async def _relayed(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = await self._client(scope)
        if client is not None:
            scope = {**scope, "client": (client, 0)}
        await self._app(scope, receive, send)

    async def _client(self, scope: Scope) -> str | None:
        """The client's address, if a standby names another than the connection shows."""
        headers = dict(scope["headers"])
        key = headers.get(_PASSED_ON, b"").decode("latin-1")
        host, port = scope.get("client") or ("", 0)
        if not key or not port:  # without a port, a proxy has named the client
            return None
        last = headers.get(b"x-forwarded-for", b"").rpartition(b",")[2].decode("latin-1").strip()
        client = address_in(last)
        # The standby's machine is not this one: what is local there has no rights here.
        if client is None or (is_loopback(client) and not is_loopback(host)):
            return None
        if not self._standbys.has(key) and self._standbys.is_due:
            try:
                await run_in_threadpool(self._standbys.look)
            except PaimonMagicsError as error:
                _log.info("%s", error)
        return client if self._standbys.has(key) else None
