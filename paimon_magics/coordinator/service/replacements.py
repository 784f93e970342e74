"""A table whose definition is replaced: `CREATE OR REPLACE TABLE`, in two steps as in Paimon's own
catalogs: an overwrite that removes all rows, then the new schema, with the next number. Earlier
snapshots and schemas stay.

If the process dies between the steps, the table is empty and has its old schema: a rollback brings
its rows back. If the second step fails, that is done here.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace

from paimon_magics.coordinator.protocol.errors import NothingChangedError
from paimon_magics.coordinator.protocol.principals import Principal
from paimon_magics.coordinator.runtime.work import Steps
from paimon_magics.coordinator.service.opening import open_transaction
from paimon_magics.coordinator.service.publication_watch import publication_of
from paimon_magics.coordinator.service.served import Context
from paimon_magics.coordinator.service.tags_and_branches import change_versions
from paimon_magics.errors import CommitConflictError, PaimonMagicsError, UnsupportedStatementError
from paimon_magics.planning.commits.requests import CommitRequest, OverwritePartitions
from paimon_magics.planning.schemas.replacements import TableReplacement, keeps_partitions
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import RollBackToSnapshot
from paimon_magics.tables.commits.decoded_request import decoded
from paimon_magics.tables.commits.fencing import commit_fenced
from paimon_magics.tables.snapshots.latest import latest_snapshot_id, read_snapshot, state_of
from paimon_magics.tables.snapshots.provenance import REPLACES_SCHEMA, vouched
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.cleanup import tidy_up

_LATEST = OverwritePartitions(swallow_newer=True)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Removal:
    """A removal of all rows by the snapshot `after`; `before` was the latest snapshot."""

    before: int
    after: int


def check_replacement(table: Table, change: TableReplacement) -> None:
    """Raise for a replacement that can't be made: UnsupportedStatementError for what it asks,
    CommitConflictError if the table is no longer as it was planned on."""
    name = table.name
    if change.schema.stored_option("path") is not None:
        raise UnsupportedStatementError(
            f"`{name}` keeps its location when it is replaced.",
            hint="Leave out LOCATION and the option 'path'.",
        )
    if table.schema.schema_id != change.base_schema_id:
        raise NothingChangedError(
            f"`{name}` was changed while this statement was running: it has another definition.",
            "Run the statement again.",
        )
    if change.is_dropped:
        _check_no_new_rows(table, change)
    elif not keeps_partitions(table.schema, change.schema):
        raise UnsupportedStatementError(
            f"The new definition of `{name}` has other partition columns.",
            hint=f"Drop `{name}` and create it again, which loses its history.",
        )


def _check_no_new_rows(table: Table, change: TableReplacement) -> None:
    """Raise CommitConflictError if others have changed rows of a table that is to be dropped since
    the snapshot that its replacement was planned on. Compactions change none."""
    base_id = change.base_snapshot_id
    if base_id is None or change.swallow_newer:
        return
    latest = latest_snapshot_id(table)
    base = read_snapshot(table.paimon, base_id) if base_id else None
    is_same = latest >= base_id and (base is None or state_of(base)[1] == change.base_manifest_list)
    newer = (read_snapshot(table.paimon, at) for at in range(base_id + 1, latest + 1))
    # The first one that changes rows ends the search.
    if not is_same or not all(each and each.commit_kind == "COMPACT" for each in newer):
        raise NothingChangedError(
            f"Others have changed rows of `{table.name}` since this statement began.",
            "Look at the new rows, and run the statement again to drop them, too.",
        )


def is_replacement_done(present: TableSchema, change: TableReplacement) -> bool:
    """Whether a table's schema is the one that a replacement leads to."""

    def without_ids(schema: TableSchema) -> TableSchema:
        columns = tuple(replace(column, id=0) for column in schema.columns)
        return replace(schema, columns=columns, schema_id=0)

    is_next = present.schema_id == change.base_schema_id + 1
    return is_next and without_ids(present) == without_ids(change.schema)


def remove_rows(
    context: Context,
    name: TableName,
    *,
    base: tuple[int, str] | None = None,
    change: OverwritePartitions = _LATEST,
    properties: tuple[tuple[str, str], ...] = (),
) -> Removal | None:
    """Remove all rows of a table by an overwrite, which keeps its history. `base` is the snapshot
    that the removal was planned on, None for the latest one. The caller keeps other changes of the
    table away.

    Raises CommitConflictError if others have added rows since `base`, unless `change` swallows
    them. Nothing is removed then.
    """
    loaded, transaction = open_transaction(context.catalog, name, base)
    request = CommitRequest(transaction, change, (), properties)
    fence = None if context.fence is None else context.fence()
    try:
        commit = decoded(loaded, request)
        receipt = commit_fenced(commit, context.catalog.publish, fence)
    finally:
        tidy_up(loaded, transaction)
        context.recent.forget(loaded.location)
    if context.watch is not None:
        now_ms = int(time.time() * 1000)
        publication = publication_of(transaction.file_prefix, commit, receipt, now_ms)
        if publication is not None:
            context.watch.note(replace(publication, is_transaction=False))
    if receipt.snapshot_id is None:
        return None
    return Removal(transaction.base_snapshot_id, receipt.snapshot_id)


def remove_planned(
    context: Context, change: TableReplacement, principal: Principal
) -> Removal | None:
    """Remove the rows of a table that is replaced. Raises as `remove_rows` and `vouched` do."""
    properties = vouched(dict(change.properties), principal.name)
    base = None
    if change.base_snapshot_id is not None:
        base = change.base_snapshot_id, change.base_manifest_list
    table = context.catalog.load(change.name)
    if not latest_snapshot_id(table):
        return None
    try:
        return remove_rows(
            context,
            change.name,
            base=base,
            change=OverwritePartitions(swallow_newer=change.swallow_newer),
            properties=(*properties.items(), (REPLACES_SCHEMA, str(change.base_schema_id))),
        )
    except CommitConflictError as error:
        removed = _removed_by(table, change)
        if removed is None:
            raise
        raise CommitConflictError(
            f"Replacing `{table.name}` was cut off after snapshot {removed} had removed its rows, "
            "and others have added rows since.",
            hint=f"The table has its old definition, and those new rows alone. Snapshot "
            f"{removed - 1} has the rows of before: INSERT INTO {table.name} SELECT * FROM "
            f"{table.name} VERSION AS OF {removed - 1} adds them again. Or run the statement "
            "again.",
        ) from error


def _removed_by(table: Table, change: TableReplacement) -> int | None:
    """The snapshot in which the same replacement, asked for before, has removed the rows."""
    wanted = REPLACES_SCHEMA, str(change.base_schema_id)
    first = (change.base_snapshot_id or 0) + 1
    for snapshot_id in range(first, latest_snapshot_id(table) + 1):
        snapshot = read_snapshot(table.paimon, snapshot_id)
        if snapshot is not None and wanted in (snapshot.properties or {}).items():
            return snapshot_id
    return None


def put_back(context: Context, name: TableName, removal: Removal) -> Steps[None]:
    """Roll a removal back whose replacement failed, unless others have committed since. A failure
    is logged: the error of the replacement is more useful."""
    try:
        if latest_snapshot_id(context.catalog.load(name)) == removal.after and removal.before:
            yield from change_versions(context, name, RollBackToSnapshot(removal.before))
    except PaimonMagicsError as error:
        _log.warning("The rows of `%s` were not put back: %s", name, error)
