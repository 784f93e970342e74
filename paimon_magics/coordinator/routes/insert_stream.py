"""A stream of small inserts: one WebSocket, many inserts under way, answers in their order.

The client opens `/v1/inserts/DATABASE/TABLE/stream?channel=NAME`. Each message is one insert: a
JSON text as over HTTP, or (binary) an Arrow stream. The inserts of a channel have offsets: the
first message has `&offset=N`, each following message the next offset. Without a channel inserts
have no names, and a repeat is a new insert. Answers come in the order of the messages, several in
one text: `[{"offset": N, "lsn": …}, …]`. A refused insert ends the stream after its answer. In a
channel, no message behind it is accepted, since an offset is missing.

At most `WINDOW` messages may wait for their answers; no more are read until then.

If the process dies, messages without an answer may or may not be durable. If they are sent again
with their offsets, each is inserted once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from paimon_magics.coordinator.http.answers import failed_unexpectedly, on_error
from paimon_magics.coordinator.http.guard import principal_in
from paimon_magics.coordinator.inserts.queue.values import Accepted, Answer, Mode, Refused
from paimon_magics.coordinator.routes.insert_entry import InsertEntry, InsertRequest
from paimon_magics.coordinator.routes.insert_requests import (
    NAMELESS,
    answer_document,
    answer_of,
    header_bytes,
    named_by,
    offset_of,
    sender_of,
    table_of,
)
from paimon_magics.errors import PaimonMagicsError

WINDOW = 1_024
"""The number of messages of one stream that may be under way."""

_REFUSED = 4400  # the code that a stream is closed with after a refusal


class InsertStream:
    """The WebSocket endpoint of streams."""

    def __init__(self, entry: InsertEntry) -> None:
        self._entry = entry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one stream to its end. A stream into a table that takes no inserts is answered as
        an insert over HTTP.
        """
        socket = WebSocket(scope, receive, send)
        try:
            await self._entry.table_info(table_of(socket), socket.headers.get("paimon-table"))
        except PaimonMagicsError as error:
            answer = await on_error(socket, error)
            await answer(scope, receive, send)
            return
        await socket.accept()
        try:
            await _Stream(self._entry, socket, receive).serve()
        except PaimonMagicsError as error:
            with contextlib.suppress(RuntimeError):
                shown = _error(await on_error(socket, error))
                await socket.send_text(json.dumps([{"error": shown}]))
                await socket.close(_REFUSED)


class _Stream:
    def __init__(self, entry: InsertEntry, socket: WebSocket, receive: Receive) -> None:
        self._entry = entry
        self._socket = socket
        self._receive = receive  # skips Starlette's checks, which cost as much as the message
        self._table = table_of(socket)
        self._channel = socket.query_params.get("channel")
        self._offset = offset_of(socket.query_params.get("offset", "0"))
        self._mode = socket.query_params.get("group_commit")
        self._principal = principal_in(socket.scope)
        self._user = sender_of(self._principal, header_bytes(socket, "paimon-user"))
        self._under_way: deque[tuple[int, asyncio.Future[Answer]]] = deque()
        self._more = asyncio.Event()
        self._fewer = asyncio.Event()
        self._ended = False

    async def serve(self) -> None:
        answering = asyncio.ensure_future(self._answer())
        reading = asyncio.ensure_future(self._read())
        done, _ = await asyncio.wait({answering, reading}, return_when=asyncio.FIRST_COMPLETED)
        if answering not in done:
            # The client sends no more: answer its earlier messages.
            self._ended = True
            self._more.set()
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await answering
        reading.cancel()
        for _, future in self._under_way:  # nobody is answered any more
            future.add_done_callback(_ignore)
        for task in (reading, answering):
            with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                await task

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return
            # The window keeps a client from filling this process's memory. A semaphore would cost
            # each message a coroutine.
            while len(self._under_way) >= WINDOW:
                self._fewer.clear()
                await self._fewer.wait()
            offset, self._offset = self._offset, self._offset + 1
            future: asyncio.Future[Answer] = loop.create_future()
            self._under_way.append((offset, future))
            self._more.set()
            try:
                await self._entry.hand_over(self._request(message, offset), future)
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
                return

    def _request(self, message: Any, offset: int) -> InsertRequest:
        text, content = message.get("text"), message.get("bytes")
        body, is_stream = (content, True) if text is None else (text.encode(), False)
        named = NAMELESS
        if self._channel is not None:
            named = named_by(None, self._channel, offset).of(body, is_stream=is_stream)
        principal, user, mode = self._principal, self._user, self._mode
        return InsertRequest(self._table, body, is_stream, mode, named, principal, user)

    async def _answer(self) -> None:
        """Send the answers in order, all that are ready in one message."""
        while True:
            while not self._under_way:
                if self._ended:
                    return
                self._more.clear()
                await self._more.wait()
            offset, future = self._under_way[0]
            refused = False
            texts: list[str] = []
            with contextlib.suppress(Exception):  # `_refusal_text` reports it
                await future
            while self._under_way and self._under_way[0][1].done() and not refused:
                offset, future = self._under_way.popleft()
                if (error := future.exception()) is None:
                    text, refused = _answer_text(offset, future.result())
                else:
                    text, refused = await self._refusal_text(offset, error), True
                texts.append(text)
            self._fewer.set()
            await self._socket.send_text(f"[{', '.join(texts)}]")
            if refused:
                with contextlib.suppress(RuntimeError):
                    await self._socket.close(_REFUSED)
                return

    async def _refusal_text(self, offset: int, error: BaseException) -> str:
        """The answer to a message that failed, as JSON."""
        if isinstance(error, PaimonMagicsError):
            answer = await on_error(self._socket, error)
        else:
            answer = failed_unexpectedly("STREAM", self._socket.url.path, error)
        return json.dumps({"offset": offset, "error": _error(answer)})


def _ignore(future: asyncio.Future[Answer]) -> None:
    """Look at an outcome, so that asyncio does not log that nobody did."""
    if not future.cancelled():
        future.exception()


def _answer_text(offset: int, answer: Answer) -> tuple[str, bool]:
    """The answer to a message as JSON, and whether it ends the stream."""
    if isinstance(answer, Accepted) and answer.mode is Mode.ASYNC and not answer.fallback:
        # The fast path: most answers are these.
        end = ', "duplicate": true}' if answer.duplicate else "}"
        return f'{{"offset": {offset}, "lsn": {answer.lsn}{end}', False
    if isinstance(answer, Refused):
        return json.dumps({"offset": offset, "error": _error(answer_of(answer))}), True
    document = answer_document(answer)
    document.pop("label", None)
    return json.dumps({"offset": offset, **document}), False


def _error(answer: Response) -> dict[str, Any]:
    """The error of a message: what an insert over HTTP would be answered, with the status and the
    seconds of `Retry-After` beside its members."""
    document = json.loads(bytes(answer.body))
    shown = {"status": answer.status_code, **document["error"]}
    if document.get("address"):
        shown["address"] = document["address"]
    if "retry-after" in answer.headers:
        shown["retry_after"] = int(answer.headers["retry-after"])
    return shown
