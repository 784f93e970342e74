"""Which columns and fields an UPDATE assigns.

Source: `PaimonAssignmentUtils.alignUpdateAssignments`, `RowLevelHelper` of Paimon's connector.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, tokenize
from paimon_magics.statements.row_changes import Assignment, Update

__all__ = ["AssignedPath", "assigned_paths"]


@dataclass(frozen=True, slots=True)
class AssignedPath:
    """The column that an assignment changes, and the names of the fields that lead into it; ()
    for the whole column. `number` is the assignment's."""

    column: Column
    fields: tuple[str, ...]
    number: int


def assigned_paths(update: Update, schema: TableSchema) -> tuple[AssignedPath, ...]:
    """Return what each assignment changes, without those that give a key column its own value.

    Raises UnknownNameError, InvalidValueError for a path that is assigned twice, and
    UnsupportedStatementError for a key column; with the assignment's position.
    """
    found: list[AssignedPath] = []
    for number, assignment in enumerate(update.assignments):
        try:
            path = _path(update, schema, assignment.path, number)
            is_key = path.column.name in schema.primary_keys
            if is_key and _is_same(update, schema, assignment, path):
                continue
            _check_key(update, schema, path)
            _check_apart(found, path)
        except PaimonMagicsError as error:
            error.statement, error.position = update.text, assignment.position
            raise
        found.append(path)
    return tuple(found)


def _path(update: Update, schema: TableSchema, parts: Sequence[str], number: int) -> AssignedPath:
    inner = _without_qualifier(update, schema, parts)
    columns = {column.name.lower(): column for column in schema.columns}
    column = columns.get(inner[0].lower())
    if column is None:
        raise UnknownNameError(
            f"`{update.target}` has no column `{inner[0]}`.",
            hint=nearest(inner[0], schema.column_names, what="columns"),
        )
    fields: list[str] = []
    data_type = column.type
    for part in inner[1:]:
        if not isinstance(data_type, RowType):
            where = ".".join((column.name, *fields))
            raise InvalidValueError(
                f"`{where}` is no STRUCT: it has no field `{part}` to be assigned.",
                hint=f"Assign `{where}` as a whole.",
            )
        by_name = {field.name.lower(): field for field in data_type.fields}
        field = by_name.get(part.lower())
        if field is None:
            raise UnknownNameError(
                f"`{'.'.join((column.name, *fields))}` has no field `{part}`.",
                hint=nearest(part, [one.name for one in data_type.fields], what="fields"),
            )
        fields.append(field.name)
        data_type = field.type
    return AssignedPath(column, tuple(fields), number)


def _without_qualifier(update: Update, schema: TableSchema, parts: Sequence[str]) -> Sequence[str]:
    """The parts behind the table's name or alias, if they begin with that. Spark reads a name so
    before it looks for a field in a column of that name."""
    lower = [part.lower() for part in parts]
    if update.alias is not None:
        qualifiers = [[update.alias.lower()]]
    else:
        target = update.target
        whole = [part for part in (target.catalog, target.database, target.object_name) if part]
        qualifiers = [[part.lower() for part in whole[at:]] for at in range(len(whole))]
    names = {name.lower() for name in schema.column_names}
    for qualifier in qualifiers:
        size = len(qualifier)
        if len(parts) > size and lower[:size] == qualifier and lower[size] in names:
            return parts[size:]
    return parts


def _is_same(
    update: Update, schema: TableSchema, assignment: Assignment, path: AssignedPath
) -> bool:
    """Whether the value is the assigned column itself: `SET k = k`."""
    tokens = tokenize(update.text[assignment.value.start : assignment.value.end])
    if any(token.text != "." and token.kind not in IDENTIFIER_KINDS for token in tokens):
        return False
    if [token.text == "." for token in tokens] != [bool(i % 2) for i in range(len(tokens))]:
        return False
    try:
        value = _path(update, schema, [token.name for token in tokens[::2]], path.number)
    except PaimonMagicsError:
        return False
    return value == path


def _check_key(update: Update, schema: TableSchema, path: AssignedPath) -> None:
    if path.column.name in schema.primary_keys:
        raise UnsupportedStatementError(
            f"Can't update the primary key column `{path.column.name}` of `{update.target}`.",
            hint="A row of another key is another row: INSERT it, and DELETE the old one.",
        )


def _check_apart(found: Sequence[AssignedPath], path: AssignedPath) -> None:
    for other in found:
        if other.column != path.column:
            continue
        length = min(len(other.fields), len(path.fields))
        if other.fields[:length] == path.fields[:length]:
            raise InvalidValueError(
                f"`{'.'.join((path.column.name, *path.fields[:length]))}` is assigned twice.",
                hint="Assign each column and field once.",
            )
