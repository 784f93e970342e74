"""What ALTER TABLE asks of a table, as values, and that statement."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.statements.data_types import DataType
from paimon_magics.statements.statement import PartitionItem, StatementText, TableName

__all__ = [
    "AddColumn",
    "AlterTable",
    "DropColumn",
    "DropPartitions",
    "RenameColumn",
    "RenameTable",
    "ReorderColumn",
    "RetypeColumn",
    "SetColumnComment",
    "SetColumnDefault",
    "SetColumnNullability",
    "SetOptions",
    "TableChange",
    "UnsetOptions",
]


@dataclass(frozen=True, slots=True)
class AddColumn:
    """`path` names the column, with its parents for a nested one: ("address", "zip").

    `after` is a column name, `first` is true for FIRST.
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
    """`nullable` false is ALTER COLUMN … SET NOT NULL, true is DROP NOT NULL."""

    path: tuple[str, ...]
    nullable: bool


@dataclass(frozen=True, slots=True)
class SetColumnComment:
    path: tuple[str, ...]
    comment: str


@dataclass(frozen=True, slots=True)
class SetColumnDefault:
    """`default` is SQL text; None is DROP DEFAULT."""

    path: tuple[str, ...]
    default: str | None


@dataclass(frozen=True, slots=True)
class ReorderColumn:
    path: tuple[str, ...]
    first: bool = False
    after: str | None = None


@dataclass(frozen=True, slots=True)
class SetOptions:
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class UnsetOptions:
    keys: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameTable:
    new_name: TableName


@dataclass(frozen=True, slots=True)
class DropPartitions:
    """One or more specs, each a tuple of items that all have values."""

    specs: tuple[tuple[PartitionItem, ...], ...]
    if_exists: bool = False


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
)


@dataclass(frozen=True, slots=True)
class AlterTable(StatementText):
    name: TableName
    name_position: int
    changes: tuple[TableChange, ...]
