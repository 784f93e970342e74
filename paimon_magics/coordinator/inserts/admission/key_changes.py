"""Small changes of rows that are named by their keys: which documents are accepted.

The validator checks requests by these rules, and loading reads the log by the same rules. For the
form see `protocol.documents`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from paimon_magics.coordinator.inserts.admission.json_values import ColumnReader, column_reader
from paimon_magics.errors import InvalidValueError, nearest
from paimon_magics.planning.row_changes.logged_changes import pinned_columns
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import AtomicType, DataType, as_nullable
from paimon_magics.statements.statement import TableName

_VERBS = ("delete", "update")
_HINTS = {
    "delete": 'Send {"delete": {"keys": [[7], [8]], "where": [["version", "<", 3]]}}.',
    "update": 'Send {"update": {"keys": [[7]], "set": {"state": "paid"}}}.',
}
_MEMBERS = {"columns", "keys", "where"}
_COUNTS = {"=": 1, "<": 1, "<=": 1, ">": 1, ">=": 1, "in": None, "is null": 0, "is not null": 0}
_COMPARED = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT"),
    *("DECIMAL", "STRING", "VARCHAR", "DATE"),
)


@dataclass(frozen=True, slots=True)
class Value:
    """Values of one column in their JSON forms, and their reader."""

    column: Column
    reader: ColumnReader
    values: tuple[Any, ...]

    def read(self) -> list[Any]:
        """The values for Arrow. Raises ValueError for a value that does not fit."""
        return [self.reader.check(value) for value in self.values]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a column, with the operators of `ColumnFilter`."""

    operator: str
    value: Value


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A checked change: a column of values for each key column, in the order of the request;
    `assigned` is None for a DELETE.
    """

    keys: tuple[Value, ...]
    conditions: tuple[Condition, ...]
    assigned: tuple[Value, ...] | None

    @property
    def rows(self) -> int:
        """The number of keys."""
        return len(self.keys[0].values)


def is_change(statement: Any) -> bool:
    """Whether a statement of a request is a change instead of rows."""
    return (
        type(statement) is dict and len(statement) == 1 and not statement.keys().isdisjoint(_VERBS)
    )


def key_change(name: TableName, schema: TableSchema, statement: Any) -> KeyChange:
    """Check a change (see `is_change`). Raises InvalidValueError, which names the part that does
    not fit.
    """
    ((verb, document),) = statement.items()
    hint = _HINTS[verb]
    wanted = _MEMBERS | ({"set"} if verb == "update" else set())
    if type(document) is not dict or "keys" not in document or set(document) - wanted:
        raise InvalidValueError(f"`{verb}` must be an object with `keys`.", hint=hint)
    return KeyChange(
        _keys(name, schema, document, hint),
        tuple(
            _condition(name, schema, condition, hint)
            for condition in _list(document, "where", hint)
        ),
        _assigned(name, schema, document.get("set"), hint) if verb == "update" else None,
    )


def _keys(
    name: TableName, schema: TableSchema, document: dict[str, Any], hint: str
) -> tuple[Value, ...]:
    names = document.get("columns", list(schema.primary_keys))
    if type(names) is not list or not all(type(name) is str for name in names):
        raise InvalidValueError("`columns` must be a list of column names.", hint=hint)
    columns = [_column(name, schema, column_name) for column_name in names]
    if sorted(column.name for column in columns) != sorted(schema.primary_keys):
        shown = ", ".join(f"`{key}`" for key in schema.primary_keys)
        raise InvalidValueError(
            f"A key of `{name}` has a value for each of {shown}, and nothing else.", hint=hint
        )
    keys = _list(document, "keys", hint)
    if not keys:
        raise InvalidValueError("`keys` must have at least one key.", hint=hint)
    for number, key in enumerate(keys, 1):
        if type(key) is not list or len(key) != len(columns):
            raise InvalidValueError(
                f"Key {number} must be a list of {len(columns)} values.", hint=hint
            )
    return tuple(
        _value(name, column, tuple(key[at] for key in keys), f"`{column.name}` of key")
        for at, column in enumerate(columns)
    )


def _condition(name: TableName, schema: TableSchema, document: Any, hint: str) -> Condition:
    if (
        type(document) is not list
        or len(document) < 2
        or not all(type(part) is str for part in document[:2])
    ):
        raise InvalidValueError(
            "A condition of `where` must be a list of a column, an operator and values.", hint=hint
        )
    column = _column(name, schema, document[0])
    operator, values = document[1].lower(), document[2:]
    if operator not in _COUNTS:
        raise InvalidValueError(
            f"`{document[1]}` is not an operator of `where`.",
            hint=nearest(operator, _COUNTS, what="operators"),
        )
    if operator == "in":
        values = values[0] if len(values) == 1 and type(values[0]) is list else values
    count = _COUNTS[operator]
    if not values if count is None else len(values) != count:
        wanted = "at least one value" if count is None else f"{count} values, not {len(values)}"
        raise InvalidValueError(f"`{operator}` on `{column.name}` takes {wanted}.", hint=hint)
    if values and not (isinstance(column.type, AtomicType) and column.type.name in _COMPARED):
        raise InvalidValueError(
            f"Column `{column.name}` of `{name}` can't be compared when a change is loaded: only "
            "integers, decimals, strings, dates and booleans can.",
            hint="Run the change as a statement of a session, which compares all types.",
        )
    compared = replace(column, type=_compared_as(column.type))
    value = _value(name, compared, tuple(values), f"`{column.name}` of `where`:")
    return Condition(operator, replace(value, column=column))


def _compared_as(data_type: DataType) -> DataType:
    """The type of values that a column is compared with: never NULL, and texts of any length."""
    if isinstance(data_type, AtomicType) and data_type.name == "VARCHAR":
        return AtomicType("STRING", nullable=False)
    return as_nullable(data_type, False)


def _assigned(name: TableName, schema: TableSchema, document: Any, hint: str) -> tuple[Value, ...]:
    if type(document) is not dict or not document:
        raise InvalidValueError("`set` must be an object of values by column.", hint=hint)
    assignments: list[Value] = []
    pinned = pinned_columns(schema)
    for text, value in document.items():
        column = _column(name, schema, text)
        if column.name in pinned:
            raise InvalidValueError(
                f"Column `{column.name}` of `{name}` belongs to the key or orders the rows of a "
                "key: a small UPDATE can't assign it.",
                hint="DELETE the key and insert its row again, or run UPDATE as a statement.",
            )
        if any(assignment.column == column for assignment in assignments):
            raise InvalidValueError(f"`{column.name}` is assigned twice.", hint=hint)
        if value is None and column.default is not None:
            raise InvalidValueError(
                f"Column `{column.name}` of `{name}` has a default, which Paimon writes for NULL.",
                hint="Run UPDATE as a statement of a session.",
            )
        assignments.append(_value(name, column, (value,), f"`{column.name}` of `set`:"))
    return tuple(assignments)


def _list(document: dict[str, Any], member: str, hint: str) -> Sequence[Any]:
    items = document.get(member, [])
    if type(items) is not list:
        raise InvalidValueError(f"`{member}` must be a list.", hint=hint)
    return items


def _column(name: TableName, schema: TableSchema, wanted: str) -> Column:
    exact = [column for column in schema.columns if column.name == wanted]
    matches = exact or [
        column for column in schema.columns if column.name.lower() == wanted.lower()
    ]
    if len(matches) != 1:
        raise InvalidValueError(
            f"There is no column `{wanted}` in `{name}`.",
            hint=nearest(wanted, schema.column_names, what="columns"),
        )
    return matches[0]


def _value(name: TableName, column: Column, values: tuple[Any, ...], where: str) -> Value:
    reader = column_reader(column.type)
    if reader is None:
        raise InvalidValueError(
            f"Values of column `{column.name}` of `{name}` can't be sent as JSON.",
            hint="Run the change as a statement of a session.",
        )
    for number, value in enumerate(values, 1):
        try:
            reader.check(value)
        except (ValueError, RecursionError) as error:
            place = f"{where} {number}" if where.endswith("key") else where.removesuffix(":")
            raise InvalidValueError(
                f"Value of {place}: {error}.", hint="No part of the request was accepted."
            ) from error
    return Value(column, reader, values)
