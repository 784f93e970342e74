"""Who else changed what a refused commit changes: for the error, so that people can talk."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.tables.manifests.live_files import ManifestCache
from paimon_magics.tables.manifests.partitions import partition_values
from paimon_magics.tables.snapshots.latest import read_snapshot
from paimon_magics.tables.snapshots.provenance import described, noted
from paimon_magics.tables.table import Table

_SEARCHED_MAX = 50  # snapshots; the newest are read
_NAMED_MAX = 3


def other_commits(
    table: Table, base_id: int, messages: Sequence[CommitMessage], latest: Any
) -> str:
    """A sentence about the commits after the snapshot `base_id` that changed buckets of `messages`,
    the newest first: each with its snapshot, kind, author, time and operation. "" if none is there
    any more, or can be read: an error is not held up by another one."""
    touched = {(tuple(message.partition), message.bucket) for message in messages}
    manifests = ManifestCache(table.paimon)
    found: list[str] = []
    if latest is None:
        return ""
    with contextlib.suppress(PaimonMagicsError, OSError, ValueError, LookupError):
        for snapshot_id in range(latest.id, max(base_id, latest.id - _SEARCHED_MAX), -1):
            snapshot = read_snapshot(table.paimon, snapshot_id)
            if snapshot is None:
                break
            if touched & _changed(table, manifests, snapshot):
                operation = noted(snapshot.properties).get("operation", "")
                found.append(described(snapshot) + (f" with {operation}" if operation else ""))
            if len(found) == _NAMED_MAX:
                break
    if not found:
        return ""
    return f"Since snapshot {base_id}, others changed the same buckets: {', '.join(found)}."


def _changed(table: Table, manifests: ManifestCache, snapshot: Any) -> set[Any]:
    """The partitions and buckets that a snapshot changed."""
    entries = manifests.listed_entries([snapshot.delta_manifest_list])
    if not entries.num_rows:
        return set()
    values, of_files = partition_values(table.paimon, entries)
    buckets = entries["bucket"].to_pylist()
    return {(values[at], bucket) for at, bucket in zip(of_files, buckets, strict=True)}
