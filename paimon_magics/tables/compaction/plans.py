"""The compaction of any table: planned on one snapshot, and rewritten in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from datetime import datetime
from typing import Any, Protocol, TypeVar

from pypaimon.write.commit_message import CommitMessage

from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.compaction.keyed_tables import Moment, PickOptions
from paimon_magics.planning.compaction.schedule import is_full
from paimon_magics.settings import Settings
from paimon_magics.tables.compaction.append_plan import AppendCompaction, plan_append_compaction
from paimon_magics.tables.compaction.index_plan import IndexRewriting
from paimon_magics.tables.compaction.messages import compaction_messages
from paimon_magics.tables.compaction.planning import (
    CompactionPlan,
    CompactionScope,
    files_of_scope,
    plan_compaction,
)
from paimon_magics.tables.compaction.rewriting import rewrite_all
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.snapshots.latest import latest_snapshot, read_snapshot
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import BucketKey

_LOOKED_AT_MAX = 20  # snapshots; replanning costs less than more of them

Plan = CompactionPlan | AppendCompaction


def planned(table: Table, scope: CompactionScope, manifests: ManifestCache) -> Plan | None:
    """The plan on the table's latest snapshot; None if there is nothing to do. `manifests` is a
    cache of the table's manifests."""
    snapshot = latest_snapshot(table.paimon)
    if snapshot is None:
        return None
    plan: Plan = (
        plan_compaction(table, snapshot, scope, _moment(), manifests)
        if table.schema.is_primary_key_table
        else plan_append_compaction(table, snapshot, scope, manifests)
    )
    return None if plan.is_empty else plan


def may_be_due(
    table: Table,
    snapshot_id: int,
    buckets: frozenset[BucketKey],
    files_added: int,
    manifests: ManifestCache,
) -> bool:
    """Whether a writer can pick files of `buckets` after the commit of `snapshot_id`, which added
    at most `files_added` files to each. Below the trigger nothing is picked, so the new snapshot's
    manifests need not be read."""
    options = PickOptions.of(table.schema)
    if options.forces_level_0_up or options.may_be_early_full or is_full(table.schema):
        return True
    runs: dict[BucketKey, set[int | str]] = {}
    if snapshot_id > 1:
        before = read_snapshot(table.paimon, snapshot_id - 1)
        if before is None:  # it has expired
            return True
        files = live_files(manifests, before, ("partition", "bucket", "level", "file_name"))
        files = files_of_scope(files, CompactionScope(False, buckets=buckets))
        columns = (
            files[name].to_pylist() for name in ("partition", "bucket", "level", "file_name")
        )
        for partition, bucket, level, name in zip(*columns, strict=True):
            # Each file of level 0 is a sorted run, as is each higher level.
            runs.setdefault((partition, bucket), set()).add(level or name)
    most = max(map(len, runs.values()), default=0)
    return most + files_added >= options.compaction_trigger


def planned_after(
    table: Table, snapshot_id: int, scope: CompactionScope, written: Sequence[CommitMessage]
) -> CompactionPlan:
    """The plan of a primary-key table on a snapshot and messages of a compaction that are not
    committed yet; it may be empty. Raises what `plan_compaction` raises."""
    snapshot = read_snapshot(table.paimon, snapshot_id)
    return plan_compaction(table, snapshot, scope, _moment(), written=written)


def is_outdated(plan: Plan | IndexRewriting) -> bool:
    """Whether files of the plan may be gone, because a newer snapshot did more than append. A
    commit is checked in any case."""
    if plan.is_empty:
        return False
    paimon = plan.table.paimon
    latest = latest_snapshot(paimon)
    newer = range(plan.snapshot_id + 1, 1 + (0 if latest is None else latest.id))
    if len(newer) > _LOOKED_AT_MAX:
        return True
    kinds = (getattr(read_snapshot(paimon, id), "commit_kind", "") for id in newer)
    return any(kind != "APPEND" for kind in kinds)


def rewritten_here(
    plan: Plan, transaction: Transaction, *, threads: int, settings: Settings
) -> list[Any]:
    """pypaimon's messages of everything that the plan compacts, rewritten in this process. Raises
    what `rewrite_all` and `AppendRewrite` raise."""
    if isinstance(plan, AppendCompaction):
        rewrite = plan.rewrite(transaction, slots=threads, settings=settings)
        return plan.messages(run_here(rewrite, plan.units, threads=threads), transaction)
    tasks = plan.tasks(threads)
    results = rewrite_all(plan.spec(transaction), tasks) if tasks else []
    return compaction_messages(plan, tasks, results, transaction)


def _moment() -> Moment:
    return Moment(int(time.time() * 1000), datetime.now().hour)


# Runs units of a compaction in threads of this process, for work too small for a Spark job.
#
# Reading and writing release Python's lock, so that two threads keep two cores busy.


class _Sized(Protocol):
    @property
    def size_bytes(self) -> int: ...


_U = TypeVar("_U", bound=_Sized)
_R = TypeVar("_R")


def run_here(work: Callable[[_U], _R], units: Sequence[_U], *, threads: int) -> list[_R]:
    """The results of all units. The largest unit starts first, and at most `threads` units run at a
    time.

    Raises the error of the first failing unit once the running units have ended; no further unit
    starts.
    """
    ordered = sorted(units, key=lambda unit: unit.size_bytes, reverse=True)
    if threads <= 1 or len(ordered) <= 1:
        return [work(unit) for unit in ordered]
    with ThreadPoolExecutor(threads, thread_name_prefix="compaction") as pool:
        running = [pool.submit(work, unit) for unit in ordered]
        try:
            wait(running, return_when=FIRST_EXCEPTION)
            for future in running:
                if future.done():
                    future.result()
            return [future.result() for future in running]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
