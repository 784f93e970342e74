"""Which commits in between refuse a commit by what its statement has read."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import CommitConflictError, InvalidValueError, OutdatedPlanError
from paimon_magics.planning.commits.read_sets import (
    ReadSet,
    RowSearch,
    read_files,
    read_keys,
    read_rows,
)
from paimon_magics.planning.commits.requests import (
    Append,
    Change,
    CommitReceipt,
    CommitRequest,
    Compact,
    OverwritePartitions,
    Transaction,
)
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.tables.commits import read_checks
from paimon_magics.tables.commits.commit import commit
from paimon_magics.tables.commits.decoded_request import decoded
from paimon_magics.tables.commits.read_checks import have_common_key
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.snapshots.latest import latest_snapshot_id, latest_state, read_snapshot
from paimon_magics.tables.stores.local_store import publish_local_file
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.native_writer import native_table
from tests.tables.commits.compacting import bodies, live_entries, live_names, rewrite, upgrade
from tests.tables.commits.test_compaction_conflicts import vectors
from tests.tables.manifest_files import create

_USERS = itertools.count()
_SAME_KEY = "wrote rows of the same keys"


def made(folder: Path, columns: str, **options: str) -> Table:
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    partitioned = " PARTITIONED BY (p)" if " p STRING" in columns else ""
    tail = f" TBLPROPERTIES ({properties})" if options else ""
    return create(folder, f"CREATE TABLE t ({columns}){partitioned}{tail}")


def keyed(folder: Path, columns: str = "k INT NOT NULL, v STRING", **options: str) -> Table:
    keys = ", ".join(part.split()[0] for part in columns.split(", ") if "NOT NULL" in part)
    return made(folder, columns, **{"primary-key": keys, "bucket": "1", **options})


def rows_of(table: Table, *values: Sequence[Any]) -> list[dict[str, Any]]:
    names = [column.name for column in table.schema.columns]
    return [dict(zip(names, row, strict=True)) for row in values]


def written(table: Table, rows: Sequence[Mapping[str, Any]]) -> tuple[bytes, ...]:
    """Messages of the native writer, which knows statistics."""
    writer = native_table(table).writer("somebody", overwrite=False)
    writer.write(pa.RecordBatch.from_pylist(list(rows), arrow_schema(table.schema)), None)
    messages = tuple(writer.messages())
    writer.close()
    return messages


def committed(
    table: Table,
    messages: tuple[bytes, ...],
    read: ReadSet | None = None,
    change: Change | None = None,
    publish: Callable[[str, bytes], bool] = publish_local_file,
) -> CommitReceipt:
    base, name = latest_state(table) if read is None else read.state
    opened = Transaction(
        table.name, f"user-{next(_USERS)}", "pm-unused-", base, base_manifest_list=name
    )
    asked = CommitRequest(opened, change or Append(), messages, (), read)
    return commit(decoded(table, asked), publish, is_first_run=True)


def added(table: Table, *values: Sequence[Any], read: ReadSet | None = None) -> CommitReceipt:
    return committed(table, written(table, rows_of(table, *values)), read)


@pytest.mark.parametrize(
    ("columns", "first", "theirs", "ours", "meets"),
    [
        ("k INT NOT NULL, v STRING", (1, "a"), [(1, "b")], [(1, "c")], True),
        ("k INT NOT NULL, v STRING", (1, "a"), [(2, "b")], [(1, "c")], False),
        ("k INT NOT NULL, v STRING", (1, "a"), [(1, "b"), (3, "b")], [(2, "c"), (4, "")], False),
        ("k INT NOT NULL, v STRING", (1, "a"), [(n, "") for n in range(9)], [(7, "")], True),
        ("k STRING NOT NULL, v INT", ("a", 1), [("a", 2), ("c", 2)], [("b", 2)], False),
        ("k STRING NOT NULL, v INT", ("a", 1), [("a", 2), ("c" * 40, 2)], [("c" * 40, 2)], True),
        (
            "k DOUBLE NOT NULL, l STRING NOT NULL, v INT",
            (0.0, "", 1),
            [(float("nan"), "x", 2), (-1.0, "x", 2)],
            [(float("nan"), "x", 3)],
            True,
        ),
        (
            "k DOUBLE NOT NULL, l STRING NOT NULL, v INT",
            (0.0, "", 1),
            [(-0.0, "x", 2), (-1.0, "y", 2), (1.0, "x", 2)],
            [(0.0, "x", 3), (-1.0, "x", 3)],
            False,
        ),
        (
            "k DECIMAL(20,2) NOT NULL, l DATE NOT NULL, v INT",
            (Decimal("1.00"), datetime.date(2026, 1, 1), 1),
            [(Decimal(k), datetime.date(2026, 1, day), 2) for k, day in (("1.00", 2), ("9.00", 1))],
            [(Decimal("1.00"), datetime.date(2026, 1, 2), 3)],
            True,
        ),
    ],
)
def test_concurrent_update_of_a_key_is_refused(
    tmp_path: Path,
    columns: str,
    first: tuple[Any, ...],
    theirs: list[tuple[Any, ...]],
    ours: list[tuple[Any, ...]],
    meets: bool,
) -> None:
    table = keyed(tmp_path, columns)
    added(table, first)
    own = written(table, rows_of(table, *ours))
    added(table, *theirs, read=read_keys(1))
    if not meets:
        assert committed(table, own, read_keys(1)).snapshot_id == 3
        return
    user = read_snapshot(table.paimon, 2).commit_user
    told = rf"read snapshot 1 of `.*`, snapshot 2 \(APPEND by {user} .*{_SAME_KEY}\."
    with pytest.raises(OutdatedPlanError, match=told):
        committed(table, own, read_keys(1))
    assert latest_snapshot_id(table) == 2
    assert committed(table, own, read_keys(2)).snapshot_id == 3


def test_same_keys_in_other_partitions_are_no_conflict(tmp_path: Path) -> None:
    table = keyed(tmp_path, "k INT NOT NULL, p STRING NOT NULL, v INT", bucket="2")
    added(table, (1, "a", 1), (1, "b", 1))
    own = written(table, rows_of(table, (1, "a", 2)))
    added(table, (1, "b", 3), read=read_keys(1))
    committed(table, own, read_keys(1))
    again = written(table, rows_of(table, (1, "a", 4)))
    with pytest.raises(OutdatedPlanError, match="in the partition p = a"):
        committed(table, again, read_keys(1))


def test_conflict_names_author_and_commit_user(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    added(table, (1, "a"))
    own = written(table, rows_of(table, (1, "c")))
    opened = Transaction(table.name, "their-user", "pm-unused-", 1)
    by = (("paimon-magics.user", "ada"), ("paimon-magics.notebook", "fix.ipynb"))
    theirs = CommitRequest(opened, Append(), written(table, rows_of(table, (1, "b"))), by)
    commit(decoded(table, theirs), publish_local_file, is_first_run=True)
    with pytest.raises(OutdatedPlanError, match=r"by ada in fix.ipynb .* commit user their-user\."):
        committed(table, own, read_keys(1))


def test_plain_insert_of_a_key_conflicts_with_an_update(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    added(table, (1, "a"))
    own = written(table, rows_of(table, (1, "c")))
    added(table, (1, "b"))
    with pytest.raises(OutdatedPlanError, match=_SAME_KEY):
        committed(table, own, read_keys(1))


def test_commits_conflict_only_on_common_keys(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    added(table, (1, "a"))
    own = written(table, rows_of(table, (1, "c"), (3, "c")))
    added(table, (2, "b"))
    committed(table, own, read_keys(1))
    with pytest.raises(OutdatedPlanError, match="snapshot 3"):
        added(table, (3, "d"), read=read_keys(2))


@pytest.mark.parametrize("moves", [upgrade, lambda t, _: rewrite(t, rows_of(t, (1, "a")))])
def test_compaction_does_not_conflict_with_an_update(
    tmp_path: Path, moves: Callable[[Table, int], list[CommitMessage]]
) -> None:
    table = keyed(tmp_path)
    added(table, (1, "a"))
    own = written(table, rows_of(table, (1, "c")))
    committed(table, bodies(table, moves(table, 5)), change=Compact())
    assert committed(table, own, read_keys(1)).snapshot_id == 3


def test_update_of_a_key_awaiting_compaction_is_refused(tmp_path: Path) -> None:
    table = keyed(tmp_path, **{"deletion-vectors.enabled": "true"})
    added(table, (1, "a"), (9, "a"))
    committed(table, bodies(table, upgrade(table, 5)), change=Compact())
    added(table, (1, "unseen"), (2, "unseen"))
    committed(table, written(table, rows_of(table, (9, "b"))), read_keys(3))
    with pytest.raises(OutdatedPlanError, match=r"could not see: .* next compaction"):
        committed(table, written(table, rows_of(table, (1, "b"))), read_keys(4))


def test_update_does_not_restore_a_row_deleted_by_vector(
    tmp_path: Path,
) -> None:
    table = keyed(tmp_path, **{"deletion-vectors.enabled": "true"})
    added(table, (1, "a"), (9, "a"))
    committed(table, bodies(table, upgrade(table, 5)), change=Compact())
    index = vectors(table, ((), 0), "index-1", *live_names(table))
    own = written(table, rows_of(table, (1, "b")))
    committed(table, bodies(table, [CommitMessage((), 0, [], index_adds=[index])]))
    with pytest.raises(OutdatedPlanError, match=r"OVERWRITE by .* deleted rows of the file"):
        committed(table, own, read_keys(2))
    committed(table, own, read_keys(3))


def test_update_does_not_restore_overwritten_rows(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    added(table, (1, "a"))
    own = written(table, rows_of(table, (1, "c")))
    committed(table, (), change=OverwritePartitions())
    with pytest.raises(OutdatedPlanError, match=rf"OVERWRITE by .*{_SAME_KEY}"):
        committed(table, own, read_keys(1))


def test_too_many_keys_to_compare_count_as_common(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_checks, "HELD_KEYS_MAX", 1)
    table = keyed(tmp_path)
    added(table, (1, "a"))
    own = written(table, rows_of(table, (2, "c"), (4, "c")))
    added(table, (3, "b"))  # a single key is held, and compared
    committed(table, own, read_keys(1))
    own = written(table, rows_of(table, (5, "c"), (7, "c")))
    added(table, (6, "b"), (8, "b"))
    with pytest.raises(OutdatedPlanError, match=_SAME_KEY):
        committed(table, own, read_keys(3))


def test_empty_file_lists_have_no_common_key(tmp_path: Path) -> None:
    assert not have_common_key(keyed(tmp_path), [], [])


def test_commit_between_two_attempts_is_checked_too(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    added(table, (1, "a"))
    own = written(table, rows_of(table, (1, "c")))

    def publish(path: str, content: bytes) -> bool:
        if latest_snapshot_id(table) < 3:
            added(table, (latest_snapshot_id(table), "b"))
        return publish_local_file(path, content)

    added(table, (9, "z"))
    own = written(table, rows_of(table, (2, "c")))
    with pytest.raises(OutdatedPlanError, match="snapshot 3"):
        committed(table, own, read_keys(1), publish=publish)


# ------------------------------------------------------------------------------- append tables


def one_file(table: Table, name: str, *values: Sequence[Any]) -> tuple[bytes, ...]:
    """The messages of a statement that writes a file anew, with other rows."""
    [(bucket, file)] = [
        (bucket, entry.file)
        for bucket, entries in live_entries(table).items()
        for entry in entries
        if entry.file.file_name == name
    ]
    new = written(table, rows_of(table, *values)) if values else ()
    removed = CommitMessage(*bucket, [], deleted_files=[file])
    return (*new, *bodies(table, [removed]))


def of(column: str, operator: str, *values: Any) -> tuple[ColumnPredicate, ...]:
    return (ColumnPredicate(column, operator, values),)


def test_replaced_or_compacted_file_outdates_a_plan(tmp_path: Path) -> None:
    table = made(tmp_path, "k INT, v STRING")
    added(table, (1, "a"))
    added(table, (2, "a"))
    [one, other] = live_names(table)
    ours = one_file(table, one, (1, "b"))
    beside = one_file(table, other, (2, "b"))
    committed(
        table, one_file(table, other, (2, "c")), read_files(2, [other], RowSearch(of("k", "=", 2)))
    )
    committed(table, ours, read_files(2, [one], RowSearch(of("k", "=", 1))))
    with pytest.raises(OutdatedPlanError, match=f"snapshot 3 .* replaced the file {other}"):
        committed(table, beside, read_files(2, [other], RowSearch(of("k", "=", 2))))
    names = list(live_names(table))
    ours = one_file(table, names[0], (1, "d"))
    committed(table, bodies(table, rewrite(table, rows_of(table, (1, "b")), 0)), change=Compact())
    with pytest.raises(OutdatedPlanError, match=f"COMPACT by .* compacted the file {names[0]}"):
        committed(table, ours, read_files(4, names[:1], RowSearch(of("k", "=", 1))))


def test_read_set_without_files_covers_all_files_of_its_search(tmp_path: Path) -> None:
    table = made(tmp_path, "k INT, v STRING")
    added(table, (1, "a"))
    added(table, (2, "a"))
    [one, other] = live_names(table)
    ours = one_file(table, one, (1, "b"))
    committed(table, one_file(table, other), read_files(2, [other], RowSearch(of("k", "=", 2))))
    everything = replace(read_files(2, [], RowSearch()), files=None)
    with pytest.raises(OutdatedPlanError, match="replaced"):
        committed(table, ours, everything)
    committed(table, ours, replace(everything, search=RowSearch(of("k", "=", 1))))


def test_derived_rows_conflict_only_with_changes_of_their_source(tmp_path: Path) -> None:
    table = made(tmp_path, "k INT, v STRING")
    added(table, (1, "a"), (2, "b"))
    added(table, (10, "c"))
    [one, other] = live_names(table)
    read = read_rows(2, RowSearch(of("k", "<", 5)))
    added(table, (3, "blind"))
    committed(table, one_file(table, other), read_files(3, [other], RowSearch(of("k", "=", 10))))
    added(table, (4, "made of 1"), read=read)
    kept = [(1, "a"), (2, "b"), (3, "blind"), (4, "made of 1")]
    committed(table, bodies(table, rewrite(table, rows_of(table, *kept), 0)), change=Compact())
    added(table, (6, "made of 1"), read=replace(read, snapshot_id=5))
    [one, other] = live_names(table)
    committed(
        table, one_file(table, one, (1, "x")), read_files(7, [one], RowSearch(of("k", "=", 1)))
    )
    with pytest.raises(OutdatedPlanError, match=f"replaced the file {one}, which it has read"):
        added(table, (7, "made of 1"), read=replace(read, snapshot_id=7))


def test_new_deletions_outdate_a_plan_but_moved_vectors_do_not(
    tmp_path: Path,
) -> None:
    table = made(tmp_path, "k INT, v STRING", **{"deletion-vectors.enabled": "true"})
    added(table, (1, "a"))
    added(table, (2, "a"))
    [one, other] = live_names(table)

    def marked(index: Any, read: ReadSet, *replaced: Any) -> CommitReceipt:
        message = CommitMessage((), 0, [], index_adds=[index], index_deletes=list(replaced))
        return committed(table, bodies(table, [message]), read)

    first = vectors(table, ((), 0), "index-1", one)
    marked(first, read_files(2, [one], RowSearch()))
    ours = one_file(table, one, (1, "b"))
    both = vectors(table, ((), 0), "index-2", one, other)  # it has the vector of `one` as it was
    marked(both, read_files(3, [other], RowSearch(of("k", "=", 2))), first)
    with pytest.raises(OutdatedPlanError, match=f"deleted rows of the file {other}"):
        marked(first, read_files(3, [other], RowSearch(of("k", "=", 2))), both)
    # The rest of pypaimon's own check refuses a replaced index file, and may be run again, too.
    with pytest.raises(OutdatedPlanError, match="index-1"):
        marked(both, read_files(3, [one], RowSearch(of("k", "=", 1))), first)
    committed(table, ours, read_files(3, [one], RowSearch(of("k", "=", 1))))


_LOOKED_FOR = "added rows that may match its condition"


@pytest.mark.parametrize(
    ("found", "values", "has_read", "meets"),
    [
        (RowSearch(of("k", "=", 7), adds_missing=True), (7, "a"), False, True),
        (RowSearch(of("k", "in", 6, 7), adds_missing=True), (7, "a"), False, True),
        (RowSearch(of("k", "=", 7), adds_missing=True), (8, "a"), False, False),
        (RowSearch(of("p", "=", "a"), adds_missing=True), (7, "a"), False, True),
        (RowSearch(of("p", "=", "b"), adds_missing=True), (7, "a"), False, False),
        (RowSearch(of("gone", "=", 1), adds_missing=True), (7, "a"), False, True),
        (RowSearch(adds_missing=True), (7, "a"), False, True),
        (RowSearch(of("k", "=", 7)), (7, "a"), False, False),
        (RowSearch(of("k", "=", 7)), (7, "a"), True, True),
        (RowSearch(of("k", "=", 7)), (8, "a"), True, False),
    ],
)
def test_new_rows_matching_the_search_outdate_a_plan(
    tmp_path: Path, found: RowSearch, values: tuple[Any, ...], has_read: bool, meets: bool
) -> None:
    table = made(tmp_path, "k INT, p STRING")
    added(table, (1, "a"))
    ours = written(table, rows_of(table, (7, "a")))
    added(table, values, read=read_files(1, [], RowSearch(of("k", "=", 1))) if has_read else None)
    read = read_files(1, [], found)
    if not meets:
        assert committed(table, ours, read).snapshot_id == 3
        return
    with pytest.raises(OutdatedPlanError, match=_LOOKED_FOR):
        committed(table, ours, read)


def test_new_rows_matching_non_key_columns_outdate_a_plan(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    added(table, (1, "a"))
    ours = written(table, rows_of(table, (7, "x")))
    added(table, (8, "x"))
    with pytest.raises(OutdatedPlanError, match=_LOOKED_FOR):
        committed(table, ours, read_keys(1, RowSearch(of("v", "=", "x"), adds_missing=True)))
    committed(table, ours, read_keys(1))


# --------------------------------------------------------------------- the snapshot that was read


def test_rollback_outdates_a_plan(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    added(table, (1, "a"))
    added(table, (2, "a"))
    ours = written(table, rows_of(table, (9, "c")))
    name = read_snapshot(table.paimon, 2).delta_manifest_list
    committed(table, ours, read_keys(2, manifest_list=name))
    table.paimon.rollback_to(1)
    again = written(table, rows_of(table, (9, "d")))
    with pytest.raises(OutdatedPlanError, match="was rolled back to before snapshot 2"):
        committed(table, again, read_keys(2))
    added(table, (3, "other"))
    with pytest.raises(OutdatedPlanError, match="was rolled back to before snapshot 2"):
        committed(table, again, read_keys(2, manifest_list=name))


def grown_again(table: Table, *values: Sequence[Any]) -> Callable[[str, bytes], bool]:
    """Publishes snapshots; before the first one, somebody else rolls the table back to its first
    snapshot and adds each of the rows, up to the same id."""
    is_first = True

    def publish(path: str, content: bytes) -> bool:
        nonlocal is_first
        if is_first:
            is_first = False
            table.paimon.rollback_to(1)
            for value in values:
                added(table, value)
        return publish_local_file(path, content)

    return publish


def test_rows_are_checked_that_came_by_a_rollback_between_two_attempts(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for key in (1, 2, 3):
        added(table, (key, "a"))
    name = read_snapshot(table.paimon, 1).delta_manifest_list
    ours = written(table, rows_of(table, (9, "c")))
    publish = grown_again(table, (9, "b"), (8, "b"), (7, "b"))
    with pytest.raises(OutdatedPlanError, match=f"snapshot 2 .*{_SAME_KEY}"):
        committed(table, ours, read_keys(1, manifest_list=name), publish=publish)


def test_overwrite_is_refused_after_a_rollback_between_two_attempts(tmp_path: Path) -> None:
    table = made(tmp_path, "k INT, v STRING")
    for key in (1, 2, 3):
        added(table, (key, "a"))
    ours = written(table, rows_of(table, (9, "c")))
    publish = grown_again(table, (6, "b"), (7, "b"), (8, "b"))
    with pytest.raises(CommitConflictError, match="was rolled back to before snapshot 3"):
        committed(table, ours, change=OverwritePartitions(), publish=publish)


def test_expired_snapshot_outdates_a_plan(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    for number in range(3):
        added(table, (number, "a"))
    ours = written(table, rows_of(table, (9, "c")))
    Path(table.location, "snapshot", "snapshot-2").unlink()
    with pytest.raises(OutdatedPlanError, match=r"Snapshot 2 of .* expired"):
        committed(table, ours, read_keys(1))


def test_read_keys_of_a_table_without_primary_key_are_refused(tmp_path: Path) -> None:
    table = made(tmp_path, "k INT, v STRING")
    with pytest.raises(InvalidValueError, match="no primary key"):
        added(table, (1, "a"), read=read_keys(0))
    assert latest_snapshot_id(table) == 0


def test_commit_without_a_read_set_raises_a_plain_conflict(tmp_path: Path) -> None:
    table = made(tmp_path, "k INT, v STRING")
    added(table, (1, "a"))
    [one] = live_names(table)
    ours = one_file(table, one)
    committed(table, one_file(table, one))
    with pytest.raises(CommitConflictError) as raised:
        committed(table, ours)
    assert not isinstance(raised.value, OutdatedPlanError)


def properties(table: Table) -> Mapping[str, str]:
    return read_snapshot(table.paimon, latest_snapshot_id(table)).properties or {}


def test_snapshot_records_the_read_snapshot_of_its_statement(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    added(table, (1, "a"))
    assert "paimon-magics.read-snapshot" not in properties(table)
    added(table, (1, "b"), read=read_keys(1))
    assert properties(table)["paimon-magics.read-snapshot"] == "1"
