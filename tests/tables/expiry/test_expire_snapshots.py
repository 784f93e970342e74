"""Expiry: what it must not touch, and what is left when it is cut short at any step."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from pathlib import Path

import pytest

from paimon_magics import faults
from paimon_magics.errors import UnknownNameError
from paimon_magics.planning.commits.expiry import NO_FLOOR, ExpiryRules
from paimon_magics.planning.commits.requests import Append, OverwritePartitions
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.expiry.expire_snapshots import Expiry, carry_out, decide
from paimon_magics.tables.snapshots.branches import create_branch, forward_to_branch
from paimon_magics.tables.snapshots.chain import (
    create_tag,
    list_snapshots,
    load_snapshot,
    roll_back,
)
from paimon_magics.tables.snapshots.latest import earliest_snapshot_id
from paimon_magics.tables.table import StoredTable, Table
from tests.tables.commits.test_commit import keys, ours, rows_of, written
from tests.tables.manifest_files import create
from tests.tables.reachability import missing, unreachable

SQL = "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('manifest.merge-min-count' = '3')"
ONE = {"snapshot.num-retained.min": "1", "snapshot.time-retained": "1 ms"}
CHANGELOGS = {**ONE, "changelog.num-retained.min": "7"}
STEPS = ("expiry.decided", "expiry.data_removed", "expiry.metadata_removed",
         "expiry.snapshot_removed")  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Eight snapshots; the fourth and the seventh replace everything."""
    return filled(create(tmp_path, SQL))


def filled(table: Table, commits: int = 8) -> Table:
    latest = table.paimon.snapshot_manager().get_latest_snapshot()
    first = 0 if latest is None else latest.id
    for number in range(first, first + commits):
        change = OverwritePartitions() if number % 8 in (3, 6) else Append()
        ours(table, change, written(table, rows_of(table, number)), f"{table.name} {number}")
    return table


def decided(table: Table, floor: int = NO_FLOOR, options: dict[str, str] = ONE) -> Expiry | None:
    time.sleep(0.01)  # the options retain a millisecond
    known = {**dict(table.schema.options), **options}
    rules = ExpiryRules.of(dataclasses.replace(table.schema, options=tuple(known.items())))
    assert rules is not None
    return decide(table, rules, floor, int(time.time() * 1000))


def expire(table: Table, floor: int = NO_FLOOR, options: dict[str, str] = ONE) -> int:
    expiry = decided(table, floor, options)
    return 0 if expiry is None else carry_out(expiry)


def stored(table: Table) -> StoredTable:
    return load_stored(Catalog.open({"warehouse": warehouse_of(table)}), table.name)


def warehouse_of(table: Table) -> str:
    return str(Path(table.location).parents[1])


def snapshots(table: Table) -> list[int]:
    return sorted(snapshot.id for snapshot in table.paimon.snapshot_manager().list_snapshots())


def keys_at(table: Table, snapshot_id: int) -> list[int]:
    past = table.paimon.copy({"scan.snapshot-id": str(snapshot_id)})
    return keys(dataclasses.replace(table, paimon=past))


def test_expiry_removes_only_unneeded_files(table: Table) -> None:
    assert expire(table, floor=6) == 5
    assert snapshots(table) == [6, 7, 8]
    assert [keys_at(table, n) for n in (6, 7, 8)] == [[3, 4, 5], [6], [6, 7]]
    assert missing(table) == unreachable(table) == set()
    assert expire(table, floor=6) == 0
    assert expire(table) == 2
    assert snapshots(table) == [8]
    assert keys(table) == [6, 7]
    assert missing(table) == unreachable(table) == set()
    assert filled(table, 2) and expire(table) == 2 and keys(table) == [6, 7, 8, 9]


def test_expiry_moves_the_hint_before_removing_files(table: Table) -> None:
    expiry = decided(table)
    assert expiry is not None and (expiry.begin, expiry.end) == (1, 8)
    assert earliest_snapshot_id(table.paimon, table.store) == 8
    assert snapshots(table) == list(range(1, 9)) and missing(table) == set()
    # From then on nobody may use them any more.
    assert load_snapshot(stored(table), "3") is None
    assert [each["id"] for each in list_snapshots(stored(table), 0, None)] == [8]
    with pytest.raises(UnknownNameError, match="no snapshot 3"):
        create_tag(stored(table), "x", table.store.create, snapshot_id=3, time_retained=None)
    with pytest.raises(UnknownNameError, match="no snapshot 3"):
        roll_back(stored(table), table.store.create, snapshot_id=3)
    assert carry_out(expiry) == 7


@pytest.mark.parametrize("step", STEPS)
def test_interrupted_expiry_leaves_readable_snapshots_and_resumes(
    table: Table, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_tag(stored(table), "kept", table.store.create, snapshot_id=5, time_retained=None)
    monkeypatch.setitem(faults._actions, step, "raise")
    with pytest.raises(OSError, match="armed"):
        expire(table, floor=7)
    first = earliest_snapshot_id(table.paimon, table.store)
    assert first == 7
    assert [keys_at(table, n) for n in (7, 8)] == [[6], [6, 7]]
    filled(table, 1)
    removed = expire(table, floor=7)
    assert removed == (5 if step == "expiry.snapshot_removed" else 6)
    assert snapshots(table) == [7, 8, 9]
    assert missing(table) == unreachable(table) == set()
    tagged = table.paimon.copy({"scan.tag-name": "kept"})
    assert keys(dataclasses.replace(table, paimon=tagged)) == [3, 4]


@pytest.mark.parametrize(
    "step",
    ["expiry.changelog_kept", "expiry.changelogs_decided", "expiry.changelog_data_removed"],
)
@pytest.mark.parametrize("producer", ["none", "input"])
def test_interrupted_expiry_keeps_longer_lived_changelogs(
    tmp_path: Path, step: str, producer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(
        create(
            tmp_path,
            "CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k', "
            f"'bucket' = '1', 'changelog-producer' = '{producer}')",
        ),
        12,
    )
    monkeypatch.setitem(faults._actions, step, "raise")
    with pytest.raises(OSError, match="armed"):
        expire(table, options=CHANGELOGS)
    expire(table, options=CHANGELOGS)
    assert snapshots(table) == [12]
    ordered = sorted(int(p.name[10:]) for p in (Path(table.location) / "changelog").glob("c*"))
    assert ordered == [6, 7, 8, 9, 10, 11]
    assert keys(table) == [11]


def test_expiry_keeps_files_of_a_branch(table: Table) -> None:
    main = stored(table)
    create_tag(main, "start", table.store.create, snapshot_id=3, time_retained=None)
    create_branch(main, "b", table.store.create, tag="start")
    catalog = Catalog.open({"warehouse": warehouse_of(table)})
    branch = catalog.load(TableName("t", "default", branch="b"))
    ours(branch, Append(), written(branch, rows_of(branch, 50)), "on the branch")
    (Path(table.location) / "tag" / "tag-start").unlink()
    assert expire(table) == 7
    assert keys(branch) == [0, 1, 2, 50]
    assert keys_at(branch, 3) == [0, 1, 2]
    assert keys(table) == [6, 7]


def test_expiry_keeps_files_shared_with_a_fast_forwarded_branch(tmp_path: Path) -> None:
    """The main branch took over snapshots of the branch, and deletes what the branch keeps."""
    table = filled(create(tmp_path, SQL), 2)
    main = stored(table)
    create_tag(main, "start", table.store.create, snapshot_id=2, time_retained=None)
    create_branch(main, "b", table.store.create, tag="start")
    catalog = Catalog.open({"warehouse": str(tmp_path)})
    branch = catalog.load(TableName("t", "default", branch="b"))
    for number, change in ((50, Append()), (51, OverwritePartitions())):
        ours(branch, change, written(branch, rows_of(branch, number)), f"branch {number}")
    forward_to_branch(stored(table), load_stored(catalog, branch.name), table.store.create)
    assert snapshots(table) == [1, 2, 3, 4]
    assert expire(table) == 3
    assert keys(table) == [51]
    assert [keys_at(branch, n) for n in (2, 3, 4)] == [[0, 1], [0, 1, 50], [51]]


def branched(table: Table, *numbers: int) -> Table:
    """A branch from snapshot 3, whose tag in the main branch is gone, with a commit for each of
    `numbers`; what is divisible by ten replaces everything."""
    main = stored(table)
    create_tag(main, "start", table.store.create, snapshot_id=3, time_retained=None)
    create_branch(main, "b", table.store.create, tag="start")
    (Path(table.location) / "tag" / "tag-start").unlink()
    catalog = Catalog.open({"warehouse": warehouse_of(table)})
    branch = catalog.load(TableName("t", "default", branch="b"))
    for number in numbers:
        change = Append() if number % 10 else OverwritePartitions()
        ours(branch, change, written(branch, rows_of(branch, number)), f"branch {number}")
    return branch


def test_snapshots_of_a_branch_expire_with_their_files(table: Table) -> None:
    branch = branched(table, 51, 52, 60, 61, 70, 71)
    (branch_folder,) = (Path(table.location) / "branch").iterdir()
    (branch_folder / "tag" / "tag-start").unlink()
    assert expire(branch) == 6
    assert snapshots(branch) == [9]
    assert keys(branch) == [70, 71]
    assert snapshots(table) == list(range(1, 9))
    assert [keys_at(table, n) for n in (3, 6, 8)] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert expire(table) == 7
    assert (keys(branch), keys(table)) == ([70, 71], [6, 7])
    assert missing(table) == unreachable(table) == set()


def test_branch_expiry_keeps_files_of_its_own_tags(table: Table) -> None:
    branch = branched(table, 51, 60)
    assert expire(table) == 7
    assert expire(branch) == 2
    tagged = branch.paimon.copy({"scan.tag-name": "start"})
    assert keys(dataclasses.replace(branch, paimon=tagged)) == [0, 1, 2]
    assert keys(branch) == [60]
    assert missing(table) == unreachable(table) == set()


def test_branch_expiry_keeps_snapshots_needed_for_fast_forward(tmp_path: Path) -> None:
    table = filled(create(tmp_path, SQL), 3)
    branch = branched(table, 51, 60, 61)
    assert expire(branch) == 0
    forward_to_branch(stored(table), stored(branch), table.store.create)
    assert keys(table) == [60, 61]
    assert expire(branch) == 3
    assert keys_at(table, 4) == [0, 1, 2, 51], "the main branch has these snapshots now"
    assert expire(table) == 5
    assert (keys(branch), keys(table)) == ([60, 61], [60, 61])
    assert missing(table) == unreachable(table) == set()


@pytest.mark.parametrize("step", STEPS)
def test_interrupted_branch_expiry_blocks_nobody(
    table: Table, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = branched(table, 51, 60, 61)
    monkeypatch.setitem(faults._actions, step, "raise")
    with pytest.raises(OSError, match="armed"):
        expire(branch)
    assert keys(branch) == [60, 61]
    assert expire(table) == 7
    assert keys(table) == [6, 7]
    filled(branch, 1)
    expire(branch)
    assert len(snapshots(branch)) == 1
    assert missing(table) == unreachable(table) == set()


def test_expiry_does_not_undo_a_concurrent_rollback_to_a_tag(table: Table) -> None:
    create_tag(stored(table), "kept", table.store.create, snapshot_id=5, time_retained=None)
    expiry = decided(table)
    assert expiry is not None
    roll_back(stored(table), table.store.create, tag="kept")
    assert carry_out(expiry) == 0
    assert snapshots(table)[-1] == 5
    assert keys(table) == [3, 4]


def test_expiry_spares_snapshots_of_a_replacement_table(tmp_path: Path) -> None:
    table = filled(create(tmp_path / "w", SQL))
    expiry = decided(table)
    assert expiry is not None
    shutil.move(table.location, tmp_path / "old")
    shutil.copytree(tmp_path / "old", table.location)  # its files are there to be removed
    for path in (Path(table.location) / "snapshot").glob("snapshot-[1-7]"):
        known = json.loads(path.read_text())
        path.write_text(json.dumps({**known, "deltaManifestList": "another"}))
    assert carry_out(expiry) == 0
    assert snapshots(table) == list(range(1, 9))


def test_expired_consumer_retains_no_snapshots(table: Table) -> None:
    folder = Path(table.location) / "consumer"
    folder.mkdir()
    (folder / "consumer-c").write_text('{"nextSnapshot": 2}')
    assert expire(table) == 1
    assert expire(table, options={**ONE, "consumer.expiration-time": "1 h"}) == 0
    assert expire(table, options={**ONE, "consumer.expiration-time": "1 ms"}) == 6
    assert not (folder / "consumer-c").exists()


def test_expiry_lists_no_folders_and_reads_no_needless_manifests(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No folder of data or manifests is listed, and no manifest read that deletes nothing."""
    filled(table, 40)
    expire(table, floor=40)
    listed: list[str] = []
    monkeypatch.setattr(
        type(table.store), "names", lambda _, folder, prefix="": listed.append(folder) or []
    )
    read: list[str] = []
    opened = type(table.paimon.file_io).new_input_stream

    def noted(self: object, path: str) -> object:
        read.append(Path(path).name)
        return opened(self, path)

    monkeypatch.setattr(type(table.paimon.file_io), "new_input_stream", noted)
    expiry = decided(table, floor=42)
    assert expiry is not None and carry_out(expiry) == 2
    assert {Path(folder).name for folder in listed} <= {"tag", "consumer"}
    manifests = [name for name in read if name.startswith("manifest-")]
    assert len(manifests) == len([n for n in manifests if n.startswith("manifest-list")])
