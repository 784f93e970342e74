"""CREATE DATABASE, DROP DATABASE and USE."""

from __future__ import annotations

from paimon_magics.errors import (
    UnconfirmedError,
    UnknownNameError,
    nearest,
)
from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.statements.answers import said
from paimon_magics.session.statements.confirmation import (
    unconfirmed,
)
from paimon_magics.session.statements.handler import Handler
from paimon_magics.statements.statement import (
    CreateDatabase,
    DropDatabase,
    UseDatabase,
)

__all__ = ["create_database_handler", "drop_database_handler", "use_handler"]

_TABLES_SHOWN = 5


def create_database_handler(connection: Connection, statement: CreateDatabase) -> Handler:
    """CREATE DATABASE."""
    return Handler(
        run=lambda: _create_database(connection, statement),
        dry_run=None,
        explain=None,
        preview=None,
        unconfirmed=None,
    )


def drop_database_handler(connection: Connection, statement: DropDatabase) -> Handler:
    """DROP DATABASE; with CASCADE it also drops the tables."""
    return Handler(
        run=lambda: _drop_database(connection, statement),
        dry_run=None,
        explain=None,
        preview=None,
        unconfirmed=lambda mode: _unconfirmed_drop(connection, statement),
    )


def use_handler(connection: Connection, statement: UseDatabase) -> Handler:
    """USE."""
    return Handler(
        run=lambda: _use(connection, statement),
        dry_run=None,
        explain=None,
        preview=None,
        unconfirmed=None,
    )


def _unconfirmed_drop(connection: Connection, statement: DropDatabase) -> UnconfirmedError | None:
    tables = connection.catalog.list_tables(statement.name) if statement.cascade else []
    if not tables:
        return None
    shown = ", ".join(f"`{table}`" for table in tables[:_TABLES_SHOWN])
    shown += ", …" if len(tables) > _TABLES_SHOWN else ""
    loss = f"{len(tables):,} tables ({shown})" if len(tables) > 1 else f"the table {shown}"
    what = f"DROP DATABASE `{statement.name}` CASCADE"
    return unconfirmed(statement, what, loss, "DROP TABLE drops them one by one.")


def _create_database(connection: Connection, statement: CreateDatabase) -> Outcome:
    properties = dict(statement.properties)
    if statement.comment is not None:
        properties["comment"] = statement.comment
    if statement.location is not None:
        properties["location"] = statement.location
    created = connection.definitions.create_database(
        statement.name, properties, if_not_exists=statement.if_not_exists
    )
    word = "created" if created else "exists already"
    return said(statement, "CREATE DATABASE", f"Database `{statement.name}` {word}.")


def _drop_database(connection: Connection, statement: DropDatabase) -> Outcome:
    dropped = connection.definitions.drop_database(
        statement.name, if_exists=statement.if_exists, cascade=statement.cascade
    )
    connection.inserted.clear()
    if connection.database == statement.name:
        connection.database = connection.settings.database
    message = (
        f"Database `{statement.name}` dropped."
        if dropped
        else f"There is no database `{statement.name}`."
    )
    return said(statement, "DROP DATABASE", message)


def _use(connection: Connection, statement: UseDatabase) -> Outcome:
    ours = connection.settings.catalog_name
    database = statement.database
    if statement.catalog is not None and statement.catalog != ours:
        raise UnknownNameError(
            f"`{statement.catalog}` is not Paimon's catalog.",
            hint=f"Paimon's catalog is called `{ours}` here.",
        )
    exists = connection.catalog.database_exists(database)
    if statement.catalog is None and database == ours and not exists:
        database = connection.settings.database
    if not connection.catalog.database_exists(database):
        raise UnknownNameError(
            f"There is no database `{database}`.",
            hint=nearest(database, connection.catalog.list_databases, what="databases"),
            statement=statement.text,
            position=max(statement.text.find(statement.database), 0),
        )
    connection.database = database
    return said(statement, "USE", f"The current database is `{database}`.")
