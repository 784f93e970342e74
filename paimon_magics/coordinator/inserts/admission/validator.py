"""Check that rows fit a table, before any of them is stored.

An `InsertValidator` is made for one schema of a table. It checks a request and returns a
`ValidatedInsert`, from which a record is made. The flusher can write whatever the validator lets
in, so that one client's rows don't hold up another's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paimon_magics.coordinator.inserts.admission.json_values import (
    ColumnReader,
    column_reader,
    default_value,
)
from paimon_magics.coordinator.inserts.admission.key_changes import is_change, key_change
from paimon_magics.coordinator.inserts.log.records import Format
from paimon_magics.coordinator.protocol.json_text import exact_json_value, json_value
from paimon_magics.errors import InvalidValueError, nearest
from paimon_magics.planning.row_changes.logged_changes import check_takes_change
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.statements.data_types import as_nullable, contains_type
from paimon_magics.statements.statement import TableName

__all__ = ["Given", "InsertValidator", "ValidatedInsert", "given_columns", "statements_of"]

_MEMBERS = {"columns", "rows"}
_HINT = 'Send {"columns": ["id", "name"], "rows": [[1, "a"], [2, "b"]]}.'
_ARRAY_HINT = 'Each row is a list of values: {"rows": [[1, "a"]]}.'
_PLANS_MAX = 256


@dataclass(frozen=True, slots=True)
class ValidatedInsert:
    """A request whose rows fit the table: the contents of its record."""

    format: Format
    schema_id: int
    rows: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Given:
    """The columns that a statement gives, with their readers, in the order of its values."""

    columns: tuple[Column, ...]
    readers: tuple[ColumnReader, ...]


class InsertValidator:
    """Checks requests against one schema of one table. For one thread."""

    def __init__(self, name: TableName, schema: TableSchema) -> None:
        self.name = name
        self.schema = schema
        # Only decimals differ by what a float does not keep of a number.
        is_exact = any(contains_type(column.type, "DECIMAL") for column in schema.columns)
        self._value = exact_json_value if is_exact else json_value
        self._plans: dict[tuple[str, ...] | None, Given] = {}

    def json(self, body: bytes) -> ValidatedInsert:
        """Check a JSON request: `{columns?, rows}`, a change of rows (`key_changes`), or
        `{statements: [{columns?, rows}, …]}`.

        Raises InvalidValueError, which names the statement, row and column; and
        UnsupportedStatementError for a change that the table does not take.
        """
        try:
            document = self._value(body)
        except ValueError as error:
            raise InvalidValueError(f"The body is not JSON: {error}.", hint=_HINT) from error
        rows = 0
        format = Format.JSON
        statements = statements_of(document)
        if len(statements) > 1 and self._are_single_rows(statements):
            return ValidatedInsert(format, self.schema.schema_id, len(statements), body)
        for number, statement in enumerate(statements):
            many = "statements" in document
            try:
                if is_change(statement):
                    format = Format.CHANGES
                    rows += self._check_change(statement)
                else:
                    rows += self._check(statement)
            except _RefusedError as error:
                where = f"Statement {number + 1}, row" if many else "Row"
                raise InvalidValueError(f"{where} {error.message}", hint=error.hint) from error
            except InvalidValueError as error:
                if many:
                    error.message = f"Statement {number + 1}: {error.message}"
                raise
        return ValidatedInsert(format, self.schema.schema_id, rows, body)

    def _are_single_rows(self, statements: Sequence[Any]) -> bool:
        """Whether all statements are one certainly valid row of all columns, as most requests with
        many are. All values of a column are looked at together, which costs a fifth."""
        rows = []
        for statement in statements:
            if type(statement) is not dict or len(statement) != 1:
                return False
            given = statement.get("rows")
            if type(given) is not list or len(given) != 1:
                return False
            rows.append(given[0])
        plan = self._plans.get(None)  # None until a statement was looked at by itself
        if plan is None or set(map(type, rows)) != {list}:
            return False
        readers = plan.readers
        if set(map(len, rows)) != {len(readers)}:
            return False
        return all(
            reader.is_plain(values)
            for reader, values in zip(readers, zip(*rows, strict=True), strict=True)
        )

    def _check_change(self, statement: Any) -> int:
        """The number of keys of a change of rows. Raises errors of ours unless it fits."""
        check_takes_change(self.name, self.schema, updates="update" in statement)
        return key_change(self.name, self.schema, statement).rows

    def _check(self, statement: Any) -> int:
        """The number of a statement's rows. Raises InvalidValueError unless all of them fit."""
        if type(statement) is not dict or "rows" not in statement or set(statement) - _MEMBERS:
            raise InvalidValueError(
                "A statement must be an object with `rows` and, if wanted, `columns`.", hint=_HINT
            )
        rows = statement["rows"]
        given = self.given(statement.get("columns"))
        if type(rows) is not list or set(map(type, rows)) - {list}:
            raise InvalidValueError("`rows` must be a list of lists.", hint=_ARRAY_HINT)
        width = len(given.readers)
        if len(rows) == 1 and len(rows[0]) == width:  # the fast path: most inserts have one row
            self._check_row(given, rows[0])
            return 1
        if set(map(len, rows)) - {width}:
            number = next(n for n, row in enumerate(rows) if len(row) != width)
            raise _RefusedError(
                f"{number + 1} has {len(rows[number])} values, but {width} columns are given.",
                hint=f"The columns are {', '.join(f'`{c.name}`' for c in given.columns)}.",
            )
        for column, reader, values in zip(
            given.columns, given.readers, zip(*rows, strict=True), strict=bool(rows)
        ):
            if not reader.is_plain(values):
                _check_values(column, reader, values)
        return len(rows)

    def _check_row(self, given: Given, row: list[Any]) -> None:
        for column, reader, value in zip(given.columns, given.readers, row, strict=True):
            try:
                reader.check(value)
            except (ValueError, RecursionError):
                _check_values(column, reader, (value,))

    def given(self, names: Any) -> Given:
        """The plan for the columns that a statement names; `names` is None for all columns.

        Raises InvalidValueError for columns with which no row can be written.
        """
        if names is not None and (
            type(names) is not list or not all(type(name) is str for name in names)
        ):
            raise InvalidValueError("`columns` must be a list of column names.", hint=_HINT)
        key = None if names is None else tuple(names)
        plan = self._plans.get(key)
        if plan is None:
            plan = given_columns(self.name, self.schema, key)
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            self._plans[key] = plan
        return plan


def statements_of(document: Any) -> Sequence[Any]:
    """The statements of a request's JSON; raises InvalidValueError for anything else."""
    if type(document) is dict and set(document) == {"statements"}:
        statements = document["statements"]
        if type(statements) is list and statements:
            return statements
        raise InvalidValueError(
            "`statements` must be a list of at least one statement.", hint=_HINT
        )
    if type(document) is not dict:
        raise InvalidValueError("The body must be a JSON object.", hint=_HINT)
    return [document]


def given_columns(
    name: TableName,
    schema: TableSchema,
    names: tuple[str, ...] | None,
    *,
    in_json: bool = True,
) -> Given:
    """The columns of those names, None for all. Names match without regard to case, as in SQL.

    Raises InvalidValueError for a column that is unknown, given twice, or missing although it must
    be given; and with `in_json` for one whose values have no form in JSON. Without `in_json` there
    are no readers.
    """
    if names is None:
        columns = list(schema.columns)
    else:
        given: dict[str, Column] = {}
        for wanted in names:  # the first column that comes again ends it, however many follow
            column = _column(name, schema, wanted)
            if column.name in given:
                raise InvalidValueError(
                    f"Column `{column.name}` of `{name}` is given twice.",
                    hint="Name each column once.",
                )
            given[column.name] = column
        columns = list(given.values())
        for column in schema.columns:
            if column.name not in given:
                _check_left_out(name, column)
    if not in_json:
        return Given(tuple(columns), ())
    readers = [_reader_of(column) for column in columns]
    for column, reader in zip(columns, readers, strict=True):
        if reader is None:
            raise InvalidValueError(
                f"Values of column `{column.name}` of `{name}` can't be sent as JSON.",
                hint="Send an Arrow stream, or leave the column out.",
            )
    return Given(tuple(columns), tuple(reader for reader in readers if reader is not None))


def _column(name: TableName, schema: TableSchema, wanted: str) -> Column:
    for column in schema.columns:
        if column.name == wanted:
            return column
    same = [c for c in schema.columns if c.name.lower() == wanted.lower()]
    if len(same) == 1:
        return same[0]
    raise InvalidValueError(
        f"There is no column `{wanted}` in `{name}`.",
        hint=nearest(wanted, schema.column_names, what="columns"),
    )


def _reader_of(column: Column) -> ColumnReader | None:
    """The reader of a column. Paimon replaces every NULL by the column's default, so a NULL is
    accepted where there is a default that can be read."""
    if column.default is None:
        return column_reader(column.type)
    try:
        default_value(column.type, column.default)
    except ValueError:
        return column_reader(as_nullable(column.type, False))
    return column_reader(as_nullable(column.type, True))


def _check_left_out(name: TableName, column: Column) -> None:
    if column.default is not None:
        try:
            default_value(column.type, column.default)
        except ValueError as error:
            raise InvalidValueError(
                f"Column `{column.name}` of `{name}` can't be left out: {error}.",
                hint=f"Give `{column.name}` a value.",
            ) from error
    elif not column.type.nullable:
        raise InvalidValueError(
            f"Column `{column.name}` of `{name}` is NOT NULL and has no default, but the statement "
            "gives it no value.",
            hint=f"Add `{column.name}` to the columns that are written.",
        )


def _check_values(column: Column, reader: ColumnReader, values: Sequence[Any]) -> None:
    for number, value in enumerate(values):
        try:
            reader.check(value)
        except (ValueError, RecursionError) as error:
            raise _RefusedError(
                f"{number + 1}, column `{column.name}`: {error}.",
                hint="No row of the request was inserted.",
            ) from error


class _RefusedError(InvalidValueError):
    """A row that does not fit. Its message begins with the row's number; `json` puts the statement
    in front."""
