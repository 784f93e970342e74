"""Small inserts over HTTP: insert, look at queues, flush, order statements, reopen tables.

Inserts of a few rows have a fast path, since routing would cost more than the insert. It does the
same as `InsertRoutes.insert`, for a JSON body and a table that was loaded within the last second
and accepts inserts now. All other requests go to the routes. It is behind the guard.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import Metric
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from paimon_magics.coordinator.http.answers import (
    AT_ONCE,
    JSONResponse,
    error_answer,
    json_body,
    on_error,
    on_unexpected,
)
from paimon_magics.coordinator.http.guard import (
    TooLargeError,
    on_too_large,
    principal_in,
    principal_of,
)
from paimon_magics.coordinator.http.limits import (
    REQUEST_BYTES_MAX,
    run_in_threadpool,
    run_steps,
    settled,
)
from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit
from paimon_magics.coordinator.inserts.engine.replies import TableQueue
from paimon_magics.coordinator.inserts.log.log import DiskReserve
from paimon_magics.coordinator.inserts.queue.values import Mode, Refused, backlog
from paimon_magics.coordinator.protocol.principals import Scope
from paimon_magics.coordinator.routes.dead_letters import DeadLetterRoutes
from paimon_magics.coordinator.routes.insert_entry import InsertEntry, InsertRequest, NoRoomError
from paimon_magics.coordinator.routes.insert_requests import (
    ARROW,
    Named,
    answer_json,
    answer_of,
    header_bytes,
    header_of,
    header_text,
    named_by,
    sender_of,
    table_of,
)
from paimon_magics.coordinator.routes.metrics import insert_facts, insert_metrics
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.health import Fact, Noted
from paimon_magics.errors import InvalidValueError, PaimonMagicsError, SetupError
from paimon_magics.statements.statement import TableName

_TABLE = "/v1/inserts/{database}/{table}"
_WAIT_MS = 60_000
_WAIT_MS_MAX = 600_000
_BUFFER_BYTES_MAX = 256 * 2**20


class InsertRoutes:
    """The endpoints of small inserts. `group` is the group commit that accepts them, `entry` its
    entry, for requests of at most `bytes_max` bytes; `letters` has the endpoints of dead letters,
    `dead` their number.
    """

    def __init__(
        self,
        group: GroupCommit,
        coordinator: Coordinator,
        disk: DiskReserve | None = None,
        dead: Noted[int] | None = None,
        bytes_max: int = REQUEST_BYTES_MAX,
    ) -> None:
        self.group = group
        self._now_ms = coordinator.runtime.clock.now_ms
        self.dead = dead
        self.entry = InsertEntry(group, coordinator, disk, bytes_max)
        self.letters = DeadLetterRoutes(group, self.entry)

    def routes(self) -> list[Route]:
        """All routes of small inserts, except streams."""
        return [
            Route(_TABLE, self.insert, methods=["POST"]),
            Route(_TABLE, self.look, methods=["GET"]),
            Route("/v1/inserts", self.look_at_all, methods=["GET"]),
            Route(f"{_TABLE}/buffer", self.buffer, methods=["GET"]),
            Route(f"{_TABLE}/flush", self.flush, methods=["POST"]),
            Route(f"{_TABLE}/reopen", self.reopen, methods=["POST"]),
            *self.letters.routes(),
        ]

    def metrics(self) -> Iterator[Metric]:
        """The metrics of small inserts."""
        dead_letters = 0 if self.dead is None else self.dead.value
        return insert_metrics(self.group, self._now_ms(), self.entry.refused, dead_letters)

    def facts(self) -> Iterator[Fact]:
        """The facts for the coordinator's health."""
        return insert_facts(self.group, self._now_ms())

    # ---- inserting ----

    async def insert(self, request: Request) -> Response:
        """Take one insert; the answer comes when its mode says so."""
        named = named_by(
            header_of(request, "idempotency-key"),
            header_of(request, "paimon-channel"),
            header_of(request, "paimon-offset"),
        )
        sent = await _sent(request, named)
        try:
            answer = await self.entry.insert(sent, request.receive)
        except NoRoomError as error:
            return error_answer(507, "NoRoom", error.message, error.hint)
        return answer_of(answer, named.label)

    # ---- looking ----

    async def look(self, request: Request) -> Response:
        """Show a table's queue."""
        table_info = await self.entry.table_info(table_of(request))
        table = await run_in_threadpool(self.group.queue_of, table_info)
        table = table or TableQueue(table_info.identity, table_info.name)
        letters = await run_in_threadpool(self.group.letters.list, table_info.identity)
        return JSONResponse(_queue_document(table, table_info.mode, len(letters)))

    async def look_at_all(self, request: Request) -> Response:
        """Show all queues."""
        letters = await run_in_threadpool(self.group.letters.list)
        dead = Counter(letter.table_id for letter in letters)
        tables = sorted(self.group.tables.values(), key=lambda table: table.is_open)
        latest = {str(table.name): table for table in tables}
        may = principal_of(request).may_on
        documents = [
            _queue_document(table, table.mode, dead[table.id])
            for table in sorted(self.group.tables.values(), key=lambda table: str(table.name))
            # The queue of a dropped table is shown while it has waiting inserts or dead letters.
            if (table.queue.batches or dead[table.id] or table is latest[str(table.name)])
            and may(Scope.READ, table.name.database or "", table.name.table)
        ]
        return JSONResponse({"tables": documents})

    async def flush(self, request: Request) -> Response:
        """Load waiting rows; the answer comes when they are visible, or after `wait_ms`."""
        database, table = (str(request.path_params[name]) for name in ("database", "table"))
        name = TableName(table, database)
        try:
            table_info = await run_in_threadpool(self.group.known_tables.load, database, table)
        except SetupError:  # the store fails: find the queue by name; its answer says what is wrong
            identity = self.group.backlog.identity_of(name)
            if identity is None:
                raise
        else:
            identity = table_info.identity
            if await run_in_threadpool(self.group.queue_of, table_info) is None:
                return JSONResponse({"lsn": 0, "snapshot_id": None})
        body = await json_body(request) if await request.body() else {}
        wait_ms = body.get("wait_ms", _WAIT_MS)
        if type(wait_ms) is not int or not 0 <= wait_ms <= _WAIT_MS_MAX:
            raise InvalidValueError(f"`wait_ms` must be between 0 and {_WAIT_MS_MAX}.")
        try:
            answer = await settled(self.group.flush(identity), wait_ms / 1000)
        except TimeoutError:
            error = self.group.tables[identity].queue.last_error
            return error_answer(
                504,
                "TooLate",
                f"Rows of `{name}` were not loaded within {wait_ms:,} ms"
                + (f": {error}" if error else "."),
                "They are durable, and stay in the log until they are loaded.",
            )
        return answer_of(answer)

    async def buffer(self, request: Request) -> Response:
        """Send the acknowledged records that are not visible yet, as segments of the log."""
        table_info = await self.entry.table_info(table_of(request))
        table = self.group.tables.get(table_info.identity)
        waiting = 0 if table is None else backlog(table.queue)[1]
        if waiting > _BUFFER_BYTES_MAX:
            raise InvalidValueError(
                f"{waiting:,} bytes of `{table_info.name}` wait to be loaded; at most "
                f"{_BUFFER_BYTES_MAX:,} can be read together with the table.",
                hint=f"Load them first: `%paimon flush {table_info.name}`.",
            )
        buffered = await run_steps(self.group.buffered(table_info))
        segments = [[first, base64.b64encode(body).decode()] for first, body in buffered.segments]
        keys = ("snapshot_id", "published", "acknowledged")
        return JSONResponse({key: getattr(buffered, key) for key in keys} | {"segments": segments})

    # ---- repair ----

    async def reopen(self, request: Request) -> Response:
        """Open a closed table again. With `accept_loss`, without the missing records; without all
        waiting rows if the table is closed for another reason, or they can't be loaded."""
        table_info = await self.entry.table_info(table_of(request))
        body = await json_body(request) if await request.body() else {}
        accept_loss = body.get("accept_loss", False) is True
        reopened = await run_in_threadpool(self.group.reopen, table_info, accept_loss=accept_loss)
        await settled(reopened, _WAIT_MS_MAX / 1000)
        return JSONResponse({"status": "open"})


async def _sent(request: Request, named: Named) -> InsertRequest:
    body = await request.body()
    content_type = request.headers.get("content-type", "").partition(";")[0]
    is_stream = content_type.strip().lower() == ARROW
    principal = principal_of(request)
    return InsertRequest(
        table_of(request),
        body,
        is_stream,
        request.headers.get("group_commit"),
        named.of(body, is_stream=is_stream),
        principal,
        sender_of(principal, header_bytes(request, "paimon-user")),
        request.headers.get("paimon-table"),
    )


def _queue_document(table: TableQueue, mode: Mode | None, dead_letters: int) -> dict[str, Any]:
    queue = table.queue
    rows, size_bytes = backlog(queue)
    batches = queue.batches
    return {
        "table": {"database": table.name.database, "table": table.name.table},
        **{key: getattr(queue, key) for key in ("acknowledged", "published", "snapshot_id")},
        "waiting_rows": rows,
        "waiting_bytes": size_bytes,
        "oldest_ms": min((batch.since_ms for batch in batches), default=None),
        "loading": queue.flushing is not None,
        "mode": None if mode is None else mode.value,
        "held_by": len(queue.holds),
        "dead_letters": dead_letters,
        "closed": queue.closed or None,
        "last_error": queue.last_error or None,
    }


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

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
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
            or not principal.may_on(Scope.INSERT, parts[3], parts[4])
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
