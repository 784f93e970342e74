"""A commit through the REST catalog: the table is checked, the commit published and remembered.

A commit is stored in the ledger before it is published, and again afterwards. A client that gets no
answer may find its commit in the table and continue, so the commit must be known from its first
moment. If the process dies in between, the next look at the table determines the outcome.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from paimon_magics.coordinator.core.values import Halted, Suspended, Unchecked
from paimon_magics.coordinator.protocol.errors import PausedError
from paimon_magics.coordinator.rest.endpoints import table_of
from paimon_magics.coordinator.rest.errors import RestError, not_found
from paimon_magics.coordinator.runtime.work import Steps
from paimon_magics.coordinator.service.publication_watch import PublicationMonitor
from paimon_magics.coordinator.service.served import CommitPlace, Context, Document, publication_of
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.commits.rest_commit import (
    NO_LEDGER,
    CommitChecks,
    Ledger,
    PreparedCommit,
    PreparedFiles,
    check_snapshot,
    publish_prepared,
)
from paimon_magics.tables.manifests.hash_indexes import StaleIndexError
from paimon_magics.tables.table import StoredTable, publishes_itself

_KEEPS_ROWS = ("COMPACT", "ANALYZE")
"""Kinds of commits that change no row: small inserts need not be loaded before them."""


def commit_prepared(
    context: Context,
    name: TableName,
    snapshot: Document,
    *,
    table_id: str | None,
    base_uuid: str | None,
    has_base_uuid: bool,
    statistics: Sequence[Document],
) -> Steps[bool]:
    """Publish a commit that a client has prepared. Return False if it must be prepared again, also
    after moving keys for it that the table had in other buckets.

    Raises RestError 404 if the table is not the table that was written, 409 if the table takes no
    commits, PausedError (503) in a pause, and the errors of `publish_prepared`.
    """
    written = table_of(context, name)
    commit = PreparedCommit(snapshot, base_uuid, has_base_uuid, statistics)
    try:
        return (yield from _published(context, written, commit, table_id))
    except StaleIndexError as error:
        if context.mover is None:
            raise
        first = PreparedFiles(written).first_numbers(snapshot["deltaManifestList"])
        context.mover.move(name, snapshot, error, first)
        return False


def _published(
    context: Context, written: StoredTable, commit: PreparedCommit, table_id: str | None
) -> Steps[bool]:
    name, snapshot = written.name, commit.snapshot
    location = written.location
    require_looked_at(context, name, location)
    place: CommitPlace = contextlib.nullcontext(lambda: None)
    if snapshot.get("commitKind") not in _KEEPS_ROWS:
        place = yield from context.commit_in_order(written, str(snapshot.get("commitUser")))
    with place as publish, context.turn(location):
        table = table_of(context, name)
        if table_id is not None and table_id != table.table_id:
            raise not_found(
                "TABLE",
                str(name),
                f"`{name}` is not the table that was written: that table was dropped and created "
                "again, or renamed.",
            )
        check_snapshot(table, snapshot)
        pause = None if context.watch is None else context.watch.pause()
        if pause is not None and publishes_itself(table):  # the ledger is not told of this commit
            raise PausedError(pause)
        ledger: Ledger = (
            NO_LEDGER if context.watch is None else _Ledger(context.watch, table, snapshot)
        )
        checks = CommitChecks(
            context.recent,
            ledger,
            context.indexes,
            fence=None if context.fence is None else context.fence(),
            load=lambda: context.catalog.load(name),
        )
        published = publish_prepared(table, commit, context.publish, checks)
        if published:
            publish()
        return published


def require_looked_at(context: Context, name: TableName, location: str) -> None:
    """Require a check of a table before a commit is published on it. Raises RestError 409 for a
    table that takes no commits, 503 for a table that can't be checked.
    """
    if context.watch is None:
        return
    match context.watch.before_change(location):
        case Halted(reason=reason):
            raise RestError(409, reason, "TABLE", str(name))
        case Unchecked(reason=reason):
            raise RestError(503, reason)
        case _:
            pass


class _Ledger:
    """A `Ledger` for one commit of a client."""

    def __init__(self, watch: PublicationMonitor, table: StoredTable, snapshot: Document) -> None:
        self._watch = watch
        self._publication = replace(publication_of(table, snapshot), certain=False)

    def knows(self, changes: str | None) -> bool:
        own = self._publication
        return any(
            p.certain
            and (p.manifest_list == own.manifest_list if changes is None else p.changes == changes)
            and (p.table.branch, p.commit_identifier, p.commit_kind)
            == (own.table.branch, own.commit_identifier, own.commit_kind)
            for p in self._watch.published_by(own.location, own.commit_user)
        )

    def begin(
        self, changes: str, *, changes_index: bool, rests_on: str | None, manifests: Sequence[str]
    ) -> None:
        self._publication = replace(
            self._publication,
            changes=changes,
            changes_index=changes_index,
            rests_on=rests_on,
            manifests=tuple(manifests),
        )
        match self._watch.note(self._publication):
            case Suspended(pause=pause):
                raise PausedError(pause)
            case _:
                pass

    def end(self, published: bool) -> None:
        if published:
            self._watch.note(replace(self._publication, certain=True))
        else:
            self._watch.not_published(self._publication)
