"""A commit through the REST catalog: looked at before, published, remembered.

What is going to be published is stored before it is, and again when it was: a client that gets no
answer may find its commit in the table by itself and go on, so that it must be remembered from its
first moment. If the process dies in between, the next look at the table tells.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from paimon_magics.coordinator.core import Halted, Suspended, Unchecked
from paimon_magics.coordinator.http.answers import PausedError
from paimon_magics.coordinator.rest.endpoints import Context, Watch
from paimon_magics.coordinator.rest.errors import RestError, not_found
from paimon_magics.planning.publications import Publication
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.stored_tables import StoredTable
from paimon_magics.tables.commits.publishers import publishes_itself
from paimon_magics.tables.commits.rest_commit import check_snapshot, publish_prepared
from paimon_magics.tables.snapshots.chain import latest_snapshot, load_snapshot

__all__ = ["commit_prepared", "publication_of", "require_looked_at", "watch_latest"]

Document = Mapping[str, Any]

_KEEPS_ROWS = ("COMPACT", "ANALYZE")
"""Kinds of commits that change no row: small inserts need not be loaded before them."""


def commit_prepared(
    context: Context,
    name: TableName,
    snapshot: Document,
    *,
    table_id: str | None,
    base_uuid: str | None,
    base_is_told: bool,
    statistics: Sequence[Document],
) -> bool:
    """Publish what a client has prepared; False when it must be prepared anew.

    Raises RestError 404 for another table than the one that was written, 409 for one that takes no
    commits, 503 in a pause, and what `publish_prepared` raises.
    """
    written = context.table(name)
    location = written.location
    require_looked_at(context, name, location)
    place: AbstractContextManager[Callable[[], None]] = contextlib.nullcontext(lambda: None)
    if snapshot.get("commitKind") not in _KEEPS_ROWS:
        place = context.commit_in_order(written, str(snapshot.get("commitUser")))
    with place as is_published, context.turn(location):
        table = context.table(name)
        if table_id is not None and table_id != table.table_id:
            raise not_found(
                "TABLE",
                str(name),
                f"`{name}` is another table than the one that was written: it was dropped and "
                "created again, or renamed.",
            )
        check_snapshot(table, snapshot)
        pause = None if context.watch is None else context.watch.pause()
        if pause is not None and publishes_itself(table):  # nobody else is told of this commit
            raise PausedError(pause)
        published = publish_prepared(
            table,
            snapshot,
            context.publish,
            context.recent,
            base_uuid=base_uuid,
            base_is_told=base_is_told,
            statistics=statistics,
            indexes=context.indexes,
            fence=None if context.fence is None else context.fence(),
            ledger=None if context.watch is None else _Ledger(context.watch, table, snapshot),
        )
        if published:
            is_published()
        return published


def require_looked_at(context: Context, name: TableName, location: str) -> None:
    """Have a table looked at before something is published on it. Raises RestError 409 for one that
    takes no commits, 503 where it can't be looked at."""
    if context.watch is None:
        return
    match context.watch.before_change(location):
        case Halted(reason=reason):
            raise RestError(409, reason, "TABLE", str(name))
        case Unchecked(reason=reason):
            raise RestError(503, reason)
        case _:
            pass


def publication_of(table: StoredTable, snapshot: Document) -> Publication:
    """What is to be remembered of a snapshot that was published outside transactions."""
    return Publication(
        id=uuid.uuid4().hex,
        table=table.name,
        location=table.location,
        snapshot_id=snapshot["id"],
        manifest_list=snapshot["deltaManifestList"],
        commit_user=snapshot["commitUser"],
        commit_identifier=snapshot["commitIdentifier"],
        commit_kind=snapshot["commitKind"],
        published_at_ms=int(time.time() * 1000),
        is_transaction=False,
        changelog_list=snapshot.get("changelogManifestList"),
        properties=tuple((snapshot.get("properties") or {}).items()),
        rows=snapshot.get("deltaRecordCount"),
        base_list=snapshot["baseManifestList"],
    )


def watch_latest(watch: Watch, table: StoredTable) -> None:
    """Watch a table's last snapshot, which came from a branch: it can be written over as that of
    any commit can."""
    latest = latest_snapshot(table)
    if latest is not None:
        before = load_snapshot(table, str(latest["id"] - 1)) or {}
        changes_index = latest.get("indexManifest") != before.get("indexManifest")
        publication = publication_of(table, latest)
        rests_on = before.get("deltaManifestList")
        watch.note(replace(publication, changes_index=changes_index, rests_on=rests_on))


class _Ledger:
    """Remembers one commit of a client's."""

    def __init__(self, watch: Watch, table: StoredTable, snapshot: Document) -> None:
        self._watch = watch
        self._publication = replace(publication_of(table, snapshot), certain=False)

    def knows(self, changes: str | None) -> bool:
        """See `Ledger.knows`."""
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
        """See `Ledger.begin`."""
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
        """See `Ledger.end`."""
        if published:
            self._watch.note(replace(self._publication, certain=True))
        else:
            self._watch.not_published(self._publication)
