"""The web server of a coordinator's process, and the wish that it ends."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

__all__ = ["Server", "Shutdown", "listen"]

_GRACE_SECONDS = 30  # for who waits for something that does not come


class Shutdown:
    """Whether the process is to end. For any thread."""

    def __init__(self) -> None:
        self.is_requested = False

    def request(self) -> None:
        """End when who asks now is answered."""
        self.is_requested = True

    def take_signals(self, first: Callable[[], object]) -> None:
        """Let SIGTERM and SIGINT request it from now on; `first` is called by a thread then."""

        def requested(*_: object) -> None:
            self.request()
            threading.Thread(target=first, daemon=True).start()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, requested)

    def request_after(self, seconds: float) -> None:
        """End so much later: who asks meanwhile is still answered."""
        timer = threading.Timer(seconds, self.request)
        timer.daemon = True
        timer.start()


class Server(uvicorn.Server):
    """Serves until a shutdown is requested. Signals are left to the process: uvicorn would end it
    by them, before its parts have been closed."""

    def __init__(self, app: ASGIApp, shutdown: Shutdown, request_bytes_max: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,  # what it says goes where all else goes
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

    async def on_tick(self, counter: int) -> bool:
        """For uvicorn, ten times a second: whether to end."""
        return self._shutdown.is_requested or await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """For uvicorn: leave signals alone."""
        yield


def listen(port: int) -> socket.socket:
    """A socket that listens on this machine alone; any free port for 0."""
    listening = socket.create_server(("127.0.0.1", port))
    # Accepted connections inherit it; without it answers wait 40 ms for an acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
