"""CALL sys.rescale: partitions are written anew with another number of buckets.

As Paimon's `RescaleProcedure`: the rows of one snapshot are read and overwrite their partitions.
Where others changed rows of these meanwhile, the newer snapshot is read and written instead, so
that nothing of theirs is lost. Rows are merged by that; there is no changelog of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    UnknownNameError,
    UnsupportedStatementError,
)
from paimon_magics.planning.commits.requests import OverwriteTouched
from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.planning.schemas.format_rules import fits_spark
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.writes.inserts import check_writable
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.queries.state_frames import frame_of_state
from paimon_magics.session.statements.chosen_partitions import check_choice, chosen_partitions
from paimon_magics.session.writes.insert import run_prepared
from paimon_magics.session.writes.prepare import PreparedInsert
from paimon_magics.statements.clauses.names import quoted, table_text
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.maintenance import RescaleBuckets
from paimon_magics.statements.statement import Insert, TableName
from paimon_magics.statements.version_changes import Call
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.splits.stored_files import files_of_partitions
from paimon_magics.tables.table import Table

__all__ = ["rescale_lines", "run_rescale"]

_BUCKETS_MAX = 32_767  # the most that Paimon can number
_FIXED = ("HASH_FIXED", "POSTPONE_MODE")


@dataclass(frozen=True)
class _Rescaling:
    """What is written anew: `files` (MANIFEST_ENTRIES) of `partitions` (None for all) at
    `snapshot`, pypaimon's. `table` has the new number of buckets in its options."""

    table: Table
    snapshot: Any
    partitions: frozenset[bytes] | None
    files: pa.Table


def run_rescale(
    connection: Connection, statement: Call, name: TableName, asked: RescaleBuckets, position: int
) -> Outcome:
    """Run CALL sys.rescale. It returns true, also where there was nothing to do, as Paimon's."""
    found = _planned(connection, statement, name, asked, position)
    table = found.table
    rows = pa.table({"result": pa.array([True])})
    outcome = Outcome.of_rows(connection.spark, statement.text, "CALL", rows)
    outcome.table = str(table.name)
    if not found.files.num_rows:
        outcome.message = f"`{table.name}`: no files to rescale."
        return outcome
    insert = _as_insert(statement, table.name)
    prepared = _prepared(connection, statement, name, asked, found)
    done = run_prepared(connection, insert, prepared)
    outcome.snapshot_id, outcome.commit_kind = done.snapshot_id, done.commit_kind
    outcome.rows_written, outcome.files_written = done.rows_written, done.files_written
    outcome.bytes_written = done.bytes_written
    outcome.notes = (*done.notes, *_notes(found))
    buckets = count_text(table.schema.bucket, "bucket")
    outcome.message = (
        f"`{table.name}`: {count_text(done.rows_written or 0, 'row')} written into {buckets} of "
        f"{_partitions_text(found)} (snapshot {done.snapshot_id})."
    )
    return outcome


def rescale_lines(
    connection: Connection, statement: Call, name: TableName, asked: RescaleBuckets, position: int
) -> list[str]:
    """What CALL sys.rescale would do."""
    found = _planned(connection, statement, name, asked, position)
    table, files = found.table, found.files
    if not files.num_rows:
        return [f"{table.name}: no files to rescale."]
    before = sorted({count for count in files["total_buckets"].to_pylist()})
    size_bytes = pc.sum(files["file_size"]).as_py()
    return [
        f"{table.name}: would write {_partitions_text(found)} of snapshot {found.snapshot.id} "
        f"({count_text(files.num_rows, 'file')}, {size_text(size_bytes)}) from "
        f"{' or '.join(map(str, before))} into {count_text(table.schema.bucket, 'bucket')}."
    ]


def _planned(
    connection: Connection, statement: Call, name: TableName, asked: RescaleBuckets, position: int
) -> _Rescaling:
    """The checks of Paimon's `RescaleProcedure`, and of what can't be written here."""
    table = connection.load(name, statement.text, position)
    try:
        check_choice(asked.partitions, asked.where)
        table = replace(table, schema=_rescaled(table, asked.bucket_num))
        check_writable(table.name, table.schema)
        snapshot = latest_snapshot(table.paimon)
        if snapshot is None:
            raise UnknownNameError(
                f"`{table.name}` has no snapshot, no need to rescale.",
                hint="Set its option 'bucket' instead: rows that come will follow it.",
            )
        partitions = chosen_partitions(connection, table, asked.partitions, asked.where)
        cache = connection.manifests(table.location, lambda: ManifestCache(table.paimon))
        files = files_of_partitions(live_files(cache, snapshot), partitions)
        if pc.any(pc.less(files["bucket"], 0)).as_py():
            raise UnsupportedStatementError(
                f"Rows of `{table.name}` wait for their buckets, and would be lost.",
                hint=f"Give them some first: CALL sys.compact('{table_text(table.name)}').",
            )
        return _Rescaling(table, snapshot, partitions, files)
    except PaimonMagicsError as error:
        raise located(error, statement.text, statement.procedure_position) from None


def _rescaled(table: Table, bucket_num: int | None) -> TableSchema:
    """The table's schema with the number of buckets that is asked for."""
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
            f"`{table.name}` has timestamps finer than microseconds, which writing anew would cut.",
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


def _prepared(
    connection: Connection,
    statement: Call,
    name: TableName,
    asked: RescaleBuckets,
    found: _Rescaling,
) -> PreparedInsert:
    frame = frame_of_state(connection, found.table, found.snapshot, found.partitions)

    def again() -> PreparedInsert:
        connection.tables.renew()
        newer = _planned(connection, statement, name, asked, statement.procedure_position)
        return _prepared(connection, statement, name, asked, newer)

    return PreparedInsert(
        found.table,
        frame,
        OverwriteTouched(only_unchanged=True),
        int(found.snapshot.id),
        column=lambda only: frame.select(quoted(only)),
        again=again,
        check=lambda: None,
    )


def _as_insert(statement: Call, name: TableName) -> Insert:
    """The statement that writes the same; the text of its source is never read."""
    insert = parse_statement(f"INSERT OVERWRITE {table_text(name)} SELECT * FROM frame")
    assert isinstance(insert, Insert)
    return replace(insert, text=statement.text)


def _notes(found: _Rescaling) -> tuple[str, ...]:
    table, count = found.table, found.table.schema.bucket
    if table.paimon.total_buckets in (count, -2):
        return ()
    return (
        f"Rows for these partitions are refused until the table's option says so, too: ALTER TABLE "
        f"{table_text(table.name)} SET TBLPROPERTIES ('bucket' = '{count}').",
    )


def _partitions_text(found: _Rescaling) -> str:
    if not found.table.schema.is_partitioned:
        return "the table"
    return count_text(len(pc.unique(found.files["partition"])), "partition")
