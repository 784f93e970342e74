"""Dead letters over HTTP: list, discard and retry the records that could not be loaded."""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import html
import json
import secrets
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from paimon_magics.coordinator.http.limits import run_in_threadpool
from paimon_magics.coordinator.http.pages import Markup, notice
from paimon_magics.coordinator.inserts.admission.validator import TableInfo
from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit
from paimon_magics.coordinator.inserts.log.records import Format, read_segment
from paimon_magics.coordinator.inserts.queue.values import Accepted
from paimon_magics.coordinator.routes.insert_entry import InsertEntry, validated_stream
from paimon_magics.coordinator.routes.insert_requests import answer_of, named_by
from paimon_magics.errors import PaimonMagicsError, UnknownNameError

_TABLE = "/v1/inserts/{database}/{table}"

LETTER_COLUMNS = ("table", "#record", "#rows", "why", "@since", "")

_PATH = "/dead-letters"
_GOOD_SECONDS = 900
_SHOWN_MAX = 200


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


# Dead letters on the status page, each with buttons to retry and to discard it.
#
# A browser's cookie allows only to read the page. So each form carries a proof, made for the letter
# and the reader of the page, and valid for a quarter of an hour. Nobody can make a proof without
# reading the page, and no other site can press the button.


class DeadLetterForms:
    """The rows of the page, and the endpoint of their buttons."""

    def __init__(self, group: GroupCommit, letters: DeadLetterRoutes) -> None:
        self._group = group
        self._letters = letters
        self._secret = secrets.token_bytes(32)

    def routes(self) -> list[Route]:
        """The route of the buttons. It is open to all, since each form carries its own proof."""
        return [Route(_PATH, self.act, methods=["POST"])]

    def rows(self, who: str, *, may_change: bool) -> list[tuple[object, ...]]:
        """The oldest letters, in `LETTER_COLUMNS`, for the reader `who`; with buttons if they
        `may_change` something."""
        tables = self._group.tables
        rows: list[tuple[object, ...]] = []
        for letter in self._group.letters.list()[:_SHOWN_MAX]:
            table = tables.get(letter.table_id)
            (record,), _ = read_segment(letter.body, letter.lsn, None)
            since = datetime.datetime.fromtimestamp(letter.at_ms / 1000, datetime.UTC)
            buttons = None
            if may_change and table is not None:
                database = table.name.database or ""
                buttons = self._form(who, database, table.name.table, letter.lsn)
            name = letter.table_id if table is None else str(table.name)
            shown = f"{since:%Y-%m-%d %H:%M:%S} UTC"
            rows.append((name, letter.lsn, record.rows, letter.why, shown, buttons))
        return rows

    async def act(self, request: Request) -> Response:
        """Carry out a button's action, and show the page again."""
        given = parse_qs((await request.body()).decode("utf-8", "replace"))
        fields = {key: values[0] for key, values in given.items()}
        names = ("who", "database", "table", "record", "until")
        what = [fields.get(name, "") for name in names]
        action = next((one for one in ("retry", "discard") if one in fields), "")
        proof = fields.get("proof", "")
        is_good = hmac.compare_digest(proof.encode(), self._proof(what).encode())
        if not is_good or not what[-1].isdigit() or int(what[-1]) < time.time() or not action:
            return notice(
                403, "The button is too old, or was made by another page.", "Load the page again."
            )
        try:
            answer = await self._do(action, fields)
        except PaimonMagicsError as error:
            return notice(400, error.message, error.hint)
        if answer.status_code == 200:
            return RedirectResponse("./", 303)
        told = json.loads(bytes(answer.body))["error"]
        return notice(answer.status_code, told["message"], told["hint"])

    async def _do(self, action: str, fields: dict[str, str]) -> Response:
        table_info = await self._letters.table(fields["database"], fields["table"])
        lsn = int(fields["record"])
        if action == "retry":
            return await self._letters.retry_letter(table_info, lsn)
        return await self._letters.discard_letter(table_info, lsn)

    def _form(self, who: str, database: str, table: str, lsn: int) -> Markup:
        what = [who, database, table, str(lsn), str(int(time.time()) + _GOOD_SECONDS)]
        names = ("who", "database", "table", "record", "until")
        fields = [*zip(names, what, strict=True), ("proof", self._proof(what))]
        hidden = "".join(
            f'<input type="hidden" name="{name}" value="{html.escape(value)}">'
            for name, value in fields
        )
        return Markup(
            f'<form method="post" action=".{_PATH}">{hidden}'
            '<button name="retry" value="1">Retry</button> '
            '<button name="discard" value="1">Discard</button></form>'
        )

    def _proof(self, what: Sequence[str]) -> str:
        text = "\0".join(what).encode()
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()
