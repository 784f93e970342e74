"""A table that can't be read is that table's trouble alone: it is listed, and others work."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from paimon_magics.coordinator.protocol.principals import Principal, grants_of
from paimon_magics.errors import (
    SetupError,
    StatementError,
    TableDamagedError,
    UnknownNameError,
    nearest,
)
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.stored_tables import load_stored

GOOD, BAD = TableName("good", "d"), TableName("bad", "d")


def create(catalog: Catalog, name: TableName) -> bool:
    statement = parse_statement(f"CREATE TABLE {name} (id INT)")
    assert isinstance(statement, CreateTable)
    return catalog.create_table(name, plan_create_table(statement))


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = Catalog.open({"warehouse": str(tmp_path)})
    catalog.create_database("d")
    create(catalog, GOOD)
    create(catalog, BAD)
    return catalog


def replaced(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


POISONS: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:40]),
    "binary": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "no JSON": lambda path: path.write_text("hello"),
    "a list": lambda path: path.write_text("[]"),
    "another document": lambda path: path.write_text("{}"),
    "deep": lambda path: path.write_text("[" * 100_000),
    "huge": lambda path: path.write_text('{"fields": "' + "x" * 1_000_000),
    "an unknown type": lambda path: path.write_text(path.read_text().replace("INT", "FROB")),
    "another version": lambda path: path.write_text(path.read_text().replace('"id"', '"xx"')),
    "a folder": lambda path: replaced(path, Path.mkdir),
}


@pytest.mark.parametrize("poison", POISONS)
def test_damaged_schema_affects_only_its_own_table(catalog: Catalog, poison: str) -> None:
    path = Path(catalog.warehouse) / "d.db/bad/schema/schema-0"
    POISONS[poison](path)
    for load in (catalog.load, lambda name: load_stored(catalog, name)):
        with pytest.raises(TableDamagedError) as caught:
            load(BAD)
        assert "`d.bad`" in str(caught.value)
        assert f"{path}" in str(caught.value)
        assert "drop the table" in caught.value.hint
    assert catalog.list_tables("d") == ["bad", "good"]
    assert catalog.load(GOOD).name == GOOD
    with pytest.raises(UnknownNameError, match="Did you mean `good`"):
        catalog.load(TableName("goods", "d"))
    create(catalog, TableName("new", "d"))
    catalog.rename_table(TableName("new", "d"), TableName("newer", "d"))
    assert catalog.list_tables("d") == ["bad", "good", "newer"]
    assert catalog.drop_table(BAD)
    assert catalog.list_tables("d") == ["good", "newer"]


def test_name_of_a_damaged_table_stays_taken(catalog: Catalog) -> None:
    (Path(catalog.warehouse) / "d.db/bad/schema/schema-0").write_bytes(b"")
    assert catalog.table_exists(BAD)
    with pytest.raises(StatementError, match="exists already"):
        create(catalog, BAD)


def test_undecodable_names_and_non_tables_are_not_listed(
    catalog: Catalog,
) -> None:
    warehouse = Path(catalog.warehouse)
    os.makedirs(os.fsencode(warehouse / "d.db") + b"/\xff\xfe/schema")
    os.makedirs(os.fsencode(warehouse) + b"/\xff\xfe.db")
    (warehouse / "d.db/dangling").symlink_to("/nonexistent")
    (warehouse / "d.db/loop").symlink_to(warehouse / "d.db/loop")
    (warehouse / "d.db/file").touch()
    (warehouse / "f.db").touch()
    assert catalog.list_databases() == ["d", "default"]
    assert catalog.list_tables("d") == ["bad", "good"]
    with pytest.raises(UnknownNameError):
        catalog.load(TableName("dangling", "d"))


def test_failing_hint_lookup_gives_no_hint(catalog: Catalog) -> None:
    def fails() -> list[str]:
        raise RuntimeError("a foreign library failed")

    assert nearest("t", fails, what="tables") == ""
    shutil.rmtree(catalog.warehouse)
    with pytest.raises(UnknownNameError):
        catalog.load(GOOD)


def test_hints_show_only_names_visible_to_the_user(catalog: Catalog) -> None:
    catalog.create_database("secrets")
    create(catalog, TableName("orders", "d"))
    seen = catalog.seen_by(Principal.granted("ada", grants_of(["read=d.good"])))
    with pytest.raises(UnknownNameError) as caught:
        seen.load(TableName("orderz", "d"))
    assert "orders" not in str(caught.value)
    assert "bad" not in str(caught.value)
    with pytest.raises(UnknownNameError) as caught:
        seen.load(TableName("t", "secret"))
    assert "secrets" not in str(caught.value)
    with pytest.raises(StatementError) as refused:
        seen.drop_database("d")
    assert "orders" not in str(refused.value)
    with pytest.raises(StatementError, match="not empty"):
        seen.drop_database("d", cascade=True)
    assert seen.list_tables("d") == ["good"]
    assert not seen.table_exists(TableName("orders", "d"))


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file whose reads fail")
def test_unreadable_disk_is_not_reported_as_damage(catalog: Catalog, tmp_path: Path) -> None:
    (schema,) = (tmp_path / "d.db/bad/schema").glob("schema-*")
    replaced(schema, lambda path: path.symlink_to("/proc/self/mem"))
    with pytest.raises(SetupError, match="can't be read"):
        catalog.load(BAD)
    assert catalog.load(GOOD).name == GOOD
