"""Examines the state of published snapshots: intact, settled, overwritten or lost.

It reads the snapshots' files and, for expired snapshots, the notes made when they were published.
It writes nothing. A snapshot is identified by the name of its delta manifest list. Data files that
were compacted since prove nothing. The result holds at the time of reading: a writer that bypasses
the coordinator may overwrite a snapshot a moment later, which the next examination finds.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
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
from paimon_magics.tables.snapshots.provenance import author_of
from paimon_magics.tables.table import Table

_WITHOUT_ROWS = ("COMPACT", "ANALYZE")


Noted = Callable[[Publication], ChangedFiles | None]


def examine(
    table: Table, watched: Sequence[Publication], noted: Noted = lambda _: None
) -> tuple[PublicationFinding, ...]:
    """Examine publications of one table and branch.

    `noted` returns the noted changes of a publication whose manifests are gone, or None.
    """
    return _Examination(table, noted, watched).findings()


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


def created_since(table: Table, at_ms: int) -> bool:
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


class _Examination:
    """One examination of the publications of a table."""

    def __init__(self, table: Table, noted: Noted, watched: Sequence[Publication]) -> None:
        self._table = table
        self._noted = noted
        self._lineage = Lineage(table)
        self._ordered = sorted(watched, key=lambda p: p.snapshot_id)
        self._stored = {p.snapshot_id: self._read(p.snapshot_id) for p in self._ordered}
        self._intact = {p.snapshot_id for p in self._ordered if self._is_intact(p)}

    def findings(self) -> tuple[PublicationFinding, ...]:
        """The finding for each publication, in the order of their snapshots."""
        rested_on = self._rested_on()
        findings = []
        for p in self._ordered:
            if p.snapshot_id in self._intact:
                findings.append(self._followed(p))
            elif (
                not p.certain or p.id in rested_on or created_since(self._table, p.published_at_ms)
            ):
                findings.append(_settled(p))
            else:
                findings.append(self._gone(p, self._stored[p.snapshot_id]))
        return tuple(findings)

    def _read(self, snapshot_id: int) -> Any:
        return read_snapshot(self._table.paimon, snapshot_id)

    def _is_intact(self, p: Publication) -> bool:
        snapshot = self._stored[p.snapshot_id]
        return snapshot is not None and snapshot.delta_manifest_list == p.manifest_list

    def _rested_on(self) -> frozenset[str]:
        """The ids of publications that later snapshots rest on, although their own are gone: they
        have expired, or were overwritten after that.

        Expiry removes the manifests from which a snapshot's changes could be read. So it is
        recognized by what was noted when it was published, or by its changelog, which is a copy of
        its file.
        """
        built_on = {(p.snapshot_id, p.rests_on): p for p in self._ordered if p.rests_on is not None}
        rested_on: set[str] = set()
        for p in reversed(self._ordered):
            if not p.certain:
                continue
            is_gone = self._stored[p.snapshot_id] is None
            follower = built_on.get((p.snapshot_id + 1, p.manifest_list))
            if (
                (follower is not None and follower.snapshot_id in self._intact)
                or (follower is not None and follower.id in rested_on)
                or (is_gone and is_stored_as_changelog(self._table, p.snapshot_id, p.manifest_list))
                or (is_gone and self._lineage.holds(p.snapshot_id, p.manifests))
            ):
                rested_on.add(p.id)
        return frozenset(rested_on)

    def _changed_by(self, p: Publication) -> ChangedFiles | None:
        return self._lineage.changed_by(p.manifest_list) or self._noted(p)

    def _followed(self, p: Publication) -> PublicationFinding:
        """The finding for a snapshot that is intact: it is settled once another one rests on it."""
        if p.snapshot_id + 1 in self._intact:
            return _settled(p)
        follower = self._read(p.snapshot_id + 1)
        if follower is None:
            return PublicationFinding(p.id, Verdict.INTACT)
        changed = self._changed_by(p)
        if changed is None or self._lineage.rests_on(follower, changed):
            return _settled(p)
        return self._overwritten(p, follower, changed)

    def _gone(self, p: Publication, snapshot: Any) -> PublicationFinding:
        """The finding for a snapshot that is gone, or whose id another one has."""
        table, lineage = self._table, self._lineage
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
            return _settled(p)
        changed = self._changed_by(p)
        if changed is None:
            return _lost(p, f"{_what(table, p, snapshot)}, and its manifests are gone.")
        if not changed.entries:
            return self._gone_without_files(p, snapshot)
        if latest.id > p.snapshot_id:
            leads = lineage.leads_to(changed, p.snapshot_id, latest.id)
            if leads:
                return _settled(p)
            if leads is None or snapshot is None:
                return _lost(
                    p,
                    f"Whether snapshot {p.snapshot_id} of `{table.name}` is still in the table is "
                    "unknown: it expired before it could be checked again.",
                )
        return self._overwritten(p, snapshot, changed)

    def _gone_without_files(self, p: Publication, snapshot: Any) -> PublicationFinding:
        """The finding for a snapshot without data files that is gone: it deleted rows by vectors,
        or changed nothing."""
        if not p.changes_index:
            return _settled(p)
        follower, noted = self._read(p.snapshot_id + 1), self._noted(p)
        indexes = None if noted is None or follower is None else noted.indexes
        if indexes is not None and self._lineage.has_indexes(follower, indexes):
            return _settled(p)
        why = "and can't be published again automatically: it deleted rows of files"
        return _lost(p, f"{_what(self._table, p, snapshot)}, {why}.")

    def _overwritten(self, p: Publication, by: Any, changed: ChangedFiles) -> PublicationFinding:
        what = _what(self._table, p, by)
        latest = latest_snapshot(self._table.paimon)
        present = self._lineage.present(latest, changed)
        if present == changed.added and present:
            return _settled(p)  # publishing again would double its rows
        if present:
            return _lost(p, f"{what}, and only some of its files are in the table.")
        problem = obstacle(self._table, p, changed, self._lineage)
        if problem:
            return _lost(p, f"{what}, and can't be published again automatically: {problem}.")
        return PublicationFinding(p.id, Verdict.OVERWRITTEN, f"{what}.")


def _settled(p: Publication) -> PublicationFinding:
    return PublicationFinding(p.id, Verdict.SETTLED)


def _what(table: Table, p: Publication, by: Any) -> str:
    when = datetime.datetime.fromtimestamp(p.published_at_ms / 1000, tz=datetime.UTC)
    ours = f"Snapshot {p.snapshot_id} of `{table.name}` ({p.commit_kind}, {when:%Y-%m-%d %H:%M:%S} "
    if by is None:
        return f"{ours}UTC) is gone"
    return f"{ours}UTC) was overwritten by one of {author_of(by)} ({by.commit_kind})"


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
