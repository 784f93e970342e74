"""A coordinator's metrics, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from paimon_magics.coordinator.audit.trail import Trail
from paimon_magics.coordinator.core import FINISHED, Phase
from paimon_magics.coordinator.service.compaction_scheduler import CompactionScheduler
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.health import NAMES, HealthMonitor
from paimon_magics.planning.compaction.schedule import State

__all__ = ["AuditMetrics", "CompactionMetrics", "HealthMetrics", "Metrics"]


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
                    return sum(held.phase is phase for held in coordinator.state.held.values())

                phases.labels(phase.value).set_function(count)
        is_owner = Gauge(
            "paimon_coordinator_owner",
            "Whether this coordinator owns the warehouse's commits.",
            registry=self.registry,
        )
        is_owner.set_function(lambda: coordinator.epoch != 0 and coordinator.deposed is None)
        epoch = Gauge(
            "paimon_coordinator_epoch",
            "The epoch in which it owns them, one more at each takeover.",
            registry=self.registry,
        )
        epoch.set_function(lambda: coordinator.epoch or 0)
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
