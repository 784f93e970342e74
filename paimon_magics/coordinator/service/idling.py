"""An unsupervised coordinator ends when it has been idle for a while.

It is busy while a request is being answered, a transaction is not finished, rows wait to be loaded,
or something is under way. It does not wait for work that the warehouse's store prevents: rows stay
in the log on disk, transactions in the database, and the next start continues with them. It also
cuts its process's log when that grows long, because nobody else would.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from paimon_magics.coordinator.runtime import Loop, Runtime
from paimon_magics.coordinator.service.coordinator import Coordinator

__all__ = ["Idling"]

_LOOK_MS = 1_000.0
_LOG_BYTES_MAX = 4 * 1024 * 1024
_STDERR = 2


class Idling:
    """An ASGI application around another one, which notices when no request comes.

    `end` is called once, from a thread of its own, after `idle_ms` without anything to do.
    """

    def __init__(
        self,
        runtime: Runtime,
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
        self._runtime = runtime
        self._steady_ms = runtime.clock.steady_ms
        self._asking = 0
        self._since_ms = self._steady_ms()
        self._loop: Loop | None = None

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
            self._since_ms = self._steady_ms()

    def start(self) -> None:
        """Start to check."""
        pause_ms = min(_LOOK_MS, self._idle_ms / 4)
        self._loop = self._runtime.loop("idling", lambda: pause_ms, self._look)

    def _look(self) -> None:
        with contextlib.suppress(OSError):  # it may be no file, and closed
            if os.fstat(_STDERR).st_size > _LOG_BYTES_MAX:
                os.ftruncate(_STDERR, 0)
        state = self._coordinator.state
        is_open = (state.held or state.running) and not self._coordinator.store_trouble
        if self._asking or is_open or self._has_work():
            self._since_ms = self._steady_ms()
        elif self._steady_ms() - self._since_ms >= self._idle_ms and self._loop is not None:
            self._loop.stop()
            self._end()
