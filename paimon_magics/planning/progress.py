"""How far Spark jobs are: their stages, tasks, rows and bytes, and the line that says so.

Counts are Spark's own, as far as a session tells them; what it does not tell is 0 and is left out.
A stage that did not have to run (its result was there) is not among them.
"""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.planning.amounts import count_text, size_text

__all__ = ["Progress", "StageProgress", "duration_text"]

# Before so many tasks have ended, their pace says little about those that are left.
_TASKS_MIN = 3


@dataclass(frozen=True, slots=True)
class StageProgress:
    """One stage that runs or has run; `seconds` since it was first seen."""

    tasks: int
    tasks_done: int
    tasks_running: int = 0
    rows_read: int = 0
    bytes_read: int = 0
    seconds: float = 0.0

    @property
    def is_done(self) -> bool:
        """Whether all its tasks have ended."""
        return self.tasks_done >= self.tasks


@dataclass(frozen=True, slots=True)
class Progress:
    """What a statement's jobs have done in `seconds`, stage by stage in the order of their ids;
    `doing` says what Spark does before the first of them."""

    seconds: float
    stages: tuple[StageProgress, ...] = ()
    doing: str = "preparing the job"

    @property
    def current(self) -> tuple[StageProgress, ...]:
        """The stages that run."""
        return tuple(stage for stage in self.stages if not stage.is_done)

    @property
    def share(self) -> float | None:
        """Which share of the tasks of the running stages has ended; None while nothing runs."""
        tasks = sum(stage.tasks for stage in self.current)
        return sum(stage.tasks_done for stage in self.current) / tasks if tasks else None

    @property
    def seconds_left(self) -> float | None:
        """How long the running stages take yet at the pace of their tasks so far, None where too
        few have ended to say. Stages that have not begun are not foreseen."""
        left = [_seconds_left(stage) for stage in self.current]
        known = [seconds for seconds in left if seconds is not None]
        return max(known) if known and len(known) == len(left) else None

    def text(self) -> str:
        """One line: `Spark: stage 3, 14 of 200 tasks, 1,200,000 rows read, …`."""
        if not self.stages:
            return f"Spark is {self.doing}, {duration_text(self.seconds)}"
        current = self.current or self.stages[-1:]
        done, tasks = (sum(getattr(s, name) for s in current) for name in ("tasks_done", "tasks"))
        parts = [
            f"Spark: stage {len(self.stages)}",
            f"{done:,} of {count_text(tasks, 'task')}",
        ]
        rows = sum(stage.rows_read for stage in self.stages)
        size = sum(stage.bytes_read for stage in self.stages)
        if rows:
            parts.append(f"{count_text(rows, 'row')} read")
        if size:
            parts.append(f"{size_text(size)} read")
        if size and self.seconds >= 1:
            parts.append(f"{size_text(int(size / self.seconds))}/s")
        elif rows and self.seconds >= 1:
            parts.append(f"{rows / self.seconds:,.0f} rows/s")
        parts.append(f"{duration_text(self.seconds)} so far")
        left = self.seconds_left
        if left is not None:
            parts.append(f"about {duration_text(max(left, 1))} left in this stage")
        return ", ".join(parts)


def duration_text(seconds: float) -> str:
    """A duration in its two largest units: `8 s`, `2 min 5 s`, `3 h 4 min`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _seconds_left(stage: StageProgress) -> float | None:
    if stage.tasks_done < min(_TASKS_MIN, stage.tasks - 1) or not stage.tasks_done:
        return None
    return stage.seconds * (stage.tasks - stage.tasks_done) / stage.tasks_done
