"""A fast path for inserts of a few rows, for which routing would cost more than the insert.

It does the same as `InsertRoutes.insert`, for a JSON body and a table that was loaded within the
last second and accepts inserts now. All other requests go to the routes. It is behind the guard.
"""

from __future__ import annotations

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from paimon_magics.coordinator.http.answers import AT_ONCE, on_error, on_unexpected
from paimon_magics.coordinator.http.guard import TooLargeError, on_too_large, principal_in
from paimon_magics.coordinator.inserts.queue.values import Refused
from paimon_magics.coordinator.protocol.principals import Scope as Needed
from paimon_magics.coordinator.routes.insert_entry import InsertEntry, InsertRequest
from paimon_magics.coordinator.routes.insert_requests import (
    ARROW,
    answer_json,
    answer_of,
    header_text,
    named_by,
    sender_of,
)
from paimon_magics.errors import PaimonMagicsError

_PARTS = ["", "v1", "inserts"]
_NAMES = (b"idempotency-key", b"paimon-channel", b"paimon-offset", b"group_commit")
_ARROW = ARROW.encode()
_JSON = (b"content-type", b"application/json")


class QuickInserts:
    """An ASGI application around the routes, below the path `root`."""

    def __init__(self, app: ASGIApp, entry: InsertEntry, root: str = "") -> None:
        self._app = app
        self._entry = entry
        self._root = root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        parts = scope["path"].removeprefix(self._root).split("/")
        if len(parts) != 5 or parts[:3] != _PARTS:
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        table_info = self._entry.known(parts[3], parts[4])
        principal = principal_in(scope)
        if (
            table_info is None
            or len(headers) < len(scope["headers"])  # a header comes twice
            or b"paimon-table" in headers
            or headers.get(b"content-type", b"").startswith(_ARROW)
            or not principal.may_on(Needed.INSERT, parts[3], parts[4])
            or self._entry.problem(table_info) is not None
        ):
            await self._app(scope, receive, send)
            return
        label = channel = offset = mode = None
        if not headers.keys().isdisjoint(_NAMES):
            label, channel, offset, mode = (
                None if value is None else header_text(value) for value in map(headers.get, _NAMES)
            )
        response: Response
        try:
            named = named_by(label, channel, offset)
            body = await _body(receive)
            user = sender_of(principal, headers.get(b"paimon-user"))
            name, named = table_info.name, named.of(body)
            sent = InsertRequest(name, body, False, mode, named, principal, user)
            answer = await self._entry.insert(sent, receive, table_info)
        except PaimonMagicsError as error:
            response = await on_error(None, error)
        except TooLargeError as error:
            response = await on_too_large(None, error)
        except ClientDisconnect:
            return
        except Exception as error:  # as everywhere, the client must check the outcome
            response = await on_unexpected(Request(scope), error)
        else:
            if not isinstance(answer, Refused):
                content = answer_json(answer, named.label)
                at_once = scope.get("extensions", {}).get(AT_ONCE)
                if at_once is None or not at_once(content):
                    await _send(send, content)
                return
            response = answer_of(answer)
        await response(scope, receive, send)


async def _body(receive: Receive) -> bytes:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        return body
    parts = [body]
    while message.get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
    return b"".join(parts)


async def _send(send: Send, content: bytes) -> None:
    headers = [_JSON, (b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})
