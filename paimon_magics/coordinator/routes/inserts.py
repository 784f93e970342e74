"""Small inserts over HTTP: insert, look, wait until it is visible, and see to what went wrong."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paimon_magics.coordinator.http.answers import error_answer
from paimon_magics.coordinator.http.bodies import json_body
from paimon_magics.coordinator.inserts.admission.items import Insert
from paimon_magics.coordinator.inserts.admission.table_info import TableInfo, mode_of
from paimon_magics.coordinator.inserts.admission.validator import ValidatedInsert
from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit
from paimon_magics.coordinator.inserts.engine.table_queues import TableQueue
from paimon_magics.coordinator.inserts.loading.rows import conformed_stream
from paimon_magics.coordinator.inserts.log.disk_reserve import Room
from paimon_magics.coordinator.inserts.log.records import Format, read_segment
from paimon_magics.coordinator.inserts.queue.values import Accepted, Answer, Mode, backlog
from paimon_magics.coordinator.protocol.errors import RESUME_HINT, PausedError
from paimon_magics.coordinator.routes.insert_requests import (
    ARROW,
    Named,
    answer_of,
    digest_of,
    header_of,
    named_by,
    named_table,
)
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.errors import (
    CommitConflictError,
    InvalidValueError,
    PaimonMagicsError,
    SetupError,
    StatementError,
    UnknownNameError,
)
from paimon_magics.statements.statement import TableName

__all__ = ["InsertRoutes", "queue_document"]

_TABLE = "/v1/inserts/{database}/{table}"
_WAIT_MS = 60_000
_WAIT_MS_MAX = 600_000
_BUFFER_BYTES_MAX = 256 * 2**20


class NoRoomError(SetupError):
    """The disk of the log is almost full."""


class InsertRoutes:
    """The endpoints of small inserts."""

    def __init__(self, group: GroupCommit, coordinator: Coordinator, room: Room) -> None:
        self._group = group
        self._coordinator = coordinator
        self._room = room

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            Route(_TABLE, self.insert, methods=["POST"]),
            Route(_TABLE, self.look, methods=["GET"]),
            Route("/v1/inserts", self.look_at_all, methods=["GET"]),
            Route(f"{_TABLE}/buffer", self.buffer, methods=["GET"]),
            Route(f"{_TABLE}/flush", self.flush, methods=["POST"]),
            Route(f"{_TABLE}/changes", self.begin_change, methods=["POST"]),
            Route(f"{_TABLE}/changes/{{id}}", self.end_change, methods=["DELETE"]),
            Route(f"{_TABLE}/reopen", self.reopen, methods=["POST"]),
            Route(f"{_TABLE}/dead-letters", self.dead_letters, methods=["GET"]),
            Route(f"{_TABLE}/dead-letters/{{lsn}}", self.discard, methods=["DELETE"]),
            Route(f"{_TABLE}/dead-letters/{{lsn}}/retry", self.retry, methods=["POST"]),
        ]

    # ---- inserting ----

    async def insert(self, request: Request) -> Response:
        """One insert; answered as its mode says."""
        facts = await self.facts(request)
        named = named_by(
            header_of(request, "idempotency-key"),
            header_of(request, "paimon-channel"),
            request.headers.get("paimon-offset"),
        )
        problem = self.problem(facts)
        if isinstance(problem, NoRoomError):
            return error_answer(507, "NoRoom", problem.message, problem.hint)
        if problem is not None:
            raise problem
        body = await request.body()
        admitted = await self._admitted(facts, body, request.headers.get("content-type", ""))
        answer = await self.submit(facts, admitted, request.headers.get("group_commit"), named)
        return answer_of(answer, named.label)

    def known(self, database: str, table: str) -> TableInfo | None:
        """A table, if it was looked at just now."""
        return self._group.known_tables.fresh(database, table)

    def fresh(self, request: HTTPConnection) -> TableInfo | None:
        """The table that a request names, if it was looked at just now."""
        names = request.path_params
        return self._group.known_tables.fresh(str(names["database"]), str(names["table"]))

    async def facts_of(self, database: str, table: str) -> TableInfo:
        """The table of that name, as it is."""
        return await run_in_threadpool(self._group.known_tables.load, database, table)

    async def facts(self, request: HTTPConnection) -> TableInfo:
        """The table that a request names."""
        names = request.path_params
        database, table = str(names["database"]), str(names["table"])
        facts = self._group.known_tables.fresh(database, table)
        # A client that has just changed the table, or made it anew, says so.
        seen = request.headers.get("paimon-table")
        if facts is None or (seen is not None and seen != facts.version):
            facts = await run_in_threadpool(self._group.known_tables.load, database, table)
        return facts

    def problem(self, facts: TableInfo) -> PaimonMagicsError | None:
        """Why nothing is taken now: the coordinator is paused, the table stopped, the disk full."""
        state = self._coordinator.state
        if state.pause is not None:
            return PausedError(state.pause)
        stopped = state.stopped.get(facts.folder)
        if stopped is not None:
            return CommitConflictError(stopped.reason, hint=RESUME_HINT)
        if not self._room.is_left():
            return NoRoomError(
                f"The disk of the log {self._group.log_name} is almost full.",
                hint="Make room there, then send it again.",
            )
        return None

    def send(self, insert: Insert) -> None:
        """Hand an insert over; its answer comes in its future."""
        self._group.submit(insert)

    async def submit(
        self, facts: TableInfo, admitted: ValidatedInsert, mode: str | None, named: Named
    ) -> Answer:
        """Hand an insert over, and wait for its answer."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._group.submit(
            Insert(
                facts,
                admitted,
                mode_of(mode, facts.mode),
                future,
                named.key,
                named.offset,
                digest_of(admitted) if named.key else b"",
            )
        )
        return await future

    async def _admitted(self, facts: TableInfo, body: bytes, content_type: str) -> ValidatedInsert:
        if content_type.partition(";")[0].strip().lower() == ARROW:
            return await run_in_threadpool(admitted_stream, facts, body)
        return facts.validator.json(body)

    # ---- looking ----

    async def look(self, request: Request) -> Response:
        """A table's queue."""
        facts = await self.facts(request)
        table = await run_in_threadpool(self._group.queue_of, facts)
        if table is None:
            table = TableQueue.empty(facts.location, facts.name)
        letters = await run_in_threadpool(self._group.dead_letters, facts.location)
        return JSONResponse(queue_document(table, facts.mode, len(letters)))

    async def look_at_all(self, _: Request) -> Response:
        """All queues."""
        letters = await run_in_threadpool(self._group.dead_letters)
        dead = Counter(letter.location for letter in letters)
        latest = {str(one.name): one for one in sorted(self._group.tables.values(), key=_made_ms)}
        # One that was dropped is shown as long as somebody has to look at it.
        tables = sorted(
            (
                one
                for one in self._group.tables.values()
                if one.queue.batches or dead[one.location] or one is latest[str(one.name)]
            ),
            key=lambda one: str(one.name),
        )
        return JSONResponse(
            {"tables": [queue_document(one, one.mode, dead[one.location]) for one in tables]}
        )

    async def flush(self, request: Request) -> Response:
        """Load what waits; answered when it is visible."""
        database, table = (str(request.path_params[name]) for name in ("database", "table"))
        name = TableName(table, database)
        try:
            facts = await run_in_threadpool(self._group.known_tables.load, database, table)
        except SetupError:  # of the store: the queue is told by name, and tells what is wrong
            known = self._group.location_of(name)
            if known is None:
                raise
            location = known
        else:
            location = facts.location
            if await run_in_threadpool(self._group.queue_of, facts) is None:
                return JSONResponse({"lsn": 0, "snapshot_id": None})
        body = await json_body(request) if await request.body() else {}
        wait_ms = body.get("wait_ms", _WAIT_MS)
        if type(wait_ms) is not int or not 0 <= wait_ms <= _WAIT_MS_MAX:
            raise InvalidValueError(f"`wait_ms` must be between 0 and {_WAIT_MS_MAX}.")
        asked = asyncio.wrap_future(self._group.flush(location))
        try:
            answer = await asyncio.wait_for(asyncio.shield(asked), wait_ms / 1000)
        except TimeoutError:
            error = self._group.tables[location].queue.last_error
            return error_answer(
                504,
                "TooLate",
                f"Rows of `{name}` were not loaded within {wait_ms:,} ms"
                + (f": {error}" if error else "."),
                "They are durable, and stay in the log until they are loaded.",
            )
        return answer_of(answer)

    async def buffer(self, request: Request) -> Response:
        """What is acknowledged and not visible yet, as it is in the log."""
        facts = await self.facts(request)
        table = self._group.tables.get(facts.location)
        waiting = 0 if table is None else backlog(table.queue)[1]
        if waiting > _BUFFER_BYTES_MAX:
            raise InvalidValueError(
                f"{waiting:,} bytes of `{facts.name}` wait, which is more than is read together "
                "with the table.",
                hint=f"Load them first: `%paimon flush {facts.name}`.",
            )
        found = await run_in_threadpool(self._group.buffered, facts)
        return JSONResponse(
            {
                "snapshot_id": found.snapshot_id,
                "published": found.published,
                "acknowledged": found.acknowledged,
                "segments": [
                    [first, base64.b64encode(body).decode()] for first, body in found.segments
                ],
            }
        )

    # ---- statements ----

    async def begin_change(self, request: Request) -> Response:
        """A statement of a session is going to change the table, or to take it away."""
        facts = await self.facts(request)
        body = await json_body(request) if await request.body() else {}
        takes_away = body.get("takes_away", False) is True
        to = body.get("renamed_to")
        renamed_to = None if to is None else named_table(to)
        id = await run_in_threadpool(
            lambda: self._group.begin_change(facts, takes_away=takes_away, renamed_to=renamed_to)
        )
        return JSONResponse({"id": id})

    async def end_change(self, request: Request) -> Response:
        """The statement has ended."""
        done = request.query_params.get("done") == "true"
        id = request.path_params["id"]
        kept = await run_in_threadpool(lambda: self._group.end_change(id, done=done))
        return JSONResponse({"kept": kept})

    # ---- what went wrong ----

    async def reopen(self, request: Request) -> Response:
        """Let a closed table go on, with `accept_loss` without what is missing."""
        facts = await self.facts(request)
        body = await json_body(request) if await request.body() else {}
        accept_loss = body.get("accept_loss", False) is True
        await run_in_threadpool(self._group.reopen, facts, accept_loss=accept_loss)
        return JSONResponse({"status": "open"})

    async def dead_letters(self, request: Request) -> Response:
        """The records of a table that could not be loaded."""
        facts = await self.facts(request)
        letters = await run_in_threadpool(self._group.dead_letters, facts.location)
        documents = []
        for letter in letters:
            (record,), _ = read_segment(letter.body, letter.lsn, None)
            is_json = record.format is Format.JSON
            documents.append(
                {
                    "lsn": letter.lsn,
                    "why": letter.why,
                    "at_ms": letter.at_ms,
                    "rows": record.rows,
                    "schema_id": record.schema_id,
                    "request": record.payload.decode() if is_json else None,
                    "arrow": None if is_json else base64.b64encode(record.payload).decode(),
                }
            )
        return JSONResponse({"dead_letters": documents})

    async def discard(self, request: Request) -> Response:
        """Forget a dead letter."""
        return await self.discard_letter(await self.facts(request), request.path_params["lsn"])

    async def retry(self, request: Request) -> Response:
        """Insert a dead letter's rows anew; only once, however often it is asked."""
        return await self.retry_letter(await self.facts(request), request.path_params["lsn"])

    async def discard_letter(self, facts: TableInfo, number: int | str) -> Response:
        """Forget the dead letter of that number."""
        letter = await self._letter(facts, number)
        await run_in_threadpool(self._group.settle_dead_letter, facts, letter["lsn"], "discarded")
        return JSONResponse({"status": "discarded"})

    async def retry_letter(self, facts: TableInfo, number: int | str) -> Response:
        """Insert the rows of the dead letter of that number anew."""
        letter = await self._letter(facts, number)
        # Somebody has probably just changed the schema for it.
        names = facts.name.database or "", facts.name.table
        facts = await run_in_threadpool(self._group.known_tables.load, *names)
        lsn = letter["lsn"]
        if letter["format"] is Format.ARROW:
            admitted = await run_in_threadpool(admitted_stream, facts, letter["payload"])
        else:
            admitted = facts.validator.json(letter["payload"])
        named = named_by(f"dead-letter-{lsn}", None, None)
        answer = await self.submit(facts, admitted, None, named)
        if isinstance(answer, Accepted):
            await run_in_threadpool(self._group.settle_dead_letter, facts, lsn, "retried")
        return answer_of(answer, named.label)

    async def _letter(self, facts: TableInfo, number: int | str) -> dict[str, Any]:
        text = str(number)
        letters = await run_in_threadpool(self._group.dead_letters, facts.location)
        for letter in letters:
            if str(letter.lsn) == text:
                (record,), _ = read_segment(letter.body, letter.lsn, None)
                return {"lsn": letter.lsn, "format": record.format, "payload": record.payload}
        raise UnknownNameError(
            f"`{facts.name}` has no dead letter {text}.", hint="`%paimon queue` lists them."
        )


def admitted_stream(facts: TableInfo, body: bytes) -> ValidatedInsert:
    """An Arrow stream that fits the table. Raises StatementErrors."""
    try:
        rows, payload = conformed_stream(facts.name, body, facts.schema)
    except StatementError:
        raise
    except ValueError as error:  # Arrow's own are such
        raise InvalidValueError(
            f"The rows do not fit `{facts.name}`: {error}.",
            hint="Nothing of the insert was taken. DESCRIBE shows the columns.",
        ) from error
    return ValidatedInsert(Format.ARROW, facts.schema.schema_id, rows, payload)


def _made_ms(table: TableQueue) -> int:
    return int(table.location.rpartition("@")[2])


def queue_document(table: TableQueue, mode: Mode | None, dead_letters: int) -> dict[str, Any]:
    """What everybody who may read is told of a table's queue."""
    queue = table.queue
    rows, size_bytes = backlog(queue)
    batches = queue.batches
    return {
        "table": {"database": table.name.database, "table": table.name.table},
        "acknowledged": queue.acknowledged,
        "published": queue.published,
        "snapshot_id": queue.snapshot_id,
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
