"""A proxy in front of a coordinator that loses answers: the request is carried out, and the
connection ends before its answer is passed on."""

from __future__ import annotations

import contextlib
import socket
import threading
from urllib.parse import urlsplit

__all__ = ["CuttingProxy"]


class CuttingProxy:
    """Passes requests on to `server`, an address, and loses the answers to the next `cuts` requests
    that begin with `request`; `answer` comes in their place."""

    def __init__(self, server: str, request: bytes) -> None:
        parts = urlsplit(server)
        self._server = (str(parts.hostname), int(parts.port or 80))
        self._request = request
        self.cuts = 0
        self.answer = b""
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def move(self, server: str) -> None:
        """Pass requests on to another address from now on."""
        parts = urlsplit(server)
        self._server = (str(parts.hostname), int(parts.port or 80))

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def lose(self) -> bool:
        """Called when an answer is lost, after the request was carried out."""
        self.cuts -= 1
        return True

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._server) as server:
            cut = threading.Event()
            back = threading.Thread(target=self._back, args=(server, client, cut), daemon=True)
            back.start()
            while data := client.recv(65_536):
                if data.startswith(self._request) and self.cuts > 0:
                    cut.set()
                server.sendall(data)
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            back.join()

    def _back(self, server: socket.socket, client: socket.socket, cut: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                if cut.is_set() and self.lose():
                    client.sendall(self.answer)
                    break
                client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
