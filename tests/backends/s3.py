"""An S3 server for tests: moto on a free port of 127.0.0.1, in threads of the tests' process."""

from __future__ import annotations

import contextlib
import http.client
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

import obstore
from moto.server import DomainDispatcherApplication, create_backend_app
from obstore.store import S3Store
from werkzeug.serving import BaseWSGIServer, make_server

__all__ = ["Bucket", "Reply", "S3Server", "s3_server"]

_REGION = "us-east-1"

Environment = dict[str, Any]
App = Callable[[Environment, Any], Iterable[bytes]]
Between = Callable[[Environment, Callable[[], "Reply"]], "Reply"]
"""Stands between clients and server: gets a request and what hands it on, returns the reply."""


class Reply:
    """A reply of the server's, or one in its place."""

    def __init__(self, status: str, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @classmethod
    def error(cls, status: str, code: str) -> Reply:
        """An error in S3's form."""
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
        return cls(status, [("Content-Type", "application/xml")], body.encode())


class Bucket:
    """A bucket of its own, and how Paimon's clients reach it."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.name = f"lake-{uuid.uuid4().hex[:12]}"
        self.options = {
            "warehouse": f"s3://{self.name}/warehouse",
            "s3.endpoint": endpoint,
            "s3.region": _REGION,
            "s3.access-key": "key",
            "s3.secret-key": "a-secret-key",
            "s3.path-style-access": "true",
        }
        self.store = S3Store(
            self.name,
            endpoint=endpoint,
            region=_REGION,
            access_key_id="key",
            secret_access_key="a-secret-key",
            client_options={"allow_http": True},
        )

    def objects(self, below: str = "") -> list[str]:
        """The keys of the objects below a folder, without the empty ones that mark folders."""
        pages = obstore.list(self.store, below)
        return sorted(meta["path"] for page in pages for meta in page if meta["size"])


class S3Server:
    """Can be stopped and started again on its port; its buckets stay. `between` may be changed."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.between: Between = lambda _, hand_on: hand_on()
        self._moto: App = DomainDispatcherApplication(create_backend_app)
        self._port = 0
        self.start()
        self.endpoint = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Take connections, after a stop on the same port."""
        self._server: BaseWSGIServer = make_server("127.0.0.1", self._port, self, threaded=True)
        self._server.daemon_threads = True
        self._port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Refuse connections; what was stored stays."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(20)

    def bucket(self) -> Bucket:
        """A new, empty bucket."""
        made = Bucket(self.endpoint)
        address = urlsplit(self.endpoint)
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=20)
        with contextlib.closing(connection):
            connection.request("PUT", f"/{made.name}", headers={"Content-Length": "0"})
            assert connection.getresponse().status == 200
        return made

    def __call__(self, environment: Environment, start_response: Any) -> Iterable[bytes]:
        reply = self.between(environment, lambda: self._handed_on(environment))
        start_response(reply.status, reply.headers)
        return [reply.body]

    def _handed_on(self, environment: Environment) -> Reply:
        answered: list[Any] = []
        body = self._moto(
            environment, lambda status, headers, *_: answered.extend((status, headers))
        )
        content = b"".join(body)
        return Reply(answered[0], answered[1], content)


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server until the end of the block."""
    server = S3Server()
    try:
        yield server
    finally:
        server.stop()
