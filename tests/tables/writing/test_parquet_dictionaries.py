"""Dictionaries in Parquet files: where values repeat, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pypaimon import CatalogFactory
from pypaimon.schema.schema import Schema

from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.writing.bucket_counts import BucketRule
from paimon_magics.tables.writing.format_writers import repeats_values
from paimon_magics.tables.writing.native_writer import native_table
from paimon_magics.tables.writing.write_spec import WriteSpec
from paimon_magics.tables.writing.writer import write_batches

ROWS = 20_000
UNIQUE = pa.array(range(ROWS), pa.int64())
TEXTS = pa.array([f"value {number}" for number in range(ROWS)])
FEW = pa.array([number % 300 for number in range(ROWS)], pa.int64())
FEW_TEXTS = pa.array([f"town {number % 300}" for number in range(ROWS)])
LISTS = pa.array([[number % 300] for number in range(ROWS)])


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([UNIQUE], False),
        ([UNIQUE, TEXTS], False),
        ([UNIQUE, TEXTS, FEW], False),
        ([UNIQUE, FEW], True),
        ([FEW], True),
        ([UNIQUE, TEXTS, FEW_TEXTS], True),
        ([UNIQUE, LISTS], True),
        ([UNIQUE.slice(0, 100)], True),
        ([pa.nulls(ROWS, pa.string()), UNIQUE], True),
    ],
)
def test_repeated_values_are_detected(columns: Sequence[pa.Array], expected: bool) -> None:
    names = [str(position) for position in range(len(columns))]
    assert repeats_values(pa.RecordBatch.from_arrays(columns, names=names)) is expected


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize(
    ("values", "options", "expected"),
    [
        (TEXTS, {}, False),
        (FEW_TEXTS, {}, True),
        (TEXTS, {"parquet.enable.dictionary": "true"}, True),
        (FEW_TEXTS, {"parquet.enable.dictionary": "false"}, False),
    ],
)
def test_dictionaries_are_written_for_repeated_values_or_by_option(
    tmp_path: Path, keyed: bool, values: pa.Array, options: dict[str, str], expected: bool
) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
    pypaimon = CatalogFactory.create({"warehouse": str(tmp_path)})
    pypaimon.create_database("default", True)
    stored = {**options, "bucket": "1"} if keyed else options
    keys = ["k"] if keyed else None
    pypaimon.create_table(
        "default.t", Schema.from_pyarrow_schema(schema, primary_keys=keys, options=stored), False
    )
    table = Catalog.open({"warehouse": str(tmp_path)}).load(TableName("t", "default"))
    task = WriteSpec(
        table=native_table(table),
        commit_user="a test",
        schema=schema.serialize().to_pybytes(),
        partition_keys=(),
        bucket_rule=BucketRule(("k",), 1) if keyed else None,
        overwrite=False,
        attempts_folder=None,
    )
    rows = pa.RecordBatch.from_arrays([UNIQUE, values], schema=schema)
    assert write_batches(task, [rows.slice(0, 4096), rows.slice(4096)]).rows == ROWS
    (file,) = tmp_path.glob("default.db/t/**/*.parquet")
    group = pq.ParquetFile(file).metadata.row_group(0)
    (column,) = (
        group.column(index)
        for index in range(group.num_columns)
        if group.column(index).path_in_schema == "v"
    )
    assert column.has_dictionary_page is expected
    assert pq.read_table(file)["v"].combine_chunks().equals(values)
