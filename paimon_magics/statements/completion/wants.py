"""What may follow at a place in a cell, as values."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.statements.completion import words as words
from paimon_magics.statements.completion.scopes import (
    Seen,
)
from paimon_magics.statements.statement import TableName


@dataclass(frozen=True, slots=True)
class Keywords:
    """Words of SQL."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Databases:
    """Databases of the catalog."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables of a database, None for the current one; `common` are the query's own CTEs."""

    database: str | None
    common: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SystemTables:
    """Names of system tables, which follow the `$` of a table's name."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of these relations and, with `with_aliases`, the relations' aliases."""

    relations: tuple[Seen, ...]
    with_aliases: bool = False


@dataclass(frozen=True, slots=True)
class Fields:
    """Fields of the struct at `path`, which begins with a column of one of the relations."""

    relations: tuple[Seen, ...]
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Functions:
    """Functions of Spark that are used often."""


@dataclass(frozen=True, slots=True)
class PartitionColumns:
    """The partition columns of a table."""

    table: TableName


@dataclass(frozen=True, slots=True)
class Partitions:
    """The names of a table's partitions, such as `day=2026-11-20/region=eu`."""

    table: TableName


@dataclass(frozen=True, slots=True)
class PartitionValues:
    """Values of a partition column in the relations that are partitioned by it."""

    relations: tuple[Seen, ...]
    column: str


@dataclass(frozen=True, slots=True)
class Versions:
    """Tags of a table and, with `snapshots`, its snapshots."""

    table: TableName
    snapshots: bool = True


@dataclass(frozen=True, slots=True)
class Times:
    """Commit times of a table, and expressions that give a time; None without a known table."""

    table: TableName | None


@dataclass(frozen=True, slots=True)
class Options:
    """Keys of table options or, with `of_reads`, of read options."""

    of_reads: bool = False


@dataclass(frozen=True, slots=True)
class OptionValues:
    """Values of an option."""

    key: str


@dataclass(frozen=True, slots=True)
class BindNames:
    """Names of bind parameters, which follow a `:`."""


@dataclass(frozen=True, slots=True)
class Procedures:
    """Procedures for CALL. With `is_qualified`, `sys.` is written already."""

    is_qualified: bool


@dataclass(frozen=True, slots=True)
class ProcedureParameters:
    """The parameters of a procedure."""

    procedure: str


@dataclass(frozen=True, slots=True)
class ArgumentValues:
    """Values of a procedure's parameter, by its name or its position; `table` is the table that the
    CALL has named already."""

    procedure: str
    parameter: str | int
    table: TableName | None


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
    | ArgumentValues
)


@dataclass(frozen=True, slots=True)
class Expected:
    """What may replace `typed`, the text from `start` to the cursor. `quote` is the quote that is
    open at the cursor, "" without one."""

    start: int
    typed: str
    wants: tuple[Want, ...] = ()
    quote: str = ""


def in_quotes(wants: tuple[Want, ...], quote: str) -> tuple[Want, ...]:
    """Those that may be written in this quote: column names only in back-quotes."""
    unquoted = (Keywords, Functions) if quote == "`" else (Keywords, Functions, Columns, Fields)
    return tuple(
        Columns(want.relations) if isinstance(want, Columns) else want
        for want in wants
        if not isinstance(want, unquoted)
    )
