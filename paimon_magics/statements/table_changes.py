"""ALTER TABLE and its changes, as values."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.statements.data_types import DataType
from paimon_magics.statements.statement import PartitionItem, StatementText, TableName


@dataclass(frozen=True, slots=True)
class AddColumn:
    """`path` is the column's name, after its parents' for a nested column: ("address", "zip").

    `after` is the name of the column before it; `first` is true for FIRST.
    """

    path: tuple[str, ...]
    type: DataType
    comment: str | None = None
    default: str | None = None
    first: bool = False
    after: str | None = None


@dataclass(frozen=True, slots=True)
class DropColumn:
    path: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumn:
    path: tuple[str, ...]
    new_name: str


@dataclass(frozen=True, slots=True)
class RetypeColumn:
    path: tuple[str, ...]
    type: DataType


@dataclass(frozen=True, slots=True)
class SetColumnNullability:
    """ALTER COLUMN … SET NOT NULL (`nullable` is false) or DROP NOT NULL (true)."""

    path: tuple[str, ...]
    nullable: bool


@dataclass(frozen=True, slots=True)
class SetColumnComment:
    path: tuple[str, ...]
    comment: str


@dataclass(frozen=True, slots=True)
class SetColumnDefault:
    """`default` is SQL text, None for DROP DEFAULT."""

    path: tuple[str, ...]
    default: str | None


@dataclass(frozen=True, slots=True)
class ReorderColumn:
    path: tuple[str, ...]
    first: bool = False
    after: str | None = None


@dataclass(frozen=True, slots=True)
class SetOptions:
    """`may_be_unknown`: an engine sets them, whose own options need not be known here."""

    options: tuple[tuple[str, str], ...]
    may_be_unknown: bool = False


@dataclass(frozen=True, slots=True)
class UnsetOptions:
    keys: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameTable:
    new_name: TableName


@dataclass(frozen=True, slots=True)
class DropPartitions:
    """One or more partition specs; all items of a spec have values."""

    specs: tuple[tuple[PartitionItem, ...], ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Partition specs to add. They begin with their first row: there is nothing to do for them."""

    specs: tuple[tuple[PartitionItem, ...], ...]
    if_not_exists: bool = False


TableChange = (
    AddColumn
    | DropColumn
    | RenameColumn
    | RetypeColumn
    | SetColumnNullability
    | SetColumnComment
    | SetColumnDefault
    | ReorderColumn
    | SetOptions
    | UnsetOptions
    | RenameTable
    | DropPartitions
    | AddPartitions
)


@dataclass(frozen=True, slots=True)
class AlterTable(StatementText):
    name: TableName
    name_position: int
    changes: tuple[TableChange, ...]
