"""SQL for a store, and its tables: publications, stopped tables and pauses, tokens, grants, and
entries of the audit log."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from paimon_magics.coordinator.core.values import Pause, Stopped
from paimon_magics.coordinator.protocol.json_text import dataclass_json, storable_text
from paimon_magics.coordinator.store.database import Change, Database
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.statements.statement import TableName

_TOGETHER = 500  # ids in one statement
_REMOVED = 0  # the column snapshot_id of a publication whose snapshot was removed on purpose
# Repeated, it counts once more, which does no harm.
_RIGHTS_TAKEN = "UPDATE pairing SET rights = rights + 1"


class Sql:
    """Reads and writes one database, for any thread.

    Every statement must be idempotent: it is repeated when it is unclear whether it was done. Texts
    are reduced to characters that the database can hold (`storable_text`), so that no client's text
    stops the store.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._blocks = threading.local()  # the changes of the `together` block of each thread

    def read(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self._database.read(statement, *_storable(values))

    def write(self, statement: str, *values: object) -> None:
        """Make a change durable: at once, or at the end of the `together` block around it."""
        change = Change(statement, _storable(values))
        changes: list[Change] | None = getattr(self._blocks, "changes", None)
        if changes is None:
            self._database.write([change])
        else:
            changes.append(change)

    @contextmanager
    def together(self, id: str = "") -> Iterator[None]:
        """Make the changes of the `with` block durable together, at its end; drop them when it
        raises. For the `id` see `Database.write`."""
        changes: list[Change] = []
        self._blocks.changes = changes
        try:
            yield
        finally:
            del self._blocks.changes
        if changes:
            self._database.write(changes, id)


class SqlTable:
    """A table of a store, or some that belong together."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql


def _storable(values: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(storable_text(v) if isinstance(v, str) else v for v in values)


class PublicationTable(SqlTable):
    """The stored publications, watched and unwatched."""

    def watched(self) -> list[Publication]:
        """The watched publications, in the order of their snapshots."""
        rows = self._sql.read(
            "SELECT body FROM publications WHERE watched = 1 ORDER BY snapshot_id"
        )
        return [_publication(body) for (body,) in rows]

    def by(self, location: str, commit_user: str) -> list[Publication]:
        """The publications of a commit user to a table that are still kept."""
        rows = self._sql.read(
            "SELECT body FROM publications WHERE location = ? AND commit_user = ?",
            location,
            commit_user,
        )
        return [_publication(body) for (body,) in rows]

    def recent(self, count: int, *, with_removed: bool = True) -> list[Publication]:
        """The last publications, of transactions and others, the newest first. Without
        `with_removed` those are left out whose snapshots were removed on purpose."""
        publications = [
            _publication(body)
            for watched in (0, 1)  # each by the index
            for (body,) in self._sql.read(
                "SELECT body FROM publications WHERE watched = ? AND snapshot_id > ? "
                "ORDER BY kept_until_ms DESC LIMIT ?",
                *(watched, _REMOVED - 1 if with_removed else _REMOVED, count),
            )
        ]
        return sorted(publications, key=lambda p: p.published_at_ms, reverse=True)[:count]

    def save(self, publication: Publication, watched: bool) -> None:
        """Store a publication, or replace it."""
        self._sql.write(
            "INSERT INTO publications (id, location, branch, snapshot_id, commit_user, watched, "
            "kept_until_ms, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET location = excluded.location, "
            "branch = excluded.branch, snapshot_id = excluded.snapshot_id, "
            "watched = excluded.watched, kept_until_ms = excluded.kept_until_ms, "
            "body = excluded.body",
            *(publication.id, publication.location, publication.table.branch or ""),
            *(publication.snapshot_id, publication.commit_user, int(watched)),
            *(publication.kept_until_ms, dataclass_json(publication)),
        )

    def drop(self, id: str) -> None:
        """Delete a publication."""
        self._sql.write("DELETE FROM publications WHERE id = ?", id)

    def unwatch_all(self) -> None:
        """Watch no publication any more. They stay, so that a commit that is sent again is
        recognized."""
        self._sql.write("UPDATE publications SET watched = 0 WHERE watched = 1")

    def unwatch_above(self, location: str, branch: str | None, above: int) -> None:
        """Note that the snapshots of a table's branch above the id `above` are removed on purpose.
        Their publications stay, so that a commit that is sent again is recognized."""
        self._sql.write(
            "UPDATE publications SET watched = 0, snapshot_id = ? "
            "WHERE location = ? AND branch = ? AND snapshot_id > ?",
            *(_REMOVED, location, branch or "", above),
        )

    def drop_above(self, location: str, branch: str | None, above: int) -> None:
        """Delete the publications of a table's branch with snapshot ids above `above`."""
        self._sql.write(
            "DELETE FROM publications WHERE location = ? AND branch = ? AND snapshot_id > ?",
            *(location, branch or "", above),
        )

    def drop_all(self, location: str) -> None:
        """Delete the publications of a table and its branches."""
        self._sql.write("DELETE FROM publications WHERE location = ?", location)

    def begin_repetition(self, publication: Publication, now_ms: int) -> None:
        """Store that another run begins to publish an overwritten commit again."""
        # Repeated, it skips a number, which does no harm.
        self._sql.write(
            "INSERT INTO repetitions (id, snapshot_id, runs, begun_at_ms, body) "
            "VALUES (?, ?, 1, ?, ?) ON CONFLICT (id, snapshot_id) DO UPDATE SET "
            "runs = repetitions.runs + 1, begun_at_ms = excluded.begun_at_ms",
            *(publication.id, publication.snapshot_id, now_ms, dataclass_json(publication)),
        )

    def repetitions(self) -> list[tuple[Publication, int, int]]:
        """The overwritten publications that may have left files, as they were before: each with
        the number of runs that published it again, and the time when the last run began."""
        rows = self._sql.read(
            "SELECT body, runs, begun_at_ms FROM repetitions ORDER BY begun_at_ms"
        )
        return [(_publication(body), runs, begun_ms) for body, runs, begun_ms in rows]

    def repetition_runs(self, publication: Publication) -> int:
        """The number of runs that began to publish an overwritten commit again."""
        rows = self._sql.read(
            "SELECT runs FROM repetitions WHERE id = ? AND snapshot_id = ?",
            *(publication.id, publication.snapshot_id),
        )
        return int(rows[0][0]) if rows else 0

    def drop_repetition(self, publication: Publication) -> None:
        """Store that no files of an overwritten publication are left."""
        self._sql.write(
            "DELETE FROM repetitions WHERE id = ? AND snapshot_id = ?",
            *(publication.id, publication.snapshot_id),
        )

    def forget_unwatched(self, until_ms: int) -> None:
        """Delete the unwatched publications whose retention ended at `until_ms` or before."""
        self._sql.write(
            "DELETE FROM publications WHERE watched = 0 AND kept_until_ms <= ?", until_ms
        )


def _publication(text: str) -> Publication:
    body: dict[str, Any] = json.loads(text)
    name, properties = body.pop("table"), body.pop("properties")
    manifests = body.pop("manifests", ())  # older versions did not store them
    return Publication(
        table=TableName(**name),
        properties=tuple((k, v) for k, v in properties),
        manifests=tuple(manifests),
        **body,
    )


# The tables of stopped tables and of pauses, which an administrator ends.


class HaltTable(SqlTable):
    """Tables that take no commits, the pause of the whole coordinator, and that of compactions."""

    def stopped(self) -> list[tuple[str, Stopped]]:
        """The locations of the tables that take no commits, each with the reason."""
        rows = self._sql.read("SELECT location, reason, since_ms FROM stopped ORDER BY location")
        return [(location, Stopped(reason, since_ms)) for location, reason, since_ms in rows]

    def save_stopped(self, location: str, stopped: Stopped | None) -> None:
        """Store that a table is stopped, or with None that it is not."""
        self._sql.write("DELETE FROM stopped WHERE location = ?", location)
        if stopped is not None:
            self._sql.write(
                "INSERT INTO stopped VALUES (?, ?, ?)", location, stopped.reason, stopped.since_ms
            )

    def pause(self) -> Pause | None:
        """The pause, None when there is none."""
        return self._pause("pause")

    def save_pause(self, pause: Pause | None) -> None:
        """Store the pause, or with None that there is none."""
        self._save_pause("pause", pause)

    def compaction_pause(self) -> Pause | None:
        """The pause of compactions, None when there is none."""
        return self._pause("compaction_pause")

    def save_compaction_pause(self, pause: Pause | None) -> None:
        """Store the pause of compactions, or with None that there is none."""
        self._save_pause("compaction_pause", pause)

    def _pause(self, table: str) -> Pause | None:
        rows = self._sql.read(f"SELECT by_whom, since_ms FROM {table}")
        return Pause(*rows[0]) if rows else None

    def _save_pause(self, table: str, pause: Pause | None) -> None:
        self._sql.write(f"DELETE FROM {table}")
        if pause is not None:
            self._sql.write(f"INSERT INTO {table} VALUES (?, ?)", pause.by, pause.since_ms)


# The table of the audit log's entries that are not in the warehouse yet.


class AuditLog(SqlTable):
    """Entries by their ids, each a text, in the order of ids."""

    def save(self, entries: Sequence[tuple[str, str, bool]]) -> None:
        """Make entries durable together: id, text, and whether its outcome is final. An entry with
        an existing id replaces the earlier entry.
        """
        with self._sql.together():
            for id, body, is_done in entries:
                self._sql.write(
                    "INSERT INTO audit (id, done, body) VALUES (?, ?, ?) "
                    "ON CONFLICT (id) DO UPDATE SET done = excluded.done, body = excluded.body",
                    id,
                    int(is_done),
                    body,
                )

    def first(self, count: int, *, done: bool) -> list[tuple[str, str]]:
        """The ids and texts of the first entries that are done, or that are not done."""
        rows = self._sql.read(
            "SELECT id, body FROM audit WHERE done = ? ORDER BY id LIMIT ?", int(done), count
        )
        return [(id, body) for id, body in rows]

    def drop(self, ids: Sequence[str]) -> None:
        """Delete entries."""
        for begin in range(0, len(ids), _TOGETHER):
            some = ids[begin : begin + _TOGETHER]
            marks = ", ".join("?" * len(some))
            self._sql.write(f"DELETE FROM audit WHERE id IN ({marks})", *some)

    def count(self) -> int:
        """How many entries there are."""
        return int(self._sql.read("SELECT count(*) FROM audit")[0][0])


# The table of tokens that administrators have made. Of a token only a digest is stored.


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token without its secret. `digest` is the SHA-256 of the secret in hexadecimal; `allows`
    are the texts of its grants; times are in ms, 0 for none."""

    id: str
    name: str
    digest: str
    allows: tuple[str, ...]
    created_at_ms: int
    expires_at_ms: int = 0
    revoked_at_ms: int = 0

    def is_good(self, now_ms: int) -> bool:
        """Whether it may be used."""
        return not self.revoked_at_ms and (not self.expires_at_ms or now_ms < self.expires_at_ms)


class TokenTable(SqlTable):
    """The tokens, including ended tokens."""

    def all(self) -> list[StoredToken]:
        """All tokens, in the order in which they were made."""
        rows = self._sql.read(
            "SELECT id, name, digest, allows, created_at_ms, expires_at_ms, revoked_at_ms "
            "FROM tokens ORDER BY created_at_ms, id"
        )
        return [
            StoredToken(id, name, digest, tuple(json.loads(allows)), created_at_ms, end, revoked)
            for id, name, digest, allows, created_at_ms, end, revoked in rows
        ]

    def add(self, token: StoredToken) -> None:
        """Store a new token."""
        self._sql.write(
            "INSERT INTO tokens (id, name, digest, allows, created_at_ms, expires_at_ms, "
            "revoked_at_ms) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
            token.id,
            token.name,
            token.digest,
            json.dumps(token.allows),
            token.created_at_ms,
            token.expires_at_ms,
            token.revoked_at_ms,
        )

    def renew(self, id: str, expires_at_ms: int, *, is_sooner: bool = False) -> None:
        """Change a token's expiry, unless it was revoked. `is_sooner` counts as taken rights."""
        with self._sql.together():
            self._sql.write(
                "UPDATE tokens SET expires_at_ms = ? WHERE id = ? AND revoked_at_ms = 0",
                expires_at_ms,
                id,
            )
            if is_sooner:
                self._sql.write(_RIGHTS_TAKEN)

    def allow(self, id: str, allows: Sequence[str]) -> None:
        """Replace what a token allows."""
        with self._sql.together():
            statement = "UPDATE tokens SET allows = ? WHERE id = ?"
            self._sql.write(statement, json.dumps(list(allows)), id)
            self._sql.write(_RIGHTS_TAKEN)

    def revoke(self, id: str, now_ms: int) -> None:
        """Note that a token was revoked, if it was not before."""
        with self._sql.together():
            self._sql.write(
                "UPDATE tokens SET revoked_at_ms = ? WHERE id = ? AND revoked_at_ms = 0", now_ms, id
            )
            self._sql.write(_RIGHTS_TAKEN)


# The table of what administrators have granted to users, groups and roles.


@dataclass(frozen=True, slots=True)
class StoredGrant:
    """A grant. `grantee` is `user:NAME`, `group:NAME` or `role:NAME`; `text` is that of a
    `principals.Grant`, or `role:NAME` for a role that the grantee has."""

    grantee: str
    text: str
    granted_by: str
    granted_at_ms: int


class GrantTable(SqlTable):
    """The grants."""

    def all(self) -> list[StoredGrant]:
        """All grants, by grantee."""
        rows = self._sql.read(
            "SELECT grantee, text, granted_by, granted_at_ms FROM grants ORDER BY grantee, text"
        )
        return [StoredGrant(*row) for row in rows]

    def change(self, added: Sequence[StoredGrant], removed: Sequence[tuple[str, str]]) -> None:
        """Add grants, and remove those of pairs (grantee, text), together."""
        with self._sql.together():
            for grant in added:
                self._sql.write(
                    "INSERT INTO grants (grantee, text, granted_by, granted_at_ms) "
                    "VALUES (?, ?, ?, ?) ON CONFLICT (grantee, text) DO NOTHING",
                    grant.grantee,
                    grant.text,
                    grant.granted_by,
                    grant.granted_at_ms,
                )
            for grantee, text in removed:
                self._sql.write("DELETE FROM grants WHERE grantee = ? AND text = ?", grantee, text)
            if removed:
                self._sql.write(_RIGHTS_TAKEN)


# The row that tells whether store and warehouse belong together; see `ownership.pairing`.


UNFINISHED = "unfinished"
"""The mark of a store whose restore has begun and not ended."""


@dataclass(frozen=True, slots=True)
class StorePair:
    """What a store knows of its warehouse. `id` is the store's; `starts` counts its starts with the
    warehouse, `mark` names the last start. `prior` is the mark that the warehouse may still have
    instead, "" for none. `rights` counts how often rights were taken away."""

    id: str
    starts: int
    mark: str
    prior: str
    rights: int


class PairTable(SqlTable):
    """The pair of a store, which is its only row."""

    def read(self) -> StorePair | None:
        """The pair; None if the store was never started with a warehouse."""
        rows = self._sql.read("SELECT id, starts, mark, prior, rights FROM pairing")
        return StorePair(*rows[0]) if rows else None

    def save(self, pair: StorePair) -> None:
        """Replace the pair, but for the count of rights, which only grows."""
        with self._sql.together():
            self._sql.write(
                "INSERT INTO pairing (id, starts, mark, prior, rights) SELECT ?, ?, ?, ?, ? "
                "WHERE NOT EXISTS (SELECT 1 FROM pairing)",
                *(pair.id, pair.starts, pair.mark, pair.prior, pair.rights),
            )
            self._sql.write(
                "UPDATE pairing SET id = ?, starts = ?, mark = ?, prior = ?, "
                "rights = CASE WHEN rights > ? THEN rights ELSE ? END",
                *(pair.id, pair.starts, pair.mark, pair.prior, pair.rights, pair.rights),
            )
