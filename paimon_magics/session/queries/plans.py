"""How a planned read is run: which files Spark scans itself, and which splits tasks read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from paimon_magics.planning.reads.local_reads import LocalLimits, fixes_keys
from paimon_magics.planning.reads.scans import ReadPlan, plan_local, plan_read
from paimon_magics.planning.reads.views import shown_columns
from paimon_magics.session.connection import Connection
from paimon_magics.session.planned_work import Reads, note_reads
from paimon_magics.spark.reading import read_frame
from paimon_magics.spark.rows import frame_of_batch
from paimon_magics.spark.stores import spelled
from paimon_magics.statements.data_types import contains_type
from paimon_magics.tables.reading.data_read import DataRead
from paimon_magics.tables.reading.few_rows import few_rows

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = ["frame_of_read", "local_limits", "plan_of"]

_FILES_MAX, _REMOTE_FILES_MAX = 32, 8
"""Files that one process opens one after the other: on a disk in about a millisecond each, in
another store in tens of them, where several tasks would wait at the same time."""


def plan_of(connection: Connection, read: DataRead, limits: LocalLimits | None = None) -> ReadPlan:
    """The plan of a read in the connection's Spark, or within `limits` in this process."""
    planned = read.planned
    local = None if limits is None else plan_local(limits, planned.raw, planned.splits)
    if local is not None:
        return local
    shown = set(read.reader.columns)
    paths = (path for files in planned.raw for path in files.paths)
    schemes = {} if read.stores == {"file"} else connection.opened.schemes(paths)
    plan = plan_read(
        [column for column in read.schema.columns if column.name in shown],
        {
            files.schema_id: read.schema.columns
            if files.schema_id == read.schema.schema_id
            else read.schemas.columns(files.schema_id)
            for files in read.planned.raw
        },
        read.planned.raw,
        read.planned.splits,
        changed=read.changed_parts,
        slots=connection.slots,
        spark_opens_store=schemes is not None,
    )
    if not schemes or all(scheme == stored for (stored, _), scheme in schemes.items()):
        return plan
    scans = tuple(
        replace(scan, paths=tuple(spelled(path, schemes) for path in scan.paths))
        for scan in plan.raw_scans
    )
    return replace(plan, raw_scans=scans)


def local_limits(
    connection: Connection, read: DataRead, first_rows: int | None = None
) -> LocalLimits | None:
    """Up to where this process reads the rows of a read itself; None where Spark has to. A VARIANT
    has no form outside of Spark's tasks. `first_rows`: so many are wanted, whichever."""
    settings = connection.settings
    shown = set(read.reader.columns)
    if any(
        column.name in shown and contains_type(column.type, "VARIANT")
        for column in read.schema.columns
    ):
        return None
    return LocalLimits(
        settings.local_rows_max,
        settings.local_bytes_max,
        _FILES_MAX if read.stores == {"file"} else _REMOTE_FILES_MAX,
        by_key=fixes_keys(read.schema, read.predicates, settings.local_rows_max),
        first_rows=first_rows,
    )


def frame_of_read(
    connection: Connection, read: DataRead, limits: LocalLimits | None, *, lists_null: bool = False
) -> DataFrame:
    """The lazy frame of a read. What this process reads itself, within `limits`, is read now. With
    `lists_null` a condition may compare a column with a list that has NULL in it.

    Raises TableDamagedError for files of those that can't be read.
    """
    by_name = {column.name: column for column in read.schema.columns}
    columns = [by_name[name] for name in read.reader.columns]
    plan = plan_of(connection, read, limits)
    if limits is not None and not plan.raw_scans and not plan.tasks:
        rows = few_rows(read, plan.local, limits)
        if rows is not None:
            frame = frame_of_batch(connection.spark, rows, shown_columns(columns, read.view))
            return note_reads(frame, Reads(rows_at_most=rows.num_rows))
        plan = plan_of(connection, read)  # they are more in memory than they are stored
    frame = read_frame(connection.spark, plan, columns, read.reader, lists_null=lists_null)
    return note_reads(frame, Reads(plan=plan))
