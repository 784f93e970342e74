"""PySpark's daemon, with the modules of our tasks already imported.

Spark forks its Python processes from a daemon, and ends those that were idle for a minute. Each new
process would import Paimon's libraries, pandas and PyArrow again: half a second or more of a core,
at the first read after every pause. A Spark that `paimon_magics.spark.sessions.start` starts has
this daemon; for another one, `spark.python.daemon.module` names it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Sequence

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

    manager()
