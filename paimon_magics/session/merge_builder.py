"""`session.merge(frame, "t", on=…)`: a MERGE INTO that is put together in Python.

Conditions and values are SQL strings, in which the table is `t` and the frame `s`. They make one
statement, `sql`, and running the builder runs that statement.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from paimon_magics.boundary import short_errors
from paimon_magics.errors import InvalidValueError, UnknownNameError, value_text
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.python_frames import has_rows, is_own, notes_on, spark_frame
from paimon_magics.session.row_changes.merge import run_merge
from paimon_magics.session.row_changes.previews import preview_merge
from paimon_magics.session.scope import StatementScope, statement_scope
from paimon_magics.session.settings_checks import check_statement
from paimon_magics.session.statements.handler import in_order
from paimon_magics.session.writes.exactness import check_own_rows
from paimon_magics.session.writes.merged_schemas import merge_rules_of
from paimon_magics.statements.clauses.names import quoted, table_text
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import Delete, MergeInto, TableName, Update

if TYPE_CHECKING:
    from paimon_magics.session.connection import Connection
    from paimon_magics.spark.handles import DataFrame


_EXAMPLE = "s.amount"
_OF_ANOTHER = re.compile(r"no column `(?!t`|s`)[^`]+`\.`", re.IGNORECASE)


@short_errors
class MergeBuilder:
    """A MERGE of a frame into a table. Each `when_…` adds a clause and returns the builder. Among
    clauses of one kind, the first whose condition is true applies to a row. `run` runs the MERGE,
    `preview` shows what it would change.

    Conditions and values are SQL strings: `{"amount": "t.amount + s.amount"}`. `parameters` of
    `run` are the values of bind names in them.
    """

    def __init__(
        self, connection: Connection, frame: object, name: TableName, on: str | Sequence[str]
    ) -> None:
        if not has_rows(frame):
            raise InvalidValueError(
                f"{value_text(frame, begins=True)} can't be merged: it is not a frame.",
                hint="Give a DataFrame of Spark, pandas or polars, Arrow data, or a list of "
                "dictionaries.",
            )
        self._connection = connection
        self._frame = frame
        self._name = name
        self._on = _condition(on)
        self._clauses: list[str] = []

    def when_matched_update(
        self, set: Mapping[str, str] | None = None, *, condition: str | None = None
    ) -> Self:
        """Update a target row that a source row matches. `set` are values by column; without it all
        columns get those of the same names of the source."""
        return self._add("MATCHED", condition, _update(set))

    def when_matched_delete(self, condition: str | None = None) -> Self:
        """Delete a target row that a source row matches."""
        return self._add("MATCHED", condition, "DELETE")

    def when_not_matched_insert(
        self, values: Mapping[str, str] | None = None, *, condition: str | None = None
    ) -> Self:
        """Insert a source row that matches no target row. `values` are values by column; without it
        all columns get those of the same names of the source."""
        return self._add("NOT MATCHED", condition, _insert(values))

    def when_not_matched_by_source_update(
        self, set: Mapping[str, str], *, condition: str | None = None
    ) -> Self:
        """Update a target row that no source row matches."""
        return self._add("NOT MATCHED BY SOURCE", condition, _update(set))

    def when_not_matched_by_source_delete(self, condition: str | None = None) -> Self:
        """Delete a target row that no source row matches."""
        return self._add("NOT MATCHED BY SOURCE", condition, "DELETE")

    @property
    def sql(self) -> str:
        """The statement, in which `frame` stands for the source."""
        head = f"MERGE INTO {table_text(self._name)} AS t USING frame AS s ON {self._on}"
        return "\n".join((head, *self._clauses))

    def run(self, parameters: Mapping[str, object] | None = None) -> Outcome:
        """Run the MERGE as one commit; return its outcome. Raises what MERGE INTO raises."""
        started = time.monotonic()
        with self._scope() as (scope, merge, source):
            full = scope.full_name(self._name)
            with in_order(scope, lambda: (full,)):
                outcome = run_merge(scope, merge, dict(parameters or {}), source)
        outcome.query = ""
        outcome.notes = (*outcome.notes, *notes_on(self._frame), *scope.notes)
        outcome.seconds = time.monotonic() - started
        return outcome

    def execute(self, parameters: Mapping[str, object] | None = None) -> Outcome:
        """Run the MERGE as one commit; return its outcome. Raises what MERGE INTO raises."""
        return self.run(parameters)

    def preview(self, parameters: Mapping[str, object] | None = None) -> Outcome:
        """Return at most 10 of the rows that the MERGE would change, with their kinds, and the
        numbers as a note. Writes nothing. Raises what running it raises before it writes."""
        with self._scope() as (scope, merge, source):
            changed = preview_merge(scope, merge, dict(parameters or {}), source)
        outcome = Outcome.of_rows(scope.spark, self.sql, "preview", changed.sample, query="")
        outcome.notes = (changed.line, *notes_on(self._frame), *scope.notes)
        return outcome

    def __repr__(self) -> str:
        return self.sql

    @contextlib.contextmanager
    def _scope(self) -> Iterator[tuple[StatementScope, MergeInto, DataFrame]]:
        """Run the body with the statement, its scope, and its source as a frame of Spark."""
        merge = self._statement()
        with statement_scope(self._connection) as scope, _naming_sides():
            check_statement(scope, merge)
            void = merge_rules_of(scope, merge) is None
            source = spark_frame(scope.spark, self._frame, void=void)
            if is_own(self._frame):
                check_own_rows(scope, merge, source)
            yield scope, merge, source

    def _statement(self) -> MergeInto:
        merge = parse_statement(self.sql)
        if isinstance(merge, MergeInto):
            return merge
        raise InvalidValueError(
            "A condition or value ends its statement too early.",
            hint=f"The whole statement is: {self.sql}",
        )

    def _add(self, kind: str, condition: str | None, action: str) -> Self:
        more = (
            "" if condition is None else f" AND ({_sql_text(condition, 'A condition', _EXAMPLE)})"
        )
        self._clauses.append(f"WHEN {kind}{more} THEN {action}")
        return self


@contextlib.contextmanager
def _naming_sides() -> Iterator[None]:
    """Errors for a column that is qualified by another name say what the two sides are called."""
    try:
        yield
    except UnknownNameError as error:
        if _OF_ANOTHER.search(error.message):
            error.hint = "In a merge, the table is `t` and the frame is `s`."
        raise


def _condition(on: object) -> str:
    """ON, of a condition, or of the names of columns that are equal on both sides."""
    if isinstance(on, str):
        is_name = on.replace("_", "a").isalnum()
        return f"t.{quoted(on)} = s.{quoted(on)}" if is_name else f"({on})"
    if isinstance(on, Sequence) and on and all(isinstance(name, str) for name in on):
        return " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in on)
    raise InvalidValueError(
        f"`on` can't be {value_text(on)}.",
        hint="Give a condition, on='t.id = s.id', or the names of columns, on=['id', 'day'].",
    )


def _update(set: Mapping[str, str] | None) -> str:
    if set is None:
        return "UPDATE SET *"
    pairs = _values_by_column(set, _EXAMPLE)
    return "UPDATE SET " + ", ".join(f"{column} = {value}" for column, value in pairs)


def _insert(values: Mapping[str, str] | None) -> str:
    if values is None:
        return "INSERT *"
    pairs = _values_by_column(values, _EXAMPLE)
    columns = ", ".join(column for column, _ in pairs)
    return f"INSERT ({columns}) VALUES ({', '.join(value for _, value in pairs)})"


# SQL strings that Python's callers give: values by column, which become parts of a statement.


def _values_by_column(values: object, example: str) -> list[tuple[str, str]]:
    """The columns, or fields of structs, that get values, and the values in brackets. `example` is
    a value that the error shows. Raises InvalidValueError for anything but a dictionary of strings,
    and for an empty one."""
    if not isinstance(values, Mapping) or not values:
        empty = isinstance(values, Mapping)
        raise InvalidValueError(
            "No column gets a value."
            if empty
            else f"Column values must be a dictionary, not {value_text(values)}.",
            hint=f"Give a dictionary: {{'amount': '{example}'}}.",
        )
    pairs = []
    for column, value in values.items():
        text = _sql_text(value, f"The value of `{column}`", example)
        path = ".".join(quoted(part.strip("`")) for part in str(column).split("."))
        pairs.append((path, text if text.strip().upper() == "DEFAULT" else f"({text})"))
    return pairs


def _sql_text(value: object, what: str, example: str) -> str:
    """`value`, if it is a SQL string; raises InvalidValueError about `what` otherwise."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidValueError(
            f"{what} is {value_text(value)}, not a SQL string.",
            hint=f'Write it as in a statement: "{example}", "\'red\'", "0". Or bind it: '
            '":limit", with parameters={"limit": 3}.',
        )
    return value


# DELETE and UPDATE as statements of such texts.


def delete_statement(name: TableName, where: object) -> Delete:
    """`DELETE FROM … WHERE …`. Raises InvalidValueError if `where` is not a condition."""
    text = f"DELETE FROM {table_text(name)} WHERE {_where(where, 'delete')}"
    statement = parse_statement(text)
    if not isinstance(statement, Delete):
        raise _ends_early(text)
    return statement


def update_statement(name: TableName, values: object, where: object) -> Update:
    """`UPDATE … SET … WHERE …`, with `values` by column. Raises InvalidValueError if `where` is not
    a condition, and as `_values_by_column`."""
    pairs = _values_by_column(values, "amount + 1")
    assignments = ", ".join(f"{column} = {value}" for column, value in pairs)
    text = f"UPDATE {table_text(name)} SET {assignments} WHERE {_where(where, 'update')}"
    statement = parse_statement(text)
    if not isinstance(statement, Update) or len(statement.assignments) != len(pairs):
        raise _ends_early(text)
    return statement


def _where(where: object, method: str) -> str:
    if isinstance(where, str) and where.strip():
        return where
    raise InvalidValueError(
        f"`where` of {method}() is {value_text(where)}, not a condition.",
        hint='Give a SQL string, such as "id = 7". For all rows of the table, write "true".',
    )


def _ends_early(text: str) -> InvalidValueError:
    return InvalidValueError(
        "A condition or value ends its statement too early.",
        hint=f"The whole statement is: {text}",
    )
