"""Tables that older releases wrote are read as those releases read them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from paimon_magics.planning.reads.views import ViewKind
from paimon_magics.statements.clauses.names import table_name_of
from paimon_magics.statements.statement import ColumnFilter, FilterValue, TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read, shown_schema
from paimon_magics.tables.system_tables.registry import METADATA_TABLES, metadata_table
from paimon_magics.tables.table import Table
from tests.older_releases import older_reads, older_tables, unpack_older_releases
from tests.recorded_reads import RecordedRead, assert_same_rows
from tests.sampling import sampled
from tests.tables.expiry.test_expire_snapshots import expire
from tests.tables.reachability import missing, unreachable

DATA_READS = [read for read in older_reads() if read.system_table in (None, "audit_log")]
METADATA_READS = [read for read in older_reads() if read.system_table in METADATA_TABLES]
TRIMS_CHAR = ("j0_5_0", "j0_6_0")
"""Read by Paimon's Java library, whose ORC reader leaves out the spaces that fill up a CHAR. The
connector for Spark shows them."""

KINDS = {None: ViewKind.TABLE, "audit_log": ViewKind.AUDIT_LOG}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    warehouse = unpack_older_releases(tmp_path_factory.mktemp("older"))
    return Catalog.open({"warehouse": str(warehouse)})


@pytest.fixture(scope="module")
def expiring(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    warehouse = unpack_older_releases(tmp_path_factory.mktemp("expiring"))
    return Catalog.open({"warehouse": str(warehouse)})


@pytest.fixture(autouse=True)
def recorded_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process's time zone is that of the JVM at the recording."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def rows(
    table: Table, kind: ViewKind = ViewKind.TABLE, filters: tuple[ColumnFilter, ...] = ()
) -> pa.Table:
    planned = plan_data_read(table, ReadRequest(kind, filters=filters))
    schema = shown_schema(planned)
    return pa.Table.from_batches([batch.cast(schema) for batch in planned.rows()], schema=schema)


def without_fill(table: pa.Table) -> pa.Table:
    """The table with texts without spaces at their ends."""
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            trimmed = pc.ascii_rtrim(table.column(place), " ")
            table = table.set_column(place, field, trimmed)
    return table


def test_every_read_is_of_a_known_kind() -> None:
    assert len(DATA_READS) + len(METADATA_READS) == len(list(older_reads()))


@pytest.mark.parametrize("read", DATA_READS, ids=lambda read: read.id)
def test_rows_match_the_release(catalog: Catalog, read: RecordedRead) -> None:
    table = loaded(catalog, read.scenario)
    ours = rows(table, KINDS[read.system_table])
    assert_same_rows(read, without_fill(ours) if read.scenario.startswith(TRIMS_CHAR) else ours)


@pytest.mark.parametrize("read", sampled({read.id: read for read in METADATA_READS}, one_in=4))
def test_metadata_matches_the_release(catalog: Catalog, read: RecordedRead) -> None:
    name = table_name_of(read.table.split("."))
    assert name is not None and read.columns is not None and read.rows is not None
    names = [column.split(" ")[0] for column in read.columns]
    actual = metadata_table(catalog, name).select(names)
    if "file_path" in names:  # 0.9 and before show the name
        place = names.index("file_path")
        short = [path.rpartition("/")[2] for path in actual.column(place).to_pylist()]
        actual = actual.set_column(place, actual.schema.field(place), pa.array(short))
        paths = [row[place].rpartition("/")[2] for row in read.rows]
        recorded = [
            [*row[:place], path, *row[place + 1 :]]
            for row, path in zip(read.rows, paths, strict=True)
        ]
        read = replace(read, rows=recorded)
    assert_same_rows(read, actual)


@pytest.mark.parametrize("name", sampled(older_tables(), one_in=3))
def test_pruning_keeps_all_matching_rows(catalog: Catalog, name: str) -> None:
    table = loaded(catalog, name)
    everything = rows(table).to_pylist()
    for column in table.schema.columns:
        for value in {repr(row[column.name]): row[column.name] for row in everything}.values():
            condition = condition_on(column.name, value)
            if condition is None:
                continue
            actual = rows(table, filters=(condition,)).to_pylist()
            wanted, kept = (
                texts(row for row in some if row[column.name] == value)
                for some in (everything, actual)
            )
            assert kept == wanted, condition


@pytest.mark.parametrize("name", sampled(older_tables()))
def test_expiry_removes_only_files_of_expired_snapshots(expiring: Catalog, name: str) -> None:
    table = loaded(expiring, name)
    before, stored, lost = rows(table), unreachable(table), missing(table)
    several = table.paimon.snapshot_manager().get_latest_snapshot().id > 1
    assert (expire(table) > 0) == several
    table = loaded(expiring, name)
    assert texts(rows(table).to_pylist()) == texts(before.to_pylist())
    assert missing(table) == lost == set()
    assert unreachable(table) <= stored


def condition_on(column: str, value: Any) -> ColumnFilter | None:
    if value is None:
        return ColumnFilter(column, "is null")
    kind = {bool: "boolean", int: "number", str: "string"}.get(type(value))
    if kind is None:
        return None
    text = str(value).lower() if kind == "boolean" else str(value)
    return ColumnFilter(column, "=", (FilterValue(kind, text),))


def texts(found: Iterable[dict[str, Any]]) -> set[str]:
    return {repr(row) for row in found}


def loaded(catalog: Catalog, name: str) -> Table:
    database, _, table = name.partition(".")
    return catalog.load(TableName(table, database))
