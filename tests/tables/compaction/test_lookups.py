"""What compactions read of the files that they look rows up in, and how tasks share the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from paimon_magics.planning.reads.views import ViewKind
from paimon_magics.tables.compaction import merged_sections, planning
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing import key_value_files
from paimon_magics.tables.writing.deletion_vector_files import vector_index
from tests.tables.commits.compacting import live_entries
from tests.tables.compaction.compacted_tables import compact, levels_of, plan, rows_of, write
from tests.tables.manifest_files import create

GIVES = {
    "changes": "'changelog-producer' = 'lookup'",
    "vectors": "'deletion-vectors.enabled' = 'true'",
    "first rows": "'merge-engine' = 'first-row'",
}


def table_of(folder: Path, options: str, key: str = "INT") -> Table:
    return create(
        folder,
        f"CREATE TABLE t (k {key} NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k', "
        f"'bucket' = '1', 'compaction.size-ratio' = '0', {options})",
    )


def rows(numbers: range | list[int], v: str, key: type = int) -> list[dict[str, Any]]:
    return [{"k": f"{k:05}" if key is str else k, "v": f"{v}{k}" * 20} for k in numbers]


@pytest.mark.parametrize("key", [int, str])
@pytest.mark.parametrize("gives", GIVES)
def test_row_groups_far_from_the_new_keys_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gives: str, key: type
) -> None:
    monkeypatch.setattr(key_value_files, "_GROUP_ROWS_MAX", 500)
    monkeypatch.setattr(merged_sections, "_BLOCK_ROWS_MAX", 100)
    table = table_of(tmp_path, GIVES[gives], "STRING" if key is str else "INT")
    for start in (0, 1):
        write(table, rows(range(start, 4000, 2), "old", key))
    compact(table, is_full=True)
    write(table, rows([1700, 1701, 2750, 9000], "new", key))
    [entry] = [e for e in live_entries(table)[(), 0] if e.file.level == 5]
    [path] = Path(table.location).rglob(entry.file.file_name)
    damage_row_groups(path, holding=(1700, 2750))
    compact(table, is_full=False)
    actual = {level: count for _, level, count in levels_of(table)}
    assert actual == {4: 1 if gives == "first rows" else 4, 5: 4000}
    index = vector_index(table, table.paimon.snapshot_manager().get_latest_snapshot())
    marked = [rows.tolist() for rows in index.vectors(((), 0)).values()]
    assert marked == ([[1700, 1701, 2750]] if gives == "vectors" else [])


def damage_row_groups(path: Path, holding: tuple[int, ...]) -> None:
    """Overwrite the pages of all row groups but those that hold the rows `holding`."""
    metadata = pq.ParquetFile(path).metadata
    assert metadata.num_row_groups >= 6
    content = bytearray(path.read_bytes())
    first = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if not any(first <= row < first + group.num_rows for row in holding):
            for place in range(group.num_columns):
                column = group.column(place)
                start = column.dictionary_page_offset or column.data_page_offset
                content[start : start + column.total_compressed_size] = bytes(
                    column.total_compressed_size
                )
        first += group.num_rows
    path.write_bytes(content)


@pytest.mark.parametrize("options", [GIVES["vectors"], f"{GIVES['vectors']}, {GIVES['changes']}"])
def test_tasks_sharing_a_bucket_write_a_joint_deletion_vector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    monkeypatch.setattr(planning, "_RANGE_BYTES_MIN", 1)
    table = table_of(tmp_path, options)
    for start in (0, 1):
        write(table, rows(range(start, 4000, 2), "old"))
    compact(table, is_full=True)
    for start in (3, 4):
        write(table, rows(range(start, 3000, 5), "new"))
    tasks = plan(table, is_full=False).tasks(3)
    assert len(tasks) > 1 and len({task.bounds for task in tasks}) == len(tasks)
    compact(table, is_full=False, slots=3)
    index = vector_index(table, table.paimon.snapshot_manager().get_latest_snapshot())
    [marked] = index.vectors(((), 0)).values()
    assert marked.tolist() == [k for k in range(3000) if k % 5 in (3, 4)]
    assert [row[1][:3] for row in rows_of(table)].count("new") == 1200
    assert len(rows_of(table, ViewKind.TABLE)) == 4000
