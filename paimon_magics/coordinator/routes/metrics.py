"""A coordinator's metrics, for Prometheus."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from paimon_magics.coordinator.audit.trail import Trail
from paimon_magics.coordinator.core.values import FINISHED, Phase
from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit
from paimon_magics.coordinator.inserts.engine.replies import TableQueue
from paimon_magics.coordinator.inserts.queue.values import Reason, backlog
from paimon_magics.coordinator.service.compaction_scheduler import CompactionScheduler
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.health import NAMES, Fact, Health, HealthMonitor
from paimon_magics.planning.compaction.schedule import State

_OVERDUE_SECONDS_MAX = 60.0

QUEUE_COLUMNS = (
    "table",
    "state",
    "mode",
    "#acknowledged",
    "#visible",
    "#rows waiting",
    "#bytes waiting",
    "#oldest",
    "last error",
)

_COUNTED = (
    ("records", "insert_requests", "Acknowledged inserts, without repeated inserts."),
    ("rows", "inserted_rows", "Rows of inserts that were acknowledged."),
    ("duplicates", "insert_duplicates", "Repeated inserts, which got the first insert's answer."),
    (
        "groups",
        "log_syncs",
        "How often the log was synced, each time for all inserts that had arrived.",
    ),
    ("flushes", "insert_batches", "Batches of inserts that were loaded."),
)


class Metrics:
    """All metrics. Handlers of requests count `answers` and `commit_seconds`; the others are read
    when they are collected."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.registry = CollectorRegistry()
        self.answers = Counter(
            "paimon_coordinator_answers_total",
            "Answers to requests about transactions, by request and answer.",
            ["asked", "answer"],
            registry=self.registry,
        )
        self.commit_seconds = Histogram(
            "paimon_coordinator_commit_seconds",
            "From a commit request to its answer.",
            registry=self.registry,
            buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
        )
        self.add(lambda: _coordinator_metrics(coordinator))

    def add(self, collect: Callable[[], Iterable[Metric]]) -> None:
        """Register `collect`, which returns further metrics at each scrape. For any thread."""
        self.registry.register(Collected(collect))


@dataclass(frozen=True)
class Collected(Collector):
    """Metrics that `families` returns at each scrape."""

    families: Callable[[], Iterable[Metric]]

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of this moment."""
        return self.families()


_Values = Iterable[tuple[str, float]]


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(f"paimon_coordinator_{name}", what, value=value)


def _counter(name: str, what: str, value: float) -> Metric:
    return CounterMetricFamily(f"paimon_coordinator_{name}", what, value=value)


def _gauges(name: str, what: str, label: str, values: _Values) -> Metric:
    return _labelled(GaugeMetricFamily(f"paimon_coordinator_{name}", what, labels=[label]), values)


def _counters(name: str, what: str, label: str, values: _Values) -> Metric:
    family = CounterMetricFamily(f"paimon_coordinator_{name}", what, labels=[label])
    return _labelled(family, values)


def _labelled(family: GaugeMetricFamily | CounterMetricFamily, values: _Values) -> Metric:
    for text, value in values:
        family.add_metric([text], value)
    return family


def _coordinator_metrics(coordinator: Coordinator) -> Iterator[Metric]:
    state, upkeep = coordinator.state, coordinator.upkeep
    phases = collections.Counter(transaction.phase for transaction in state.transactions.values())
    finished = coordinator.finished
    is_owner = coordinator.is_owner
    yield _gauges(
        "transactions",
        "Transactions that are not finished, by phase.",
        "phase",
        ((phase.value, phases[phase]) for phase in Phase if phase not in FINISHED),
    )
    yield _gauge("owner", "Whether this coordinator owns the warehouse's commits.", is_owner)
    epoch = coordinator.worker.epoch or 0
    yield _gauge("epoch", "The epoch in which it owns them, which each takeover increments.", epoch)
    yield _counters(
        "finished",
        "Transactions that were finished since the start, by outcome.",
        "phase",
        ((phase.value, finished.get(phase, 0)) for phase in FINISHED),
    )
    is_paused = state.pause is not None
    yield _gauge("paused", "1 while nothing new may begin, else 0.", is_paused)
    yield _gauge(
        "stopped_tables",
        "Tables that take no commits until an administrator has checked them.",
        len(state.stopped),
    )
    yield _gauge(
        "watched_snapshots",
        "Published snapshots that a writer outside could overwrite with loss.",
        sum(map(len, state.watched.values())),
    )
    yield _counter(
        "republished",
        "Commits that were overwritten and published again since the start.",
        coordinator.republished,
    )
    leases = coordinator.leases.count()
    yield _gauge("read_leases", "Snapshots that sessions hold read leases on.", leases)
    compacted = coordinator.compactions.counts().total()
    yield _gauge("compacted_buckets", "Buckets that open transactions compact.", compacted)
    expired = upkeep.expired
    yield _counter("expired_snapshots", "Snapshots that were expired since the start.", expired)
    yield _counter(
        "expired_partitions",
        "Partitions that were expired since the start.",
        upkeep.expired_partitions,
    )
    tags = upkeep.changed_tags
    yield _counter("kept_up_tags", "Tags created or deleted by their tables' options.", tags)
    errors = coordinator.recent_errors.total
    yield _counter("errors", "What went wrong since the start, warnings included.", errors)
    yield _counter(
        "upkeep_failures",
        "How often snapshots could not expire since the start.",
        upkeep.failures,
    )


def health_metrics(monitor: HealthMonitor) -> Iterator[Metric]:
    """The facts of the coordinator's health, and whether it is ready."""
    health = monitor.now()
    is_ready = health.is_ready
    yield _gauge("ready", "1 while inserts and commits are accepted, else 0.", is_ready)
    yield from fact_metrics(health)


def fact_metrics(health: Health) -> Iterator[Metric]:
    """The facts of a coordinator's health, and those of them with a problem."""
    problems = GaugeMetricFamily(
        "paimon_coordinator_problem",
        "1 for a fact with a problem; with blocks=1 no insert or commit is accepted.",
        labels=["fact", "subject", "blocks"],
    )
    families: dict[str, GaugeMetricFamily] = {}
    seen: set[tuple[str, str]] = set()
    for fact in health.facts:
        if (fact.name, fact.subject) in seen:  # a renamed table, and a new one of its name
            continue
        seen.add((fact.name, fact.subject))
        label = _SUBJECTS.get(fact.name, "subject")
        family = families.get(fact.name) or GaugeMetricFamily(
            f"paimon_coordinator_{fact.name}", NAMES[fact.name], labels=[label]
        )
        families[fact.name] = family
        family.add_metric([fact.subject], fact.value)
        if fact.problem or not fact.subject:
            labels = [fact.name, fact.subject, str(int(fact.blocks))]
            problems.add_metric(labels, int(bool(fact.problem)))
    yield from families.values()
    yield problems


_SUBJECTS = {
    "commit_retries": "transaction",
    **dict.fromkeys(("insert_overdue_seconds", "insert_closed", "table_stopped"), "table"),
    **dict.fromkeys(("thread_busy_seconds", "thread_waiting", "thread_failures"), "thread"),
    "child_busy_seconds": "process",
}


def compaction_metrics(compactions: CompactionScheduler) -> Iterator[Metric]:
    """The coordinator's own compactions: counts since the start, and the tables by state now."""
    for key, name, what in _COMPACTED:
        yield _counter(name, what, compactions.counts[key])
    tables = compactions.tables()
    states = collections.Counter(state for state, _ in tables)
    yield _gauges(
        "compaction_tables",
        "Tables whose compaction is scheduled here, by state.",
        "state",
        ((state.value, states[state]) for state in State),
    )
    yield _gauge(
        "compaction_waiting_bytes",
        "Bytes of files above their tables' triggers.",
        sum(table.seen.read_bytes for _, table in tables),
    )
    yield _gauge(
        "compaction_large_buckets",
        "Buckets above their triggers that are too large for this coordinator.",
        sum(table.seen.large_buckets for _, table in tables),
    )
    is_paused = compactions.pause is not None
    yield _gauge("compactions_paused", "1 while no compaction may begin, else 0.", is_paused)


_COMPACTED = (
    ("portions", "compactions", "Compactions that were made since the start."),
    ("buckets", "compactions_buckets", "Buckets that they compacted."),
    ("read_bytes", "compactions_bytes", "Bytes of the files that they rewrote."),
    ("failures", "compaction_failures", "Compactions that failed."),
)


def audit_metrics(trail: Trail) -> Iterator[Metric]:
    """The audit log's metric."""
    yield _counter(
        "audit_not_kept",
        "Refused requests that were only counted, because there were too many.",
        trail.not_kept,
    )


# Small inserts for monitoring: facts for health, metrics for Prometheus, rows of the status page.
# Nothing is read from the log or the disk for it.


def insert_metrics(
    group: GroupCommit, now_ms: int, refused: Mapping[str, int], dead_letters: int
) -> Iterator[Metric]:
    """Counts of small inserts since the start, and the rows that wait in each table now. `refused`
    counts inserts that were refused before their rows were checked.
    """
    counts = group.owner.replies.counts
    for key, name, what in _COUNTED:
        yield _counter(name, what, counts[key])
    by_reason = {reason.value: counts[f"refused_{reason.value}"] for reason in Reason}
    yield _counters(
        "inserts_refused",
        "Inserts that were refused regardless of their rows, by reason.",
        "reason",
        [*by_reason.items(), *refused.items()],
    )
    yield _counter(
        "log_seconds",
        "How long appending to the log took since the start, syncs included.",
        group.owner.appending.append_seconds,
    )
    what = "Inserts that were acknowledged but could not be loaded."
    yield _gauge("dead_letters", what, dead_letters)
    tables = list(group.tables.values())
    names = [str(table.name) for table in tables]
    waiting = [(*backlog(table.queue), _oldest_seconds(table, now_ms)) for table in tables]
    for position, (name, what) in enumerate(_WAITING):
        values = [(text, row[position]) for text, row in zip(names, waiting, strict=True)]
        yield _gauges(f"insert_{name}", what, "table", values)


_WAITING = (
    ("waiting_rows", "Rows that are acknowledged but not visible."),
    ("waiting_bytes", "Their bytes in the log."),
    ("oldest_seconds", "How long the oldest of them has waited."),
)


def insert_facts(group: GroupCommit, now_ms: int) -> Iterator[Fact]:
    """The facts about small inserts: overdue rows, closed tables, the process that writes files."""
    if group.problem is not None:
        yield Fact("running", 0, group.problem, blocks=True, subject="small inserts")
    for table in list(group.tables.values()):
        queue, name = table.queue, str(table.name)
        if not queue.batches and not queue.closed:
            continue
        overdue = max(0.0, _oldest_seconds(table, now_ms) - queue.thresholds.interval_ms / 1000)
        problem = ""
        if overdue > _OVERDUE_SECONDS_MAX:
            why = f": {queue.last_error}" if queue.last_error else "."
            problem = f"Rows of `{name}` have waited {overdue:.0f} s longer than they should{why}"
        yield Fact("insert_overdue_seconds", overdue, problem, subject=name, table=table.name)
        problem = f"`{name}` accepts no inserts: {queue.closed}" if queue.closed else ""
        yield Fact("insert_closed", int(bool(problem)), problem, subject=name, table=table.name)
    yield Fact("child_busy_seconds", group.flusher.busy_seconds, subject="flusher")


def queue_rows(group: GroupCommit, now_ms: int) -> list[tuple[object, ...]]:
    """A row of the status page for each table, in `QUEUE_COLUMNS`."""
    rows: list[tuple[object, ...]] = []
    for table in sorted(group.tables.values(), key=lambda each: str(each.name)):
        queue = table.queue
        waiting, size_bytes = backlog(queue)
        state = "closed" if queue.closed else "held" if queue.holds else "open"
        rows.append(
            (
                str(table.name),
                state,
                None if table.mode is None else table.mode.value,
                queue.acknowledged,
                queue.published,
                waiting,
                size_bytes,
                f"{_oldest_seconds(table, now_ms):,.0f} s" if queue.batches else None,
                queue.closed or queue.last_error or None,
            )
        )
    return rows


def _oldest_seconds(table: TableQueue, now_ms: int) -> float:
    batches = table.queue.batches
    return max(0, now_ms - batches[0].since_ms) / 1000 if batches else 0.0
