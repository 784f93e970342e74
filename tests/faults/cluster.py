"""Runs `statement_driver` and its executors as processes that a test may kill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.backends.spark_home import spark_home
from tests.coordinator.process import Process

ROOT = Path(__file__).parents[2]
_GONE_SECONDS = 20


class DriverDiedError(Exception):
    """The driver ended before it answered."""


class Cluster:
    """A driver with its executors, one driver at a time. `bury` ends the processes that a killed
    driver has left."""

    def __init__(
        self, folder: Path, coordinator: Process, master: str = "local-cluster[2,1,1024]"
    ) -> None:
        self._folder = folder
        self._master = master
        self.coordinator = coordinator
        self._driver: subprocess.Popen[str] | None = None
        self._fault = folder / "fault"

    def arm(self, fault: str) -> None:
        """Set a fault `step=action` for the next process, driver or executor, that reaches it."""
        self._fault.write_text(fault)

    def is_armed(self) -> bool:
        """Whether no process has reached the step yet."""
        return self._fault.exists()

    def is_started(self) -> bool:
        """Whether a driver was started, and not buried since; it may have been killed."""
        return self._driver is not None

    def start(self) -> None:
        """Start a driver, and wait until it is connected."""
        self._folder.mkdir(exist_ok=True)
        environment = {
            "PAIMON_COORDINATOR": self.coordinator.address,
            "PAIMON_COORDINATOR_TOKEN": self.coordinator.token(),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._folder),
            "SPARK_HOME": str(spark_home(self._folder / "home")),
            "PAIMON_MAGICS_FAULTS": f"@{self._fault}",
        }
        with (self._folder / "driver.log").open("a") as log:
            self._driver = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.faults.statement_driver",
                    str(self._folder),
                    self._master,
                ],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert "connected" in self.answer()

    def send(self, sql: str | dict[str, Any]) -> None:
        assert self._driver is not None and self._driver.stdin is not None
        try:
            self._driver.stdin.write(json.dumps(sql) + "\n")
            self._driver.stdin.flush()
        except BrokenPipeError:
            raise DriverDiedError from None

    def answer(self) -> dict[str, Any]:
        """The answer to the statement that was sent. Raises DriverDiedError."""
        assert self._driver is not None and self._driver.stdout is not None
        line = self._driver.stdout.readline()
        if not line:
            raise DriverDiedError
        answer: dict[str, Any] = json.loads(line)
        return answer

    def run(self, sql: str | dict[str, Any]) -> dict[str, Any]:
        self.send(sql)
        return self.answer()

    def kill_executor(self, choice: int) -> bool:
        """Kill one of the executors; return False when there is none at the moment."""
        found = sorted(self._processes(b"CoarseGrainedExecutorBackend"))
        if not found:
            return False
        _kill(found[choice % len(found)])
        return True

    def kill_python(self, choice: int) -> bool:
        """Kill one of the Python processes that Spark has started: workers of tasks, their parents,
        and what plans a stream's batches. Return False when there is none at the moment."""
        found = sorted({*self._processes(b"pyspark.daemon"), *self._processes(b"source_runner")})
        if not found:
            return False
        _kill(found[choice % len(found)])
        return True

    def kill_jvm(self) -> None:
        """Kill the driver's JVM, which its Python process started."""
        for process in self._processes(b"org.apache.spark.deploy.SparkSubmit"):
            _kill(process)

    def kill_driver(self) -> None:
        """Kill the driver's Python process, as an out-of-memory killer would."""
        assert self._driver is not None
        _kill(self._driver.pid)

    def bury(self) -> None:
        """Kill the driver, and wait until its processes are gone; after a while, kill them, too."""
        if self._driver is None:
            return
        deadline = time.monotonic() + _GONE_SECONDS
        _kill(self._driver.pid)
        self._driver.communicate()
        while left := self._processes(b""):
            if time.monotonic() > deadline:
                for process in left:
                    _kill(process)
            time.sleep(0.1)
        self._driver = None

    def _processes(self, command: bytes) -> list[int]:
        """The processes of the driver's session with `command` in their command lines, at any
        depth of descent."""
        assert self._driver is not None
        result = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                words = (folder / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == self._driver.pid and fields[0] != "Z" and command in words:
                result.append(int(folder.name))
        return result


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
