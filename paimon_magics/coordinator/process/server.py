"""The web server of a coordinator's process, and the request to shut it down."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from paimon_magics.errors import SetupError

__all__ = ["Server", "Shutdown", "listen"]

_PORT_MAX = 65_535
_GRACE_SECONDS = 30  # for requests that wait for something that does not come


class Shutdown:
    """Whether the process is to end. For any thread."""

    def __init__(self) -> None:
        self.is_requested = False

    def request(self) -> None:
        """End the process after the requests under way."""
        self.is_requested = True

    def take_signals(self, first: Callable[[], object]) -> None:
        """Let SIGTERM and SIGINT request the shutdown, and call `first` in a thread of its own."""

        def requested(*_: object) -> None:
            self.request()
            threading.Thread(target=first, daemon=True).start()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, requested)

    def request_after(self, seconds: float) -> None:
        """Request the shutdown after this time; requests until then are still answered."""
        timer = threading.Timer(seconds, self.request)
        timer.daemon = True
        timer.start()


class Server(uvicorn.Server):
    """Serves until a shutdown is requested. It handles no signals: uvicorn would end the process on
    one before its parts are closed."""

    def __init__(self, app: ASGIApp, shutdown: Shutdown, request_bytes_max: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
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

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end; uvicorn asks ten times a second."""
        return self._shutdown.is_requested or await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone; uvicorn would take them here."""
        yield


def listen(port: int) -> socket.socket:
    """Return a socket that listens on 127.0.0.1; port 0 means any free one. Raises SetupError for a
    port that is in use or is none."""
    try:
        if not 0 <= port <= _PORT_MAX:  # `create_server` would leave its socket open
            raise OSError("it is no port")
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        reason = str(error.strerror or error).rstrip(".")
        raise SetupError(
            f"The coordinator can't listen on port {port} of 127.0.0.1: {reason}.",
            hint="Name a free port with --port, or in the `url` of the hub's service.",
        ) from error
    # Accepted connections inherit this. Without it answers wait 40 ms for an acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
