"""PySpark's daemon, with the modules of our tasks already imported.

Spark forks its Python processes from a daemon, and ends those that were idle for a minute. Each new
process would import Paimon's libraries, pandas and PyArrow again: half a second or more of a core,
at the first read after every pause. A Spark that `paimon_magics.spark.sessions.start` starts has
this daemon; for another one, `spark.python.daemon.module` names it.

A Spark Connect server has a daemon for each session, and keeps it after the session. There it ends
by itself when nothing was forked from it for a while (`IDLE_SECONDS`); Spark starts another one for
the next task.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

MODULE = "paimon_magics.spark.python_daemon"
"""What `spark.python.daemon.module` is set to."""

_LOADED = (
    "pandas",
    "pyarrow.dataset",
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
    "pypaimon_rust",
    "pyspark.worker",
    "paimon_magics.spark.rows",
    "paimon_magics.spark.python_workers",
    "paimon_magics.spark.reading",
    "paimon_magics.spark.task_units",
    "paimon_magics.spark.writing",
    "paimon_magics.tables.reading.spark_batches",
    "paimon_magics.tables.writing.native_writer",
    "paimon_magics.tables.writing.writer",
)
_ARCHIVE = os.path.join("pyspark", "python", "lib", "pyspark.zip")


def unpacked(path: Sequence[str]) -> list[str]:
    """The folders and archives of `path` without the archive of a PySpark that is installed in one
    of the folders as well. Spark puts it first; modules of archives are compiled at every start."""
    doubled = {os.path.join(folder, _ARCHIVE) for folder in path}
    return [place for place in path if place not in doubled]


IDLE_SECONDS = "PAIMON_MAGICS_PYTHON_IDLE_SECONDS"
"""The environment variable that says how long a daemon stays without a process of its own; without
it, as long as Spark."""

_LOOKS = 4  # while it is idle


def end_when_idle(seconds: float) -> None:
    """End this process as Spark would, once it has had no child for so long and none is wanted."""
    idle_since = time.monotonic()

    def look(*_: object) -> None:
        nonlocal idle_since
        now, own = time.monotonic(), os.getpid()
        children = Path(f"/proc/{own}/task/{own}/children").read_text()
        if children or _is_wanted():
            idle_since = now
        elif now - idle_since > seconds:
            os.kill(own, signal.SIGTERM)

    signal.signal(signal.SIGALRM, look)  # a process that is forked has no timer
    signal.setitimer(signal.ITIMER_REAL, seconds / _LOOKS, seconds / _LOOKS)


def _is_wanted() -> bool:
    """Whether somebody has connected whom nobody has answered yet."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as opened:
            listens = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if listens and select.select([opened], [], [], 0)[0]:
                return True
    return False


def _load() -> None:
    for module in _LOADED:
        # A task that needs a missing module raises a visible error.
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    sys.path[:] = unpacked(sys.path)
    # Spark reads the daemon's port from its output.
    with contextlib.redirect_stdout(sys.stderr):
        _load()
    from pyspark.daemon import manager

    if IDLE_SECONDS in os.environ:
        end_when_idle(float(os.environ[IDLE_SECONDS]))
    manager()
