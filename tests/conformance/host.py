"""Starts and ends coordinators for tests in other processes, which ask by HTTP on 127.0.0.1.

    POST /?warehouse=FOLDER[&token=TOKEN]   a new one for that folder: answered `URL TOKEN`
    DELETE /?url=URL                        ends it: answered `ended`

The state of a coordinator is in a folder of the host's, and its log goes to standard error.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.coordinator.process import Process

__all__ = ["hosting"]


@contextlib.contextmanager
def hosting() -> Iterator[str]:
    """The URL of a host, until the end of the block; its coordinators end with it."""
    with tempfile.TemporaryDirectory(prefix="paimon-magics-conformance-") as folder:
        host = _Host(Path(folder))

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                given = self._given()
                self._answer(host.start(given["warehouse"][0], given.get("token", [""])[0]))

            def do_DELETE(self) -> None:
                host.end(self._given()["url"][0])
                self._answer("ended")

            def _given(self) -> dict[str, list[str]]:
                return parse_qs(urlsplit(self.path).query)

            def _answer(self, text: str) -> None:
                content = f"{text}\n".encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
            host.close()


class _Host:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._running: dict[str, Process] = {}
        self._started = 0

    def start(self, warehouse: str, token: str) -> str:
        """Start a coordinator, whose token is `token` where that says one."""
        with self._lock:
            self._started += 1
            state = self._folder / str(self._started)
            state.mkdir(mode=0o700)
            if token:
                (state / "token").write_text(token)
                (state / "token").chmod(0o600)
            process = Process(Path(warehouse), state)
            process.start()
            self._running[process.address] = process
            return f"{process.address} {process.token()}"

    def end(self, url: str) -> None:
        with self._lock:
            self._running.pop(url).close()

    def close(self) -> None:
        """End all that still run."""
        for process in self._running.values():
            process.close()
        self._running.clear()
