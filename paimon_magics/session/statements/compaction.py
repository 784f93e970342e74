"""CALL sys.compact: what it is about, what it would do, and its run."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from paimon_magics.coordinator.client.compacting import Compacted
from paimon_magics.coordinator.client.settling import Settled
from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    UnsupportedStatementError,
)
from paimon_magics.planning.compaction.inline import not_compacted
from paimon_magics.planning.compaction.sort_orders import SortOrder, sort_order
from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.statements.chosen_partitions import check_choice, chosen_partitions
from paimon_magics.session.writes.compaction import compact_table, planned_compaction
from paimon_magics.session.writes.postponed import postponed_rows, settle
from paimon_magics.statements.maintenance import CompactTable
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import Call
from paimon_magics.tables.compaction.append_plan import AppendCompaction, check_compactable
from paimon_magics.tables.compaction.planning import CompactionPlan, CompactionScope
from paimon_magics.tables.compaction.postponed import PostponedRows
from paimon_magics.tables.table import Table

__all__ = ["compaction_lines", "run_compaction"]

_STRATEGIES = ("full", "minor")


def run_compaction(
    connection: Connection, statement: Call, name: TableName, asked: CompactTable, position: int
) -> Outcome:
    """Run CALL sys.compact. It returns true, also where there was nothing to do, as Paimon's."""
    table, scope = _scope(connection, statement, name, asked, position)
    settled = settle(connection, table, scope, statement.text)
    done = compact_table(connection, table, scope, statement.text)
    rows = pa.table({"result": pa.array([True])})
    outcome = Outcome.of_rows(connection.spark, statement.text, "CALL", rows)
    outcome.table = str(table.name)
    outcome.message = _message(table, settled, done)
    outcome.notes = (*settled.notes, *done.notes)
    receipt = done.receipt or settled.receipt
    if receipt is not None:
        outcome.snapshot_id, outcome.commit_kind = receipt.snapshot_id, receipt.commit_kind
        outcome.files_written = settled.files_after + done.files_after
    return outcome


def compaction_lines(
    connection: Connection, statement: Call, name: TableName, asked: CompactTable, position: int
) -> list[str]:
    """What CALL sys.compact would do, a line for each decision. Nothing is written."""
    table, scope = _scope(connection, statement, name, asked, position)
    waiting = postponed_rows(connection, table, scope)
    lines = [] if waiting is None else [_waiting_line(waiting)]
    plan = planned_compaction(connection, table, scope)
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


def _scope(
    connection: Connection, statement: Call, name: TableName, asked: CompactTable, position: int
) -> tuple[Table, CompactionScope]:
    """The table with the options of the call, and what of it is compacted. Raises errors of ours
    with a position in the statement."""
    table = connection.load(name, statement.text, position)
    try:
        table = _with_options(table, asked)
        order = sort_order(table.schema, asked.order_strategy, asked.order_by)
        _check(table, asked, order)
        partitions = chosen_partitions(
            connection, table, asked.partitions, asked.where, asked.partition_idle_time
        )
    except PaimonMagicsError as error:
        raise located(error, statement.text, statement.procedure_position) from None
    is_clustered = table.schema.flag("clustering.incremental")
    strategy = (asked.compact_strategy or ("minor" if is_clustered else "full")).lower()
    # As in Paimon (`SparkPostponeCompactProcedure`), which has no full compaction of such tables.
    is_postponed = table.schema.bucket_mode == "POSTPONE_MODE"
    is_full = strategy == "full" and not is_postponed
    return table, CompactionScope(is_full, partitions, order=order, picks_again=not is_full)


def _check(table: Table, asked: CompactTable, order: SortOrder | None) -> None:
    """The checks of Paimon's `CompactProcedure`."""
    strategy = asked.compact_strategy
    if strategy is not None and strategy.lower() not in _STRATEGIES:
        raise InvalidValueError(
            f"The compact strategy only supports 'full' or 'minor', but '{strategy}' is "
            "configured.",
            hint="`full` compacts all files of a bucket, `minor` those that a writer would pick.",
        )
    check_choice(asked.partitions, asked.where)
    if order is not None and asked.partition_idle_time is not None:
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
            hint="Leave order_strategy and order_by out: the ids of the rows are counted by their "
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
            f"Compacting tables with {unfit} is not offered yet, and `{table.name}` is one.",
            hint="Compact it with another engine.",
        )
    if not table.schema.is_primary_key_table:
        check_compactable(table)


def _with_options(table: Table, asked: CompactTable) -> Table:
    """The table with dynamic options in front of its own."""
    if asked.options is None:
        return table
    given = {}
    for pair in filter(None, (part.strip() for part in asked.options.split(","))):
        key, equals, value = pair.partition("=")
        if not equals:
            raise InvalidValueError(
                f"`options` has '{pair}', which is no pair of an option and its value.",
                hint="Write options => 'num-levels=5,target-file-size=64 mb'.",
            )
        given[key.strip()] = value.strip()
    schema = table.schema
    merged = tuple({**dict(schema.options), **given}.items())
    return replace(table, schema=replace(schema, options=merged))
