"""Endpoints whose requests are kept in the audit log.

`authorisation.ACTIONS` has the endpoints that change something. For every other endpoint, only
refused requests are kept. A request is carried out when its entry is durable, and answered when its
outcome is durable. Handlers `report` details that only they know.
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
from paimon_magics.coordinator.http.answers import BEGINNINGS, error_answer
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.protocol.principals import PRINCIPAL, Principal
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.formatting import printable

_REPORTED = "paimon_magics.reported"
_PATH_CHARACTERS_MAX = 300
_BODY_BYTES_MAX = 65_536
_CONFLICT = "a commit was prepared on a snapshot that is not the latest"


def report(scope: Scope, **facts: Any) -> None:
    """Add to the entry of a request, if one is kept: members of `Entry`."""
    reported = scope.get(_REPORTED)
    if reported is not None:
        reported.update(facts)


def refused_entry(scope: Scope, status: int) -> Entry:
    """The entry of a request that did not reach its endpoint."""
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
    return printable(text)


@dataclass(frozen=True, slots=True)
class Audited:
    """An endpoint; `actions` has the names of its audited methods."""

    app: ASGIApp
    trail: Trail
    actions: Mapping[str, str] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        action = self.actions.get(scope.get("method", ""), "")
        facts: dict[str, Any] = {}
        answered = _Answered(self.trail, scope, action, facts, send)
        if action and not answered.is_own:
            try:
                await asyncio.wrap_future(self.trail.begin(answered.entry))
            except PaimonMagicsError as error:
                answer = error_answer(503, type(error).__name__, error.message, error.hint)
                await answer(scope, receive, send)
                return
        try:
            await self.app({**scope, _REPORTED: facts}, receive, answered.send)
        except BaseException as error:
            if action and not answered.is_reported:
                entry = replace(answered.entry, outcome=Outcome.FAILED, **facts)
                self.trail.end(replace(entry, detail=f"{entry.detail}: {type(error).__name__}"))
            raise


class _Answered:
    """Holds an answer back until its entry is durable."""

    def __init__(
        self, trail: Trail, scope: Scope, action: str, facts: dict[str, Any], send: Send
    ) -> None:
        self._trail = trail
        self._principal: Principal | None = scope.get(PRINCIPAL)
        self._action = action
        self._facts = facts
        self._send = send
        self._start: Message | None = None
        self.entry = _entry(scope, action)
        self.is_own = self._principal is not None and self._principal.is_own
        self.is_reported = False

    async def send(self, message: Message) -> None:
        """Pass a part of the answer on."""
        if message["type"] == "websocket.accept":
            self.is_reported = True
        elif message["type"] in BEGINNINGS:
            self._start = message
            return
        elif self._start is not None:
            start, self._start = self._start, None
            await self._keep(start["status"], message.get("body", b""))
            await self._send(start)
        await self._send(message)

    async def _keep(self, status: int, body: bytes) -> None:
        self.is_reported = True
        document = _document(body) if status != 200 or self._action == "commit" else {}
        entry = replace(self.entry, status=status, **self._facts)
        error = document.get("error")
        if isinstance(error, dict):
            detail = f"{entry.detail}: {error.get('type', '')}: {error.get('message', '')}"
            entry = replace(entry, detail=detail)
        if not self._action:
            is_limited = self._principal is not None and self._principal.is_limited
            if status == 403 or (status == 404 and is_limited):
                self._trail.refuse(entry)
            return
        if self.is_own and (entry.database, entry.table) == self._trail.name:
            return  # upkeep of the log's own table is not logged
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


def _document(body: bytes) -> dict[str, Any]:
    if len(body) > _BODY_BYTES_MAX:
        return {}
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
