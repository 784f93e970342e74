"""Watches Spark jobs while they run, and reports to the thread's listener (module `listening`).

`watched` wraps jobs. A separate thread reports their progress to the listener, and finally that
they have ended. Without a listener nothing is watched and Spark is not queried.

A session in this process has three sources: its status tracker for tasks, Spark's metrics of plans
for the rows of running tasks (`RunningRows`), and the monitoring API of its web page, where
that is on, for rows and bytes of stages. Spark Connect reports tasks and bytes by itself, and no
rows. With both, our own Python tasks report their rows and bytes (module `task_reports`). Watching
never fails a job: unavailable numbers are not shown.
"""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from paimon_magics.planning.job_progress import (
    Pace,
    Progress,
    RowCounts,
    StageProgress,
    StageRows,
    Work,
)
from paimon_magics.spark.jvm import is_connect, status_store
from paimon_magics.spark.listening import Listener, listen, listener
from paimon_magics.spark.stopping import raise_if_stopped
from paimon_magics.spark.task_reports import TaskCounts, heard, is_alone, read_reports

WorkKnown = Callable[[], Work]
"""Returns the amount of work; called once, from another thread, when a job takes long enough."""

_FIRST_SECONDS = 0.4  # a job that is done by then shows nothing
_EVERY_SECONDS = 0.3
_PAGE_TIMEOUT_SECONDS = 1.0
# The pause after the page failed to answer; it doubles with each further failure. The first answer
# takes seconds on a busy machine.
_PAGE_PAUSE_SECONDS = 1.0
_STAGES_ASKED_MAX = 8  # each time that the web page is asked
_COUNT_SECONDS = 1.0  # tasks report their rows less often
_ROWS_PER_BYTE_MAX = 100  # of a columnar file
_GROUP = "spark.jobGroup.id"


_VALUE = re.compile(r"^(\d+) -> ([\d,]+)$", re.MULTILINE)
_ROWS, _WRITTEN, _FETCHED = "number of output rows", "shuffle records written", "records read"
_TASKS = "MapInArrow"  # the plan's node of our read tasks
# Queries of other threads may register out of order, so that an id can be missing for a moment.
_IDS_AHEAD = 4
_QUERIES_MAX = 100  # kept of those that are not known to be ours


@contextmanager
def watched(spark: SparkSession, tag: str, work: WorkKnown | None = None) -> Iterator[None]:
    """Report the jobs of the body to the listener, if there is one; `tag` is unique to them."""

    def watch() -> _Watch:
        stages = _ConnectStages(spark) if is_connect(spark) else _LocalStages(spark, tag)
        return _Watched(stages, work).look, stages.end

    if listener() is None:
        yield
        return
    with heard(), _reported(watch):
        yield


def doing(what: str | Callable[[], str]) -> AbstractContextManager[None]:
    """Report to the listener, if there is one, the activity in the body, such as `Spark is
    starting`. A function is called again each time. Raises KeyboardInterrupt, before the body
    begins, if a stop of this thread was requested."""
    raise_if_stopped()
    started = time.monotonic()

    def look() -> Progress:
        text = what if isinstance(what, str) else what()
        return Progress(time.monotonic() - started, doing=text)

    return _reported(lambda: (look, lambda: None))


_Watch = tuple[Callable[[], Progress], Callable[[], None]]
"""What tells the progress, every now and then, and what ends that."""


@contextmanager
def _reported(begin: Callable[[], _Watch]) -> Iterator[None]:
    hears = listener()
    if hears is None:
        yield
        return
    listen(None)  # jobs inside belong to the same progress
    watch: _Watch | None = None
    with suppress(Exception):
        watch = begin()
    over = threading.Event()
    # One thread at a time calls the listener, and none once it is over.
    turn = threading.Lock()
    if watch is not None:
        run = copy_context().run  # the progress shows below the cell of this thread
        arguments = (_look_on, watch[0], hears, over, turn)
        threading.Thread(target=run, args=arguments, daemon=True).start()
    try:
        yield
    finally:
        over.set()
        with turn, suppress(Exception):
            hears(None)
        if watch is not None:
            with suppress(Exception):  # Spark may have been stopped
                watch[1]()
        listen(hears)


def _look_on(
    look: Callable[[], Progress], hears: Listener, over: threading.Event, turn: threading.Lock
) -> None:
    wait = _FIRST_SECONDS
    while not over.wait(wait):
        with suppress(Exception):
            progress = look()
            with turn:
                if not over.is_set():
                    hears(progress)
        wait = _EVERY_SECONDS


class _Watched:
    """Combines Spark's reports, the reports of our tasks, and the amount of work."""

    def __init__(self, stages: _LocalStages | _ConnectStages, work: WorkKnown | None) -> None:
        self._started = time.monotonic()
        self._stages = stages
        self._find_work = work
        self._work = Work()
        self._pace = Pace()
        self._ended: dict[tuple[int, int, bool], TaskCounts] = {}
        self._since: dict[int, float] = {}
        self._rows_since: dict[tuple[int, bool], float] = {}

    def look(self) -> Progress:
        if self._find_work is not None:
            find, self._find_work = self._find_work, None
            with suppress(Exception):
                self._work = find()
        stages = dict(self._stages.stages())
        for report in read_reports(self._ended):
            if self._stages.has(report.stage):
                known = stages.get(report.stage) or self._unknown(report.stage)
                stages[report.stage] = _with(known, report)
        now = time.monotonic()
        for id, stage in stages.items():
            if stage.rows_written if stage.writes else stage.rows_read:
                since = self._rows_since.setdefault((id, stage.writes), now)
                stages[id] = replace(stage, rows_seconds=now - since)
        seconds = now - self._started
        progress = Progress(seconds, tuple(stages[id] for id in sorted(stages)), work=self._work)
        self._pace = self._pace.then(seconds, progress.rows, progress.size_bytes)
        return replace(progress, pace=self._pace)

    def _unknown(self, id: int) -> StageProgress:
        """A stage that Spark has not reported yet."""
        now = time.monotonic()
        return StageProgress(0, 0, seconds=now - self._since.setdefault(id, now))


def _with(stage: StageProgress, counts: TaskCounts) -> StageProgress:
    """The stage with the counts of one of our tasks added."""
    if counts.writes:
        return replace(
            stage,
            writes=True,
            rows_written=stage.rows_written + counts.rows,
            bytes_written=stage.bytes_written + counts.size_bytes,
        )
    return replace(
        stage,
        rows_read=stage.rows_read + counts.rows,
        bytes_read=stage.bytes_read + counts.size_bytes,
    )


@dataclass
class _Seen:
    """A stage's progress, when it was first seen, and whether its numbers are final."""

    since: float
    progress: StageProgress
    is_final: bool = False


class _LocalStages:
    """Queries a session in this process. The watched jobs are those of a job group: the caller's
    own group if there is one, else `tag`."""

    def __init__(self, spark: SparkSession, tag: str) -> None:
        self._context = spark.sparkContext
        self._tracker = self._context.statusTracker()
        self._own = self._context.getLocalProperty(_GROUP) is None
        if self._own:
            self._context.setLocalProperty(_GROUP, tag)
        self._group = tag if self._own else str(self._context.getLocalProperty(_GROUP))
        self._ended: set[int] = (
            set() if self._own else set(self._tracker.getJobIdsForGroup(self._group))
        )
        self._seen: dict[int, _Seen] = {}
        self._ids: set[int] = set()
        self._page: str | None = ""
        self._page_pause = _PAGE_PAUSE_SECONDS
        self._page_next = 0.0
        self._counted = StageRows()
        self._count_next = 0.0
        self._rows: RunningRows | None = None
        with suppress(Exception):  # not as expected
            self._rows = RunningRows(spark)

    def end(self) -> None:
        if self._own:
            self._context.setLocalProperty(_GROUP, None)  # type: ignore[arg-type]

    def has(self, id: int) -> bool:
        """Whether tasks that report this stage belong to the watched jobs."""
        return id in self._ids

    def stages(self) -> dict[int, StageProgress]:
        active = set(self._tracker.getActiveStageIds())
        for id in self._tracker.getJobIdsForGroup(self._group):
            if id in self._ended:
                continue
            job = self._tracker.getJobInfo(id)
            if job is None:
                continue
            if job.status != "RUNNING":
                self._ended.add(id)
            for stage_id in job.stageIds:
                self._ids.add(int(stage_id))
                self._look_at(int(stage_id), active)
        self._count(active)
        self._read_page()
        return {
            id: _counted(seen.progress, self._counted.stages.get(id, RowCounts()))
            for id, seen in self._seen.items()
        }

    def _count(self, active: set[int]) -> None:
        """Update the rows that running tasks have reported to Spark."""
        if self._rows is None or time.monotonic() < self._count_next:
            return
        self._count_next = time.monotonic() + _COUNT_SECONDS
        running = {id for id, seen in self._seen.items() if not seen.progress.is_done}
        with suppress(Exception):
            self._counted = self._counted.then(self._rows.look(self._ids), running & active)

    def _look_at(self, id: int, active: set[int]) -> None:
        seen = self._seen.get(id)
        if seen is not None and seen.progress.is_done:
            return
        info = self._tracker.getStageInfo(id)
        # Spark knows at once which stages are active, and only later how many of their tasks run.
        if info is None or (id not in active and not info.numCompletedTasks):
            return  # it waits, or need not run
        now = time.monotonic()
        if seen is None:
            seen = self._seen[id] = _Seen(now, StageProgress(0, 0))
        seen.progress = replace(
            seen.progress,
            tasks=info.numTasks,
            tasks_done=info.numCompletedTasks,
            tasks_running=info.numActiveTasks,
            seconds=now - seen.since,
        )

    def _read_page(self) -> None:
        """Read rows and bytes of stages that run, or ended since the last time."""
        if self._page == "":
            address = self._context.uiWebUrl
            application = self._context.applicationId
            path = f"{address}/api/v1/applications/{application}/stages"
            self._page = path if address else None
        stages = [id for id in sorted(self._seen) if not self._seen[id].is_final]
        for id in stages[-_STAGES_ASKED_MAX:]:
            if self._page is None or time.monotonic() < self._page_next:
                return
            seen = self._seen[id]
            try:
                attempts = _json_at(f"{self._page}/{id}?details=false")
            except Exception:  # busy, behind a login, or far away
                self._page_next = time.monotonic() + self._page_pause
                self._page_pause *= 2
                return
            self._page_pause = _PAGE_PAUSE_SECONDS
            rows = sum(attempt["inputRecords"] for attempt in attempts)
            size_bytes = sum(attempt["inputBytes"] for attempt in attempts)
            seen.progress = replace(
                seen.progress,
                rows_read=rows,
                # Hadoop does not count vectored reads of local files (several ranges at once).
                bytes_read=size_bytes if size_bytes * _ROWS_PER_BYTE_MAX >= rows else 0,
                rows_shuffled=sum(attempt["shuffleWriteRecords"] for attempt in attempts),
                rows_fetched=sum(attempt["shuffleReadRecords"] for attempt in attempts),
            )
            seen.is_final = all(attempt["status"] != "ACTIVE" for attempt in attempts)


def _counted(stage: StageProgress, counts: RowCounts) -> StageProgress:
    """The stage with `counts` where they are greater: Spark may update its own only when a task
    ends."""
    return replace(
        stage,
        rows_read=max(stage.rows_read, counts.read),
        rows_shuffled=max(stage.rows_shuffled, counts.shuffled),
        rows_fetched=max(stage.rows_fetched, counts.fetched),
    )


class _ConnectStages:
    """Keeps the reports of a Spark Connect session about a statement's jobs, in order."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._seen: dict[int, _Seen] = {}
        spark.registerProgressHandler(self._note)  # type: ignore[arg-type]

    def end(self) -> None:
        self._spark.removeProgressHandler(self._note)  # type: ignore[arg-type]

    def has(self, id: int) -> bool:
        # Spark Connect reports stages some seconds after they began.
        return id in self._seen or is_alone()

    def stages(self) -> dict[int, StageProgress]:
        return {id: seen.progress for id, seen in list(self._seen.items())}

    def _note(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        """PySpark's progress handler, called in the thread that waits for the job."""
        running = inflight_tasks
        for stage in stages or ():
            if not stage.num_completed_tasks and not running:
                continue  # it waits, or need not run
            now = time.monotonic()
            seen = self._seen.get(stage.stage_id)
            if seen is None:
                seen = _Seen(now, StageProgress(0, 0))
            is_done = stage.num_completed_tasks >= stage.num_tasks
            if not seen.progress.is_done or not seen.progress.tasks:
                seen.progress = StageProgress(
                    stage.num_tasks,
                    stage.num_completed_tasks,
                    0 if is_done else running,
                    bytes_read=stage.num_bytes_read,
                    seconds=now - seen.since,
                )
            self._seen[stage.stage_id] = seen


def _json_at(address: str) -> Any:
    # Not through a proxy: it is this process's own JVM.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address, timeout=_PAGE_TIMEOUT_SECONDS) as answer:
        return json.load(answer)


# Counts the rows that the tasks of running queries have read and shuffled so far, in a session in
# this process.
#
# Tasks report them with their heartbeats (`spark.executor.heartbeatInterval`). In local mode the
# metrics of stages stay 0 until a task ends, since heartbeats lose their names there. The metrics
# of plans are kept by number, and are updated. Spark shows them on its SQL page and has no public
# way to ask for them while a query runs, so the page's own store is asked. Where it is not as
# expected, nothing is counted.


class _Query:
    """A query (an "SQL execution") with the ids of the metrics that count its rows."""

    def __init__(self, id: int) -> None:
        self.id = id
        self.is_ours = False
        self.counts = RowCounts()
        self.is_over = False
        self._plan = 0
        self._numbers: dict[int, str] = {}

    def look(self, store: Any, known: Any) -> RowCounts:
        """Read and return the query's counts so far."""
        plan = known.metrics().hashCode()
        if plan != self._plan:  # adaptive execution changes the plan while it runs
            self._numbers = _numbers(store.planGraph(self.id))
            self._plan = plan
        over = bool(known.completionTime().isDefined())
        totals = {_ROWS: 0, _WRITTEN: 0, _FETCHED: 0}
        for number, value in _VALUE.findall(store.executionMetrics(self.id).mkString("\n")):
            name = self._numbers.get(int(number))
            if name is not None:
                totals[name] += int(value.replace(",", ""))
        self.counts = RowCounts(totals[_ROWS], totals[_WRITTEN], totals[_FETCHED])
        self.is_over = over
        return self.counts


class RunningRows:
    """Counts the rows of queries that begin from now on."""

    def __init__(self, spark: SparkSession) -> None:
        self._store = status_store(spark)
        count = self._store.executionsCount()
        last = self._store.executionsList(count - 1, 1).last().executionId() if count else -1
        self._next_id = last + 1
        self._queries: list[_Query] = []

    def look(self, stages: Set[int]) -> RowCounts:
        """The rows of all queries that have one of the stages `stages`."""
        self._find()
        total = RowCounts()
        for query in self._queries:
            if not query.is_over:
                execution = self._store.execution(query.id)
                if not execution.isDefined():
                    continue
                known = execution.get()
                if not query.is_ours:
                    ids = known.stages().mkString(",")
                    query.is_ours = any(int(id) in stages for id in ids.split(",") if id)
                if query.is_ours:
                    query.look(self._store, known)
            total = total.plus(query.counts)
        return total

    def _find(self) -> None:
        """Add the queries that have begun since the last time."""
        ahead = 0
        while ahead < _IDS_AHEAD:
            if self._store.execution(self._next_id + ahead).isDefined():
                for id in range(self._next_id, self._next_id + ahead + 1):
                    self._queries.append(_Query(id))
                self._next_id += ahead + 1
                ahead = 0
            else:
                ahead += 1
        ours = [query for query in self._queries if query.is_ours]
        others = [query for query in self._queries if not query.is_ours]
        self._queries = ours + others[-_QUERIES_MAX:]


def _numbers(graph: Any) -> dict[int, str]:
    """The names, by id, of a plan's metrics that count rows: the output rows of its leaves, except
    the Range that numbers our read tasks, and the rows that shuffles write and read."""
    edges = [graph.edges().apply(place) for place in range(graph.edges().size())]
    feeds = {edge.fromId(): edge.toId() for edge in edges}
    fed = set(feeds.values())
    nodes = graph.allNodes()
    names: dict[int, str] = {}
    counted: list[tuple[int, int, str]] = []
    for place in range(nodes.size()):
        node = nodes.apply(place)
        id = node.id()
        names[id] = node.name()
        is_shuffle = "Exchange" in names[id]
        if id in fed and not is_shuffle:
            continue
        metrics = node.metrics()
        for at in range(metrics.size()):
            metric = metrics.apply(at)
            name = metric.name()
            if name == _ROWS if not is_shuffle else name in (_WRITTEN, _FETCHED):
                counted.append((id, metric.accumulatorId(), name))
    return {
        number: name
        for id, number, name in counted
        if name != _ROWS or not (names[id] == "Range" and names.get(feeds.get(id, -1)) == _TASKS)
    }
