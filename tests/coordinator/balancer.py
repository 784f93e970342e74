"""A load balancer in front of coordinators: it looks at no request, and takes the next server where
one does not answer."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Sequence
from urllib.parse import urlsplit

from tests.backends.relay import relay

__all__ = ["Balancer"]


class Balancer:
    """Passes each connection on to one of the addresses, in turn."""

    def __init__(self, addresses: Sequence[str]) -> None:
        parts = [urlsplit(address) for address in addresses]
        self._servers = [(str(each.hostname), int(each.port or 80)) for each in parts]
        self._turn = itertools.count()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            first = next(self._turn)
            for number in range(len(self._servers)):
                try:
                    server = socket.create_connection(
                        self._servers[(first + number) % len(self._servers)], timeout=5
                    )
                except OSError:
                    continue
                break
            else:
                return
            server.settimeout(None)
            with server:
                back = threading.Thread(target=relay, args=(server, client), daemon=True)
                back.start()
                relay(client, server)
                back.join()
