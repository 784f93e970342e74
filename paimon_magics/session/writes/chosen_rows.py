"""The rows that a DELETE or UPDATE of a table with keys may select, read by tasks that leave the
others out.

Where a condition compares a column with values, a task decodes files in Arrow and hands on the rows
that meet it; Spark evaluates the whole condition again. That takes half of the time of a raw
scan, and no more than it where many rows are left. Other conditions are Spark's alone: all rows
would go to it from Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from paimon_magics.planning.reads.local_reads import plain_splits, stored_bytes
from paimon_magics.planning.reads.predicates import ColumnPredicate, column_predicates
from paimon_magics.planning.reads.remainders import remainder_predicates
from paimon_magics.planning.reads.scans import ReadPlan, pack_splits
from paimon_magics.planning.reads.splits import PlainSplit, RawFiles
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.session.connection import Connection
from paimon_magics.session.parameters import bind
from paimon_magics.session.queries.held_snapshots import HeldSnapshots
from paimon_magics.session.queries.planned_reads import planned_read
from paimon_magics.session.queries.plans import local_limits, plan_of
from paimon_magics.session.queries.relations import Relation, relation_of
from paimon_magics.spark.reading import read_frame
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.statements.row_changes import RowChange
from paimon_magics.tables.reading.data_read import DataRead
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = ["chosen_rows"]

_SLOTS_PER_BUCKET_MAX = 4
"""A bucket is read by one task, so that the task may write it, too: with more slots than this for
each, Spark's scan, which divides files, is faster."""
_TASK_BYTES = 256 << 20
_MICROSECONDS = 6  # digits


def chosen_rows(
    connection: Connection,
    change: RowChange,
    parameters: Mapping[str, object],
    table: Table,
    snapshot_id: int,
) -> DataFrame | None:
    """All columns of the rows of a snapshot that the condition may select, each bucket from one
    task. None where a raw scan is the better reader, or rows have to be merged first.

    Raises what `planned_read` raises.
    """
    query = change.selection.query
    if len(query.references) != 1 or not snapshot_id or not _has_plain_columns(table.schema):
        return None
    (reference,) = query.references
    bound = bind(query.parameters, parameters, change.text, connection.zone)
    columns = table.schema.columns
    predicates = (
        *column_predicates(reference.filters, columns, bound),
        *remainder_predicates(reference.other_conditions, reference.alias, columns),
    )
    if all(one.operator == "is not null" for one in predicates):
        return None
    name = replace(table.name, system_table=None)
    relation = relation_of(connection, reference, change.text, bound, known=name)
    assert isinstance(relation, Relation)  # it is known to be a table
    held = HeldSnapshots(connection.committer)
    try:
        # The same read that is made of the statement's query where None is returned: it is kept.
        read = planned_read(connection, replace(relation, snapshot_id=snapshot_id), held).read
        plan = _plan(connection, read)
        if plan is None:
            return None
        held.planned.append(read.planned)
        held.plan = plan
        reader = _leaving_out(read, predicates).reader
        return held.noted(read_frame(connection.spark, plan, columns, reader))
    finally:
        held.release()


def _has_plain_columns(schema: TableSchema) -> bool:
    """Whether all columns come from Python to Spark without a detour. Nanoseconds in Arrow end in
    the year 2262."""
    return all(
        isinstance(one.type, AtomicType)
        and one.type.name not in ("VARIANT", "BLOB")
        and not (one.type.name.startswith("TIMESTAMP") and one.type.parameters[0] > _MICROSECONDS)
        for one in schema.columns
    )


def _plan(connection: Connection, read: DataRead) -> ReadPlan | None:
    """The tasks that read the files; None where these are not all Spark's to scan, or too few, or
    where Arrow reads their format no faster."""
    usual = plan_of(connection, read, local_limits(connection, read))
    formats = {scan.format for scan in usual.raw_scans}
    if formats != {"parquet"} or usual.tasks or read.stores != {"file"}:
        return None
    buckets = _by_bucket(read.planned.raw)
    if connection.slots > len(buckets) * _SLOTS_PER_BUCKET_MAX:
        return None
    tasks = max(connection.slots, stored_bytes(read.planned.raw, ()) // _TASK_BYTES)
    return ReadPlan((), pack_splits(buckets, tasks))


def _by_bucket(raw: Sequence[RawFiles]) -> list[PlainSplit]:
    """The files of each bucket, which has a folder of its own."""
    files = [file for one in raw for split in plain_splits(one) for file in split.files]
    files.sort(key=lambda file: file.path)
    grouped = groupby(files, key=lambda file: file.path.rpartition("/")[0])
    return [PlainSplit(tuple(found)) for _, found in grouped]


def _leaving_out(read: DataRead, predicates: Sequence[ColumnPredicate]) -> DataRead:
    """The read without rows that do not meet the predicates."""
    by_name = {one.name: one for one in read.fields}
    conditions = tuple((by_name[one.column], one) for one in predicates)
    files = replace(read.reader.files, conditions=conditions, leaves_out=True)
    return replace(read, reader=replace(read.reader, files=files))
