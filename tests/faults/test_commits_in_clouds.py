"""Writers that race on Azure and Google Cloud Storage: nothing is lost, nothing is doubled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.backends.clouds import CLOUDS, CloudBucket, running
from tests.faults.test_commits_on_s3 import (
    commands,
    coordinator,
    environment,
    everything_is_there_once,
    new_table,
)
from tests.faults.test_concurrent_commits import run_together

pytestmark = pytest.mark.slow


@pytest.fixture(params=CLOUDS)
def bucket(request: pytest.FixtureRequest) -> Iterator[CloudBucket]:
    with running(request.param) as server:
        yield server.bucket()


def test_concurrent_appends_lose_and_duplicate_no_rows(bucket: Any) -> None:
    catalog = new_table(bucket)
    snapshots = run_together(commands(bucket), environment(bucket), seconds_max=1200)
    everything_is_there_once(bucket, catalog, snapshots)


@pytest.mark.soak
def test_concurrent_appends_through_a_coordinator_keep_each_row_once(
    bucket: Any, tmp_path: Path
) -> None:
    with coordinator(bucket, tmp_path / "state") as process:
        catalog = new_table(bucket)
        token = {"PAIMON_COORDINATOR_TOKEN": process.token()}
        snapshots = run_together(
            commands(bucket, process.address), environment(bucket) | token, seconds_max=1200
        )
        everything_is_there_once(bucket, catalog, snapshots)
        assert process.end() == 0
