"""The web server of a coordinator's process, and the request to shut it down."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from paimon_magics.coordinator.process.certificates import Certificate
from paimon_magics.coordinator.process.connections import BoundedConnection, Bounds, bounded

__all__ = ["Server", "Shutdown"]

_GRACE_SECONDS = 30  # for requests that wait for something that does not come
_HANDSHAKE_SECONDS = 10.0
_TICKS = 10  # of uvicorn, in a second
_SIGNALS = [
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM")
    if hasattr(signal, name)
]

_log = logging.getLogger(__name__)


class Shutdown:
    """Whether the process is to end. For any thread.

    A signal begins to drain it: for `drain_seconds` everything is answered as before, but
    `is_draining` says that no new client should come. `was_signalled` tells whether a signal has
    come at all.
    """

    def __init__(self, drain_seconds: float = 0.0) -> None:
        self.is_requested = False
        self.is_draining = False
        self.was_signalled = False
        self._drain_seconds = drain_seconds

    def request(self) -> None:
        """End the process after the requests under way."""
        self.is_draining = True
        self.is_requested = True

    def take_signals(
        self, first: Callable[[], object], reload: Callable[[], bool] | None = None
    ) -> None:
        """Let a signal that would end the process drain it first, and a second one end it at once.
        `first` is called in a thread of its own when it ends. SIGHUP calls `reload` instead, if
        there is something to read again; it returns whether that is in use. Each signal leaves a
        line in the log."""

        def end(name: str, wait: float) -> None:
            _log.warning("%s: the coordinator ends%s.", name, f" in {wait:.0f} s" if wait else "")
            time.sleep(wait)
            self.request()
            first()

        def read_again() -> None:
            assert reload is not None
            told = "" if reload() else ", and the old one stays"
            _log.warning("SIGHUP: the certificate was read again%s.", told)

        def requested(number: int, _: object) -> None:
            name = signal.Signals(number).name
            if name == "SIGHUP" and reload is not None:
                threading.Thread(target=read_again, daemon=True).start()
                return
            self.was_signalled = True
            wait = 0.0 if self.is_draining else self._drain_seconds
            self.is_draining = True
            if not wait:
                self.request()
            threading.Thread(target=end, args=(name, wait), daemon=True).start()

        for number in _SIGNALS:
            signal.signal(number, requested)

    def request_after(self, seconds: float) -> None:
        """Request the shutdown after this time; requests until then are still answered."""
        timer = threading.Timer(seconds, self.request)
        timer.daemon = True
        timer.start()


class Server(uvicorn.Server):
    """Serves until a shutdown is requested. It handles no signals: uvicorn would end the process on
    one before its parts are closed.

    `certificate` is for the sockets that `run_on` gets as `encrypted`.
    """

    def __init__(
        self,
        app: ASGIApp,
        shutdown: Shutdown,
        request_bytes_max: int,
        bounds: Bounds,
        certificate: Certificate | None = None,
    ) -> None:
        self._connection = bounded(bounds)
        super().__init__(
            uvicorn.Config(
                app,
                http=self._connection,
                log_config=None,  # its records go to the process's log
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_GRACE_SECONDS,
                ws_max_size=request_bytes_max,
                ws_per_message_deflate=False,
            )
        )
        self._shutdown = shutdown
        self._certificate = certificate
        self._encrypted: list[socket.socket] = []
        self._looked_at = 0.0

    def run_on(self, plain: list[socket.socket], encrypted: list[socket.socket]) -> None:
        """Serve on these sockets until the shutdown."""
        self._encrypted = encrypted
        self.run(sockets=plain)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen; uvicorn itself knows one context of TLS for all sockets."""
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        for listening in self._encrypted:
            assert self._certificate is not None
            server = await loop.create_server(
                lambda: self._connection(self.config, self.server_state, self.lifespan.state),
                sock=listening,
                ssl=self._certificate.context,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
                backlog=self.config.backlog,
            )
            self.servers.append(server)

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end; uvicorn asks ten times a second."""
        if counter % _TICKS == 0:
            self._look()
        return self._shutdown.is_requested or await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone; uvicorn would take them here."""
        yield

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        passed = now - self._looked_at if self._looked_at else 0.0
        self._looked_at = now
        for connection in list(self.server_state.connections):
            if isinstance(connection, BoundedConnection):
                connection.look(now, passed)
        if self._certificate is not None:
            self._certificate.look()
