"""An S3 server for tests: moto on a free port of 127.0.0.1, in threads of the tests' process."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import obstore
import pyarrow.fs as pafs
from moto.server import DomainDispatcherApplication, create_backend_app
from obstore.store import S3Store
from werkzeug.serving import BaseWSGIServer, make_server

__all__ = ["ANOTHER_SERVER", "Bucket", "Reply", "S3Server", "new_bucket", "s3_server"]

ANOTHER_SERVER = "PAIMON_MAGICS_TEST_S3"
"""The environment variable for another server, for tests that do a server no harm: a JSON object
with `endpoint`, `key` and `secret`."""

_REGION = "us-east-1"

Environment = dict[str, Any]
App = Callable[[Environment, Any], Iterable[bytes]]
Between = Callable[[Environment, Callable[[], "Reply"]], "Reply"]
"""A function between clients and server: it gets a request and a function that forwards it, and
returns the reply."""


class Reply:
    """A reply of the server, or a test's reply in its place."""

    def __init__(self, status: str, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @classmethod
    def error(cls, status: str, code: str) -> Reply:
        """An error in S3's form."""
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
        return cls(status, [("Content-Type", "application/xml")], body.encode())


class Bucket:
    """A new bucket, with the options with which Paimon's clients reach it."""

    def __init__(
        self, endpoint: str, key: str = "key", secret: str = "a-secret-key", suffix: str = ""
    ) -> None:
        self.name = f"lake-{uuid.uuid4().hex[:12]}{suffix}"
        pafs.S3FileSystem(
            endpoint_override=endpoint,
            region=_REGION,
            access_key=key,
            secret_key=secret,
            allow_bucket_creation=True,
        ).create_dir(self.name)
        self.options = {
            "warehouse": f"s3://{self.name}/warehouse",
            "s3.endpoint": endpoint,
            "s3.region": _REGION,
            "s3.access-key": key,
            "s3.secret-key": secret,
            "s3.path-style-access": "true",
        }
        self.store = S3Store(
            self.name,
            endpoint=endpoint,
            region=_REGION,
            access_key_id=key,
            secret_access_key=secret,
            client_options={"allow_http": True},
        )

    def objects(self, below: str = "") -> list[str]:
        """The keys of the objects below a folder, without the empty ones that mark folders."""
        pages = obstore.list(self.store, below)
        return sorted(meta["path"] for page in pages for meta in page if meta["size"])


class S3Server:
    """An S3 server that can be stopped and started again on its port; its buckets stay. A test may
    set `between`."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.between: Between = lambda _, hand_on: hand_on()
        self._moto: App = DomainDispatcherApplication(create_backend_app)
        self._one_at_a_time = threading.Lock()
        self._port = 0
        self.start()
        self.endpoint = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Take connections; after a stop, on the same port."""
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
        return Bucket(self.endpoint)

    def __call__(self, environment: Environment, start_response: Any) -> Iterable[bytes]:
        reply = self.reply(environment)
        start_response(reply.status, reply.headers)
        return [reply.body]

    def reply(self, environment: Environment) -> Reply:
        """The reply to a request."""
        return self.between(environment, lambda: self._handed_on(environment))

    def _handed_on(self, environment: Environment) -> Reply:
        answered: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
            answered.extend((status, headers))

        with self._one_at_a_time:  # moto fails on changes while it lists
            body = b"".join(self._moto(environment, start_response))
        return Reply(answered[0], answered[1], body)


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server until the end of the block."""
    server = S3Server()
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def new_bucket() -> Iterator[Bucket]:
    """A new bucket on the server of `ANOTHER_SERVER`, if set, else on a server for this block."""
    named = os.environ.get(ANOTHER_SERVER)
    if named is not None:
        yield Bucket(**json.loads(named))
        return
    with s3_server() as server:
        yield server.bucket()
