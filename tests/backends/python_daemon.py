"""PySpark's daemon for the tests' Spark sessions, with the tasks' modules already imported.

Spark forks a Python process from it for each task that finds no idle one, and each would import
Paimon's libraries, pandas and PyArrow: more than a second of CPU time.
"""

from __future__ import annotations

import gc
import importlib

__all__: list[str] = []

_LOADED = (
    "pandas",
    "pyarrow.dataset",
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
    "pypaimon_rust",
    "pyspark.worker",
    "paimon_magics.spark.combining",
    "paimon_magics.spark.python_workers",
    "paimon_magics.spark.reading",
    "paimon_magics.spark.task_units",
    "paimon_magics.spark.writing",
    "paimon_magics.tables.reading.spark_batches",
    "paimon_magics.tables.writing.native_writer",
    "paimon_magics.tables.writing.writer",
)

if __name__ == "__main__":
    from pyspark.daemon import manager

    for module in _LOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    manager()
