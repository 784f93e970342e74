"""Reads on S3: a raw scan where the session has jars for S3, a merge read where it has none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import paimon_magics
from tests.backends.maven import fetched_jars
from tests.backends.s3 import S3Server

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow]

_SDK = (
    "s3 s3-transfer-manager sts sdk-core aws-core auth regions utils utils-lite profiles arns "
    "annotations protocol-core aws-xml-protocol aws-query-protocol json-utils "
    "third-party-jackson-core endpoints-spi http-client-spi http-auth http-auth-spi http-auth-aws "
    "http-auth-aws-eventstream identity-spi checksums checksums-spi crt-core retries retries-spi "
    "metrics-spi apache-client"
)
# The version of the Hadoop that PySpark brings, and what it was built with: 14 MB together.
PACKAGES = [
    "org.apache.hadoop:hadoop-aws:3.5.0",
    *(f"software.amazon.awssdk:{module}:2.35.4" for module in _SDK.split()),
    "software.amazon.awssdk:netty-nio-client:2.35.4",
    "software.amazon.eventstream:eventstream:1.0.1",
    "org.reactivestreams:reactive-streams:1.0.4",
    "org.apache.httpcomponents:httpclient:4.5.13",
    "org.apache.httpcomponents:httpcore:4.4.16",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.0",
]
QUERIES = [
    "SELECT p, count(*) AS n, max(k) AS last FROM a WHERE k >= 90 GROUP BY p ORDER BY p",
    "SELECT v, count(*) AS n FROM b GROUP BY v ORDER BY v",
]


def test_raw_scan_and_merge_read_return_the_same_rows_on_s3(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    jars = fetched_jars(PACKAGES)
    options = s3.bucket().options
    with paimon_magics.connect(catalog=options, spark=spark, local_rows_max=0) as session:
        session.run(
            "CREATE TABLE a (k BIGINT, v STRING, p STRING) PARTITIONED BY (p);"
            "INSERT INTO a SELECT id, 'v', concat('p/ü ', id % 2) FROM range(100);"
            "CREATE TABLE b (k INT NOT NULL, v STRING) "
            "TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '1');"
            "INSERT INTO b SELECT id, 'old' FROM range(10);"
            "INSERT INTO b SELECT id, 'new' FROM range(5)"
        )
        native = [
            [str(session.explain(query)), session.run(query).to_arrow().to_pylist()]
            for query in QUERIES
        ]
    reader = Path(__file__).with_name("spark_with_s3.py")
    actual = subprocess.run(
        [sys.executable, str(reader), json.dumps(options), ":".join(jars), *QUERIES],
        env={**os.environ, "SCRATCH": str(tmp_path)},
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
    )
    scanned = json.loads(actual.stdout.splitlines()[-1])
    assert [rows for _, rows in scanned] == [rows for _, rows in native]
    assert [row["last"] for row in native[0][1]] == [98, 99]
    for query, (before, _), (after, _) in zip(QUERIES, native, scanned, strict=True):
        if " b " in query:  # overlapping runs are merged in any case
            assert "merge read" in before and "merge read" in after
            continue
        assert "(Spark does not open their store)" in before
        assert "by raw scan" in after and "s3a://" in after
