"""A report on a stream that writes a table, which is read again while it is looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from paimon_magics.planning.formatting import count_text
from paimon_magics.session.reports.report import Action, Report, Section

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
