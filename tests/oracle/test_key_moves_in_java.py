"""Java reads and writes a table whose keys were moved to other buckets for a streaming job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pypaimon import CatalogFactory

from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.store.state_store import open_store
from paimon_magics.settings import Settings
from paimon_magics.tables.catalog.catalog import Catalog
from tests.coordinator.rest_server import client_options, served
from tests.coordinator.service.test_key_moves import Lake, Writer
from tests.oracle.java_reader import JavaPaimon

pytestmark = [pytest.mark.spark, pytest.mark.java]


@pytest.fixture
def lake(warehouse: Path, tmp_path: Path) -> Iterator[Lake]:
    catalog = Catalog.open({"warehouse": str(warehouse)})
    coordinator = Coordinator(catalog, open_store(tmp_path / "state"), Settings())
    coordinator.start()
    with served({"warehouse": str(warehouse)}, coordinator=coordinator) as url:
        yield Lake(CatalogFactory.create(client_options(url, warehouse)), warehouse, url)
    coordinator.stop()


@pytest.mark.parametrize("sequence", ["", "v"], ids=["as written", "sequence field"])
def test_java_reads_each_moved_key_once(lake: Lake, java_paimon: JavaPaimon, sequence: str) -> None:
    lake.create(**({"sequence.field": sequence} if sequence else {}))
    job = Writer(lake.catalog)
    lake.batch(1, [(5, "m"), (6, "m"), (7, "m")])
    job.write(2, [(5, "a"), (8, "a")])
    job.write(0, [(6, "z")])
    assert lake.kinds() == ["APPEND", "COMPACT", "APPEND", "COMPACT", "APPEND"]
    newest = "m" if sequence else "a"
    states = [
        {5: "m", 6: "m", 7: "m"},
        {5: newest, 6: "m", 7: "m", 8: "a"},
        {5: newest, 6: "z", 7: "m", 8: "a"},
    ]
    for snapshot, state in zip((2, 3, 5), states, strict=True):
        at = {"scan.snapshot-id": str(snapshot)}
        rows = java_paimon.rows(lake.warehouse, "default.t", at)
        assert sorted(row[:2] for row in rows) == sorted(state.items())
    for round in "yz":  # Java's writer compacts what it finds
        keys = range(5, 9)
        java_paimon.write(lake.warehouse, "default.t", [(k, f"z{round}", "x") for k in keys])
    rows = java_paimon.rows(lake.warehouse, "default.t")
    assert sorted(row[:2] for row in rows) == [(k, "zz") for k in keys] == lake.rows()


def test_java_batch_with_unmovable_new_keys_is_refused(lake: Lake, java_paimon: JavaPaimon) -> None:
    lake.create(**{"changelog-producer": "lookup"})
    through = client_options(lake.url, lake.warehouse)
    java_paimon.write(through, "default.t", [(5, "before", "x")])
    job = Writer(lake.catalog)
    job.write(1, [(1, "job")])
    snapshots = lake.kinds()
    with pytest.raises(Exception) as caught:
        java_paimon.write(through, "default.t", [(5, "late", "x"), (6, "late", "x")])
    assert "adds 1 new keys to `default.t`" in str(caught.value)
    assert "With 'changelog-producer' = 'lookup', keys can't change buckets" in str(caught.value)
    assert lake.kinds() == snapshots
    java_paimon.write(through, "default.t", [(5, "known", "x"), (1, "known", "x")])
    job.write(1, [(6, "job")])
    assert lake.rows() == [(1, "known"), (5, "known"), (6, "job")]
