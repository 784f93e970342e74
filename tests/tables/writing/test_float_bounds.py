"""Bounds of floating-point columns in what is written: by none of them rows are passed over."""

from __future__ import annotations

import io
import math
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pypaimon import Schema
from pypaimon.table.row.generic_row import GenericRowDeserializer

from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.reads.scans import has_true_bounds
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.settings import Settings
from paimon_magics.statements.data_types import ArrayType, AtomicType
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import read_messages
from paimon_magics.tables.writing.table_write import completed, write_spec
from paimon_magics.tables.writing.writer import write_batches
from tests.backends.s3 import s3_server

FIELDS = pa.schema(
    [
        pa.field("k", pa.float64(), nullable=False),
        ("g", pa.float64()),
        ("f", pa.float32()),
        ("a.b", pa.float64()),
        ("l", pa.list_(pa.float32())),
        ("i", pa.int64()),
    ]
)
DEFINITION = TableSchema(
    (
        *(Column(i, n, AtomicType("DOUBLE")) for i, n in enumerate(["k", "g"])),
        Column(2, "f", AtomicType("FLOAT")),
        Column(3, "a.b", AtomicType("DOUBLE")),
        Column(4, "l", ArrayType(AtomicType("FLOAT"))),
        Column(5, "i", AtomicType("BIGINT")),
    )
)
INF, NAN = math.inf, math.nan


def create(warehouse: Path | dict[str, str], options: dict[str, str], keys: Sequence[str]) -> Table:
    catalog = Catalog.open(
        warehouse if isinstance(warehouse, dict) else {"warehouse": str(warehouse)}
    )
    catalog.paimon.create_database("default", True)
    schema = Schema.from_pyarrow_schema(
        FIELDS, primary_keys=list(keys) or None, options={"metadata.stats-mode": "full", **options}
    )
    catalog.paimon.create_table("default.t", schema, False)
    return catalog.load(TableName("t", "default"))


def write(table: Table, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The messages of a transaction with these rows, as they would be committed."""
    transaction = Transaction(table.name, "0" * 32, f"pm-{'0' * 32}-", 0)
    task = write_spec(table, transaction, overwrite=False, slots=1, settings=Settings())
    batch = pa.RecordBatch.from_pylist(
        [dict(zip(FIELDS.names, row, strict=True)) for row in rows], FIELDS
    )
    written = write_batches(task, [batch])
    return list(read_messages(table.paimon, completed(table, task, written, 0).messages))


def with_bounds(path: Path | io.BytesIO) -> set[str]:
    """The columns that a footer has bounds of, in its first row group."""
    file = pq.ParquetFile(path)
    group = file.metadata.row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    found = {each.path_in_schema for each in columns if each.is_stats_set}
    assert found == {each.path_in_schema for each in columns if each.has_column_index}
    return {name.removesuffix(".list.element") for name in found} & {*FIELDS.names, "_KEY_k"}


def told(statistics: Any, names: Sequence[str]) -> set[str]:
    """The columns that statistics of a manifest have bounds of."""
    rows = (statistics.min_values, statistics.max_values)
    return {
        name
        for place, name in enumerate(names)
        if not all(GenericRowDeserializer.is_null_at(row.actual_data, 0, place) for row in rows)
    }


ROW = (1.0, 1.0, 1.0, 1.0, [1.0], 1)


@pytest.mark.parametrize(
    ("rows", "odd"),
    [
        ([ROW], set()),
        ([ROW, (2.0, INF, -INF, None, [], 2), (3.0, 0.0, None, 0.0, None, 2)], set()),
        ([ROW, (2.0, NAN, 2.0, 2.0, [2.0], 2)], {"g"}),
        ([(2.0, 1.0, -0.0, NAN, [1.0], 2), ROW], {"f", "a.b"}),
        ([ROW, (NAN, 1.0, 1.0, 1.0, [1.0, NAN], 2)], {"k", "_KEY_k", "l"}),
    ],
)
@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({}, ()),
        ({"bucket": "1"}, ("k",)),
        ({"bucket": "1", "changelog-producer": "input"}, ("k",)),
        ({"bucket": "-1"}, ("k",)),
    ],
    ids=["append", "keyed", "changelog", "dynamic buckets"],
)
def test_footers_have_only_correct_bounds(
    tmp_path: Path,
    rows: list[tuple[Any, ...]],
    odd: set[str],
    options: dict[str, str],
    keys: Sequence[str],
) -> None:
    messages = write(create(tmp_path, options, keys), rows)
    files = [file for each in messages for file in (*each.new_files, *each.changelog_files)]
    assert len(files) == (2 if "changelog-producer" in options else 1)
    for file in files:
        (path,) = tmp_path.rglob(file.file_name)
        assert has_true_bounds(str(path))
        assert path.stat().st_size == file.file_size
        stored = pq.ParquetFile(path)
        leaves = {*FIELDS.names, *({"_KEY_k"} if "_KEY_k" in stored.schema_arrow.names else ())}
        assert with_bounds(path) == leaves - odd
        assert sorted(map(repr, stored.read(["g"])["g"].to_pylist())) == sorted(
            repr(row[1]) for row in rows
        )


def test_footers_in_object_stores_have_only_correct_bounds() -> None:
    with s3_server() as server:
        catalog = Catalog.open(server.bucket().options)
        name = TableName("t", "default")
        catalog.create_table(name, DEFINITION)
        table = catalog.load(name)
        rows: list[tuple[Any, ...]] = [
            (float(n), 1.0, NAN if n == 7 else 1.0, 1.0, [], n) for n in range(2_000)
        ]
        (message,) = write(table, rows)
        (file,) = message.new_files
        with table.paimon.file_io.new_input_stream(
            f"{table.location}/bucket-0/{file.file_name}"
        ) as stream:
            content = stream.read()
        assert len(content) == file.file_size
        assert "f" not in with_bounds(io.BytesIO(content))
        assert {"g", "k"} <= with_bounds(io.BytesIO(content))
        stored = pq.read_table(io.BytesIO(content))
        assert stored["i"].to_pylist() == list(range(2_000))
        assert math.isnan(stored["f"][7].as_py())


def test_other_readers_skip_no_matching_rows(tmp_path: Path) -> None:
    rows: list[tuple[Any, ...]] = [
        (float(n), NAN if n % 30_000 == 7 else n / 50_000, -0.0 if n == 3 else 1.0, 0.0, None, n)
        for n in range(60_000)
    ]
    (message,) = write(create(tmp_path, {"bucket": "-1"}, []), rows)
    (path,) = tmp_path.rglob(message.new_files[0].file_name)
    whole = pq.read_table(path)
    for column, wanted in (("g", 9.0), ("g", NAN), ("g", 1.0), ("f", 0.0), ("k", 70_000.0)):
        for compare in (operator.eq, operator.ge, operator.gt, operator.lt, operator.ne):
            condition = compare(pl.col(column), wanted)
            expected = pl.DataFrame(pl.from_arrow(whole)).filter(condition)
            assert pl.scan_parquet(path).filter(condition).collect().equals(expected)
            filtered = compare(pc.field(column), pa.scalar(wanted, whole[column].type))
            actual = ds.dataset(path).to_table(filter=filtered)
            assert actual.num_rows == whole.filter(filtered).num_rows


def test_manifests_have_only_correct_bounds_of_float_columns(
    tmp_path: Path,
) -> None:
    (message,) = write(
        create(tmp_path, {"bucket": "1"}, ["k"]), [ROW, (NAN, 2.0, -0.0, 2.0, [], 2)]
    )
    (file,) = message.new_files
    assert told(file.value_stats, file.value_stats_cols or FIELDS.names) == {"g", "a.b", "i"}
    assert not told(file.key_stats, ["k"])


def test_native_writer_puts_no_float_bounds_into_manifests(
    tmp_path: Path,
) -> None:
    options = {"bucket": "1", "merge-engine": "aggregation"}
    (message,) = write(create(tmp_path, options, ["k"]), [ROW, (NAN, 2.0, 2.0, 2.0, [], 2)])
    (file,) = message.new_files
    assert file.value_stats_cols == ["i"]
    assert not told(file.key_stats, ["k"])


def test_nan_computed_by_a_sum_has_no_bounds(tmp_path: Path) -> None:
    options = {
        "bucket": "1",
        "merge-engine": "aggregation",
        "fields.g.aggregate-function": "sum",
        "fields.f.aggregate-function": "max",
    }
    rows = [(1.0, INF, 1.0, 1.0, [1.0], 1), (1.0, -INF, 1.0, 1.0, [1.0], 1)]
    (message,) = write(create(tmp_path, options, ["k"]), rows)
    (path,) = tmp_path.rglob(message.new_files[0].file_name)
    assert "g" not in with_bounds(path)
    assert "f" in with_bounds(path)


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_manifests_of_orc_and_avro_files_have_no_bounds_of_columns_with_nan(
    tmp_path: Path, file_format: str
) -> None:
    table = create(tmp_path, {"file.format": file_format}, [])
    (message,) = write(table, [(*ROW[:4], None, 1), (2.0, NAN, 2.0, 2.0, None, 2)])
    (file,) = message.new_files
    assert not has_true_bounds(file.file_name)
    names = file.value_stats_cols or FIELDS.names
    assert told(file.value_stats, names) == {"k", "f", "a.b", "i"}
