"""DROP takes a table out of its name first; what somebody makes anew under it stays."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paimon_magics.errors import (
    CommitConflictError,
    PaimonMagicsError,
    StatementError,
    UnknownNameError,
)
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.statements.table_changes import SetOptions
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.detached import Detached
from paimon_magics.tables.stores.store import LocalStore
from paimon_magics.tables.table import Table
from tests.backends.s3 import Reply, S3Server

T = TableName("t", "d")
DROP = """
import json, sys
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
Catalog.open(json.loads(sys.argv[1])).drop_table(TableName("t", "d"))
"""


@pytest.fixture(params=["local", "jdbc", "s3", "listed"])
def options(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Mapping[str, str]:
    """Warehouses whose stores rename folders, and some where files must be listed."""
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3")
        return server.bucket().options
    if request.param == "listed":
        monkeypatch.setattr(LocalStore, "renames_folders", False)
    options = {"warehouse": str(tmp_path / "warehouse")}
    if request.param == "jdbc":
        options |= {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.sqlite"}
    return options


@pytest.fixture
def catalog(options: Mapping[str, str]) -> Catalog:
    catalog = Catalog.open(options)
    catalog.create_database("d")
    return catalog


def create(catalog: Catalog, name: TableName = T) -> None:
    statement = parse_statement(f"CREATE TABLE {name} (id BIGINT)")
    assert isinstance(statement, CreateTable)
    assert catalog.create_table(name, plan_create_table(statement))


def write(catalog: Catalog, *ids: int, name: TableName = T) -> None:
    builder = catalog.load(name).paimon.new_batch_write_builder()
    writer, commit = builder.new_write(), builder.new_commit()
    writer.write_arrow(pa.table({"id": pa.array(ids, pa.int64())}))
    commit.commit(writer.prepare_commit())


def rows(catalog: Catalog, name: TableName = T) -> list[int]:
    builder = catalog.load(name).paimon.new_read_builder()
    splits = builder.new_scan().plan().splits()
    found: list[int] = builder.new_read().to_arrow(splits)["id"].to_pylist()
    return sorted(found)


def test_detached_table_disappears_and_frees_its_name(catalog: Catalog) -> None:
    create(catalog)
    write(catalog, 1, 2)
    write(catalog, 3)
    location = catalog.load(T).location
    detached = catalog.detach_table(T)
    assert detached is not None
    assert catalog.list_tables("d") == []
    with pytest.raises(UnknownNameError):
        catalog.load(T)
    assert [each.label for each in catalog.detached()] == ["d.t"]
    create(catalog)
    write(catalog, 4)
    catalog.delete_detached(detached)
    assert catalog.detached() == []
    catalog.delete_detached(detached)
    assert rows(catalog) == [4]
    files = catalog.stores.of(location).files_below(location)
    assert len([path for path in files if path.endswith(".parquet")]) == 1


def test_dropped_table_leaves_no_files(catalog: Catalog) -> None:
    create(catalog)
    create(catalog, TableName("other", "d"))
    write(catalog, 1)
    location = catalog.load(T).location
    assert catalog.drop_table(T)
    assert catalog.stores.of(location).files_below(location) == []
    assert not os.path.exists(location)
    assert catalog.detached() == []
    assert catalog.list_tables("d") == ["other"]
    assert not catalog.drop_table(T, if_exists=True)
    with pytest.raises(UnknownNameError):
        catalog.drop_table(T)


@pytest.mark.parametrize("step", ["drop.detached", "drop.schema_removed", "drop.unnamed"])
def test_another_process_finishes_an_interrupted_drop(
    options: Mapping[str, str], catalog: Catalog, step: str
) -> None:
    store = catalog.stores.of(options["warehouse"])
    lists = not store.renames_folders
    if isinstance(store, LocalStore) and (lists or step != "drop.detached"):
        pytest.skip("a process on a local disk renames")
    create(catalog)
    write(catalog, 1)
    location = catalog.load(T).location
    environment = {**os.environ, "PAIMON_MAGICS_FAULTS": f"{step}=kill"}
    died = subprocess.run([sys.executable, "-c", DROP, json.dumps(dict(options))], env=environment)
    assert died.returncode == -9
    (left,) = catalog.detached()
    if lists and step == "drop.detached":  # nothing is dropped yet, and others go on writing
        write(catalog, 2)
        catalog.delete_detached(left)
        assert rows(catalog) == [1, 2]
        assert catalog.detached() == []
        return
    if catalog.metastore == "jdbc":  # its row is still there
        assert catalog.drop_table(T)
    assert catalog.list_tables("d") == []
    if step == "drop.schema_removed":  # it may be running still
        assert catalog.finish_drops() == 1
        catalog.delete_detached(left)
    assert catalog.finish_drops() == 0
    assert catalog.detached() == []
    assert catalog.stores.of(location).files_below(location) == []
    create(catalog)
    assert rows(catalog) == []


def test_create_succeeds_while_a_namesake_is_deleted(s3: S3Server) -> None:
    catalog = Catalog.open(s3.bucket().options)
    catalog.create_database("d")
    create(catalog)
    for number in range(5):
        write(catalog, number)
    dropped, made = threading.Event(), []

    def drop() -> None:
        catalog.drop_table(T)
        dropped.set()

    thread = threading.Thread(target=drop)
    thread.start()
    while not dropped.is_set() and catalog.table_exists(T):
        time.sleep(0.002)
    create(catalog)
    for number in (7, 8):
        write(catalog, number)
        made.append(number)
    thread.join()
    assert rows(catalog) == made


def test_name_stays_taken_until_files_of_dropped_table_are_gone(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3.bucket()
    catalog = Catalog.open(bucket.options)
    catalog.create_database("d")
    create(catalog)
    write(catalog, 1)
    options = json.dumps(dict(bucket.options))
    environment = {**os.environ, "PAIMON_MAGICS_FAULTS": "drop.schema_removed=kill"}
    died = subprocess.run([sys.executable, "-c", DROP, options], env=environment)
    assert died.returncode == -9
    monkeypatch.setattr("paimon_magics.tables.catalog.detached._PATIENCE_SECONDS", 0.2)
    with pytest.raises(CommitConflictError, match="is being dropped") as refused:
        create(catalog)
    assert "Run the statement again" in refused.value.hint
    monkeypatch.setattr("paimon_magics.tables.catalog.detached._DEAD_AFTER_MS", 0)
    time.sleep(1.1)  # S3 says when an object was written in seconds
    create(catalog)
    assert rows(catalog) == []
    assert catalog.detached() == []


@pytest.fixture
def failing(s3: S3Server) -> Iterator[Callable[[Callable[[bytes], bool]], None]]:
    """Lets the server answer each deletion of an object, for whose key a function is true, with an
    error, and delete the others that are named beside it."""

    def deletes(fails: Callable[[bytes], bool]) -> None:
        def between(environ: dict[str, Any], on: Callable[[], Reply]) -> Reply:
            if environ["REQUEST_METHOD"] != "POST" or "delete" not in environ["QUERY_STRING"]:
                return on()
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            every = re.findall(rb"<Object>.*?</Object>", body)
            failed = [each for each in every if fails(_key(each))]
            for each in failed:
                body = body.replace(each, b"")
            environ |= {"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
            if not failed:
                return on()
            if len(failed) < len(every):
                assert on().status.startswith("200")
            errors = b"".join(
                b"<Error><Key>%s</Key><Code>InternalError</Code></Error>" % _key(each)
                for each in failed
            )
            answer = b"<?xml version='1.0'?><DeleteResult>%s</DeleteResult>" % errors
            return Reply("200 OK", [("Content-Type", "application/xml")], answer)

        s3.between = between

    before = s3.between
    try:
        yield deletes
    finally:
        s3.between = before


def _key(item: bytes) -> bytes:
    return item.partition(b"<Key>")[2].partition(b"</Key>")[0]


@pytest.mark.parametrize("lost", [b"schema-0", b"schema-1", b"schema-"])
def test_drop_with_partly_deleted_schemas_leaves_table_whole(
    s3: S3Server, failing: Callable[[Callable[[bytes], bool]], None], lost: bytes
) -> None:
    catalog = Catalog.open(s3.bucket().options)
    catalog.create_database("d")
    create(catalog)
    write(catalog, 1)
    catalog.alter_table(T, [SetOptions((("snapshot.num-retained.max", "50"),))])
    failing(lambda key: lost in key)
    with pytest.raises(PaimonMagicsError, match="can't be deleted"):
        catalog.drop_table(T)
    assert catalog.detached() == []
    write(catalog, 2)
    failing(lambda key: False)
    assert rows(catalog) == [1, 2]
    assert catalog.finish_drops() == 0
    assert rows(catalog) == [1, 2]
    assert catalog.drop_table(T)
    create(catalog)  # at once
    assert rows(catalog) == []


def test_drop_with_refused_deletions_blocks_nobody(
    s3: S3Server, failing: Callable[[Callable[[bytes], bool]], None]
) -> None:
    catalog = Catalog.open(s3.bucket().options)
    catalog.create_database("d")
    create(catalog)
    write(catalog, 1)
    failing(lambda key: True)
    with pytest.raises(PaimonMagicsError):
        catalog.drop_table(T)
    failing(lambda key: False)
    assert rows(catalog) == [1]
    assert catalog.drop_table(T)
    create(catalog)  # at once
    write(catalog, 2)
    assert catalog.finish_drops() == 0
    assert catalog.detached() == []
    assert rows(catalog) == [2]


def test_drop_interrupted_while_deleting_schemas_is_undone(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = s3.bucket().options
    catalog = Catalog.open(options)
    catalog.create_database("d")
    create(catalog)
    write(catalog, 1)
    catalog.alter_table(T, [SetOptions((("snapshot.num-retained.max", "50"),))])
    location = catalog.load(T).location
    environment = {**os.environ, "PAIMON_MAGICS_FAULTS": "drop.detached=kill"}
    died = subprocess.run([sys.executable, "-c", DROP, json.dumps(dict(options))], env=environment)
    assert died.returncode == -9
    catalog.stores.of(location).delete([f"{location}/schema/schema-0"])
    monkeypatch.setattr("paimon_magics.tables.catalog.detached._DEAD_AFTER_MS", 0)
    time.sleep(1.1)
    assert catalog.finish_drops() == 0
    assert rows(catalog) == [1]
    assert catalog.detached() == []


@pytest.mark.parametrize("new", ["the same", "another", "none"])
def test_stalled_drop_presumed_dead_harms_no_table(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, new: str
) -> None:
    """Meanwhile its tombstone was removed: the table is whole, another has its name, or nobody."""
    catalog = Catalog.open(s3.bucket().options)
    catalog.create_database("d")
    create(catalog)
    write(catalog, 1)
    catalog.alter_table(T, [SetOptions((("snapshot.num-retained.max", "50"),))])
    store = catalog.stores.of(catalog.load(T).location)
    delete = type(store).delete

    def slow(self: Any, paths: Sequence[str]) -> Any:
        if not any("/schema/" in path for path in paths) or not tombstones:
            return delete(self, paths)
        mine = [path for path in store.files_below(folder) if path not in tombstones]
        tombstones.clear()
        if new == "the same":
            delete(self, [*mine, paths[-1]])
            return None
        result = delete(self, paths)
        for path in mine:
            catalog.delete_detached(Detached("d.t", catalog_location, path, False))
        if new == "another":
            create(catalog)
            write(catalog, 7)
        return result

    folder = f"{catalog.warehouse}/.paimon-magics/dropped"
    catalog_location = catalog.load(T).location
    tombstones = ["none yet"]
    monkeypatch.setattr(type(store), "delete", slow)
    if new == "the same":
        with pytest.raises(CommitConflictError, match="took too long"):
            catalog.drop_table(T)
        assert rows(catalog) == [1]
        return
    assert catalog.drop_table(T)
    if new == "another":
        assert rows(catalog) == [7]
    else:
        assert catalog.list_tables("d") == []
        create(catalog)
        assert rows(catalog) == []


def test_a_database_is_dropped_with_its_tables(catalog: Catalog) -> None:
    for name in ("t", "u"):
        create(catalog, TableName(name, "d"))
        write(catalog, 1, name=TableName(name, "d"))
    with pytest.raises(StatementError, match="not empty"):
        catalog.drop_database("d")
    catalog.drop_database("d", cascade=True)
    assert not catalog.is_stored("d")
    assert catalog.detached() == []
    catalog.create_database("d")
    assert catalog.list_tables("d") == []


def test_a_damaged_table_can_be_dropped(catalog: Catalog) -> None:
    create(catalog)
    location = catalog.load(T).location
    catalog.stores.of(location).write(f"{location}/schema/schema-0", b"")
    assert catalog.drop_table(T)
    assert catalog.list_tables("d") == []
    create(catalog)


def test_table_is_dropped_even_if_listing_its_external_files_fails(catalog: Catalog) -> None:
    def fails(table: Table) -> list[str]:
        raise RuntimeError("a foreign library failed")

    create(catalog)
    assert catalog.drop_table(T, outside=fails)
    assert catalog.list_tables("d") == []


def test_forged_drop_record_in_a_table_deletes_nothing(tmp_path: Path) -> None:
    catalog = Catalog.open({"warehouse": str(tmp_path / "warehouse")})
    catalog.create_database("d")
    create(catalog)
    victim = tmp_path / "victim"
    victim.touch()
    record = {"label": "d.t", "location": "", "outside": [str(victim)]}
    (tmp_path / "warehouse/d.db/t/.paimon-magics-dropped").write_text(json.dumps(record))
    assert catalog.detach_table(T) is not None
    (left,) = catalog.detached()
    catalog.delete_detached(left)
    assert victim.exists()


@pytest.mark.java
@pytest.mark.slow
def test_drop_on_hdfs_moves_the_table_folder(hdfs: str) -> None:
    catalog = Catalog.open({"warehouse": f"{hdfs}/{uuid.uuid4().hex}"})
    catalog.create_database("d")
    create(catalog)
    write(catalog, 1)
    detached = catalog.detach_table(T)
    assert detached is not None
    assert detached.is_moved
    assert [(each.label, each.path) for each in catalog.detached()] == [("d.t", detached.path)]
    create(catalog)
    write(catalog, 2)
    catalog.delete_detached(detached)
    assert (catalog.detached(), rows(catalog)) == ([], [2])
    catalog.drop_database("d", cascade=True)
    assert (catalog.list_databases(), catalog.detached()) == (["default"], [])


def test_folder_of_dropped_tables_is_not_listed_as_database(catalog: Catalog) -> None:
    create(catalog)
    assert catalog.detach_table(T) is not None
    assert catalog.list_databases() == ["d", "default"]
