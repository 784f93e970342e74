"""A coordinator that dies while it moves keys for a streaming job: the table is as it was, or the
keys are moved; the job's commit, asked for again, is there once; no file is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pypaimon import CatalogFactory

from tests.coordinator.process import Process, data_files, wait_until
from tests.coordinator.rest_server import client_options
from tests.coordinator.service.test_key_moves import Lake, Writer
from tests.tables.reachability import missing, unreachable

OPTIONS = ("--lease-ms=1000", "--cleanup-grace-ms=100")


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    started = Process(tmp_path / "warehouse", tmp_path / "state", *OPTIONS)
    started.start()
    yield started
    started.close()


@pytest.mark.parametrize(
    ("step", "is_moved"),
    [("attempt.written", False), ("manifest.written", True), ("publish.linked", True)],
)
def test_killed_key_move_is_made_whole_or_not_at_all(
    process: Process, tmp_path: Path, step: str, is_moved: bool
) -> None:
    warehouse = tmp_path / "warehouse"
    catalog = CatalogFactory.create(client_options(process.address, warehouse, process.token()))
    catalog.create_database("default", True)
    lake = Lake(catalog, warehouse)
    lake.create()
    job = Writer(catalog)
    job.write(0, [(1, "job")])
    lake.batch(1, [(5, "other"), (6, "other")])
    before = lake.rows()
    prepared = job.prepare(2, [(5, "job"), (7, "job")])
    process.kill()
    process.start(faults=f"{step}=kill")
    with pytest.raises(Exception):  # noqa: B017 - what pypaimon raises for a lost connection
        job.commit(prepared)
    assert process.has_died()
    process.start()
    if is_moved:  # the commit was stored, and is carried out after the start
        wait_until(lambda: lake.kinds() == ["APPEND", "APPEND", "COMPACT"])
    assert lake.rows() == before
    job.commit(prepared)
    assert lake.rows() == [(1, "job"), (5, "job"), (6, "other"), (7, "job")]
    assert lake.kinds() == ["APPEND", "APPEND", "COMPACT", "APPEND"]
    wait_until(lambda: not [each for each in unreachable(lake.loaded()) if "/pm-" in each])
    assert not missing(lake.loaded())
    assert len(data_files(warehouse)) == 5 and not list(warehouse.rglob(".attempts"))
