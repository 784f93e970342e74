"""A session with a coordinator needs no keys that could harm a warehouse: what docs/deployment.md
denies to notebooks, they don't do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pandas as pd
import pytest

import paimon_magics
from tests.backends.s3 import Bucket, Reply, S3Server, s3_server
from tests.coordinator.process import Process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_DENIED = ("schema", "snapshot", "tag", "branch", "manifest", "changelog", "statistics")
_KEY = "notebook"


class Denied:
    """Denies to the notebook's key what the documentation's policy denies."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.written: set[str] = set()

    def __call__(self, environment: dict[str, Any], hand_on: Any) -> Reply:
        method, path = environment["REQUEST_METHOD"], environment["PATH_INFO"]
        if f"Credential={_KEY}/" in environment.get("HTTP_AUTHORIZATION", "") and method in (
            "PUT",
            "POST",
            "DELETE",
        ):
            parts = path.split("/")
            below = parts[5] if len(parts) > 5 and parts[3].endswith(".db") else ""
            deletes = method == "DELETE" or "delete" in parse_qs(
                environment["QUERY_STRING"], keep_blank_values=True
            )
            named = not below or parts[-1].startswith("pm-") or parts[-1] == ""
            if deletes or not named or below in _DENIED or ".paimon-magics" in parts:
                if not deletes:
                    self.requests.append(f"{method} {path}")
                return Reply.error("403 Forbidden", "AccessDenied")
            self.written.add("/".join(parts[2:]))
        return hand_on()  # type: ignore[no-any-return]


@pytest.fixture
def server() -> Iterator[S3Server]:
    with s3_server() as made:
        yield made


@pytest.fixture
def bucket(server: S3Server) -> Bucket:
    return server.bucket()


@pytest.fixture
def process(bucket: Bucket, tmp_path: Path) -> Iterator[Process]:
    warehouse = bucket.options["warehouse"]
    made = Process(warehouse, tmp_path / "state", catalog=bucket.options)
    made.start()
    yield made
    made.close()


def test_statements_run_with_keys_that_cannot_change_definitions(
    spark: SparkSession, server: S3Server, bucket: Bucket, process: Process
) -> None:
    denied = server.between = Denied()
    catalog = {**bucket.options, "s3.access-key": _KEY}
    with paimon_magics.connect(
        catalog=catalog, coordinator=process.address, token=process.token(), spark=spark
    ) as session:
        session.run(
            "CREATE DATABASE shop; USE shop; "
            "CREATE TABLE p (k INT NOT NULL, v STRING, dt STRING) PARTITIONED BY (dt) "
            "TBLPROPERTIES ('primary-key' = 'k,dt', 'bucket' = '2', "
            "'deletion-vectors.enabled' = 'true'); "
            "INSERT INTO p SELECT CAST(id AS INT), 'a', 'd' || (id % 2) FROM range(10); "
            "INSERT INTO p VALUES (0, 'new', 'd0'); "
            "INSERT OVERWRITE p PARTITION (dt = 'd1') VALUES (1, 'only'); "
            "ALTER TABLE p ADD COLUMN x INT; ALTER TABLE p CREATE TAG monday; "
            "CALL sys.create_branch('p', 'dev', 'monday'); CALL sys.compact('p'); "
            "DELETE FROM p WHERE k = 2; UPDATE p SET v = 'u' WHERE k = 4; "
            "CALL sys.rollback('p', 'monday'); TRUNCATE TABLE p; "
            "CREATE TABLE t AS SELECT id AS k FROM range(5); "
            "MERGE INTO t USING (SELECT 1L AS k) s ON t.k = s.k WHEN MATCHED THEN DELETE"
        )
        session.write(pd.DataFrame({"k": [1]}), "frames", create=True)
        assert [r["k"] for r in session.run("SELECT k FROM t ORDER BY k").to_arrow().to_pylist()]
        session.run("DROP TABLE frames; DROP DATABASE shop CASCADE")
    assert denied.requests == []
    outside = [path for path in denied.written if ".db/" not in path]
    assert all(path.startswith("warehouse/.paimon-magics-") for path in outside), outside
    folders = {path.split("/")[3] for path in denied.written if ".db/" in path}
    assert {re.split("[-=]", folder)[0] for folder in folders} <= {
        "bucket",
        "dt",
        ".attempts",
        "index",
    }
