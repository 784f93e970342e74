"""fake-gcs-server, an emulator of Google Cloud Storage, and what it lacks of the XML interface.

The emulator has uploads, and their conditions, in Google's JSON interface only; the client that the
project uses has both in the XML interface. So a server before it passes an upload on in the other
form: the object, its metadata and its condition are the same, and the emulator decides. Everything
else is passed on as it is.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import shutil
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import obstore
import pytest
from obstore.store import GCSStore
from werkzeug.serving import make_server

__all__ = ["FakeGcs", "GcsBucket", "fake_gcs"]

_PROGRAM = "fake-gcs-server"
_BUILT = Path(__file__).parents[2] / "build" / _PROGRAM / "bin" / _PROGRAM
_TOKEN = "the-emulator-takes-any"
_METADATA = "HTTP_X_GOOG_META_"
_CONDITION = "HTTP_X_GOOG_IF_GENERATION_MATCH"
_OF_THE_CONNECTION = ("connection", "transfer-encoding", "keep-alive", "content-length", "date")

Environment = dict[str, Any]
_Answer = tuple[int, list[tuple[str, str]], bytes]


class GcsBucket:
    """A new bucket, with the options with which a catalog reaches it."""

    def __init__(self, endpoint: str, name: str) -> None:
        self.name = name
        self.options = {
            "warehouse": f"gs://{name}/warehouse",
            "gcs.endpoint": endpoint,
            "gcs.access-token": _TOKEN,
        }
        self.store = GCSStore(
            name,
            config={"base_url": endpoint},
            credential_provider=lambda: {"token": _TOKEN, "expires_at": None},
            client_options={"allow_http": True},
        )

    def objects(self, below: str = "") -> list[str]:
        """The keys of the objects below a folder, without empty ones."""
        pages = obstore.list(self.store, below)
        return sorted(meta["path"] for page in pages for meta in page if meta["size"])


class FakeGcs:
    """The emulator on a port of its own, and the server before it. `keeps_conditions` may be
    unset: then the condition of an upload is dropped, as a server does that does not know it."""

    def __init__(self, port: int) -> None:
        self.keeps_conditions = True
        self._port = port
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = make_server("127.0.0.1", 0, self, threaded=True)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more connections."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(20)

    def bucket(self) -> GcsBucket:
        """A new, empty bucket."""
        name = f"lake-{uuid.uuid4().hex[:12]}"
        body = json.dumps({"name": name}).encode()
        headers = {"Content-Type": "application/json"}
        status, _, said = self._asked("POST", "/storage/v1/b?project=p", headers, body)
        assert status == 200, said
        return GcsBucket(self.endpoint, name)

    def __call__(self, environment: Environment, start_response: Any) -> Iterable[bytes]:
        body = environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
        method = environment["REQUEST_METHOD"]
        if method == "PUT" and not environment.get("QUERY_STRING"):
            status, headers, said = self._uploaded(environment, body)
        else:
            passed = {
                name.removeprefix("HTTP_").replace("_", "-"): value
                for name, value in environment.items()
                if name.startswith("HTTP_") and name not in ("HTTP_HOST", "HTTP_CONNECTION")
            }
            target = environment["RAW_URI"]
            status, headers, said = self._asked(method, target, passed, body)
        kept = [(name, value) for name, value in headers if name.lower() not in _OF_THE_CONNECTION]
        length = dict((name.lower(), value) for name, value in headers).get("content-length")
        kept.append(("Content-Length", length if method == "HEAD" and length else str(len(said))))
        start_response(f"{status} {http.client.responses.get(status, '?')}", kept)
        return [said]

    def _uploaded(self, environment: Environment, body: bytes) -> _Answer:
        """Pass a PUT of the XML interface on as an upload of the JSON interface."""
        path = environment["PATH_INFO"].encode("latin-1").decode()
        bucket, _, name = path.lstrip("/").partition("/")
        metadata = {
            key.removeprefix(_METADATA).lower().replace("_", "-"): value
            for key, value in environment.items()
            if key.startswith(_METADATA)
        }
        edge = uuid.uuid4().hex
        described = json.dumps({"name": name, "metadata": metadata}).encode()
        parts = (
            f"--{edge}\r\nContent-Type: application/json\r\n\r\n".encode() + described,
            f"\r\n--{edge}\r\nContent-Type: application/octet-stream\r\n\r\n".encode() + body,
            f"\r\n--{edge}--\r\n".encode(),
        )
        target = f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart&name={quote(name, safe='')}"
        condition = environment.get(_CONDITION)
        if condition is not None and self.keeps_conditions:
            target += f"&ifGenerationMatch={condition}"
        headers = {"Content-Type": f"multipart/related; boundary={edge}"}
        status, found, said = self._asked("POST", target, headers, b"".join(parts))
        etag = json.loads(said).get("etag", "") if status == 200 else ""
        return status, [*found, ("ETag", f'"{etag}"')], said

    def _asked(self, method: str, target: str, headers: dict[str, str], body: bytes) -> _Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(method, target, body or None, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


@contextlib.contextmanager
def fake_gcs() -> Iterator[FakeGcs]:
    """The emulator until the end of the block; what was stored goes with it."""
    program = shutil.which(_PROGRAM) or (str(_BUILT) if _BUILT.exists() else None)
    if program is None:
        pytest.skip(f"{_PROGRAM} is not on PATH; `make {_BUILT.relative_to(_BUILT.parents[3])}`")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    process = subprocess.Popen(
        [
            *(program, "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1"),
            *("-port", str(port), "-public-host", f"127.0.0.1:{port}", "-log-level", "error"),
        ],
        stderr=subprocess.DEVNULL,
        env=dict(os.environ),
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None and time.monotonic() < deadline, "it did not start"
            time.sleep(0.05)
        server = FakeGcs(port)
        try:
            yield server
        finally:
            server.close()
    finally:
        process.kill()
        process.wait(20)
