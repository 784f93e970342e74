"""Toxiproxy: connections between processes that a test cuts and slows.

The server is found on PATH as `toxiproxy-server`, or where `make soak` builds it.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

__all__ = ["Link", "Toxiproxy", "free_port", "toxiproxy"]

_BUILT = Path(__file__).parents[2] / "build" / "toxiproxy" / "bin" / "server"


class Toxiproxy:
    """The server, on a port of 127.0.0.1."""

    def __init__(self, program: str) -> None:
        port = free_port()
        self._process = subprocess.Popen(
            [program, "-host", "127.0.0.1", "-port", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False)
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(httpx.HTTPError):
                self._http.get("/version")
                return
            assert time.monotonic() < deadline, "toxiproxy does not answer"
            time.sleep(0.05)

    def link(self, name: str, to_port: int) -> Link:
        """A new port of 127.0.0.1 that leads to another one of it."""
        return Link(self._http, name, to_port)

    def close(self) -> None:
        self._http.close()
        self._process.kill()
        self._process.wait()


class Link:
    """A port, through which a server is reached until the link is cut."""

    def __init__(self, http: httpx.Client, name: str, to_port: int) -> None:
        self._http = http
        self._path = f"/proxies/{name}"
        self.port = free_port()
        document = {
            "name": name,
            "listen": f"127.0.0.1:{self.port}",
            "upstream": f"127.0.0.1:{to_port}",
            "enabled": True,
        }
        self._ask("/proxies", document)

    def cut(self) -> None:
        """End all connections, and take no more."""
        self._ask(self._path, {"enabled": False})

    def drop(self) -> None:
        """Let nothing through, while connections seem to be open: packets that are lost."""
        for stream in ("upstream", "downstream"):
            toxic = {"type": "timeout", "stream": stream, "attributes": {"timeout": 0}}
            self._ask(f"{self._path}/toxics", {"name": f"drop-{stream}", **toxic})

    def slow(self, latency_ms: int, jitter_ms: int) -> None:
        """Delay what goes either way."""
        attributes = {"latency": latency_ms, "jitter": jitter_ms}
        for stream in ("upstream", "downstream"):
            toxic = {"type": "latency", "stream": stream, "attributes": attributes}
            self._ask(f"{self._path}/toxics", {"name": f"slow-{stream}", **toxic})

    def mend(self) -> None:
        """Let everything through again."""
        for toxic in self._http.get(f"{self._path}/toxics").json():
            self._http.delete(f"{self._path}/toxics/{toxic['name']}").raise_for_status()
        self._ask(self._path, {"enabled": True})

    def _ask(self, path: str, document: dict[str, object]) -> None:
        self._http.post(path, json=document).raise_for_status()


@contextlib.contextmanager
def toxiproxy() -> Iterator[Toxiproxy]:
    """A server; the test is skipped where there is no program."""
    program = shutil.which("toxiproxy-server") or (str(_BUILT) if _BUILT.exists() else None)
    if program is None:
        pytest.skip("toxiproxy-server is not on PATH, and `make soak` has not built it")
    server = Toxiproxy(program)
    try:
        yield server
    finally:
        server.close()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on. The kernel gives it to no connection while a
    server that was killed is started again: it lies below those that it gives away."""
    while True:
        port = random.randrange(15_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
