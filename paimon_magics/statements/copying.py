"""COPY INTO as values: files into a table, and rows into files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paimon_magics.statements.statement import QueryText, StatementText, TableName

OnError = Literal["ABORT_STATEMENT", "CONTINUE", "SKIP_FILE"]
"""What becomes of rows that can't be loaded: they end the statement, are left out, or their files
are left out."""

ON_ERROR: tuple[OnError, ...] = ("ABORT_STATEMENT", "CONTINUE", "SKIP_FILE")
"""All values of `OnError`, the default first."""


@dataclass(frozen=True, slots=True)
class FileFormat:
    """FILE_FORMAT = (TYPE = …, …). `type` and the keys of `options` are in upper case. The value of
    an option is a text, or the texts of a list in brackets. `position` is where the clause
    begins, for errors."""

    type: str
    options: tuple[tuple[str, str | tuple[str, ...]], ...] = ()
    position: int = 0


@dataclass(frozen=True, slots=True)
class CopyIntoTable(StatementText):
    """COPY INTO `target` [(columns)] FROM `path` and its clauses.

    `files` are names below the path, `pattern` is a regular expression that is searched for in the
    files' names. With `force` files are loaded that were loaded before. `rejected` is the table
    for the rows that can't be loaded. With `validate` nothing is loaded: the files' rows are
    checked, at most `validated_rows` of each, None for all.
    """

    target: TableName
    target_position: int
    path: str
    path_position: int
    format: FileFormat
    columns: tuple[str, ...] | None = None
    files: tuple[str, ...] | None = None
    pattern: str | None = None
    force: bool = False
    on_error: OnError = "ABORT_STATEMENT"
    rejected: TableName | None = None
    validate: bool = False
    validated_rows: int | None = None


@dataclass(frozen=True, slots=True)
class CopyIntoFiles(StatementText):
    """COPY INTO `path` FROM a table or (query) and its clauses.

    The ranges of `query` are offsets into `query_text`: the statement's text, or for a table the
    text of a query that reads it. `overwrite` replaces what is at the path. `partition_by` are
    columns by whose values the rows are put into folders. With `single` they become one file, whose
    name is the path.
    """

    path: str
    path_position: int
    query_text: str
    query: QueryText
    format: FileFormat
    overwrite: bool = False
    partition_by: tuple[str, ...] = ()
    single: bool = False
