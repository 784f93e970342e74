"""The handler of each kind of statement. A new kind needs a handler in a module, and a line here.

The type checker proves that every kind has a handler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Never, assert_never

from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.queries.spark_passthrough import is_for_spark, pass_to_spark
from paimon_magics.session.refusals import refused
from paimon_magics.session.spark_settings import check_statement
from paimon_magics.session.statements.calls import call_handler
from paimon_magics.session.statements.databases import (
    create_database_handler,
    drop_database_handler,
    use_handler,
)
from paimon_magics.session.statements.ddl import (
    alter_table_handler,
    create_table_handler,
    drop_table_handler,
)
from paimon_magics.session.statements.explain import explained, explanation
from paimon_magics.session.statements.handler import Handler
from paimon_magics.session.statements.merging import merge_handler
from paimon_magics.session.statements.queries import query_handler, view_handler
from paimon_magics.session.statements.row_changes import row_change_handler
from paimon_magics.session.statements.rows import insert_handler, truncate_handler
from paimon_magics.session.statements.show import Shown, show_handler
from paimon_magics.session.statements.tags_and_branches import (
    alter_tags_handler,
    show_tags_handler,
)
from paimon_magics.session.writes.ordering import in_order
from paimon_magics.statements.kinds import Explain, Statement
from paimon_magics.statements.merge_into import MergeInto
from paimon_magics.statements.row_changes import Delete, Update
from paimon_magics.statements.statement import (
    CreateDatabase,
    CreateTable,
    CreateTemporaryView,
    DropDatabase,
    DropTable,
    Insert,
    PassThrough,
    Query,
    Refused,
    TruncateTable,
    UseDatabase,
)
from paimon_magics.statements.table_changes import AlterTable
from paimon_magics.statements.version_changes import AlterTags, Call, ShowTags

__all__ = ["handler_of", "run_statement"]


def run_statement(
    connection: Connection,
    statement: Statement,
    parameters: Mapping[str, object],
    *,
    include_buffer: bool = False,
    wait: str | None = None,
) -> Outcome:
    """Run a statement; in Spark if it is about a table that only Spark has."""
    if is_for_spark(connection, statement):
        return pass_to_spark(connection, statement, parameters)
    handler = handler_of(
        connection, statement, parameters, include_buffer=include_buffer, wait=wait
    )
    with in_order(connection, handler.changed) as told:
        outcome = handler.run()
    outcome.notes = (*told, *outcome.notes)
    return outcome


def handler_of(
    connection: Connection,
    statement: Statement,
    parameters: Mapping[str, object],
    *,
    include_buffer: bool = False,
    wait: str | None = None,
) -> Handler:
    """The handler of a statement, which is checked as by `check_statement`."""
    check_statement(connection, statement)
    if isinstance(statement, Shown):
        return show_handler(connection, statement, parameters)
    match statement:
        case Query():
            return query_handler(connection, statement, parameters, include_buffer=include_buffer)
        case Insert():
            return insert_handler(connection, statement, parameters, wait)
        case Delete() | Update():
            return row_change_handler(connection, statement, parameters, wait)
        case MergeInto():
            return merge_handler(connection, statement, parameters)
        case TruncateTable():
            return truncate_handler(connection, statement, parameters)
        case CreateTemporaryView():
            return view_handler(connection, statement, parameters)
        case CreateTable():
            return create_table_handler(connection, statement, parameters)
        case DropTable():
            return drop_table_handler(connection, statement)
        case AlterTable():
            return alter_table_handler(connection, statement, parameters)
        case AlterTags():
            return alter_tags_handler(connection, statement)
        case Call():
            return call_handler(connection, statement, parameters)
        case ShowTags():
            return show_tags_handler(connection, statement)
        case CreateDatabase():
            return create_database_handler(connection, statement)
        case DropDatabase():
            return drop_database_handler(connection, statement)
        case UseDatabase():
            return use_handler(connection, statement)
        case Explain():
            return _explain_handler(connection, statement, parameters)
        case Refused():
            return _refused_handler(statement)
        case PassThrough():
            return _spark_handler(connection, statement, parameters)
        case _:
            assert_never(statement)


def _explain_handler(
    connection: Connection, statement: Explain, parameters: Mapping[str, object]
) -> Handler:
    inner = handler_of(connection, statement.inner, parameters)

    def run() -> Outcome:
        lines = explained(connection, inner, statement.mode, set())
        return explanation(connection, statement.text, lines)

    return Handler(run=run, dry_run=None, explain=None, preview=None, unconfirmed=None)


def _refused_handler(statement: Refused) -> Handler:
    def refuse() -> Never:
        raise refused(statement)

    return Handler(run=refuse, dry_run=refuse, explain=None, preview=None, unconfirmed=None)


def _spark_handler(
    connection: Connection, statement: PassThrough, parameters: Mapping[str, object]
) -> Handler:
    return Handler(
        run=lambda: pass_to_spark(connection, statement, parameters),
        dry_run=None,
        explain=None,
        preview=None,
        unconfirmed=None,
    )
