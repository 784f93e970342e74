"""Tags, branches and rolling back through a coordinator in a process of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.protocol.definition_changes import (
    change_document,
    change_of,
    version_receipt_document,
    version_receipt_of,
)
from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    StatementError,
    UnknownNameError,
    UnsupportedStatementError,
)
from paimon_magics.planning.commits.requests import Append, CommitRequest
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import (
    CreateBranch,
    CreateTag,
    CreateTagFromTimestamp,
    DeleteBranches,
    DeleteTags,
    FastForward,
    RenameBranch,
    RenameTag,
    ReplaceTag,
    RollBackToSnapshot,
    RollBackToTag,
    RollBackToTimestamp,
    RollBackToWatermark,
    VersionChange,
)
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.snapshots.chain import list_snapshots, list_tags, load_tag
from paimon_magics.tables.snapshots.tags_and_branches import VersionReceipt
from tests.coordinator.process import TABLE, Process, create_table, read, write

CHANGES: list[VersionChange] = [
    CreateTag("a"),
    CreateTag("a", 3, "1 d", True, False),
    ReplaceTag("a", 3),
    CreateTagFromTimestamp("a", 5, "1 h"),
    DeleteTags(("a", "b")),
    RenameTag("a", "b"),
    CreateBranch("b", "a", True),
    DeleteBranches(("a",)),
    RenameBranch("a", "b"),
    FastForward("b"),
    RollBackToSnapshot(1),
    RollBackToTag("a"),
    RollBackToTimestamp(5),
    RollBackToWatermark(5),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: type(change).__name__)
def test_change_round_trips_through_its_document(change: VersionChange) -> None:
    assert change_of(change_document(change)) == change


def test_receipt_round_trips_through_its_document() -> None:
    receipt = VersionReceipt(("a",), 3, 5, 7, None)
    assert version_receipt_of(version_receipt_document(receipt)) == receipt


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({}, "kind"),
        ({"kind": "Drop"}, "Drop"),
        ({"kind": "CreateTag"}, "tag"),
        ({"kind": "CreateTag", "tag": 1}, "tag"),
        ({"kind": "CreateTag", "tag": "a", "snapshot_id": "1"}, "snapshot_id"),
        ({"kind": "CreateTag", "tag": "a", "snapshot_id": True}, "snapshot_id"),
        ({"kind": "DeleteTags", "tags": ["a", 1]}, "tags"),
    ],
)
def test_a_malformed_change_is_refused_by_its_member(document: Any, named: str) -> None:
    with pytest.raises(InvalidValueError, match=named):
        change_of(document)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    started = Process(tmp_path / "warehouse", tmp_path / "state")
    started.start()
    yield started
    started.close()


@pytest.fixture
def catalog(process: Process) -> Catalog:
    assert isinstance(process.warehouse, Path)
    return create_table(process.warehouse, "CREATE TABLE t (k INT)")


def append(client: RemoteCoordinator, catalog: Catalog, *keys: int) -> None:
    for k in keys:
        opened = client.begin(TABLE)
        client.commit(CommitRequest(opened, Append(), write(catalog, opened, [{"k": k}])))


def ids(catalog: Catalog) -> list[int]:
    return [s["id"] for s in list_snapshots(load_stored(catalog, TABLE), 0, None)]


def test_changes_are_made_by_the_coordinator(process: Process, catalog: Catalog) -> None:
    client = process.client()
    append(client, catalog, 1, 2, 3)
    assert client.change_versions(TABLE, CreateTag("a", 2)) == VersionReceipt(("a",))
    client.change_versions(TABLE, CreateBranch("dev", "a"))
    receipt = client.change_versions(TABLE, RollBackToTag("a"))
    assert receipt == VersionReceipt(snapshot_id=2, previous_snapshot_id=3)
    append(client, catalog, 4)
    assert sorted(int(str(row["k"])) for row in read(catalog)) == [1, 2, 4]
    client.change_versions(TABLE, RollBackToSnapshot(2))
    client.change_versions(TABLE, FastForward("dev"))
    client.change_versions(TABLE, DeleteBranches(("dev",)))
    assert ids(catalog) == [1, 2]


def test_refusal_keeps_its_message_and_hint(process: Process, catalog: Catalog) -> None:
    client = process.client()
    append(client, catalog, 1)
    client.change_versions(TABLE, CreateTag("monday"))
    with pytest.raises(InvalidTableError, match="names snapshot 1") as taken:
        client.change_versions(TABLE, CreateTag("monday"))
    assert "OR REPLACE" in taken.value.hint
    with pytest.raises(UnknownNameError) as unknown:
        client.change_versions(TABLE, RenameTag("mondy", "x"))
    assert "`monday`" in unknown.value.hint
    with pytest.raises(UnknownNameError, match="nowhere"):
        client.change_versions(TableName("nowhere", "default"), CreateTag("a"))


def test_rolled_back_commits_are_not_republished(process: Process, catalog: Catalog) -> None:
    client = process.client()
    append(client, catalog, 1, 2, 3)
    client.change_versions(TABLE, RollBackToSnapshot(1))
    append(client, catalog, 4)
    stopped = httpx.get(
        f"{process.address}/v1/tables/stopped",
        headers={"Authorization": f"Bearer {process.token()}"},
    )
    assert stopped.json() == {"stopped": []}
    assert sorted(int(str(row["k"])) for row in read(catalog)) == [1, 4]


def test_rest_catalog_changes_versions_through_its_server(
    process: Process, catalog: Catalog
) -> None:
    append(process.client(), catalog, 1, 2, 3)
    options = {
        "metastore": "rest",
        "uri": process.address,
        "warehouse": str(process.warehouse),
        "token.provider": "bear",
        "token": process.token(),
    }
    committer = InProcessCommitter(Catalog.open(options), Settings())

    def change(asked: VersionChange) -> VersionReceipt:
        return committer.change_versions(TABLE, asked)

    change(CreateTag("a", 2, "1 d"))
    assert change(CreateTag("a", 2, if_not_exists=True)) == VersionReceipt()
    with pytest.raises(InvalidTableError, match="a"):
        change(CreateTag("a", 1))
    with pytest.raises(StatementError, match="99"):
        change(CreateTag("b", 99))
    with pytest.raises(StatementError, match="not a valid name"):
        change(CreateTag(".."))
    for refused in (RenameTag("a", "b"), ReplaceTag("a"), CreateTag("a", or_replace=True)):
        with pytest.raises(UnsupportedStatementError, match="REST catalog"):
            change(refused)
    change(CreateTagFromTimestamp("first", 5))
    change(CreateBranch("dev", "a"))
    assert change(CreateBranch("dev", if_not_exists=True)) == VersionReceipt()
    change(RenameBranch("dev", "trial"))
    with pytest.raises(UnknownNameError, match="dev"):
        change(DeleteBranches(("dev",)))
    receipt = change(RollBackToTag("a"))
    assert receipt == VersionReceipt(snapshot_id=2, previous_snapshot_id=3)
    change(FastForward("trial"))
    change(DeleteBranches(("trial",)))
    assert change(RollBackToSnapshot(1)).snapshot_id == 1
    assert change(DeleteTags(("first", "none"))) == VersionReceipt(("first",))
    assert (ids(catalog), list_tags(load_stored(catalog, TABLE))) == ([1], [])


@pytest.mark.parametrize("action", ["kill", "raise"])
def test_interrupted_change_is_finished_by_its_repetition(
    process: Process, catalog: Catalog, action: str
) -> None:
    client = process.client()
    append(client, catalog, 1)
    client.change_versions(TABLE, CreateTag("a"))
    process.kill()
    process.start(f"tag.renamed={action}")
    if action == "kill":
        again = threading.Thread(target=lambda: (process.has_died(), process.start()))
        again.start()
        assert client.change_versions(TABLE, RenameTag("a", "b")) == VersionReceipt(("b",))
        again.join()
    else:
        with pytest.raises(Exception, match=r"is unknown: armed at tag\.renamed"):
            client.change_versions(TABLE, RenameTag("a", "b"))
        assert list_tags(load_stored(catalog, TABLE)) == ["a", "b"]
        client.change_versions(TABLE, DeleteTags(("a",)))
    assert list_tags(load_stored(catalog, TABLE)) == ["b"]


def test_concurrent_creations_of_a_tag_have_a_single_winner(
    process: Process, catalog: Catalog
) -> None:
    append(process.client(), catalog, 1, 2)
    made: list[int] = []

    def create(number: int) -> None:
        try:
            process.client().change_versions(TABLE, CreateTag("a", number))
        except InvalidTableError:
            return
        made.append(number)

    threads = [threading.Thread(target=create, args=(1 + n % 2,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = load_tag(load_stored(catalog, TABLE), "a")
    assert stored is not None and made == [stored["id"]]
