"""Starts and ends coordinators for tests in other processes, which ask by HTTP on 127.0.0.1.

    POST /?warehouse=FOLDER[&token=TOKEN]   a new one for that folder: answered `URL TOKEN OPTION…`
    DELETE /?url=URL                        ends it: answered `ended`

Each OPTION is `key=value`, and belongs to the catalog of who asks. On MinIO the warehouse is a
folder of a bucket, in place of the local one. The state of a coordinator is in a folder of the
host's, and its log goes to standard error. As a program the host prints its URL, and ends with its
standard input.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.backends.minio import minio
from tests.backends.s3 import Bucket
from tests.coordinator.process import Process

__all__ = ["hosting"]


@contextlib.contextmanager
def hosting(*options: str, on_minio: bool = False, data_tokens: bool = False) -> Iterator[str]:
    """The URL of a host, until the end of the block; its coordinators end with it, and have
    `options`. Their warehouses are local folders, or on MinIO, where `data_tokens` leaves their
    clients without keys of the store."""
    with contextlib.ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="paimon-magics-conformance-")
        folder = Path(stack.enter_context(made))
        bucket = None
        if on_minio:
            (folder / "minio").mkdir()
            bucket = stack.enter_context(minio(folder / "minio")).bucket()
        host = _Host(folder, bucket, [*options, *(["--data-tokens=sts"] if data_tokens else [])])

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
    def __init__(self, folder: Path, bucket: Bucket | None, options: Sequence[str]) -> None:
        self._folder = folder
        self._bucket = bucket
        self._options = options
        self._lock = threading.Lock()
        self._running: dict[str, Process] = {}
        self._started = 0

    def start(self, warehouse: str, token: str) -> str:
        """Start a coordinator, whose token is `token` where that says one. Return the answer."""
        with self._lock:
            self._started += 1
            state = self._folder / str(self._started)
            state.mkdir(mode=0o700)
            if token:
                (state / "token").write_text(token)
                (state / "token").chmod(0o600)
            process, options = self._coordinator(warehouse, state)
            process.start()
            self._running[process.address] = process
            given = [f"{key}={value}" for key, value in options.items()]
            return " ".join([process.address, process.token(), *given])

    def _coordinator(self, warehouse: str, state: Path) -> tuple[Process, Mapping[str, str]]:
        """A coordinator's process, and the options of its clients."""
        if self._bucket is None:
            return Process(Path(warehouse), state, *self._options), {"warehouse": warehouse}
        folder = f"s3://{self._bucket.name}/{self._started}"
        catalog = {**self._bucket.options, "warehouse": folder}
        process = Process(folder, state, *self._options, catalog=catalog)
        return process, {"warehouse": folder} if "--data-tokens=sts" in self._options else catalog

    def end(self, url: str) -> None:
        with self._lock:
            self._running.pop(url).close()

    def close(self) -> None:
        """End all that still run."""
        for process in self._running.values():
            process.close()
        self._running.clear()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-tokens", action="store_true", help="on MinIO")
    given, others = parser.parse_known_args()
    with hosting(*others, on_minio=given.data_tokens, data_tokens=given.data_tokens) as url:
        print(url, flush=True)
        sys.stdin.read()
