"""The ids of tables: who keeps one through a rename, and who gets a new one."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from paimon_magics.errors import TableDamagedError
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


def test_a_tables_first_id_is_that_of_its_old_identity(catalog: Catalog) -> None:
    table = catalog.load(T)
    legacy = table_id_of_legacy(f"file://{table.location}/@{created_at_ms(table)}")
    assert TableIds(catalog).id_of(table) == legacy


def test_a_rename_by_anybody_keeps_the_id(catalog: Catalog, ids: TableIds) -> None:
    before = id_of(TableIds(catalog), catalog, T)
    moved(catalog, T, U)
    assert id_of(ids, catalog, U) == before
    catalog.rename_table(U, V)
    assert id_of(ids, catalog, V) == before
    moved(catalog, V, T)  # in a circle
    assert id_of(ids, catalog, T) == id_of(TableIds(catalog), catalog, T) == before


def test_a_copy_gets_an_id_of_its_own(catalog: Catalog, ids: TableIds) -> None:
    before = id_of(TableIds(catalog), catalog, T)
    copied(catalog, T, U)
    copy = id_of(ids, catalog, U)
    assert copy != before
    assert id_of(ids, catalog, T) == id_of(TableIds(catalog), catalog, T) == before
    moved(catalog, U, V)
    assert id_of(ids, catalog, V) == copy


def test_a_copy_in_a_renamed_tables_place_gets_an_id_of_its_own(catalog: Catalog) -> None:
    ids = TableIds(catalog)
    before = id_of(ids, catalog, T)
    moved(catalog, T, U)
    assert id_of(ids, catalog, U) == before
    copied(catalog, U, T)
    assert id_of(ids, catalog, T) != before
    assert id_of(ids, catalog, U) == before


def test_of_a_table_and_its_copy_that_both_moved_one_has_the_id(catalog: Catalog) -> None:
    before = id_of(TableIds(catalog), catalog, T)
    copied(catalog, T, U)
    moved(catalog, T, V)
    ids = TableIds(catalog)
    found = [id_of(ids, catalog, V), id_of(ids, catalog, U)]
    assert found[0] == before
    assert found[1] != before


def test_a_copy_without_a_mark_does_not_take_the_id_of_the_renamed_table(catalog: Catalog) -> None:
    copied(catalog, T, V)  # before it had a mark
    ids = TableIds(catalog)
    before = id_of(ids, catalog, T)
    moved(catalog, T, U)
    assert id_of(ids, catalog, U) == before
    moved(catalog, V, T)
    assert id_of(ids, catalog, T) != before


def test_where_a_log_saw_a_table_last_tells_a_copy_from_it(catalog: Catalog) -> None:
    before = id_of(TableIds(catalog), catalog, T)
    copied(catalog, T, U)
    moved(catalog, T, V)
    ids = TableIds(catalog)
    ids.expect(before, V)
    assert id_of(ids, catalog, U) != before
    assert id_of(ids, catalog, V) == before


def test_a_table_that_is_dropped_and_created_again_gets_another_id(
    catalog: Catalog, ids: TableIds
) -> None:
    before = id_of(TableIds(catalog), catalog, T)
    kept = (folder(catalog, T) / MARK).read_bytes()
    catalog.drop_table(T)
    while True:
        catalog.create_table(T, table_schema())
        if id_of(ids, catalog, T) != before:
            break
        catalog.drop_table(T)  # in the same millisecond, by a fast machine
    (folder(catalog, T) / MARK).write_bytes(kept)  # as a drop by others may leave it in a bucket
    assert id_of(TableIds(catalog), catalog, T) != before


def test_a_branch_has_the_id_of_its_table(catalog: Catalog, ids: TableIds) -> None:
    catalog.load(T).paimon.branch_manager().create_branch("b")
    assert id_of(ids, catalog, replace(T, branch="b")) == id_of(ids, catalog, T)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00", b"[]", b'{"id": "x", "path": "default.db/t", "created_ms": 1}', b"[" * 100_000,
     b'{"id": "0123456789abcdef0123456789abcdef", "path": "../x.db/t", "created_ms": 1}'],
)  # fmt: skip
def test_a_broken_mark_is_made_anew(catalog: Catalog, content: bytes) -> None:
    before = id_of(TableIds(catalog), catalog, T)
    (folder(catalog, T) / MARK).write_bytes(content)
    assert id_of(TableIds(catalog), catalog, T) == before
    assert (folder(catalog, T) / MARK).read_bytes() != content


def test_processes_and_threads_that_meet_a_table_first_agree(catalog: Catalog) -> None:
    several = [TableIds(catalog) for _ in range(4)]
    copied(catalog, T, U)
    with ThreadPoolExecutor(8) as pool:
        for name in (T, U):
            table = catalog.load(name)
            found = list(pool.map(lambda ids: ids.id_of(table), several * 4))  # noqa: B023
            assert len(set(found)) == 1


def test_threads_that_meet_a_copy_agree_on_its_id(catalog: Catalog) -> None:
    ids = TableIds(catalog)
    before = id_of(ids, catalog, T)
    copied(catalog, T, U)
    table = catalog.load(U)
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: ids.id_of(table), range(16)))
    assert len(found) == 1
    assert before not in found


def test_a_renamed_table_is_found_by_its_id(catalog: Catalog, ids: TableIds) -> None:
    before = id_of(TableIds(catalog), catalog, T)
    assert ids.find(before) == T
    moved(catalog, T, U)
    copied(catalog, U, V)
    assert ids.find(before) in (U, V)
    assert ids.find("0" * 32) is None


def test_a_broken_table_hinders_no_other(catalog: Catalog, ids: TableIds) -> None:
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


def test_a_first_schema_that_is_lost_or_broken_keeps_the_id(catalog: Catalog) -> None:
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


def test_a_known_id_is_not_read_again(catalog: Catalog) -> None:
    ids = TableIds(catalog)
    before = id_of(ids, catalog, T)
    os.unlink(folder(catalog, T) / MARK)
    assert id_of(ids, catalog, T) == before
    assert not (folder(catalog, T) / MARK).exists()
    assert ids.id_of(catalog.load(T), look=True) == before
    assert (folder(catalog, T) / MARK).exists()
