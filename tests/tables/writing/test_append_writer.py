"""Rows of append tables written into Parquet files: the native writer is the oracle."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pypaimon.table.row.generic_row import GenericRowDeserializer
from pypaimon.utils.file_store_path_factory import canonical_data_file_path

from paimon_magics.errors import InvalidValueError
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import read_messages
from paimon_magics.tables.writing.native_writer import NativeTable, native_table
from paimon_magics.tables.writing.own_writers import AppendTable, append_table, appends_itself
from paimon_magics.tables.writing.write_spec import WriteSpec
from paimon_magics.tables.writing.writer import write_batches
from tests.tables.manifest_files import create

COLUMNS = (
    "(k BIGINT NOT NULL, t TINYINT, s SMALLINT, i INT, f FLOAT, d DOUBLE, b BOOLEAN, c STRING, "
    "n DECIMAL(9, 2), m DECIMAL(18, 4), w DECIMAL(30, 8), day DATE, at TIMESTAMP_NTZ, "
    "instant TIMESTAMP, raw BINARY, l ARRAY<INT>, r STRUCT<x: INT, y: STRING>, part INT)"
)


def rows_of(table: Table, count: int) -> pa.RecordBatch:
    at = datetime.datetime(1999, 12, 31, 23, 59, 59, 999_999)
    rows: list[dict[str, Any]] = []
    for number in range(count):
        row = {
            "k": number * 7919 % count,
            "t": number % 100 - 50,
            "s": -number,
            "i": number * 1000,
            "f": number / 2,
            "d": number / 7,
            "b": number % 2 == 0,
            "c": f"täxt-{number % 40}" * 3,
            "n": Decimal(number - 50) / 100,
            "m": Decimal(-number) * 10**9,
            "w": Decimal(number) * 10**15,
            "day": at.date() - datetime.timedelta(number),
            "at": at + datetime.timedelta(hours=number),
            "instant": (at - datetime.timedelta(hours=number)).replace(tzinfo=datetime.UTC),
            "raw": bytes([number % 256, 0, 255]),
            "l": [number, None] if number % 3 else None,
            "r": {"x": number, "y": None} if number % 5 else None,
            "part": number % 3 if number % 11 else None,
        }
        if number % 4 == 1:
            row |= dict.fromkeys(("t", "f", "c", "n", "m", "w", "day", "at", "instant", "raw"))
        rows.append(row)
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(table.schema))


def written(table: Table, opened: AppendTable | NativeTable, batches: Sequence[Any]) -> list[Any]:
    spec = WriteSpec(
        table=opened,
        commit_user="somebody",
        schema=arrow_schema(table.schema).serialize().to_pybytes(),
        partition_keys=table.schema.partition_keys,
        bucket_rule=None,
        overwrite=False,
        attempts_folder=None,
    )
    return list(read_messages(table.paimon, write_batches(spec, batches).messages))


def files_of(table: Table, messages: Sequence[Any]) -> dict[tuple[Any, ...], list[Any]]:
    """Metadata and path of the files of each partition."""
    return {
        message.partition: [
            (
                file,
                canonical_data_file_path(
                    table.paimon, message.partition, message.bucket, file.file_name
                ),
            )
            for file in message.new_files
        ]
        for message in messages
    }


def bounds(table: Table, file: Any) -> dict[str, list[Any]]:
    """Least and greatest value, and the number of NULLs of each column that has any."""
    names = file.value_stats_cols or table.schema.column_names
    by_name = {field.name: field for field in table.paimon.table_schema.fields}
    fields = [by_name[name] for name in names]
    stats = file.value_stats
    ends = (
        GenericRowDeserializer.from_bytes(row.data, fields).values
        for row in (stats.min_values, stats.max_values)
    )
    values = (*ends, stats.null_counts)
    # The native writer knows nothing of nested columns.
    return {name: known for name, *known in zip(names, *values, strict=True) if name not in "lr"}


def test_append_writer_writes_the_rows_of_the_native_writer(tmp_path: Path) -> None:
    table = create(tmp_path, f"CREATE TABLE t {COLUMNS} PARTITIONED BY (part)")
    assert appends_itself(table.schema)
    rows = rows_of(table, 600)
    batches = [rows.slice(start, 70) for start in range(0, rows.num_rows, 70)]
    native = files_of(table, written(table, native_table(table), batches))
    own = files_of(table, written(table, append_table(table, "pm-own-"), batches))
    assert own.keys() == native.keys() == {(0,), (1,), (2,), (None,)}
    for partition, [(mine, path)] in own.items():
        [(other, other_path)] = native[partition]
        told = [
            (
                file.row_count,
                file.schema_id,
                file.level,
                file.file_source,
                file.delete_row_count,
                bounds(table, file),
                (file.min_sequence_number, file.max_sequence_number),
            )
            for file in (mine, other)
        ]
        assert told[0] == told[1]
        assert mine.file_size == Path(path).stat().st_size
        mine_read, other_read = pq.ParquetFile(path), pq.ParquetFile(other_path)
        assert mine_read.read().equals(other_read.read())
        physical = [
            [each.schema.column(place).physical_type for place in range(len(each.schema))]
            for each in (mine_read, other_read)
        ]
        assert physical[0] == physical[1]


def test_buffered_rows_are_bounded_across_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_bytes = 4 * 2**20
    monkeypatch.setattr("paimon_magics.tables.writing.own_writers._WAITING_BYTES_MAX", limit_bytes)
    table = create(tmp_path, "CREATE TABLE t (k BIGINT, c STRING, part INT) PARTITIONED BY (part)")
    schema = arrow_schema(table.schema)
    texts = pa.array(["x" * 100] * 20_000)
    before = pa.total_allocated_bytes()
    writer = append_table(table, "pm-own-").writer("somebody", overwrite=False)
    held = 0
    for number in range(60):
        part = pa.array([number % 20] * 20_000, pa.int32())
        numbers = pa.array(range(number * 20_000, (number + 1) * 20_000))
        writer.write(pa.RecordBatch.from_arrays([numbers, texts, part], schema=schema), None)
        held = max(held, pa.total_allocated_bytes() - before)
    messages = list(read_messages(table.paimon, writer.messages()))
    writer.close()
    actual = [file for files in files_of(table, messages).values() for file in files]
    assert [file.row_count for file, _ in actual] == [60_000] * 20
    read = sorted(k for _, path in actual for k in pq.ParquetFile(path).read()["k"].to_pylist())
    assert read == list(range(60 * 20_000))
    assert held < 4 * limit_bytes, held


def test_files_have_about_the_target_size(tmp_path: Path) -> None:
    options = "'target-file-size' = '200 kb', 'file.compression' = 'snappy'"
    table = create(tmp_path, f"CREATE TABLE t (k BIGINT) TBLPROPERTIES ({options})")
    numbers = [pa.array(range(n * 10_000, (n + 1) * 10_000)) for n in range(16)]
    schema = arrow_schema(table.schema)
    batches = [pa.RecordBatch.from_arrays([each], schema=schema) for each in numbers]
    files = files_of(table, written(table, append_table(table, "pm-own-"), batches))[()]
    sizes = [file.file_size for file, _ in files]
    assert len(sizes) > 2 and max(sizes) < 400 * 1024 and min(sizes[:-1]) > 100 * 1024
    read = [k for _, path in files for k in pq.ParquetFile(path).read()["k"].to_pylist()]
    assert read == list(range(160_000))
    codecs = {pq.ParquetFile(path).metadata.row_group(0).column(0).compression for _, path in files}
    assert codecs == {"SNAPPY"}


def test_null_in_a_required_column_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    table = create(tmp_path, "CREATE TABLE t (k BIGINT NOT NULL, v INT)")
    schema = arrow_schema(table.schema)
    good = pa.RecordBatch.from_pydict({"k": [1], "v": [1]}, schema=schema)
    nothing = pa.array([None], pa.int64())
    bad = pa.RecordBatch.from_arrays([nothing, pa.array([1], pa.int32())], schema=schema)
    writer = append_table(table, "pm-own-").writer("somebody", overwrite=False)
    writer.write(good, None)
    with pytest.raises(InvalidValueError, match="column `k` is NOT NULL"):
        writer.write(bad, None)
    writer.close()
    assert not list(Path(table.location).glob("bucket-*/*"))


@pytest.mark.parametrize(
    "options",
    [
        "'row-tracking.enabled' = 'true'",
        "'primary-key' = 'k', 'bucket' = '1'",
    ],
)
def test_tables_of_other_kinds_use_other_writers(tmp_path: Path, options: str) -> None:
    sql = f"CREATE TABLE t (k BIGINT NOT NULL) TBLPROPERTIES ({options})"
    assert not appends_itself(create(tmp_path, sql).schema)
