"""Checks that the `ReadSet` of a statement is unchanged in the snapshot on which the statement is
committed. Paimon only checks that removed files still exist, so it loses the earlier of two updates
of one key.

Each snapshot since the read snapshot is checked once. Compactions change no rows, except that they
move postponed rows into their buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pypaimon.table.row.generic_row import GenericRowSerializer
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.columnar.key_numbers import key_numbers
from paimon_magics.errors import InvalidValueError, OutdatedPlanError
from paimon_magics.planning.commits.read_sets import ReadSet
from paimon_magics.planning.commits.requests import CommitRequest
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.splits import StoredFile
from paimon_magics.planning.writes.inserts import level_zero_hidden_by
from paimon_magics.tables.commits.dynamic_keys import files_by_bucket, key_batches, new_file
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files, undeleted
from paimon_magics.tables.manifests.names import ADD, DELETE
from paimon_magics.tables.manifests.partitions import partition_text, partition_values
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.snapshots.latest import has_state, required_snapshot, state_of
from paimon_magics.tables.snapshots.provenance import PREFIX, described
from paimon_magics.tables.splits.bucket_splits import KeyRanks
from paimon_magics.tables.splits.pruning import can_match
from paimon_magics.tables.splits.stored_files import stores_elsewhere
from paimon_magics.tables.table import Table

_READ_SNAPSHOT = PREFIX + "read-snapshot"
"""The property of a snapshot whose rows were made of rows of its table: the id of the snapshot
that was read."""

_Bools = npt.NDArray[np.bool_]
_Place = tuple[tuple[Any, ...], int | None]
_WITHOUT_ROWS = ("COMPACT", "ANALYZE")


HELD_KEYS_MAX = 2_000_000
"""Keys that are held in memory: some 200 MB of texts. More on both sides are not compared, and
count as common."""


def read_properties(request: CommitRequest) -> dict[str, str]:
    """The properties of a snapshot that describe the read set it was checked against."""
    read = request.read_set
    return {} if read is None else {_READ_SNAPSHOT: str(read.snapshot_id)}


def read_check(
    table: Table, request: CommitRequest, messages: Sequence[CommitMessage]
) -> Callable[[Any], None] | None:
    """Return a check of the latest snapshot (None for none), on which the commit will be published;
    None for a request without a read set.

    The check raises OutdatedPlanError, which names the snapshot that changed the read set. Raises
    InvalidValueError for keys of a table that has none.
    """
    read = request.read_set
    if read is None:
        return None
    if read.written_keys and not table.schema.is_primary_key_table:
        raise InvalidValueError(
            f"The read set of a commit names keys of `{table.name}`, which has no primary key.",
            hint="Nothing was committed. List the files that were read instead.",
        )
    return _ReadCheck(table, read, messages).check


class _ReadCheck:
    def __init__(self, table: Table, read: ReadSet, messages: Sequence[CommitMessage]) -> None:
        self._table = table
        self._read = read
        self._manifests = ManifestCache(table.paimon)
        self._checked = read.state
        self._by_partition = table.schema.bucket_mode == "POSTPONE_MODE"
        self._ours: dict[_Place, list[tuple[CommitMessage, Any]]] = {}
        for message in messages if read.written_keys else ():
            place = self._place(tuple(message.partition), message.bucket)
            self._ours.setdefault(place, []).extend(
                (message, new_file) for new_file in message.new_files
            )
        self._files = frozenset(read.files or ())
        self._adds_only = not any(
            message.deleted_files or message.index_adds or message.index_deletes
            for message in messages
        )
        self._vectors: Mapping[str, Any] | None = None
        self._hidden_by = level_zero_hidden_by(table.schema)
        hides = self._by_partition or self._hidden_by is not None
        self._knows_hidden = not (hides and self._ours)

    def check(self, latest: Any) -> None:
        """See `read_check`."""
        latest_id = 0 if latest is None else latest.id
        self._is_there(latest)
        if not self._knows_hidden:
            self._none_are_hidden()
            self._knows_hidden = True
        for snapshot_id in range(self._checked[0] + 1, latest_id + 1):
            newer = latest if snapshot_id == latest_id else self._snapshot(snapshot_id)
            entries = self._manifests.listed_entries([newer.delta_manifest_list])
            self._files_stay(newer, entries)
            is_changed = newer.commit_kind not in _WITHOUT_ROWS
            if is_changed or self._by_partition:
                self._keys_stay(newer, entries)
            if is_changed:
                self._none_are_marked(newer)
                self._none_are_added(newer, entries)
            self._checked = state_of(newer)

    def _is_there(self, latest: Any) -> None:
        """Raise OutdatedPlanError if the snapshot that was read no longer belongs to the table."""
        read_id = self._read.snapshot_id
        if self._checked[0] > read_id:
            if has_state(self._table, self._checked, latest):
                return
            self._checked = self._read.state  # rolled back between two attempts
            self._vectors = None
        if read_id == 0:
            return
        is_there = has_state(self._table, self._read.state, latest)
        if is_there is None:
            self._snapshot(read_id)
        if not is_there:
            raise OutdatedPlanError(
                f"`{self._table.name}` was rolled back to before snapshot {read_id}, which this "
                "statement read.",
                hint="Nothing was written. Run the statement again.",
            )

    def _files_stay(self, newer: Any, entries: pa.Table) -> None:
        """Raise OutdatedPlanError if a snapshot removed a file that was read, or deleted rows of
        one by a vector."""
        read = self._read
        if read.files == ():
            return
        if self._adds_only and newer.commit_kind == "COMPACT":
            self._vectors = None
            return  # the rows that were read are still there, in other files
        deletes = entries.filter(pc.equal(entries["kind"], DELETE))
        if read.files is None:
            assert read.search is not None  # the constructors see to it
            deletes = _may_match(self._table, deletes, read.search.conditions)
        adds = entries.filter(pc.equal(entries["kind"], ADD))
        added = set(adds["file_name"].to_pylist())
        for name in deletes["file_name"].to_pylist():
            if name not in added and (read.files is None or name in self._files):
                did = "compacted" if newer.commit_kind == "COMPACT" else "replaced"
                raise self._outdated(newer, f"{did} the file {name}, which it has read")
        changed = self._newly_marked(newer)
        if changed is not None:
            raise self._outdated(newer, f"deleted rows of the file {changed}, which it has read")

    def _newly_marked(self, newer: Any) -> str | None:
        """A file that was read whose deletion vector is another one at a newer snapshot."""
        if not self._table.schema.deletion_vectors_enabled:
            return None
        if self._vectors is None:
            base = self._snapshot(newer.id - 1) if newer.id > 1 else None
            self._vectors = self._marks(None if base is None else base.index_manifest)
        before, self._vectors = self._vectors, self._marks(newer.index_manifest)
        changed = (
            name
            for name in before.keys() | self._vectors.keys()
            if before.get(name) != self._vectors.get(name)
        )
        return min(changed, default=None)

    def _marks(self, index_manifest: str | None) -> Mapping[str, Any]:
        """What tells the deletion vector of each file that was read (of a table with keys, of each
        file) from another. An index file may be rewritten with the same vectors; since rows are
        never marked less, their number tells."""
        return {
            name: vector if vector.rows is None else vector.rows
            for (_, _, name), vector in self._manifests.deletions(index_manifest).items()
            if self._ours or self._read.files is None or name in self._files
        }

    def _keys_stay(self, newer: Any, entries: pa.Table) -> None:
        """Raise OutdatedPlanError if a snapshot changed files with keys that are written."""
        place = self._place_with_common_key(entries)
        if place is not None:
            where = partition_text(self._table.schema.partition_keys, place[0])
            did = "wrote rows of the same keys" + (f" in the partition {where}" if where else "")
            raise self._outdated(newer, did)

    def _none_are_marked(self, newer: Any) -> None:
        """Raise OutdatedPlanError if a snapshot deleted rows of a table with keys by vectors: the
        keys of these rows are not looked up."""
        if not self._ours:
            return
        self._vectors = None  # compactions were passed over
        changed = self._newly_marked(newer)
        if changed is not None:
            raise self._outdated(newer, f"deleted rows of the file {changed}")

    def _none_are_hidden(self) -> None:
        """Raise OutdatedPlanError for rows of the same keys that are in the snapshot that was read,
        but seen after a compaction only."""
        if not self._read.snapshot_id:
            return
        files = live_files(self._manifests, self._snapshot(self._read.snapshot_id))
        waits = pc.less(files["bucket"], 0)
        if self._hidden_by is not None:
            waits = pc.or_(waits, pc.equal(files["level"], 0))
        if self._place_with_common_key(files.filter(waits)) is None:
            return
        hidden_by = self._hidden_by or "'bucket' = '-2'"
        raise OutdatedPlanError(
            f"`{self._table.name}` has rows of the same keys that this statement could not see: "
            f"they appear after the next compaction ({hidden_by}).",
            hint=f"Nothing was written. CALL sys.compact(table => '{self._table.name}'), then run "
            "the statement again.",
        )

    def _place_with_common_key(self, entries: pa.Table) -> _Place | None:
        """A place where files of the entries have a key that is written; None if there is none."""
        if not self._ours or not entries.num_rows:
            return None
        values, of_files = partition_values(self._table.paimon, entries)
        buckets = entries["bucket"].to_pylist()
        theirs: dict[_Place, list[int]] = {}
        for row, (at, bucket) in enumerate(zip(of_files, buckets, strict=True)):
            theirs.setdefault(self._place(values[at], bucket), []).append(row)
        for place in self._ours.keys() & theirs.keys():
            rows = entries.take(pa.array(theirs[place]))
            if self._have_common_key(self._ours[place], rows, place[0]):
                return place
        return None

    def _have_common_key(
        self, ours: Sequence[tuple[CommitMessage, Any]], theirs: pa.Table, values: tuple[Any, ...]
    ) -> bool:
        keys = ("min_key", "max_key")
        own = {
            key: [GenericRowSerializer.to_bytes(getattr(file, key)) for _, file in ours]
            for key in keys
        }
        schema = theirs.select(keys).schema
        files = pa.concat_tables([pa.table(own, schema=schema), theirs.select(keys)])
        ranks = KeyRanks(files, self._table.schema)
        least, greatest = (np.split(ends, [len(ours)]) for ends in (ranks.least, ranks.greatest))
        meets = (least[0][:, None] <= greatest[1][None, :]) & (
            greatest[0][:, None] >= least[1][None, :]
        )
        mine: _Bools = np.any(meets, axis=1)
        others: _Bools = np.any(meets, axis=0)
        if not mine.any():
            return False
        table = self._table
        own_files = [
            new_file(table, (values, message.bucket), meta)
            for (message, meta), is_wanted in zip(ours, mine.tolist(), strict=True)
            if is_wanted
        ]
        wanted = theirs.filter(pa.array(others))
        their_files = [file for _, file in files_by_bucket(table, wanted)]
        try:
            return have_common_key(table, own_files, their_files, stores_elsewhere(wanted))
        except FileNotFoundError:  # theirs have expired since: what they held is unknown
            return True

    def _none_are_added(self, newer: Any, entries: pa.Table) -> None:
        """Raise OutdatedPlanError if a snapshot added rows that the statement would have found."""
        sought = self._read.search
        if sought is None:
            return
        has_read = newer.commit_kind == "OVERWRITE" or _READ_SNAPSHOT in (newer.properties or {})
        added = undeleted(entries)
        did = "added rows that may match its condition"
        if not (sought.adds_missing or has_read):
            if not self._table.schema.data_evolution_enabled or not self._read.snapshot_id:
                return
            # New values of columns are added files, whose rows were there before.
            next_row_id = self._snapshot(self._read.snapshot_id).next_row_id
            added = added.filter(pc.less(added["first_row_id"], next_row_id or 0))
            did = "wrote new values into rows that may match its condition"
        if _may_match(self._table, added, sought.conditions).num_rows:
            raise self._outdated(newer, did)

    def _place(self, values: tuple[Any, ...], bucket: int) -> _Place:
        """Where rows of one key are: in one bucket, or while they wait for it in one partition."""
        return values, None if self._by_partition else bucket

    def _snapshot(self, snapshot_id: int) -> Any:
        return required_snapshot(self._table, snapshot_id, "the rows that it changed are")

    def _outdated(self, newer: Any, did: str) -> OutdatedPlanError:
        other, user = described(newer), str(newer.commit_user)
        committer = "" if user in other else f" It was committed by the commit user {user}."
        return OutdatedPlanError(
            f"Since this statement read snapshot {self._read.snapshot_id} of "
            f"`{self._table.name}`, {other} {did}.{committer}",
            hint="Nothing was written. Run the statement again: it then reads the current rows. "
            "The setting row_level_retries is the number of automatic retries.",
        )


# Finds the files that can hold rows that a statement searched for, by partitions, buckets, keys and
# statistics.


def _may_match(table: Table, files: pa.Table, conditions: Sequence[ColumnPredicate]) -> pa.Table:
    """The files (columns of MANIFEST_ENTRIES) that can hold rows which meet all conditions. A
    condition on a column that the table no longer has says nothing."""
    names = table.schema.column_names
    known = [condition for condition in conditions if condition.column in names]
    columns_of = TableSchemas(table.paimon).columns
    return files.filter(pa.array(can_match(files, table.schema, columns_of, known)))


# Whether two sets of files of a primary-key table have a key in common. Reads key columns only.
#
# The keys of the side with fewer rows are held in memory, those of the other come in batches.


def have_common_key(
    table: Table,
    ours: Sequence[StoredFile],
    theirs: Sequence[StoredFile],
    elsewhere: frozenset[str] = frozenset(),
) -> bool:
    """Whether a row of `ours` has the key of a row of `theirs`; `elsewhere` are the stores of
    files outside the table's folder. True also where both have more than HELD_KEYS_MAX rows.

    Raises FileNotFoundError if one of the files is gone.
    """
    fewer, more = sorted((ours, theirs), key=_rows)
    if not fewer:
        return False
    if _rows(fewer) > HELD_KEYS_MAX:
        return True
    known = pa.Table.from_batches(list(key_batches(table, fewer, elsewhere))).combine_chunks()
    return any(_meet(known, batch) for batch in key_batches(table, more, elsewhere))


def _rows(files: Sequence[StoredFile]) -> int:
    return sum(file.rows for file in files)


def _meet(known: pa.Table, batch: pa.RecordBatch) -> bool:
    """Whether a row of `known` equals a row of `batch`. Floating-point numbers are equal as in
    Java."""
    ours, theirs = key_numbers([known, pa.Table.from_batches([batch])])
    return bool(np.isin(theirs, ours).any())
