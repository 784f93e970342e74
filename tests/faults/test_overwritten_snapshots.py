"""A writer outside checks that a snapshot is not there, and renames over ours that came between.

What we had acknowledged is in the table again, once; where that can't be right, its table stops.
The writer is pypaimon, stopped between its two steps.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from paimon_magics.coordinator.core.values import Committed, Done, Halted, Limits, Overwritten
from paimon_magics.coordinator.store.database import StoreUnavailableError
from paimon_magics.errors import CommitConflictError
from paimon_magics.planning.commits.read_sets import RowSearch, read_files, read_keys
from paimon_magics.planning.commits.requests import (
    Append,
    CommitRequest,
    OverwritePartitions,
)
from tests.coordinator.postgres import PostgresServer
from tests.coordinator.process import TABLE, Process, create_table, read, write
from tests.faults.changed_rows import deleted
from tests.faults.outside_writer import OutsideWriter
from tests.faults.owner import APPEND, KEYED, LATER, OLD, OURS, THEIRS, Start, of, row, until
from tests.sampling import sampled
from tests.tables.reachability import missing, unreachable


@pytest.mark.parametrize("sql", [APPEND, KEYED], ids=["append", "upsert"])
def test_overwritten_commit_is_republished_once(
    start: Start, outside: OutsideWriter, sql: str
) -> None:
    owner = start(sql)
    assert outside.stop_before_renaming(owner.warehouse, [THEIRS]) == "snapshot-2"
    id, receipt = owner.commit([OURS])
    assert receipt.snapshot_id == 2
    assert owner.rows() == of(OLD, OURS)
    outside.go_on()
    assert owner.rows() == of(OLD, THEIRS), "the writer outside has replaced our snapshot"
    assert owner.look() == Done()
    assert owner.rows() == of(OLD, OURS, THEIRS)
    assert owner.receipt(id).snapshot_id == 3
    again = owner.snapshot(3)
    assert again.properties["paimon-magics.republished"] == "2"
    assert owner.look() == Done()
    assert owner.latest() == 3
    assert owner.coordinator.republished == 1
    assert owner.commit([LATER])[1].snapshot_id == 4
    assert owner.rows() == of(OLD, OURS, THEIRS, LATER)


@pytest.mark.parametrize("sql", [APPEND, KEYED], ids=["append", "upsert"])
def test_files_of_an_overwritten_snapshot_are_removed(
    start: Start, outside: OutsideWriter, sql: str
) -> None:
    owner = start(sql, grace_ms=1)
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    owner.commit([OURS])
    table = owner.catalog.load(TABLE)
    outside.go_on()
    overwritten = unreachable(table)
    assert len(overwritten) >= 4, "the data file, its manifest, and two lists"
    assert owner.look() == Done()
    until(lambda: not unreachable(table))
    assert missing(table) == set()
    assert owner.rows() == of(OLD, OURS, THEIRS)


def test_files_of_an_overwritten_snapshot_stay_for_the_grace_period(
    start: Start, outside: OutsideWriter
) -> None:
    owner = start(APPEND, grace_ms=3_600_000)
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    owner.commit([OURS])
    table = owner.catalog.load(TABLE)
    outside.go_on()
    assert owner.look() == Done()
    left = unreachable(table)
    assert left
    owner.coordinator.stop()
    assert unreachable(table) == left
    owner.limits = Limits(watch_every_ms=600_000, cleanup_grace_ms=1, expire_every_ms=20)
    owner.start()
    until(lambda: not unreachable(table))
    assert owner.rows() == of(OLD, OURS, THEIRS)


def test_next_commit_republishes_an_overwritten_commit_first(
    start: Start, outside: OutsideWriter
) -> None:
    owner = start(APPEND)
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    owner.commit([OURS])
    outside.go_on()
    assert owner.commit([LATER])[1].snapshot_id == 4
    assert owner.rows() == of(OLD, OURS, THEIRS, LATER)


def test_overwrite_is_noticed_without_another_commit(start: Start, outside: OutsideWriter) -> None:
    owner = start(APPEND, watch_every_ms=100)
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    owner.commit([OURS])
    outside.go_on()
    deadline = time.monotonic() + 30
    while owner.latest() < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert owner.rows() == of(OLD, OURS, THEIRS)


def test_overwrite_is_noticed_after_a_store_outage(
    start: Start,
    outside: OutsideWriter,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in postgres.environment.items():
        monkeypatch.setenv(name, value)
    owner = start(APPEND, watch_every_ms=100, store=postgres.empty_database())
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    owner.commit([OURS])
    postgres.kill()
    until(lambda: owner.coordinator.problem is not None)
    outside.go_on()
    with pytest.raises(StoreUnavailableError):
        owner.look()
    postgres.start()
    until(lambda: owner.rows() == of(OLD, OURS, THEIRS))
    assert owner.commit([LATER])[1].snapshot_id == 4


def test_overwrite_is_noticed_after_a_restart(start: Start, outside: OutsideWriter) -> None:
    owner = start(APPEND)
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    id, _ = owner.commit([OURS])
    owner.coordinator.stop()
    outside.go_on()
    owner.start()
    assert owner.look() == Done()
    assert owner.rows() == of(OLD, OURS, THEIRS)
    assert owner.receipt(id).snapshot_id == 3


def test_a_repeated_request_gets_the_receipt_of_the_new_snapshot(
    start: Start, outside: OutsideWriter
) -> None:
    owner = start(APPEND)
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    id, request = owner.begin([OURS])
    owner.coordinator.transactions.commit(id, request)
    outside.go_on()
    owner.look()
    answer = owner.coordinator.transactions.commit(id, request)
    assert isinstance(answer, Committed) and answer.receipt.snapshot_id == 3
    assert owner.rows() == of(OLD, OURS, THEIRS)


def test_commit_built_on_by_others_needs_no_republication(
    start: Start, outside: OutsideWriter
) -> None:
    """The writer outside comes so late that it only harms itself."""
    owner = start(APPEND)
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    owner.commit([OURS])
    owner.commit([LATER])
    outside.go_on()
    assert owner.look() == Done()
    assert owner.latest() == 3
    assert owner.rows() == of(OLD, OURS, LATER)


def test_commits_on_top_of_the_overwriting_snapshot_stay(
    start: Start, outside: OutsideWriter
) -> None:
    owner = start(APPEND)
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    owner.commit([OURS])
    outside.go_on()
    outside.commit(owner.warehouse, [LATER])
    assert owner.look() == Done()
    assert owner.rows() == of(OLD, OURS, THEIRS, LATER)
    assert owner.latest() == 4


def test_overwritten_overwrite_stops_the_table_until_resumed(
    start: Start, outside: OutsideWriter
) -> None:
    owner = start(APPEND)
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    waiting, waiting_request = owner.begin([LATER])
    id, request = owner.begin([OURS], OverwritePartitions())
    assert isinstance(owner.coordinator.transactions.commit(id, request), Committed)
    outside.go_on()
    stopped = owner.look()
    assert isinstance(stopped, Halted)
    assert "Snapshot 2 of `default.t` (OVERWRITE" in stopped.reason
    assert "it replaced rows" in stopped.reason
    assert owner.rows() == of(OLD, THEIRS)
    with pytest.raises(CommitConflictError, match="it replaced rows"):
        owner.begin([LATER])
    assert isinstance(owner.coordinator.transactions.commit(waiting, waiting_request), Halted)
    assert isinstance(owner.coordinator.transactions.commit(id, request), Overwritten)
    owner.coordinator.stop()
    owner.start()
    assert isinstance(owner.coordinator.transactions.commit(waiting, waiting_request), Halted)
    assert owner.coordinator.watching.resume(owner.location) == Done()
    assert isinstance(owner.coordinator.transactions.commit(waiting, waiting_request), Committed)
    assert owner.rows() == of(OLD, THEIRS, LATER)


def files_of(warehouse: Path, prefix: str) -> list[str]:
    """The files whose names begin so. By `os.walk`, to which it does not matter that folders are
    removed meanwhile."""
    found = (name for _, _, names in os.walk(warehouse) for name in names)
    return sorted(name for name in found if name.startswith(prefix))


def test_commit_discovering_a_lost_overwrite_is_refused_and_cleaned_up(
    start: Start, outside: OutsideWriter
) -> None:
    owner = start(APPEND)
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    owner.commit([OURS], OverwritePartitions())
    outside.go_on()
    id, request = owner.begin([LATER])
    answer = owner.coordinator.transactions.commit(id, request)
    assert "it replaced rows" in getattr(answer, "reason", "")
    assert owner.rows() == of(OLD, THEIRS)
    prefix = request.transaction.file_prefix
    deadline = time.monotonic() + 20
    while files_of(owner.warehouse, prefix) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert files_of(owner.warehouse, prefix) == []


def test_overwritten_append_is_not_republished_over_an_overwrite(
    start: Start, outside: OutsideWriter
) -> None:
    owner = start(APPEND)
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    owner.commit([OURS])
    outside.go_on()
    outside.commit(owner.warehouse, [LATER], overwrite=True)
    stopped = owner.look()
    assert isinstance(stopped, Halted) and "snapshot 3 replaced rows after it" in stopped.reason
    assert owner.rows() == of(LATER)


def test_overwritten_upsert_is_not_republished_over_a_later_value(
    start: Start, outside: OutsideWriter
) -> None:
    """The later value may have a lower sequence number: it was written without ours."""
    owner = start(KEYED)
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    owner.commit([row(7, "ours"), row(8, "ours"), row(9, "ours")])
    outside.go_on()
    outside.commit(owner.warehouse, [row(9, "later")])
    stopped = owner.look()
    assert isinstance(stopped, Halted)
    assert "snapshot 3 wrote 1 of its keys too" in stopped.reason
    assert owner.rows() == of(OLD, THEIRS, row(9, "later"))


def test_overwritten_upsert_is_republished_below_higher_sequence_numbers(
    start: Start, outside: OutsideWriter
) -> None:
    owner = start(KEYED)
    others = [row(number, "theirs") for number in range(20, 30)]
    outside.stop_before_renaming(owner.warehouse, others)
    owner.commit([row(7, "ours"), row(9, "ours")])
    outside.go_on()
    outside.commit(owner.warehouse, [row(9, "later")])
    assert owner.look() == Done()
    assert owner.rows() == of(OLD, row(7, "ours"), row(9, "later"), *others)


def test_overwritten_upsert_of_the_same_keys_stops_the_table(
    start: Start, outside: OutsideWriter
) -> None:
    owner = start(KEYED)
    outside.stop_before_renaming(owner.warehouse, [row(5, "theirs"), row(6, "theirs")])
    owner.commit([row(5, "ours"), row(6, "ours")])
    outside.go_on()
    stopped = owner.look()
    assert isinstance(stopped, Halted) and "snapshot 2 wrote 2 of its keys too" in stopped.reason


def test_missing_files_of_an_overwritten_commit_stop_the_table(
    start: Start, outside: OutsideWriter
) -> None:
    owner = start(APPEND)
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    id, request = owner.begin([OURS])
    owner.coordinator.transactions.commit(id, request)
    outside.go_on()
    (file,) = owner.warehouse.rglob(f"{request.transaction.file_prefix}*.parquet")
    file.unlink()
    stopped = owner.look()
    assert isinstance(stopped, Halted) and f"its file {file.name} is gone" in stopped.reason


def test_commit_without_its_manifests_is_republished_from_its_request(
    start: Start, outside: OutsideWriter
) -> None:
    owner = start(APPEND)
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    owner.commit([OURS])
    name = owner.snapshot(2).delta_manifest_list
    outside.go_on()
    (file,) = owner.warehouse.rglob(name)
    file.unlink()
    assert owner.look() == Done()
    assert owner.rows() == of(OLD, OURS, THEIRS)


@pytest.mark.parametrize("theirs", [row(1, "theirs"), THEIRS], ids=["same key", "another"])
def test_update_is_republished_only_when_its_reads_are_unchanged(
    start: Start, outside: OutsideWriter, theirs: dict[str, object]
) -> None:
    owner = start(KEYED)
    outside.stop_before_renaming(owner.warehouse, [theirs])
    updated = row(1, "old and more")
    owner.commit([updated], read_set=read_keys(1))
    outside.go_on()
    stopped = owner.look()
    if theirs is THEIRS:
        assert stopped == Done() and owner.rows() == of(updated, THEIRS)
    else:
        assert isinstance(stopped, Halted) and "wrote 1 of its keys too" in stopped.reason
        assert owner.rows() == of(theirs)


@pytest.mark.parametrize("sql", [APPEND, KEYED], ids=["append", "upsert"])
def test_commit_with_lost_reads_is_not_republished(
    start: Start, outside: OutsideWriter, sql: str
) -> None:
    """The request is no longer kept, also after a restart: what it had read is not known then."""
    owner = start(sql)
    outside.stop_before_renaming(owner.warehouse, [OLD])
    read = read_keys(1) if sql == KEYED else read_files(1, (), RowSearch(adds_missing=True))
    owner.commit([OURS], read_set=read)
    owner.coordinator.stop()
    outside.go_on()
    owner.start()
    owner.store.transactions.forget_finished(2**62)
    stopped = owner.look()
    assert isinstance(stopped, Halted)
    assert "can't be published again: its statement computed it from rows" in stopped.reason
    assert owner.rows() == (of(OLD) if sql == KEYED else of(OLD, OLD))


VECTORS = APPEND + " TBLPROPERTIES ('deletion-vectors.enabled' = 'true')"


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_overwritten_delete_by_vectors_stops_the_table(
    start: Start, outside: OutsideWriter, is_kept: bool
) -> None:
    """It adds no data files: nothing in the manifests tells of it."""
    owner = start(VECTORS)
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    id, transaction, _ = owner.coordinator.transactions.begin(TABLE, None, "me")
    request = deleted(owner.catalog, transaction, (0, 0))
    assert isinstance(owner.coordinator.transactions.commit(id, request), Committed)
    assert owner.rows() == []
    if not is_kept:
        owner.store.transactions.forget_finished(2**62)
    outside.go_on()
    stopped = owner.look()
    assert isinstance(stopped, Halted) and "it deleted rows of files" in stopped.reason
    assert owner.rows() == of(OLD, THEIRS)


@pytest.mark.parametrize("by_outside", [False, True])
def test_delete_by_vectors_built_on_by_others_stays(
    start: Start, outside: OutsideWriter, by_outside: bool
) -> None:
    owner = start(VECTORS)
    outside.stop_before_renaming(owner.warehouse, [THEIRS])
    id, transaction, _ = owner.coordinator.transactions.begin(TABLE, None, "me")
    request = deleted(owner.catalog, transaction, (0, 0))
    assert isinstance(owner.coordinator.transactions.commit(id, request), Committed)
    if by_outside:
        another = OutsideWriter()
        another.commit(owner.warehouse, [LATER])
        another.close()
    else:
        owner.commit([LATER])
    outside.go_on()
    assert owner.look() == Done()
    assert owner.rows() == of(LATER)


def test_expired_snapshot_is_not_taken_for_overwritten(
    start: Start, outside: OutsideWriter
) -> None:
    owner = start(APPEND)
    owner.commit([OURS])
    outside.commit(owner.warehouse, [THEIRS])
    folder = owner.warehouse / "default.db" / "t" / "snapshot"
    for number in (1, 2):
        (folder / f"snapshot-{number}").unlink()
    (folder / "EARLIEST").write_text("3")
    assert owner.look() == Done()
    assert owner.latest() == 3
    assert owner.rows() == of(OLD, OURS, THEIRS)


def test_rollback_from_outside_stops_the_table(start: Start, outside: OutsideWriter) -> None:
    owner = start(APPEND)
    owner.commit([OURS])
    owner.catalog.load(TABLE).paimon.rollback_to(1)
    stopped = owner.look()
    assert isinstance(stopped, Halted) and "rolled back" in stopped.reason
    assert owner.rows() == of(OLD)


def test_recreated_table_gets_no_commits_of_its_predecessor(
    start: Start, outside: OutsideWriter
) -> None:
    owner = start(APPEND)
    owner.commit([OURS])
    location = owner.location
    owner.catalog.drop_table(TABLE)
    assert owner.coordinator.watching.before_change(location) == Done()
    create_table(owner.warehouse, APPEND)
    assert owner.commit([LATER])[1].snapshot_id == 1
    assert owner.rows() == of(LATER)


STEPS = (
    "watch.found",
    "manifest.written",
    "commit.prepared",
    "publish.linked",
    "republish.published",
    "republish.stored",
)


@pytest.mark.slow
@pytest.mark.parametrize("step", sampled(STEPS))
def test_coordinator_killed_while_republishing_republishes_once(
    tmp_path: Path, outside: OutsideWriter, step: str
) -> None:
    settings = ("--watch-every-ms=100", "--cleanup-grace-ms=500", "--expire-every-ms=20")
    process = Process(tmp_path / "warehouse", tmp_path / "state", *settings)
    process.start()
    try:
        catalog = create_table(process.warehouse, APPEND)
        client = process.client()
        outside.stop_before_renaming(process.warehouse, [THEIRS])
        transaction = client.begin(TABLE)
        request = CommitRequest(transaction, Append(), write(catalog, transaction, [OURS]))
        assert client.commit(request).snapshot_id == 1
        process.kill()
        outside.go_on()
        process.start(faults=f"{step}=kill")
        assert process.has_died(60)
        process.start()
        deadline = time.monotonic() + 60
        while client.commit(request).snapshot_id == 1 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert client.commit(request).snapshot_id == 2
        assert sorted(tuple(row.values()) for row in read(catalog)) == of(OURS, THEIRS)
        snapshots = catalog.load(TABLE).paimon.snapshot_manager()
        assert snapshots.get_latest_snapshot().id == 2
        until(lambda: not unreachable(catalog.load(TABLE)), 60)
        assert missing(catalog.load(TABLE)) == set()
    finally:
        process.close()
