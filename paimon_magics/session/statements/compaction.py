"""CALL sys.compact and sys.rescale: their tables and partitions, dry runs, and runs."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.coordinator.client.compacting import Compacted
from paimon_magics.coordinator.client.postponed_buckets import Settled
from paimon_magics.errors import InvalidValueError, UnknownNameError, UnsupportedStatementError
from paimon_magics.planning.commits.requests import OverwriteTouched
from paimon_magics.planning.compaction.schedule import not_compacted
from paimon_magics.planning.compaction.sort_orders import SortOrder, sort_order
from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.planning.options.values import duration_ms, option_pairs
from paimon_magics.planning.schemas.format_rules import fits_spark
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.writes.inserts import check_writable
from paimon_magics.session.inserts.insert import insert_of_frame, run_prepared
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.queries.table_frames import frame_of_state
from paimon_magics.session.scope import StatementScope, errors_located
from paimon_magics.session.writes.compaction import (
    compact_table,
    planned_compaction,
    postponed_rows,
    settle,
)
from paimon_magics.session.writes.prepare import PreparedWrite
from paimon_magics.spark.queries import rows_where
from paimon_magics.statements.clauses.names import table_text
from paimon_magics.statements.maintenance import CompactTable, RescaleBuckets
from paimon_magics.statements.statement import Insert, TableName
from paimon_magics.statements.version_changes import Call
from paimon_magics.tables.compaction.append_plan import AppendCompaction, check_compactable
from paimon_magics.tables.compaction.planning import CompactionPlan, CompactionScope
from paimon_magics.tables.compaction.postponed import PostponedRows
from paimon_magics.tables.compaction.scopes import (
    StoredPartitions,
    partitions_of_specs,
    stored_partitions,
)
from paimon_magics.tables.manifests.live_files import live_files
from paimon_magics.tables.snapshots.latest import latest_snapshot, state_of
from paimon_magics.tables.splits.stored_files import files_of_partitions
from paimon_magics.tables.table import Table

_STRATEGIES = ("full", "minor")


_BUCKETS_MAX = 32_767  # the most that Paimon can number
_FIXED = ("HASH_FIXED", "POSTPONE_MODE")


@dataclass(frozen=True)
class ProcedureCall:
    """CALL of a procedure on the table `name`, which is named at `position` of the statement."""

    scope: StatementScope
    statement: Call
    name: TableName
    position: int

    @property
    def text(self) -> str:
        """The statement's text."""
        return self.statement.text

    def load(self) -> Table:
        """Load the table; errors point at its name."""
        return self.scope.load(self.name, self.text, self.position)

    def errors_located(self) -> AbstractContextManager[None]:
        """Let errors of the body point at the procedure."""
        return errors_located(self.text, self.statement.procedure_position)

    def outcome(self, table: Table, **columns: pa.Array) -> Outcome:
        """The outcome of the call, with one row; by default the row is true."""
        rows = pa.table(columns or {"result": pa.array([True])})
        outcome = Outcome.of_rows(self.scope.spark, self.text, "CALL", rows)
        outcome.table = str(table.name)
        return outcome


def run_compaction(call: ProcedureCall, request: CompactTable) -> Outcome:
    """Run CALL sys.compact. It returns true, also where there was nothing to do, as Paimon's."""
    table, extent = _extent(call, request)
    settled = settle(call.scope, table, extent, call.text)
    done = compact_table(call.scope, table, extent, call.text)
    outcome = call.outcome(table)
    outcome.message = _message(table, settled, done)
    outcome.notes = (*settled.notes, *done.notes)
    receipt = done.receipt or settled.receipt
    if receipt is not None:
        outcome.snapshot_id, outcome.commit_kind = receipt.snapshot_id, receipt.commit_kind
        outcome.files_written = settled.files_after + done.files_after
    return outcome


def compaction_lines(call: ProcedureCall, request: CompactTable) -> list[str]:
    """What CALL sys.compact would do, a line for each decision. Nothing is written."""
    table, extent = _extent(call, request)
    waiting = postponed_rows(call.scope, table, extent)
    lines = [] if waiting is None else [_waiting_line(waiting)]
    plan = planned_compaction(call.scope, table, extent)
    if plan is None:
        return lines or [f"{table.name}: nothing to compact."]
    return [
        *lines,
        *(_append_lines(plan) if isinstance(plan, AppendCompaction) else _plan_lines(plan)),
    ]


def _waiting_line(waiting: PostponedRows) -> str:
    return (
        f"{waiting.table.name}: would give {count_text(waiting.rows, 'row')} of "
        f"{count_text(waiting.files.num_rows, 'file')} ({size_text(waiting.size_bytes)}) that wait "
        "their buckets, and compact these then."
    )


def _append_lines(plan: AppendCompaction) -> list[str]:
    files = sum(len(unit.files) for unit in plan.units)
    groups = count_text(len(plan.units), "group")
    order = plan.order
    how = "" if order is None else f", sorted by {', '.join(order.columns)} ({order.strategy})"
    return [
        f"{plan.table.name}: would compact {groups} of files of snapshot {plan.snapshot_id}: "
        f"{count_text(files, 'file')} ({size_text(plan.rewritten_bytes)}) rewritten, each group "
        f"into files of the target size{how}."
    ]


def _plan_lines(plan: CompactionPlan) -> list[str]:
    rewritten = sum(len(step.files) for unit in plan.units for step in unit.rewrites)
    upgraded = sum(len(unit.upgrades) for unit in plan.units)
    buckets = count_text(len(plan.units), "bucket")
    lines = [
        f"{plan.table.name}: would compact {buckets} of snapshot {plan.snapshot_id}: "
        f"{count_text(rewritten, 'file')} ({size_text(plan.rewritten_bytes)}) rewritten, "
        f"{count_text(upgraded, 'file')} moved to another level as they are."
    ]
    by_level: dict[int, int] = {}
    for unit in plan.units:
        by_level[unit.pick.output_level] = by_level.get(unit.pick.output_level, 0) + 1
    for level, count in sorted(by_level.items()):
        lines.append(f"{count_text(count, 'bucket')}: into level {level}.")
    return lines


def _message(table: Table, settled: Settled, done: Compacted) -> str:
    waited = ""
    if settled.receipt is not None:
        waited = (
            f"`{table.name}`: {count_text(settled.rows, 'row')} of "
            f"{count_text(settled.files_before, 'file')} got their buckets (snapshot "
            f"{settled.receipt.snapshot_id})."
        )
    if done.receipt is None:
        return waited or f"`{table.name}`: nothing to compact."
    before, after = count_text(done.files_before, "file"), count_text(done.files_after, "file")
    return f"{waited} ".lstrip() + (
        f"`{table.name}` compacted: {before} became {after}, {size_text(done.rewritten_bytes)} "
        f"rewritten (snapshot {done.receipt.snapshot_id})."
    )


def _extent(call: ProcedureCall, request: CompactTable) -> tuple[Table, CompactionScope]:
    """The table with the options of the call, and what of it is compacted. Raises errors of ours
    with a position in the statement."""
    table = call.load()
    with call.errors_located():
        table = _with_options(table, request)
        order = sort_order(table.schema, request.order_strategy, request.order_by)
        _check(table, request, order)
        partitions = chosen_partitions(
            call.scope, table, request.partitions, request.where, request.partition_idle_time
        )
    is_clustered = table.schema.flag("clustering.incremental")
    strategy = (request.compact_strategy or ("minor" if is_clustered else "full")).lower()
    # As in Paimon (`SparkPostponeCompactProcedure`), which has no full compaction of such tables.
    is_postponed = table.schema.bucket_mode == "POSTPONE_MODE"
    is_full = strategy == "full" and not is_postponed
    return table, CompactionScope(is_full, partitions, order=order, picks_again=not is_full)


def _check(table: Table, request: CompactTable, order: SortOrder | None) -> None:
    """The checks of Paimon's `CompactProcedure`."""
    strategy = request.compact_strategy
    if strategy is not None and strategy.lower() not in _STRATEGIES:
        raise InvalidValueError(
            f"The compact strategy only supports 'full' or 'minor', but '{strategy}' is "
            "configured.",
            hint="`full` compacts all files of a bucket, `minor` those that a writer would pick.",
        )
    _check_choice(request.partitions, request.where)
    if order is not None and request.partition_idle_time is not None:
        raise InvalidValueError(
            "sort compact do not support 'partition_idle_time'.",
            hint="Name the partitions with `partitions` or `where`.",
        )
    if order is not None and table.schema.bucket_mode != "BUCKET_UNAWARE":
        raise UnsupportedStatementError(
            f"Only append tables without buckets are sorted by sys.compact; `{table.name}` is "
            "none.",
            hint="Leave order_strategy out: rows of a primary-key table are sorted by their key, "
            "those of a bucket keep their order.",
        )
    if order is not None and table.schema.data_evolution_enabled:
        raise UnsupportedStatementError(
            "Data Evolution table cannot be sorted!",
            hint="Leave order_strategy and order_by out: the ids of the rows follow from their "
            "places in a file.",
        )
    if order is not None and table.schema.flag("clustering.incremental"):
        raise InvalidValueError(
            f"`{table.name}` has enabled incremental clustering, and sort compact is not supported "
            "for such tables.",
            hint="Leave order_strategy and order_by out: it is sorted by 'clustering.columns'.",
        )
    unfit = not_compacted(table.schema)
    if unfit is not None:
        raise UnsupportedStatementError(
            f"`{table.name}` has {unfit}: compacting such tables is not offered yet.",
            hint="Compact it with another engine.",
        )
    if not table.schema.is_primary_key_table:
        check_compactable(table)


def _with_options(table: Table, request: CompactTable) -> Table:
    """The table with dynamic options in front of its own."""
    if request.options is None:
        return table
    dynamic = dict(option_pairs(request.options, "num-levels=5,target-file-size=64 mb"))
    schema = table.schema
    merged = tuple({**dict(schema.options), **dynamic}.items())
    return replace(table, schema=replace(schema, options=merged))


# The partitions that a procedure is limited to, by its parameters.
#
# Source: `SparkProcedureUtils`.


def _check_choice(partitions: str | None, where: str | None) -> None:
    """Raise InvalidValueError if partitions are chosen in two ways."""
    if partitions is not None and where is not None:
        raise InvalidValueError(
            "partitions and where cannot be used together.", hint="Leave one of them out."
        )


def chosen_partitions(
    scope: StatementScope,
    table: Table,
    partitions: str | None,
    where: str | None,
    partition_idle_time: str | None = None,
) -> frozenset[bytes] | None:
    """The partitions with files that are chosen, serialized; None for all.

    Raises UnknownNameError for a column that is not a partition column, InvalidValueError for a
    text that is not a value of its column.
    """
    if partitions is None and where is None and partition_idle_time is None:
        return None
    stored = stored_partitions(table)
    matches = np.ones(len(stored.encoded), dtype=bool)
    if partitions is not None:
        matches &= partitions_of_specs(table, stored, partitions)
    if where is not None:
        matches &= _matching(scope, table, stored, where)
    if partition_idle_time is not None:
        idle_ms = duration_ms("partition_idle_time", partition_idle_time)
        matches &= stored.written_ms < time.time() * 1000 - idle_ms
    return frozenset(pc.filter(stored.encoded, pa.array(matches)).to_pylist())


def _matching(scope: StatementScope, table: Table, stored: StoredPartitions, where: str) -> Any:
    """Which partitions meet a condition, by Spark."""
    keys = table.schema.partition_keys
    if not keys:
        raise UnknownNameError(
            f"`{table.name}` has no partitions for `where` to choose from.",
            hint="Leave `where` out.",
        )
    rows = pa.table(stored.values, names=list(keys))
    matches = np.zeros(len(stored.encoded), dtype=bool)
    matches[rows_where(scope.spark, rows, where)] = True
    return matches


# CALL sys.rescale: partitions are written anew with another number of buckets.
#
# As Paimon's `RescaleProcedure`: the rows of one snapshot are read and overwrite their partitions.
# Where others changed rows of these meanwhile, the newer snapshot is read and written instead, so
# that their changes are not lost. This merges rows; there is no changelog of it.


@dataclass(frozen=True)
class _Rescaling:
    """What is rewritten: `files` (MANIFEST_ENTRIES) of `partitions` (None for all) at
    `snapshot`, pypaimon's. `table` has the new number of buckets in its options."""

    table: Table
    snapshot: Any
    partitions: frozenset[bytes] | None
    files: pa.Table


def run_rescale(call: ProcedureCall, request: RescaleBuckets) -> Outcome:
    """Run CALL sys.rescale. It returns true, also where there was nothing to do, as Paimon's."""
    rescaling = _planned(call, request)
    table = rescaling.table
    outcome = call.outcome(table)
    if not rescaling.files.num_rows:
        outcome.message = f"`{table.name}`: no files to rescale."
        return outcome
    prepared = _prepared(call, request, rescaling)
    done = run_prepared(call.scope, _as_insert(call.statement, table.name), prepared)
    outcome.snapshot_id, outcome.commit_kind = done.snapshot_id, done.commit_kind
    outcome.rows_written, outcome.files_written = done.rows_written, done.files_written
    outcome.bytes_written = done.bytes_written
    outcome.notes = (*done.notes, *_notes(rescaling))
    buckets = count_text(table.schema.bucket, "bucket")
    outcome.message = (
        f"`{table.name}`: {count_text(done.rows_written or 0, 'row')} written into {buckets} of "
        f"{_partitions_text(rescaling)} (snapshot {done.snapshot_id})."
    )
    return outcome


def rescale_lines(call: ProcedureCall, request: RescaleBuckets) -> list[str]:
    """What CALL sys.rescale would do."""
    rescaling = _planned(call, request)
    table, files = rescaling.table, rescaling.files
    if not files.num_rows:
        return [f"{table.name}: no files to rescale."]
    before = sorted({count for count in files["total_buckets"].to_pylist()})
    size_bytes = pc.sum(files["file_size"]).as_py()
    return [
        f"{table.name}: would write {_partitions_text(rescaling)} of snapshot "
        f"{rescaling.snapshot.id} ({count_text(files.num_rows, 'file')}, {size_text(size_bytes)}) "
        f"from {' or '.join(map(str, before))} into {count_text(table.schema.bucket, 'bucket')}."
    ]


def _planned(call: ProcedureCall, request: RescaleBuckets) -> _Rescaling:
    """The checks of Paimon's `RescaleProcedure`, and of what can't be written here."""
    table = call.load()
    with call.errors_located():
        _check_choice(request.partitions, request.where)
        table = replace(table, schema=_rescaled(table, request.bucket_num))
        check_writable(table.name, table.schema)
        snapshot = latest_snapshot(table.paimon)
        if snapshot is None:
            raise UnknownNameError(
                f"`{table.name}` has no snapshot, no need to rescale.",
                hint="Set its option 'bucket' instead: new rows will follow it.",
            )
        partitions = chosen_partitions(call.scope, table, request.partitions, request.where)
        cache = call.scope.manifests(table)
        files = files_of_partitions(live_files(cache, snapshot), partitions)
        if pc.any(pc.less(files["bucket"], 0)).as_py():
            raise UnsupportedStatementError(
                f"Rows of `{table.name}` wait for their buckets, and would be lost.",
                hint=f"Move them into buckets first: CALL sys.compact('{table_text(table.name)}').",
            )
        return _Rescaling(table, snapshot, partitions, files)


def _rescaled(table: Table, bucket_num: int | None) -> TableSchema:
    """The table's schema with the number of buckets that the call asks for."""
    schema = table.schema
    if schema.bucket_mode not in _FIXED:
        kind = "has no buckets" if schema.bucket_mode == "BUCKET_UNAWARE" else "has dynamic buckets"
        raise UnsupportedStatementError(
            f"`{table.name}` {kind}: only a fixed number of buckets can be changed.",
            hint="Dynamic buckets grow by 'dynamic-bucket.target-row-num'. Rows of a table without "
            "buckets are read by as many tasks as fit.",
        )
    if not fits_spark(schema):
        raise UnsupportedStatementError(
            f"`{table.name}` has timestamps finer than microseconds. Rewriting would cut them.",
            hint="Rescale it with an engine that keeps them, such as Flink.",
        )
    if bucket_num is None and schema.bucket_mode == "POSTPONE_MODE":
        raise InvalidValueError(
            f"`{table.name}` has postponed buckets: rescaling needs their number.",
            hint="Add bucket_num => 8.",
        )
    count = schema.bucket if bucket_num is None else bucket_num
    if not 0 < count <= _BUCKETS_MAX:
        raise InvalidValueError(
            f"`bucket_num` can't be {count}.",
            hint=f"A partition has 1 to {_BUCKETS_MAX:,} buckets.",
        )
    return replace(schema, options=tuple({**dict(schema.options), "bucket": str(count)}.items()))


def _prepared(call: ProcedureCall, request: RescaleBuckets, rescaling: _Rescaling) -> PreparedWrite:
    table, snapshot = rescaling.table, rescaling.snapshot
    frame = frame_of_state(call.scope, table, snapshot, rescaling.partitions)

    def again() -> PreparedWrite:
        call.scope.tables.renew()
        located = replace(call, position=call.statement.procedure_position)
        return _prepared(call, request, _planned(located, request))

    change = OverwriteTouched(only_unchanged=True)
    base, name = state_of(snapshot)
    return PreparedWrite(table, frame, change, base, again, base_manifest_list=name)


def _as_insert(statement: Call, name: TableName) -> Insert:
    """The statement that writes the same; the text of its source is never read."""
    return replace(insert_of_frame(name, overwrite=True), text=statement.text)


def _notes(rescaling: _Rescaling) -> tuple[str, ...]:
    table, count = rescaling.table, rescaling.table.schema.bucket
    if table.paimon.total_buckets in (count, -2):
        return ()
    return (
        f"Rows for these partitions are refused until the table's option matches: ALTER TABLE "
        f"{table_text(table.name)} SET TBLPROPERTIES ('bucket' = '{count}').",
    )


def _partitions_text(rescaling: _Rescaling) -> str:
    if not rescaling.table.schema.is_partitioned:
        return "the table"
    return count_text(len(pc.unique(rescaling.files["partition"])), "partition")
