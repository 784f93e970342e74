"""Paths that are put together of what is known are those that pypaimon gives for each file."""

from __future__ import annotations

import datetime
import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from pypaimon.table.row.generic_row import GenericRow, GenericRowSerializer
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from paimon_magics.tables.manifests.file_paths import file_paths
from paimon_magics.tables.schema.types import arrow_type
from tests.coordinator.process import TABLE, create_table

DAYS = [datetime.date(2026, 1, 31), datetime.date(1969, 7, 20), None]
SHOPS = ["north", "a/b", "50%", " ", "Zoë", None, "x=y", "."]
PLAIN = ["north", "south", "Zoë"]


@pytest.mark.parametrize("shops", [SHOPS, PLAIN])
def test_paths_match_pypaimon_for_several_partition_keys(
    tmp_path: Path, shops: list[str | None]
) -> None:
    sql = "CREATE TABLE t (k INT, day DATE, shop STRING, open BOOLEAN) PARTITIONED BY "
    table = create_table(tmp_path, sql + "(day, shop, open)").load(TABLE)
    keys = table.paimon.partition_keys_fields
    partitions = list(itertools.product(DAYS, shops, [True, False]))
    files = pa.table(
        {
            "partition": pa.array(
                [GenericRowSerializer.to_bytes(GenericRow(list(p), keys)) for p in partitions],
                pa.large_binary(),
            ),
            "bucket": pa.array([0] * len(partitions), pa.int32()),
            "file_name": [f"{number}.parquet" for number in range(len(partitions))],
            "external_path": pa.nulls(len(partitions), pa.large_string()),
        }
    )
    asked = []

    def first_bucket_folder(partition: tuple[object, ...]) -> str:
        asked.append(partition)
        return str(canonical_data_file_path(table.paimon, partition, 0, ""))

    types = [arrow_type(table.schema.column(key).type) for key in table.schema.partition_keys]
    actual = file_paths(files, types, first_bucket_folder).to_pylist()
    assert actual == [
        canonical_data_file_path(table.paimon, partition, 0, f"{number}.parquet")
        for number, partition in enumerate(partitions)
    ]
    if shops is PLAIN:
        assert len(asked) < len(partitions)
