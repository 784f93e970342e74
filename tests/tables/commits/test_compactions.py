"""Compactions as commits: what their snapshots say, and what they are refused for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    TableDamagedError,
    UnsupportedStatementError,
)
from paimon_magics.planning.commits.requests import (
    Append,
    CommitReceipt,
    CommitRequest,
    Compact,
    Transaction,
)
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.table_changes import AlterTable
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.commit import commit
from paimon_magics.tables.commits.decoded_request import (
    check_files,
    check_names,
    decoded,
    file_paths,
)
from paimon_magics.tables.commits.publication_checks import unnamed_receipt
from paimon_magics.tables.stores.local_store import publish_local_file
from paimon_magics.tables.table import Table
from tests.tables.commits.compacting import bodies, live_names, rewrite, upgrade
from tests.tables.commits.test_commit import TABLES, described, ours, rows_of, written
from tests.tables.manifest_files import TABLE, create

PREFIX = "pm-mine-"


def table_with(folder: Path, kind: str, *numbers: int) -> Table:
    """A table with one commit for each number."""
    table = create(folder, TABLES[kind])
    for number in numbers:
        ours(table, Append(), written(table, rows_of(table, number)))
    return table


def request(table: Table, messages: list[CommitMessage], base: int | None = None) -> CommitRequest:
    if base is None:
        base = table.paimon.snapshot_manager().get_latest_snapshot().id
    opened = Transaction(table.name, "compactor", PREFIX, base)
    return CommitRequest(opened, Compact(), bodies(table, messages), (("a", "b"),))


def compact(table: Table, messages: list[CommitMessage]) -> CommitReceipt:
    return commit(decoded(table, request(table, messages)), publish_local_file, is_first_run=True)


def delta(table: Table) -> list[tuple[int, str, int]]:
    """Kind, name and level of the latest snapshot's changes, in the order of its manifests."""
    latest = table.paimon.snapshot_manager().get_latest_snapshot()
    metas = ManifestListManager(table.paimon).read_delta(latest)
    manifests = ManifestFileManager(table.paimon)
    entries = [e for meta in metas for e in manifests.read(meta.file_name)]
    return [(e.kind, e.file.file_name, e.file.level) for e in entries]


def keys(table: Table) -> list[int]:
    builder = table.paimon.new_read_builder()
    found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return sorted(found["k"].to_pylist())


@pytest.mark.parametrize("kind", ["primary key", "partitioned", "dynamic buckets", "append"])
def test_compaction_lists_deletions_before_additions_and_keeps_rows(
    tmp_path: Path, kind: str
) -> None:
    table = table_with(tmp_path, kind, 1, 2, 3)
    before = live_names(table)
    rows = [row for number in (1, 2, 3) for row in rows_of(table, number)]
    messages = rewrite(table, rows)
    receipt = compact(table, messages)
    assert (receipt.snapshot_id, receipt.commit_kind) == (4, "COMPACT")
    assert (receipt.total_rows, receipt.delta_rows) == (3, 0)
    changed = delta(table)
    kinds = [kind for kind, _, _ in changed]
    assert kinds == sorted(kinds, reverse=True), "1 is a deletion"
    assert {(name, level) for kind, name, level in changed if kind == 1} == set(before.items())
    assert {level for kind, _, level in changed if kind == 0} == {5}
    assert described(table)["properties"] == {"a": "b"}
    assert keys(table) == [1, 2, 3]


def test_upgraded_file_keeps_its_name(tmp_path: Path) -> None:
    table = table_with(tmp_path, "primary key", 1)
    [(name, level)] = live_names(table).items()
    compact(table, upgrade(table, 5))
    assert delta(table) == [(1, name, level), (0, name, 5)]
    assert live_names(table) == {name: 5}
    assert keys(table) == [1]


def test_a_compaction_without_files_makes_no_snapshot(tmp_path: Path) -> None:
    table = table_with(tmp_path, "append", 1)
    asked = CommitRequest(Transaction(table.name, "compactor", PREFIX, 1), Compact())
    receipt = commit(decoded(table, asked), publish_local_file, is_first_run=True)
    assert receipt.snapshot_id is None
    assert described(table)["id"] == 1


def test_compacted_files_get_no_row_ids(tmp_path: Path) -> None:
    table = table_with(tmp_path, "row tracking", 1, 2)
    rows = [row for number in (1, 2) for row in rows_of(table, number)]
    messages = rewrite(table, rows, 0)
    for message in messages:
        message.compact_after = [
            replace(file, min_sequence_number=1, max_sequence_number=2)
            for file in message.compact_after
        ]
    compact(table, messages)
    latest = table.paimon.snapshot_manager().get_latest_snapshot()
    assert latest.next_row_id == 2
    metas = ManifestListManager(table.paimon).read_delta(latest)
    reader = ManifestFileManager(table.paimon)
    [added] = [e.file for meta in metas for e in reader.read(meta.file_name) if e.kind == 0]
    assert added.first_row_id is None
    assert (added.min_sequence_number, added.max_sequence_number) == (1, 2)


def test_compaction_keeps_snapshot_ids_as_sequence_numbers(tmp_path: Path) -> None:
    sql = TABLES["primary key"][:-1] + ", 'sequence.snapshot-ordering' = 'true')"
    table = create(tmp_path, sql)
    for number in (1, 2):
        ours(table, Append(), written(table, rows_of(table, 1)), f"{number}")
    messages = rewrite(table, rows_of(table, 1))
    [file] = messages[0].compact_after
    messages[0].compact_after = [replace(file, min_sequence_number=2, max_sequence_number=2)]
    compact(table, messages)
    latest = table.paimon.snapshot_manager().get_latest_snapshot()
    metas = ManifestListManager(table.paimon).read_delta(latest)
    reader = ManifestFileManager(table.paimon)
    [added] = [e.file for meta in metas for e in reader.read(meta.file_name) if e.kind == 0]
    assert (latest.id, added.min_sequence_number, added.max_sequence_number) == (3, 2, 2)


def test_only_written_files_are_synced_and_belong_to_the_transaction(tmp_path: Path) -> None:
    table = table_with(tmp_path, "primary key", 1, 2)
    moved = decoded(table, request(table, upgrade(table, 5)))
    assert moved.file_names == frozenset()
    assert file_paths(moved) == []
    check_names(moved)
    rows = [row for number in (1, 2) for row in rows_of(table, number)]
    messages = rewrite(table, rows, 5, PREFIX)
    decoded_request = decoded(table, request(table, messages))
    names = {file.file_name for message in messages for file in message.compact_after}
    assert decoded_request.file_names == names
    assert {path.rpartition("/")[2] for path in file_paths(decoded_request)} == names
    check_names(decoded_request)
    check_files(decoded_request)


def test_compaction_refuses_files_of_another_transaction(tmp_path: Path) -> None:
    table = table_with(tmp_path, "primary key", 1)
    decoded_request = decoded(
        table, request(table, rewrite(table, rows_of(table, 1), 5, "pm-other-"))
    )
    with pytest.raises(InvalidValueError, match="does not belong to the transaction"):
        check_names(decoded_request)


def with_rows(messages: list[CommitMessage]) -> None:
    messages[0].new_files = list(messages[0].compact_before)


def named_twice(messages: list[CommitMessage]) -> None:
    messages[0].compact_before *= 2


def at_its_level(messages: list[CommitMessage]) -> None:
    messages[0].compact_after = list(messages[0].compact_before)


def other_rows(messages: list[CommitMessage]) -> None:
    [file] = messages[0].compact_after
    messages[0].compact_after = [replace(file, row_count=7)]


@pytest.mark.parametrize(
    ("change", "kind", "told"),
    [
        (with_rows, InvalidValueError, "can't add or remove rows"),
        (named_twice, TableDamagedError, "names a file twice"),
        (at_its_level, TableDamagedError, "adds it again unchanged"),
        (other_rows, TableDamagedError, "changes which rows"),
    ],
)
def test_invalid_compaction_messages_are_refused(
    tmp_path: Path, change: Any, kind: type[PaimonMagicsError], told: str
) -> None:
    table = table_with(tmp_path, "primary key", 1)
    messages = upgrade(table, 5)
    change(messages)
    with pytest.raises(kind, match=told):
        compact(table, messages)
    assert described(table)["id"] == 1


def test_append_refuses_compacted_files(tmp_path: Path) -> None:
    table = table_with(tmp_path, "primary key", 1)
    with pytest.raises(UnsupportedStatementError, match="compacted while it wrote"):
        ours(table, Append(), bodies(table, upgrade(table, 5)))


def test_files_keep_the_bucket_count_of_their_partition(tmp_path: Path) -> None:
    table_with(tmp_path, "primary key", 1)
    statement = parse_statement("ALTER TABLE t SET TBLPROPERTIES ('bucket' = '4')")
    assert isinstance(statement, AlterTable)
    changed = Catalog.open({"warehouse": str(tmp_path)}).alter_table(TABLE, statement.changes)
    assert changed.schema.bucket == 4
    messages = upgrade(changed, 5)
    for message in messages:
        message.total_buckets = None
    compact(changed, messages)
    reader = ManifestFileManager(changed.paimon)
    latest = changed.paimon.snapshot_manager().get_latest_snapshot()
    metas = ManifestListManager(changed.paimon).read_delta(latest)
    assert {e.total_buckets for meta in metas for e in reader.read(meta.file_name)} == {2}


def test_compaction_is_recognised_after_its_snapshot_was_overwritten(tmp_path: Path) -> None:
    """An outside writer has renamed its own snapshot over it, after another one was built on it."""
    table = table_with(tmp_path, "primary key", 1, 2)
    rows = [row for number in (1, 2) for row in rows_of(table, number)]
    decoded_request = decoded(table, request(table, rewrite(table, rows, 5, PREFIX)))
    assert unnamed_receipt(decoded_request) is None
    commit(decoded_request, publish_local_file, is_first_run=True)
    ours(table, Append(), written(table, rows_of(table, 3)))
    path = Path(table.location) / "snapshot" / "snapshot-3"
    before = (path.with_name("snapshot-2")).read_text()
    path.write_text(before.replace('"id": 2', '"id": 3'))
    assert unnamed_receipt(decoded_request) == CommitReceipt(3, "COMPACT", None, 0)
