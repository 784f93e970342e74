"""Two attempts of the same task at the same time, as Spark's speculation starts them, and one that
comes when the statement has ended: one attempt counts, and the files of the others go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import JobError
from paimon_magics.planning.commits.requests import Append, CommitRequest, Compact, Transaction
from paimon_magics.planning.compaction.sort_orders import SortOrder
from paimon_magics.settings import Settings
from paimon_magics.tables.compaction.append_plan import AppendCompaction
from paimon_magics.tables.compaction.messages import compaction_messages
from paimon_magics.tables.compaction.planning import CompactionScope
from paimon_magics.tables.compaction.plans import planned
from paimon_magics.tables.compaction.rewriting import rewrite_all
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.row_changes.selected_rows import FILE_COLUMN, PLACE_COLUMN
from paimon_magics.tables.row_changes.table_changes import plan_table_change
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.writing.commit_messages import write_message
from tests.sampling import only_in_soak
from tests.tables.compaction.append_compactions import Lake
from tests.tables.manifest_files import TABLE
from tests.tables.reachability import missing, unreachable

KEYED = "'primary-key' = 'k', 'bucket' = '2', "
COMPACTED = {
    "keyed": KEYED + "'changelog-producer' = 'none'",
    "looked up": KEYED + "'changelog-producer' = 'lookup'",
    "marked": KEYED + "'deletion-vectors.enabled' = 'true'",
    "first rows": KEYED + "'merge-engine' = 'first-row'",
    "packed": "'compaction.min.file-num' = '2'",
    "with vectors": "'compaction.min.file-num' = '2', 'deletion-vectors.enabled' = 'true'",
    "with row ids": "'compaction.min.file-num' = '2', 'row-tracking.enabled' = 'true'",
    "columns": "'compaction.min.file-num' = '2', 'row-tracking.enabled' = 'true', "
    "'data-evolution.enabled' = 'true'",
    "sorted": "'write-only' = 'true'",
}
CHANGED = {
    "files": "'write-only' = 'true'",
    "vectors": "'deletion-vectors.enabled' = 'true'",
    "files with row ids": "'row-tracking.enabled' = 'true'",
    "columns": "'row-tracking.enabled' = 'true', 'data-evolution.enabled' = 'true'",
    "vectors and row ids": "'row-tracking.enabled' = 'true', 'deletion-vectors.enabled' = 'true'",
}
IN_SOAK = (
    "keyed",
    "marked",
    "first rows",
    "with vectors",
    "sorted",
    "vectors",
    "files with row ids",
)
Attempt = Callable[[], Sequence[Any]]


def lake_of(folder: Path, options: str) -> Lake:
    lake = Lake.of(folder, f"CREATE TABLE t (k INT NOT NULL, v STRING) TBLPROPERTIES ({options})")
    for first in range(0, 30, 10):
        lake.append(*((k, f"v{first}") for k in range(first, first + 15)))
    return lake


@pytest.mark.parametrize("name", only_in_soak([*COMPACTED], IN_SOAK))
def test_only_a_single_attempt_of_a_compaction_counts(tmp_path: Path, name: str) -> None:
    lake = lake_of(tmp_path, COMPACTED[name])
    order = SortOrder("order", ("k",)) if name == "sorted" else None
    scope = CompactionScope(is_full=True, order=order)
    table = lake.table
    plan = planned(table, scope, ManifestCache(table.paimon))
    assert plan is not None
    transaction = lake.committer.begin(TABLE)
    before = sorted(lake.rows())

    def messages(results: Sequence[Any]) -> list[CommitMessage]:
        if isinstance(plan, AppendCompaction):
            return plan.messages(results, transaction)
        return compaction_messages(plan, tasks, results, transaction)

    if isinstance(plan, AppendCompaction):
        rewrite = plan.rewrite(transaction, slots=2, settings=Settings())
        units = plan.units
        attempt: Attempt = lambda: [rewrite(unit) for unit in units]  # noqa: E731
    else:
        tasks, spec = plan.tasks(2), plan.spec(transaction)
        attempt = lambda: rewrite_all(spec, tasks)  # noqa: E731
    commit_one(lake, transaction, attempt, messages, Compact())
    assert (sorted(lake.rows()) == before) or name in ("first rows", "marked")
    assert len({k for k, _ in lake.rows()}) == 35


@pytest.mark.parametrize("name", only_in_soak([*CHANGED], IN_SOAK))
def test_only_a_single_attempt_of_a_change_counts(tmp_path: Path, name: str) -> None:
    lake = lake_of(tmp_path, CHANGED[name])
    table = lake.table
    snapshot = latest_snapshot(table.paimon)
    plan = plan_table_change(table, snapshot, (), ManifestCache(table.paimon))
    transaction = lake.committer.begin(TABLE)
    schema = arrow_schema(table.schema)
    changes = plan.changes(transaction, schema.names, slots=1, settings=Settings())
    rows = pa.table({"k": [0, 1], "v": ["new", "new"]}, schema=schema)
    rows = rows.append_column("_ROW_ID", pa.array([0, 1], pa.int64()))
    rows = rows.append_column(FILE_COLUMN, pa.array([0, 0], pa.int32()))
    rows = rows.append_column(PLACE_COLUMN, pa.array([0, 1], pa.int64()))

    def attempt() -> Sequence[Any]:
        return list(changes(rows.to_batches(), lambda rows, size_bytes: None))

    def messages(results: Sequence[Any]) -> list[CommitMessage]:
        return plan.messages(results, transaction, schema.names)

    before = lake.rows()
    commit_one(lake, transaction, attempt, messages, Append())
    kept = [row for row in before if row not in ((0, "v0"), (1, "v0"))]
    assert sorted(lake.rows()) == sorted([*kept, (0, "new"), (1, "new")])


def commit_one(
    lake: Lake,
    transaction: Transaction,
    attempt: Attempt,
    messages: Callable[[Sequence[Any]], list[CommitMessage]],
    change: Append | Compact,
) -> None:
    """Run two attempts, commit what one wrote, and let a third begin after that."""
    table = lake.table
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(attempt), pool.submit(attempt)
        counts, _ = first.result(), second.result()
    bodies = tuple(write_message(table.paimon, message) for message in messages(counts))
    request = CommitRequest(transaction, change, bodies)
    lake.committer.commit(request)
    lake.committer.sweep(request)
    assert unreachable(table) == missing(table) == set()
    with pytest.raises(JobError, match="has ended"):
        attempt()
    assert unreachable(table) == missing(table) == set()
