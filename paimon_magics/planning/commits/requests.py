"""A commit as a value: the files that a transaction wrote and the files that it replaces.

A statement that writes is one transaction: begin, write files under the transaction's prefix,
then commit the messages of the files, or abort. Nothing here acts or knows a transport.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from paimon_magics.planning.commits.read_sets import ReadSet
from paimon_magics.statements.statement import TableName

# What Paimon's batch jobs use; the commit user of such a job is never used again.
BATCH_COMMIT_IDENTIFIER = 2**63 - 1

_COMMIT_USER = "paimon-magics-"
_PREFIX = ANY_NAMES = "pm-"
_OWNER_DIGITS = 16
_RANDOM_DIGITS = 16
_IDENTITY = re.compile(_PREFIX + "([0-9a-f]{8})" + "([0-9a-f]{4})" * 3 + "([0-9a-f]{12})-")


def names_of(owner: str) -> str:
    """How the names of all files begin that transactions of an owner write; "" is nobody by name.
    Keys of the store are limited to them, so that nobody writes over the files of others."""
    return _PREFIX + hashlib.sha256(owner.encode()).hexdigest()[:_OWNER_DIGITS]


def transaction_names(owner: str, random: str) -> tuple[str, str]:
    """The file prefix and the commit user of a new transaction of an owner. `random` are 16
    hexadecimal digits that no other one has."""
    assert len(random) == _RANDOM_DIGITS
    prefix = f"{names_of(owner)}{random}-"
    return prefix, commit_user_of(prefix)


def commit_user_of(prefix: str) -> str:
    """The commit user of the transaction with a file prefix. Raises ValueError for a prefix that no
    transaction has."""
    parts = _IDENTITY.fullmatch(prefix)
    if parts is None:
        raise ValueError(f"{prefix!r} is not the file prefix of a transaction.")
    return _COMMIT_USER + "-".join(parts.groups())


def prefix_of(commit_user: str) -> str | None:
    """The file prefix of the transaction with a commit user; None for a commit of another kind."""
    digits = commit_user.removeprefix(_COMMIT_USER).replace("-", "")
    prefix = f"{_PREFIX}{digits}-"
    is_ours = _IDENTITY.fullmatch(prefix) is not None and commit_user_of(prefix) == commit_user
    return prefix if is_ours else None


def is_named_by(commit_user: str, owner: str) -> bool:
    """Whether a commit user is that of a transaction of `owner`, or of nobody by name; True for one
    that is no transaction's."""
    prefix = prefix_of(commit_user)
    return prefix is None or prefix.startswith((names_of(owner), names_of("")))


@dataclass(frozen=True, slots=True)
class Transaction:
    """An open write. The names of all its data and changelog files begin with `file_prefix`.

    `base_snapshot_id` is the table's latest snapshot when the transaction began, 0 for a table
    without snapshots. `attempts_folder` begins the paths of its writers' notes (one for each
    attempt); None if writers can't leave notes. `table_creation` distinguishes the table from a
    later table of the same name; "" if unknown. `base_manifest_list` names the delta manifest list
    of the base snapshot, by which another snapshot that took its id after a roll-back is noticed;
    "" if that is unknown, and for a table without snapshots. `base_schema` is the `identity_of` the
    table's schema when the transaction began, by which another schema that took its number is
    noticed; "" if that is unknown.
    """

    table: TableName
    commit_user: str
    file_prefix: str
    base_snapshot_id: int
    attempts_folder: str | None = None
    commit_identifier: int = BATCH_COMMIT_IDENTIFIER
    table_creation: str = ""
    base_manifest_list: str = ""
    base_schema: str = ""

    @property
    def base(self) -> tuple[int, str]:
        """The base snapshot: its id and `base_manifest_list`."""
        return self.base_snapshot_id, self.base_manifest_list

    def is_on(self, base: tuple[int, str]) -> bool:
        """Whether this is its base, as far as is known."""
        names = {base[1], self.base_manifest_list} - {""}
        return base[0] == self.base_snapshot_id and len(names) < 2


@dataclass(frozen=True, slots=True)
class Append:
    """Add the files. Without files no snapshot is created, unless the table's options require a
    snapshot, or the change does: `makes_snapshot`, for the sake of its properties."""

    makes_snapshot: bool = False


@dataclass(frozen=True, slots=True)
class OverwritePartitions:
    """Replace all rows in the partitions that match one of `specs`; () is the whole table.

    A spec has a pair (partition column, value) for some or all partition columns; the value is
    text as Paimon writes it, None for NULL. Files to add must be in partitions that are replaced.
    With `swallow_newer`, rows that others added after the transaction's
    base are replaced too.
    """

    specs: tuple[tuple[tuple[str, str | None], ...], ...] = ()
    swallow_newer: bool = False


@dataclass(frozen=True, slots=True)
class OverwriteTouched:
    """Replace only the partitions that receive rows; without rows, change nothing.

    With `only_unchanged` no row of these may have changed since the transaction's base: the new
    rows are the old ones in another layout.
    """

    swallow_newer: bool = False
    only_unchanged: bool = False


@dataclass(frozen=True, slots=True)
class Compact:
    """Replace files by others with the same rows: a snapshot of the kind COMPACT. A file may move
    to another level: its message has it in `compact_before` and in `compact_after`, with one name.
    Without files no snapshot is made.

    `left_out` are messages of the same transaction that are not committed, because they conflict
    with other commits. The files that they add are removed when the others are committed.

    With `moves_keys` rows go from one bucket of a partition to another, with the hashes of their
    keys: files and indexes are added. A write to the buckets since the base is a conflict.
    """

    left_out: tuple[bytes, ...] = ()
    moves_keys: bool = False


@dataclass(frozen=True, slots=True)
class CompactManifests:
    """Merge the manifests of the table, all of them: a snapshot of the kind COMPACT with the same
    files, or none if they stay as they are. There must be no messages. `target_bytes` takes the
    place of the table's 'manifest.target-file-size'.
    """

    target_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MergeFrom:
    """Add the files of another branch of the table that the table, or the branch, lacks. There must
    be no messages: the files are found when it is committed, so that none is added twice. `branch`
    is `main` for the table itself.
    """

    branch: str


@dataclass(frozen=True, slots=True)
class Analyze:
    """Keep table statistics, JSON as in Paimon's `Statistics`: a snapshot of the kind ANALYZE with
    the same files. There must be no messages."""

    statistics: str


InsertChange = Append | OverwritePartitions | OverwriteTouched
"""A change that adds or replaces rows."""

Change = InsertChange | Compact | CompactManifests | MergeFrom | Analyze


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a transaction waits: `message` is for a person, `in_front` counts the transactions
    before it."""

    message: str
    in_front: int


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """What to commit. `messages` have the form of Java's `CommitMessageSerializer` version 14;
    `properties` are stored in the snapshot. `read_set` is the statement's read set, if it changes
    rows: the commit is refused if others have changed these rows since."""

    transaction: Transaction
    change: Change
    messages: tuple[bytes, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    read_set: ReadSet | None = None


@dataclass(frozen=True, slots=True)
class CommitReceipt:
    """What was committed. `snapshot_id` is None if there was nothing to commit (an empty append).

    `total_rows` counts the rows stored in the table's files; `delta_rows` is the number of rows
    added minus the number removed. `manifest_list` names the snapshot's delta manifest list, which
    distinguishes it from any other snapshot with the same id. `rests_on` is the delta manifest
    list of the snapshot that it was built on; None for a table's first snapshot, or if unknown.
    Comparison ignores `rests_on`, so that a commit found again equals its first receipt.
    """

    snapshot_id: int | None
    commit_kind: str | None
    total_rows: int | None
    delta_rows: int
    manifest_list: str | None = None
    rests_on: str | None = field(default=None, compare=False)
