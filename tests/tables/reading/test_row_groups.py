"""Row groups that can't hold rows of use are not read, and nothing else changes."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pypaimon import Schema

from paimon_magics.errors import TableDamagedError
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.views import ViewKind
from paimon_magics.statements.statement import ColumnFilter, FilterValue, TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.reading import split_reader
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read
from paimon_magics.tables.stores.file_formats import RowGroups, StoredCondition, useful_row_groups
from paimon_magics.tables.table import Table

FIELDS = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        ("n", pa.int32()),
        ("s", pa.string()),
        ("d", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("flag", pa.bool_()),
    ]
)
ROWS, GROUP_ROWS = 400, 50
FIRST_DAY = datetime.date(2026, 1, 1)
CONDITIONS = {
    "k": ("number", ["-1", "0", "49", "50", "217", "399", "400"]),
    "n": ("number", ["0", "12", "13", "99"]),
    "s": ("string", ["", "text 007", "text 020", "ü"]),
    "d": ("number", ["0", "1.50", "10.005"]),
    "day": ("date", ["2025-12-31", "2026-01-01", "2026-03-01"]),
    "flag": ("boolean", ["true", "false"]),
}
TABLES: dict[str, tuple[list[str], dict[str, str]]] = {
    "append": ([], {}),
    "row ids": ([], {"row-tracking.enabled": "true"}),
    "deduplicate": (["k"], {"bucket": "1"}),
    "partial-update": (["k"], {"bucket": "1", "merge-engine": "partial-update"}),
}


def values(run: int) -> pa.Table:
    rows: dict[str, list[Any]] = {name: [] for name in FIELDS.names}
    for k in range(0, ROWS, run + 1):
        part = k // GROUP_ROWS  # of some columns a whole row group has NULL
        rows["k"].append(k)
        rows["n"].append(None if part == 2 else k // 30 + run)
        rows["s"].append(None if k % 5 == 0 else f"text {k // 20:03}")
        rows["d"].append(None if part == 3 else Decimal(k * 25 + run) / 100)
        rows["day"].append(FIRST_DAY + datetime.timedelta(days=k // 5))
        rows["flag"].append(part % 2 == 0)
    return pa.table(rows, schema=FIELDS)


def written(folder: Path, kind: str) -> Table:
    """Two commits; files have row groups of GROUP_ROWS rows."""
    keys, options = TABLES[kind]
    catalog = Catalog.open({"warehouse": str(folder)})
    catalog.paimon.create_database("default", True)
    schema = Schema.from_pyarrow_schema(FIELDS, primary_keys=keys, options=options)
    catalog.paimon.create_table("default.t", schema, False)
    for run in (0, 1):
        builder = catalog.paimon.get_table("default.t").new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        writer.write_arrow(values(run))
        commit.commit(writer.prepare_commit())
        writer.close()
        commit.close()
    for file in folder.rglob("bucket-*/*.parquet"):
        pq.write_table(pq.read_table(file), file, row_group_size=GROUP_ROWS)
    return catalog.load(TableName("t", "default"))


def rows(
    table: Table, kind: ViewKind, options: dict[str, str], *filters: ColumnFilter
) -> list[dict[str, Any]]:
    read = plan_data_read(table, ReadRequest(kind, options=options or {}, filters=filters))
    return [row for batch in read.rows() for row in batch.to_pylist()]


def meeting(found: list[dict[str, Any]], one: ColumnFilter, value: Any) -> list[str]:
    compare = {
        "=": lambda v: v == value,
        "<": lambda v: v < value,
        ">=": lambda v: v >= value,
        "is null": lambda v: False,
        "is not null": lambda v: True,
    }[one.operator]
    return sorted(
        str(row)
        for row in found
        if (
            one.operator == "is null"
            if row[one.column] is None
            else one.operator != "is null" and compare(row[one.column])
        )
    )


PARSED: dict[str, Any] = {
    "number": Decimal,
    "string": str,
    "date": datetime.date.fromisoformat,
    "boolean": lambda text: text == "true",
}


CASES = [*((kind, False) for kind in TABLES), ("deduplicate", True)]


@pytest.mark.parametrize(("kind", "late"), CASES)
def test_no_matching_row_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, late: bool
) -> None:
    monkeypatch.setattr(split_reader, "_LATE_BYTES_MIN", 0 if late else 1 << 40)
    table = written(tmp_path, kind)
    views = [(ViewKind.TABLE, {}), (ViewKind.AUDIT_LOG, {"incremental-between": "0,2"})]
    if kind == "row ids":
        views.append((ViewKind.ROW_TRACKING, {}))
    if TABLES[kind][0]:
        views += [
            (ViewKind.TABLE, {"incremental-between": "1,2", "incremental-between-scan-mode": mode})
            for mode in ("delta", "diff")
        ]
    fewer = 0
    for view, options in views:
        everything = rows(table, view, options)
        for column, (value_kind, texts) in CONDITIONS.items():
            for text, operator in zip(texts, itertools.cycle(("=", "<", ">=")), strict=False):
                one = ColumnFilter(column, operator, (FilterValue(value_kind, text),))  # type: ignore[arg-type]
                actual = rows(table, view, options, one)
                value = PARSED[value_kind](text)
                assert meeting(actual, one, value) == meeting(everything, one, value), one
                fewer += len(actual) < len(everything)
        for column, operator in (("n", "is null"), ("d", "is not null"), ("day", "is null")):
            one = ColumnFilter(column, operator)
            actual = rows(table, view, options, one)
            assert meeting(actual, one, None) == meeting(everything, one, None), one
    assert fewer > 10


@pytest.mark.parametrize("kind", ["append", "deduplicate"])
def test_skipped_row_groups_are_not_read(tmp_path: Path, kind: str) -> None:
    table = written(tmp_path, kind)
    for file in tmp_path.rglob("bucket-*/*.parquet"):
        content = bytearray(file.read_bytes())
        metadata = pq.ParquetFile(file).metadata
        for group in range(1, metadata.num_row_groups):
            for i in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(i)
                begin = chunk.dictionary_page_offset or chunk.data_page_offset
                content[begin : begin + chunk.total_compressed_size] = bytes(
                    chunk.total_compressed_size
                )
        file.write_bytes(content)
    options = {"incremental-between": "0,2"}
    of_keys = ColumnFilter("k", "<", (FilterValue("number", "50"),))
    actual = rows(table, ViewKind.AUDIT_LOG, options, of_keys)
    assert len(actual) == 2 * GROUP_ROWS
    of_values = ColumnFilter("day", "<", (FilterValue("date", "2026-01-02"),))
    if kind == "append":
        assert len(rows(table, ViewKind.TABLE, {}, of_values)) == 2 * GROUP_ROWS
    else:  # rows that don't meet the condition may hide some that do
        with pytest.raises(TableDamagedError, match="can't be read"):
            rows(table, ViewKind.TABLE, {}, of_values)


def test_statistics_of_another_type_skip_no_matching_rows(tmp_path: Path) -> None:
    table = written(tmp_path, "append")
    for file in tmp_path.rglob("bucket-*/*.parquet"):
        stored = pq.read_table(file)
        place = stored.schema.get_field_index("n")
        texts = stored.column("n").cast(pa.string())
        pq.write_table(stored.set_column(place, "n", texts), file, row_group_size=GROUP_ROWS)
    one = ColumnFilter("n", ">=", (FilterValue("number", "9"),))
    everything = rows(table, ViewKind.TABLE, {})
    actual = rows(table, ViewKind.TABLE, {}, one)
    assert meeting(actual, one, 9) == meeting(everything, one, 9) != []


@pytest.mark.parametrize(("precision", "physical"), [(9, "INT32"), (18, "INT64")])
def test_bounds_of_decimals_stored_as_integers_are_used(
    tmp_path: Path, precision: int, physical: str
) -> None:
    # As Java stores short ones.
    decimals = pa.array([Decimal(n) / 100 for n in range(-100, 100)], pa.decimal128(precision, 2))
    path = tmp_path / "decimals.parquet"
    pq.write_table(
        pa.table({"d": decimals}), path, row_group_size=50, store_decimal_as_integer=True
    )
    metadata = pq.read_metadata(path)
    assert metadata.row_group(0).column(0).physical_type == physical
    condition = ColumnPredicate("d", "<", (Decimal("-0.50"),))
    stored = StoredCondition("d", decimals.type, condition)
    assert useful_row_groups(metadata, [stored]) == [RowGroups((0,), 0, 50)]
