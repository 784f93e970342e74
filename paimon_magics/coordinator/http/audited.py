"""Endpoints whose requests are kept in the audit log.

`ACTIONS` has those that change something, each with its name in the log; `NOT_KEPT` the others that
are no GET, with the reason. Of every other endpoint refused requests are kept.

A request is carried out when its entry is durable, and answered when it is durable what became of
it. Handlers `tell` what only they know.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paimon_magics.coordinator.audit.entries import Entry, Outcome, entry_id
from paimon_magics.coordinator.audit.trail import Trail
from paimon_magics.coordinator.http.answers import error_answer
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.protocol.principals import PRINCIPAL, Principal
from paimon_magics.errors import PaimonMagicsError

_TOLD = "paimon_magics.told"
_PATH_CHARACTERS_MAX = 300
_BODY_BYTES_MAX = 65_536
_CONFLICT = "a commit was prepared on a snapshot that is not the latest"

_TABLE = "/v1/paimon/databases/{database}/tables/{table}"
_DATABASE = "/v1/paimon/databases/{database}"
_LETTER = "/v1/inserts/{database}/{table}/dead-letters/{lsn}"

ACTIONS: Mapping[str, str] = {
    "POST /v1/transactions/{id}/commit": "commit",
    "POST /v1/transactions/{id}/abort": "abort",
    f"POST {_TABLE}/commit": "commit",
    f"POST {_TABLE}/rollback": "roll back",
    f"POST {_TABLE}/rollback-schema": "roll back schema",
    f"POST {_TABLE}/tags": "create tag",
    f"DELETE {_TABLE}/tags/{{tag}}": "delete tag",
    f"POST {_TABLE}/consumers/reset": "reset consumer",
    f"POST {_TABLE}/branches": "create branch",
    f"DELETE {_TABLE}/branches/{{branch}}": "delete branch",
    f"POST {_TABLE}/branches/{{branch}}/forward": "fast-forward",
    f"POST {_TABLE}/branches/{{branch}}/rename": "rename branch",
    "POST /v1/tables/versions": "change versions",
    f"POST {_DATABASE}/tables": "create table",
    f"POST {_TABLE}": "alter table",
    f"POST {_TABLE}/replace": "replace table",
    f"DELETE {_TABLE}": "drop table",
    "POST /v1/paimon/tables/rename": "rename table",
    "POST /v1/paimon/databases": "create database",
    "POST /v1/changes": "change definition",
    f"POST {_DATABASE}": "alter database",
    f"DELETE {_DATABASE}": "drop database",
    f"POST {_DATABASE}/views": "create view",
    f"POST {_DATABASE}/views/{{name}}": "alter view",
    f"DELETE {_DATABASE}/views/{{name}}": "drop view",
    "POST /v1/paimon/views/rename": "rename view",
    f"POST {_DATABASE}/functions": "create function",
    f"POST {_DATABASE}/functions/{{name}}": "alter function",
    f"DELETE {_DATABASE}/functions/{{name}}": "drop function",
    "POST /v1/tokens": "add token",
    "POST /v1/tokens/{id}/renew": "renew token",
    "DELETE /v1/tokens/{id}": "revoke token",
    "POST /v1/coordinator/pause": "pause",
    "POST /v1/coordinator/resume": "resume",
    "POST /v1/coordinator/options": "change options",
    "POST /v1/compactions/pause": "pause compactions",
    "POST /v1/compactions/resume": "resume compactions",
    "POST /v1/tables/resume": "resume table",
    "POST /v1/inserts/{database}/{table}/reopen": "reopen table",
    f"POST {_LETTER}/retry": "retry dead letter",
    f"DELETE {_LETTER}": "discard dead letter",
}
"""The actions that are kept, by method and path."""

NOT_KEPT: Mapping[str, str] = {
    "POST /v1/inserts/{database}/{table}": "kept with its load",
    "POST /v1/inserts/{database}/{table}/flush": "kept as a load",
    "POST /v1/leases": "changes no table",
    "POST /v1/tables/check": "changes no table",
    "POST /v1/transactions": "its commit is kept",
    "POST /v1/transactions/{id}/compactions": "its commit is kept",
    "POST /v1/transactions/{id}/heartbeat": "its commit is kept",
    "POST /v1/transactions/{id}/sweep": "its commit is kept",
    f"POST {_TABLE}/auth": "a question",
    f"POST {_TABLE}/partitions/list-by-filter": "a question",
    f"POST {_TABLE}/partitions/list-by-names": "a question",
    f"POST {_TABLE}/partitions/drop": "not offered",
    f"POST {_TABLE}/partitions/mark": "not offered",
    f"POST {_TABLE}/partitions": "not offered",
    f"POST {_DATABASE}/register": "not offered",
    "POST /v1/paimon/permissions/grant": "not offered",
    "POST /v1/paimon/permissions/revoke": "not offered",
    **{
        f"{method} /v1/paimon/{{rest:path}}": "not offered"
        for method in ("POST", "PUT", "PATCH", "DELETE")
    },
}
"""Endpoints that are no GET and of which only refused requests are kept, with the reason."""


def tell(scope: Scope, **facts: Any) -> None:
    """Say what a request is about: members of `Entry`. Where nothing is kept it does nothing."""
    told = scope.get(_TOLD)
    if told is not None:
        told.update(facts)


def refused_entry(scope: Scope, status: int) -> Entry:
    """The entry of a request that did not get as far as its endpoint."""
    return replace(_entry(scope, ""), status=status)


def _entry(scope: Scope, action: str) -> Entry:
    at_ms = now_ms()
    principal: Principal | None = scope.get(PRINCIPAL)
    names = scope.get("path_params") or {}
    return Entry(
        entry_id(at_ms),
        at_ms,
        action or _request_text(scope),
        None if principal is None else principal.name,
        credential="" if principal is None else principal.credential,
        address=(scope.get("client") or ("", 0))[0],
        database=names.get("database"),
        table=names.get("table"),
        detail=_request_text(scope) if action else "",
    )


def _request_text(scope: Scope) -> str:
    """The method and path, cut off, with characters that are not printable escaped."""
    text = f"{scope.get('method', 'STREAM')} {scope['path'][:_PATH_CHARACTERS_MAX]}"
    return text if text.isprintable() else ascii(text)[1:-1]


@dataclass(frozen=True, slots=True)
class Audited:
    """An endpoint; `actions` has the names of those of its methods that are kept."""

    app: ASGIApp
    trail: Trail
    actions: Mapping[str, str] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        action = self.actions.get(scope.get("method", ""), "")
        told: dict[str, Any] = {}
        answered = _Answered(self.trail, scope, action, told, send)
        if action and not answered.is_own:
            try:
                await asyncio.wrap_future(self.trail.begin(answered.entry))
            except PaimonMagicsError as error:
                answer = error_answer(503, type(error).__name__, error.message, error.hint)
                await answer(scope, receive, send)
                return
        try:
            await self.app({**scope, _TOLD: told}, receive, answered.send)
        except BaseException as error:
            if action and not answered.is_told:
                entry = replace(answered.entry, outcome=Outcome.FAILED, **told)
                self.trail.end(replace(entry, detail=f"{entry.detail}: {type(error).__name__}"))
            raise


class _Answered:
    """The way of an answer: held back until its entry is durable."""

    def __init__(
        self, trail: Trail, scope: Scope, action: str, told: dict[str, Any], send: Send
    ) -> None:
        self._trail = trail
        self._scope = scope
        self._action = action
        self._told = told
        self._send = send
        self._start: Message | None = None
        self.entry = _entry(scope, action)
        principal: Principal | None = scope.get(PRINCIPAL)
        self.is_own = principal is not None and principal.is_own
        self.is_told = False

    async def send(self, message: Message) -> None:
        """Pass a part of the answer on."""
        if message["type"] == "websocket.close" and not self.is_told:
            if message.get("code") == 4403:
                self._trail.refuse(replace(self.entry, status=403))
        elif message["type"] == "websocket.accept":
            self.is_told = True
        elif message["type"] == "http.response.start":
            self._start = message
            return
        elif self._start is not None:
            start, self._start = self._start, None
            await self._keep(start["status"], message.get("body", b""))
            await self._send(start)
        await self._send(message)

    async def _keep(self, status: int, body: bytes) -> None:
        self.is_told = True
        document = _document(body) if status != 200 or self._action == "commit" else {}
        entry = replace(self.entry, status=status, **self._told)
        error = document.get("error")
        if isinstance(error, dict):
            said = f"{entry.detail}: {error.get('type', '')}: {error.get('message', '')}"
            entry = replace(entry, detail=said)
        if not self._action:
            if status == 403 or (status == 404 and _is_limited(self._scope)):
                self._trail.refuse(entry)
            return
        if self.is_own and (entry.database, entry.table) == self._trail.name:
            return  # what keeps the log's own table tidy is not kept in it
        outcome = _outcome(status, document)
        if document.get("success") is False:  # the REST catalog's commit
            outcome = Outcome.REFUSED
            entry = replace(entry, snapshot_id=None, detail=f"{entry.detail}: {_CONFLICT}")
        if outcome is not Outcome.DONE:
            entry = replace(entry, snapshot_id=None)
        await asyncio.wrap_future(self._trail.end(replace(entry, outcome=outcome)))


def _outcome(status: int, document: Mapping[str, Any]) -> Outcome:
    if status < 400:
        return Outcome.DONE
    error = document.get("error")
    if isinstance(error, dict) and error.get("type") == "UnknownOutcomeError":
        return Outcome.UNKNOWN
    return Outcome.REFUSED if status < 500 else Outcome.FAILED


def _is_limited(scope: Scope) -> bool:
    principal: Principal | None = scope.get(PRINCIPAL)
    return principal is not None and principal.is_limited


def _document(body: bytes) -> dict[str, Any]:
    if len(body) > _BODY_BYTES_MAX:
        return {}
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
