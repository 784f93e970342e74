"""Azurite, Microsoft's emulator of Azure's Blob Storage, on a free port of 127.0.0.1.

It is found on PATH, else installed from npm's registry into `build/azurite`, which
`python -m tests.backends.azurite` does beforehand.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import obstore
import pyarrow.fs as pafs
import pytest
from obstore.store import AzureStore

__all__ = ["Azurite", "Container", "azurite", "install_azurite"]

_FOLDER = Path(__file__).parents[2] / "build" / "azurite"
_ACCOUNT = "devstoreaccount1"
# The key of the emulator's only account, as its documentation has it: no secret.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class Container:
    """A new container, with the options with which a catalog reaches it."""

    def __init__(self, port: int) -> None:
        self.name = f"lake-{uuid.uuid4().hex[:12]}"
        place = f"127.0.0.1:{port}"
        pafs.AzureFileSystem(
            _ACCOUNT,
            account_key=_KEY,
            blob_storage_authority=place,
            dfs_storage_authority=place,
            blob_storage_scheme="http",
            dfs_storage_scheme="http",
        ).create_dir(self.name)
        endpoint = f"http://{place}/{_ACCOUNT}"
        self.options = {
            "warehouse": f"abfs://{self.name}@{_ACCOUNT}.dfs.core.windows.net/warehouse",
            "azure.endpoint": endpoint,
            "azure.account-key": _KEY,
        }
        self.store = AzureStore(
            self.name,
            config={"account_name": _ACCOUNT, "account_key": _KEY, "endpoint": endpoint},
            client_options={"allow_http": True},
        )

    def objects(self, below: str = "") -> list[str]:
        """The keys of the objects below a folder, without empty ones."""
        pages = obstore.list(self.store, below)
        return sorted(meta["path"] for page in pages for meta in page if meta["size"])


class Azurite:
    """The emulator; a test has a container of its own."""

    def __init__(self, port: int) -> None:
        self._port = port

    def bucket(self) -> Container:
        """A new, empty container."""
        return Container(self._port)


def install_azurite() -> Path:
    """The program. Where it can't be had, the test ends here and says why."""
    found = shutil.which("azurite-blob")
    if found is not None:
        return Path(found)
    program = _FOLDER / "node_modules" / ".bin" / "azurite-blob"
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes of tests one installs
        if program.exists():
            return program
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("Azurite is not installed: no azurite-blob and no npm on PATH")
        command = [npm, "install", "--no-audit", "--no-fund", "--silent", "azurite@3"]
        done = subprocess.run(command, cwd=_FOLDER, capture_output=True, text=True, timeout=300)
        if done.returncode:
            pytest.skip(f"npm could not install Azurite: {done.stderr[-300:]}")
    return program


@contextlib.contextmanager
def azurite() -> Iterator[Azurite]:
    """The emulator until the end of the block; what was stored goes with it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    process = subprocess.Popen(
        [
            str(install_azurite()),
            *("--blobHost", "127.0.0.1", "--blobPort", str(port)),
            *("--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry"),
        ],
        stdout=subprocess.DEVNULL,
        env=os.environ | {"NODE_NO_WARNINGS": "1"},
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None and time.monotonic() < deadline, "Azurite did not start"
            time.sleep(0.05)
        yield Azurite(port)
    finally:
        process.kill()
        process.wait(20)


if __name__ == "__main__":
    print(install_azurite())
