"""An overwrite against what others commit between its planning and its commit."""

from __future__ import annotations

import pyarrow as pa
import pytest

import paimon_magics
from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.errors import CommitConflictError
from paimon_magics.planning.commits.requests import (
    Append,
    Change,
    CommitRequest,
    OverwritePartitions,
    OverwriteTouched,
    Transaction,
)
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.writing.native_writer import native_table
from paimon_magics.tables.writing.write_spec import WriteSpec
from paimon_magics.tables.writing.writer import write_batches

pytestmark = pytest.mark.spark

TABLE = TableName("t", database="default")
PARTITION_A = OverwritePartitions(((("p", "a"),),))


@pytest.fixture
def committer(session: paimon_magics.Session) -> CoordinatorClient:
    session.run(
        "CREATE TABLE t (k INT, p STRING) PARTITIONED BY (p); "
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')"
    )
    return InProcessCommitter(session.catalog, session.settings)


def write_row(
    session: paimon_magics.Session, transaction: Transaction, k: int, p: str
) -> tuple[bytes, ...]:
    table = session.catalog.load(TABLE)
    schema = arrow_schema(table.schema)
    options = {"data-file.prefix": transaction.file_prefix + "data-"}
    task = WriteSpec(
        table=native_table(table, options),
        commit_user=transaction.commit_user,
        schema=schema.serialize().to_pybytes(),
        partition_keys=("p",),
        bucket_rule=None,
        overwrite=True,
        attempts_folder=transaction.attempts_folder,
    )
    batch = pa.RecordBatch.from_pylist([{"k": k, "p": p}], schema=schema)
    return write_batches(task, [batch]).messages


def rows(session: paimon_magics.Session) -> list[tuple[int, str]]:
    found = session.run("SELECT k, p FROM t ORDER BY k").to_arrow().to_pylist()
    return [(row["k"], row["p"]) for row in found]


@pytest.mark.parametrize(
    ("change", "newer", "expected"),
    [
        pytest.param(PARTITION_A, "INSERT INTO t VALUES (3, 'a')", None, id="same partition"),
        pytest.param(
            PARTITION_A,
            "INSERT INTO t VALUES (3, 'b')",
            [(2, "b"), (3, "b"), (9, "a")],
            id="another partition",
        ),
        pytest.param(
            OverwritePartitions(), "INSERT INTO t VALUES (3, 'c')", None, id="the whole table"
        ),
        pytest.param(
            OverwriteTouched(), "INSERT INTO t VALUES (3, 'a')", None, id="dynamic, touched"
        ),
        pytest.param(
            OverwriteTouched(),
            "INSERT INTO t VALUES (3, 'b')",
            [(2, "b"), (3, "b"), (9, "a")],
            id="dynamic, not touched",
        ),
        pytest.param(
            PARTITION_A,
            "INSERT OVERWRITE t PARTITION (p = 'a') VALUES (3)",
            None,
            id="an overwrite that added rows",
        ),
        pytest.param(
            PARTITION_A, "TRUNCATE TABLE t", [(9, "a")], id="a truncation, which added none"
        ),
        pytest.param(
            OverwritePartitions(PARTITION_A.specs, swallow_newer=True),
            "INSERT INTO t VALUES (3, 'a')",
            [(2, "b"), (9, "a")],
            id="last writer wins, as asked",
        ),
        pytest.param(
            Append(),
            "INSERT OVERWRITE t PARTITION (p = 'a') VALUES (3)",
            [(2, "b"), (3, "a"), (9, "a")],
            id="an append never fails",
        ),
    ],
)
def test_overwrite_conflicts_with_rows_added_after_its_base(
    session: paimon_magics.Session,
    committer: CoordinatorClient,
    change: Change,
    newer: str,
    expected: list[tuple[int, str]] | None,
) -> None:
    transaction = committer.begin(TABLE)
    messages = write_row(session, transaction, 9, "a")
    session.run(newer)
    before = rows(session)
    request = CommitRequest(transaction, change, messages)
    if expected is None:
        with pytest.raises(CommitConflictError, match=r"snapshot 2 .*added rows to") as raised:
            committer.commit(request)
        assert "Run the statement again" in raised.value.hint
        assert rows(session) == before
        assert committer.abort(transaction) == 1
    else:
        committer.commit(request)
        assert rows(session) == expected


def test_overwrite_swallows_newer_is_off_by_default_and_can_be_set(
    session: paimon_magics.Session,
) -> None:
    assert session.settings.overwrite_swallows_newer is False
    chosen = session.settings.with_changes({"overwrite_swallows_newer": True})
    assert chosen.overwrite_swallows_newer is True
