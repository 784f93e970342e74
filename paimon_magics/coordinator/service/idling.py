"""An unsupervised coordinator ends when it has been idle for a while.

It is busy while a request is being answered, a transaction is not finished, rows wait to be loaded,
or something is under way. It does not wait for work that the warehouse's store prevents: rows stay
in the log on disk, transactions in the database, and the next start continues with them. It also
cuts its process's log when that grows long, because nobody else would.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from paimon_magics.coordinator.service.coordinator import Coordinator

__all__ = ["Idling"]

_LOOK_SECONDS = 1.0
_LOG_BYTES_MAX = 4 * 1024 * 1024
_STDERR = 2


class Idling:
    """An ASGI application around another one, which notices when no request comes.

    `end` is called once, from a thread of its own, after `idle_ms` without anything to do.
    """

    def __init__(
        self,
        app: ASGIApp,
        coordinator: Coordinator,
        idle_ms: int,
        end: Callable[[], None],
        has_work: Callable[[], bool] = lambda: False,
    ) -> None:
        self._has_work = has_work
        self._app = app
        self._coordinator = coordinator
        self._idle_ms = idle_ms
        self._end = end
        self._asking = 0
        self._since = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        self._asking += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._asking -= 1
            self._since = time.monotonic()

    def start(self) -> None:
        """Start to check."""
        threading.Thread(target=self._look, name="idling", daemon=True).start()

    def _look(self) -> None:
        while True:
            time.sleep(min(_LOOK_SECONDS, self._idle_ms / 4000))
            if os.fstat(_STDERR).st_size > _LOG_BYTES_MAX:
                os.ftruncate(_STDERR, 0)
            state = self._coordinator.state
            is_open = (state.held or state.running) and not self._coordinator.store_trouble
            if self._asking or is_open or self._has_work():
                self._since = time.monotonic()
            elif time.monotonic() - self._since >= self._idle_ms / 1000:
                self._end()
                return
