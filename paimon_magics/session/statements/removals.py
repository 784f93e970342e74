"""CALL of the procedures that remove snapshots, changelogs, tags, partitions and files: what they
would remove, who keeps the rest, and their runs.

What is beside the table's rows is removed by the session's committer, which knows who reads and
writes the table. Partitions and files that are gone leave the table by a commit.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

import pyarrow as pa

from paimon_magics.columnar.time_zones import rules_of
from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import (
    InvalidTableError,
    PaimonMagicsError,
    UnconfirmedError,
    UnknownNameError,
    nearest,
)
from paimon_magics.planning.commits.partition_expiry import PartitionExpiry, StoredPartition
from paimon_magics.planning.commits.requests import Append, CommitRequest, OverwritePartitions
from paimon_magics.planning.formatting import count_text, size_text
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.provenance import Operation, provenance
from paimon_magics.session.statements.compaction import ProcedureCall
from paimon_magics.session.statements.handler import Standing, unconfirmed
from paimon_magics.session.writes.outcomes import Replaced, removal_notes, rows_taken
from paimon_magics.session.writes.transactions import begun, committed
from paimon_magics.spark.job_watching import doing
from paimon_magics.statements.removals import (
    ExpireChangelogs,
    ExpirePartitions,
    ExpireSnapshots,
    ExpireTags,
    PurgeFiles,
    Removal,
    RemoveOrphanFiles,
    RemoveUnexistingFiles,
    TableRemoval,
)
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.commits.replaced_partitions import (
    ExpiredPartitions,
    PartitionSize,
    expired_partitions,
    sizes_of_replaced,
    spec_of,
)
from paimon_magics.tables.expiry.holders import Holder, RemovalReceipt
from paimon_magics.tables.expiry.orphan_files import UnexistingFiles, unexisting_files
from paimon_magics.tables.snapshots.time_travel import moment_ms
from paimon_magics.tables.table import Table

_EVERY = ".*"
_NOTES_MAX = 20
_SHOWN_MAX = 5
_NOUNS = {
    "tag": ("tag", "tags"),
    "branch": ("branch", "branches"),
    "consumer": ("consumer", "consumers"),
    "lease": ("snapshot that a session reads", "snapshots that sessions read"),
    "transaction": ("open transaction", "open transactions"),
}
_ORPHAN = "orphan"


def run_removal(call: ProcedureCall, removal: Removal) -> Outcome:
    """Run a CALL that removes something."""
    match removal:
        case ExpirePartitions():
            return _run_partitions(call, removal)
        case RemoveUnexistingFiles():
            return _run_unexisting(call, removal)
        case RemoveOrphanFiles() if call.name.table.endswith("*"):
            return _run_database(call, removal)
        case PurgeFiles():
            return _run_purge(call, removal)
        case _:
            receipt = _removed(call, removal, is_trial=False)
            is_trial = isinstance(removal, RemoveOrphanFiles) and removal.dry_run
            return _outcome(call, removal, receipt, is_trial=is_trial)


def removal_lines(call: ProcedureCall, removal: Removal) -> list[str]:
    """What a CALL would remove. Nothing is removed."""
    match removal:
        case ExpirePartitions():
            table, expiry = _expired_partitions(call, removal)
            return [_partitions_line(table, expiry.gone), *_without_time(expiry)]
        case RemoveUnexistingFiles():
            table, gone = _unexisting(call)
            return [_unexisting_line(table, gone)]
        case RemoveOrphanFiles() if call.name.table.endswith("*"):
            receipt, notes = _of_database(call, replace(removal, dry_run=True))
            return [_line(call, removal, receipt), *notes]
        case _:
            receipt = _removed(call, removal, is_trial=True)
            return [_line(call, removal, receipt), *_standing(removal, receipt)]


def removal_preview(call: ProcedureCall, removal: Removal) -> Replaced | Standing:
    """The rows that a CALL would remove; or who keeps snapshots and files from being removed."""
    if isinstance(removal, ExpirePartitions):
        table, expiry = _expired_partitions(call, removal)
        return Replaced(table, _sizes(table, expiry.gone))
    if isinstance(removal, RemoveUnexistingFiles):
        table, gone = _unexisting(call)
        removal = ExpireSnapshots(retain_max=1, retain_min=1)
        line = _unexisting_line(table, gone)
        receipt = call.scope.committer.remove(call.name, removal, is_trial=True)
    elif isinstance(removal, RemoveOrphanFiles) and call.name.table.endswith("*"):
        receipt, _ = _of_database(call, replace(removal, dry_run=True))
        line = _line(call, removal, receipt)
    else:
        receipt = _removed(call, removal, is_trial=True)
        line = _line(call, removal, receipt)
    shown = list(receipt.holders)
    if isinstance(removal, RemoveOrphanFiles):
        shown = [Holder(_ORPHAN, name) for name in receipt.names]
        left = receipt.files - len(shown)
        line += f" The first {len(shown):,} are shown." if left > 0 else ""
    rows = pa.table(
        {
            "kind": pa.array([each.kind for each in shown], pa.string()),
            "name": pa.array([each.name for each in shown], pa.string()),
            "snapshot_id": pa.array([each.snapshot_id for each in shown], pa.int64()),
        }
    )
    return Standing(rows, line)


def unconfirmed_removal(call: ProcedureCall, removal: Removal) -> UnconfirmedError | None:
    """The question before rows or tags are removed that the call does not name; None for others."""
    match removal:
        case PurgeFiles():
            call.load()
            return unconfirmed(
                call.statement,
                f"Purging `{call.name}`",
                "all of its rows, earlier snapshots, tags, branches and consumers",
                "Nothing brings them back. TRUNCATE TABLE removes the rows alone.",
            )
        case ExpireTags() if removal.older_than is not None:
            names = _removed(call, removal, is_trial=True).names
            if not names:
                return None
            return unconfirmed(
                call.statement,
                f"Expiring tags of `{call.name}`",
                f"{count_text(len(names), 'tag')}: {_shown(names)}",
                "Rows that only a tag keeps can't be restored.",
            )
        case ExpirePartitions():
            table, expiry = _expired_partitions(call, removal)
            sizes = _sizes(table, expiry.gone)
            if not sizes:
                return None
            return unconfirmed(
                call.statement,
                f"Expiring partitions of `{table.name}`",
                rows_taken(sizes),
                "%%paimon --preview shows the rows of each partition.",
            )
        case _:
            return None


def _removed(call: ProcedureCall, removal: TableRemoval, *, is_trial: bool) -> RemovalReceipt:
    table = call.load()
    with call.errors_located():
        wanted = _in_utc(removal, call.scope.zone)
        with doing(
            lambda: call.scope.committer.delay() or f"looking at the files of `{call.name}`"
        ):
            return call.scope.committer.remove(table.name, wanted, is_trial=is_trial)


def _in_utc(removal: TableRemoval, zone: str) -> TableRemoval:
    """The same with its time in UTC, as a committer reads it. Raises InvalidValueError for what is
    no time."""
    if isinstance(removal, PurgeFiles) or not (removal.older_than or "").strip():
        return removal
    at = datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(
        milliseconds=moment_ms(removal.older_than or "", zone)
    )
    text = at.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
    return replace(removal, older_than=f"{text}Z")


# The outcomes of what is removed beside rows.


def _outcome(
    call: ProcedureCall, removal: TableRemoval, receipt: RemovalReceipt, *, is_trial: bool = False
) -> Outcome:
    """The rows that Paimon's procedure returns, with a message of ours."""
    outcome = Outcome.of_rows(call.scope.spark, call.text, "CALL", _rows(removal, receipt))
    outcome.table = str(call.name)
    outcome.message = _line(call, removal, receipt, is_done=not is_trial)
    outcome.notes = tuple(_standing(removal, receipt))
    return outcome


def _standing(removal: TableRemoval, receipt: RemovalReceipt) -> list[str]:
    """Sentences on what stays, and who keeps it."""
    lines = _keepers(receipt)
    ids = [holder.snapshot_id for holder in receipt.holders if holder.snapshot_id is not None]
    if isinstance(removal, PurgeFiles) and ids:
        lines.append(
            f"Snapshots from {min(ids)} on stay with their rows and files, which VERSION AS OF "
            "reads, until nobody reads them. Then repeat the call."
        )
    return lines


def _rows(removal: TableRemoval, receipt: RemovalReceipt) -> pa.Table:
    match removal:
        case ExpireSnapshots():
            return pa.table({"deleted_snapshots_count": pa.array([receipt.snapshots], pa.int32())})
        case ExpireChangelogs(delete_all=True):
            return _texts("result", ["Delete all separated changelogs success."])
        case ExpireChangelogs():
            return _texts("result", [str(receipt.snapshots)])
        case ExpireTags():
            return _texts("expired_tags", list(receipt.names) or ["No expired tags."])
        case RemoveOrphanFiles():
            return pa.table(
                {
                    "deletedFileCount": pa.array([receipt.files], pa.int64()),
                    "deletedFileTotalLenInBytes": pa.array([receipt.size_bytes], pa.int64()),
                }
            )
        case PurgeFiles():
            return _texts("result", ["Success"])
    assert_never(removal)


def _texts(name: str, texts: Sequence[str]) -> pa.Table:
    return pa.table({name: pa.array(texts, pa.string())})


def _line(
    call: ProcedureCall, removal: TableRemoval, receipt: RemovalReceipt, *, is_done: bool = False
) -> str:
    """What was removed, or would be."""
    verb = "removed" if is_done else "would be removed"
    size = f" ({size_text(receipt.size_bytes)})" if receipt.size_bytes else ""
    files = count_text(receipt.files, "file") + size
    name = f"`{call.name}`"
    match removal:
        case ExpireSnapshots() | ExpireChangelogs():
            what = "snapshot" if isinstance(removal, ExpireSnapshots) else "changelog"
            return f"{name}: {count_text(receipt.snapshots, what)} {verb}, with {files}."
        case ExpireTags():
            shown = f": {_shown(receipt.names)}" if receipt.names else ""
            return f"{name}: {count_text(len(receipt.names), 'tag')} {verb}{shown}."
        case RemoveOrphanFiles():
            return f"{name}: {files} that nothing refers to {verb}."
        case PurgeFiles():
            return f"{name}: all rows, and {files}, {verb}."
    assert_never(removal)


def _shown(names: Sequence[str]) -> str:
    left = len(names) - _SHOWN_MAX
    return ", ".join(f"`{name}`" for name in names[:_SHOWN_MAX]) + (
        f" and {left:,} more" if left > 0 else ""
    )


def _keepers(receipt: RemovalReceipt) -> list[str]:
    """Sentences on what keeps files of the table, one for each kind."""
    lines = []
    for kind, nouns in _NOUNS.items():
        holders = [holder for holder in receipt.holders if holder.kind == kind]
        if not holders:
            continue
        shown = ", ".join(dict.fromkeys(_holder_text(holder) for holder in holders[:_SHOWN_MAX]))
        left = len(holders) - _SHOWN_MAX
        more = f" and {left:,} more" if left > 0 else ""
        word = nouns[len(holders) != 1]
        lines.append(f"Kept by {len(holders):,} {word}: {shown}{more}.")
    return lines


def _holder_text(holder: Holder) -> str:
    """`ann` (snapshot 3). Who reads or writes has no name where users have none."""
    snapshot = "" if holder.snapshot_id is None else f"snapshot {holder.snapshot_id:,}"
    if not holder.name:
        return snapshot or "without a name"
    return f"`{holder.name}`" + (f" ({snapshot})" if snapshot else "")


# CALL sys.remove_orphan_files of all tables of a database: `db.*`.


def _run_database(call: ProcedureCall, removal: RemoveOrphanFiles) -> Outcome:
    receipt, notes = _of_database(call, removal)
    outcome = _outcome(call, removal, receipt, is_trial=removal.dry_run)
    outcome.notes = (*outcome.notes, *notes)
    return outcome


def _of_database(
    call: ProcedureCall, removal: RemoveOrphanFiles
) -> tuple[RemovalReceipt, list[str]]:
    """What is removed in all tables of a database. One that can't be cleaned does not stop the
    others: a note gives the reason."""
    database = call.name.database or ""
    catalog = call.scope.catalog
    if not catalog.database_exists(database):
        raise UnknownNameError(
            f"There is no database `{database}`.",
            hint=nearest(database, catalog.list_databases, what="databases"),
            statement=call.text,
            position=call.position,
        )
    total, failed = RemovalReceipt(), []
    for table in sorted(catalog.list_tables(database)):
        name = TableName(table, database=database)
        try:
            receipt = _removed(replace(call, name=name), removal, is_trial=removal.dry_run)
        except PaimonMagicsError as error:
            failed.append(f"`{name}`: {error.message}")
        else:
            total += replace(receipt, names=tuple(f"{table}/{each}" for each in receipt.names))
    left = len(failed) - _NOTES_MAX
    more = [f"{left:,} more failed."] if left > 0 else []
    return total, [*failed[:_NOTES_MAX], *more]


# CALL sys.purge_files.


def _run_purge(call: ProcedureCall, removal: PurgeFiles) -> Outcome:
    """Remove all rows by a commit, then what keeps their files. If that breaks off, the call can be
    repeated."""
    table = call.load()
    with call.errors_located():
        receipt = call.scope.committer.remove(table.name, removal, is_trial=True)
        writers = [holder for holder in receipt.holders if holder.kind == "transaction"]
        if writers:
            raise InvalidTableError(
                f"`{table.name}` is being written: {writers[0].name}.",
                hint="Nothing was removed. Run the statement again when that is over.",
            )
    snapshot_id, kind = _committed(call, table, OverwritePartitions(()), (), None)
    receipt = _removed(call, removal, is_trial=False)
    outcome = _outcome(call, removal, receipt)
    outcome.snapshot_id, outcome.commit_kind = snapshot_id, kind
    return outcome


def _committed(
    call: ProcedureCall,
    table: Table,
    change: Append | OverwritePartitions,
    messages: tuple[bytes, ...],
    base: tuple[int, str] | None,
) -> tuple[int | None, str | None]:
    """Commit a change planned on a snapshot; return the new snapshot's id and kind."""
    with call.errors_located():
        transaction = begun(call.scope, table.name, base, Attempts(reruns_max=0))
    operation = Operation(f"CALL sys.{call.statement.procedure[-1].lower()}")
    properties = provenance(call.scope, call.text, operation)
    request = CommitRequest(transaction, change, messages, properties=properties)
    receipt = committed(call.scope, request)
    return receipt.snapshot_id, receipt.commit_kind


# CALL sys.expire_partitions.


def _run_partitions(call: ProcedureCall, removal: ExpirePartitions) -> Outcome:
    table, expiry = _expired_partitions(call, removal)
    expired, base = expiry.gone, expiry.base
    null = table.schema.partition_default_name
    specs = [spec_of(table, partition) for partition in expired]
    shown = [
        ", ".join(f"{key}={null if value is None else value}" for key, value in spec)
        for spec in specs
    ]
    rows = _texts("expired_partitions", shown or ["No expired partitions."])
    sizes = _sizes(table, expired)
    outcome = Outcome.of_rows(call.scope.spark, call.text, "CALL", rows)
    outcome.table = str(table.name)
    outcome.message = f"`{table.name}`: no partition is old enough."
    if expired:
        change = OverwritePartitions(tuple(specs))
        outcome.snapshot_id, outcome.commit_kind = _committed(call, table, change, (), base)
        outcome.message = (
            f"`{table.name}`: {rows_taken(sizes)} removed (snapshot {outcome.snapshot_id})."
        )
        outcome.notes = removal_notes(table, base[0])
    outcome.notes = (*outcome.notes, *_without_time(expiry))
    return outcome


def _without_time(expiry: ExpiredPartitions) -> list[str]:
    """A sentence on partitions whose values are no time by the rules; they stay for ever."""
    if not expiry.without_time:
        return []
    values = expiry.without_time[0].values
    first = ", ".join("NULL" if value is None else value for value in values)
    count = count_text(len(expiry.without_time), "partition")
    return [
        f"{count} can't expire, such as ({first}): the values are no time by the formatter and "
        "pattern. `timestamp_formatter` and `timestamp_pattern` say how they are read."
    ]


def _partitions_line(table: Table, expired: Sequence[StoredPartition]) -> str:
    sizes = _sizes(table, expired)
    if not sizes:
        return f"`{table.name}`: no partition is old enough."
    return f"`{table.name}`: {rows_taken(sizes)} would be removed."


def _sizes(table: Table, expired: Sequence[StoredPartition]) -> list[PartitionSize]:
    if not expired:
        return []
    return sizes_of_replaced(table, specs=[spec_of(table, each) for each in expired])


def _expired_partitions(
    call: ProcedureCall, removal: ExpirePartitions
) -> tuple[Table, ExpiredPartitions]:
    """The partitions that expire, with the table that they are of."""
    table = call.load()
    with call.errors_located():
        if not table.schema.partition_keys:
            raise InvalidTableError(
                f"The table `{table.name}` has no partitions.",
                hint="It was created without PARTITIONED BY: DELETE removes rows.",
            )
        rules = PartitionExpiry.of(table.schema, removal)
        if rules is None:
            raise InvalidTableError(
                f"It is unknown how old partitions of `{table.name}` must be to expire.",
                hint="Give expiration_time => '7 d', or set the table's option "
                "'partition.expiration-time'.",
            )
    now = datetime.datetime.now(rules_of(call.scope.zone))
    return table, expired_partitions(table, rules, now)


# CALL sys.remove_unexisting_files.


def _run_unexisting(call: ProcedureCall, removal: RemoveUnexistingFiles) -> Outcome:
    table, gone = _unexisting(call)
    paths = [] if gone is None else gone.paths
    outcome = Outcome.of_rows(call.scope.spark, call.text, "CALL", _texts("fileName", paths))
    outcome.table = str(table.name)
    outcome.message = _unexisting_line(table, gone, is_done=bool(paths) and not removal.dry_run)
    if gone is not None and paths and not removal.dry_run:
        outcome.snapshot_id, outcome.commit_kind = _committed(
            call, table, Append(), gone.messages(table), gone.base
        )
        outcome.notes = ("Their rows are lost. A tag or branch may still refer to such a file.",)
    return outcome


def _unexisting(call: ProcedureCall) -> tuple[Table, UnexistingFiles | None]:
    table = call.load()
    with call.errors_located():
        return table, unexisting_files(table)


def _unexisting_line(table: Table, gone: UnexistingFiles | None, *, is_done: bool = False) -> str:
    if gone is None or not gone.paths:
        return f"`{table.name}`: all of its files are there."
    verb = "were taken" if is_done else "would be taken"
    rows = sum(gone.files["row_count"].to_pylist())
    return (
        f"`{table.name}`: {count_text(len(gone.paths), 'file')} with {count_text(rows, 'row')} "
        f"that are gone {verb} out of the table."
    )
