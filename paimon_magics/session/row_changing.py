"""The part of a session by which Python changes rows of a table: delete, update and merge."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from paimon_magics.boundary import short_errors
from paimon_magics.errors import InvalidValueError, value_text
from paimon_magics.session.merge_builder import MergeBuilder, values_by_column
from paimon_magics.session.open_session import OpenSession
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.statements.handlers import run_statement
from paimon_magics.session.writes.small_inserts import check_wait
from paimon_magics.settings import Wait
from paimon_magics.spark.interrupts import between_locks
from paimon_magics.statements.clauses.names import named, table_text
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.row_changes import Delete, Update
from paimon_magics.statements.statement import Query
from paimon_magics.statements.subjects import Statement


@short_errors
class RowChanging(OpenSession):
    """A session's methods for changes of rows."""

    def delete(
        self,
        name: str,
        where: str | None,
        parameters: Mapping[str, object] | None = None,
        *,
        frames: Mapping[str, object] | None = None,
        wait: Wait | None = None,
    ) -> Outcome:
        """Delete the rows of a table that meet the condition `where`, a text of SQL:

            session.delete("shop.orders", "id = :id", {"id": 7})

        It runs `DELETE FROM … WHERE …`, with `parameters`, `frames` and `wait` as in `run`. The
        condition "true" is for all rows; None is refused, so that a condition that got lost deletes
        nothing.

        Raises what DELETE raises.
        """
        self._check_open()
        check_wait(wait)
        text = f"DELETE FROM {table_text(named(name))} WHERE {_condition(where, 'delete')}"
        statement = parse_statement(text)
        if not isinstance(statement, Delete):
            raise _ends_early(text)
        return self._run_one(statement, parameters, frames, wait=wait)

    def update(
        self,
        name: str,
        values: Mapping[str, str],
        where: str | None,
        parameters: Mapping[str, object] | None = None,
        *,
        frames: Mapping[str, object] | None = None,
        wait: Wait | None = None,
    ) -> Outcome:
        """Update the rows of a table that meet the condition `where`. `values` are texts of SQL by
        column, or by the field of a struct:

            session.update("shop.orders", {"amount": "amount + :more"}, "id = 7", {"more": 1})

        It runs `UPDATE … SET … WHERE …`, with `parameters`, `frames` and `wait` as in `run`. The
        condition "true" is for all rows; None is refused, so that a condition that got lost changes
        nothing.

        Raises what UPDATE raises.
        """
        self._check_open()
        check_wait(wait)
        given = values_by_column(values, "amount + 1")
        assignments = ", ".join(f"{column} = {value}" for column, value in given)
        condition = _condition(where, "update")
        text = f"UPDATE {table_text(named(name))} SET {assignments} WHERE {condition}"
        statement = parse_statement(text)
        if not isinstance(statement, Update) or len(statement.assignments) != len(given):
            raise _ends_early(text)
        return self._run_one(statement, parameters, frames, wait=wait)

    def merge(self, frame: object, name: str, on: str | Sequence[str]) -> MergeBuilder:
        """Begin a MERGE of a frame into a table; nothing runs before `.run()`:

            session.merge(frame, "shop.orders", on="t.id = s.id") \\
                .when_matched_update({"amount": "t.amount + s.amount"}) \\
                .when_not_matched_insert() \\
                .run()

        In texts the table is `t` and the frame `s`. `on` may also be the names of columns that are
        equal on both sides. Raises InvalidValueError for a value that is no frame.
        """
        self._check_open()
        return MergeBuilder(self._connection, frame, named(name), on)

    def _run_one(
        self,
        statement: Statement,
        parameters: Mapping[str, object] | None,
        frames: Mapping[str, object] | None,
        *,
        include_buffer: bool = False,
        wait: Wait | None = None,
    ) -> Outcome:
        """Run one statement, and tell how long it took and what was noted meanwhile."""
        started = time.monotonic()
        try:
            spark = self._connection.spark
            with between_locks(spark), self._connection.naming(frames) as told:
                outcome = run_statement(
                    self._connection,
                    statement,
                    dict(parameters or {}),
                    include_buffer=include_buffer,
                    wait=wait,
                )
            outcome.notes = (*outcome.notes, *told)
        except Exception as error:
            self._check_spark(error)
            raise
        finally:
            if self._known_names is not None and not isinstance(statement, Query):
                self._known_names.forget()
        outcome.seconds = time.monotonic() - started
        return outcome


def _condition(where: object, method: str) -> str:
    if isinstance(where, str) and where.strip():
        return where
    raise InvalidValueError(
        f"`where` of {method}() is {value_text(where)}, not a condition.",
        hint='Give a text of SQL: "id = 7". For all rows of the table write "true".',
    )


def _ends_early(text: str) -> InvalidValueError:
    return InvalidValueError(
        "A condition or value ends the statement that it belongs to.",
        hint=f"The whole statement is: {text}",
    )
