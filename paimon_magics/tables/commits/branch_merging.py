"""The files that a branch has and another one lacks, as rows to append: Paimon's `mergeBranch`.

Both must only have added rows since they were one. Then the files that only the source has are
exactly its new rows, and no file of the target is among them that somebody compacted or removed.
Paimon's Java library can't tell where branches part, and wants this of their whole history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import InvalidTableError, UnsupportedStatementError
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.snapshots.latest import latest_snapshot, read_snapshot
from paimon_magics.tables.table import Table, publishes_itself
from paimon_magics.tables.writing.commit_messages import write_message
from paimon_magics.tables.writing.data_file_metas import stored_metas

_ADDING = ("APPEND", "ANALYZE")


@dataclass(frozen=True, slots=True)
class BranchMerge:
    """What a merge adds to a branch whose latest snapshot is pypaimon's `base`: the messages of
    `files` files with `rows` rows."""

    base: Any
    messages: tuple[bytes, ...]
    files: int
    rows: int


def plan_branch_merge(
    source: Table, target: Table, manifests: Callable[[Table], ManifestCache]
) -> BranchMerge:
    """Find the files of `source` that `target` lacks; both are branches of one table.

    Raises UnsupportedStatementError for tables whose rows are not only added, and InvalidTableError
    for branches that have no snapshots, have changed rows since they were one, or have other
    columns. Nothing is written.
    """
    _check_tables(source, target)
    theirs, ours = latest_snapshot(source.paimon), latest_snapshot(target.paimon)
    for table, latest in ((source, theirs), (target, ours)):
        if latest is None:
            raise InvalidTableError(
                f"`{table.name}` has no snapshot, so it can't be merged.",
                hint="Write to it first.",
            )
    shared = _shared(source, theirs, target, ours)
    for table, latest in ((source, theirs), (target, ours)):
        _check_history(table, shared, latest)
    files = _lacking(live_files(manifests(source), theirs), live_files(manifests(target), ours))
    _check_files(source, target, files)
    messages = tuple(write_message(target.paimon, each) for each in _messages(target, files))
    rows = int(np.asarray(files["row_count"]).sum())
    return BranchMerge(ours, messages, files.num_rows, rows)


def _check_tables(source: Table, target: Table) -> None:
    for table in (source, target):
        if publishes_itself(table):
            raise UnsupportedStatementError(
                f"`{table.name}` belongs to a REST catalog, which merges no branches.",
                hint="INSERT INTO the table what the branch has.",
            )
        reason = ""
        if table.schema.is_primary_key_table:
            reason = "has a primary key: the rows of both have to be merged by their keys"
        elif table.schema.data_evolution_enabled:
            reason = "has 'data-evolution.enabled' = 'true': its files have some columns only"
        elif table.schema.deletion_vectors_enabled:
            reason = "has deletion vectors: rows of files that both have may be deleted in one"
        if reason:
            raise UnsupportedStatementError(
                f"`{table.name}` {reason}.",
                hint="INSERT INTO the table what the branch has, or CALL sys.fast_forward.",
            )
    if source.schema.row_tracking_enabled != target.schema.row_tracking_enabled:
        raise InvalidTableError(
            f"'row-tracking.enabled' of `{source.name}` and of `{target.name}` differ.",
            hint="INSERT INTO the one what the other has.",
        )
    if source.schema.columns != target.schema.columns:
        raise InvalidTableError(
            f"The columns of `{source.name}` and of `{target.name}` differ.",
            hint="Alter one of them, or INSERT INTO the one what the other has.",
        )


def _shared(source: Table, theirs: Any, target: Table, ours: Any) -> int:
    """The id of the last snapshot that both have; 0 if they have none in common."""
    for snapshot_id in range(min(theirs.id, ours.id), 0, -1):
        first = read_snapshot(source.paimon, snapshot_id)
        second = read_snapshot(target.paimon, snapshot_id)
        if first is None or second is None:
            return 0
        if (first.uuid, first.delta_manifest_list) == (second.uuid, second.delta_manifest_list):
            return snapshot_id
    return 0


def _check_history(table: Table, shared: int, latest: Any) -> None:
    for snapshot_id in range(shared + 1, latest.id + 1):
        snapshot = latest if snapshot_id == latest.id else read_snapshot(table.paimon, snapshot_id)
        if snapshot is None:
            problem = f"its snapshot {snapshot_id} has expired, so what it changed is unknown"
        elif snapshot.commit_kind not in _ADDING:
            problem = f"its snapshot {snapshot_id} is of the kind {snapshot.commit_kind}"
        else:
            continue
        raise InvalidTableError(
            f"`{table.name}` can't be merged: {problem}. Since the branches were one, both must "
            "only have added rows.",
            hint="INSERT INTO the one branch what the other has.",
        )


def _lacking(theirs: pa.Table, ours: pa.Table) -> pa.Table:
    """The files of `theirs` that are not among `ours`."""
    known = set(_names(ours))
    lacks = [name not in known for name in _names(theirs)]
    return theirs.filter(pa.array(lacks, pa.bool_()))


def _names(files: pa.Table) -> Iterator[tuple[Any, ...]]:
    columns = (files[name].to_pylist() for name in ("partition", "bucket", "file_name"))
    return zip(*columns, strict=True)


def _check_files(source: Table, target: Table, files: pa.Table) -> None:
    for schema_id in sorted(set(files["schema_id"].to_pylist())):
        first = source.paimon.schema_manager.get_schema(schema_id)
        second = target.paimon.schema_manager.get_schema(schema_id)
        if first is None or second is None or first.fields != second.fields:
            raise InvalidTableError(
                f"Files of `{source.name}` were written with its schema {schema_id}, which is not "
                f"the schema {schema_id} of `{target.name}`.",
                hint="INSERT INTO the one branch what the other has.",
            )
    counts = set(files["total_buckets"].to_pylist()) - {target.paimon.total_buckets}
    if counts:
        raise InvalidTableError(
            f"Files of `{source.name}` are in {min(counts)} buckets, those of `{target.name}` in "
            f"{target.paimon.total_buckets}.",
            hint="INSERT INTO the one branch what the other has.",
        )


def _messages(target: Table, files: pa.Table) -> Sequence[CommitMessage]:
    partitions, of_files = partition_values(target.paimon, files)
    buckets = files["bucket"].to_pylist()
    messages: dict[tuple[int, int], CommitMessage] = {}
    for position, meta in enumerate(stored_metas(target.paimon, files)):
        place = int(of_files[position]), buckets[position]
        if place not in messages:
            messages[place] = CommitMessage(partitions[place[0]], place[1], [])
        # Rows get their ids anew, with the commit.
        messages[place].new_files.append(replace(meta, first_row_id=None))
    return list(messages.values())
