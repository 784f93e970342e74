"""What a statement asks of a table's tags, branches and history, as values, and those statements.

`ALTER TABLE … TAG` is read into changes; `planning.commits.procedures` makes them of CALL. Snapshot
ids and names are as written: whether they exist is found out where the change is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.statements.statement import StatementText, TableName

__all__ = [
    "AlterTags",
    "Argument",
    "Call",
    "CreateBranch",
    "CreateTag",
    "CreateTagFromTimestamp",
    "DeleteBranches",
    "DeleteTags",
    "FastForward",
    "Parameter",
    "RenameBranch",
    "RenameTag",
    "ReplaceTag",
    "RollBackToSnapshot",
    "RollBackToTag",
    "RollBackToTimestamp",
    "RollBackToWatermark",
    "ShowTags",
    "TagChange",
    "VersionChange",
]


@dataclass(frozen=True, slots=True)
class CreateTag:
    """Name a snapshot, the latest one without `snapshot_id`.

    `time_retained` is a duration in Paimon's writing (`3 d`), None for a tag that stays until it is
    deleted. Where the tag exists, `or_replace` moves it and `if_not_exists` leaves it.
    """

    tag: str
    snapshot_id: int | None = None
    time_retained: str | None = None
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class ReplaceTag:
    """Let an existing tag name another snapshot; the rest as for CreateTag."""

    tag: str
    snapshot_id: int | None = None
    time_retained: str | None = None


@dataclass(frozen=True, slots=True)
class CreateTagFromTimestamp:
    """Name the first snapshot, or tagged one, that is not earlier than `time_ms` (since 1970)."""

    tag: str
    time_ms: int
    time_retained: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteTags:
    """Delete tags; those that are not there are passed over, as Paimon does."""

    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RenameTag:
    """`new_name` must be free."""

    tag: str
    new_name: str


@dataclass(frozen=True, slots=True)
class CreateBranch:
    """A branch from a tag, or with the table's newest schema and no snapshots."""

    branch: str
    tag: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DeleteBranches:
    """With their snapshots and tags; all must be there."""

    branches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RenameBranch:
    """`new_name` must be free."""

    branch: str
    new_name: str


@dataclass(frozen=True, slots=True)
class FastForward:
    """Take the main branch forward to where `branch` is."""

    branch: str


@dataclass(frozen=True, slots=True)
class RollBackToSnapshot:
    """Make an earlier snapshot the latest again; one that has expired comes back from a tag."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class RollBackToTag:
    """To the snapshot that a tag names; the tag stays."""

    tag: str


@dataclass(frozen=True, slots=True)
class RollBackToTimestamp:
    """To the last snapshot that is not later than `time_ms` (since 1970)."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class RollBackToWatermark:
    """To the last snapshot whose watermark is not greater."""

    watermark: int


TagChange = CreateTag | ReplaceTag | DeleteTags | RenameTag
"""What ALTER TABLE can say."""

VersionChange = (
    TagChange
    | CreateTagFromTimestamp
    | CreateBranch
    | DeleteBranches
    | RenameBranch
    | FastForward
    | RollBackToSnapshot
    | RollBackToTag
    | RollBackToTimestamp
    | RollBackToWatermark
)


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
    """A value that the caller gives by this name, written `:name`."""

    name: str


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of CALL, by its place or by `name => value`."""

    name: str | None
    value: str | int | float | bool | Parameter | None
    position: int


@dataclass(frozen=True, slots=True)
class Call(StatementText):
    """CALL of a procedure; `procedure` is its name's parts, as `("sys", "create_tag")`."""

    procedure: tuple[str, ...]
    procedure_position: int
    arguments: tuple[Argument, ...]
