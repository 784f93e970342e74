"""Tables that are written and compacted in this process, without Spark."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from paimon_magics.planning.commits.requests import Append, CommitRequest, Compact, Transaction
from paimon_magics.planning.compaction.keyed_tables import Moment
from paimon_magics.planning.reads.views import ViewKind
from paimon_magics.tables.commits.commit import commit
from paimon_magics.tables.commits.decoded_request import decoded
from paimon_magics.tables.compaction.messages import compaction_messages, picked_again
from paimon_magics.tables.compaction.planning import (
    CompactionPlan,
    CompactionScope,
    plan_compaction,
)
from paimon_magics.tables.compaction.rewriting import rewrite_all
from paimon_magics.tables.reading.data_read import ReadRequest, plan_data_read
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.stores.local_store import publish_local_file
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import write_message

MOMENT = Moment(now_ms=1_000_000, hour=0)
_NUMBERS = itertools.count()

Rows = Sequence[Mapping[str, Any]]


def write(table: Table, rows: Rows, kinds: Sequence[int] | None = None) -> None:
    """Commit rows by pypaimon's native writer: one level-0 file in each bucket that gets rows."""
    from paimon_magics.tables.writing.native_writer import native_table

    writer = native_table(table).writer("somebody", overwrite=False)
    schema = arrow_schema(table.schema)
    batch = pa.RecordBatch.from_pylist(list(rows), schema=schema)
    if kinds is not None:
        batch = batch.append_column("_VALUE_KIND", pa.array(kinds, pa.int8()))
    writer.write(batch, None)
    messages = tuple(writer.messages())
    writer.close()
    transaction = Transaction(table.name, f"writer-{next(_NUMBERS)}", "pm-w-", 0)
    asked = CommitRequest(transaction, Append(), messages)
    commit(decoded(table, asked), publish_local_file, is_first_run=True)


def plan(table: Table, *, is_full: bool) -> CompactionPlan:
    """The plan of a compaction of the latest snapshot."""
    snapshot = latest_snapshot(table.paimon)
    return plan_compaction(table, snapshot, CompactionScope(is_full), MOMENT)


def compact(
    table: Table, *, is_full: bool, slots: int = 1, again: Mapping[str, str] | None = None
) -> CompactionPlan:
    """Compact the latest snapshot and commit; return the plan. The table has the options `again`
    when files are picked a second time."""
    planned = plan(table, is_full=is_full)
    if planned.is_empty:
        return planned
    prefix = f"pm-{next(_NUMBERS):032x}-"
    transaction = Transaction(table.name, f"compactor-{prefix}", prefix, planned.snapshot_id)

    def rewrite(plan: CompactionPlan) -> list[Any]:
        tasks = plan.tasks(slots)
        results = rewrite_all(plan.spec(transaction), tasks)
        return compaction_messages(plan, tasks, results, transaction)

    options = tuple({**dict(table.schema.options), **(again or {})}.items())
    other = replace(table, schema=replace(table.schema, options=options))
    first = rewrite(planned)
    later = replace(planned, table=other)
    messages, _ = picked_again(later, first, CompactionScope(is_full), rewrite)
    bodies = tuple(write_message(table.paimon, message) for message in messages)
    asked = CommitRequest(transaction, Compact(), bodies)
    commit(decoded(table, asked), publish_local_file, is_first_run=True)
    return planned


def rows_of(table: Table, kind: ViewKind = ViewKind.TABLE) -> list[tuple[Any, ...]]:
    """The rows of the latest snapshot in a view, sorted."""
    read = plan_data_read(table, ReadRequest(kind))
    found = [row for batch in read.rows() for row in batch.to_pylist()]
    return sorted((tuple(map(str, row.values())) for row in found), key=str)


def levels_of(table: Table) -> list[tuple[int, int, int]]:
    """(bucket, level, rows) of each live file, sorted."""
    from paimon_magics.tables.manifests.live_files import ManifestCache, live_files

    files = live_files(ManifestCache(table.paimon), latest_snapshot(table.paimon))
    names = ("bucket", "level", "row_count")
    return sorted(zip(*(files[name].to_pylist() for name in names), strict=True))
