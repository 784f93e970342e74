"""The sender of a request that a standby has passed on, as the owner sees it.

Limits of wrong tokens and of requests are counted by address. Counted by the standby's, one client
would use them up for all who ask there.
"""

from __future__ import annotations

import logging
from typing import Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from paimon_magics.coordinator.http.forwarding import address_in, is_loopback
from paimon_magics.coordinator.http.limits import run_in_threadpool
from paimon_magics.coordinator.http.relaying import PASSED_ON
from paimon_magics.errors import PaimonMagicsError

_log = logging.getLogger(__name__)


class KnownStandbys(Protocol):
    """The standbys by their keys."""

    @property
    def is_due(self) -> bool:
        """Whether `look` may see more."""

    def has(self, key: str) -> bool:
        """Whether a standby with a key is known."""

    def look(self) -> None:
        """Read which there are. May block."""


class FromStandbys:
    """An ASGI application around the owner's, which gets the address of the client that a known
    standby names. From anybody else, such a name counts for nothing."""

    def __init__(self, app: ASGIApp, standbys: KnownStandbys) -> None:
        self._app = app
        self._standbys = standbys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] in ("http", "websocket"):
            client = await self._client(scope)
            if client is not None:
                scope = {**scope, "client": (client, 0)}
        await self._app(scope, receive, send)

    async def _client(self, scope: Scope) -> str | None:
        """The client's address, if a standby names another than the connection shows."""
        headers = dict(scope["headers"])
        key = headers.get(PASSED_ON.encode(), b"").decode("latin-1")
        host, port = scope.get("client") or ("", 0)
        if not key or not port:  # without a port, a proxy has named the client
            return None
        last = headers.get(b"x-forwarded-for", b"").rpartition(b",")[2].decode("latin-1").strip()
        client = address_in(last)
        # The standby's machine is not this one: what is local there has no rights here.
        if client is None or (is_loopback(client) and not is_loopback(host)):
            return None
        if not self._standbys.has(key) and self._standbys.is_due:
            try:
                await run_in_threadpool(self._standbys.look)
            except PaimonMagicsError as error:
                _log.info("%s", error)
        return client if self._standbys.has(key) else None
