"""Merged manifests, compared with Paimon's Java library: each reads and merges the other's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager

from paimon_magics.planning.commits.requests import Append, OverwriteTouched
from paimon_magics.tables.table import Table
from tests.oracle.java_reader import JavaPaimon
from tests.tables.commits.test_commit import copy_of, ours, written
from tests.tables.manifest_files import create

pytestmark = [pytest.mark.spark, pytest.mark.java]

BY_DAY = (
    "CREATE TABLE t (k INT, p STRING) PARTITIONED BY (p) TBLPROPERTIES ("
    "'manifest.merge-min-count' = '{count}', 'manifest.full-compaction-threshold-size' = '{full}')"
)


def row(number: int, p: str | None) -> list[dict[str, Any]]:
    return [{"k": number, "p": p}]


def base(table: Table) -> list[Any]:
    """The manifests in the latest snapshot's base manifest list."""
    snapshot = table.paimon.snapshot_manager().get_latest_snapshot()
    result: list[Any] = ManifestListManager(table.paimon).read_base(snapshot)
    return result


def contents(table: Table, metas: list[Any]) -> list[Any]:
    """The entries of each manifest, sorted, since Java's reader sorts them by partition."""
    manager = ManifestFileManager(table.paimon)
    return [
        sorted(
            (e.kind, str(e.partition.values), e.file.file_name)
            for e in manager.read(meta.file_name)
        )
        for meta in metas
    ]


def bounds(meta: Any) -> tuple[Any, ...]:
    partitions = meta.partition_stats
    return (
        meta.num_added_files,
        meta.num_deleted_files,
        meta.schema_id,
        (meta.min_bucket, meta.max_bucket, meta.min_level, meta.max_level),
        (meta.min_row_id, meta.max_row_id),
        (partitions.min_values.get_field(0), partitions.max_values.get_field(0)),
        partitions.null_counts,
    )


def test_java_and_we_merge_each_others_manifests(java_paimon: JavaPaimon, warehouse: Path) -> None:
    table = create(warehouse, BY_DAY.format(count=3, full="16 mb"))
    expected: set[tuple[int, str | None]] = set()
    for number in range(24):
        p = ("a", "b", None)[number % 3]
        replaces = number % 8 in (4, 7)
        if replaces:
            expected = {(k, other) for k, other in expected if other != p}
        expected.add((number, p))
        if number % 4 < 2:
            change = OverwriteTouched() if replaces else Append()
            ours(table, change, written(table, row(number, p)), f"we {number}")
        else:
            overwrite = {} if replaces else None
            java_paimon.write(warehouse, "default.t", [(number, p)], overwrite=overwrite)
        assert set(java_paimon.rows(warehouse, "default.t")) == expected
        assert len(base(table)) <= 3
    latest = table.paimon.snapshot_manager().get_latest_snapshot()
    assert latest.id == 24 and latest.total_record_count == len(expected)
    for snapshot_id in (5, 11, 23):
        past = {"scan.snapshot-id": str(snapshot_id)}
        assert java_paimon.rows(warehouse, "default.t", past)


@pytest.mark.parametrize("full", ["16 mb", "1 b"], ids=["minor", "full"])
@pytest.mark.parametrize("commits", [3, 4, 9])
def test_same_manifests_are_merged_as_in_java(
    java_paimon: JavaPaimon, tmp_path: Path, commits: int, full: str
) -> None:
    """The next commit to two copies of a table, ours and Java's: what became of the manifests."""
    table = create(tmp_path / "ours", BY_DAY.format(count=4, full="16 mb"))
    for number in range(commits):
        p = ("a", "b", None)[number % 3]
        change = OverwriteTouched() if number == 3 else Append()
        ours(table, change, written(table, row(number, p)), f"{number}")
    schema = Path(table.location) / "schema" / "schema-0"
    schema.write_text(schema.read_text().replace("16 mb", full))
    other = copy_of(table, tmp_path / "java")
    table = copy_of(table, tmp_path / "again")
    ours(table, Append(), written(table, row(99, "z")), "the last")
    java_paimon.write(tmp_path / "java", "default.t", [(99, "z")])
    assert contents(table, base(table)) == contents(other, base(other))
    assert list(map(bounds, base(table))) == list(map(bounds, base(other)))
