"""Tables read and written as streams: `session.stream`, `session.write_stream`, and PySpark's own
calls on streams.

A checkpoint in which no batch has begun is mended. A query's first write into a new checkpoint is
the offsets of its batch 0: a temporary file, which is then renamed to `offsets/0`. A process that
dies in between leaves the temporary file, and from then on Spark refuses the checkpoint
(`STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY`: it "should be empty on batch 0"), though it holds
nothing. Names as Spark's `CheckpointFileManager` and `HDFSMetadataLog` give them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.reads.read_points import READ_OPTIONS
from paimon_magics.planning.reads.stream_points import (
    STREAM_OPTIONS,
    FromTime,
    check_streamable,
    stream_request,
)
from paimon_magics.planning.reads.views import view_named
from paimon_magics.session.connection import Connection
from paimon_magics.session.inserts.epochs import ROW_KINDS, check_stream_mode, takes_changes
from paimon_magics.session.inserts.insert import insert_of_frame
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.settings_checks import check_written, with_settings
from paimon_magics.session.streams import Stream, StreamSink, sink_of
from paimon_magics.session.writes.prepare import GivenRows, prepare_insert
from paimon_magics.spark.data_source import Place, register
from paimon_magics.spark.jvm import is_connect
from paimon_magics.spark.remote import run_on_server
from paimon_magics.spark.streaming_queries import AVAILABLE_NOW, start_query, streaming_frame
from paimon_magics.spark.updated_rows import with_changes
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.snapshots.time_travel import moment_ms
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.stores.store import S3_SCHEMES, LocalStore

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame


from paimon_magics.tables.stores.store import Store

_LOGS = ("offsets", "commits")
_ENTRY = re.compile(r"\d+(\.compact)?")
_TEMPORARY = re.compile(r"\.{1,2}\d+\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp(\.crc)?")
"""A temporary file of an entry, and its checksum on a local disk."""


def clear_unbegun(store: Store, checkpoint: str) -> list[str]:
    """Delete the temporary files that a query left which died before its first batch began; return
    their paths.

    Does nothing if a log has an entry, since a batch has begun then. Other files are left for Spark
    to check. Raises what the store raises.
    """
    root = checkpoint.rstrip("/")
    names = {f"{root}/{log}": store.names(f"{root}/{log}") for log in _LOGS}
    if any(_ENTRY.fullmatch(name) for in_log in names.values() for name in in_log):
        return []
    left = [
        f"{folder}/{name}"
        for folder, in_log in names.items()
        for name in in_log
        if _TEMPORARY.fullmatch(name)
    ]
    store.delete(left)
    return left


_UNITS = "microsecond|millisecond|second|minute|hour|day|week"
_INTERVAL = re.compile(rf"(interval\s+)?(\d+\s+({_UNITS})s?\s*)+", re.IGNORECASE)
_STREAM_KEYS = (*STREAM_OPTIONS, *READ_OPTIONS)  # those that no stream has are refused by it
_MODES = {"append": "append", "update": "update", "upsert": "update", "complete": "complete"}


def place_of(connection: Connection) -> Place:
    """The place of the connection's tables, for the data source."""
    return Place(
        connection.catalog.warehouse,
        tuple(connection.catalog.options.items()),
        connection.state.database,
        connection.zone,
        connection.slots,
        connection.settings.batch_rows,
        connection.catalog.visibility,
    )


def register_source(connection: Connection) -> None:
    """Register the data source `paimon` for the connection's tables in its Spark session."""
    register(connection.spark, place_of(connection))


def stream_options(
    scope: StatementScope, name: TableName, options: Mapping[str, str]
) -> dict[str, str]:
    """Check the options of a stream of a table, and return them as the data source takes them.

    Raises what `stream_request` and `check_streamable` raise, and UnknownNameError for the table.
    """
    options = with_settings(scope, name, options, _STREAM_KEYS)
    table = scope.tables.load(_itself(name))
    check_streamable(name, table.schema, view_named(name.system_table))
    request = stream_request(table.schema, options)
    branch = dict(request.reads).get("branch", "main")
    if branch != "main":
        scope.tables.load(replace(_itself(name), branch=branch))
    checked = {key: value for key, value in options.items() if key.lower() != "scan.timestamp"}
    if isinstance(request.start, FromTime) and isinstance(request.start.time, str):
        checked["scan.timestamp-millis"] = str(moment_ms(request.start.time, scope.zone))
    return checked | {"table": f"{quoted(name.database or '')}.{quoted(name.object_name)}"}


def stream_frame(scope: StatementScope, name: TableName, options: Mapping[str, str]) -> DataFrame:
    """The table as a streaming frame. Raises what `stream_options` raises."""
    checked = stream_options(scope, name, options)
    return streaming_frame(scope.spark, checked)


def start_stream(
    scope: StatementScope,
    frame: DataFrame,
    name: TableName,
    *,
    checkpoint: str,
    mode: str,
    trigger: str | None,
) -> Stream:
    """Start a query that writes a streaming frame to a table. See `Session.write_stream`.

    Raises InvalidValueError for a frame that is not a stream, and for another trigger than an
    interval and `AVAILABLE_NOW`, and what `checked_sink` raises.
    """
    if not getattr(frame, "isStreaming", False):
        raise InvalidValueError(
            "The frame is not a stream.",
            hint="session.stream(name) and spark.readStream make streams; session.write(frame, "
            "name) writes other frames.",
        )
    if trigger is not None and trigger != AVAILABLE_NOW and not _INTERVAL.fullmatch(trigger):
        raise InvalidValueError(
            f"A stream has no trigger '{trigger}'.",
            hint=f"Use an interval, such as '10 seconds', or '{AVAILABLE_NOW}'.",
        )
    sink = checked_sink(scope, frame, name, mode, checkpoint)
    query = start_query(frame, sink, checkpoint=checkpoint, mode=sink.mode, trigger=trigger)
    return Stream(scope.connection, sink, query)


def checked_sink(
    scope: StatementScope,
    frame: DataFrame | None,
    name: TableName,
    mode: str,
    checkpoint: str | None,
) -> StreamSink:
    """The function that writes a query's micro-batches. The frame's columns and types are checked
    against the table's, if they are known, before anything runs. A checkpoint in which a kill left
    half a file before the first batch is made usable.

    Raises InvalidValueError for another mode, and without a checkpoint, UnknownNameError for the
    table, and what writing such a frame raises.
    """
    if mode.lower() not in _MODES:
        raise InvalidValueError(
            f"A stream has no mode '{mode}'.",
            hint=nearest(mode, tuple(_MODES), what="modes"),
        )
    if not checkpoint:
        raise InvalidValueError(
            f"The stream into `{name}` has no checkpoint. It could not continue after a stop.",
            hint="Give it a folder of its own: checkpoint='…', or "
            ".option('checkpointLocation', '…').",
        )
    mode = _MODES[mode.lower()]
    check_written(scope, name, "INSERT")
    try:
        schema = scope.tables.load(name).schema
    except UnknownNameError as error:
        error.hint = f"{error.hint} Create it first: CREATE TABLE …".strip()
        raise
    if frame is not None:
        check_stream_mode(name, schema, mode, frame.columns)
        empty = scope.spark.createDataFrame([], frame.schema)
        if takes_changes(schema, frame.columns):
            empty = with_changes(empty, ROW_KINDS)
        prepare_insert(scope, insert_of_frame(name), {}, GivenRows(empty))
    _clear_half_begun(scope, checkpoint)
    return sink_of(scope.connection, name, mode, checkpoint)


def _itself(name: TableName) -> TableName:
    return TableName(name.table, name.database, name.catalog, name.branch)


def refuse_options(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Raise UnsupportedStatementError for options of a writer that it does not have."""
    for key in options:
        if key.lower() not in {option.lower() for option in known}:
            raise UnsupportedStatementError(
                f"A stream into a table has no option '{key}'.",
                hint=f"It has {', '.join(known)}. Options of a table are set by ALTER TABLE.",
            )


# Makes the checkpoint of a query ready before Spark opens it (`tables.stores.checkpoints`).


def _clear_half_begun(scope: StatementScope, checkpoint: str) -> None:
    """Delete the partial files that a kill at the start of a query left in its checkpoint: Spark
    would refuse them. A batch that has begun is never touched.

    The checkpoint is looked at where Spark writes it: a local folder of a Spark Connect server by a
    task there, others from here. One in a store that the warehouse's options do not open is left
    to Spark.
    """
    with suppress(OSError, PaimonMagicsError):  # Spark says itself what is wrong with a checkpoint
        if local_path(checkpoint) is None:
            if _kind(checkpoint) == _kind(scope.catalog.warehouse):
                clear_unbegun(scope.catalog.stores.of(checkpoint), checkpoint)
        elif is_connect(scope.spark):
            run_on_server(scope.spark, partial(clear_unbegun, LocalStore(), checkpoint))
        else:
            clear_unbegun(LocalStore(), checkpoint)


def _kind(location: str) -> str:
    scheme = urlsplit(location).scheme
    return "s3" if scheme in S3_SCHEMES else scheme
