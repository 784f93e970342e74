"""Conditions never change results: files are left out only where no row of theirs is of use."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_magics.planning.reads.predicates import ColumnPredicate, column_predicates
from paimon_magics.planning.reads.views import ViewKind
from paimon_magics.statements.statement import ColumnFilter, FilterValue, TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read
from paimon_magics.tables.table import Table
from tests.sampling import sampled

COMPARISONS = {
    "=": lambda value, wanted: value == wanted[0],
    "<": lambda value, wanted: value < wanted[0],
    "<=": lambda value, wanted: value <= wanted[0],
    ">": lambda value, wanted: value > wanted[0],
    ">=": lambda value, wanted: value >= wanted[0],
    "in": lambda value, wanted: value in wanted,
}


def meets(row: dict[str, Any], predicates: Sequence[ColumnPredicate]) -> bool:
    for each in predicates:
        value = row[each.column]
        if each.operator == "is null":
            if value is not None:
                return False
        elif value is None or (
            each.operator in COMPARISONS and not COMPARISONS[each.operator](value, each.values)
        ):
            return False
    return True


def rows(
    table: Table,
    kind: ViewKind,
    filters: Sequence[ColumnFilter],
    options: dict[str, str],
    folder: ManifestCache | None = None,
) -> tuple[list[dict[str, Any]], tuple[ColumnPredicate, ...], int]:
    request = ReadRequest(kind, filters=filters, options=options or {})
    read = plan_data_read(table, request, manifests=folder)
    found = [row for batch in read.rows() for row in batch.to_pylist()]
    files = sum(len(raw.paths) for raw in read.planned.raw)
    return found, read.predicates, files + sum(len(split.files) for split in read.planned.splits)


def literals(values: Sequence[Any]) -> list[FilterValue]:
    found = []
    for value in values:
        match value:
            case bool():
                found.append(FilterValue("boolean", str(value).lower()))
            case int():
                found += [FilterValue("number", str(value + d)) for d in (-1, 0, 1)]
            case str():
                found += [FilterValue("string", text) for text in (value, value + "x", "")]
            case datetime.date():
                found.append(FilterValue("date", value.isoformat()))
    return list(dict.fromkeys(found))


@pytest.fixture(scope="module")
def catalog(recorded_warehouse: Path) -> Catalog:
    return Catalog.open({"warehouse": str(recorded_warehouse)})


# Of each kind of table one: append, merge engines, deletion vectors, evolved schemas, all types.
TABLES = [
    *("a1.s03", "a1.s05", "a1.s07", "a1.s08", "a1.s09", "a2.s02"),
    *("a2.s11", "a2.s12", "a2.s16", "e1.e6", "e3.cx"),
]


@pytest.mark.parametrize(
    ("name", "kind"),
    sampled(TABLES, {"table": ViewKind.TABLE, "audit log": ViewKind.AUDIT_LOG}),
)
def test_pruning_keeps_all_matching_rows(catalog: Catalog, name: str, kind: ViewKind) -> None:
    database, _, table_name = name.partition(".")
    table = catalog.load(TableName(table_name, database))
    latest = table.paimon.snapshot_manager().get_latest_snapshot()
    windows: list[dict[str, str]] = [{}]
    if table.schema.merge_engine != "first-row" and latest.id > 1:
        windows.append({"incremental-between": f"{max(latest.id - 3, 0)},{latest.id}"})
    folder = ManifestCache(table.paimon)  # decoded once, as by a session
    for options in windows:
        everything, _, _ = rows(table, kind, (), options, folder)
        for column in table.schema.columns:
            values = literals([row[column.name] for row in everything][:1])
            filters = [
                ColumnFilter(column.name, operator, (value,))
                for operator in COMPARISONS
                for value in values
            ]
            filters += [ColumnFilter(column.name, each) for each in ("is null", "is not null")]
            for each in filters:
                actual, predicates, _ = rows(table, kind, [each], options, folder)
                expected = [row for row in everything if meets(row, predicates)]
                assert _sorted(row for row in actual if meets(row, predicates)) == _sorted(expected)


def _sorted(found: Any) -> list[str]:
    return sorted(repr(row) for row in found)


def test_conditions_prune_files(tmp_path: Path) -> None:
    catalog = Catalog.open({"warehouse": str(tmp_path)})
    _written(catalog, "append", [], {})
    _written(catalog, "fixed", ["p", "k"], {"bucket": "4"})
    for name, filters, expected in [
        ("append", [ColumnFilter("p", "=", (FilterValue("string", "a"),))], 3),
        ("append", [ColumnFilter("k", "=", (FilterValue("number", "5"),))], 2),
        ("append", [ColumnFilter("k", ">", (FilterValue("number", "100"),))], 0),
        ("append", [ColumnFilter("p", "is null")], 0),
        ("fixed", [ColumnFilter("k", "in", (FilterValue("number", "500"),))], 0),
        ("fixed", [ColumnFilter("k", "in", ())], 0),
        ("append", [ColumnFilter("k", "in", ())], 0),
    ]:
        table = catalog.load(TableName(name, "default"))
        assert rows(table, ViewKind.TABLE, filters, {})[2] == expected, (name, filters)
    table = catalog.load(TableName("fixed", "default"))
    for operator in ("=", "in"):
        point = [
            ColumnFilter("p", "in", (FilterValue("string", "a"),)),
            ColumnFilter("k", operator, (FilterValue("number", "5"),)),
        ]
        actual, _, files = rows(table, ViewKind.TABLE, point, {})
        assert [row["v"] for row in actual if row["k"] == 5] == ["5"]
        assert files == 1, "one bucket of one partition, and of its files the one with the key"
    keys = tuple(FilterValue("number", str(key)) for key in range(100))
    actual, _, files = rows(table, ViewKind.TABLE, [point[0], ColumnFilter("k", "in", keys)], {})
    assert len(actual) > 10


def _written(catalog: Catalog, name: str, keys: list[str], options: dict[str, str]) -> None:
    from pypaimon import Schema

    fields = [
        pa.field("p", pa.string(), nullable="p" not in keys),
        pa.field("k", pa.int32(), nullable="k" not in keys),
        pa.field("v", pa.string()),
    ]
    schema = Schema.from_pyarrow_schema(
        pa.schema(fields),
        partition_keys=["p"],
        primary_keys=keys,
        options={"metadata.stats-mode": "full", **options},
    )
    catalog.paimon.create_database("default", True)
    catalog.paimon.create_table(f"default.{name}", schema, False)
    table = catalog.paimon.get_table(f"default.{name}")
    for start in (0, 10, 20):
        builder = table.new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        numbers = range(start, start + 10)
        columns = {
            "p": ["a" if n % 2 else "b" for n in numbers],
            "k": list(numbers),
            "v": [str(n) for n in numbers],
        }
        writer.write_arrow(pa.table(columns, schema=pa.schema(fields)))
        commit.commit(writer.prepare_commit())
        writer.close()
        commit.close()


def test_values_of_bind_parameters_count() -> None:
    from paimon_magics.planning.schemas.table_schema import Column
    from paimon_magics.statements.data_types import AtomicType

    columns = [Column(0, "k", AtomicType("INT")), Column(1, "f", AtomicType("DOUBLE"))]
    filters = [
        ColumnFilter("K", "=", (FilterValue("parameter", "x"),)),
        ColumnFilter("f", ">", (FilterValue("number", "1"),)),
        ColumnFilter("k", "=", (FilterValue("string", "1"),)),
    ]
    assert column_predicates(filters, columns, {"x": 7}) == (ColumnPredicate("k", "=", (7,)),)
