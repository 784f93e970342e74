"""How a planned read is run: which files Spark scans itself, and which splits tasks read."""

from __future__ import annotations

from dataclasses import replace

from paimon_magics.planning.reads.scans import ReadPlan, plan_read
from paimon_magics.session.connection import Connection
from paimon_magics.spark.stores import spelled
from paimon_magics.tables.reading.data_read import DataRead

__all__ = ["plan_of"]


def plan_of(connection: Connection, read: DataRead) -> ReadPlan:
    """The plan of a read in the connection's Spark."""
    shown = set(read.reader.columns)
    paths = (path for files in read.planned.raw for path in files.paths)
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
