"""The compaction of any table: planned on one snapshot, and rewritten in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pypaimon.write.commit_message import CommitMessage

from paimon_magics.planning.commits.requests import Transaction
from paimon_magics.planning.compaction.picks import Moment
from paimon_magics.settings import Settings
from paimon_magics.tables.compaction.append_plan import AppendCompaction, plan_append_compaction
from paimon_magics.tables.compaction.index_plan import IndexRewriting
from paimon_magics.tables.compaction.local_units import run_here
from paimon_magics.tables.compaction.messages import compaction_messages
from paimon_magics.tables.compaction.planning import (
    CompactionPlan,
    CompactionScope,
    plan_compaction,
)
from paimon_magics.tables.compaction.rewriting import rewrite_all
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.snapshots.latest import latest_snapshot, read_snapshot
from paimon_magics.tables.table import Table

__all__ = ["Plan", "is_outdated", "planned", "planned_after", "rewritten_here"]

_LOOKED_AT_MAX = 20  # snapshots; planning anew costs less than more of them

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


def planned_after(
    table: Table, snapshot_id: int, scope: CompactionScope, written: Sequence[CommitMessage]
) -> CompactionPlan:
    """The plan of a primary-key table on a snapshot and messages of a compaction that are not
    committed yet; it may be empty. Raises what `plan_compaction` raises."""
    snapshot = read_snapshot(table.paimon, snapshot_id)
    return plan_compaction(table, snapshot, scope, _moment(), written=written)


def is_outdated(plan: Plan | IndexRewriting) -> bool:
    """Whether files of the plan may be gone: there is a newer snapshot that did more than append.
    A commit is checked in any case."""
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
    """Now, by the wall clock here: Paimon stores the creation times of files so."""
    now = datetime.now()
    seconds = (now - datetime(1970, 1, 1)).total_seconds()
    return Moment(int(seconds * 1000), now.hour, int(time.time() * 1000))
