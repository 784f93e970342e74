"""What a coordinator remembers of a snapshot that it published, and what it finds of it later.

A writer that goes around the coordinator may check that a snapshot's file is not there and then
rename its own over the one that came in between. So snapshots are looked at again: by the name of
the list that a snapshot's own changes are in, which no two snapshots share. Values only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from paimon_magics.planning.commits.requests import CommitReceipt
from paimon_magics.statements.statement import TableName

__all__ = ["Publication", "PublicationFinding", "Verdict"]


@dataclass(frozen=True, slots=True)
class Publication:
    """A snapshot that was published.

    `id` is the transaction's where it was one's commit (`is_transaction`). `location` is where the
    table lies; `manifest_list` the name of the snapshot's delta manifest list, which tells it from
    any other of the same id. Of a commit through the REST catalog, `base_list` is its other list of
    manifests, `changelog_list` that of its changelog, `properties` are the snapshot's, `changes` is
    a digest of its files, and `changes_index` tells that it changed the table's index files, `rows`
    by how many rows it made the table larger. `rests_on` is the `manifest_list` of the snapshot
    that it was built on, as far as that is known, and `manifests` are those that its own changes
    are in: both tell of a snapshot that has expired since. Until `certain`, the snapshot may not
    have been published after all.
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


class Verdict(StrEnum):
    """What became of a snapshot that was published.

    - INTACT: it is there, and nothing has been built on it yet.
    - SETTLED: what it committed can't be lost any more by writing over it, or was not to be kept.
    - REPUBLISHED: it was overwritten, and its commit is in the table again.
    - OVERWRITTEN: another snapshot has its id, and its commit can be published again.
    - LOST: its commit is not in the table (or that is unknown), and must not be published again
      without somebody looking.
    """

    INTACT = "intact"
    SETTLED = "settled"
    REPUBLISHED = "republished"
    OVERWRITTEN = "overwritten"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class PublicationFinding:
    """What was found of the publication `id`.

    `account` says what happened, for a person. A republished one comes with its new publication and
    its receipt.
    """

    id: str
    verdict: Verdict
    account: str = ""
    publication: Publication | None = None
    receipt: CommitReceipt | None = None
