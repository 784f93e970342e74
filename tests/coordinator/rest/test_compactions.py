"""Compactions of a table whose catalog, a REST one, publishes the snapshots itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.coordinator.client.compacting import commit_compaction
from paimon_magics.errors import CompactionConflictError
from paimon_magics.planning.commits.requests import (
    Append,
    CommitReceipt,
    CommitRequest,
    Compact,
    Transaction,
)
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.commit import commit
from paimon_magics.tables.commits.decoded_request import decoded
from paimon_magics.tables.stores.local_store import publish_local_file
from paimon_magics.tables.table import Table, publishes_itself
from tests.coordinator.rest_server import client_options, served
from tests.faults.appending import committer_of
from tests.tables.commits.compacting import bodies, live_names, rewrite, upgrade
from tests.tables.commits.test_commit import keys, rows_of, written
from tests.tables.manifest_files import TABLE, create
from tests.tables.reachability import missing, unreachable

SQL = (
    "CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2')"
)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with served({"warehouse": str(tmp_path)}) as url:
        create(tmp_path, SQL)
        yield Catalog.open(client_options(url, tmp_path))


def append(catalog: Catalog, *numbers: int) -> None:
    client = committer_of(catalog)
    table = catalog.load(TABLE)
    rows = [row for number in numbers for row in rows_of(table, number)]
    client.commit(CommitRequest(client.begin(TABLE), Append(), written(table, rows)))


def compact(table: Table, messages: Sequence[CommitMessage], user: str) -> CommitReceipt:
    asked = CommitRequest(
        Transaction(table.name, user, "pm-", 1), Compact(), bodies(table, messages)
    )
    return commit(decoded(table, asked), publish_local_file, is_first_run=True)


def test_a_compaction_is_committed_through_the_catalog(catalog: Catalog) -> None:
    append(catalog, *range(6))
    table = catalog.load(TABLE)
    assert publishes_itself(table)
    planned = rewrite(table, [row for k in range(6) for row in rows_of(table, k)])
    append(catalog, 3, 7)
    receipt = compact(table, planned, "c")
    assert (receipt.snapshot_id, receipt.commit_kind, receipt.delta_rows) == (3, "COMPACT", 0)
    assert keys(table) == [0, 1, 2, 3, 4, 5, 7]
    assert 5 in live_names(table).values() and 0 in live_names(table).values()


def test_writer_can_move_a_file_twice(catalog: Catalog) -> None:
    """Both commits add and delete the same names; only the levels differ."""
    append(catalog, *range(6))
    table = catalog.load(TABLE)
    compact(table, upgrade(table, 4), "same")
    receipt = compact(table, upgrade(table, 5), "same")
    assert receipt.snapshot_id == 3
    assert set(live_names(table).values()) == {5}


def test_compaction_leaves_out_conflicting_buckets(catalog: Catalog) -> None:
    append(catalog, *range(6))
    client, table = committer_of(catalog), catalog.load(TABLE)
    transaction = client.begin(TABLE)
    rows = [row for k in range(6) for row in rows_of(table, k)]
    planned = rewrite(table, rows, 5, transaction.file_prefix)
    compact(table, [m for m in upgrade(table, 4) if m.bucket == 1], "faster")
    request = CommitRequest(transaction, Compact(), bodies(table, planned))
    with pytest.raises(CompactionConflictError):
        client.commit(request)
    done = commit_compaction(client, request)
    assert [planned[at].bucket for at in done.conflicting] == [1]
    assert sorted(live_names(table).values()) == [4, 5]
    assert keys(table) == list(range(6))
    assert missing(table) == unreachable(table) == set()
