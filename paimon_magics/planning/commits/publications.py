"""A coordinator's record of a snapshot that it published, and the findings of later checks.

A writer that bypasses the coordinator may check that a snapshot file does not exist, and then
rename its own file over one that was created in between. So the coordinator checks published
snapshots again, by the name of their delta manifest list, which no two snapshots share. Values
only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from paimon_magics.planning.commits.requests import CommitReceipt
from paimon_magics.statements.statement import TableName


@dataclass(frozen=True, slots=True)
class Publication:
    """A snapshot that was published.

    `id` is the transaction's if a transaction committed it (`is_transaction`). `location` is the
    table's path. `manifest_list` is the name of the snapshot's delta manifest list, which
    distinguishes it from any other snapshot with the same id.

    `changes_index` is whether it changed index files, and `has_read` whether it was checked against
    the statement's read set. Its manifests show neither, so such a commit is not published again
    without its request.

    For a commit through the REST catalog, `base_list` and `changelog_list` are its other manifest
    lists, `properties` are the snapshot's, `changes` is a digest of its files, and `rows` is the
    number of rows that it added.

    `rests_on` is the `manifest_list` of the snapshot that it was built on, if known; `manifests`
    are those that hold its changes. Both are used if the snapshot has expired since. While
    `certain` is false, the snapshot may not have been published after all. The record is kept until
    `kept_until_ms`. `table_creation` distinguishes the table from another one that takes its name
    and place; "" if unknown.
    """

    id: str
    table: TableName
    location: str
    snapshot_id: int
    manifest_list: str
    commit_user: str
    commit_identifier: int
    commit_kind: str
    published_at_ms: int
    is_transaction: bool = True
    changelog_list: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    changes: str = ""
    changes_index: bool = False
    certain: bool = True
    kept_until_ms: int = 0
    rows: int | None = None
    base_list: str | None = None
    rests_on: str | None = None
    manifests: tuple[str, ...] = ()
    has_read: bool = False
    table_creation: str = ""


class Verdict(StrEnum):
    """The state of a published snapshot.

    - INTACT: it exists, and no other snapshot has been built on it yet.
    - SETTLED: overwriting its file can no longer lose its commit, or the commit need not be kept.
    - REPUBLISHED: it was overwritten, and its commit was published again.
    - OVERWRITTEN: another snapshot has its id; its commit can be published again.
    - LOST: its commit is not in the table, or that is unknown; a person must check before it is
      published again.
    """

    INTACT = "intact"
    SETTLED = "settled"
    REPUBLISHED = "republished"
    OVERWRITTEN = "overwritten"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class PublicationFinding:
    """The result of checking the publication `id`.

    `account` tells a person what happened. A republished commit has its new `publication` and
    `receipt`.
    """

    id: str
    verdict: Verdict
    account: str = ""
    publication: Publication | None = None
    receipt: CommitReceipt | None = None
