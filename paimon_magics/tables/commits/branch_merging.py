"""The files that a branch has and another one lacks, as rows to append: Paimon's `mergeBranch`.

Both must only have added rows since they were one. Then the files that only the source has are
exactly its new rows, and no file of the target is among them that somebody compacted or removed.
Paimon's Java library can't tell where branches part, and wants this of their whole history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pypaimon.schema.schema_manager import SchemaManager
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import (
    InvalidTableError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.schema.alterations import schema_of
from paimon_magics.tables.snapshots.latest import latest_snapshot, read_snapshot
from paimon_magics.tables.stores.allowed_paths import is_plain_name
from paimon_magics.tables.table import MAIN_BRANCH, Table, branch_names, publishes_itself
from paimon_magics.tables.writing.commit_messages import stored_metas

_ADDING = ("APPEND", "ANALYZE")


@dataclass(frozen=True, slots=True)
class BranchMerge:
    """What a merge adds: the messages of `files` files with `rows` rows."""

    messages: tuple[CommitMessage, ...]
    files: int
    rows: int


def plan_branch_merge(target: Table, branch: str, latest: Any) -> BranchMerge:
    """Find the files of a branch that `target`, at pypaimon's snapshot `latest`, lacks. Both are
    branches of one table; `main` is the table itself.

    Raises UnsupportedStatementError for tables whose rows are not only added, and InvalidTableError
    for branches that have no snapshots, have changed rows since they were one, or have other
    columns. Nothing is written.
    """
    source = _Source.of(target, branch)
    _check_tables(source, target)
    theirs = latest_snapshot(target.paimon, branch)
    for name, newest in ((source.name, theirs), (target.name, latest)):
        if newest is None:
            raise InvalidTableError(
                f"`{name}` has no snapshot, so it can't be merged.",
                hint="Write to it first.",
            )
    shared = _shared(source, theirs, target, latest)
    _check_history(source.name, shared, theirs, source.snapshot)
    _check_history(target.name, shared, latest, partial(read_snapshot, target.paimon))
    manifests = ManifestCache(target.paimon)  # all branches share a folder of manifests
    files = _lacking(live_files(manifests, theirs), live_files(manifests, latest))
    _check_files(source, target, files)
    rows = int(np.asarray(files["row_count"]).sum())
    return BranchMerge(tuple(_messages(target, files)), files.num_rows, rows)


@dataclass(frozen=True, slots=True)
class _Source:
    """The branch that is merged: its newest schema, and how its snapshots and schemas are read."""

    name: TableName
    schema: TableSchema
    schemas: SchemaManager
    snapshot: Callable[[int], Any]

    @classmethod
    def of(cls, target: Table, branch: str) -> _Source:
        paimon = target.paimon
        name = replace(target.name, branch=None if branch == MAIN_BRANCH else branch)
        schemas = SchemaManager(paimon.file_io, paimon.table_path, branch)
        is_name = branch == MAIN_BRANCH or is_plain_name(branch, "branch-")
        newest = schemas.latest() if is_name else None
        if newest is None:
            raise UnknownNameError(
                f"There is no branch `{branch}` of `{replace(target.name, branch=None)}`.",
                hint=nearest(branch, branch_names(paimon), what="branches"),
            )
        return cls(name, schema_of(newest), schemas, partial(_snapshot_of_branch, paimon, branch))


def _snapshot_of_branch(paimon: Any, branch: str, snapshot_id: int) -> Any:
    return read_snapshot(paimon, snapshot_id, branch)


def _check_tables(source: _Source, target: Table) -> None:
    if publishes_itself(target):
        raise UnsupportedStatementError(
            f"`{target.name}` belongs to a REST catalog, which merges no branches.",
            hint="INSERT INTO the table what the branch has.",
        )
    for name, schema in ((source.name, source.schema), (target.name, target.schema)):
        reason = ""
        if schema.is_primary_key_table:
            reason = "has a primary key: the rows of both have to be merged by their keys"
        elif schema.data_evolution_enabled:
            reason = "has 'data-evolution.enabled' = 'true': its files have some columns only"
        elif schema.deletion_vectors_enabled:
            reason = "has deletion vectors: rows of files that both have may be deleted in one"
        if reason:
            raise UnsupportedStatementError(
                f"`{name}` {reason}.",
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


def _shared(source: _Source, theirs: Any, target: Table, ours: Any) -> int:
    """The id of the last snapshot that both have; 0 if they have none in common."""
    for snapshot_id in range(min(theirs.id, ours.id), 0, -1):
        first = source.snapshot(snapshot_id)
        second = read_snapshot(target.paimon, snapshot_id)
        if first is None or second is None:
            return 0
        if (first.uuid, first.delta_manifest_list) == (second.uuid, second.delta_manifest_list):
            return snapshot_id
    return 0


def _check_history(
    name: TableName, shared: int, latest: Any, snapshot_of: Callable[[int], Any]
) -> None:
    for snapshot_id in range(shared + 1, latest.id + 1):
        snapshot = latest if snapshot_id == latest.id else snapshot_of(snapshot_id)
        if snapshot is None:
            problem = f"its snapshot {snapshot_id} has expired, so what it changed is unknown"
        elif snapshot.commit_kind not in _ADDING:
            problem = f"its snapshot {snapshot_id} is of the kind {snapshot.commit_kind}"
        else:
            continue
        raise InvalidTableError(
            f"`{name}` can't be merged: {problem}. Since the branches were one, both must only "
            "have added rows.",
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


def _check_files(source: _Source, target: Table, files: pa.Table) -> None:
    for schema_id in sorted(set(files["schema_id"].to_pylist())):
        first = source.schemas.get_schema(schema_id)
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
