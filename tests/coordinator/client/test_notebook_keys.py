"""A session with a coordinator needs no keys that could harm a warehouse: what docs/deployment.md
denies to notebooks, and the hub that is shipped with it, they don't do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
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

_KEY = "notebook"
_POLICY = Path(__file__).parents[3] / "deploy" / "hub" / "docker" / "notebooks.json"


class Denied:
    """Denies to the notebook's key what the policy of the hub's notebooks does not allow."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.written: set[str] = set()
        self._statements = json.loads(_POLICY.read_text())["Statement"]

    def __call__(self, environment: dict[str, Any], hand_on: Any) -> Reply:
        method, path = environment["REQUEST_METHOD"], environment["PATH_INFO"]
        if f"Credential={_KEY}/" in environment.get("HTTP_AUTHORIZATION", "") and method in (
            "PUT",
            "POST",
            "DELETE",
        ):
            key = "/".join(path.split("/")[2:])
            deletes = method == "DELETE" or "delete" in parse_qs(
                environment["QUERY_STRING"], keep_blank_values=True
            )
            if not self._may("s3:DeleteObject" if deletes else "s3:PutObject", key):
                if not deletes:
                    self.requests.append(f"{method} {path}")
                return Reply.error("403 Forbidden", "AccessDenied")
            self.written.add(key)
        return hand_on()  # type: ignore[no-any-return]

    def _may(self, action: str, key: str) -> bool:
        effects = {each["Effect"] for each in self._statements if _concerns(each, action, key)}
        return effects == {"Allow"}


def _concerns(statement: dict[str, Any], action: str, key: str) -> bool:
    if action not in [statement["Action"], *statement["Action"]]:
        return False
    resources = statement.get("Resource") or statement["NotResource"]
    every = [resources] if isinstance(resources, str) else resources
    matches = any(fnmatchcase(f"arn:aws:s3:::lake/{key}", pattern) for pattern in every)
    return matches if "Resource" in statement else not matches


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
    spark: SparkSession, server: S3Server, bucket: Bucket, process: Process, tmp_path: Path
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
        stream = session.write_stream(
            session.stream("t", **{"consumer-id": "copying"}),
            "frames",
            checkpoint=tmp_path / "checkpoint",
            trigger="available-now",
        )
        assert stream.wait(120)
        session.run("DROP TABLE frames; DROP DATABASE shop CASCADE")
    assert denied.requests == []
    outside = [path for path in denied.written if ".db/" not in path]
    assert all(path.startswith("warehouse/.paimon-magics-") for path in outside), outside
    folders = {path.split("/")[3] for path in denied.written if ".db/" in path}
    assert {re.split("[-=]", folder)[0] for folder in folders} <= {
        "bucket",
        "dt",
        ".attempts",
        "consumer",
        "index",
    }
