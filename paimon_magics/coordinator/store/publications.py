"""The tables of publications, and of publications that were published again."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from paimon_magics.coordinator.store.sql import Sql
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.statements.statement import TableName

__all__ = ["PublicationTable"]


class PublicationTable:
    """The stored publications, watched and unwatched."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

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

    def recent(self, count: int) -> list[Publication]:
        """The last publications, of transactions and others, the newest first."""
        found = [
            _publication(body)
            for watched in (0, 1)  # each by the index
            for (body,) in self._sql.read(
                "SELECT body FROM publications WHERE watched = ? "
                "ORDER BY kept_until_ms DESC LIMIT ?",
                *(watched, count),
            )
        ]
        return sorted(found, key=lambda p: p.published_at_ms, reverse=True)[:count]

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
            *(publication.kept_until_ms, json.dumps(asdict(publication))),
        )

    def drop(self, id: str) -> None:
        """Delete a publication."""
        self._sql.write("DELETE FROM publications WHERE id = ?", id)

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
            *(publication.id, publication.snapshot_id, now_ms, json.dumps(asdict(publication))),
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
