"""The committer in the session's process: what may be called twice, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.errors import JobError, UnknownNameError, UnknownOutcomeError
from paimon_magics.planning.commits.requests import Append, CommitRequest, Waiting
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.writing.attempts import Attempt
from tests.faults.appending import TABLE, append, committer_of, open_catalog, written
from tests.session.evidence import files


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    opened = open_catalog(tmp_path / "warehouse")
    columns = (Column(0, "a", AtomicType("INT")), Column(1, "b", AtomicType("INT")))
    opened.create_table(TABLE, TableSchema(columns))
    return opened


@pytest.fixture
def committer(catalog: Catalog) -> InProcessCommitter:
    return committer_of(catalog)


def snapshots(catalog: Catalog) -> int:
    latest = catalog.load(TABLE).paimon.snapshot_manager().get_latest_snapshot()
    return latest.id if latest is not None else 0


def row_count(catalog: Catalog) -> int:
    builder = catalog.load(TABLE).paimon.new_read_builder()
    return builder.new_read().to_arrow(builder.new_scan().plan().splits()).num_rows


def test_writers_of_dynamic_buckets_take_turns(
    catalog: Catalog, committer: InProcessCommitter
) -> None:
    table = TableName("keyed", "default")
    columns = (Column(0, "k", AtomicType("INT", nullable=False)),)
    catalog.create_table(table, TableSchema(columns, primary_keys=("k",)))
    first = committer.begin(table, waits=pytest.fail)
    told: list[int] = []

    def interrupt(waiting: Waiting) -> None:
        raise KeyboardInterrupt

    def end(waiting: Waiting) -> None:
        told.append(waiting.in_front)
        committer.abort(first)

    with pytest.raises(KeyboardInterrupt):
        committer.begin(table, waits=interrupt)
    second = committer.begin(table, waits=end)
    assert told == [1], "who was interrupted has left the line"
    committer.commit(CommitRequest(second, Append()))
    committer.abort(committer.begin(table, waits=pytest.fail))


@pytest.mark.parametrize("others", [0, 1, 3])
def test_committing_a_request_again_finds_its_snapshot(
    catalog: Catalog, committer: InProcessCommitter, tmp_path: Path, others: int
) -> None:
    append(catalog, committer, [(0, 0)])
    request = written(catalog.load(TABLE), committer.begin(TABLE), [(1, 1), (1, 2)])
    first = committer.commit(request)
    assert (first.snapshot_id, first.commit_kind, first.delta_rows) == (2, "APPEND", 2)
    for number in range(others):
        append(catalog, committer, [(2, number)])
    before = files(tmp_path)
    assert committer.commit(request) == first
    assert committer_of(open_catalog(tmp_path / "warehouse")).commit(request) == first
    assert files(tmp_path) == before
    assert (snapshots(catalog), row_count(catalog)) == (2 + others, 3 + others)


def test_an_append_without_files_makes_no_snapshot(
    catalog: Catalog, committer: InProcessCommitter, tmp_path: Path
) -> None:
    before = files(tmp_path)
    receipt = committer.commit(CommitRequest(committer.begin(TABLE), Append()))
    assert (receipt.snapshot_id, receipt.commit_kind) == (None, None)
    assert files(tmp_path).keys() == before.keys()


def test_abort_removes_the_files_of_its_transaction_alone(
    catalog: Catalog, committer: InProcessCommitter, tmp_path: Path
) -> None:
    append(catalog, committer, [(0, 0)])
    before = files(tmp_path)
    transaction = committer.begin(TABLE)
    written(catalog.load(TABLE), transaction, [(1, 1)])
    other = written(catalog.load(TABLE), committer.begin(TABLE), [(2, 2)])
    assert len(files(tmp_path)) > len(before)
    assert committer.abort(transaction) == 1
    assert committer.abort(transaction) == 0
    assert committer.commit(other).snapshot_id == 2
    assert row_count(catalog) == 2


def test_abort_leaves_no_files_behind(
    catalog: Catalog, committer: InProcessCommitter, tmp_path: Path
) -> None:
    before = files(tmp_path)
    transaction = committer.begin(TABLE)
    written(catalog.load(TABLE), transaction, [(1, 1)])
    committer.abort(transaction)
    assert files(tmp_path).keys() == before.keys()


def test_a_committed_transaction_can_not_be_aborted(
    catalog: Catalog, committer: InProcessCommitter, tmp_path: Path
) -> None:
    request = written(catalog.load(TABLE), committer.begin(TABLE), [(1, 1)])
    committer.commit(request)
    before = files(tmp_path)
    with pytest.raises(UnknownOutcomeError, match="its commit is in the table"):
        committer.abort(request.transaction)
    assert files(tmp_path) == before


def test_ended_transaction_refuses_writes(
    catalog: Catalog, committer: InProcessCommitter, tmp_path: Path
) -> None:
    before = files(tmp_path)
    transaction = committer.begin(TABLE)
    committer.abort(transaction)
    with pytest.raises(JobError, match="has ended"):
        written(catalog.load(TABLE), transaction, [(1, 1)])
    assert files(tmp_path).keys() == before.keys()


def test_commit_removes_files_of_lost_attempts_only(
    catalog: Catalog, committer: InProcessCommitter, tmp_path: Path
) -> None:
    table, transaction = catalog.load(TABLE), committer.begin(TABLE)
    written(table, transaction, [(9, 9)])
    request = written(table, transaction, [(1, 1)])
    assert len(list(tmp_path.rglob("*.parquet"))) == 2
    committer.commit(request)
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    assert committer.sweep(request) == 0
    assert row_count(catalog) == 1


def test_sweep_removes_files_of_attempts_ended_after_the_commit(
    catalog: Catalog, committer: InProcessCommitter, tmp_path: Path
) -> None:
    table, transaction = catalog.load(TABLE), committer.begin(TABLE)
    assert transaction.attempts_folder is not None
    slow = Attempt(table.store, transaction.attempts_folder)
    slow.note(pa.RecordBatch.from_pydict({}), pa.array([0]))
    request = written(table, transaction, [(1, 1)])
    committer.commit(request)
    late = Path(table.location) / "bucket-0" / f"{transaction.file_prefix}data-{slow.id}-0.parquet"
    late.write_bytes(b"written before it was killed")
    slow.end(clean=False)
    assert committer.sweep(request) == 1
    assert not late.exists()
    assert row_count(catalog) == 1
    assert not (Path(table.location) / ".attempts").exists()


def test_an_expired_snapshot_leaves_the_outcome_unknown(
    catalog: Catalog, committer: InProcessCommitter, tmp_path: Path
) -> None:
    request = written(catalog.load(TABLE), committer.begin(TABLE), [(1, 1)])
    committer.commit(request)
    append(catalog, committer, [(2, 2)])
    (tmp_path / "warehouse" / "default.db" / "t" / "snapshot" / "snapshot-1").unlink()
    with pytest.raises(UnknownOutcomeError, match="expired"):
        committer.commit(request)
    with pytest.raises(UnknownOutcomeError, match="expired"):
        committer.abort(request.transaction)


def test_properties_go_into_the_snapshot(catalog: Catalog, committer: InProcessCommitter) -> None:
    request = written(catalog.load(TABLE), committer.begin(TABLE), [(1, 1)])
    committer.commit(replace(request, properties=(("label", "Monday's load"),)))
    snapshot = catalog.load(TABLE).paimon.snapshot_manager().get_latest_snapshot()
    assert snapshot.properties["label"] == "Monday's load"


def test_transactions_never_share_a_user_or_file_prefix(committer: InProcessCommitter) -> None:
    first, second = committer.begin(TABLE), committer.begin(TABLE)
    assert first.commit_user != second.commit_user
    assert not first.file_prefix.startswith(second.file_prefix)
    assert not second.file_prefix.startswith(first.file_prefix)


def test_begin_rejects_an_unknown_table(committer: InProcessCommitter) -> None:
    with pytest.raises(UnknownNameError, match="nowhere"):
        committer.begin(TableName("nowhere", "default"))
