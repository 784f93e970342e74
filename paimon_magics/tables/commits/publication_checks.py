"""Examines what became of published snapshots: whether they are intact, settled, overwritten or
lost.

It reads the snapshots' files and, for expired ones, what was noted when they were published; it
writes nothing. A snapshot is identified by the name of its delta manifest list. Data files that
were compacted since prove nothing. The result is true at the time of reading: a writer that goes
around the coordinator may rename over a snapshot a moment later, which the next examination finds.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pypaimon.schema.schema_manager import SchemaManager

from paimon_magics.planning.commits.publications import Publication, PublicationFinding, Verdict
from paimon_magics.planning.commits.requests import CommitReceipt, Compact
from paimon_magics.tables.commits.decoded_request import DecodedRequest
from paimon_magics.tables.commits.receipts import receipt_of
from paimon_magics.tables.commits.republishing import (
    REPUBLISHED,
    ChangedFiles,
    Lineage,
    changed_by_request,
    obstacle,
)
from paimon_magics.tables.manifests.names import ADD
from paimon_magics.tables.snapshots.latest import (
    is_stored_as_changelog,
    latest_snapshot,
    read_snapshot,
)
from paimon_magics.tables.snapshots.provenance import made_by
from paimon_magics.tables.table import Table

_WITHOUT_ROWS = ("COMPACT", "ANALYZE")


def examine(
    table: Table,
    watched: Sequence[Publication],
    noted: Callable[[Publication], ChangedFiles | None] = lambda _: None,
) -> tuple[PublicationFinding, ...]:
    """Examine publications of one table and branch.

    `noted` returns the noted changes of a publication whose manifests are gone, or None.
    """
    ordered = sorted(watched, key=lambda p: p.snapshot_id)
    stored = {p.snapshot_id: read_snapshot(table.paimon, p.snapshot_id) for p in ordered}
    intact = {p.snapshot_id for p in ordered if _is(p, stored[p.snapshot_id])}
    lineage = Lineage(table)
    rested_on = _rested_on(table, ordered, stored, intact, lineage)
    findings = []
    for p in ordered:
        if p.snapshot_id in intact:
            findings.append(_followed(table, p, p.snapshot_id + 1 in intact, lineage, noted))
        elif not p.certain or p.id in rested_on or made_since(table, p.published_at_ms):
            findings.append(PublicationFinding(p.id, Verdict.SETTLED))
        else:
            findings.append(_gone(table, p, stored[p.snapshot_id], lineage, noted))
    return tuple(findings)


def republished_as(table: Table, p: Publication) -> PublicationFinding | None:
    """The finding that a later snapshot repeats an overwritten one; None if there is no such
    snapshot."""
    latest = latest_snapshot(table.paimon)
    for snapshot_id in range(p.snapshot_id + 1, (latest.id if latest is not None else 0) + 1):
        snapshot = read_snapshot(table.paimon, snapshot_id)
        if (
            snapshot is not None
            and (snapshot.commit_user, snapshot.commit_identifier)
            == (p.commit_user, p.commit_identifier)
            and (snapshot.properties or {}).get(REPUBLISHED) == str(p.snapshot_id)
        ):
            return moved(p, receipt_of(snapshot), snapshot.time_millis)
    return None


def _is(p: Publication, snapshot: Any) -> bool:
    return snapshot is not None and snapshot.delta_manifest_list == p.manifest_list


def _rested_on(
    table: Table,
    ordered: Sequence[Publication],
    stored: Mapping[int, Any],
    intact: Collection[int],
    lineage: Lineage,
) -> frozenset[str]:
    """The ids of publications that later snapshots rest on, although their own are gone: they have
    expired, or were overwritten after that.

    Expiry removes the manifests from which a snapshot's changes could be read. So it is recognised
    by what was noted when it was published, or by its changelog, which is a copy of its file.
    """
    built_on = {(p.snapshot_id, p.rests_on): p for p in ordered if p.rests_on is not None}
    rested_on: set[str] = set()
    for p in reversed(ordered):
        if not p.certain:
            continue
        is_gone = stored[p.snapshot_id] is None
        follower = built_on.get((p.snapshot_id + 1, p.manifest_list))
        if (
            (follower is not None and follower.snapshot_id in intact)
            or (follower is not None and follower.id in rested_on)
            or (is_gone and is_stored_as_changelog(table, p.snapshot_id, p.manifest_list))
            or (is_gone and lineage.holds(p.snapshot_id, p.manifests))
        ):
            rested_on.add(p.id)
    return frozenset(rested_on)


def made_since(table: Table, at_ms: int) -> bool:
    """Whether a table was created after a time; then it has replaced an earlier one at its path."""
    first = SchemaManager(table.paimon.file_io, table.location).get_schema(0)
    return first is not None and int(first.time_millis) > at_ms


def unnamed_receipt(decoded: DecodedRequest) -> CommitReceipt | None:
    """The receipt of a request whose snapshot was overwritten after another one had been built on
    it: its files are in the table although no snapshot is its own. None if they are not."""
    changed = changed_by_request(decoded)
    table = decoded.table
    kind = "COMPACT" if isinstance(decoded.request.change, Compact) else "APPEND"
    latest = latest_snapshot(table.paimon)
    if changed is None or latest is None or not changed.added:
        return None
    lineage = Lineage(table)
    for snapshot_id in range(decoded.request.transaction.base_snapshot_id + 2, latest.id + 1):
        snapshot = read_snapshot(table.paimon, snapshot_id)
        if snapshot is not None and lineage.rests_on(snapshot, changed):
            rows = sum(
                entry.file.row_count if entry.kind == ADD else -entry.file.row_count
                for entry in changed.entries
            )
            return CommitReceipt(snapshot_id - 1, kind, None, rows)
    return None


def _followed(
    table: Table,
    p: Publication,
    by_ours: bool,
    lineage: Lineage,
    noted: Callable[[Publication], ChangedFiles | None],
) -> PublicationFinding:
    """The finding for a snapshot that is intact: it is settled once another one rests on it."""
    if by_ours:
        return PublicationFinding(p.id, Verdict.SETTLED)
    follower = read_snapshot(table.paimon, p.snapshot_id + 1)
    if follower is None:
        return PublicationFinding(p.id, Verdict.INTACT)
    changed = lineage.changed_by(p.manifest_list) or noted(p)
    if changed is None or lineage.rests_on(follower, changed):
        return PublicationFinding(p.id, Verdict.SETTLED)
    return _overwritten(table, p, follower, changed, lineage, beside=p.snapshot_id)


def _gone(
    table: Table,
    p: Publication,
    snapshot: Any,
    lineage: Lineage,
    noted: Callable[[Publication], ChangedFiles | None],
) -> PublicationFinding:
    """The finding for a snapshot that is gone, or whose id another one has."""
    latest = latest_snapshot(table.paimon)
    if snapshot is None and (latest is None or latest.id < p.snapshot_id):
        ended = "none" if latest is None else str(latest.id)
        return _lost(
            p,
            f"Snapshot {p.snapshot_id} of `{table.name}` is gone, and the latest is {ended}: "
            "the table was rolled back by a client that bypassed the coordinator.",
        )
    again = republished_as(table, p)
    if again is not None:
        return again
    if p.commit_kind in _WITHOUT_ROWS:
        return PublicationFinding(p.id, Verdict.SETTLED)
    changed = lineage.changed_by(p.manifest_list) or noted(p)
    if changed is None:
        return _lost(p, f"{_what(table, p, snapshot)}, and its manifests are gone.")
    if not changed.entries:
        return _gone_without_files(table, p, snapshot, lineage, noted)
    if latest.id > p.snapshot_id:
        leads = lineage.leads_to(changed, p.snapshot_id, latest.id)
        if leads:
            return PublicationFinding(p.id, Verdict.SETTLED)
        if leads is None or snapshot is None:
            return _lost(
                p,
                f"Whether snapshot {p.snapshot_id} of `{table.name}` is still in the table "
                "is unknown: it expired before it could be looked at again.",
            )
    return _overwritten(table, p, snapshot, changed, lineage, beside=p.snapshot_id)


def _gone_without_files(
    table: Table,
    p: Publication,
    snapshot: Any,
    lineage: Lineage,
    noted: Callable[[Publication], ChangedFiles | None],
) -> PublicationFinding:
    """The finding for a snapshot without data files that is gone: it deleted rows by vectors, or
    changed nothing."""
    if not p.changes_index:
        return PublicationFinding(p.id, Verdict.SETTLED)
    follower, changed = read_snapshot(table.paimon, p.snapshot_id + 1), noted(p)
    if (
        follower is not None
        and changed is not None
        and lineage.has_indexes(follower, changed.indexes)
    ):
        return PublicationFinding(p.id, Verdict.SETTLED)
    why = "and can't be published again automatically: it deleted rows of files"
    return _lost(p, f"{_what(table, p, snapshot)}, {why}.")


def _overwritten(
    table: Table, p: Publication, by: Any, changed: ChangedFiles, lineage: Lineage, beside: int
) -> PublicationFinding:
    what = _what(table, p, by)
    latest = latest_snapshot(table.paimon)
    present = lineage.present(latest, changed)
    if present == changed.added and present:
        return PublicationFinding(p.id, Verdict.SETTLED)  # publishing again would double its rows
    if present:
        return _lost(p, f"{what}, and only some of its files are in the table.")
    problem = obstacle(table, p, changed, lineage, beside)
    if problem:
        return _lost(p, f"{what}, and can't be published again automatically: {problem}.")
    return PublicationFinding(p.id, Verdict.OVERWRITTEN, f"{what}.")


def _what(table: Table, p: Publication, by: Any) -> str:
    when = datetime.datetime.fromtimestamp(p.published_at_ms / 1000, tz=datetime.UTC)
    ours = f"Snapshot {p.snapshot_id} of `{table.name}` ({p.commit_kind}, {when:%Y-%m-%d %H:%M:%S} "
    if by is None:
        return f"{ours}UTC) is gone"
    return f"{ours}UTC) was overwritten by one of {made_by(by)} ({by.commit_kind})"


def _lost(p: Publication, account: str) -> PublicationFinding:
    return PublicationFinding(p.id, Verdict.LOST, account)


def moved(p: Publication, receipt: CommitReceipt, now_ms: int) -> PublicationFinding:
    """The finding that the commit of `receipt` has published an overwritten publication again."""
    assert receipt.snapshot_id is not None and receipt.manifest_list is not None
    publication = replace(
        p,
        snapshot_id=receipt.snapshot_id,
        manifest_list=receipt.manifest_list,
        published_at_ms=now_ms,
    )
    account = (
        f"Snapshot {p.snapshot_id} was overwritten by a writer that bypasses the coordinator; "
        f"published again as snapshot {receipt.snapshot_id}."
    )
    return PublicationFinding(p.id, Verdict.REPUBLISHED, account, publication, receipt)
