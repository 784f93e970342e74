"""Dead letters over HTTP: list, discard and retry the records that could not be loaded."""

from __future__ import annotations

import base64
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paimon_magics.coordinator.http.threads import run_in_threadpool
from paimon_magics.coordinator.inserts.admission.table_info import TableInfo
from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit
from paimon_magics.coordinator.inserts.log.records import Format, read_segment
from paimon_magics.coordinator.inserts.queue.values import Accepted
from paimon_magics.coordinator.routes.insert_entry import InsertEntry, validated_stream
from paimon_magics.coordinator.routes.insert_requests import (
    answer_of,
    named_by,
)
from paimon_magics.errors import (
    UnknownNameError,
)

__all__ = ["DeadLetterRoutes"]

_TABLE = "/v1/inserts/{database}/{table}"


class DeadLetterRoutes:
    """The endpoints of dead letters, and the actions of their buttons on the status page."""

    def __init__(self, group: GroupCommit, entry: InsertEntry) -> None:
        self._group = group
        self._entry = entry

    def routes(self) -> list[Route]:
        """The routes of dead letters."""
        return [
            Route(f"{_TABLE}/dead-letters", self.dead_letters, methods=["GET"]),
            Route(f"{_TABLE}/dead-letters/{{lsn}}", self.discard, methods=["DELETE"]),
            Route(f"{_TABLE}/dead-letters/{{lsn}}/retry", self.retry, methods=["POST"]),
        ]

    async def dead_letters(self, request: Request) -> Response:
        """The records of a table that could not be loaded."""
        table_info = await self._entry.table_info(request)
        letters = await run_in_threadpool(self._group.letters.list, table_info.identity)
        documents = []
        for letter in letters:
            (record,), _ = read_segment(letter.body, letter.lsn, None)
            is_json = record.format.is_json
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
        return await self.discard_letter(
            await self._entry.table_info(request), request.path_params["lsn"]
        )

    async def retry(self, request: Request) -> Response:
        """Insert a dead letter's rows anew; a repeated request inserts them only once."""
        return await self.retry_letter(
            await self._entry.table_info(request), request.path_params["lsn"]
        )

    async def table(self, database: str, table: str) -> TableInfo:
        """The present table of that name."""
        return await self._entry.load(database, table)

    async def discard_letter(self, table_info: TableInfo, number: int | str) -> Response:
        """Forget the dead letter of that number."""
        letter = await self._letter(table_info, number)
        await run_in_threadpool(self._group.letters.settle, table_info, letter["lsn"], "discarded")
        return JSONResponse({"status": "discarded"})

    async def retry_letter(self, table_info: TableInfo, number: int | str) -> Response:
        """Insert the rows of the dead letter of that number anew."""
        letter = await self._letter(table_info, number)
        # The schema was probably changed just now, to make the rows fit.
        names = table_info.name.database or "", table_info.name.table
        table_info = await run_in_threadpool(self._group.known_tables.load, *names)
        lsn = letter["lsn"]
        if letter["format"] is Format.ARROW:
            validated = await run_in_threadpool(validated_stream, table_info, letter["payload"])
        else:
            validated = table_info.validator.json(letter["payload"])
        named = named_by(f"dead-letter-{lsn}", None, None)
        answer = await self._entry.submit(table_info, validated, None, named, letter["user"])
        if isinstance(answer, Accepted):
            await run_in_threadpool(self._group.letters.settle, table_info, lsn, "retried")
        return answer_of(answer, named.label)

    async def _letter(self, table_info: TableInfo, number: int | str) -> dict[str, Any]:
        text = str(number)
        letters = await run_in_threadpool(self._group.letters.list, table_info.identity)
        for letter in letters:
            if str(letter.lsn) == text:
                (record,), _ = read_segment(letter.body, letter.lsn, None)
                return {
                    "lsn": letter.lsn,
                    "format": record.format,
                    "payload": record.payload,
                    "user": record.user,
                }
        raise UnknownNameError(
            f"`{table_info.name}` has no dead letter {text}.", hint="`%paimon queue` lists them."
        )
