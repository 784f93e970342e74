"""Commits that merge a table's manifests, and change nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paimon_magics.coordinator.protocol.documents import request_document, request_of
from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.commits.requests import (
    Append,
    Change,
    CommitReceipt,
    CommitRequest,
    CompactManifests,
    OverwritePartitions,
    OverwriteTouched,
)
from paimon_magics.tables.commits.commit import commit
from paimon_magics.tables.commits.decoded_request import decoded
from paimon_magics.tables.stores.local_store import publish_local_file
from paimon_magics.tables.table import Table
from tests.oracle.java_reader import JavaPaimon
from tests.oracle.test_manifests_in_java import BY_DAY, base, bounds, contents, row
from tests.tables.commits.test_commit import copy_of, ours, request, written
from tests.tables.manifest_files import create


def latest(table: Table) -> object:
    return table.paimon.snapshot_manager().get_latest_snapshot()


def manifest_files(table: Table) -> set[str]:
    return {path.name for path in (Path(table.location) / "manifest").iterdir()}


def with_commits(folder: Path, number: int = 5) -> Table:
    """A table with manifests that no rule of its own merges; the fourth commit replaces rows."""
    table = create(folder, BY_DAY.format(count=30, full="16 mb"))
    for k in range(number):
        change = OverwriteTouched() if k == 3 else Append()
        ours(table, change, written(table, row(k, ("a", "b", None)[k % 3])), f"{k}")
    return table


def test_compaction_merges_all_manifests_and_changes_nothing_else(warehouse: Path) -> None:
    table = with_commits(warehouse)
    before = latest(table)
    receipt = ours(table, CompactManifests(), user="compactor")
    after = latest(table)
    assert receipt == CommitReceipt(6, "COMPACT", 4, 0, after.delta_manifest_list)
    assert [meta.num_deleted_files for meta in base(table)] == [0]
    assert after.index_manifest == before.index_manifest
    assert after.total_record_count == before.total_record_count
    assert after.changelog_manifest_list is None
    assert after.properties == {"a": "b"}


def test_compaction_without_effect_makes_no_snapshot(warehouse: Path) -> None:
    table = with_commits(warehouse)
    ours(table, CompactManifests(), user="one")
    before = latest(table), manifest_files(table)
    nothing = CommitReceipt(None, None, None, 0)
    assert ours(table, CompactManifests(), user="two") == nothing
    assert (latest(table), manifest_files(table)) == before


def test_compaction_of_a_table_without_snapshots_makes_no_snapshot(warehouse: Path) -> None:
    table = create(warehouse, BY_DAY.format(count=30, full="16 mb"))
    assert ours(table, CompactManifests()) == CommitReceipt(None, None, None, 0)
    assert latest(table) is None


def test_manifests_of_the_target_size_stay(warehouse: Path) -> None:
    table = with_commits(warehouse, number=3)
    names = {meta.file_name for meta in base(table)}
    assert ours(table, CompactManifests(target_bytes=1), user="one").snapshot_id is None
    assert ours(table, CompactManifests(), user="two").snapshot_id == 4
    assert not names & {meta.file_name for meta in base(table)}


def test_compaction_keeps_foreign_snapshot_properties_but_not_ours(
    warehouse: Path,
) -> None:
    table = with_commits(warehouse, number=2)
    asked = request(table, Append(), written(table, row(9, "a")), commit_user="writer")
    said = (("theirs", "1"), ("paimon-magics.rows", "1"))
    asked = replace(asked, properties=said)
    commit(decoded(table, asked), publish_local_file, is_first_run=True)
    ours(table, CompactManifests(), user="compactor")
    assert latest(table).properties == {"theirs": "1", "a": "b"}


def test_compaction_keeps_a_concurrent_commit(warehouse: Path) -> None:
    table = with_commits(warehouse)
    decoded_request = decoded(table, request(table, CompactManifests(), commit_user="compactor"))
    calls: list[int] = []

    def overtaken(snapshot_id: int) -> None:
        calls.append(snapshot_id)
        if len(calls) == 1:
            ours(table, OverwritePartitions(((("p", "a"),),)), user="faster")

    receipt = commit(decoded_request, publish_local_file, is_first_run=True, check_before=overtaken)
    assert calls == [6, 7]
    assert (receipt.snapshot_id, receipt.total_rows) == (7, latest(table).total_record_count)
    named = {meta.file_name for meta in base(table)}
    assert named <= manifest_files(table)
    live = [entry for meta in contents(table, base(table)) for entry in meta]
    assert sum(1 if kind == 0 else -1 for kind, _, _ in live) == receipt.total_rows


def test_repeated_request_gets_the_same_answer(warehouse: Path) -> None:
    table = with_commits(warehouse)
    decoded_request = decoded(table, request(table, CompactManifests(), commit_user="compactor"))
    first = commit(decoded_request, publish_local_file, is_first_run=True)
    assert commit(decoded_request, publish_local_file) == first
    assert latest(table).id == 6


def test_manifest_compaction_refuses_data_files(warehouse: Path) -> None:
    table = with_commits(warehouse, number=1)
    with pytest.raises(InvalidValueError, match="takes no messages"):
        ours(table, CompactManifests(), written(table, row(1, "a")))


@pytest.mark.parametrize("change", [CompactManifests(), CompactManifests(1 << 20)], ids=str)
def test_change_round_trips_through_a_document(warehouse: Path, change: Change) -> None:
    table = create(warehouse, BY_DAY.format(count=30, full="16 mb"))
    asked: CommitRequest = request(table, change)
    assert request_of(asked.transaction, request_document(asked)) == asked


@pytest.mark.spark
@pytest.mark.java
@pytest.mark.parametrize("commits", [2, 5, 9])
def test_java_merges_the_same_manifests_and_reads_ours(
    java_paimon: JavaPaimon, tmp_path: Path, commits: int
) -> None:
    table = with_commits(tmp_path / "ours", commits)
    other = copy_of(table, tmp_path / "java")
    ours(table, CompactManifests(), user="compactor")
    java_paimon.compact_manifests(tmp_path / "java", "default.t")
    assert contents(table, base(table)) == contents(other, base(other))
    assert list(map(bounds, base(table))) == list(map(bounds, base(other)))
    mine, javas = latest(table), latest(other)
    assert (mine.commit_kind, mine.total_record_count, mine.delta_record_count) == (
        javas.commit_kind,
        javas.total_record_count,
        javas.delta_record_count,
    )
    read = java_paimon.rows(tmp_path / "ours", "default.t")
    assert sorted(map(repr, read)) == sorted(
        map(repr, java_paimon.rows(tmp_path / "java", "default.t"))
    )
    java_paimon.write(tmp_path / "ours", "default.t", [(100, "z")])
    assert len(java_paimon.rows(tmp_path / "ours", "default.t")) == len(read) + 1
