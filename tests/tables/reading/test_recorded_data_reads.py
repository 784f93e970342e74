"""Every read of data that Paimon's Spark connector was recorded with, read here without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.reads.views import ViewKind
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read, shown_schema
from tests.recorded_reads import RecordedRead, assert_same_rows, recorded_reads

_VIEWS = {None: ViewKind.TABLE} | {kind.value: kind for kind in ViewKind if kind.value}
_READS = [read for read in recorded_reads() if read.system_table in _VIEWS]


@pytest.fixture(scope="module")
def catalog(recorded_warehouse: Path) -> Catalog:
    return Catalog.open({"warehouse": str(recorded_warehouse)})


@pytest.mark.parametrize("read", _READS, ids=[read.id for read in _READS])
def test_rows_match_the_recorded_rows_of_paimon(read: RecordedRead, catalog: Catalog) -> None:
    if read.error is not None:
        with pytest.raises(PaimonMagicsError):
            _rows(catalog, read)
        return
    assert_same_rows(read, _rows(catalog, read))


def _rows(catalog: Catalog, read: RecordedRead) -> pa.Table:
    database, _, name = read.table.partition(".")
    table = catalog.load(TableName(name.partition("$")[0], database))
    planned = plan_data_read(
        table,
        ReadRequest(_VIEWS[read.system_table], options=read.options, columns=_columns(read)),
    )
    schema = shown_schema(planned)
    found = pa.Table.from_batches([batch.cast(schema) for batch in planned.rows()], schema=schema)
    return found if read.select is None else found.select(list(read.select))


def _columns(read: RecordedRead) -> list[str] | None:
    if read.select is None:
        return None
    return [name for name in read.select if name not in ("rowkind", "_SEQUENCE_NUMBER")]
