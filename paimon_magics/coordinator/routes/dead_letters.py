"""Dead letters over HTTP: list, discard and retry the records that could not be loaded."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import html
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import parse_qs, quote, urlencode

from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Scope

from paimon_magics.columnar.time_zones import UTC
from paimon_magics.coordinator.http.answers import JSONResponse, no_endpoint
from paimon_magics.coordinator.http.limits import run_in_threadpool
from paimon_magics.coordinator.http.pages import Markup, moment_text, notice
from paimon_magics.coordinator.inserts.admission.items import Insert
from paimon_magics.coordinator.inserts.admission.validator import TableInfo
from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit
from paimon_magics.coordinator.inserts.log.log import DeadLetter
from paimon_magics.coordinator.inserts.log.records import Format, Record, read_segment
from paimon_magics.coordinator.inserts.queue.values import Accepted, Answer
from paimon_magics.coordinator.protocol.errors import HEADER as REQUEST_ID
from paimon_magics.coordinator.protocol.principals import PRINCIPAL, Principal
from paimon_magics.coordinator.routes.insert_entry import InsertEntry, validated_stream
from paimon_magics.coordinator.routes.insert_requests import answer_of, named_by, table_of
from paimon_magics.errors import PaimonMagicsError, UnknownNameError

_TABLE = "/v1/inserts/{database}/{table}"

LETTER_COLUMNS = ("table", "#record", "#rows", "why", "@since", "")

_PATH = "/dead-letters"
_FIELDS = ("who", "database", "table", "record", "until")  # of a form, besides its proof
_GOOD_SECONDS = 900
_SHOWN_MAX = 200
_READERS_MAX = 1_000
_NO_NAMES = frozenset(
    {b"accept", b"cache-control", b"pragma", b"referer", b"user-agent", REQUEST_ID}
)


class DeadLetterRoutes:
    """The endpoints of dead letters."""

    def __init__(self, group: GroupCommit, entry: InsertEntry) -> None:
        self._group = group
        self._entry = entry

    def routes(self) -> list[Route]:
        """The routes of dead letters."""
        return [
            Route(f"{_TABLE}/dead-letters", self.show, methods=["GET"]),
            Route(f"{_TABLE}/dead-letters/{{lsn}}", self.on_discard, methods=["DELETE"]),
            Route(f"{_TABLE}/dead-letters/{{lsn}}/retry", self.on_retry, methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        """The records of a table that could not be loaded."""
        table_info = await self._entry.table_info(table_of(request))
        letters = await run_in_threadpool(self._group.letters.list, table_info.identity)
        documents = []
        for letter in letters:
            record = _record(letter)
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

    async def on_discard(self, request: Request) -> Response:
        """Forget a dead letter."""
        table_info = await self._entry.table_info(table_of(request))
        return await self.discard(table_info, request.path_params["lsn"])

    async def on_retry(self, request: Request) -> Response:
        """Insert a dead letter's rows again; a repeated request inserts them only once."""
        table_info = await self._entry.table_info(table_of(request))
        return await self.retry(table_info, request.path_params["lsn"])

    async def table(self, database: str, table: str) -> TableInfo:
        """The present table of that name."""
        return await self._entry.load(database, table)

    async def discard(self, table_info: TableInfo, lsn: str) -> Response:
        """Forget the dead letter of that number."""
        letter = await self._letter(table_info, lsn)
        await run_in_threadpool(self._group.letters.settle, table_info, letter.lsn, "discarded")
        return JSONResponse({"status": "discarded"})

    async def retry(self, table_info: TableInfo, lsn: str) -> Response:
        """Insert the rows of the dead letter of that number again."""
        letter = await self._letter(table_info, lsn)
        record = _record(letter)
        # The schema was probably changed just now, to make the rows fit.
        table_info = await self.table(table_info.name.database or "", table_info.name.table)
        if record.format is Format.ARROW:
            validated = await run_in_threadpool(validated_stream, table_info, record.payload)
        else:
            validated = table_info.validator.json(record.payload)
        named = named_by(f"dead-letter-{letter.lsn}", None, None)
        named = named.of(record.payload, is_stream=record.format is Format.ARROW)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        key, offset, _, digest = named
        mode, user = table_info.mode, record.user
        insert = Insert(table_info, validated, mode, future, key, offset, digest, user)
        self._group.submit(insert)
        answer = await future
        if isinstance(answer, Accepted):
            await run_in_threadpool(self._group.letters.settle, table_info, letter.lsn, "retried")
        return answer_of(answer, named.label)

    async def _letter(self, table_info: TableInfo, lsn: str) -> DeadLetter:
        letters = await run_in_threadpool(self._group.letters.list, table_info.identity)
        for letter in letters:
            if str(letter.lsn) == lsn:
                return letter
        raise UnknownNameError(
            f"`{table_info.name}` has no dead letter {lsn}.", hint="`%paimon queue` lists them."
        )


def _record(letter: DeadLetter) -> Record:
    (record,), _ = read_segment(letter.body, letter.lsn, None)
    return record


class DeadLetterForms:
    """Dead letters on the status page, each with buttons to retry and to discard it.

    A browser's cookie only allows reading the page. So each form carries a proof, made for the
    letter and the reader of the page, and valid for a quarter of an hour. Nobody can make a proof
    without reading the page, so no other site can press the button.

    A button sends the request that the reader could have sent, with what identified them when they
    read the page: whether that is still good, what they may do, and the audit log are the same.
    `sender_of` finds the sender of a connection, `app` answers requests behind the guard.
    """

    def __init__(
        self,
        group: GroupCommit,
        sender_of: Callable[[HTTPConnection], Awaitable[Principal | None]],
    ) -> None:
        self._group = group
        self._sender_of = sender_of
        self._secret = secrets.token_bytes(32)
        self._readers: OrderedDict[str, Scope] = OrderedDict()
        self.app: ASGIApp = no_endpoint

    def routes(self) -> list[Route]:
        """The route of the buttons. It is open to all, since each form carries its own proof."""
        return [Route(_PATH, self.act, methods=["POST"])]

    def reader(self, page: HTTPConnection) -> str:
        """A name for who reads the page."""
        named = [(name, value) for name, value in page.scope["headers"] if name not in _NO_NAMES]
        digest = hmac.new(self._secret, repr(sorted(named)).encode(), hashlib.sha256)
        reader = digest.hexdigest()
        members = ("type", "method", "path", "root_path", "scheme", "server", "client")
        scope = {key: page.scope[key] for key in members if key in page.scope}
        self._readers[reader] = {**scope, "query_string": b"", "headers": named}
        self._readers.move_to_end(reader)
        while len(self._readers) > _READERS_MAX:
            self._readers.popitem(last=False)
        return reader

    def rows(self, who: str, zone: str, *, may_change: bool) -> list[tuple[object, ...]]:
        """The oldest letters, in `LETTER_COLUMNS`, for the `reader` who; with buttons if they
        `may_change` something, which lead back to the page in `zone`."""
        tables = self._group.tables
        rows: list[tuple[object, ...]] = []
        for letter in self._group.letters.list()[:_SHOWN_MAX]:
            table = tables.get(letter.table_id)
            buttons = None
            if may_change and table is not None:
                database = table.name.database or ""
                buttons = self._form(who, database, table.name.table, letter.lsn, zone)
            name = letter.table_id if table is None else str(table.name)
            cells = letter.lsn, _record(letter).rows, letter.why, moment_text(letter.at_ms)
            rows.append((name, *cells, buttons))
        return rows

    async def act(self, request: Request) -> Response:
        """Carry out a button's action, and show the page again."""
        query = parse_qs((await request.body()).decode("utf-8", "replace"))
        fields = {key: values[0] for key, values in query.items()}
        values = [fields.get(name, "") for name in _FIELDS]
        action = next((word for word in ("retry", "discard") if word in fields), "")
        proof = fields.get("proof", "")
        is_good = hmac.compare_digest(proof.encode(), self._proof(values).encode())
        until = values[-1]
        if not is_good or not until.isdigit() or int(until) < time.time() or not action:
            return notice(
                403, "The button has expired, or belongs to another page.", "Reload the page."
            )
        page = self._readers.get(fields["who"])
        try:
            sender = None if page is None else await self._sender_of(HTTPConnection(dict(page)))
        except PaimonMagicsError as error:
            return notice(503, error.message, error.hint)
        if sender is None:
            return notice(
                403, "Your token is no longer good here.", "Open the page with a new token."
            )
        status, body = await self._sent(request.scope, sender, fields, action)
        if status == 200:
            zone = fields.get("zone", UTC)
            return RedirectResponse("./" if zone == UTC else f"./?{urlencode({'zone': zone})}", 303)
        refusal = json.loads(body)["error"]
        return notice(status, refusal["message"], refusal["hint"])

    async def _sent(
        self, scope: Scope, sender: Principal, fields: dict[str, str], action: str
    ) -> tuple[int, bytes]:
        """The status and body of the answer to a button's request, in the name of `sender`."""
        method, end = ("POST", "/retry") if action == "retry" else ("DELETE", "")
        table = f"/v1/inserts/{fields['database']}/{fields['table']}"
        path = f"{scope.get('root_path', '')}{table}/dead-letters/{fields['record']}{end}"
        members = ("type", "asgi", "http_version", "scheme", "server", "client", "root_path")
        own = [(name, value) for name, value in scope["headers"] if name == REQUEST_ID]
        sent = {
            **{key: scope[key] for key in members if key in scope},
            **{"method": method, "path": path, "raw_path": quote(path).encode()},
            **{"query_string": b"", "headers": own, PRINCIPAL: sender},
        }
        status, parts = 500, list[bytes]()

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            parts.append(message.get("body", b""))

        await self.app(sent, receive, send)
        return status, b"".join(parts)

    def _form(self, who: str, database: str, table: str, lsn: int, zone: str) -> Markup:
        values = [who, database, table, str(lsn), str(int(time.time()) + _GOOD_SECONDS)]
        fields = list(zip(_FIELDS, values, strict=True))
        fields += [("proof", self._proof(values)), ("zone", zone)]
        hidden = "".join(
            f'<input type="hidden" name="{name}" value="{html.escape(value)}">'
            for name, value in fields
        )
        return Markup(
            f'<form method="post" action=".{_PATH}">{hidden}'
            '<button name="retry" value="1">Retry</button> '
            '<button name="discard" value="1">Discard</button></form>'
        )

    def _proof(self, values: Sequence[str]) -> str:
        text = "\0".join(values).encode()
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()
