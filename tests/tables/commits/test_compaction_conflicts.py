"""When a compaction conflicts with other commits, and which of its buckets do."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pypaimon.index.deletion_vector_meta import DeletionVectorMeta
from pypaimon.index.index_file_meta import IndexFileMeta
from pypaimon.manifest.index_manifest_entry import IndexManifestEntry
from pypaimon.table.row.generic_row import GenericRow
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.coordinator.client.compacting import CompactionCommit, commit_compaction
from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.errors import CompactionConflictError
from paimon_magics.planning.commits.requests import (
    Append,
    CommitReceipt,
    CommitRequest,
    Compact,
    OverwritePartitions,
    Transaction,
)
from paimon_magics.settings import Settings
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.table_changes import AlterTable
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.commit import commit
from paimon_magics.tables.commits.decoded_request import decoded
from paimon_magics.tables.stores.local_store import publish_local_file
from paimon_magics.tables.table import Table
from tests.tables.commits.compacting import (
    Bucket,
    bodies,
    live_entries,
    live_names,
    rewrite,
    upgrade,
)
from tests.tables.commits.test_commit import TABLES, described, keys, ours, rows_of, written
from tests.tables.manifest_files import TABLE, create

_COMPACTORS = itertools.count()


def compact(
    table: Table,
    messages: Sequence[CommitMessage],
    publish: Callable[[str, bytes], bool] = publish_local_file,
) -> CommitReceipt:
    transaction = Transaction(table.name, f"compactor {next(_COMPACTORS)}", "pm-c-", 1)
    asked = CommitRequest(transaction, Compact(), bodies(table, messages))
    return commit(decoded(table, asked), publish, is_first_run=True)


def keyed(folder: Path, *commits: Sequence[int], buckets: int = 1) -> Table:
    """A table with one commit for each group of keys."""
    table = create(
        folder,
        "CREATE TABLE t (k INT NOT NULL, v STRING) "
        f"TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '{buckets}')",
    )
    for numbers in commits:
        append(table, *numbers)
    return table


def append(table: Table, *numbers: int) -> None:
    rows = [row for number in numbers for row in rows_of(table, number)]
    ours(table, Append(), written(table, rows))


def only(messages: Sequence[CommitMessage], name: str, level: int) -> list[CommitMessage]:
    """The part of a bucket's compaction that moves one file to a level."""
    [message] = messages
    [file] = [file for file in message.compact_before if file.file_name == name]
    return [replace(message, compact_before=[file], compact_after=[replace(file, level=level)])]


def test_missing_file_conflicts_only_in_its_bucket(tmp_path: Path) -> None:
    table = keyed(tmp_path, range(10), range(10, 15), buckets=2)
    buckets = sorted(live_entries(table))
    planned = upgrade(table, 4, *buckets)
    rows = [row for k in range(15) for row in rows_of(table, k)]
    compact(table, rewrite(table, rows, 5, "", buckets[1]))
    at = next(i for i, m in enumerate(planned) if m.bucket == buckets[1][1])
    with pytest.raises(CompactionConflictError, match=r"changed 1 of the 2 buckets") as caught:
        compact(table, planned)
    assert caught.value.conflicting == (at,)
    assert f"In bucket {buckets[1][1]} the file " in caught.value.message
    compact(table, rewrite(table, rows, 5, "", buckets[0]))
    assert keys(table) == list(range(15))


def test_a_file_at_another_level_is_a_conflict(tmp_path: Path) -> None:
    table = keyed(tmp_path, range(3))
    planned = upgrade(table, 4)
    compact(table, upgrade(table, 5))
    with pytest.raises(CompactionConflictError, match="is no longer at level 0"):
        compact(table, planned)
    [(_, level)] = live_names(table).items()
    assert level == 5


def test_adding_an_existing_file_is_a_conflict(tmp_path: Path) -> None:
    table = keyed(tmp_path, range(3))
    planned = rewrite(table, rows_of(table, 1))
    compact(table, planned)
    again = rewrite(table, rows_of(table, 1))
    again[0].compact_after = planned[0].compact_after
    again[0].compact_before = []
    with pytest.raises(CompactionConflictError, match="is at level 5 already"):
        compact(table, again)


def test_files_added_at_level_0_are_no_conflict(tmp_path: Path) -> None:
    table = keyed(tmp_path, [1, 2])
    planned = rewrite(table, [*rows_of(table, 1), *rows_of(table, 2)])
    append(table, 2, 3)
    receipt = compact(table, planned)
    assert receipt.snapshot_id == 3
    assert keys(table) == [1, 2, 3]
    assert sorted(live_names(table).values()) == [0, 5]


@pytest.mark.parametrize(
    ("first", "second", "conflicts"),
    [
        (range(0, 10), range(10, 20), False),
        (range(0, 11), range(10, 20), True),
        (range(10, 20), range(0, 10), False),
        (range(0, 30), range(10, 20), True),
        ([-5, 3], [-7, -6], False),
    ],
)
def test_key_ranges_above_level_0_must_not_overlap(
    tmp_path: Path, first: Sequence[int], second: Sequence[int], conflicts: bool
) -> None:
    table = keyed(tmp_path, first, second)
    [one, other] = live_names(table)
    planned = only(upgrade(table, 5), other, 5)
    compact(table, only(upgrade(table, 5), one, 5))
    if conflicts:
        with pytest.raises(CompactionConflictError, match="would overlap at level 5"):
            compact(table, planned)
    else:
        compact(table, planned)
        assert set(live_names(table).values()) == {5}
    assert keys(table) == sorted({*first, *second})


def test_files_at_different_levels_may_share_keys(tmp_path: Path) -> None:
    table = keyed(tmp_path, range(10), range(10))
    [one, other] = live_names(table)
    planned = only(upgrade(table, 5), other, 4)
    compact(table, only(upgrade(table, 5), one, 5))
    compact(table, planned)
    assert sorted(live_names(table).values()) == [4, 5]


def test_each_bucket_is_checked_by_its_own_files(tmp_path: Path) -> None:
    """Random files at random levels, against a comparison of each with each."""
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    table = keyed(tmp_path, *[chance.sample(range(60), 6) for _ in range(6)], buckets=3)
    before = live_entries(table)
    messages, expected = [], set()
    for at, (bucket, entries) in enumerate(before.items()):
        levels = [chance.choice([0, 1, 1, 2]) for _ in entries]
        after = [
            replace(entry.file, level=level)
            for entry, level in zip(entries, levels, strict=True)
            if level
        ]
        moved = {file.file_name for file in after}
        messages.append(
            CommitMessage(
                *bucket,
                [],
                total_buckets=3,
                compact_before=[e.file for e in entries if e.file.file_name in moved],
                compact_after=after,
            )
        )
        if _overlap(after):
            expected.add(at)
    print(f"seed {seed}")
    actual: set[int] = set()
    try:
        compact(table, messages)
    except CompactionConflictError as error:
        actual = set(error.conflicting)
    assert actual == expected


def _overlap(files: Sequence[Any]) -> bool:
    ranges = [(f.level, f.min_key.values[0], f.max_key.values[0]) for f in files]
    return any(
        a[0] == b[0] and a[1] <= b[2] and b[1] <= a[2]
        for i, a in enumerate(ranges)
        for b in ranges[i + 1 :]
    )


@pytest.mark.parametrize("kind", ["partitioned", "dynamic buckets"])
def test_compaction_does_not_restore_overwritten_rows(tmp_path: Path, kind: str) -> None:
    table = create(tmp_path, TABLES[kind])
    for number, p in ((1, "a"), (2, "a"), (3, "b")):
        ours(table, Append(), written(table, rows_of(table, number, p)))
    rows = [row for n, p in ((1, "a"), (2, "a"), (3, "b")) for row in rows_of(table, n, p)]
    planned = rewrite(table, rows)
    ours(table, OverwritePartitions(((("p", "a"),),)), ())
    with pytest.raises(CompactionConflictError) as caught:
        compact(table, planned)
    assert [planned[at].partition[0] for at in caught.value.conflicting] == ["a"]
    assert "of the partition p = a" in caught.value.message
    assert keys(table) == [3]


def test_different_bucket_count_is_a_conflict(tmp_path: Path) -> None:
    table = keyed(tmp_path, range(3), buckets=2)
    planned = upgrade(table, 5)
    for message in planned:
        message.total_buckets = 4
    with pytest.raises(CompactionConflictError, match="its partition has 2 buckets, not 4"):
        compact(table, planned)


def test_outrun_compaction_without_conflict_is_retried(tmp_path: Path) -> None:
    table = keyed(tmp_path, [1])
    late = []

    def publish(path: str, content: bytes) -> bool:
        if len(late) < 3:
            late.append(path)
            append(table, 10 + len(late))
        return publish_local_file(path, content)

    receipt = compact(table, upgrade(table, 5), publish)
    assert receipt.snapshot_id == 5
    assert keys(table) == [1, 11, 12, 13]
    assert sorted(live_names(table).values()) == [0, 0, 0, 5]


def test_bucket_compacted_between_two_attempts_is_a_conflict(tmp_path: Path) -> None:
    table = keyed(tmp_path, [1])
    planned, faster = upgrade(table, 5), upgrade(table, 4)
    late: list[str] = []

    def publish(path: str, content: bytes) -> bool:
        if not late:
            late.append(path)
            compact(table, faster)
        return publish_local_file(path, content)

    with pytest.raises(CompactionConflictError):
        compact(table, planned, publish)
    assert described(table)["id"] == 2
    assert keys(table) == [1]


def vectors(table: Table, bucket: Bucket, name: str, *files: str) -> IndexManifestEntry:
    """An index file that claims to have deletion vectors for some data files."""
    folder = Path(table.location, "index")
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"x" * 30)
    ranges = {file: DeletionVectorMeta(file, 1, 20, 1) for file in files}
    meta = IndexFileMeta("DELETION_VECTORS", name, 30, len(files), ranges)
    return IndexManifestEntry(0, GenericRow(list(bucket[0]), []), bucket[1], meta)


@pytest.mark.parametrize("knew", [False, True])
def test_rows_deleted_meanwhile_stay_deleted(tmp_path: Path, knew: bool) -> None:
    table = create(
        tmp_path,
        "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')",
    )
    append(table, 1)
    append(table, 2)
    bucket: Bucket = ((), 0)
    [one, other] = live_names(table)

    def mark(index: IndexManifestEntry, *replaced: IndexManifestEntry) -> None:
        message = CommitMessage((), 0, [], index_adds=[index], index_deletes=list(replaced))
        ours(table, Append(), bodies(table, [message]))

    earlier = vectors(table, bucket, "index-1", one)
    if knew:
        mark(earlier)
    planned = rewrite(table, [*rows_of(table, 1), *rows_of(table, 2)], 0)
    planned[0].compact_index_deletes = [earlier] if knew else []
    mark(vectors(table, bucket, "index-2", one, other), *([earlier] if knew else []))
    told = "index-1 is no longer there" if knew else "index-2 has its deletion vector"
    with pytest.raises(CompactionConflictError, match=told):
        compact(table, planned)
    assert set(live_names(table)) == {one, other}


def test_compaction_replaces_the_deletion_vectors_it_read(tmp_path: Path) -> None:
    table = create(
        tmp_path,
        "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('deletion-vectors.enabled' = 'true')",
    )
    append(table, 1)
    append(table, 2)
    bucket: Bucket = ((), 0)
    [one, other] = live_names(table)
    earlier = vectors(table, bucket, "index-1", one, other)
    ours(table, Append(), bodies(table, [CommitMessage((), 0, [], index_adds=[earlier])]))
    [message] = rewrite(table, rows_of(table, 2), 0)
    message.compact_before = [f for f in message.compact_before if f.file_name == one]
    message.compact_index_deletes = [earlier]
    lost = vectors(table, bucket, "index-2", one)
    with pytest.raises(CompactionConflictError, match="which gets a deletion vector, is not there"):
        compact(table, [replace(message, compact_index_adds=[lost])])
    rest = vectors(table, bucket, "index-2", other)
    compact(table, [replace(message, compact_index_adds=[rest])])
    assert {name for _, _, _, name in described(table)["index_manifest"]} == {"index-2"}


def test_buckets_without_conflict_commit_and_other_files_are_removed(tmp_path: Path) -> None:
    keyed(tmp_path, range(10), range(5, 15), buckets=2)
    catalog = Catalog.open({"warehouse": str(tmp_path)})
    client = InProcessCommitter(catalog, Settings())
    table = catalog.load(TABLE)
    first, second = sorted(live_entries(table))
    rows = [row for k in range(15) for row in rows_of(table, k)]
    transaction = client.begin(TABLE)
    planned = rewrite(table, rows, 5, transaction.file_prefix)
    compact(table, rewrite(table, rows, 5, "", second))
    asked = CommitRequest(transaction, Compact(), bodies(table, planned))
    done = commit_compaction(client, asked)
    lost = [at for at, message in enumerate(planned) if message.bucket == second[1]]
    assert list(done.conflicting) == lost
    assert done.receipt is not None and done.receipt.commit_kind == "COMPACT"
    assert "changed 1 of the 2 buckets" in done.reason
    assert keys(table) == list(range(15))
    assert _own_files(table, transaction) == {
        f.file_name for m in planned if m.bucket == first[1] for f in m.compact_after
    }


def test_compaction_with_conflicts_in_all_buckets_is_abandoned(tmp_path: Path) -> None:
    keyed(tmp_path, range(10), buckets=2)
    catalog = Catalog.open({"warehouse": str(tmp_path)})
    client = InProcessCommitter(catalog, Settings())
    table = catalog.load(TABLE)
    transaction = client.begin(TABLE)
    rows = [row for k in range(10) for row in rows_of(table, k)]
    planned = rewrite(table, rows, 5, transaction.file_prefix)
    compact(table, upgrade(table, 5))
    done = commit_compaction(client, CommitRequest(transaction, Compact(), bodies(table, planned)))
    assert (done.receipt, done.conflicting) == (None, (0, 1))
    assert described(table)["id"] == 2


class Interrupted:
    """A committer whose caller is interrupted after the commit, before it hears of it."""

    def __init__(self, client: InProcessCommitter) -> None:
        self._client = client
        self._interrupts = True

    def commit(self, request: CommitRequest) -> CommitReceipt:
        receipt = self._client.commit(request)
        if self._interrupts:
            self._interrupts = False
            raise KeyboardInterrupt
        return receipt


def test_interrupted_compaction_commit_repeats_the_same_messages(tmp_path: Path) -> None:
    keyed(tmp_path, range(10), range(5, 15), buckets=2)
    catalog = Catalog.open({"warehouse": str(tmp_path)})
    client = InProcessCommitter(catalog, Settings())
    table = catalog.load(TABLE)
    _, second = sorted(live_entries(table))
    rows = [row for k in range(15) for row in rows_of(table, k)]
    transaction = client.begin(TABLE)
    planned = rewrite(table, rows, 5, transaction.file_prefix)
    compact(table, rewrite(table, rows, 5, "", second))
    request = CommitRequest(transaction, Compact(), bodies(table, planned))
    commit = CompactionCommit(Interrupted(client), request)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        commit.run()
    done = commit.run()
    assert done.receipt is not None
    assert (done.receipt.snapshot_id, done.receipt.commit_kind) == (4, "COMPACT")
    assert [planned[at].bucket for at in done.conflicting] == [second[1]]
    assert keys(table) == list(range(15))


def _own_files(table: Table, transaction: Transaction) -> set[str]:
    return {path.name for path in Path(table.location).rglob(f"{transaction.file_prefix}*.parquet")}


def test_a_new_column_is_no_conflict(tmp_path: Path) -> None:
    table = keyed(tmp_path, [1])
    planned = upgrade(table, 5)
    statement = parse_statement("ALTER TABLE t ADD COLUMN w INT")
    assert isinstance(statement, AlterTable)
    changed = Catalog.open({"warehouse": str(tmp_path)}).alter_table(TABLE, statement.changes)
    compact(changed, planned)
    assert described(changed)["schema_id"] == 1
