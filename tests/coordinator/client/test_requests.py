"""How long a client asks again, by servers that break off in the middle of their answers."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from paimon_magics.coordinator.client.finding import At
from paimon_magics.coordinator.client.requests import Requests
from paimon_magics.errors import UnknownOutcomeError

WAIT_MS = 400
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


@contextlib.contextmanager
def breaking_off(seconds: float) -> Iterator[str]:
    """The address of a server that ends connections for so long before it answers."""
    begins = time.monotonic() + seconds
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.recv(65_536)
                        if time.monotonic() >= begins:
                            connection.sendall(ANSWER)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)


def test_the_wait_begins_again_when_a_coordinator_lived_and_broke_off() -> None:
    with breaking_off(2.5 * WAIT_MS / 1000) as address:
        requests = Requests(At(address, "token"), wait_ms=WAIT_MS)
        assert requests.repeat("POST", "/v1/any", {}, settles=True) == {}
        requests.close()


def test_the_wait_ends_although_coordinators_die_one_after_the_other() -> None:
    with breaking_off(600) as address:
        requests = Requests(At(address, "token"), wait_ms=WAIT_MS)
        began = time.monotonic()
        with pytest.raises(UnknownOutcomeError, match="gave no clear answer"):
            requests.repeat("POST", "/v1/any", {}, settles=True)
        assert time.monotonic() - began > 4 * WAIT_MS / 1000
        requests.close()
