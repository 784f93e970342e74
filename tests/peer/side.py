"""Runs scenarios on one side and writes what each step came to: `side.py SCENARIOS OUTCOMES …`.

With `--connector JAR` that is Paimon's connector, and the Python needs no more than the PySpark
that the connector was made for; otherwise it is a session of paimon_magics. Outcomes are lines of
JSON, one a scenario, appended: scenarios that the file has are not run again.
"""

from __future__ import annotations

import argparse
import datetime
import decimal
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

DATABASE = "test"
_ROWS = 300
_SECONDS = 120
_QUERIES = (
    "SELECT",
    "WITH",
    "SHOW",
    "DESC",
    "DESCRIBE",
    "CALL",
    "EXPLAIN",
    "VALUES",
    "TABLE",
)
_Run = Callable[[str], DataFrame | None]


def main() -> int:
    """Run the scenarios that have no outcome yet; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("scenarios", type=Path)
    parser.add_argument("outcomes", type=Path)
    parser.add_argument("--connector", help="the connector's jar")
    arguments = parser.parse_args()
    os.environ["TZ"] = "UTC"
    time.tzset()
    ran = set()
    if arguments.outcomes.exists():
        ran = {json.loads(line)["name"] for line in arguments.outcomes.read_text().splitlines()}
    scenarios = [
        each for each in json.loads(arguments.scenarios.read_text()) if each["name"] not in ran
    ]
    with tempfile.TemporaryDirectory(prefix="peer-") as folder:
        spark = _spark(arguments.connector, Path(folder))
        with arguments.outcomes.open("a") as lines:
            for number, scenario in enumerate(scenarios):
                warehouse = Path(folder, str(number))
                warehouse.mkdir()
                steps = _outcomes(spark, scenario["steps"], warehouse, bool(arguments.connector))
                lines.write(json.dumps({"name": scenario["name"], "steps": steps}) + "\n")
                lines.flush()
        spark.stop()
    return 0


def _spark(connector: str | None, folder: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "spark"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.log.level", "OFF")
    )
    if connector:
        extensions = "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions"
        builder = (
            builder.config("spark.jars", connector)
            .config("spark.sql.extensions", extensions)
            .config("spark.sql.catalog.paimon", "org.apache.paimon.spark.SparkCatalog")
            .config("spark.sql.catalog.paimon.warehouse", str(folder / "none"))
            # A cached table keeps its schema when a write has changed that.
            .config("spark.sql.catalog.paimon.cache-enabled", "false")
        )
    return builder.getOrCreate()


def _outcomes(
    spark: SparkSession, steps: list[dict[str, Any]], warehouse: Path, is_connector: bool
) -> list[dict[str, Any]]:
    """What the steps of a scenario came to, in a Spark session and a warehouse of its own."""
    session = spark.newSession()
    run, close = (_connector if is_connector else _project)(session, warehouse)
    try:
        run(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
        run(f"USE {DATABASE}")
        return [_outcome(session, run, step) for step in steps]
    finally:
        close()


def _connector(session: SparkSession, warehouse: Path) -> tuple[_Run, Callable[[], None]]:
    session.conf.set("spark.sql.catalog.paimon.warehouse", str(warehouse))
    session.sql("USE paimon")

    def run(statement: str) -> DataFrame | None:
        frame = session.sql(statement)
        is_query = statement.split(None, 1)[0].upper() in _QUERIES
        return frame if frame.columns or is_query else None

    return run, lambda: None


def _project(session: SparkSession, warehouse: Path) -> tuple[_Run, Callable[[], None]]:
    import paimon_magics

    connected = paimon_magics.connect(
        warehouse=str(warehouse), spark=session, coordinator="in-process", store_assignment="ansi"
    )
    return lambda statement: connected.run(statement).dataframe, connected.close


def _outcome(session: SparkSession, run: _Run, step: dict[str, Any]) -> dict[str, Any]:
    timer = threading.Timer(_SECONDS, session.sparkContext.cancelAllJobs)
    timer.start()
    try:
        if "conf" in step:
            for key, value in step["conf"].items():
                if value is None:
                    session.conf.unset(key)
                else:
                    session.conf.set(key, value)
            return {}
        frame = run(step["sql"])
        if frame is None or not frame.columns:
            return {}
        rows = [_plain(list(row)) for row in frame.collect()]
        types = [[each.name, each.dataType.simpleString()] for each in frame.schema.fields]
        return {"columns": types, "rows": rows[:_ROWS], "count": len(rows)}
    except Exception as error:
        return {"error": str(error)[:700]}
    finally:
        timer.cancel()


def _plain(value: Any) -> Any:
    """A value as JSON that tells apart what differs."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, decimal.Decimal):
        return {"decimal": str(value)}
    if isinstance(value, datetime.date):
        return {"time": value.isoformat()}
    if isinstance(value, bytes | bytearray):
        return {"bytes": value.hex()}
    if isinstance(value, dict):
        return {"map": sorted(([_plain(k), _plain(v)] for k, v in value.items()), key=json.dumps)}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return {"other": str(value)}


if __name__ == "__main__":
    sys.exit(main())
