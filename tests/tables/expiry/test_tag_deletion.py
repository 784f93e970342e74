"""A deleted tag takes along what it alone led to, and nothing else."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from paimon_magics.tables.expiry.expire_snapshots import remove_tag
from paimon_magics.tables.snapshots.branches import create_branch
from paimon_magics.tables.snapshots.chain import create_tag
from paimon_magics.tables.table import Table
from tests.tables.commits.test_commit import keys
from tests.tables.expiry.test_expire_snapshots import CHANGELOGS, SQL, expire, filled, stored
from tests.tables.manifest_files import create
from tests.tables.reachability import files, missing, unreachable


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Eight snapshots; the fourth and the seventh replace everything."""
    return filled(create(tmp_path, SQL))


def tag(table: Table, name: str, snapshot_id: int) -> None:
    made = create_tag(
        stored(table), name, table.store.create, snapshot_id=snapshot_id, time_retained=None
    )
    assert made


def keys_of(table: Table, name: str) -> list[int]:
    return keys(dataclasses.replace(table, paimon=table.paimon.copy({"scan.tag-name": name})))


def test_tag_deletion_removes_files_no_tag_or_snapshot_needs(table: Table) -> None:
    for name, snapshot_id in {"two": 2, "three": 3, "five": 5}.items():
        tag(table, name, snapshot_id)
    assert expire(table) == 7
    assert remove_tag(table, "three")
    assert missing(table) == unreachable(table) == set()
    assert (keys_of(table, "two"), keys_of(table, "five")) == ([0, 1], [3, 4])
    before = files(table)
    assert remove_tag(table, "two")
    assert missing(table) == unreachable(table) == set()
    assert len(before - files(table)) > 3, "its data and its manifests"
    assert remove_tag(table, "five")
    assert missing(table) == unreachable(table) == set()
    assert keys(table) == [6, 7]
    assert not remove_tag(table, "five")


def test_deleting_a_tag_of_a_live_snapshot_removes_no_files(table: Table) -> None:
    tag(table, "seven", 7)
    before = files(table)
    assert remove_tag(table, "seven")
    assert before - files(table) == {"tag/tag-seven"}


def test_second_tag_on_a_snapshot_keeps_its_files(table: Table) -> None:
    tag(table, "one", 5)
    tag(table, "other", 5)
    assert expire(table) == 7
    before = files(table)
    assert remove_tag(table, "one")
    assert before - files(table) == {"tag/tag-one"}
    assert keys_of(table, "other") == [3, 4]


def test_tag_deletion_keeps_files_of_a_branch(table: Table) -> None:
    tag(table, "three", 3)
    assert create_branch(stored(table), "b", table.store.create, tag="three")
    assert expire(table) == 7
    before = files(table)
    assert remove_tag(table, "three")
    assert before - files(table) == {"tag/tag-three"}


def test_tag_deletion_removes_no_files_where_changelogs_live_longer(tmp_path: Path) -> None:
    options = ", ".join(f"'{key}' = '{value}'" for key, value in CHANGELOGS.items())
    table = filled(create(tmp_path, SQL.replace("'3')", f"'3', {options})")))
    tag(table, "three", 3)
    assert expire(table, options=CHANGELOGS) > 0
    before = files(table)
    assert remove_tag(table, "three")
    assert before - files(table) == {"tag/tag-three"}


def test_tag_deletion_removes_no_files_without_manifest_lists(table: Table) -> None:
    tag(table, "three", 3)
    tag(table, "five", 5)
    assert expire(table) == 7
    for manifest in (Path(table.location) / "manifest").glob("manifest-list-*"):
        manifest.unlink()
    before = files(table)
    assert remove_tag(table, "three")
    assert before - files(table) == {"tag/tag-three"}
