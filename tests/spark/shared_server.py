"""A Spark Connect server that notebooks share, as `paimon-spark-connect` starts it, with a
coordinator and with notebooks in real kernels."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.backends.jvm import CLASS_ARCHIVE
from tests.coordinator.process import Process
from tests.magics.kernel import Kernel

__all__ = ["Place", "SharedServer", "family", "family_mb", "shared_place"]

# As of the tests' other JVMs, without a collector that returns no memory.
_JAVA = f"-XX:TieredStopAtLevel=1 -XX:SharedArchiveFile={CLASS_ARCHIVE} -Xlog:disable"


class SharedServer:
    """A server in `folder`, which is its $TMPDIR, on a port that stays. `settings` are Spark's,
    beside those that it has by default."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        folder.mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.address = f"sc://127.0.0.1:{self.port}"
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        words = [sys.executable, "-m", "paimon_magics.spark.connect_server", f"--port={self.port}"]
        for name, value in self._settings.items():
            words += ["--conf", f"{name}={value}"]
        self._process = subprocess.Popen(
            words,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "SPARK_SUBMIT_OPTS": _JAVA,
                "TMPDIR": str(self.folder),
                **(environment or {}),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == f"Spark Connect server at {self.address}\n", line

    def stop(self) -> None:
        """End it as a supervisor does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.communicate(timeout=60)
            self._process = None

    def files(self) -> list[str]:
        """The files of sessions: artifacts, that is rows and code that notebooks have sent."""
        places = self.folder.glob("paimon-magics-connect-*/**/artifacts-*/**/*")
        return sorted(str(place) for place in places if place.is_file())


@dataclass
class Place:
    """A server, a coordinator, and the notebooks that use both."""

    folder: Path
    server: SharedServer
    coordinator: Process
    notebooks: list[Kernel] = field(default_factory=list)

    def notebook(self) -> Kernel:
        """Another notebook, connected. Raises AssertionError if it can't be."""
        folder = self.folder / f"notebook-{time.monotonic_ns()}"
        folder.mkdir()
        kernel = Kernel(
            folder,
            SPARK_REMOTE=self.server.address,
            PAIMON_COORDINATOR=self.coordinator.address,
            PAIMON_COORDINATOR_TOKEN=self.coordinator.token(),
        )
        self.notebooks.append(kernel)
        kernel.run("%load_ext paimon_magics\nimport paimon_magics")
        kernel.run("%paimon connect")
        return kernel

    def close(self) -> None:
        for kernel in self.notebooks:
            kernel.stop()
        self.server.stop()
        self.coordinator.close()


@contextmanager
def shared_place(
    folder: Path, settings: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> Iterator[Place]:
    """A server with these settings and a coordinator, until the end of the block. `environment` is
    the server's, beside that of the tests."""
    server = SharedServer(folder / "server", settings)
    place = Place(folder, server, Process(folder / "warehouse", folder / "state"))
    try:
        with ThreadPoolExecutor(1) as aside:
            starting = aside.submit(server.start, environment)
            place.coordinator.start()
            starting.result()
        yield place
    finally:
        place.close()


def family(pid: int) -> list[int]:
    """A process and its descendants that are there."""
    members = [pid]
    for member in members:
        for thread in Path(f"/proc/{member}/task").glob("*/children"):
            with suppress(OSError):  # it has ended
                members += map(int, thread.read_text().split())
    return members


def family_mb(pid: int) -> float:
    """The memory of a process and its descendants, in MB: the sum of their shares (PSS)."""
    size_kb = 0
    for member in family(pid):
        with suppress(OSError):
            for line in Path(f"/proc/{member}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    size_kb += int(line.split()[1])
    return size_kb / 1000
