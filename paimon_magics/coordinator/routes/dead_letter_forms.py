"""Dead letters on the status page, each with buttons to retry and to discard it.

A browser's cookie allows only to read the page. So each form carries a proof, made for the letter
and the reader of the page, and valid for a quarter of an hour. Nobody can make a proof without
reading the page, and no other site can press the button.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import html
import json
import secrets
import time
from collections.abc import Sequence
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from paimon_magics.coordinator.http.pages import Markup, notice
from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit
from paimon_magics.coordinator.inserts.log.records import read_segment
from paimon_magics.coordinator.routes.dead_letters import DeadLetterRoutes
from paimon_magics.errors import PaimonMagicsError

__all__ = ["LETTER_COLUMNS", "DeadLetterForms"]

LETTER_COLUMNS = ("table", "#record", "#rows", "why", "@since", "")

_PATH = "/dead-letters"
_GOOD_SECONDS = 900
_SHOWN_MAX = 200


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
