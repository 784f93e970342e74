"""What may come at a place of a cell, as values."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.statements.completion import words as words
from paimon_magics.statements.completion.scopes import (
    Seen,
)
from paimon_magics.statements.statement import TableName

__all__ = [
    "BindNames",
    "Columns",
    "Databases",
    "Expected",
    "Fields",
    "Functions",
    "Keywords",
    "OptionValues",
    "Options",
    "PartitionColumns",
    "PartitionValues",
    "Partitions",
    "ProcedureParameters",
    "Procedures",
    "SystemTables",
    "Tables",
    "Times",
    "Versions",
    "Want",
]


@dataclass(frozen=True, slots=True)
class Keywords:
    """Words of SQL."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Databases:
    """Databases of the catalog."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables of a database, None for the one in use; `common` are names in the query itself."""

    database: str | None
    common: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SystemTables:
    """What stands behind the `$` of a table's name."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of these relations, and their aliases `with_aliases`."""

    relations: tuple[Seen, ...]
    with_aliases: bool = False


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a struct: a column of one of the relations, and fields within it, by name."""

    relations: tuple[Seen, ...]
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Functions:
    """Functions of Spark's that are written often."""


@dataclass(frozen=True, slots=True)
class PartitionColumns:
    """The partition columns of a table."""

    table: TableName


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of a table by their names, as `day=2026-11-20/region=eu`."""

    table: TableName


@dataclass(frozen=True, slots=True)
class PartitionValues:
    """Values that a column has in the partitions of the relations that have it as one."""

    relations: tuple[Seen, ...]
    column: str


@dataclass(frozen=True, slots=True)
class Versions:
    """Tags of a table, and its snapshots with `snapshots`."""

    table: TableName
    snapshots: bool = True


@dataclass(frozen=True, slots=True)
class Times:
    """Times at which a table had another state, and what gives a time; None for no known table."""

    table: TableName | None


@dataclass(frozen=True, slots=True)
class Options:
    """Keys of options: those of tables, or of reads."""

    of_reads: bool = False


@dataclass(frozen=True, slots=True)
class OptionValues:
    """Values of an option."""

    key: str


@dataclass(frozen=True, slots=True)
class BindNames:
    """Names behind the `:` of a bind parameter."""


@dataclass(frozen=True, slots=True)
class Procedures:
    """What CALL can call; without `sys.` where that is written already."""

    is_qualified: bool


@dataclass(frozen=True, slots=True)
class ProcedureParameters:
    """The parameters of a procedure."""

    procedure: str


Want = (
    Keywords
    | Databases
    | Tables
    | SystemTables
    | Columns
    | Fields
    | Functions
    | PartitionColumns
    | Partitions
    | PartitionValues
    | Versions
    | Times
    | Options
    | OptionValues
    | BindNames
    | Procedures
    | ProcedureParameters
)


@dataclass(frozen=True, slots=True)
class Expected:
    """What may replace the text from `start` to the cursor, `typed`. `quote` is the quote that is
    open there, else empty."""

    start: int
    typed: str
    wants: tuple[Want, ...] = ()
    quote: str = ""
