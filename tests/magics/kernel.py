"""A Jupyter kernel of the tests' own, spoken to as a frontend does."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

_SECONDS_MAX = 120
_DUMP_SECONDS = 2
ROOT = Path(__file__).parents[2]


@dataclass
class Done:
    """What a cell came to. `displays` are the outputs that stay, as a notebook would save them,
    `updates` everything that was shown on the way; `told` the lines of progress, each with the
    seconds at which it came; `error` is what the traceback says."""

    error: str = ""
    printed: str = ""
    displays: list[dict[str, Any]] = field(default_factory=list)
    updates: list[dict[str, Any]] = field(default_factory=list)
    told: list[tuple[float, str]] = field(default_factory=list)
    seconds: float = 0.0


class Kernel:
    """A kernel that runs in `folder`, in a process of its own."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.cell_seconds_max = _SECONDS_MAX
        aside = folder / "aside"
        aside.mkdir()
        self._manager = KernelManager(kernel_name="python3")
        self._manager.start_kernel(
            cwd=str(folder),
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "widgets")]),
                "PYSPARK_PYTHON": sys.executable,
                "IPYTHONDIR": str(folder / "ipython"),
                "PAIMON_COORDINATOR": "in-process",
                "XDG_STATE_HOME": str(folder / "state"),
                "PYTHONFAULTHANDLER": "1",
                "SPARK_LOCAL_IP": "127.0.0.1",
                "TMPDIR": str(aside),
                "SPARK_LOCAL_DIRS": str(aside),
                "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={aside}",
                **environment,
            },
        )
        self.pid = int(self._manager.provisioner.pid)
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=_SECONDS_MAX)

    def kill(self) -> None:
        """What the kernel of a machine out of memory does: it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        self._client.stop_channels()

    def cull(self) -> None:
        """End it as a server does that nobody has used for a while."""
        self._client.stop_channels()
        self._manager.shutdown_kernel()

    def stop(self) -> None:
        group = self._manager.provisioner.pgid
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        # Its JVM, too, which is not told of a kernel that is killed.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)

        # And a coordinator, which outlives what has started it.
        for announced in self.folder.glob("state/paimon-magics/*/running.json"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(json.loads(announced.read_text())["pid"], signal.SIGTERM)

    def _show_where_it_is(self) -> None:
        """Print the stacks of the kernel's threads and of its JVM's, and end it: the cells that
        come next fail at once."""
        provisioner = self._manager.provisioner
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                of_it = os.getpgid(int(folder.name)) == provisioner.pgid
                if of_it and (folder / "comm").read_text() == "java\n":
                    os.kill(int(folder.name), signal.SIGQUIT)
        time.sleep(_DUMP_SECONDS)
        os.kill(provisioner.pid, signal.SIGABRT)  # Python's faulthandler is enabled
        while self._manager.is_alive():
            time.sleep(0.1)

    def interrupt(self) -> None:
        """What the stop button does."""
        self._manager.interrupt_kernel()

    def run(self, code: str) -> Done:
        """Run a cell that must succeed."""
        done = self.execute(code)
        assert not done.error, done.error
        return done

    def execute(
        self, code: str, *, attended: bool = True, meanwhile: Callable[[Done], bool] | None = None
    ) -> Done:
        """Run a cell. While it runs, `meanwhile` is called, with what came so far, until it returns
        True."""
        assert self._manager.is_alive(), "an earlier cell did not end"
        done = Done()
        started = time.monotonic()
        message = self._client.execute(code, allow_stdin=attended)
        shown: dict[str, dict[str, Any]] = {}
        while True:
            if time.monotonic() > started + self.cell_seconds_max:
                self._show_where_it_is()
                raise AssertionError(f"{code!r} has not ended, after {done}")
            if meanwhile is not None and meanwhile(done):
                meanwhile = None
            try:
                news = self._client.get_iopub_msg(timeout=0.02)
            except queue.Empty:
                continue
            if news["parent_header"].get("msg_id") != message:
                continue
            content = news["content"]
            match news["msg_type"]:
                case "comm_open" | "comm_msg":
                    text = content["data"].get("state", {}).get("text")
                    if text is not None:
                        done.told.append((time.monotonic() - started, text))
                case "stream":
                    done.printed += content["text"]
                case "error":
                    done.error = "\n".join(content["traceback"])
                case "display_data" | "execute_result" | "update_display_data":
                    done.updates.append(content["data"])
                    id = content.get("transient", {}).get("display_id")
                    if news["msg_type"] == "update_display_data":
                        shown[id].clear()
                        shown[id].update(content["data"])
                    else:
                        done.displays.append(dict(content["data"]))
                        if id is not None:
                            shown[id] = done.displays[-1]
                case "status" if content["execution_state"] == "idle":
                    done.seconds = time.monotonic() - started
                    return done
