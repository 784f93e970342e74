"""Compactions beside the writers of a table that takes one transaction at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.planning.commits.requests import Append, CommitRequest, Compact, Waiting
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.process import TABLE, Process, create_table, write
from tests.faults.appending import committer_of
from tests.tables.commits.compacting import bodies, live_names, upgrade

SQL = "CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k')"


@pytest.fixture(params=["in process", "remote"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CoordinatorClient]:
    catalog = create_table(tmp_path / "warehouse", SQL)
    if request.param == "in process":
        yield committer_of(catalog)
        return
    process = Process(tmp_path / "warehouse", tmp_path / "state")
    process.start()
    yield process.client()
    process.close()


def told(waiting: Waiting) -> None:
    raise KeyboardInterrupt(waiting.message)


def test_a_compaction_stands_in_no_line(client: CoordinatorClient, tmp_path: Path) -> None:
    catalog = Catalog.open({"warehouse": str(tmp_path / "warehouse")})
    first = client.begin(TABLE, waits=told)
    client.commit(CommitRequest(first, Append(), write(catalog, first, [{"k": 1, "v": "a"}])))
    writing = client.begin(TABLE, waits=told)
    compacting = client.begin(TABLE, waits=told, compacts=True)
    with pytest.raises(KeyboardInterrupt):
        client.begin(TABLE, waits=told)
    table = catalog.load(TABLE)
    messages = bodies(table, upgrade(table, 5))
    receipt = client.commit(CommitRequest(compacting, Compact(), messages))
    assert (receipt.snapshot_id, receipt.commit_kind) == (2, "COMPACT")
    assert set(live_names(table).values()) == {5}
    client.abort(writing)
    client.abort(client.begin(TABLE, compacts=True))
    client.abort(client.begin(TABLE, waits=told))
