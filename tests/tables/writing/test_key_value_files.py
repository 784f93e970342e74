"""Files of rows with kinds and sequence numbers: sizes, bounds, formats, what is known of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paimon_magics.columnar.binary_rows import decode_rows
from paimon_magics.columnar.merging import KIND, SEQUENCE
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.writes.file_rules import FileRules, Statistics
from paimon_magics.tables.writing.key_value_files import (
    FileCreation,
    KeyValueFiles,
    KeyValueFileWriter,
)

COLUMNS = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "4"}),
        pa.field("v", pa.string(), metadata={"PARQUET:field_id": "7"}),
        pa.field("f", pa.float64(), metadata={"PARQUET:field_id": "8"}),
    ]
)
STATISTICS = {"k": Statistics(), "v": Statistics(length=3), "f": Statistics()}


def files(target_bytes: int = 1 << 30, format: str = "parquet") -> KeyValueFiles:
    return KeyValueFiles(
        creation=FileCreation(),
        schema=COLUMNS.serialize().to_pybytes(),
        keys=("k",),
        floats=("f",),
        rules=FileRules(format, "zstd", 1, STATISTICS),
        target_bytes=target_bytes,
        schema_id=2,
        level=5,
    )


def rows(start: int, count: int, odd: float | None = None) -> pa.RecordBatch:
    keys = np.arange(start, start + count)
    floats = np.full(count, 0.5) if odd is None else np.full(count, odd)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys),
            pa.array([f"value-{key}" for key in keys]),
            pa.array(floats),
            pa.array(keys + 100),
            pa.array((keys % 4).astype(np.int8)),
        ],
        names=["k", "v", "f", SEQUENCE, KIND],
    )


def test_writer_reports_metadata_of_its_file(tmp_path: Path) -> None:
    writer = KeyValueFileWriter(files(), str(tmp_path / "bucket-0"), "data-1")
    writer.write(rows(0, 10))
    writer.write(rows(10, 10))
    [file] = writer.finish()
    path = tmp_path / "bucket-0" / file.name
    assert file.name == "data-1-0.parquet"
    assert file.size_bytes == path.stat().st_size
    assert (file.rows, file.deleted_rows, file.level, file.schema_id) == (20, 10, 5, 2)
    assert (file.min_sequence_number, file.max_sequence_number) == (100, 119)
    assert file.is_compacted
    ends = pa.array([file.least_key, file.greatest_key], pa.large_binary())
    assert decode_rows(ends, [pa.int64()])[0].to_pylist() == [0, 19]
    bounds = pa.array([file.value_bounds.least, file.value_bounds.greatest], pa.large_binary())
    actual = [column.to_pylist() for column in decode_rows(bounds, COLUMNS.types)]
    assert actual == [[0, 19], ["val", "vam"], [0.5, 0.5]]
    assert file.value_bounds.null_counts == (0, 0, 0)
    assert file.bounded_columns is None


def test_a_file_has_field_ids_and_no_key_columns(tmp_path: Path) -> None:
    writer = KeyValueFileWriter(files(), str(tmp_path), "data")
    writer.write(rows(0, 3))
    [file] = writer.finish()
    stored = pq.read_schema(tmp_path / file.name)
    ids = {each.name: int(each.metadata[b"PARQUET:field_id"]) for each in stored}
    assert ids == {SEQUENCE: 2147483646, KIND: 2147483645, "k": 4, "v": 7, "f": 8}
    assert [each.nullable for each in stored] == [False, False, False, True, True]


def test_files_have_about_the_target_size(tmp_path: Path) -> None:
    writer = KeyValueFileWriter(files(target_bytes=40_000), str(tmp_path), "data")
    for start in range(0, 40_000, 4_000):
        writer.write(rows(start, 4_000))
    written = writer.finish()
    assert sum(file.rows for file in written) == 40_000
    assert len(written) > 3
    assert all(file.size_bytes < 120_000 for file in written)
    least, greatest = (
        decode_rows(pa.array(ends), [pa.int64()])[0].to_pylist()
        for ends in ([file.least_key for file in written], [file.greatest_key for file in written])
    )
    assert least[1:] == [end + 1 for end in greatest[:-1]]
    assert len({file.name for file in written}) == len(written)


def test_row_groups_have_the_size_of_a_merge_batch(tmp_path: Path) -> None:
    """A search for few keys reads whole row groups."""
    writer = KeyValueFileWriter(files(), str(tmp_path), "data")
    writer.write(rows(0, 150_000))
    [file] = writer.finish()
    metadata = pq.read_metadata(tmp_path / file.name)
    sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert sizes == [65_536, 65_536, 18_928]


@pytest.mark.parametrize("first", [0, 1])
def test_both_rows_of_an_update_are_in_the_same_file(tmp_path: Path, first: int) -> None:
    writer = KeyValueFileWriter(files(target_bytes=3_000), str(tmp_path), "changelog")
    for start in range(first, 4_000, 500):
        batch = rows(start, 500)
        kinds = pa.array(((np.arange(start, start + 500) - first) % 2 + 1).astype(np.int8))
        writer.write(batch.set_column(batch.schema.get_field_index(KIND), KIND, kinds))
    written = writer.finish()
    assert len(written) > 3
    for file in written:
        kinds = pq.read_table(tmp_path / file.name).column(KIND)
        assert (kinds[0].as_py(), kinds[-1].as_py()) == (1, 2)


@pytest.mark.parametrize("odd", [float("nan"), -0.0])
def test_odd_floats_have_no_bounds_in_the_footer(tmp_path: Path, odd: float) -> None:
    writer = KeyValueFileWriter(files(), str(tmp_path), "data")
    writer.write(rows(0, 10, odd))
    [file] = writer.finish()
    group = pq.read_metadata(tmp_path / file.name).row_group(0)
    told = {group.column(i).path_in_schema: group.column(i).is_stats_set for i in range(5)}
    assert told == {SEQUENCE: True, KIND: True, "k": True, "v": True, "f": False}
    bounds = pa.array([file.value_bounds.least], pa.large_binary())
    assert decode_rows(bounds, COLUMNS.types)[2].to_pylist() == [None]


def test_file_with_bounds_ends_before_odd_floats(tmp_path: Path) -> None:
    writer = KeyValueFileWriter(files(target_bytes=1 << 22), str(tmp_path), "data")
    writer.write(rows(0, 600_000))
    writer.write(rows(600_000, 10, float("nan")))
    first, second = writer.finish()
    for file, bounded in ((first, True), (second, False)):
        group = pq.read_metadata(tmp_path / file.name).row_group(0)
        assert group.column(4).is_stats_set is bounded


@pytest.mark.parametrize("format", ["orc", "avro"])
def test_orc_and_avro_files_hold_the_same_rows(tmp_path: Path, format: str) -> None:
    writer = KeyValueFileWriter(files(format=format), str(tmp_path), "data")
    writer.write(rows(0, 10))
    [file] = writer.finish()
    path = tmp_path / file.name
    assert file.size_bytes == path.stat().st_size
    if format == "orc":
        from pyarrow import orc

        actual = orc.read_table(path).select(["k", SEQUENCE, KIND]).to_pylist()
    else:
        import fastavro

        with path.open("rb") as source:
            actual = [
                {name: row[name] for name in ("k", SEQUENCE, KIND)}
                for row in fastavro.reader(source)
            ]
    assert actual == rows(0, 10).select(["k", SEQUENCE, KIND]).to_pylist()


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    rules = replace(files().rules, format="lance")
    writer = KeyValueFileWriter(replace(files(), rules=rules), str(tmp_path), "data")
    writer.write(rows(0, 10))
    with pytest.raises(UnsupportedStatementError, match="lance"):
        writer.finish()
    writer.abort()
    assert not list(tmp_path.iterdir())


def test_an_abort_leaves_no_file(tmp_path: Path) -> None:
    writer = KeyValueFileWriter(files(target_bytes=10_000), str(tmp_path), "data")
    for start in range(0, 40_000, 10_000):
        writer.write(rows(start, 10_000))
    assert list(tmp_path.iterdir())
    writer.abort()
    assert not list(tmp_path.iterdir())
