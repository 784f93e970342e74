"""Writers that race on S3, and a server that goes away: nothing is lost, nothing is doubled.

With PAIMON_MAGICS_TEST_SOAK set, eight processes make fifty commits each; `make soak` does that,
also on a server that is not the tests' own.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from paimon_magics.coordinator.ownership.catalog_options import ENVIRONMENT
from paimon_magics.coordinator.protocol.documents import request_document
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.tables.catalog.catalog import Catalog
from tests.backends.s3 import Bucket, S3Server, new_bucket, s3_server
from tests.coordinator.process import Process
from tests.faults.appending import TABLE, append, committer_of, written
from tests.faults.test_concurrent_commits import run_together, stored_rows

SOAK = bool(os.environ.get("PAIMON_MAGICS_TEST_SOAK"))
WRITERS, COMMITS = (8, 50) if SOAK else (2, 8)
COLUMNS = (Column(0, "writer", AtomicType("INT")), Column(1, "number", AtomicType("INT")))

pytestmark = pytest.mark.slow


def new_table(bucket: Bucket) -> Catalog:
    catalog = Catalog.open(bucket.options)
    catalog.create_table(TABLE, TableSchema(COLUMNS))
    return catalog


def environment(bucket: Bucket) -> dict[str, str]:
    return {ENVIRONMENT: json.dumps(bucket.options)}


@contextlib.contextmanager
def coordinator(bucket: Bucket, state: Path, *options: str) -> Iterator[Process]:
    warehouse = bucket.options["warehouse"]
    process = Process(warehouse, state, *options, environment=environment(bucket))
    process.start()
    try:
        yield process
    finally:
        process.close()


def everything_is_there_once(bucket: Bucket, catalog: Catalog, snapshots: list[list[int]]) -> None:
    ids = sorted(id for of_writer in snapshots for id in of_writer)
    assert ids == list(range(1, WRITERS * COMMITS + 1))
    assert stored_rows(catalog) == [(w, n) for w in range(WRITERS) for n in range(COMMITS)]
    left = [key for key in bucket.objects() if "/.attempts" in key or "/.paimon-magics-" in key]
    assert left == []
    data = [key for key in bucket.objects() if key.endswith(".parquet")]
    assert len(data) == WRITERS * COMMITS


def commands(bucket: Bucket, *more: str) -> list[list[str]]:
    warehouse = bucket.options["warehouse"]
    return [
        ["tests.faults.appending", warehouse, str(writer), str(COMMITS), *more]
        for writer in range(WRITERS)
    ]


def test_concurrent_appends_lose_and_duplicate_no_rows() -> None:
    with new_bucket() as bucket:
        catalog = new_table(bucket)
        snapshots = run_together(commands(bucket), environment(bucket), seconds_max=1200)
        everything_is_there_once(bucket, catalog, snapshots)


@pytest.mark.soak
def test_concurrent_appends_through_a_coordinator_keep_each_row_once(
    tmp_path: Path,
) -> None:
    with new_bucket() as bucket, coordinator(bucket, tmp_path / "state") as process:
        catalog = new_table(bucket)
        token = {"PAIMON_COORDINATOR_TOKEN": process.token()}
        snapshots = run_together(
            commands(bucket, process.address), environment(bucket) | token, seconds_max=1200
        )
        everything_is_there_once(bucket, catalog, snapshots)
        assert process.end() == 0


@pytest.fixture
def server() -> Iterator[S3Server]:
    with s3_server() as started:
        yield started


def test_coordinator_survives_a_store_outage(server: S3Server, tmp_path: Path) -> None:
    bucket = server.bucket()
    catalog = new_table(bucket)
    with coordinator(bucket, tmp_path / "state") as process:
        client = process.client()
        append(catalog, client, [(0, 0)])
        transaction = client.begin(TABLE)
        request = written(catalog.load(TABLE), transaction, [(0, 1)])
        server.stop()
        with pytest.raises(SetupError, match="s3://"):
            client.begin(TABLE)
        headers = {"Authorization": f"Bearer {process.token()}"}
        with httpx.Client(base_url=process.address, headers=headers, trust_env=False) as http:
            begin = {"table": {"database": "default", "table": "t"}}
            assert http.post("/v1/transactions", json=begin, timeout=60).status_code == 503
            assert http.get("/health/live").json() == {"status": "live"}
            id = client.transactions.id_of(transaction)
            threading.Timer(3, server.start).start()
            answer = http.post(
                f"/v1/transactions/{id}/commit", json=request_document(request), timeout=60
            )
            assert answer.status_code in (200, 423), answer.text
        assert client.commit(request).snapshot_id == 2
        assert client.commit(request).snapshot_id == 2
        assert stored_rows(catalog) == [(0, 0), (0, 1)]
        append(catalog, client, [(0, 2)])
    assert [key for key in bucket.objects() if "/.attempts" in key] == []


@pytest.mark.parametrize(
    "step", [pytest.param("commit.prepared", marks=pytest.mark.soak), "publish.linked"]
)
def test_coordinator_killed_during_a_commit_makes_it_once(
    server: S3Server, tmp_path: Path, step: str
) -> None:
    bucket = server.bucket()
    catalog = new_table(bucket)
    append(catalog, committer_of(catalog), [(0, 0)])
    with coordinator(bucket, tmp_path / "state") as process:
        process.kill()
        process.start(faults=f"{step}=kill")
        client = process.client()
        transaction = client.begin(TABLE)
        request = written(catalog.load(TABLE), transaction, [(0, 1)])
        id = client.transactions.id_of(transaction)
        headers = {"Authorization": f"Bearer {process.token()}"}
        with pytest.raises(httpx.TransportError):
            httpx.post(
                f"{process.address}/v1/transactions/{id}/commit",
                json=request_document(request),
                headers=headers,
                trust_env=False,
                timeout=30,
            )
        assert process.has_died()
        process.start()
        assert client.commit(request).snapshot_id == 2
        assert client.commit(request).snapshot_id == 2
        assert stored_rows(catalog) == [(0, 0), (0, 1)]
        until(lambda: not [key for key in bucket.objects() if "/.attempts" in key])


def test_files_of_a_dead_client_are_removed_after_its_lease(
    server: S3Server, tmp_path: Path
) -> None:
    bucket = server.bucket()
    catalog = new_table(bucket)
    short = ("--lease-ms=500", "--cleanup-grace-ms=100")
    with coordinator(bucket, tmp_path / "state", *short) as process:
        client = process.client()
        before = bucket.objects()
        transaction = client.begin(TABLE)
        written(catalog.load(TABLE), transaction, [(0, 1)])
        assert len(bucket.objects()) > len(before)
        client.close()  # no more heartbeats
        until(lambda: bucket.objects() == before)


def until(condition: object, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_empty_commit_makes_no_snapshot(server: S3Server) -> None:
    bucket = server.bucket()
    catalog = new_table(bucket)
    committer = committer_of(catalog)
    before = bucket.objects()
    receipt = committer.commit(CommitRequest(committer.begin(TABLE), Append()))
    assert receipt.snapshot_id is None
    assert bucket.objects() == before
