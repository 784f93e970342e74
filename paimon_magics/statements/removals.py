"""What CALL removes from a table: snapshots, changelogs, tags, partitions and files.

Members are the parameters of the procedure of that name, None where they are not given. A time is a
text such as `2026-01-31 23:59:59`, in the session's zone unless it ends with an offset.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExpireSnapshots:
    """`sys.expire_snapshots`: remove snapshots before the last `retain_max`, and those that are
    `older_than` a time, but never the last `retain_min`; at most `max_deletes` of them. `options`
    take the place of the table's, like `k=v,k=v`."""

    retain_max: int | None = None
    retain_min: int | None = None
    older_than: str | None = None
    max_deletes: int | None = None
    options: str | None = None


@dataclass(frozen=True, slots=True)
class ExpireChangelogs:
    """`sys.expire_changelogs`: as `ExpireSnapshots`, of the changelogs that outlive snapshots.
    `delete_all` removes all of them."""

    retain_max: int | None = None
    retain_min: int | None = None
    older_than: str | None = None
    max_deletes: int | None = None
    delete_all: bool = False


@dataclass(frozen=True, slots=True)
class ExpireTags:
    """`sys.expire_tags`: delete tags whose time is over, and those made before `older_than`."""

    older_than: str | None = None


@dataclass(frozen=True, slots=True)
class RemoveOrphanFiles:
    """`sys.remove_orphan_files`: delete files that nothing refers to and that were written before
    `older_than`, by default a day ago. With `dry_run` they are only counted."""

    older_than: str | None = None
    dry_run: bool = False
    parallelism: int | None = None
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class PurgeFiles:
    """`sys.purge_files`: remove all rows, and all that keeps them: branches, tags, consumers,
    changelogs, earlier snapshots, files."""


TableRemoval = ExpireSnapshots | ExpireChangelogs | ExpireTags | RemoveOrphanFiles | PurgeFiles
"""What a coordinator removes beside the table's rows."""


@dataclass(frozen=True, slots=True)
class ExpirePartitions:
    """`sys.expire_partitions`: drop the partitions that are older than `expiration_time`. What is
    not given is the table's own option."""

    expiration_time: str | None = None
    timestamp_formatter: str | None = None
    timestamp_pattern: str | None = None
    expire_strategy: str | None = None
    max_expires: int | None = None
    options: str | None = None


@dataclass(frozen=True, slots=True)
class RemoveUnexistingFiles:
    """`sys.remove_unexisting_files`: take the data files out of the table that are gone from its
    store. With `dry_run` they are only named."""

    dry_run: bool = False
    parallelism: int | None = None


RowRemoval = ExpirePartitions | RemoveUnexistingFiles
"""What a commit removes from a table's rows."""

Removal = TableRemoval | RowRemoval
"""What a CALL can remove."""
