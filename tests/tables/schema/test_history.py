"""The schemas that a table has had, of which another one may take a number."""

from __future__ import annotations

from pathlib import Path

from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.table_changes import AddColumn
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.schema.history import Definitions, identity_of, is_replaced
from paimon_magics.tables.snapshots.chain import roll_back_schema
from tests.coordinator.process import TABLE, create_table


def test_schema_that_took_the_number_of_another_is_known_as_it_is(tmp_path: Path) -> None:
    catalog, definitions = create_table(tmp_path, "CREATE TABLE t (k INT)"), Definitions()

    def add(column: str) -> None:
        catalog.alter_table(TABLE, [AddColumn((column,), AtomicType("INT"))])

    add("x")
    before = identity_of(catalog.load(TABLE).paimon.table_schema)
    assert definitions.of(catalog.load(TABLE))[1].column_names == ("k", "x")
    assert not is_replaced(catalog.load(TABLE), before)
    roll_back_schema(load_stored(catalog, TABLE), 0)
    assert is_replaced(catalog.load(TABLE), before)
    add("y")
    assert is_replaced(catalog.load(TABLE), before)
    add("z")
    assert is_replaced(catalog.load(TABLE), before)
    assert definitions.of(catalog.load(TABLE))[1].column_names == ("k", "y")
    assert not is_replaced(catalog.load(TABLE), "")
