"""Files of an overwrite lie on the highest level at once: the option `overwrite-upgrade`."""

from __future__ import annotations

from pathlib import Path

import pytest

from paimon_magics.planning.commits.requests import Append, OverwritePartitions
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import read_messages, write_message
from tests.tables.commits.test_commit import ours, rows_of, written
from tests.tables.manifest_files import create

KEYED = "'primary-key' = 'k', 'bucket' = '1'"


def levels(table: Table) -> list[int]:
    files = live_files(ManifestCache(table.paimon), latest_snapshot(table.paimon))
    result: list[int] = files["level"].to_pylist()
    return result


def of_bucket(table: Table, *numbers: tuple[int, ...]) -> tuple[bytes, ...]:
    """One message with a file for each tuple of keys."""
    bodies = [written(table, [row for k in keys for row in rows_of(table, k)]) for keys in numbers]
    first, *others = [next(iter(read_messages(table.paimon, body))) for body in bodies]
    for other in others:
        first.new_files += other.new_files
    return (write_message(table.paimon, first),)


@pytest.mark.parametrize(
    ("options", "numbers", "expected"),
    [
        ("", [(1, 2)], [5]),
        (", 'num-levels' = '3'", [(1, 2)], [2]),
        (", 'write-only' = 'true', 'merge-engine' = 'first-row'", [(1,)], [5]),
        ("", [(1, 2), (3, 4)], [5, 5]),
        ("", [(1, 3), (2, 4)], [0, 0]),
        (", 'overwrite-upgrade' = 'false'", [(1,)], [0]),
        (", 'merge-engine' = 'first-row'", [(1,)], [0]),
        (", 'changelog-producer' = 'lookup'", [(1,)], [0]),
        (", 'full-compaction.delta-commits' = '1'", [(1,)], [0]),
        (", 'num-sorted-run.compaction-trigger' = '2'", [(1,), (2,)], [0, 0]),
    ],
)
def test_overwrite_puts_files_at_the_highest_level_where_possible(
    tmp_path: Path, options: str, numbers: list[tuple[int, ...]], expected: list[int]
) -> None:
    sql = f"CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ({KEYED}{options})"
    table = create(tmp_path, sql)
    ours(table, Append(), written(table, rows_of(table, 9)))
    ours(table, OverwritePartitions(), of_bucket(table, *numbers), "another")
    assert levels(table) == expected
