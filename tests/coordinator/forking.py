"""Starts Python programs as processes of their own, without the time for imports.

Importing Paimon's libraries takes a process more than a second, and the tests start hundreds of
processes. Here one process imports them, and every other is forked from it before it has done
anything else. So each has the same code and its own memory, and can be killed alone.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection

import paimon_magics.faults

__all__ = ["FORKING", "Forked"]

FORKING = multiprocessing.get_context("forkserver")
"""Makes processes that call a function, as `FORKING.Process(target=…)`."""

# Without the programs themselves: each process runs its program as `__main__`.
FORKING.set_forkserver_preload(
    [
        "__main__",
        "paimon_magics.coordinator.process.succession",
        "paimon_magics.coordinator.http.hub",
        "paimon_magics.coordinator.rest.catalog",
        "paimon_magics.coordinator.client.remote",
        "paimon_magics.coordinator.store.sqlite",
        "paimon_magics.tables.writing.native_writer",
        "paimon_magics.tables.stores.object_store",
        "paimon_magics.tables.writing.writer",
        "uvicorn",
        "uvicorn.protocols.http.h11_impl",
    ]
)


class Forked:
    """A process of `python -m module arguments`, with the part of `subprocess.Popen` tests use.

    Its input and output are pipes. Its error stream is this process's present one. `environment` is
    its environment; None means this process's.
    """

    def __init__(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        # As `subprocess` does; multiprocessing raises no audit event.
        sys.audit("subprocess.Popen", module, arguments, None, environment)
        output, its_output = FORKING.Pipe(duplex=False)
        its_input, input = FORKING.Pipe(duplex=False)
        its_streams = (its_input, its_output, Connection(os.dup(2), readable=False))
        given = dict(os.environ if environment is None else environment)
        self._process = FORKING.Process(
            target=_run, args=(module, list(arguments), given, its_streams), daemon=True
        )
        self._process.start()
        for stream in its_streams:
            stream.close()
        assert self._process.pid is not None
        self.pid: int = self._process.pid
        self.stdin = os.fdopen(os.dup(input.fileno()), "w")
        self.stdout = os.fdopen(os.dup(output.fileno()))
        input.close()
        output.close()

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The same as `returncode`."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return the exit code. Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Wait for its end and return its output. Raises subprocess.TimeoutExpired."""
        if not self.stdin.closed:
            self.stdin.close()
        self.wait(timeout)
        if self.stdout.closed:
            return "", None
        with self.stdout:
            return self.stdout.read(), None

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)


def _run(
    module: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    streams: Sequence[Connection],
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    importlib.reload(paimon_magics.faults)  # it reads the environment
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    sys.stdin = os.fdopen(0, closefd=False)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
