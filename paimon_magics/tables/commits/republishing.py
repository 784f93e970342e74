"""Decides whether a snapshot that an outside writer has overwritten may be published again, and
makes the request.

An append is published again as a whole. Upserts are published again only if no later row of their
keys would lose against them. A commit that replaced rows never is: a person has to decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pypaimon.manifest.schema.manifest_entry import ManifestEntry
from pypaimon.table.row.generic_row import GenericRow
from pypaimon.utils.file_store_path_factory import canonical_data_file_path
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import TableDamagedError
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.planning.commits.requests import Append, CommitRequest, Compact, Transaction
from paimon_magics.tables.commits.decoded_request import DecodedRequest
from paimon_magics.tables.commits.lineage import ChangedFiles, Lineage
from paimon_magics.tables.commits.sequence_order import Bucket, Later, order_problem
from paimon_magics.tables.manifests.file_kinds import ADD, DELETE
from paimon_magics.tables.snapshots.latest import latest_snapshot, read_snapshot
from paimon_magics.tables.snapshots.provenance import PREFIX
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import write_message

__all__ = ["REPUBLISHED", "changed_by_request", "obstacle", "repetition", "unrepeatable"]

REPUBLISHED = f"{PREFIX}republished"
"""The property by which a snapshot that repeats an overwritten one names that one's id."""

_INDEX_CHANGED = "it changed which keys are in which buckets"


def obstacle(
    table: Table, p: Publication, changed: ChangedFiles, lineage: Lineage, beside: int
) -> str:
    """Why an overwritten publication must not be published again; "" if it may be.

    Snapshot `beside` and those after it rest on a state without the publication. `beside` was made
    at the same time, the others later.
    """
    if p.commit_kind != "APPEND" or changed.deleted:
        return "it replaced rows"
    if p.changes_index and not p.is_transaction:
        return _INDEX_CHANGED
    if table.schema.flag("row-tracking.enabled"):
        return "its row ids belong to other rows now"
    missing = _missing_file(table, changed)
    if missing:
        return f"its file {missing} is gone"
    later, problem = _since(table, p, lineage, beside, _buckets(changed.entries))
    if problem or not table.schema.is_primary_key_table:
        return problem
    if later and table.schema.flag("sequence.snapshot-ordering"):
        return "its rows would come after later ones of the same buckets"
    compacted = frozenset(bucket for one in later for bucket in one.compacted)
    return order_problem(table, _buckets(changed.entries), later, compacted)


def unrepeatable(p: Publication) -> str:
    """Why an overwritten publication can't be published again without its request, which is gone;
    "" if its manifests tell all that there is to check and to repeat."""
    if p.has_read:
        return (
            "it was made of rows that its statement had read, and which these were is no longer "
            "kept, so that others may have changed them"
        )
    return _INDEX_CHANGED if p.changes_index else ""


def changed_by_request(asked: DecodedRequest) -> ChangedFiles | None:
    """The changes of a requested append or compaction; None for other requests, which replace
    rows."""
    if not isinstance(asked.request.change, Append | Compact):
        return None
    paimon = asked.table.paimon
    entries = []
    for message in asked.messages:
        partition = GenericRow(list(message.partition), paimon.partition_keys_fields)
        buckets = message.total_buckets or paimon.total_buckets
        changed = ((DELETE, message.compact_before), (ADD, message.compact_after))
        entries += [
            ManifestEntry(kind, partition, message.bucket, buckets, file)
            for kind, files in ((ADD, message.new_files), *changed)
            for file in files
        ]
    return ChangedFiles(entries, indexes=asked.index_names)


def repetition(table: Table, p: Publication, asked: CommitRequest | None) -> CommitRequest:
    """The request that publishes an overwritten append again, on top of the latest snapshot.

    It is made from `asked`, the original request, or without that from the manifests. It has the
    same commit user and identifier, by which its writer finds it. Raises TableDamagedError if the
    manifests are gone.
    """
    latest = latest_snapshot(table.paimon)
    transaction = Transaction(
        table=p.table,
        commit_user=p.commit_user,
        file_prefix="" if asked is None else asked.transaction.file_prefix,
        base_snapshot_id=latest.id if latest is not None else 0,
        commit_identifier=p.commit_identifier,
    )
    messages = _messages(table, p) if asked is None else asked.messages
    properties = p.properties if asked is None else asked.properties
    return CommitRequest(
        transaction,
        Append(),
        messages,
        (*properties, (REPUBLISHED, str(p.snapshot_id))),
        None if asked is None else asked.read_set,
    )


def _messages(table: Table, p: Publication) -> tuple[bytes, ...]:
    """Commit messages with the changes of a publication, made from its manifests."""
    lineage = Lineage(table)
    messages: dict[Bucket, CommitMessage] = {}
    for name, attribute in ((p.manifest_list, "new_files"), (p.changelog_list, "changelog_files")):
        if name is None:
            continue
        changed = lineage.changed_by(name)
        if changed is None:
            raise TableDamagedError(
                f"The manifests of the overwritten snapshot {p.snapshot_id} of `{table.name}` are "
                "gone.",
                hint="Look for its rows in the table, and write them again.",
            )
        for entry in changed.entries:
            message = messages.setdefault(
                _bucket(entry),
                CommitMessage(*_bucket(entry), [], total_buckets=_other_number(table, entry)),
            )
            getattr(message, attribute).append(entry.file)
    return tuple(write_message(table.paimon, message) for message in messages.values())


def _since(
    table: Table,
    p: Publication,
    lineage: Lineage,
    beside: int,
    buckets: Mapping[Bucket, Sequence[Any]],
) -> tuple[list[Later], str]:
    """What others have added to the same buckets, or a text that says why what they did there
    forbids publishing `p` again."""
    partitions = {values for values, _ in buckets}
    later: list[Later] = []
    before = None
    for snapshot_id in range(beside, latest_snapshot(table.paimon).id + 1):
        snapshot = read_snapshot(table.paimon, snapshot_id)
        changed = None if snapshot is None else lineage.changed_by(snapshot.delta_manifest_list)
        if snapshot is None or changed is None:
            return [], f"the changes of snapshot {snapshot_id} are unknown because it has expired"
        if _repeats_earlier(snapshot, p):
            continue
        index = snapshot.index_manifest
        compaction = snapshot.commit_kind == "COMPACT"
        if snapshot_id > beside and not compaction:
            # An OVERWRITE counts even if it deleted nothing: it might have replaced the lost rows,
            # had they been there.
            replaced = {values for values, _ in map(_bucket, _deletions(changed))}
            if snapshot.commit_kind == "OVERWRITE" or replaced & partitions:
                return [], f"snapshot {snapshot_id} replaced rows after it"
            if index != before and table.schema.flag("deletion-vectors.enabled"):
                return [], f"snapshot {snapshot_id} deleted rows after it"
        before = index
        touched = _buckets(changed.entries)
        later.append(
            Later(
                snapshot_id,
                snapshot_id == beside,
                {} if compaction else touched,
                frozenset(touched) if compaction else frozenset(),
            )
        )
    return later, ""


def _repeats_earlier(snapshot: Any, p: Publication) -> bool:
    """Whether a snapshot repeats one that was published before `p`, and so counts as earlier."""
    repeated = str((snapshot.properties or {}).get(REPUBLISHED, ""))
    return repeated.isdigit() and int(repeated) < p.snapshot_id


def _missing_file(table: Table, changed: ChangedFiles) -> str:
    paimon = table.paimon
    for entry in changed.entries:
        values, bucket = _bucket(entry)
        for name in [entry.file.file_name, *(entry.file.extra_files or [])]:
            path = entry.file.external_path or canonical_data_file_path(
                paimon, values, bucket, name
            )
            if not paimon.file_io.exists(path):
                return str(name)
    return ""


def _deletions(changed: ChangedFiles) -> list[Any]:
    return [entry for entry in changed.entries if entry.kind != ADD]


def _buckets(entries: Sequence[Any]) -> dict[Bucket, list[Any]]:
    """The files that were added, by bucket."""
    found: dict[Bucket, list[Any]] = {}
    for entry in entries:
        if entry.kind == ADD:
            found.setdefault(_bucket(entry), []).append(entry.file)
    return found


def _bucket(entry: Any) -> Bucket:
    return tuple(entry.partition.values), entry.bucket


def _other_number(table: Table, entry: Any) -> int | None:
    """The number of buckets that an entry was written with, None if it is the table's number."""
    buckets: int = entry.total_buckets
    return buckets if buckets > 0 and buckets != table.paimon.total_buckets else None
