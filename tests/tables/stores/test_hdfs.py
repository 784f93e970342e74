"""Tables on a real HDFS cluster: created once, committed by many, cleared up."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from paimon_magics.errors import SetupError
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.session.streaming import clear_unbegun
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.hdfs import HdfsStore
from paimon_magics.tables.stores.store import open_store
from tests.faults.appending import TABLE, append, committer_of, written
from tests.faults.test_concurrent_commits import stored_rows

pytestmark = [pytest.mark.java, pytest.mark.slow]

COLUMNS = (Column(0, "writer", AtomicType("INT")), Column(1, "number", AtomicType("INT")))


def test_second_create_fails_and_keeps_the_content(hdfs: str) -> None:
    store = open_store(f"{hdfs}/first", {})
    path = f"{hdfs}/first/dt=a%20b/snapshot-1"
    store.check()
    assert store.read(path) is None and store.modified_ms(path) is None
    assert store.create(path, b"first")
    assert not store.create(path, b"second")
    assert store.read(path) == b"first"
    assert store.names(f"{hdfs}/first/dt=a%20b") == ["snapshot-1"]
    store.write(path, b"replaced")
    assert store.read(path) == b"replaced"
    assert not store.remove_if_empty(f"{hdfs}/first/dt=a%20b")
    store.delete([path, f"{hdfs}/first/not-there"])
    assert store.remove_if_empty(f"{hdfs}/first/dt=a%20b")
    assert store.names(f"{hdfs}/first/nowhere") == []


def test_leftovers_of_a_kill_in_a_new_checkpoint_are_cleared(hdfs: str) -> None:
    store, folder = open_store(f"{hdfs}/checkpoint", {}), f"{hdfs}/checkpoint/offsets"
    half = f"{folder}/.0.031fdbb5-ae81-4802-80d0-5cd002296b47.tmp"
    assert store.create(half, b"v1")
    assert clear_unbegun(store, f"{hdfs}/checkpoint") == [half]
    assert store.create(half, b"v1") and store.create(f"{folder}/0", b"v1")
    assert clear_unbegun(store, f"{hdfs}/checkpoint") == []


def test_racing_writers_create_each_file_exactly_once(hdfs: str) -> None:
    names = list(range(12))
    start = threading.Barrier(4)

    def write(writer: int) -> list[int]:
        store = open_store(f"{hdfs}/race", {})
        mine = names[writer // 2 * 6 :] + names[: writer // 2 * 6]
        start.wait()
        return [n for n in mine if store.create(f"{hdfs}/race/{n}", b"%d" % writer)]

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(write, range(4)))
    assert sorted(name for names_won in won for name in names_won) == names
    store = open_store(f"{hdfs}/race", {})
    assert sorted(store.names(f"{hdfs}/race"), key=int) == [str(n) for n in names]
    for writer, names_won in enumerate(won):
        assert {store.read(f"{hdfs}/race/{n}") for n in names_won} <= {b"%d" % writer}


def test_all_commits_are_stored_and_an_abort_leaves_no_files(hdfs: str) -> None:
    catalog = Catalog.open({"warehouse": f"{hdfs}/lake"})
    catalog.create_table(TABLE, TableSchema(COLUMNS))
    committer = committer_of(catalog)
    for number in range(3):
        assert append(catalog, committer, [(0, number)]).snapshot_id == number + 1
    table = catalog.load(TABLE)
    files = f"{table.location}/bucket-0"
    before = sorted(table.store.names(files))
    transaction = committer.begin(TABLE)
    written(table, transaction, [(9, 9)])
    assert len(table.store.names(files)) == 4
    assert committer.abort(transaction) == 1
    assert sorted(table.store.names(files)) == before
    assert table.store.names(f"{table.location}/.attempts") == []
    assert table.store.read(f"{table.location}/snapshot/LATEST") == b"3"
    assert stored_rows(catalog) == [(0, 0), (0, 1), (0, 2)]


def test_error_names_the_extra_with_the_hdfs_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(SetupError, match="need the client hdfs-native") as raised:
        HdfsStore("hdfs://nowhere:1/w", {}).check()
    assert "paimon-magics[hdfs]" in raised.value.hint
