"""A coordinator's metrics, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from paimon_magics.coordinator.audit.trail import Trail
from paimon_magics.coordinator.core.values import FINISHED, Phase
from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit
from paimon_magics.coordinator.inserts.engine.replies import TableQueue
from paimon_magics.coordinator.inserts.queue.values import Reason, backlog
from paimon_magics.coordinator.service.compaction_scheduler import CompactionScheduler
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.health import NAMES, Fact, HealthMonitor
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
    ("records", "insert_requests", "Inserts that were acknowledged, but for repeated ones."),
    ("rows", "inserted_rows", "Rows of inserts that were acknowledged."),
    ("duplicates", "insert_duplicates", "Repeated inserts, which got the first one's answer."),
    ("groups", "log_syncs", "How often the log was synced, each time for all that had come."),
    ("flushes", "insert_batches", "Batches of inserts that were loaded."),
)


class Metrics:
    """All metrics. The handlers of requests count `answers` and `commit_seconds`; the others are
    read from the coordinator when they are collected."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.registry = CollectorRegistry()
        self.answers = Counter(
            "paimon_coordinator_answers_total",
            "Answers to requests about transactions, by what was asked and what was answered.",
            ["asked", "answer"],
            registry=self.registry,
        )
        self.commit_seconds = Histogram(
            "paimon_coordinator_commit_seconds",
            "From a commit request to its answer.",
            registry=self.registry,
            buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
        )
        phases = Gauge(
            "paimon_coordinator_transactions",
            "Transactions that are not finished, by phase.",
            ["phase"],
            registry=self.registry,
        )
        for phase in Phase:
            if phase not in FINISHED:

                def count(phase: Phase = phase) -> float:
                    return sum(
                        held.phase is phase for held in coordinator.state.transactions.values()
                    )

                phases.labels(phase.value).set_function(count)
        is_owner = Gauge(
            "paimon_coordinator_owner",
            "Whether this coordinator owns the warehouse's commits.",
            registry=self.registry,
        )
        is_owner.set_function(lambda: coordinator.is_owner)
        epoch = Gauge(
            "paimon_coordinator_epoch",
            "The epoch in which it owns them, one more at each takeover.",
            registry=self.registry,
        )
        epoch.set_function(lambda: coordinator.worker.epoch or 0)
        self.registry.register(_Finished(coordinator))
        self.registry.register(_Watched(coordinator))
        self.registry.register(_Upkeep(coordinator))


class HealthMetrics(Collector):
    """The facts of the coordinator's health, and whether it is ready."""

    def __init__(self, monitor: HealthMonitor) -> None:
        self._monitor = monitor

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """For prometheus_client: the facts of this moment."""
        health = self._monitor.now()
        yield GaugeMetricFamily(
            "paimon_coordinator_ready",
            "1 while inserts and commits would be taken, else 0.",
            value=int(health.is_ready),
        )
        problems = GaugeMetricFamily(
            "paimon_coordinator_problem",
            "1 for a fact with something wrong; with blocks=1 nothing is taken.",
            labels=["fact", "subject", "blocks"],
        )
        named: dict[str, GaugeMetricFamily] = {}
        seen: set[tuple[str, str]] = set()
        for fact in health.facts:
            if (fact.name, fact.subject) in seen:  # a renamed table, and a new one of its name
                continue
            seen.add((fact.name, fact.subject))
            label = _SUBJECTS.get(fact.name, "subject")
            family = named.get(fact.name) or GaugeMetricFamily(
                f"paimon_coordinator_{fact.name}", NAMES[fact.name], labels=[label]
            )
            named[fact.name] = family
            family.add_metric([fact.subject], fact.value)
            if fact.problem or not fact.subject:
                labels = [fact.name, fact.subject, str(int(fact.blocks))]
                problems.add_metric(labels, int(bool(fact.problem)))
        yield from named.values()
        yield problems


_SUBJECTS = {
    "commit_retries": "transaction",
    **dict.fromkeys(("insert_overdue_seconds", "insert_closed", "table_stopped"), "table"),
    **dict.fromkeys(("thread_busy_seconds", "thread_waiting", "thread_failures"), "thread"),
    "child_busy_seconds": "process",
}


class _Finished(Collector):
    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def collect(self) -> Iterator[CounterMetricFamily]:
        """For prometheus_client: the counts of this moment."""
        finished = CounterMetricFamily(
            "paimon_coordinator_finished",
            "Transactions that were finished since the start, by how.",
            labels=["phase"],
        )
        for phase in FINISHED:
            finished.add_metric([phase.value], self._coordinator.finished.get(phase, 0))
        yield finished


class _Watched(Collector):
    """The pause, stopped tables, watched snapshots, and commits published again."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """For prometheus_client: the counts of this moment."""
        state = self._coordinator.state
        yield GaugeMetricFamily(
            "paimon_coordinator_paused",
            "1 while nothing new may begin, else 0.",
            value=int(state.pause is not None),
        )
        yield GaugeMetricFamily(
            "paimon_coordinator_stopped_tables",
            "Tables that take no commits until somebody has looked at them.",
            value=len(state.stopped),
        )
        yield GaugeMetricFamily(
            "paimon_coordinator_watched_snapshots",
            "Published snapshots that a writer outside could overwrite with loss.",
            value=sum(map(len, state.watched.values())),
        )
        yield CounterMetricFamily(
            "paimon_coordinator_republished",
            "Commits that were overwritten and published again since the start.",
            value=self._coordinator.republished,
        )


class _Upkeep(Collector):
    """Read leases, compactions, expiry and errors."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """For prometheus_client: the counts of this moment."""
        yield GaugeMetricFamily(
            "paimon_coordinator_read_leases",
            "Snapshots that sessions hold read leases on.",
            value=self._coordinator.leases.count(),
        )
        yield GaugeMetricFamily(
            "paimon_coordinator_compacted_buckets",
            "Buckets that open transactions compact.",
            value=self._coordinator.compactions.counts().total(),
        )
        yield CounterMetricFamily(
            "paimon_coordinator_expired_snapshots",
            "Snapshots that were expired since the start.",
            value=self._coordinator.upkeep.expired,
        )
        yield CounterMetricFamily(
            "paimon_coordinator_errors",
            "What went wrong since the start, warnings included.",
            value=self._coordinator.recent_errors.total,
        )
        yield CounterMetricFamily(
            "paimon_coordinator_upkeep_failures",
            "How often snapshots could not expire since the start.",
            value=self._coordinator.upkeep.failures,
        )


class CompactionMetrics(Collector):
    """The compactions that the coordinator makes by itself."""

    def __init__(self, compactions: CompactionScheduler) -> None:
        self._compactions = compactions

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """For prometheus_client: the counts since the start, and the tables by state now."""
        counts = self._compactions.counts
        for key, name, what in _COMPACTED:
            yield CounterMetricFamily(f"paimon_coordinator_{name}", what, value=counts[key])
        found = self._compactions.tables()
        tables = GaugeMetricFamily(
            "paimon_coordinator_compaction_tables",
            "Tables that are looked after, by what becomes of them.",
            labels=["state"],
        )
        for state in State:
            tables.add_metric([state.value], sum(one is state for one, _ in found))
        yield tables
        yield GaugeMetricFamily(
            "paimon_coordinator_compaction_waiting_bytes",
            "Bytes of files above their tables' triggers.",
            value=sum(one.seen.read_bytes for _, one in found),
        )
        yield GaugeMetricFamily(
            "paimon_coordinator_compaction_large_buckets",
            "Buckets above their triggers that are too large for this coordinator.",
            value=sum(one.seen.large_buckets for _, one in found),
        )
        yield GaugeMetricFamily(
            "paimon_coordinator_compactions_paused",
            "1 while no compaction may begin, else 0.",
            value=int(self._compactions.pause is not None),
        )


_COMPACTED = (
    ("portions", "compactions", "Compactions that were made since the start."),
    ("buckets", "compactions_buckets", "Buckets that they compacted."),
    ("read_bytes", "compactions_bytes", "Bytes of the files that they rewrote."),
    ("failures", "compaction_failures", "Compactions that failed."),
)


class AuditMetrics(Collector):
    """The collector of the audit log's metrics, for prometheus_client."""

    def __init__(self, trail: Trail) -> None:
        self._trail = trail

    def collect(self) -> Iterator[CounterMetricFamily]:
        """For prometheus_client: the count since the start."""
        yield CounterMetricFamily(
            "paimon_coordinator_audit_not_kept",
            "Refused requests of which only the number is kept, since there were too many.",
            value=self._trail.not_kept,
        )


# Small inserts for monitoring: facts for health, metrics for Prometheus, rows of the status page.
# Nothing is read from the log or the disk for it.


class InsertMetrics(Collector):
    """The collector of small inserts' metrics, for prometheus_client."""

    def __init__(
        self,
        group: GroupCommit,
        now_ms: Callable[[], int],
        refused: Mapping[str, int],
        dead_letters: Callable[[], int],
    ) -> None:
        self._group = group
        self._now_ms = now_ms
        self._dead_letters = dead_letters
        self._refused = refused  # before their rows were looked at

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield the counters since the start, and what waits in each table now."""
        counts = self._group.owner.replies.counts
        for key, name, what in _COUNTED:
            yield CounterMetricFamily(f"paimon_coordinator_{name}", what, value=counts[key])
        refused = CounterMetricFamily(
            "paimon_coordinator_inserts_refused",
            "Inserts that were refused whatever their rows are, by why.",
            labels=["reason"],
        )
        for reason in Reason:
            refused.add_metric([reason.value], counts[f"refused_{reason.value}"])
        for why, count in self._refused.items():
            refused.add_metric([why], count)
        yield refused
        yield CounterMetricFamily(
            "paimon_coordinator_log_seconds",
            "How long appending to the log took since the start, syncs included.",
            value=self._group.owner.appending.append_seconds,
        )
        yield GaugeMetricFamily(
            "paimon_coordinator_dead_letters",
            "Inserts that were acknowledged and could not be loaded.",
            value=self._dead_letters(),
        )
        yield from self._tables()

    def _tables(self) -> Iterator[GaugeMetricFamily]:
        named = [
            GaugeMetricFamily(f"paimon_coordinator_insert_{name}", what, labels=["table"])
            for name, what in (
                ("waiting_rows", "Rows that are acknowledged and not visible."),
                ("waiting_bytes", "Their bytes in the log."),
                ("oldest_seconds", "How long the oldest of them has waited."),
            )
        ]
        for table in list(self._group.tables.values()):
            rows, size_bytes = backlog(table.queue)
            values = rows, size_bytes, _oldest_seconds(table, self._now_ms())
            for family, value in zip(named, values, strict=True):
                family.add_metric([str(table.name)], value)
        yield from named


def insert_facts(group: GroupCommit, now_ms: int) -> Iterator[Fact]:
    """The facts about small inserts: what waits longer than it should, closed tables, the process
    that writes files."""
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
            problem = f"Rows of `{name}` wait since {overdue:.0f} s longer than they should{why}"
        yield Fact("insert_overdue_seconds", overdue, problem, subject=name, table=table.name)
        problem = f"`{name}` takes no inserts: {queue.closed}" if queue.closed else ""
        yield Fact("insert_closed", int(bool(problem)), problem, subject=name, table=table.name)
    yield Fact("child_busy_seconds", group.flusher.busy_seconds, subject="flusher")


def queue_rows(group: GroupCommit, now_ms: int) -> list[tuple[object, ...]]:
    """A row of the status page for each table, in `QUEUE_COLUMNS`."""
    rows: list[tuple[object, ...]] = []
    for table in sorted(group.tables.values(), key=lambda one: str(one.name)):
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
