"""Compactions as commit messages, without a compactor: files that move to another level, and files
that are rewritten by pypaimon's writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import write_message

Bucket = tuple[tuple[Any, ...], int]
_COMPACTED = 1  # Paimon's FileSource


def live_entries(table: Table) -> dict[Bucket, list[Any]]:
    """The manifest entries of the latest snapshot's files, by bucket."""
    latest = table.paimon.snapshot_manager().get_latest_snapshot()
    metas = ManifestListManager(table.paimon).read_all(latest)
    manifests = ManifestFileManager(table.paimon)
    found: dict[Bucket, dict[Any, Any]] = {}
    for meta in metas:
        for entry in manifests.read(meta.file_name, drop_stats=False):
            bucket = (tuple(entry.partition.values), entry.bucket)
            key = (entry.file.file_name, entry.file.level)
            if entry.kind == 0:
                found.setdefault(bucket, {})[key] = entry
            else:
                del found[bucket][key]
    return {bucket: list(entries.values()) for bucket, entries in found.items() if entries}


def live_names(table: Table) -> dict[str, int]:
    """The level of each file of the latest snapshot, by name."""
    entries = [item for each in live_entries(table).values() for item in each]
    return {entry.file.file_name: entry.file.level for entry in entries}


def upgrade(table: Table, level: int, *buckets: Bucket) -> list[CommitMessage]:
    """Messages that move all files of some buckets (of all, if none is given) to a level."""
    return [
        CommitMessage(
            *bucket,
            [],
            total_buckets=entries[0].total_buckets,
            compact_before=[entry.file for entry in entries if entry.file.level != level],
            compact_after=[
                replace(entry.file, level=level) for entry in entries if entry.file.level != level
            ],
        )
        for bucket, entries in live_entries(table).items()
        if not buckets or bucket in buckets
    ]


def rewrite(
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    level: int = 5,
    prefix: str = "",
    *buckets: Bucket,
) -> list[CommitMessage]:
    """Messages that replace all files of some buckets by files with `rows` at a level, whose names
    begin with `prefix`."""
    builder = table.paimon.new_batch_write_builder()
    write = builder.new_write()
    write.write_arrow(pa.Table.from_pylist(list(rows), schema=arrow_schema(table.schema)))
    prepared = write.prepare_commit()
    written = {(tuple(m.partition), m.bucket): m.new_files for m in prepared}
    for file in [file for message in prepared for file in message.changelog_files]:
        _path(table, file).unlink()
    write.close()
    live = {
        bucket: entries
        for bucket, entries in live_entries(table).items()
        if not buckets or bucket in buckets
    }
    for bucket in written.keys() - live.keys():
        for file in written[bucket]:
            _path(table, file).unlink()
    return [
        CommitMessage(
            *bucket,
            [],
            total_buckets=entries[0].total_buckets,
            compact_before=[entry.file for entry in entries],
            compact_after=[
                _compacted(table, file, level, prefix) for file in written.get(bucket, [])
            ],
        )
        for bucket, entries in live.items()
    ]


def bodies(table: Table, messages: Sequence[CommitMessage]) -> tuple[bytes, ...]:
    """The messages as a request has them."""
    return tuple(write_message(table.paimon, message) for message in messages)


def _compacted(table: Table, file: Any, level: int, prefix: str) -> Any:
    name = f"{prefix}{file.file_name}"
    if prefix:
        path = _path(table, file)
        path.rename(path.with_name(name))
    return replace(file, file_name=name, file_path=None, level=level, file_source=_COMPACTED)


def _path(table: Table, file: Any) -> Path:
    [path] = Path(table.location).rglob(file.file_name)
    return path
