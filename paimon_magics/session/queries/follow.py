"""Changes as they are committed: one frame for each snapshot, once.

A consumer records its next snapshot in the table, as Paimon's consumers do; snapshots that a
consumer still needs do not expire. The record advances when the caller asks for the next changes.
So a process that dies while it works on a snapshot's changes gets them again, and none is lost.
Rules: `ContinuousFromSnapshotStartingScanner`, `DeltaFollowUpScanner`, `ChangelogFollowUpScanner`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paimon_magics.errors import InvalidValueError, UnknownNameError
from paimon_magics.planning.reads.views import ViewKind, view_named
from paimon_magics.session.connection import Connection
from paimon_magics.session.queries.table_frames import frame_of_table
from paimon_magics.session.scope import statement_scope
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.snapshots.consumers import keep_progress, progress_of
from paimon_magics.tables.snapshots.latest import latest_snapshot, read_snapshot
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame


@dataclass(frozen=True)
class SnapshotChanges:
    """The changes of one snapshot. `dataframe` is lazy, with the columns of the followed table."""

    snapshot_id: int
    commit_kind: str
    time_ms: int
    dataframe: DataFrame


def follow(
    connection: Connection,
    name: TableName,
    *,
    from_snapshot: int | None,
    consumer_id: str | None,
    poll_ms: int,
    wait: bool,
) -> Iterator[SnapshotChanges]:
    """Iterate over the changes of each snapshot from `from_snapshot` on (None: the next snapshot).

    A known consumer continues where it stopped, unless `from_snapshot` is given. Without `wait` the
    iterator ends at the latest snapshot; with it, it polls every `poll_ms` milliseconds. Snapshots
    without changes are skipped: compactions, and overwrites, which Paimon does not count as
    changes.

    Raises InvalidValueError for a view that has no changes, UnknownNameError for a snapshot that
    has expired.
    """
    kind = view_named(name.system_table)
    if kind not in (ViewKind.TABLE, ViewKind.AUDIT_LOG, ViewKind.BINLOG):
        raise InvalidValueError(
            f"`{name}` has no changes to follow.",
            hint="Follow the table, its $audit_log or its $binlog.",
        )
    table = connection.catalog.load(replace(name, system_table=None))
    wanted = _start(table, from_snapshot, consumer_id)
    return _changes(connection, name, table, wanted, consumer_id, poll_ms, wait)


def _changes(
    connection: Connection,
    name: TableName,
    table: Table,
    wanted: int,
    consumer_id: str | None,
    poll_ms: int,
    wait: bool,
) -> Iterator[SnapshotChanges]:
    if consumer_id is not None:
        keep_progress(table, consumer_id, wanted)  # from here on it keeps its snapshots
    while True:
        snapshot = read_snapshot(table.paimon, wanted)
        if snapshot is None:
            latest = latest_snapshot(table.paimon)
            if latest is not None and latest.id >= wanted:
                if read_snapshot(table.paimon, wanted) is not None:
                    continue  # it was committed meanwhile
                raise _expired(table, wanted)
            if not wait:
                return
            time.sleep(poll_ms / 1000)
            continue
        if _changes_rows(table, snapshot.commit_kind, snapshot.changelog_manifest_list):
            # Loaded again: the table may have new columns.
            with statement_scope(connection) as scope:
                options = {"incremental-between": _window(wanted)}
                frame = frame_of_table(scope, name, options, in_order=True)
            yield SnapshotChanges(wanted, snapshot.commit_kind, snapshot.time_millis, frame)
        wanted += 1
        if consumer_id is not None:
            keep_progress(table, consumer_id, wanted)


def _window(snapshot_id: int) -> str:
    return f"{snapshot_id - 1},{snapshot_id}"


def _changes_rows(table: Table, commit_kind: str, changelog: str | None) -> bool:
    if table.schema.changelog_producer == "none":
        return commit_kind == "APPEND"
    return commit_kind != "OVERWRITE" and changelog is not None


def _start(table: Table, from_snapshot: int | None, consumer_id: str | None) -> int:
    known = None if consumer_id is None else progress_of(table, consumer_id)
    if from_snapshot is not None:
        if from_snapshot < 1:
            raise InvalidValueError(
                f"There is no snapshot {from_snapshot}.", hint="Snapshot numbers begin with 1."
            )
        latest = latest_snapshot(table.paimon)
        if (
            latest is not None
            and from_snapshot <= latest.id
            and (read_snapshot(table.paimon, from_snapshot) is None)
        ):
            raise _expired(table, from_snapshot)
        return from_snapshot
    if known is not None:
        return known
    latest = latest_snapshot(table.paimon)
    return 1 if latest is None else int(latest.id) + 1


def _expired(table: Table, snapshot_id: int) -> UnknownNameError:
    return UnknownNameError(
        f"Snapshot {snapshot_id} of `{table.name}` has expired: its changes are gone.",
        hint=f"SELECT * FROM `{table.name.object_name}$snapshots` lists the snapshots that are "
        "left. A consumer_id keeps those that you still need.",
    )
