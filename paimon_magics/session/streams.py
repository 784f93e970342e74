"""A stream that writes a Paimon table: its progress, and how it ends."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paimon_magics.boundary import short_errors
from paimon_magics.planning.formatting import count_text
from paimon_magics.session.connection import Connection
from paimon_magics.session.stream_sinks import StreamSink
from paimon_magics.spark.failures import translate
from paimon_magics.spark.streaming_queries import last_report

if TYPE_CHECKING:
    from paimon_magics.spark.handles import StreamingQuery

__all__ = ["Stream", "StreamProgress"]

_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """How far a stream is. `epochs` counts its micro-batches, with those before its last stop.
    `rows` are those written since then, and `snapshot_id` is the last snapshot that it made; None
    before the first one, and on Spark Connect, where the server writes. `behind` is the number of
    snapshots of the source that it has not read yet; None for other sources, and on PySpark 4.1."""

    epochs: int
    rows: int | None
    snapshot_id: int | None
    behind: int | None


@short_errors
class Stream:
    """A running stream into a table, as `session.write_stream` starts it. `query` is Spark's
    StreamingQuery. It runs until `stop`, or until its session is closed; after that, the same call
    with the same checkpoint goes on where it was."""

    def __init__(self, connection: Connection, sink: StreamSink, query: StreamingQuery) -> None:
        self._connection = connection
        self._sink = sink
        self.query = query
        connection.running.append(self)

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
        written, told = self._sink.written, last_report(self.query)
        epochs = written.epochs or int(told.get("batchId", -1)) + 1
        rows = written.rows if written.epochs else None
        return StreamProgress(epochs, rows, written.snapshot_id, _behind(told))

    def stop(self) -> None:
        """Stop the stream. The batch that is being written is given up or finished; it is whole in
        the table or not at all, and comes again when the stream is started again."""
        self.query.stop()
        if self in self._connection.running:
            self._connection.running.remove(self)

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
        progress = self.progress
        state = "running" if self.is_active else "ended"
        if not self.is_active and self.query.exception() is not None:
            state = "failed"
        parts = [count_text(progress.epochs, "epoch")]
        if progress.rows is not None:
            parts.append(count_text(progress.rows, "row"))
        if progress.snapshot_id is not None:
            parts.append(f"snapshot {progress.snapshot_id}")
        if progress.behind:
            parts.append(f"{count_text(progress.behind, 'snapshot')} behind")
        return f"Stream({self.table}, {state}: {', '.join(parts)})"

    def _reason(self, error: Exception) -> Exception:
        """The error of ours that the stream failed with."""
        return self._sink.written.error or translate(error)


def _behind(told: dict[str, Any]) -> int | None:
    """The snapshots between what was read and the latest, from Spark's report on our source; from
    PySpark 4.2 on."""
    for source in told.get("sources", ()):
        ends = [_snapshot_of(source.get(key)) for key in ("endOffset", "latestOffset")]
        if ends[0] is not None and ends[1] is not None:
            return max(ends[1] - ends[0], 0)
    return None


def _snapshot_of(offset: object) -> int | None:
    if isinstance(offset, str):
        match = re.search(r"snapshotId\W+(\d+)", offset)
        return None if match is None else int(match[1])
    return offset.get("snapshotId") if isinstance(offset, dict) else None
