"""The session that the benchmarks measure in: Spark as `paimon_magics.connect` starts it for a
notebook, and in it Paimon's Spark connector where the environment variable PAIMON_SPARK_JAR names
its jar.
"""

from __future__ import annotations

import os

import paimon_magics

__all__ = ["JAR", "SLOTS", "connect", "submit_arguments"]

JAR = os.environ.get("PAIMON_SPARK_JAR")
SLOTS = 2
_EXTENSIONS = "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions"
_CATALOG = "org.apache.paimon.spark.SparkCatalog"


def connect(folder: str, *, driver_memory: str = "2g") -> paimon_magics.Session:
    """Start Spark with a session on the warehouse `folder`. The connector, where there is one, has
    the warehouse as its catalog `connector`."""
    if JAR:
        os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments(folder)
    return paimon_magics.connect(
        folder, master=f"local[{SLOTS}]", driver_memory=driver_memory, coordinator="in-process"
    )


def submit_arguments(folder: str) -> str:
    """What PYSPARK_SUBMIT_ARGS is set to, so that a Spark that starts has the connector."""
    settings = {
        "spark.jars": JAR,
        "spark.sql.catalog.connector": _CATALOG,
        "spark.sql.catalog.connector.warehouse": folder,
        "spark.sql.extensions": _EXTENSIONS,
    }
    given = " ".join(f"--conf {key}={value}" for key, value in settings.items())
    return f"{given} pyspark-shell"
