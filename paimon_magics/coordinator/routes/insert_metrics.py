"""Small inserts for monitoring: facts for health, metrics for Prometheus, rows of the status page.
Nothing is read from the log or the disk for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit
from paimon_magics.coordinator.inserts.engine.table_queue import TableQueue
from paimon_magics.coordinator.inserts.queue.values import Reason, backlog
from paimon_magics.coordinator.service.health import Fact

__all__ = ["QUEUE_COLUMNS", "InsertMetrics", "insert_facts", "queue_rows"]

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
        counts = self._group.counts
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
            value=self._group.append_seconds,
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
    yield Fact("child_busy_seconds", group.flusher_busy_seconds, subject="flusher")


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
