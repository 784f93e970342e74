"""A coordinator, or a process without one, that dies, fails or stands still at every named step of
a compaction's commit: one bucket is rewritten, and of another a file only moves to another level.

Then the compaction is in the table once or not at all, the rows are the same, no file is left, and
none that moved is gone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.coordinator.client.compacting import commit_compaction
from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.errors import CommitConflictError, CompactionConflictError, SetupError
from paimon_magics.planning.commits.requests import Append, CommitRequest, Compact, Transaction
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import read_messages
from tests.coordinator.process import TABLE, create_table, read, write
from tests.faults.appending import committer_of, open_catalog
from tests.faults.test_coordinator_crashes import (
    ACTIONS,
    BEFORE_PUBLISHING,
    COMMIT_STEPS,
    Armed,
    wait_until_nothing_is_left,
)
from tests.faults.test_two_coordinators import DEPOSED, Two, catalog_options, two
from tests.tables.commits.compacting import bodies, live_entries, live_names, upgrade
from tests.tables.reachability import missing, unreachable

__all__ = ["catalog_options", "two"]  # fixtures

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SQL = (
    "CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES "
    "('primary-key' = 'k', 'bucket' = '2', 'manifest.merge-min-count' = '2')"
)
FIRST = [{"k": k, "v": "old"} for k in range(6)]
SECOND = [{"k": k, "v": "new"} for k in range(3)]
EXPECTED = [(k, "new" if k < 3 else "old") for k in range(6)]


def matrix() -> list[object]:
    """Each step with each action; two thirds of them only by `make soak`."""
    return [
        pytest.param(step, action, marks=[pytest.mark.soak] if (i + j) % 3 else [])
        for i, step in enumerate(COMMIT_STEPS)
        for j, action in enumerate(ACTIONS)
    ]


@pytest.fixture(scope="module")
def armed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Armed]:
    started = Armed(tmp_path_factory.mktemp("armed"))
    yield started
    started.process.close()


def fill(client: CoordinatorClient, catalog: Catalog, name: TableName) -> Table:
    """Two commits to both buckets."""
    for rows in (FIRST, SECOND):
        transaction = client.begin(name)
        client.commit(CommitRequest(transaction, Append(), write(catalog, transaction, rows)))
    return catalog.load(name)


def planned(catalog: Catalog, transaction: Transaction) -> CommitRequest:
    """Bucket 0 is rewritten, and the older file of bucket 1 moves to level 5. What was written for
    bucket 1 is left out."""
    rewritten, moved, unused = messages_of(catalog, transaction)
    table = catalog.load(transaction.table)
    change = Compact(bodies(table, [unused]))
    return CommitRequest(transaction, change, bodies(table, [rewritten, moved]))


def messages_of(
    catalog: Catalog, transaction: Transaction
) -> tuple[CommitMessage, CommitMessage, CommitMessage]:
    """Messages that rewrite bucket 0, move a file of bucket 1, and rewrite bucket 1."""
    table = catalog.load(transaction.table)
    written = write(catalog, transaction, [{"k": k, "v": v} for k, v in EXPECTED])
    live = {bucket: [e.file for e in found] for (_, bucket), found in live_entries(table).items()}
    new = {message.bucket: message.new_files for message in read_messages(table.paimon, written)}

    def of(bucket: int, before: Sequence[Any], after: Sequence[Any]) -> CommitMessage:
        leveled = [replace(file, level=5) for file in after]
        return CommitMessage(
            (), bucket, [], total_buckets=2, compact_before=[*before], compact_after=leveled
        )

    oldest = min(live[1], key=lambda file: file.max_sequence_number)
    return of(0, live[0], new[0]), of(1, [oldest], [oldest]), of(1, live[1], new[1])


def rows(catalog: Catalog, name: TableName) -> list[tuple[object, object]]:
    return sorted((row["k"], row["v"]) for row in read(catalog, name))


def levels(table: Table) -> dict[int, list[int]]:
    """The levels of the files of each bucket."""
    return {
        bucket: sorted(entry.file.level for entry in entries)
        for (_, bucket), entries in live_entries(table).items()
    }


@pytest.mark.parametrize(("step", "action"), matrix())
def test_disturbed_compaction_happens_once(armed: Armed, step: str, action: str) -> None:
    process = armed.process
    catalog, name = armed.create_table(SQL)
    client = process.client()
    table = fill(client, catalog, name)
    request = planned(catalog, client.begin(name))
    armed.arm(step, action)
    with ThreadPoolExecutor(1) as patient:
        answer = patient.submit(client.commit, request)
        match action:
            case "kill":
                assert process.has_died()
                armed.start()
            case "stop":
                armed.wait_until_stopped()
                time.sleep(0.2)
                process.go_on()
        if action == "raise" and step in BEFORE_PUBLISHING:
            with pytest.raises(SetupError, match=f"armed at {step}"):
                answer.result(120)
            assert levels(table) == {0: [0, 0], 1: [0, 0]}
            wait_until_nothing_is_left(catalog, name)
        else:
            receipt = answer.result(120)
            assert (receipt.snapshot_id, receipt.commit_kind) == (3, "COMPACT")
            assert client.commit(request) == receipt
            assert levels(table) == {0: [5], 1: [0, 5]}
    assert armed.has_acted
    assert rows(catalog, name) == EXPECTED
    assert missing(table) == set()
    assert unreachable(table) == set()
    after = client.begin(name)
    client.commit(CommitRequest(after, Append(), write(catalog, after, [{"k": 9, "v": "z"}])))
    assert (9, "z") in rows(catalog, name)
    assert unreachable(table) == set()


def test_abort_removes_no_moved_file(armed: Armed) -> None:
    catalog, name = armed.create_table(SQL)
    client = armed.process.client()
    table = fill(client, catalog, name)
    before = live_names(table)
    transaction = client.begin(name)
    planned(catalog, transaction)
    client.abort(transaction)
    wait_until_nothing_is_left(catalog, name)
    assert live_names(table) == before
    assert missing(table) == set()
    assert rows(catalog, name) == EXPECTED


def test_refused_compaction_removes_only_its_own_files(armed: Armed) -> None:
    catalog, name = armed.create_table(SQL)
    client, other = armed.process.client(), armed.process.client()
    table = fill(client, catalog, name)
    request = planned(catalog, client.begin(name))
    faster = other.begin(name)
    other.commit(CommitRequest(faster, Compact(), bodies(table, oldest_to(table, 4))))
    with pytest.raises(CompactionConflictError, match="is no longer at level 0") as caught:
        client.commit(request)
    assert caught.value.conflicting == (0, 1)
    client.abort(request.transaction)
    wait_until_nothing_is_left(catalog, name)
    assert levels(table) == {0: [0, 4], 1: [0, 4]}
    assert missing(table) == set()
    assert rows(catalog, name) == EXPECTED


def oldest_to(table: Table, level: int, *buckets: int) -> list[CommitMessage]:
    """Messages that move the oldest file of each bucket to a level."""
    result = upgrade(table, level, *[((), bucket) for bucket in buckets])
    for message in result:
        oldest = min(message.compact_before, key=lambda file: file.max_sequence_number)
        message.compact_before = [oldest]
        message.compact_after = [replace(oldest, level=level)]
    return result


@pytest.mark.parametrize(
    "step", ["", "commit.stored", "commit.prepared", "publish.linked", "receipt.stored"]
)
def test_unconflicting_buckets_are_committed_despite_a_coordinator_kill(
    armed: Armed, step: str
) -> None:
    catalog, name = armed.create_table(SQL)
    client, other = armed.process.client(), armed.process.client()
    table = fill(client, catalog, name)
    transaction = client.begin(name)
    first, _, second = messages_of(catalog, transaction)
    faster = other.begin(name)
    other.commit(CommitRequest(faster, Compact(), bodies(table, oldest_to(table, 4, 1))))
    request = CommitRequest(transaction, Compact(), bodies(table, [second, first]))
    if not step:
        done = commit_compaction(client, request)
    else:
        with pytest.raises(CompactionConflictError) as caught:
            client.commit(request)
        assert caught.value.conflicting == (0,)
        armed.arm(step, "kill")
        with ThreadPoolExecutor(1) as patient:
            answer = patient.submit(commit_compaction, client, request)
            # The first request of the two is refused, so that it reaches only one of the steps.
            assert armed.process.has_died()
            armed.start()
            try:
                done = answer.result(120)
            except CommitConflictError:
                assert step == "commit.stored"
                wait_until_nothing_is_left(catalog, name)
                assert levels(table) == {0: [0, 0], 1: [0, 4]}
                return
    assert done.conflicting == (0,)
    assert done.receipt is not None
    client.sweep(done.request)
    assert levels(table) == {0: [5], 1: [0, 4]}
    assert rows(catalog, name) == EXPECTED
    assert missing(table) == set()
    assert unreachable(table) == set()


@pytest.mark.parametrize(
    "step", ["manifest.written", "manifests.merged", "commit.prepared", "publish.linked"]
)
def test_in_process_compaction_commits_all_or_nothing_when_killed(
    tmp_path: Path, step: str
) -> None:
    catalog = create_table(tmp_path, SQL)
    client = committer_of(catalog)
    table = fill(client, catalog, TABLE)
    ended = subprocess.run(
        [sys.executable, "-m", "tests.faults.test_killed_compactions", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PAIMON_MAGICS_FAULTS": f"{step}=kill"},
        check=False,
    )
    assert ended.returncode == -9
    is_done = step == "publish.linked"
    assert levels(table) == ({0: [5], 1: [0, 5]} if is_done else {0: [0, 0], 1: [0, 0]})
    assert rows(catalog, TABLE) == EXPECTED
    assert missing(table) == set()
    transaction = client.begin(TABLE)
    request = CommitRequest(transaction, Compact(), bodies(table, oldest_to(table, 4, 1)[:1]))
    if not is_done:
        client.commit(request)
        assert levels(table) == {0: [0, 0], 1: [0, 4]}
    assert rows(catalog, TABLE) == EXPECTED
    assert missing(table) == set()


@pytest.mark.parametrize("catalog_options", ["disk"], indirect=True)
@pytest.mark.parametrize("meanwhile", ["nothing", "an append", "the same", "another compaction"])
def test_compaction_frozen_in_a_deposed_owner_happens_once(two: Two, meanwhile: str) -> None:
    catalog = create_table(two.options, SQL)
    table = fill(committer_of(catalog), catalog, TABLE)
    two.older.start(faults="commit.prepared=stop")
    client = two.client(catalog)
    request = planned(catalog, client.begin(TABLE))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.commit, request)
        two.stopped()
        two.newer.start()
        other = two.newer.client()
        match meanwhile:
            case "an append":
                append = other.begin(TABLE)
                messages = write(catalog, append, [{"k": 0, "v": "new"}])
                other.commit(CommitRequest(append, Append(), messages))
            case "the same":
                id = client.transactions.id_of(request.transaction)
                other.transactions.ended(request.transaction.commit_user, id)
                assert other.commit(request).commit_kind == "COMPACT"
            case "another compaction":
                faster = other.begin(TABLE, compacts=True)
                moved = bodies(table, oldest_to(table, 4))
                other.commit(CommitRequest(faster, Compact(), moved))
        assert two.go_on() == DEPOSED
        if meanwhile == "another compaction":
            with pytest.raises(CommitConflictError):
                asked.result(60)
            wait_until_nothing_is_left(catalog, TABLE)
            assert levels(table) == {0: [0, 4], 1: [0, 4]}
        else:
            receipt = asked.result(60)
            assert receipt.commit_kind == "COMPACT"
            assert client.commit(request) == receipt
    assert rows(catalog, TABLE) == EXPECTED
    assert missing(table) == set()


def compact_in_process(warehouse: str) -> None:
    """Compact the table in this process."""
    catalog = open_catalog(warehouse)
    client = committer_of(catalog)
    client.commit(planned(catalog, client.begin(TABLE)))


if __name__ == "__main__":
    compact_in_process(*sys.argv[1:])
