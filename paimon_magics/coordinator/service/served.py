"""What the coordinator serves: a catalog, how its snapshots are published, who hears of it."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from paimon_magics.coordinator.core import Answer, Pause
from paimon_magics.coordinator.service.databases import Databases, PropertyStore
from paimon_magics.coordinator.turns import Turn, Turns
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.fencing import Fence
from paimon_magics.tables.commits.recent_commits import RecentCommits
from paimon_magics.tables.manifests.hash_indexes import HashIndexes
from paimon_magics.tables.snapshots.chain import latest_document, load_snapshot
from paimon_magics.tables.stores.store import Publish
from paimon_magics.tables.table import StoredTable

__all__ = ["Context", "Document", "Order", "Watch", "publication_of", "watch_latest"]


class Watch(Protocol):
    """Told of what is published and taken away; see `Watching`, which is one."""

    def before_change(self, location: str) -> Answer:
        """Have a table looked at before something is published on it."""

    def pause(self) -> Pause | None:
        """Who has let nothing new begin, None when nobody has."""

    def note(self, publication: Publication) -> Answer:
        """Remember what was published, or is going to be now."""

    def not_published(self, publication: Publication) -> Answer:
        """Forget what was going to be published and was not."""

    def chain_cut(self, location: str, branch: str | None, above: int) -> Answer:
        """The snapshots above an id were taken away on purpose."""

    def table_dropped(self, location: str) -> Answer:
        """A table was dropped."""

    def table_moved(
        self, location: str, to_location: str, to: TableName, *, branch: str | None = None
    ) -> Answer:
        """A table was renamed, or one of its branches."""

    def published_by(self, location: str, commit_user: str) -> list[Publication]:
        """What a commit user published to a table, as far as that is kept."""


class Order(Protocol):
    """Gives what engines do to a table that takes small inserts its place among these; see
    `GroupCommit`, which is one."""

    def commit(self, name: TableName, who: str) -> AbstractContextManager[Callable[[], None]]:
        """The place of a commit; the given function is called when it is published."""

    def change(
        self, name: TableName, *, takes_away: bool, renamed_to: TableName | None = None
    ) -> AbstractContextManager[None]:
        """The place of what changes a table, or takes away what has its name, maybe giving it
        another one."""


@dataclass(frozen=True, slots=True)
class Context:
    """The catalog that is served, by what its snapshots are published, and who is told of it.

    `publish` creates snapshots, tags and branches if they are absent. `turn` keeps commits of one
    table apart; it spares retries, nothing depends on it but rolling back, dropping and renaming.
    `prefix` is that of the REST catalog's paths. `fence` gives the right to change the catalog, as
    it is at that moment, and is asked before and after each change; without it nothing but
    compare-and-swap stands between this and others. `watch` is told of what is published and taken
    away. `order` gives what engines do its place among small inserts. `properties` keeps those of
    databases where the catalog can't.
    """

    catalog: Catalog
    publish: Publish
    turn: Turn = field(default_factory=Turns)
    prefix: str = "paimon"
    fence: Callable[[], Fence] | None = None
    watch: Watch | None = None
    recent: RecentCommits = field(default_factory=RecentCommits)
    indexes: HashIndexes = field(default_factory=HashIndexes)
    order: Order | None = None
    properties: PropertyStore | None = None

    @property
    def databases(self) -> Databases:
        """The catalog's databases, with their properties."""
        return Databases(self.catalog, self.properties)

    @contextlib.contextmanager
    def commit_in_order(self, table: StoredTable, who: str) -> Iterator[Callable[[], None]]:
        """What a commit of `who` does in the `with` block follows all small inserts that were
        acknowledged before. See `Order.commit`."""
        if self._takes_inserts(table):
            assert self.order is not None
            with self.order.commit(table.name, who) as published:
                yield published
        else:
            yield lambda: None

    @contextlib.contextmanager
    def change_in_order(
        self, table: StoredTable, *, takes_away: bool = False, renamed_to: TableName | None = None
    ) -> Iterator[None]:
        """The same for what changes a table, or takes away what has its name."""
        if self._takes_inserts(table):
            assert self.order is not None
            with self.order.change(table.name, takes_away=takes_away, renamed_to=renamed_to):
                yield
        else:
            yield

    def _takes_inserts(self, table: StoredTable) -> bool:
        return (
            self.order is not None
            and table.name.branch is None
            and table.options.get("auto_batch_load", "").lower() == "true"
        )


Document = Mapping[str, Any]


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
    latest = latest_document(table)
    if latest is not None:
        before = load_snapshot(table, str(latest["id"] - 1)) or {}
        changes_index = latest.get("indexManifest") != before.get("indexManifest")
        publication = publication_of(table, latest)
        rests_on = before.get("deltaManifestList")
        watch.note(replace(publication, changes_index=changes_index, rests_on=rests_on))
