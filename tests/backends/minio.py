"""A MinIO server for tests, on a free port of 127.0.0.1: unlike moto it enforces policies.

`make soak RUNS=minio` builds the program, which takes some minutes, so CI does not; without it the
tests are skipped.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.backends.s3 import Bucket

__all__ = ["MinioServer", "minio", "minio_program"]

_KEY, _SECRET = "root-of-the-tests", "a-secret-of-the-tests"
_BUILT = (
    Path(__file__).parents[2] / "build" / "minio" / "bin" / "minio",
    Path.home() / "go" / "bin" / "minio",
)


class MinioServer:
    """The server; a test has a bucket of its own, whose options have the root's keys."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"

    def bucket(self) -> Bucket:
        """A new, empty bucket."""
        return Bucket(self.endpoint, _KEY, _SECRET)


def minio_program() -> str | None:
    """The program's path; None where there is none."""
    built = (str(program) for program in _BUILT if program.exists())
    return shutil.which("minio") or next(built, None)


@contextlib.contextmanager
def minio(folder: Path) -> Iterator[MinioServer]:
    """The server until the end of the block, with its files in `folder`. Skips where there is no
    MinIO."""
    program = minio_program()
    if program is None:
        pytest.skip("MinIO is not installed: no minio on PATH; `make soak RUNS=minio` builds it")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    process = subprocess.Popen(
        [program, "server", str(folder), "--address", f"127.0.0.1:{port}", "--quiet"],
        env=os.environ
        | {"MINIO_ROOT_USER": _KEY, "MINIO_ROOT_PASSWORD": _SECRET, "MINIO_BROWSER": "off"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        server = MinioServer(port)
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{server.endpoint}/minio/health/live").is_success:
                    break
            assert process.poll() is None and time.monotonic() < deadline, "MinIO did not start"
            time.sleep(0.1)
        yield server
    finally:
        process.kill()
        process.wait(20)
