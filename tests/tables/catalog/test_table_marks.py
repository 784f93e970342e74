"""The ids of tables: who keeps one through a rename, and who gets a new one."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_magics.errors import TableDamagedError, UnknownNameError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.marks import TableIds
from paimon_magics.tables.schema.history import created_at_ms, table_id_of_legacy, version_of
from tests.tables.catalog.test_catalog import table_schema

T, U, V = (TableName(name, "default") for name in "tuv")
MARK = ".paimon-magics-table"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = Catalog.open({"warehouse": str(tmp_path / "lake")})
    catalog.create_table(T, table_schema())
    return catalog


def folder(catalog: Catalog, name: TableName) -> Path:
    return Path(catalog.load(name).location)


def id_of(ids: TableIds, catalog: Catalog, name: TableName) -> str:
    return ids.id_of(catalog.load(name))


def moved(catalog: Catalog, name: TableName, to: TableName) -> None:
    path = folder(catalog, name)
    path.rename(path.with_name(to.table))


def copied(catalog: Catalog, name: TableName, to: TableName) -> None:
    path = folder(catalog, name)
    shutil.copytree(path, path.with_name(to.table))


@pytest.fixture(params=[True, False], ids=["same process", "restarted"])
def ids(request: pytest.FixtureRequest, catalog: Catalog) -> TableIds:
    """The ids of a process that has met the table, or of the next one."""
    first = TableIds(catalog)
    id_of(first, catalog, T)
    return first if request.param else TableIds(catalog)


def test_first_table_id_derives_from_the_legacy_identity(catalog: Catalog) -> None:
    table = catalog.load(T)
    legacy = table_id_of_legacy(f"file://{table.location}/@{created_at_ms(table)}")
    assert TableIds(catalog).id_of(table) == legacy


def test_rename_inside_or_outside_the_catalog_keeps_the_id(catalog: Catalog, ids: TableIds) -> None:
    before = id_of(TableIds(catalog), catalog, T)
    moved(catalog, T, U)
    assert id_of(ids, catalog, U) == before
    catalog.rename_table(U, V)
    assert id_of(ids, catalog, V) == before
    moved(catalog, V, T)  # in a circle
    assert id_of(ids, catalog, T) == id_of(TableIds(catalog), catalog, T) == before


def test_copied_table_gets_its_own_id(catalog: Catalog, ids: TableIds) -> None:
    before = id_of(TableIds(catalog), catalog, T)
    copied(catalog, T, U)
    copy = id_of(ids, catalog, U)
    assert copy != before
    assert id_of(ids, catalog, T) == id_of(TableIds(catalog), catalog, T) == before
    moved(catalog, U, V)
    assert id_of(ids, catalog, V) == copy


def test_copy_in_place_of_a_renamed_table_gets_its_own_id(catalog: Catalog) -> None:
    ids = TableIds(catalog)
    before = id_of(ids, catalog, T)
    moved(catalog, T, U)
    assert id_of(ids, catalog, U) == before
    copied(catalog, U, T)
    assert id_of(ids, catalog, T) != before
    assert id_of(ids, catalog, U) == before


def test_moved_table_and_moved_copy_do_not_share_an_id(catalog: Catalog) -> None:
    before = id_of(TableIds(catalog), catalog, T)
    copied(catalog, T, U)
    moved(catalog, T, V)
    ids = TableIds(catalog)
    found = [id_of(ids, catalog, V), id_of(ids, catalog, U)]
    assert found[0] == before
    assert found[1] != before


def test_unmarked_copy_does_not_take_the_id_of_a_renamed_table(catalog: Catalog) -> None:
    copied(catalog, T, V)  # before it had a mark
    ids = TableIds(catalog)
    before = id_of(ids, catalog, T)
    moved(catalog, T, U)
    assert id_of(ids, catalog, U) == before
    moved(catalog, V, T)
    assert id_of(ids, catalog, T) != before


def test_last_logged_name_distinguishes_table_from_its_copy(catalog: Catalog) -> None:
    before = id_of(TableIds(catalog), catalog, T)
    copied(catalog, T, U)
    moved(catalog, T, V)
    ids = TableIds(catalog)
    ids.expect(before, V)
    assert id_of(ids, catalog, U) != before
    assert id_of(ids, catalog, V) == before


def test_recreated_table_gets_a_new_id(catalog: Catalog, ids: TableIds) -> None:
    before = id_of(TableIds(catalog), catalog, T)
    content = (folder(catalog, T) / MARK).read_bytes()
    catalog.drop_table(T)
    while True:
        catalog.create_table(T, table_schema())
        if id_of(ids, catalog, T) != before:
            break
        catalog.drop_table(T)  # in the same millisecond, by a fast machine
    (folder(catalog, T) / MARK).write_bytes(content)  # as a drop by others may leave it in a bucket
    assert id_of(TableIds(catalog), catalog, T) != before


def test_a_branch_has_the_id_of_its_table(catalog: Catalog, ids: TableIds) -> None:
    catalog.load(T).paimon.branch_manager().create_branch("b")
    assert id_of(ids, catalog, replace(T, branch="b")) == id_of(ids, catalog, T)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00", b"[]", b'{"id": "x", "path": "default.db/t", "created_ms": 1}', b"[" * 100_000,
     b'{"id": "0123456789abcdef0123456789abcdef", "path": "../x.db/t", "created_ms": 1}'],
)  # fmt: skip
def test_broken_mark_is_rewritten(catalog: Catalog, content: bytes) -> None:
    before = id_of(TableIds(catalog), catalog, T)
    (folder(catalog, T) / MARK).write_bytes(content)
    assert id_of(TableIds(catalog), catalog, T) == before
    assert (folder(catalog, T) / MARK).read_bytes() != content


def test_processes_and_threads_agree_on_the_id_of_a_new_table(catalog: Catalog) -> None:
    several = [TableIds(catalog) for _ in range(4)]
    copied(catalog, T, U)
    with ThreadPoolExecutor(8) as pool:
        for name in (T, U):
            table = catalog.load(name)
            actual = list(pool.map(lambda ids: ids.id_of(table), several * 4))  # noqa: B023
            assert len(set(actual)) == 1


def test_threads_agree_on_the_id_of_a_copy(catalog: Catalog) -> None:
    ids = TableIds(catalog)
    before = id_of(ids, catalog, T)
    copied(catalog, T, U)
    table = catalog.load(U)
    with ThreadPoolExecutor(8) as pool:
        actual = set(pool.map(lambda _: ids.id_of(table), range(16)))
    assert len(actual) == 1
    assert before not in actual


def test_lookup_by_id_locates_a_renamed_table(catalog: Catalog, ids: TableIds) -> None:
    before = id_of(TableIds(catalog), catalog, T)
    assert ids.find(before) == T
    moved(catalog, T, U)
    copied(catalog, U, V)
    assert ids.find(before) in (U, V)
    assert ids.find("0" * 32) is None


def test_broken_tables_do_not_prevent_lookup_of_others(catalog: Catalog, ids: TableIds) -> None:
    before = id_of(TableIds(catalog), catalog, T)
    for name in ("a", "z"):
        catalog.create_table(TableName(name, "default"), table_schema())
    (folder(catalog, TableName("a", "default")) / MARK).mkdir()
    (folder(catalog, TableName("z", "default")) / "schema" / "schema-0").write_bytes(b"")
    assert ids.find(before) == T
    with pytest.raises(TableDamagedError, match="The id of the table"):
        ids.find("0" * 32)
    with pytest.raises(TableDamagedError, match=f"The id of the table.*{MARK}.*a folder stands"):
        id_of(ids, catalog, TableName("a", "default"))


def test_lost_first_schema_keeps_the_id_and_a_broken_schema_is_reported(catalog: Catalog) -> None:
    before = id_of(TableIds(catalog), catalog, T)
    schemas = folder(catalog, T) / "schema"
    shutil.copy(schemas / "schema-0", schemas / "schema-1")
    text = (schemas / "schema-0").read_text().replace('"id": 0', '"id": 1', 1)
    (schemas / "schema-1").write_text(text)
    (schemas / "schema-0").unlink()
    assert id_of(TableIds(catalog), catalog, T) == before
    (schemas / "schema-0").write_bytes(b"")
    table = catalog.load(T)
    with pytest.raises(TableDamagedError):
        TableIds(catalog).id_of(table)
    assert len(version_of(table)) == 16


def test_table_that_is_dropped_after_it_was_loaded_leaves_no_mark(
    catalog: Catalog, ids: TableIds
) -> None:
    before = id_of(TableIds(catalog), catalog, T)
    table, place = catalog.load(T), folder(catalog, T)
    catalog.drop_table(T)
    with pytest.raises(UnknownNameError, match=r"`default\.t` was dropped or renamed meanwhile"):
        TableIds(catalog).id_of(table)
    assert not place.exists()
    assert not TableIds(catalog).is_of(table, before)
    assert ids.find(before) is None


def test_a_known_id_is_not_read_again(catalog: Catalog) -> None:
    ids = TableIds(catalog)
    before = id_of(ids, catalog, T)
    os.unlink(folder(catalog, T) / MARK)
    assert id_of(ids, catalog, T) == before
    assert not (folder(catalog, T) / MARK).exists()
    assert ids.id_of(catalog.load(T), look=True) == before
    assert (folder(catalog, T) / MARK).exists()
