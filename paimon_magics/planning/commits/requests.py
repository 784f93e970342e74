"""A commit as a value: what a transaction wrote and what it replaces.

A statement that writes is one transaction: begin, write files under the transaction's prefix,
then commit the messages of the files, or abort. Nothing here acts or knows a transport.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from paimon_magics.statements.statement import TableName

__all__ = [
    "BATCH_COMMIT_IDENTIFIER",
    "Append",
    "Change",
    "CommitReceipt",
    "CommitRequest",
    "OverwritePartitions",
    "OverwriteTouched",
    "Transaction",
    "Waiting",
]

# What Paimon's batch jobs use; the commit user of such a job is never used again.
BATCH_COMMIT_IDENTIFIER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Transaction:
    """An open write. `file_prefix` starts the leaf name of every data and changelog file of it.

    `base_snapshot_id` is the table's latest snapshot at begin, 0 for a table without any.
    `attempts_folder` is what the paths of its writers' notes begin with, None where they can't
    leave any.
    """

    table: TableName
    commit_user: str
    file_prefix: str
    base_snapshot_id: int
    attempts_folder: str | None = None
    commit_identifier: int = BATCH_COMMIT_IDENTIFIER


@dataclass(frozen=True, slots=True)
class Append:
    """Add the files. With no files, and unless the table says otherwise, no snapshot is made."""


@dataclass(frozen=True, slots=True)
class OverwritePartitions:
    """Replace everything in the partitions that one of `specs` describes; () is the whole table.

    A spec is (partition column, value as Paimon writes it in text, None for NULL) for some or all
    partition columns. More than one spec only removes: there must be no files to add. With
    `swallow_newer`, rows that others added after the transaction's base are replaced too.
    """

    specs: tuple[tuple[tuple[str, str | None], ...], ...] = ()
    swallow_newer: bool = False


@dataclass(frozen=True, slots=True)
class OverwriteTouched:
    """Replace only the partitions that receive rows; with no rows nothing happens."""

    swallow_newer: bool = False


Change = Append | OverwritePartitions | OverwriteTouched


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is before a transaction that waits for its turn: `message` says it, `in_front` is how
    many come first."""

    message: str
    in_front: int


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """What to commit. `messages` are bodies in the form of Java's `CommitMessageSerializer`
    version 14; `properties` go into the snapshot."""

    transaction: Transaction
    change: Change
    messages: tuple[bytes, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CommitReceipt:
    """What was committed. `snapshot_id` is None where nothing had to be (an empty append).

    `total_rows` are the rows stored in the table's files, `delta_rows` those that this commit
    added less those that it removed. `manifest_list` names the list of the snapshot's changes; it
    tells the snapshot from any other of the same id. `rests_on` is that of the snapshot on which it
    was built, None for the first of a table and where that is not known; the same commit found
    again is equal without it.
    """

    snapshot_id: int | None
    commit_kind: str | None
    total_rows: int | None
    delta_rows: int
    manifest_list: str | None = None
    rests_on: str | None = field(default=None, compare=False)
