"""Runs statements through Paimon's own Spark connector, against the coordinator and against the
connector's catalog of a file system, and tells where they differ.

    python tests/conformance/connector.py --connector JAR [--python PYTHON] [SCENARIO…]

The program needs a Python with the PySpark that the connector was made for; `--python` is one in
which paimon_magics and what its tests need are installed, and that runs the coordinator. With
`--data-tokens` its warehouse is on MinIO, and the connector has no key but those that it hands out,
for seconds: then JAR is the connector's and that of paimon-s3, with a comma between. Each file of
`statements/` is a scenario in a database of its own, one statement a line:

    -- wait 2                               seconds in which the coordinator looks at the tables
    -- at is the time of snapshot 3 of t    {at} in a later statement is that time in milliseconds

`{catalog}` is the catalog's name and `{elsewhere}` a folder outside of the warehouse. What is
allowed to differ stands in differences.json, with reasons; a difference that does not occur is told
as well. Two refusals in different words are equal: the coordinator has its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
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
CATALOG = "org.apache.paimon.spark.SparkCatalog"
REFUSED = "refused"
KEY_SECONDS = 15


@dataclass
class Backend:
    """One of the two catalogs, whose `home` is a folder of its own. `seen` holds (scenario, step):
    what came of each statement, and of looking at each table at the end."""

    name: str
    home: Path
    conf: dict[str, str]
    seen: dict[tuple[str, str], Any] = field(default_factory=dict)

    def run(self, spark: SparkSession, scenario: str, lines: list[str]) -> None:
        """Run a scenario's statements in a database of its own."""
        spark.catalog.setCurrentCatalog(self.name)
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {self.name}.`{scenario}`")
        spark.sql(f"USE {self.name}.`{scenario}`")
        given = {"catalog": self.name, "elsewhere": str(self.home / "elsewhere")}
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
        text = str(value).replace("file:", "").replace(str(self.home), "<folder>")
        text = text.replace(self.conf["warehouse"], "<folder>/warehouse")  # in a bucket
        return UUID.sub("<uuid>", re.sub(rf"\b{self.name}\b", "<catalog>", text))


def _filled(line: str, given: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: given.get(found[1], found[0]), line)


def _session(connector: str, backends: list[Backend]) -> SparkSession:
    extensions = "PaimonSparkSessionExtensions"
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
        builder = builder.config(f"spark.sql.catalog.{backend.name}", CATALOG)
        for key, value in backend.conf.items():
            builder = builder.config(f"spark.sql.catalog.{backend.name}.{key}", value)
    return builder.getOrCreate()


def _told(scenarios: list[str], files: Backend, served: Backend) -> list[str]:
    """What differs and is not allowed to, and what is allowed to and does not."""
    is_s3 = served.conf["warehouse"].startswith("s3://")
    allowed = json.loads((HERE / "differences.json").read_text())
    expected = {
        (one["scenario"], step)
        for one in allowed
        if one["scenario"] in scenarios and (is_s3 or one.get("where") != "S3")
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


def _reader_told(spark: SparkSession, conf: dict[str, str]) -> list[str]:
    """What a user who may read a database can do besides, or can't, with the keys they get."""

    def ask(method: str, path: str, **body: Any) -> Any:
        headers = {"Authorization": f"Bearer {conf['token']}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            conf["uri"] + path, json.dumps(body).encode(), headers, method=method
        )
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read() or b"null")

    token = ask("POST", "/v1/tokens", name="reader", allow=["read=rights"])["token"]
    options = {**conf, "defaultDatabase": "rights"}  # else it asks for `default`, which is hidden
    for key, value in {"": CATALOG, **{f".{key}": v for key, v in options.items()}}.items():
        spark.conf.set(f"spark.sql.catalog.reader{key}", token if key == ".token" else value)
    writes = ["INSERT INTO {} VALUES (9, 'z')", "DELETE FROM {} WHERE k = 1", "TRUNCATE TABLE {}"]
    writes.append("DROP TABLE {}")
    spark.sql("CREATE DATABASE served.rights")
    told = []
    for table, options in {
        "append": "'bucket' = '-1'",
        "keyed": "'primary-key' = 'k', 'bucket' = '1'",
    }.items():
        name = f"rights.{table}"
        spark.sql(f"CREATE TABLE served.{name} (k INT, v STRING) TBLPROPERTIES ({options})")
        for k in range(3):
            spark.sql(f"INSERT INTO served.{name} VALUES ({k}, 'a')")
        before = spark.sql(f"SELECT * FROM served.{name} ORDER BY k").collect()
        if spark.sql(f"SELECT * FROM reader.{name} ORDER BY k").collect() != before:
            told.append(f"the reader of {name} reads something else")
        tried = [write.format(f"reader.{name}") for write in writes]
        if table == "keyed":  # of the other one there is nothing to compact
            tried.append(f"CALL reader.sys.compact('{name}')")
        for write in tried:
            with contextlib.suppress(Exception):
                spark.sql(write).collect()
                told.append(f"the reader may: {write}")
        if spark.sql(f"SELECT * FROM served.{name} ORDER BY k").collect() != before:
            told.append(f"the reader has changed {name}")
    frame = spark.sql("SELECT * FROM reader.rights.append")
    ask("DELETE", "/v1/tokens/reader")
    time.sleep(KEY_SECONDS + 1)
    with contextlib.suppress(Exception):
        frame.collect()
        told.append("the reader still reads after the time of the last key")
    return told


@contextlib.contextmanager
def _served(python: str, home: Path, *, data_tokens: bool) -> Iterator[dict[str, str]]:
    """The options of a catalog of a coordinator, which ends with the block."""
    command = [python, "-m", "tests.conformance.host", "--watch-every-ms=1500"]
    command += ["--data-tokens", f"--data-token-seconds={KEY_SECONDS}"] if data_tokens else []
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, cwd=HERE.parents[1], **pipes) as host:
        try:
            query = urllib.parse.urlencode({"warehouse": home / "warehouse"})
            url = f"{host.stdout.readline().strip()}/?{query}"
            with urllib.request.urlopen(urllib.request.Request(url, method="POST")) as answer:
                address, token, *options = answer.read().decode().split()
            yield {
                "metastore": "rest",
                "uri": address,
                "token.provider": "bear",
                "token": token,
                **dict(option.split("=", 1) for option in options),
            }
        finally:
            host.stdin.close()  # it ends with that, and its coordinators with it
            host.wait(60)


def main() -> int:
    """Run the scenarios and return how the process ends."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--connector", required=True, help="the connector's jar")
    parser.add_argument("--python", default=sys.executable, help="has paimon_magics")
    parser.add_argument("--data-tokens", action="store_true", help="on MinIO, with its keys alone")
    parser.add_argument("scenario", nargs="*", help="all, if none is given")
    asked = parser.parse_args()
    statements = {path.stem: path.read_text().splitlines() for path in HERE.glob("statements/*")}
    scenarios = asked.scenario or sorted(statements)
    with tempfile.TemporaryDirectory() as folder:
        homes = [Path(folder, name) for name in ("files", "served")]
        for home in homes:
            (home / "warehouse").mkdir(parents=True)
        with _served(asked.python, homes[1], data_tokens=asked.data_tokens) as conf:
            files = Backend("files", homes[0], {"warehouse": str(homes[0] / "warehouse")})
            served = Backend("served", homes[1], conf)
            spark = _session(asked.connector, [files, served])
            for scenario in scenarios:
                for backend in (files, served):
                    backend.run(spark, scenario, statements[scenario])
                print(scenario, flush=True)
            told = _told(scenarios, files, served)
            told += _reader_told(spark, conf) if asked.data_tokens else []
            spark.stop()
    print("\n".join(told))
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
