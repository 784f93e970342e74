"""A stream that writes a Paimon table: its progress, and how it ends."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from paimon_magics.boundary import short_errors
from paimon_magics.errors import PaimonMagicsError, sent_to_driver
from paimon_magics.planning.formatting import count_text
from paimon_magics.session.connection import Connection
from paimon_magics.session.inserts.epochs import write_epoch
from paimon_magics.session.opening import connection_on
from paimon_magics.session.place_words import PlaceWords
from paimon_magics.session.reports.report import Action, Report, Section
from paimon_magics.session.scope import statement_scope
from paimon_magics.settings import Settings
from paimon_magics.spark.failures import translate
from paimon_magics.spark.streaming_queries import last_report, query_id
from paimon_magics.spark.views import Views
from paimon_magics.statements.statement import TableName

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame, SparkSession, StreamingQuery


_LOOK_SECONDS = 0.2
_PARTS_OF_A_SLOT = 8
"""A stream reports more parts of state than this for each task that can run at once."""


@short_errors
class Stream:
    """A running stream into a table, as `session.write_stream` starts it. `query` is Spark's
    StreamingQuery. It runs until `stop`, or until its session is closed; after that, the same call
    with the same checkpoint goes on where it was."""

    def __init__(self, connection: Connection, sink: StreamSink, query: StreamingQuery) -> None:
        self._connection = connection
        self._sink = sink
        self.query = query
        connection.state.running.append(self)

    @property
    def table(self) -> str:
        """The name of the table that is written."""
        return str(self._sink.table)

    @property
    def is_active(self) -> bool:
        """Whether the stream runs."""
        return bool(self.query.isActive)

    @property
    def progress(self) -> StreamProgress:
        """How far the stream is; asks Spark for its last report."""
        return self._progress(last_report(self.query))

    def _progress(self, report: dict[str, Any]) -> StreamProgress:
        written = self._sink.written
        epochs = written.epochs or int(report.get("batchId", -1)) + 1
        rows = written.rows if written.epochs else None
        speed = report.get("processedRowsPerSecond")
        return StreamProgress(epochs, rows, written.snapshot_id, _behind(report), speed)

    def report(self) -> Report:
        """The stream as a report, which a notebook shows: its progress, followed while it is looked
        at, and a button that stops it. `str` of it is one line."""
        return stream_of(self._state, self.stop)

    def _state(self) -> StreamState | None:
        """How the stream is; None when its session is closed."""
        if self._connection.state.closed:
            return None
        failed = None if self.is_active else self.query.exception()
        state = "failed" if failed is not None else "running" if self.is_active else "ended"
        reason = "" if failed is None else str(self._reason(failed))
        report = last_report(self.query)
        parts = _state_parts(report)
        is_many = parts is not None and parts > self._connection.slots * _PARTS_OF_A_SLOT
        progress = self._progress(report)
        return StreamState(self.table, state, progress, reason, parts if is_many else None)

    def stop(self) -> None:
        """Stop the stream. The current batch is given up or finished: the table has all of it or
        nothing. A batch that was given up is written when the stream is started again."""
        self.query.stop()
        if self in self._connection.state.running:
            self._connection.state.running.remove(self)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the stream has ended, for at most `seconds`; return whether it has.

        An interrupt stops the stream, too. Raises the error that the stream failed with.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            while self.query.isActive:
                if deadline is not None and time.monotonic() > deadline:
                    return False
                self.query.awaitTermination(_LOOK_SECONDS)  # type: ignore[arg-type]
        except KeyboardInterrupt:
            self.stop()
            raise
        except Exception as error:
            raise self._reason(error) from error
        failed = self.query.exception()
        if failed is not None:
            raise self._reason(failed) from failed
        return True

    def process_all(self) -> StreamProgress:
        """Wait until everything that the source has now is in the table; return the progress.

        An interrupt stops the stream, too. Raises the error that the stream failed with.
        """
        try:
            self.query.processAllAvailable()
        except KeyboardInterrupt:
            self.stop()
            raise
        except Exception as error:
            raise self._reason(error) from error
        return self.progress

    def __repr__(self) -> str:
        state = self._state()
        return f"Stream({f'{self.table}, its session is closed' if state is None else state})"

    def _reason(self, error: Exception) -> Exception:
        """The error of ours that the stream failed with."""
        return self._sink.written.error or translate(error)


def _behind(report: dict[str, Any]) -> int | None:
    """The snapshots between what was read and the latest, from Spark's report on our source; from
    PySpark 4.2 on."""
    for source in report.get("sources", ()):
        ends = [_snapshot_of(source.get(key)) for key in ("endOffset", "latestOffset")]
        if ends[0] is not None and ends[1] is not None:
            return max(ends[1] - ends[0], 0)
    return None


def _state_parts(report: dict[str, Any]) -> int | None:
    """The parts of the query's state, from Spark's report; None for a query without state."""
    counts = [operator.get("numShufflePartitions") for operator in report.get("stateOperators", ())]
    return max((count for count in counts if count), default=None)


def _snapshot_of(offset: object) -> int | None:
    if isinstance(offset, str):
        match = re.search(r"snapshotId\W+(\d+)", offset)
        return None if match is None else int(match[1])
    return offset.get("snapshotId") if isinstance(offset, dict) else None


# The function of `foreachBatch` that writes a stream's micro-batches to a table.
#
# Spark calls it in this process, or, on Spark Connect, in a process of the server, to which it goes
# without its connection: it opens one there, on the same warehouse and coordinator.


@dataclass
class Written:
    """What a sink of this process has written: rows, the number of epochs with those before it, and
    the snapshot of the last one. `error` is what it failed with."""

    epochs: int = 0
    rows: int = 0
    snapshot_id: int | None = None
    error: PaimonMagicsError | None = None


@dataclass
class StreamSink:
    """Writes micro-batches to `table`, in Spark's output mode `mode`. `checkpoint` is the query's
    checkpoint, which has the query's id."""

    table: TableName
    mode: str
    checkpoint: str
    words: PlaceWords = field(repr=False)
    settings: Settings
    written: Written = field(default_factory=Written)
    _original: Connection | None = None
    _connection: Connection | None = None
    _query_id: str = ""

    def __getstate__(self) -> dict[str, Any]:
        """The sink without what belongs to this process."""
        return self.__dict__ | {"_original": None, "_connection": None, "written": Written()}

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write micro-batch `number` of the query."""
        with sent_to_driver():
            try:
                self._write(batch, number)
            except PaimonMagicsError as error:
                self.written.error = error
                raise

    def _write(self, batch: DataFrame, number: int) -> None:
        connection = self._connection_on(batch.sparkSession)
        if not self._query_id:
            self._query_id = query_id(batch.sparkSession, self.checkpoint)
        with statement_scope(connection) as scope:
            outcome = write_epoch(scope, batch, self.table, self.mode, self._query_id, number)
        self.written.epochs = number + 1
        if outcome is not None:
            self.written.rows += outcome.rows_written or 0
            self.written.snapshot_id = outcome.snapshot_id or self.written.snapshot_id

    def _connection_on(self, spark: SparkSession) -> Connection:
        """A connection whose statements run in the session of the micro-batch."""
        known = self._connection
        if known is not None and known.spark is spark:
            return known
        if self._original is not None:
            views = Views(spark, self.settings.kept_views_max)
            self._connection = self._original.beside(spark=spark, views=views)
        else:
            self._connection = connection_on(self.words, self.settings, spark)
        return self._connection


def sink_of(connection: Connection, table: TableName, mode: str, checkpoint: str) -> StreamSink:
    """The sink of a query that this process starts."""
    words = PlaceWords(
        catalog=dict(connection.catalog.options),
        coordinator=connection.coordinator,
        token=connection.words.token,
    )
    return StreamSink(table, mode, checkpoint, words, connection.settings, _original=connection)


# A report on a stream that writes a table, which is read again while it is looked at.


_SECONDS = 1.0
_MANY_PARTS = (
    "Spark keeps the state in {} parts, and each is a task of every micro-batch. Fewer are faster "
    "for little state: set spark.sql.shuffle.partitions before the stream starts, on a new "
    "checkpoint."
)


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """How far a stream is. `epochs` counts its micro-batches, with those before its last stop.
    `rows` are those written since then, and `snapshot_id` is the last snapshot that it made; None
    before the first one, and on Spark Connect, where the server writes. `behind` is the number of
    snapshots of the source that it has not read yet; None for other sources, and on PySpark 4.1.
    `rows_per_second` is the speed of the last micro-batch that Spark has reported."""

    epochs: int
    rows: int | None
    snapshot_id: int | None
    behind: int | None
    rows_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream at one moment. `state` is "running", "ended" or "failed", `reason` why it failed.
    `state_parts` is the number of parts that Spark keeps its state in; None if it is not known, or
    not large for the number of tasks that run at once."""

    table: str
    state: str
    progress: StreamProgress
    reason: str = ""
    state_parts: int | None = None

    def __str__(self) -> str:
        progress = self.progress
        parts = [count_text(progress.epochs, "epoch")]
        if progress.rows is not None:
            parts.append(count_text(progress.rows, "row"))
        if progress.snapshot_id is not None:
            parts.append(f"snapshot {progress.snapshot_id}")
        if progress.behind:
            parts.append(f"{count_text(progress.behind, 'snapshot')} behind")
        if self.state_parts:
            parts.append(f"state in {self.state_parts} parts")
        return f"{self.table}, {self.state}: {', '.join(parts)}"


def stream_of(look: Callable[[], StreamState | None], stop: Callable[[], None]) -> Report:
    """Report a stream. `look` returns its state, None when its session is closed; `stop` stops it.

    The report of a running stream has the action "Stop".
    """
    state = look()
    if state is None:
        return Report("STREAM", "The session of the stream is closed.", ())

    def stopped(_: object) -> Report:
        stop()
        return stream_of(look, stop)

    def refresh() -> Report | None:
        return None if look() is None else stream_of(look, stop)

    actions = (Action("Stop", 0, stopped),) if state.state == "running" else ()
    section = Section("", _rows(state), "", actions=actions, only_live=True)
    parts = _MANY_PARTS.format(state.state_parts) if state.state_parts else ""
    notes = tuple(note for note in (state.reason, parts) if note)
    return Report("STREAM", str(state), (section,), notes, refresh=refresh, seconds=_SECONDS)


def _rows(state: StreamState) -> pa.Table:
    """One row: what changes while the stream runs."""
    progress = state.progress
    speed = progress.rows_per_second
    return pa.table(
        {
            "state": pa.array([state.state]),
            "epochs": pa.array([progress.epochs], pa.int64()),
            "rows": pa.array([progress.rows], pa.int64()),
            "rows_per_second": pa.array([None if speed is None else round(speed)], pa.int64()),
            "snapshot_written": pa.array([progress.snapshot_id], pa.int64()),
            "snapshots_behind": pa.array([progress.behind], pa.int64()),
        }
    )
