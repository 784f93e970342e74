"""Decides whether a snapshot that an outside writer has overwritten may be published again, and
makes the request.

An append is published again as a whole. Upserts are published again only if no later row of their
keys would lose against them. A commit that replaced rows is never published again automatically: a
person must decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc, parquet
from pypaimon.index.index_file_handler import IndexFileHandler
from pypaimon.manifest.manifest_file_manager import ManifestFileManager
from pypaimon.manifest.manifest_list_manager import ManifestListManager
from pypaimon.manifest.schema.manifest_entry import ManifestEntry
from pypaimon.table.row.generic_row import GenericRow
from pypaimon.utils.file_store_path_factory import canonical_data_file_path
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import TableDamagedError
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.planning.commits.requests import Append, CommitRequest, Compact, Transaction
from paimon_magics.tables.commits.decoded_request import DecodedRequest
from paimon_magics.tables.manifests.names import ADD, DELETE
from paimon_magics.tables.snapshots.latest import (
    earliest_snapshot_id,
    latest_snapshot,
    latest_state,
    read_snapshot,
)
from paimon_magics.tables.snapshots.provenance import PREFIX
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.commit_messages import write_message

REPUBLISHED = f"{PREFIX}republished"
"""The property by which a snapshot that repeats an overwritten one names that one's id."""

_INDEX_CHANGED = "it changed which keys are in which buckets"


File = tuple[Any, ...]
"""Partition values, bucket and name of a data file."""


Bucket = tuple[tuple[Any, ...], int]
"""Partition values and bucket."""

_ROWS_MAX = 20_000_000
_SEQUENCE = "_SEQUENCE_NUMBER"


def obstacle(table: Table, p: Publication, changed: ChangedFiles, lineage: Lineage) -> str:
    """Why an overwritten publication must not be published again; "" if it may be.

    The snapshot with the same id, and all later snapshots, are based on a state without the
    publication. The first was created at the same time, the others later.
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
    later, problem = _since(table, p, lineage, _buckets(changed.entries))
    if problem or not table.schema.is_primary_key_table:
        return problem
    if later and table.schema.flag("sequence.snapshot-ordering"):
        return "its rows would count as newer than later rows in the same buckets"
    return _order_problem(table, _buckets(changed.entries), later)


def unrepeatable(p: Publication) -> str:
    """Why an overwritten publication can't be published again without its request, which is gone;
    "" if its manifests contain everything needed to check and repeat it."""
    if p.has_read:
        return (
            "its statement computed it from rows that it read. The list of these rows is gone, so "
            "other commits may have changed them undetected"
        )
    return _INDEX_CHANGED if p.changes_index else ""


def changed_by_request(decoded: DecodedRequest) -> ChangedFiles | None:
    """The changes of a requested append or compaction; None for other requests, which replace
    rows."""
    if not isinstance(decoded.request.change, Append | Compact):
        return None
    paimon = decoded.table.paimon
    entries = []
    for message in decoded.messages:
        partition = GenericRow(list(message.partition), paimon.partition_keys_fields)
        buckets = message.total_buckets or paimon.total_buckets
        changed = ((DELETE, message.compact_before), (ADD, message.compact_after))
        entries += [
            ManifestEntry(kind, partition, message.bucket, buckets, file)
            for kind, files in ((ADD, message.new_files), *changed)
            for file in files
        ]
    return ChangedFiles(entries, indexes=decoded.index_names)


def repetition(table: Table, p: Publication, original: CommitRequest | None) -> CommitRequest:
    """The request that publishes an overwritten append again, on top of the latest snapshot.

    It is made from `original`, the original request, or without that from the manifests. It has the
    same commit user and identifier, by which its writer finds it. Raises TableDamagedError if the
    manifests are gone.
    """
    base_id, base_name = latest_state(table)
    transaction = Transaction(
        table=p.table,
        commit_user=p.commit_user,
        file_prefix="" if original is None else original.transaction.file_prefix,
        base_snapshot_id=base_id,
        commit_identifier=p.commit_identifier,
        base_manifest_list=base_name,
    )
    messages = _messages(table, p) if original is None else original.messages
    properties = p.properties if original is None else original.properties
    return CommitRequest(
        transaction,
        Append(),
        messages,
        (*properties, (REPUBLISHED, str(p.snapshot_id))),
        None if original is None else original.read_set,
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
                hint="Check the table for its rows, and write the missing rows again.",
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
    buckets: Mapping[Bucket, Sequence[Any]],
) -> tuple[list[Later], str]:
    """The files that others have added to the same buckets, or the reason why their changes forbid
    publishing `p` again."""
    partitions = {values for values, _ in buckets}
    later: list[Later] = []
    before = None
    for snapshot_id in range(p.snapshot_id, latest_snapshot(table.paimon).id + 1):
        snapshot = read_snapshot(table.paimon, snapshot_id)
        changed = None if snapshot is None else lineage.changed_by(snapshot.delta_manifest_list)
        if snapshot is None or changed is None:
            return [], f"the changes of snapshot {snapshot_id} are unknown because it has expired"
        if _repeats_earlier(snapshot, p):
            continue
        index = snapshot.index_manifest
        compaction = snapshot.commit_kind == "COMPACT"
        if snapshot_id > p.snapshot_id and not compaction:
            # An OVERWRITE counts even if it deleted nothing: it might have replaced the lost rows,
            # had they been there.
            replaced = {_bucket(entry)[0] for entry in changed.entries if entry.kind != ADD}
            if snapshot.commit_kind == "OVERWRITE" or replaced & partitions:
                return [], f"snapshot {snapshot_id} replaced rows after it"
            if index != before and table.schema.flag("deletion-vectors.enabled"):
                return [], f"snapshot {snapshot_id} deleted rows after it"
        before = index
        touched = _buckets(changed.entries)
        later.append(
            Later(
                snapshot_id,
                snapshot_id == p.snapshot_id,
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


def _buckets(entries: Sequence[Any]) -> dict[Bucket, list[Any]]:
    """The files that were added, by bucket."""
    added: dict[Bucket, list[Any]] = {}
    for entry in entries:
        if entry.kind == ADD:
            added.setdefault(_bucket(entry), []).append(entry.file)
    return added


def _bucket(entry: Any) -> Bucket:
    return tuple(entry.partition.values), entry.bucket


def _other_number(table: Table, entry: Any) -> int | None:
    """The number of buckets that an entry was written with, None if it is the table's number."""
    buckets: int = entry.total_buckets
    return buckets if buckets > 0 and buckets != table.paimon.total_buckets else None


# Finds whether a snapshot was built on a state that contains a commit.
#
# A snapshot's base manifest list holds the state that it was built on, but no snapshot names its
# predecessor. So if a snapshot's file was overwritten, data files have to be compared. They are
# read only after a problem, or once for a snapshot that another writer put on top of ours.


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """The changes of one snapshot: its manifest entries, the manifests that they are in, and the
    names of the index files that it added, where its request tells them."""

    entries: Sequence[Any]
    manifests: frozenset[str] = frozenset()
    indexes: frozenset[str] = frozenset()

    @property
    def added(self) -> frozenset[File]:
        """The files that the snapshot added to the table."""
        return frozenset(file for file, count in _counted(self.entries).items() if count > 0)

    @property
    def deleted(self) -> frozenset[File]:
        """The files that the snapshot removed from the table, without those that a compaction moved
        to another level: it deletes and adds these."""
        return frozenset(file for file, count in _counted(self.entries).items() if count < 0)


@dataclass(slots=True)
class Lineage:
    """The snapshots of one table; each manifest is read once while this lives."""

    table: Table
    _manifests: dict[str, Counter[File]] = field(default_factory=dict)

    def changed_by(self, manifest_list: str) -> ChangedFiles | None:
        """The changes in a delta manifest list; None if it or one of its manifests is gone."""
        paimon = self.table.paimon
        try:
            metas = ManifestListManager(paimon).read(manifest_list)
            reader = ManifestFileManager(paimon)
            entries = [e for m in metas for e in reader.read(m.file_name, drop_stats=False)]
        except FileNotFoundError:
            return None
        return ChangedFiles(entries, frozenset(meta.file_name for meta in metas))

    def rests_on(self, snapshot: Any, changed: ChangedFiles) -> bool:
        """Whether a snapshot was built directly on the snapshot with these changes."""
        base = {meta.file_name for meta in self._base(snapshot)}
        if changed.manifests and changed.manifests <= base:
            return True
        live = self._live(snapshot)
        return changed.added <= live and not changed.deleted & live

    def holds(self, changed_in: int, manifests: Collection[str]) -> bool:
        """Whether the earliest snapshot came after `changed_in` and was built on all `manifests`,
        those of that snapshot's changes. False does not say that the changes are missing: the
        manifests may have been merged with others."""
        earliest = earliest_snapshot_id(self.table.paimon, self.table.store)
        if not manifests or earliest is None or earliest <= changed_in:
            return False
        snapshot = read_snapshot(self.table.paimon, earliest)
        return snapshot is not None and set(manifests) <= {
            meta.file_name for meta in self._base(snapshot)
        }

    def leads_to(self, changed: ChangedFiles, changed_in: int, last: int) -> bool | None:
        """Whether the changes of the original snapshot `changed_in` are in snapshot `last`, or were
        removed from the table by a commit in between.

        None if that is unknown because snapshots or manifests are gone.
        """
        wanted, sure = changed.added, True
        for snapshot_id in range(changed_in + 1, last + 1):
            snapshot = read_snapshot(self.table.paimon, snapshot_id)
            if snapshot is None:
                sure = False
                continue
            if sure and snapshot_id == changed_in + 1:
                rests = self.rests_on(snapshot, changed)
            else:
                rests = bool(changed.added or sure) and wanted <= self._live(snapshot)
            if not rests:
                return False if sure else None
            sure = True
            delta = self.changed_by(snapshot.delta_manifest_list)
            if delta is None:
                return None
            wanted -= delta.deleted
        return sure or None

    def has_indexes(self, snapshot: Any, names: Collection[str]) -> bool:
        """Whether all index files of these names are in the table at a snapshot."""
        entries = IndexFileHandler(self.table.paimon).scan(snapshot)
        return set(names) <= {entry.index_file.file_name for entry in entries}

    def present(self, snapshot: Any, changed: ChangedFiles) -> frozenset[File]:
        """The added files of `changed` that are in the table at a snapshot."""
        counted = self._counted(snapshot)
        for meta in ManifestListManager(self.table.paimon).read_delta(snapshot):
            counted.update(self._read(meta.file_name))
        return frozenset(file for file in changed.added if counted[file] > 0)

    def _base(self, snapshot: Any) -> Sequence[Any]:
        metas: Sequence[Any] = ManifestListManager(self.table.paimon).read_base(snapshot)
        return metas

    def _live(self, snapshot: Any) -> frozenset[File]:
        return frozenset(file for file, count in self._counted(snapshot).items() if count > 0)

    def _counted(self, snapshot: Any) -> Counter[File]:
        counted: Counter[File] = Counter()
        for meta in self._base(snapshot):
            counted.update(self._read(meta.file_name))
        return counted

    def _read(self, name: str) -> Counter[File]:
        if name not in self._manifests:
            entries = ManifestFileManager(self.table.paimon).read(name, drop_stats=True)
            self._manifests[name] = _counted(entries)
        return self._manifests[name]


def _counted(entries: Sequence[Any]) -> Counter[File]:
    counted: Counter[File] = Counter()
    for entry in entries:
        counted[_file(entry)] += 1 if entry.kind == ADD else -1
    return counted


def _file(entry: Any) -> File:
    return (*map(repr, entry.partition.values), entry.bucket, entry.file.file_name)


# Checks whether rows of a primary-key table may be committed after rows that came later.
#
# Of two rows of one key the one with the higher sequence number wins, whenever they were committed.
# So a commit may be published late only if every later row of its keys has a higher number. Of a
# commit that ran beside it, the rows of the same keys must all have higher numbers, or all lower
# ones. Otherwise an older value or part of a commit would win. Only keys and sequence numbers of
# the files are read.


@dataclass(frozen=True, slots=True)
class Later:
    """The files that another snapshot added, by bucket, and the buckets that it compacted.

    With `beside` neither of the two commits saw the other; else the snapshot is the later one.
    """

    snapshot_id: int
    beside: bool
    files: Mapping[Bucket, Sequence[Any]] = field(default_factory=dict)
    compacted: frozenset[Bucket] = frozenset()


def _order_problem(
    table: Table, files: Mapping[Bucket, Sequence[Any]], others: Sequence[Later]
) -> str:
    """Why `files` may not be committed after `others`, as a text; "" if they may."""
    # A compaction may have dropped the delete of a key.
    compacted = frozenset().union(*(other.compacted for other in others))
    for bucket, ours in files.items():
        for other in others:
            theirs = _overlapping(ours, other.files.get(bucket, ()))
            if not theirs:
                continue
            problem = _problem(table, bucket, ours, other, theirs, bucket in compacted)
            if problem:
                return problem
    return ""


def _problem(
    table: Table,
    bucket: Bucket,
    ours: Sequence[Any],
    other: Later,
    theirs: Sequence[Any],
    compacted: bool,
) -> str:
    named = f"snapshot {other.snapshot_id}"
    if sum(file.row_count for file in [*ours, *theirs]) > _ROWS_MAX:
        return f"{named} wrote so many rows to the same buckets that their keys were not compared"
    try:
        common = _common(_numbers(table, bucket, ours), _numbers(table, bucket, theirs))
    except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError) as error:
        return f"the keys that {named} wrote can't be compared with its own: {error}"
    if common.num_rows == 0:
        return ""
    keys = f"{common.num_rows:,} of its keys"
    if compacted:
        return f"{named} wrote {keys} too, and their bucket was compacted since"
    later = pc.sum(pc.greater(common["min_b"], common["max_a"])).as_py()
    earlier = pc.sum(pc.less(common["max_b"], common["min_a"])).as_py()
    if later == common.num_rows or (other.beside and earlier == common.num_rows):
        return ""
    return f"{named} wrote {keys} too, with sequence numbers that do not come after its own"


def _overlapping(ours: Sequence[Any], theirs: Sequence[Any]) -> list[Any]:
    try:
        low = min(tuple(file.min_key.values) for file in ours)
        high = max(tuple(file.max_key.values) for file in ours)
        return [
            file
            for file in theirs
            if tuple(file.min_key.values) <= high and tuple(file.max_key.values) >= low
        ]
    except TypeError:  # values that have no order in Python
        return list(theirs)


def _common(a: pa.Table, b: pa.Table) -> pa.Table:
    keys = [name for name in a.column_names if not name.startswith(("min_", "max_"))]
    return a.rename_columns([*keys, "min_a", "max_a"]).join(
        b.rename_columns([*keys, "min_b", "max_b"]), keys, join_type="inner"
    )


def _numbers(table: Table, bucket: Bucket, files: Sequence[Any]) -> pa.Table:
    """Each key of some files with its least and greatest sequence number."""
    keys = [f"k{number}" for number in range(len(table.paimon.trimmed_primary_keys))]
    read = pa.concat_tables([_read(table, bucket, file, keys) for file in files])
    grouped = read.group_by(keys).aggregate([(_SEQUENCE, "min"), (_SEQUENCE, "max")])
    return grouped.select([*keys, f"{_SEQUENCE}_min", f"{_SEQUENCE}_max"]).rename_columns(
        [*keys, "min_", "max_"]
    )


def _read(table: Table, bucket: Bucket, file: Any, names: Sequence[str]) -> pa.Table:
    paimon = table.paimon
    path = file.external_path or canonical_data_file_path(paimon, *bucket, file.file_name)
    with paimon.file_io.new_input_stream(path) as source:
        content = pa.BufferReader(source.read())
    keys = list(paimon.trimmed_primary_keys)
    if file.file_name.endswith(".parquet"):
        stored = parquet.ParquetFile(content)
        known = set(stored.schema_arrow.names)
    elif file.file_name.endswith(".orc"):
        stored = orc.ORCFile(content)
        known = set(stored.schema.names)
    else:
        raise pa.ArrowNotImplementedError(f"{file.file_name} is neither Parquet nor ORC")
    # Files in thin mode have the keys among the values only.
    columns = [f"_KEY_{key}" if f"_KEY_{key}" in known else key for key in keys]
    read = stored.read(columns=[*columns, _SEQUENCE])
    return pa.table([read[column] for column in [*columns, _SEQUENCE]], names=[*names, _SEQUENCE])
