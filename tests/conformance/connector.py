"""Runs statements through Paimon's own Spark connector, against the coordinator and against the
connector's catalog of a file system, and tells where they differ.

    python tests/conformance/connector.py --connector JAR [--python PYTHON] [SCENARIO…]

The program needs a Python with the PySpark that the connector was made for; `--python` is one in
which paimon_magics is installed and that runs the coordinator. Each file of `statements/` is a
scenario in a database of its own, one statement a line:

    -- wait 2                               seconds in which the coordinator looks at the tables
    -- at is the time of snapshot 3 of t    {at} in a later statement is that time in milliseconds

`{catalog}` is the catalog's name and `{elsewhere}` a folder outside of the warehouse. What is
allowed to differ stands in differences.json, with reasons; a difference that does not occur is told
as well. Two refusals in different words are equal: the coordinator has its own.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

HERE = Path(__file__).parent
WAIT = re.compile(r"-- wait (\d+)")
TIME = re.compile(r"-- (\w+) is the time of snapshot (\d+) of (\w+)")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# What a catalog adds to a table's properties by itself.
ADDED = {"path", "owner", "createdAt", "createdBy", "updatedAt", "updatedBy"}
REFUSED = "refused"


@dataclass
class Backend:
    """One of the two catalogs. `seen` holds (scenario, step): what came of each statement, and of
    looking at each table at the end."""

    name: str
    warehouse: Path
    conf: dict[str, str]
    seen: dict[tuple[str, str], Any] = field(default_factory=dict)

    def run(self, spark: SparkSession, scenario: str, lines: list[str]) -> None:
        """Run a scenario's statements in a database of its own."""
        spark.catalog.setCurrentCatalog(self.name)
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {self.name}.`{scenario}`")
        spark.sql(f"USE {self.name}.`{scenario}`")
        given = {"catalog": self.name, "elsewhere": str(self.warehouse.parent / "elsewhere")}
        for number, line in enumerate(lines):
            if wait := WAIT.fullmatch(line):
                time.sleep(int(wait[1]))
            elif at := TIME.fullmatch(line):
                query = f"SELECT commit_time FROM `{at[3]}$snapshots` WHERE snapshot_id = {at[2]}"
                (row,) = spark.sql(
                    f"SELECT unix_millis(CAST(commit_time AS TIMESTAMP)) FROM ({query})"
                ).collect()
                given[at[1]] = str(row[0])
            else:
                again = f" ({before + 1})" if (before := lines[:number].count(line)) else ""
                self.seen[scenario, line + again] = self._outcome(spark, _filled(line, given))
        for query in self._looks(spark):
            self.seen[scenario, f"at the end: {query}"] = self._outcome(spark, query)

    def _looks(self, spark: SparkSession) -> Iterator[str]:
        for (table,) in sorted(spark.sql("SHOW TABLES").select("tableName").collect()):
            for query in (
                "SELECT * FROM `{}`",
                "SHOW TBLPROPERTIES `{}`",
                "SELECT snapshot_id, schema_id, commit_kind, total_record_count,"
                " delta_record_count, changelog_record_count FROM `{}$snapshots`",
                "SELECT tag_name, snapshot_id, schema_id, record_count FROM `{}$tags`",
                "SELECT branch_name FROM `{}$branches`",
                "SELECT schema_id, fields, partition_keys, primary_keys FROM `{}$schemas`",
            ):
                yield query.format(table)

    def _outcome(self, spark: SparkSession, statement: str) -> Any:
        try:
            rows = spark.sql(statement).collect()
        except Exception:
            return REFUSED
        values = [self._plain(row) for row in rows]
        values = [value for value in values if not (value and value[0] in ADDED)]
        return values if "ORDER BY" in statement else sorted(values, key=json.dumps)

    def _plain(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, dict):
            return sorted([str(key), self._plain(one)] for key, one in value.items())
        if isinstance(value, list | tuple):
            return [self._plain(one) for one in value]
        text = str(value).replace("file:", "").replace(str(self.warehouse.parent), "<folder>")
        return UUID.sub("<uuid>", re.sub(rf"\b{self.name}\b", "<catalog>", text))


def _filled(line: str, given: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: given.get(found[1], found[0]), line)


def _session(connector: str, backends: list[Backend]) -> SparkSession:
    catalog, extensions = "org.apache.paimon.spark.SparkCatalog", "PaimonSparkSessionExtensions"
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", connector)
        .config("spark.sql.extensions", f"org.apache.paimon.spark.extensions.{extensions}")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.log.level", "OFF")
    )
    for backend in backends:
        builder = builder.config(f"spark.sql.catalog.{backend.name}", catalog)
        for key, value in backend.conf.items():
            builder = builder.config(f"spark.sql.catalog.{backend.name}.{key}", value)
    return builder.getOrCreate()


def _told(scenarios: list[str], files: Backend, served: Backend) -> list[str]:
    """What differs and is not allowed to, and what is allowed to and does not."""
    allowed = json.loads((HERE / "differences.json").read_text())
    expected = {
        (one["scenario"], step)
        for one in allowed
        if one["scenario"] in scenarios
        for step in one["steps"]
    }
    differing = {
        key
        for key in files.seen.keys() | served.seen.keys()
        if files.seen.get(key) != served.seen.get(key)
    }
    lines = []
    for key in sorted(differing - expected):
        lines += [
            f"{key[0]}: {key[1]}",
            *(
                f"    {backend.name}: {json.dumps(backend.seen.get(key))[:400]}"
                for backend in (files, served)
            ),
        ]
    lines += [f"{scenario}: {step}: no longer differs" for scenario, step in expected - differing]
    print(f"{len(files.seen)} outcomes, {len(differing)} differ, {len(expected)} are allowed to")
    return lines


def main() -> int:
    """Run the scenarios and return how the process ends."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--connector", required=True, help="the connector's jar")
    parser.add_argument("--python", default=sys.executable, help="has paimon_magics")
    parser.add_argument("scenario", nargs="*", help="all, if none is given")
    asked = parser.parse_args()
    statements = {path.stem: path.read_text().splitlines() for path in HERE.glob("statements/*")}
    scenarios = asked.scenario or sorted(statements)
    with tempfile.TemporaryDirectory() as folder:
        homes = [Path(folder, name, "warehouse") for name in ("files", "served")]
        for home in homes:
            home.mkdir(parents=True)
        command = [asked.python, "-m", "paimon_magics.coordinator", "--warehouse", str(homes[1])]
        command += ["--state", str(homes[1].parent / "state"), "--watch-every-ms", "1500"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as coordinator:
            try:
                assert coordinator.stdout is not None
                _, address, token, *_ = coordinator.stdout.readline().split()
                rest = {
                    "metastore": "rest",
                    "uri": address,
                    "token.provider": "bear",
                    "token": Path(token.partition("=")[2]).read_text().strip(),
                }
                files = Backend("files", homes[0], {"warehouse": str(homes[0])})
                served = Backend("served", homes[1], {"warehouse": str(homes[1]), **rest})
                spark = _session(asked.connector, [files, served])
                for scenario in scenarios:
                    for backend in (files, served):
                        backend.run(spark, scenario, statements[scenario])
                    print(scenario, flush=True)
                spark.stop()
            finally:
                coordinator.terminate()
        told = _told(scenarios, files, served)
    print("\n".join(told))
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
