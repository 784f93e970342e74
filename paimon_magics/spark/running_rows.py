"""Counts the rows that the tasks of running queries have read and shuffled so far, in a session in
this process.

Tasks report them with their heartbeats (`spark.executor.heartbeatInterval`). In local mode the
metrics of stages stay 0 until a task ends, since heartbeats lose their names there. The metrics of
plans are kept by number, and are updated. Spark shows them on its SQL page and has no public way to
ask for them while a query runs, so the page's own store is asked (`SharedState.statusStore`, public
in Scala and unstable). The store exists without the page, too. Where it is not as expected, nothing
is counted.
"""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any

from pyspark.sql import SparkSession

from paimon_magics.planning.jobs.stage_rows import RowCounts

__all__ = ["RunningRows"]

_VALUE = re.compile(r"^(\d+) -> ([\d,]+)$", re.MULTILINE)
_ROWS, _WRITTEN, _FETCHED = "number of output rows", "shuffle records written", "records read"
_TASKS = "MapInArrow"  # the plan's node of our read tasks
# Queries of other threads may register out of order, so that an id can be missing for a moment.
_IDS_AHEAD = 4
_QUERIES_MAX = 100  # kept of those that are not known to be ours


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
        found = {_ROWS: 0, _WRITTEN: 0, _FETCHED: 0}
        for number, value in _VALUE.findall(store.executionMetrics(self.id).mkString("\n")):
            name = self._numbers.get(int(number))
            if name is not None:
                found[name] += int(value.replace(",", ""))
        self.counts = RowCounts(found[_ROWS], found[_WRITTEN], found[_FETCHED])
        self.is_over = over
        return self.counts


class RunningRows:
    """Counts the rows of queries that begin from now on."""

    def __init__(self, spark: SparkSession) -> None:
        session: Any = spark
        self._store = session._jsparkSession.sharedState().statusStore()
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
                found = self._store.execution(query.id)
                if not found.isDefined():
                    continue
                known = found.get()
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
