"""The columns and fields that an UPDATE assigns.

Source: `PaimonAssignmentUtils.alignUpdateAssignments`, `RowLevelHelper` of Paimon's connector.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import RowType
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, Token, tokenize
from paimon_magics.statements.statement import TableName, Update

# Resolves an assigned name to a column, or a field of a STRUCT.
#
# UPDATE and MERGE name columns in the same way: the table's name may come first, and fields of a
# STRUCT follow its column, in upper or lower case. Spark reads a name as the table's name before it
# looks for a field in a column of that name.


@dataclass(frozen=True, slots=True)
class ColumnPath:
    """A column, and the names of the fields that lead into it; () for the whole column."""

    column: Column
    fields: tuple[str, ...]

    def overlaps(self, other: ColumnPath) -> bool:
        """Whether both are the same, or one is inside the other."""
        length = min(len(self.fields), len(other.fields))
        return self.column == other.column and self.fields[:length] == other.fields[:length]


@dataclass(frozen=True, slots=True)
class AssignedTable:
    """The table whose columns a statement assigns, as it names it: `alias` stands for its name,
    where it is given."""

    name: TableName
    alias: str | None
    schema: TableSchema

    def path_of(self, parts: Sequence[str]) -> ColumnPath:
        """The column and fields that a name means. Raises UnknownNameError for a missing column or
        field, InvalidValueError for a field of a column that is not a STRUCT."""
        first, *rest = self.unqualified(parts)
        columns = {column.name.lower(): column for column in self.schema.columns}
        column = columns.get(first.lower())
        if column is None:
            raise UnknownNameError(
                f"`{self.name}` has no column `{first}`.",
                hint=nearest(first, self.schema.column_names, what="columns"),
            )
        fields: list[str] = []
        inside = column.type
        for part in rest:
            where = ".".join((column.name, *fields))
            if not isinstance(inside, RowType):
                raise InvalidValueError(
                    f"`{where}` is not a STRUCT: it has no field `{part}` to assign.",
                    hint=f"Assign `{where}` as a whole.",
                )
            by_name = {field.name.lower(): field for field in inside.fields}
            field = by_name.get(part.lower())
            if field is None:
                raise UnknownNameError(
                    f"`{where}` has no field `{part}`.",
                    hint=nearest(part, [field.name for field in inside.fields], what="fields"),
                )
            fields.append(field.name)
            inside = field.type
        return ColumnPath(column, tuple(fields))

    def unqualified(self, parts: Sequence[str]) -> tuple[str, ...]:
        """The parts after the table's name. They need not name a column."""
        names = {name.lower() for name in self.schema.column_names}
        lower = tuple(part.lower() for part in parts)
        for qualifier in self._qualifiers():
            size = len(qualifier)
            if len(parts) <= size or lower[:size] != qualifier:
                continue
            # A STRUCT may have the table's name.
            if lower[size] in names or lower[0] not in names:
                return tuple(parts[size:])
        return tuple(parts)

    def is_own(self, path: ColumnPath, text: str) -> bool:
        """Whether an expression is what the path names, as in `SET k = t.k`."""
        parts = dotted_name(text)
        if parts is None:
            return False
        try:
            return self.path_of(parts) == path
        except (UnknownNameError, InvalidValueError):
            return False

    def _qualifiers(self) -> Iterable[tuple[str, ...]]:
        """What may stand before a column's name, in lower case, the longest first."""
        if self.alias is not None:
            return [(self.alias.lower(),)]
        name = self.name
        whole = [part.lower() for part in (name.catalog, name.database, name.object_name) if part]
        return [tuple(whole[at:]) for at in range(len(whole))]


def dotted_name(text: str) -> tuple[str, ...] | None:
    """The parts of a name, maybe in brackets; None for any other expression."""
    tokens: Sequence[Token] = tokenize(text)
    while len(tokens) > 2 and (tokens[0].text, tokens[-1].text) == ("(", ")"):
        tokens = tokens[1:-1]
    names, dots = tokens[::2], tokens[1::2]
    is_name = len(tokens) % 2 == 1 and all(dot.text == "." for dot in dots)
    if not is_name or any(name.kind not in IDENTIFIER_KINDS for name in names):
        return None
    return tuple(name.name for name in names)


def check_apart(known: Iterable[ColumnPath], path: ColumnPath) -> None:
    """Raise InvalidValueError if the target of a path, or a part of it, is already assigned."""
    for other in known:
        if path.overlaps(other):
            inside = min(path.fields, other.fields, key=len)
            raise InvalidValueError(
                f"`{'.'.join((path.column.name, *inside))}` is assigned twice.",
                hint="Assign each column once, or some fields of a STRUCT, but not both.",
            )


@dataclass(frozen=True, slots=True)
class AssignedPath(ColumnPath):
    """The target of an assignment. `number` is the assignment's number."""

    number: int


def assigned_paths(update: Update, schema: TableSchema) -> tuple[AssignedPath, ...]:
    """Return what each assignment changes, without those that give a key column its own value.

    Raises UnknownNameError, InvalidValueError for a path that is assigned twice, and
    UnsupportedStatementError for a key column; with the assignment's position.
    """
    table = AssignedTable(update.target, update.alias, schema)
    paths: list[AssignedPath] = []
    for number, assignment in enumerate(update.assignments):
        try:
            path = table.path_of(assignment.path)
            if path.column.name in schema.primary_keys:
                value = assignment.value
                if value and table.is_own(path, update.text[value.start : value.end]):
                    continue
                raise UnsupportedStatementError(
                    f"Can't update the primary key column `{path.column.name}` of "
                    f"`{update.target}`.",
                    hint="A row with another key is another row: INSERT it, and DELETE the old "
                    "row.",
                )
            check_apart(paths, path)
        except PaimonMagicsError as error:
            error.statement, error.position = update.text, assignment.position
            raise
        paths.append(AssignedPath(path.column, path.fields, number))
    return tuple(paths)
