"""The progress of Spark jobs: stages, tasks, rows and bytes, and the line that shows them.

Counts come from Spark, and from our own tasks that report theirs; a count that is not reported is 0
and is not shown. The amount of work comes from the plan, as far as it is known beforehand. Skipped
stages, whose result exists already, are not included.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from paimon_magics.planning.formatting import count_text, size_text

# Until this many tasks have ended, their pace says little about the remaining ones.
_TASKS_MIN = 3
# Until this share of the rows is done, neither does the pace of rows.
_SHARE_MIN = 0.03
# The time that writers take to fetch and sort, and to write, as multiples of the time of the stage
# before them, which reads and shuffles. Measured with 20 million rows of a primary-key table.
_SORTING, _WRITING = 1.0, 1.0
# From this share on, only the writers' own pace counts. A stage begins slowly.
_SHARE_TRUSTED = 0.3
# A full bar says that it has ended: rows are counted before tasks finish their files.
_SHARE_RUNNING_MAX = 0.99
_WINDOW_SECONDS = 5.0
_SILENT_SECONDS = 5.0
_NAMES_MAX = 3


@dataclass(frozen=True, slots=True)
class Work:
    """The facts about a statement's jobs that are known before they run.

    `sources` are the names of the tables that are read; `rows`, `size_bytes` and `files` are how
    much that is, None if unknown. `shuffle` says how rows reach their writers ("by bucket"), empty
    without a shuffle. `target` says what the writers write ("buckets", "files"), empty for a query.
    `is_plain` says that the query has no shuffles of its own, so that all stages are known.
    """

    sources: tuple[str, ...] = ()
    rows: int | None = None
    size_bytes: int | None = None
    files: int | None = None
    shuffle: str = ""
    target: str = ""
    is_plain: bool = False


@dataclass(frozen=True, slots=True)
class StageProgress:
    """One stage that runs or has run.

    `seconds` counts from when it was first seen, `rows_seconds` from when it first reported rows:
    a stage sorts rows before it writes them. `bytes_read` counts bytes of files, `bytes_written`
    bytes of rows in memory that writers took. `rows_shuffled` were written for other stages,
    `rows_fetched` were read from other stages.
    """

    tasks: int
    tasks_done: int
    tasks_running: int = 0
    rows_read: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    rows_written: int = 0
    bytes_written: int = 0
    rows_shuffled: int = 0
    writes: bool = False
    rows_seconds: float = 0.0
    rows_fetched: int = 0

    @property
    def is_done(self) -> bool:
        """Whether all its tasks have ended."""
        return self.tasks_done >= self.tasks > 0

    @property
    def reads(self) -> bool:
        """Whether it reads files or another source of a query."""
        return bool(self.rows_read or self.bytes_read)


@dataclass(frozen=True, slots=True)
class Pace:
    """Samples of (seconds, rows, bytes), for the rates over the last seconds."""

    samples: tuple[tuple[float, int, int], ...] = ()

    def then(self, seconds: float, rows: int, size_bytes: int) -> Pace:
        """Return a pace with one more sample. Samples older than 5 seconds are dropped, and so are
        samples with more rows: counts fall when a stage begins to write or a task is retried."""
        recent = [
            sample
            for sample in self.samples
            if sample[0] >= seconds - _WINDOW_SECONDS and sample[1] <= rows
        ]
        return Pace((*recent, (seconds, rows, size_bytes)))

    @property
    def rates(self) -> tuple[float, float]:
        """Rows and bytes per second; 0 before there are two samples."""
        if len(self.samples) < 2:
            return 0.0, 0.0
        first, last = self.samples[0], self.samples[-1]
        passed = last[0] - first[0]
        if passed <= 0:
            return 0.0, 0.0
        return tuple(max(0.0, (last[i] - first[i]) / passed) for i in (1, 2))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a statement's jobs after `seconds`.

    `stages` are in the order of their ids; `work` is the whole amount. `doing` describes the
    activity while there are no stages.
    """

    seconds: float
    stages: tuple[StageProgress, ...] = ()
    doing: str = "Spark is preparing the job"
    work: Work = field(default_factory=Work)
    pace: Pace = field(default_factory=Pace)

    @property
    def current(self) -> tuple[StageProgress, ...]:
        """The running stages."""
        return tuple(stage for stage in self.stages if not stage.is_done)

    @property
    def rows(self) -> int:
        """The rows that all stages have processed: for rates, not to be shown."""
        return sum(
            stage.rows_written if stage.writes else max(stage.rows_read, stage.rows_fetched)
            for stage in self.stages
        )

    @property
    def size_bytes(self) -> int:
        """The bytes that all stages have processed."""
        return sum(max(stage.bytes_read, stage.bytes_written) for stage in self.stages)

    @property
    def share(self) -> float | None:
        """The share that is done: of the statement if its stages are known, else of the running
        stages, and never all of it. Counted in rows, bytes or tasks, as far as known. None while
        nothing runs, and while a stage of unknown further work, such as a join, has read all its
        rows but still computes."""
        if not self.current:
            return None
        shares = [(self._share_of(stage), stage.tasks) for stage in self.current]
        tasks = sum(count for _, count in shares)
        share = sum(share * count for share, count in shares) / tasks if tasks else 0.0
        whole = 1 + _SORTING + _WRITING
        if self._waits_for_writers:
            return share / whole
        if self._has_shuffled:
            if any(stage.writes for stage in self.current):
                share = (1 + _SORTING + share * _WRITING) / whole
            else:
                share = (1 + share * _SORTING) / whole
        elif share >= 1 and not self.is_all:
            return None
        return min(share, _SHARE_RUNNING_MAX)

    @property
    def seconds_left(self) -> float | None:
        """The estimated remaining seconds, None while too little is done for an estimate: of the
        statement if `is_all`, else of the running stages."""
        if self._has_shuffled and self.current and self._before >= 1:
            return self._seconds_of_writers
        left = [self._seconds_left(stage) for stage in self.current]
        known = [each for each in left if each is not None]
        if not known or len(known) < len(left):
            return None
        seconds = max(known)
        if self._waits_for_writers:
            seconds += (seconds + self._seconds) * (_SORTING + _WRITING)
        return seconds

    @property
    def _seconds_of_writers(self) -> float:
        """The remaining seconds of the writers: by their own pace, mixed with the pace of the stage
        before them while their own says little."""
        share = min(self._share_of(stage) for stage in self.current)
        trust = min(1.0, share / _SHARE_TRUSTED) ** 2
        writers = [stage.rows_seconds or stage.seconds for stage in self.current if stage.writes]
        since = max(writers, default=self._seconds)
        usual = self._before * (_WRITING if writers else _SORTING)
        by_pace = since * (1 - share) / share if share else 0.0
        left = trust * by_pace + (1 - trust) * max(0.0, usual - since)
        if writers:
            return left
        # Fetched rows must still be sorted: fetching ends before sorting does.
        return max(left, usual - since, 0.0) + self._before * _WRITING

    @property
    def _seconds(self) -> float:
        """The seconds since the first running stage began."""
        return max(stage.seconds for stage in self.current)

    @property
    def _before(self) -> float:
        """The seconds of the longest stage that has ended."""
        return max((stage.seconds for stage in self.stages if stage.is_done), default=0.0)

    @property
    def is_all(self) -> bool:
        """Whether all stages of the statement are known beforehand."""
        return self.work.is_plain and bool(self.work.target)

    def text(self) -> str:
        """One line: `Spark: reading orders, stage 1, 0 of 2 tasks, 1,200,000 of 4,000,000 rows
        read, …`."""
        if not self.stages:
            return f"{self.doing}, {duration_text(self.seconds)}"
        current = self.current or self.stages[-1:]
        parts = [f"Spark: {self._doing(current)}", f"stage {len(self.stages)}"]
        done, tasks = (sum(getattr(s, name) for s in current) for name in ("tasks_done", "tasks"))
        if tasks:
            parts.append(f"{done:,} of {count_text(tasks, 'task')}")
        parts += self._amounts(current)
        parts.append(f"{duration_text(self.seconds)} so far")
        left = self.seconds_left
        if left is not None:
            where = "" if self.is_all else " in this stage"
            parts.append(f"about {duration_text(max(left, 1))} left{where}")
        return ", ".join(parts)

    @property
    def _waits_for_writers(self) -> bool:
        """Whether the stage of writers has not begun yet."""
        begun = any(stage.writes or stage.is_done for stage in self.stages)
        return self.is_all and bool(self.work.shuffle) and not begun

    @property
    def _has_shuffled(self) -> bool:
        return self.is_all and bool(self.work.shuffle) and not self._waits_for_writers

    def _rows_of(self, stage: StageProgress) -> int | None:
        """The number of rows that a stage processes in all, None if unknown."""
        if stage.writes and self.work.shuffle:
            shuffled = [stage.rows_shuffled for stage in self.stages if not stage.writes]
            known = shuffled[-1] if shuffled else 0
            return known or (self.work.rows if self.work.is_plain else None)
        if stage.reads or (stage.writes and self.work.is_plain):
            return self.work.rows
        return None

    def _share_of(self, stage: StageProgress) -> float:
        by_tasks = stage.tasks_done / stage.tasks if stage.tasks else 0.0
        rows = self._rows_of(stage)
        if rows:
            # Where the same stage reads and writes rows, only written rows are done.
            is_last = stage.writes or (self.is_all and not self.work.shuffle)
            done = stage.rows_written
            if not is_last:  # stages that read at the same time share the rows
                done = sum(other.rows_read for other in self.current)
                rows = max(rows - sum(stage.rows_read for stage in self.stages if stage.is_done), 1)
            # Ended tasks may have read fewer rows than planned: conditions skipped some.
            return max(by_tasks, min(1.0, done / rows))
        if stage.reads and self.work.size_bytes:
            return max(by_tasks, min(1.0, stage.bytes_read / self.work.size_bytes))
        if stage.rows_fetched and not stage.writes:
            return max(by_tasks, min(1.0, stage.rows_fetched / self._to_fetch))
        return by_tasks

    @property
    def _to_fetch(self) -> int:
        """The number of rows that the running stages fetch from earlier stages."""
        shuffled = sum(stage.rows_shuffled for stage in self.stages if stage.is_done)
        fetched = sum(stage.rows_fetched for stage in self.stages if stage.is_done)
        return max(shuffled - fetched, *(stage.rows_fetched for stage in self.current), 1)

    def _seconds_left(self, stage: StageProgress) -> float | None:
        share = self._share_of(stage)
        is_by_tasks = stage.tasks and share == stage.tasks_done / stage.tasks
        if is_by_tasks:
            if stage.tasks_done < min(_TASKS_MIN, stage.tasks - 1) or not stage.tasks_done:
                return None
        elif share < _SHARE_MIN or stage.seconds < 1:
            return None
        elif share >= 1 and not self.is_all:
            return None  # all rows are read, but the stage still works on them
        return (stage.rows_seconds or stage.seconds) * (1 - share) / share

    def _doing(self, stages: tuple[StageProgress, ...]) -> str:
        """The activity of the stages, in words."""
        names = list(dict.fromkeys(self._named(stage) for stage in stages))
        return " and ".join(names)

    def _named(self, stage: StageProgress) -> str:
        parts = []
        # A query begins by reading its sources, before any count is reported.
        begins = stage is self.stages[0] and bool(self.work.sources) and not stage.writes
        if stage.reads or self._waits_for_writers or begins:
            parts.append(f"reading {self._sources()}".strip())
        if stage.writes:
            parts.append(f"writing {self.work.target or 'files'}")
        elif self._waits_for_writers:
            parts.append(f"shuffling {self.work.shuffle}")
        elif stage.rows_shuffled:
            parts.append("shuffling")
        elif self._has_shuffled and not parts:
            parts.append(f"sorting for {self.work.target}")
        return " and ".join(parts) or "computing"

    def _sources(self) -> str:
        names = self.work.sources
        if len(names) > _NAMES_MAX:
            return count_text(len(names), "table")
        return ", ".join(names)

    def _amounts(self, current: tuple[StageProgress, ...]) -> list[str]:
        read, read_bytes = (
            sum(getattr(stage, name) for stage in self.stages)
            for name in ("rows_read", "bytes_read")
        )
        written = sum(stage.rows_written for stage in self.stages)
        written_bytes = sum(stage.bytes_written for stage in self.stages)
        parts = []
        all_rows = self.work.rows
        if read:
            of = f"{read:,} of {count_text(max(read, all_rows), 'row')}" if all_rows else None
            parts.append(f"{of or count_text(read, 'row')} read")
        if read_bytes:
            parts.append(f"{size_text(read_bytes)} read")
        fetched = sum(stage.rows_fetched for stage in current if not stage.writes)
        if fetched:
            to_fetch = count_text(self._to_fetch, "row") if self.current else None
            parts.append(
                f"{fetched:,} of {to_fetch} fetched"
                if to_fetch
                else f"{count_text(fetched, 'row')} fetched"
            )
        if written:
            parts.append(f"{count_text(written, 'row')} written")
        if written_bytes:
            parts.append(f"{size_text(written_bytes)} before compression")
        rows, size_bytes = self.pace.rates
        if rows >= 1:
            parts.append(f"{rows:,.0f} rows/s")
        if size_bytes >= 1:
            parts.append(f"{size_text(int(size_bytes))}/s")
        is_silent = not parts and max(stage.seconds for stage in current) >= _SILENT_SECONDS
        return ["no rows reported yet"] if is_silent else parts


def duration_text(seconds: float) -> str:
    """A duration in its two largest units: `8 s`, `2 min 5 s`, `3 h 4 min`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


# Assigns the row counts of a plan to its stages.
#
# Spark counts the rows of running tasks by plan node, without naming the stage. So rows that came
# since the last sample are assigned to the stages that ran at that sample, because the rows of a
# stage that has just ended may arrive late. Stages that run at the same time share them equally.


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Numbers of rows read from a plan's sources, written for a shuffle, and fetched from one."""

    read: int = 0
    shuffled: int = 0
    fetched: int = 0

    def plus(self, other: RowCounts) -> RowCounts:
        """Return the sum of both."""
        return RowCounts(
            self.read + other.read, self.shuffled + other.shuffled, self.fetched + other.fetched
        )


@dataclass(frozen=True, slots=True)
class StageRows:
    """Row counts by stage id. `total` has the counts of the plan, `running` the ids of the stages
    that ran, both at the last sample."""

    stages: Mapping[int, RowCounts] = field(default_factory=dict)
    total: RowCounts = RowCounts()
    running: frozenset[int] = frozenset()

    def then(self, total: RowCounts, running: Set[int]) -> StageRows:
        """Return the counts after the next sample, at which the stages `running` run."""
        before = sorted(self.running or running)
        now = sorted(running or self.running)
        if not now:
            return self
        stages = dict(self.stages)
        read = max(0, total.read - self.total.read)
        shuffled = max(0, total.shuffled - self.total.shuffled)
        fetched = max(0, total.fetched - self.total.fetched)
        for place, id in enumerate(before):
            more = RowCounts(_part(read, place, before), _part(shuffled, place, before))
            stages[id] = stages.get(id, RowCounts()).plus(more)
        for place, id in enumerate(now):
            more = RowCounts(fetched=_part(fetched, place, now))
            stages[id] = stages.get(id, RowCounts()).plus(more)
        return StageRows(stages, total, frozenset(running))


def _part(rows: int, place: int, ids: list[int]) -> int:
    """The part of `rows` for the stage at `place` in `ids`; the parts add up to `rows`."""
    return rows // len(ids) + (place < rows % len(ids))
