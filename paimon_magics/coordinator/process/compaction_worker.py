"""The process that compacts tables for a coordinator, with little priority.

It is an ordinary client of its coordinator: it opens a transaction, claims buckets, and requests
the commit. If it dies, its transaction's lease expires, which removes its files.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from paimon_magics.coordinator.client.compacting import (
    Compacted,
    CompactionReceipt,
    Messages,
    commit_compaction,
    compact_plan,
)
from paimon_magics.coordinator.client.interface import Attempts, CoordinatorClient
from paimon_magics.coordinator.client.postponed_buckets import Moved, settle_postponed
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.runtime.children import do_jobs
from paimon_magics.coordinator.service.compaction_scheduler import (
    OUT_OF_MEMORY,
    Budget,
    CompactionAnswer,
    CompactionJob,
)
from paimon_magics.errors import (
    OutdatedPlanError,
    PaimonMagicsError,
    UnknownNameError,
    UnknownOutcomeError,
)
from paimon_magics.origin import user_name
from paimon_magics.planning.commits.requests import CommitReceipt, CommitRequest, Transaction
from paimon_magics.planning.compaction.schedule import Seen, not_compacted
from paimon_magics.redaction import redacted
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.compaction.planning import CompactionScope
from paimon_magics.tables.compaction.plans import Plan, planned, rewritten_here
from paimon_magics.tables.compaction.postponed import PostponedRows, plan_postponed
from paimon_magics.tables.compaction.scopes import fullest_bucket
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.snapshots.other_engines import OtherEngines
from paimon_magics.tables.snapshots.provenance import PREFIX
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import completed
from paimon_magics.tables.writing.writer import write_batches

ENGINE = "auto_compact"
"""The engine's name in the transactions and snapshots of these compactions."""

_NICENESS = 10
_RERUNS_MAX = 3
_TABLES_MAX = 8  # whose manifests are kept
_LOOK_SECONDS = 0.5
_SCOPE = CompactionScope(is_full=False)
_Receipt = TypeVar("_Receipt")


def main() -> None:
    """Do jobs until the input ends."""
    os.nice(_NICENESS)
    worker = _Worker()
    do_jobs(worker.answer)


class _Worker:
    """Keeps the catalog, the client and manifests from one job to the next."""

    def __init__(self) -> None:
        self._target: tuple[Mapping[str, str], str, str] | None = None
        self._compactor: Compactor | None = None
        self._client: RemoteCoordinator | None = None

    def answer(self, job: CompactionJob) -> CompactionAnswer:
        """Do a job. The answer reports failures; nothing is raised."""
        _keep_within(job.budget.memory_bytes)
        try:
            compactor = self._of(job)
            if job.works:
                return compactor.compact(job.table, job.budget)
            return CompactionAnswer(compactor.look(job.table, job.budget))
        except UnknownNameError:
            return CompactionAnswer(is_gone=True)
        except PaimonMagicsError as error:
            return CompactionAnswer(problem=redacted(error.message))
        except Exception as error:
            return CompactionAnswer(problem=redacted(f"{type(error).__name__}: {error}"))

    def _of(self, job: CompactionJob) -> Compactor:
        target = job.options, job.address, job.token
        if self._compactor is None or target != self._target:
            if self._client is not None:
                self._client.close()
            catalog = Catalog.open(dict(job.options))
            self._client = RemoteCoordinator(At(job.address, job.token))
            self._compactor = Compactor(catalog, self._client)
            self._target = target
        return self._compactor


class Compactor:
    """Looks at the tables of a catalog, and compacts them through `client` in this process."""

    def __init__(self, catalog: Catalog, client: CoordinatorClient) -> None:
        self._catalog = catalog
        self._client = client
        self._others = OtherEngines()
        self._manifests: OrderedDict[str, ManifestCache] = OrderedDict()

    def look(self, name: TableName, budget: Budget) -> Seen:
        """The buckets of a table above its triggers. Raises UnknownNameError for a table that is
        gone.
        """
        table = self._catalog.load(name)
        left = self._left(table)
        if left:
            return Seen(left=left)
        waiting = self.waiting(table, _SCOPE)
        if waiting is not None:
            return _seen(waiting.partition_bytes(), budget)
        plan = self.planned(table, _SCOPE)
        seen = Seen() if plan is None else _seen(plan.unit_bytes(), budget)
        return replace(seen, fullest=fullest_bucket(table, self._cache(table)))

    def compact(self, name: TableName, budget: Budget) -> CompactionAnswer:
        """Compact the smallest buckets above a table's triggers, within the budget. Rows that wait
        for their buckets get them first.
        """
        table = self._catalog.load(name)
        left = self._left(table)
        waiting = None if left else self.waiting(table, _SCOPE)
        if waiting is not None:
            return self._settle(waiting, budget)
        plan = None if left else self.planned(table, _SCOPE)
        if plan is None:
            return CompactionAnswer(Seen(left=left))
        sizes = plan.unit_bytes()
        portion = _portion(sizes, budget)
        seen = _seen(sizes, budget, portion)
        if not portion:
            return CompactionAnswer(seen)
        engine = _LocalEngine(self, self._client, budget)
        try:
            done = compact_plan(engine, plan.only(portion), _SCOPE, claims_wait_ms=0)
        except OutdatedPlanError:
            done = Compacted()
        if done.receipt is None:
            return CompactionAnswer(_seen(sizes, budget), hindered=True)
        if engine.has_planned_anew:
            seen = self.look(name, budget)
        else:
            seen = replace(seen, fullest=fullest_bucket(table, self._cache(table)))
        return CompactionAnswer(seen, len(portion), done.rewritten_bytes)

    def _settle(self, waiting: PostponedRows, budget: Budget) -> CompactionAnswer:
        """Give the waiting rows of the smallest partitions their buckets."""
        name, sizes = waiting.table.name, waiting.partition_bytes()
        portion = _portion(sizes, budget)
        if not portion:
            return CompactionAnswer(_seen(sizes, budget))
        partitions = frozenset(waiting.partitions[at] for at in portion)
        scope = CompactionScope(is_full=False, partitions=partitions, picks_again=True)
        try:
            engine = _LocalEngine(self, self._client, budget)
            done = settle_postponed(engine, waiting.table, scope)
        except OutdatedPlanError:
            return CompactionAnswer(_seen(sizes, budget), hindered=True)
        return CompactionAnswer(self.look(name, budget), len(portion), done.size_bytes)

    def waiting(self, table: Table, scope: CompactionScope) -> PostponedRows | None:
        """The rows of a table that wait for their buckets; None if there are none."""
        if table.schema.bucket_mode != "POSTPONE_MODE":
            return None
        snapshot = latest_snapshot(table.paimon)
        if snapshot is None:
            return None
        return plan_postponed(table, snapshot, scope, self._cache(table), os.cpu_count() or 1)

    def planned(self, table: Table, scope: CompactionScope) -> Plan | None:
        """The plan on the table's latest snapshot; None if there is nothing to do."""
        return planned(table, scope, self._cache(table))

    def _cache(self, table: Table) -> ManifestCache:
        cache = self._manifests.pop(table.location, None) or ManifestCache(table.paimon)
        self._manifests[table.location] = cache
        while len(self._manifests) > _TABLES_MAX:
            self._manifests.popitem(last=False)
        return cache

    def _left(self, table: Table) -> str:
        """Why the table is left to others; "" if it is compacted here."""
        unfit = not_compacted(table.schema)
        if unfit is not None:
            return f"tables with {unfit} are not compacted here"
        if table.schema.stored_option("auto_compact") is not None:
            return ""  # a user has decided
        return self._others.compacts(table, now_ms())


@dataclass
class _LocalEngine:
    """A `CompactionEngine` and `SettlingEngine` in this process. A new plan is also limited to a
    portion: the buckets may have got more files meanwhile, and a partition of an append table holds
    other groups of files. The rest waits for the next portion.
    """

    compactor: Compactor
    client: CoordinatorClient
    budget: Budget
    has_planned_anew: bool = False

    @property
    def reruns_max(self) -> int:
        return _RERUNS_MAX

    def planned(self, table: Table, scope: CompactionScope) -> Plan | None:
        self.has_planned_anew = True
        plan = self.compactor.planned(table, scope)
        portion = [] if plan is None else _portion(plan.unit_bytes(), self.budget)
        return None if plan is None or not portion else plan.only(portion)

    def wait(self, seconds: float, reason: str) -> None:
        time.sleep(seconds)

    def begun(self, table: TableName, base: int, attempts: Attempts) -> Transaction:
        return self.client.begin(table, base, ENGINE, compacts=True)

    def rewritten(self, plan: Plan, transaction: Transaction) -> Messages:
        return Messages(rewritten_here(plan, transaction, threads=1, settings=Settings()))

    def waiting(self, table: Table, scope: CompactionScope) -> PostponedRows | None:
        return self.compactor.waiting(table, scope)

    def moved(self, plan: PostponedRows, transaction: Transaction) -> Moved:
        spec = plan.spec(transaction, slots=1, settings=Settings())
        written = write_batches(spec, plan.batches())
        done = completed(plan.table, spec, written, transaction.base_snapshot_id)
        return Moved(done.messages, done.rows)

    def committed_whole(self, request: CommitRequest) -> CommitReceipt:
        return self._ended(request, lambda: self.client.commit(request))

    def provenance(self, rows: int, files: int) -> tuple[tuple[str, str], ...]:
        operation = {"user": user_name(), "engine": ENGINE, "operation": "COMPACT"}
        facts = {**operation, "rows": str(rows), "files": str(files)}
        return tuple((PREFIX + key, value) for key, value in facts.items() if value)

    def committed(self, request: CommitRequest) -> CompactionReceipt:
        return self._ended(request, lambda: commit_compaction(self.client, request))

    def _ended(self, request: CommitRequest, commit: Callable[[], _Receipt]) -> _Receipt:
        try:
            return commit()
        except UnknownOutcomeError:
            raise
        except PaimonMagicsError:  # certainly not committed
            with suppress(PaimonMagicsError):
                self.client.abort(request.transaction)
            raise


def _portion(sizes: Sequence[int], budget: Budget) -> list[int]:
    """The positions of the smallest units that are read together, without units that are too
    large."""
    chosen: list[int] = []
    read = 0
    for at in sorted(range(len(sizes)), key=sizes.__getitem__):
        read += sizes[at]
        if sizes[at] > budget.bytes_max or (chosen and read > budget.portion_bytes):
            break
        chosen.append(at)
    return sorted(chosen)


def _seen(unit_bytes: Sequence[int], budget: Budget, without: Sequence[int] = ()) -> Seen:
    """The work to do for units of these sizes, without the units at some positions."""
    left_out = set(without)
    sizes = [size for at, size in enumerate(unit_bytes) if at not in left_out]
    large = [size for size in sizes if size > budget.bytes_max]
    return Seen(
        buckets=len(sizes) - len(large),
        read_bytes=sum(sizes) - sum(large),
        large_buckets=len(large),
        large_bytes=sum(large),
    )


_limit_bytes = 0


def _keep_within(memory_bytes: int) -> None:
    """End this process when it takes more memory than this."""
    global _limit_bytes
    is_watched = bool(_limit_bytes)
    _limit_bytes = memory_bytes
    if not is_watched:
        threading.Thread(target=_watch_memory, name="memory", daemon=True).start()


def _watch_memory() -> None:
    while _memory_bytes() <= _limit_bytes:
        time.sleep(_LOOK_SECONDS)
    os._exit(OUT_OF_MEMORY)


def _memory_bytes() -> int:
    """The present memory of this process; if that is unknown, its peak."""
    with suppress(FileNotFoundError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
