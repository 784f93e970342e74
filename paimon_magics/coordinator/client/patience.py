"""How long a client waits for an answer: as long as nobody else can give it.

A process that stands still keeps its connections, so a request to it would wait for its timeout. A
request may also take long for good reasons. So while one has no answer, a thread looks from time to
time: it is given up only if its coordinator no longer shows a sign of life, and another one says
that it owns the warehouse. Looking changes nothing; what follows is as after a broken connection.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paimon_magics.coordinator.client.starting import Endpoint

_PATIENCE_SECONDS = 3.0
_LOOK_SECONDS = 1.0
_CONNECTED = ("connection.connect_tcp.complete", "connection.start_tls.complete")


class Patience:
    """Knows the connections, and the requests without an answer. Safe for several threads.

    `succeeded` says whether another coordinator has taken over from an endpoint that shows no sign
    of life; it may take seconds.
    """

    def __init__(self, succeeded: Callable[[Endpoint], bool]) -> None:
        self._succeeded = succeeded
        self._numbers = itertools.count()
        self._sockets: weakref.WeakKeyDictionary[socket.socket, str] = weakref.WeakKeyDictionary()
        self._begin()

    def _begin(self) -> None:
        self._turn = threading.Lock()
        self._waiting: dict[int, tuple[Endpoint, float]] = {}
        self._wakes = threading.Event()
        self._thread: threading.Thread | None = None

    def after_fork(self) -> None:
        """Forget what the parent process does, and close the connections here: nothing is sent."""
        connections = [reference() for reference in self._sockets.keyrefs()]
        self._begin()
        self._sockets = weakref.WeakKeyDictionary()
        for connection in connections:
            if connection is not None:
                connection.close()

    def trace(self, endpoint: Endpoint) -> Callable[[str, Mapping[str, Any]], None]:
        """What notes a new connection to an endpoint, when the HTTP client reports it."""

        def note(event: str, info: Mapping[str, Any]) -> None:
            if event in _CONNECTED:
                with self._turn:
                    connection = info["return_value"].get_extra_info("socket")
                    self._sockets[connection] = endpoint.address

        return note

    @contextlib.contextmanager
    def waiting(self, endpoint: Endpoint) -> Iterator[None]:
        """Watch a request to an endpoint. If it is given up, its connection ends."""
        number = next(self._numbers)
        self._waiting[number] = endpoint, time.monotonic()
        if self._thread is None:
            with self._turn:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="patience", daemon=True)
                    self._thread.start()
        if not self._wakes.is_set():
            self._wakes.set()
        try:
            yield
        finally:
            self._waiting.pop(number, None)

    def _work(self) -> None:
        while True:
            self._wakes.wait()
            time.sleep(_LOOK_SECONDS)
            if not self._waiting:
                self._wakes.clear()
                if self._waiting:  # it came in between
                    self._wakes.set()
                continue
            long_ago = time.monotonic() - _PATIENCE_SECONDS
            for endpoint in {
                each for each, since in list(self._waiting.values()) if since < long_ago
            }:
                with contextlib.suppress(Exception):  # it is looked at again
                    if self._succeeded(endpoint):
                        self._give_up(endpoint.address)

    def _give_up(self, address: str) -> None:
        """End the connections to an address: whoever waits there gets no answer any more."""
        with self._turn:
            ended = [one for one, at in self._sockets.items() if at == address]
        for connection in ended:
            with contextlib.suppress(OSError):
                # The method of plain sockets: that of TLS would drop what another thread uses.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
