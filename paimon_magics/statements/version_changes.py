"""Changes of a table's tags, branches and history, as values, and the statements that ask for them.

The parser makes changes from `ALTER TABLE … TAG`, `planning.commits.procedures` from CALL. Snapshot
ids and names are as written: whether they exist is checked when the change is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.statements.statement import StatementText, TableName


@dataclass(frozen=True, slots=True)
class CreateTag:
    """Create a tag of a snapshot: `snapshot_id`, or the latest.

    `time_retained` is a duration as Paimon writes it (`3 d`), None for a tag that stays until it is
    deleted. If the tag exists, `or_replace` moves it and `if_not_exists` leaves it.
    """

    tag: str
    snapshot_id: int | None = None
    time_retained: str | None = None
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class ReplaceTag:
    """Move an existing tag to another snapshot; the fields are as in CreateTag."""

    tag: str
    snapshot_id: int | None = None
    time_retained: str | None = None


@dataclass(frozen=True, slots=True)
class CreateTagFromTimestamp:
    """Tag the first snapshot at or after `time_ms` (milliseconds since 1970).

    Snapshots that only a tag keeps count, too.
    """

    tag: str
    time_ms: int
    time_retained: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteTags:
    """Delete tags; tags that do not exist are ignored, as in Paimon."""

    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RenameTag:
    """`new_name` must not exist yet."""

    tag: str
    new_name: str


@dataclass(frozen=True, slots=True)
class CreateBranch:
    """Create a branch from a tag; without one, with the latest schema and no snapshots."""

    branch: str
    tag: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DeleteBranches:
    """Delete branches with their snapshots and tags; all must exist."""

    branches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RenameBranch:
    """`new_name` must not exist yet."""

    branch: str
    new_name: str


@dataclass(frozen=True, slots=True)
class FastForward:
    """Fast-forward the main branch to the state of `branch`."""

    branch: str


@dataclass(frozen=True, slots=True)
class RollBackToSnapshot:
    """Make an earlier snapshot the latest again; an expired one is restored from a tag."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class RollBackToTag:
    """Roll back to the snapshot of a tag; the tag stays."""

    tag: str


@dataclass(frozen=True, slots=True)
class RollBackToTimestamp:
    """Roll back to the last snapshot at or before `time_ms` (milliseconds since 1970)."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class RollBackToWatermark:
    """Roll back to the last snapshot whose watermark is not above `watermark`."""

    watermark: int


@dataclass(frozen=True, slots=True)
class CreateAutomaticTags:
    """Create the tags that the table's options ask for (`tag.automatic-creation`), and delete the
    automatic tags and the tags whose time is over."""


@dataclass(frozen=True, slots=True)
class ResetConsumer:
    """Set the next snapshot that a consumer reads; None forgets the consumer."""

    consumer_id: str
    next_snapshot: int | None = None


@dataclass(frozen=True, slots=True)
class ClearConsumers:
    """Forget the consumers whose whole names match the regular expression `including` (None is
    all), but for those that match `excluding`."""

    including: str | None = None
    excluding: str | None = None


@dataclass(frozen=True, slots=True)
class MarkPartitionsDone:
    """Report partitions as done, by the table's option 'partition.mark-done-action'. Each is a text
    like `dt=2026-01-01,h=1`."""

    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RepairEarliestSnapshot:
    """Begin the table's history at a snapshot that follows a gap of missing ones."""

    snapshot_id: int


TagChange = CreateTag | ReplaceTag | DeleteTags | RenameTag
"""The changes that ALTER TABLE can ask for."""

RollBack = RollBackToSnapshot | RollBackToTag | RollBackToTimestamp | RollBackToWatermark
"""A change that makes an earlier snapshot the latest again."""

HistoryChange = (
    TagChange
    | CreateTagFromTimestamp
    | CreateBranch
    | DeleteBranches
    | RenameBranch
    | FastForward
    | RollBack
)
"""A change of tags, branches or the chain of snapshots; it takes the right to alter the table."""

UpkeepChange = (
    CreateAutomaticTags
    | ResetConsumer
    | ClearConsumers
    | MarkPartitionsDone
    | RepairEarliestSnapshot
)
"""A change of what stands beside the snapshots of a table; it takes the right to maintain it."""

VersionChange = HistoryChange | UpkeepChange


@dataclass(frozen=True, slots=True)
class AlterTags(StatementText):
    """ALTER TABLE … CREATE, REPLACE, DELETE or RENAME TAG."""

    name: TableName
    name_position: int
    change: TagChange


@dataclass(frozen=True, slots=True)
class ShowTags(StatementText):
    """SHOW TAGS name."""

    name: TableName
    name_position: int


@dataclass(frozen=True, slots=True)
class Parameter:
    """A bind parameter, written `:name`."""

    name: str


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of CALL: `name => value`, or by position (`name` is None). Pairs are a map."""

    name: str | None
    value: str | int | float | bool | Parameter | tuple[tuple[str, str], ...] | None
    position: int


@dataclass(frozen=True, slots=True)
class Call(StatementText):
    """CALL of a procedure; `procedure` has the parts of its name: `("sys", "create_tag")`."""

    procedure: tuple[str, ...]
    procedure_position: int
    arguments: tuple[Argument, ...]
