"""Views and functions that the catalog keeps: a coordinator's store for a warehouse in a file
system, a REST catalog's server for its own. Their texts are written in the dialect of an engine.

Nobody is asked about a database of a file system without a mark: nothing is kept for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paimon_magics.coordinator.client.stored_views import StoredViews, refusal
from paimon_magics.errors import PaimonMagicsError, UnsupportedStatementError
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.session.connection import Connection
from paimon_magics.statements.clauses.names import table_text
from paimon_magics.statements.data_types import DataType
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import Query, TableName
from paimon_magics.tables.catalog.marks import database_mark
from paimon_magics.tables.catalog.rest_documents import schema_from_document

DIALECT = "spark"


@dataclass(frozen=True, slots=True)
class CatalogView:
    """A view by its full name. `schema` has its columns, comment and options; `query` is the text
    for engines that have none in `dialects`."""

    name: TableName
    schema: TableSchema
    query: str
    dialects: Mapping[str, str]
    owner: str

    @property
    def text(self) -> str:
        """Its query in Spark's SQL. Raises UnsupportedStatementError if it has other dialects
        only."""
        if DIALECT in self.dialects or not self.dialects:
            return self.dialects.get(DIALECT, self.query)
        others = " and ".join(f"`{dialect}`" for dialect in sorted(self.dialects))
        raise UnsupportedStatementError(
            f"The view `{self.name}` can't be read here: its query is in the dialect {others} "
            f"only, and this is Spark's SQL, the dialect `{DIALECT}`.",
            hint=f"CALL sys.alter_view_dialect(view => '{table_text(self.name)}', action => 'add', "
            "query => 'SELECT …') adds Spark's.",
        )

    def parsed(self) -> Query:
        """Its query. Raises UnsupportedStatementError for a text that is none."""
        reason = "it is no query"
        try:
            statement = parse_statement(self.text)
            if isinstance(statement, Query) and not statement.query.parameters:
                return statement
        except UnsupportedStatementError:
            raise
        except PaimonMagicsError as error:
            reason = error.message
        raise UnsupportedStatementError(
            f"The text of the view `{self.name}` can't be read as Spark's SQL: {reason}",
            hint=f"SHOW CREATE TABLE {table_text(self.name)} shows it. ALTER VIEW … AS gives it "
            "another query.",
        )


CONTAINS_SQL = "spark.sql-function.contains-sql"
DETERMINISTIC = "spark.sql-function.deterministic"
IS_QUERY = "spark.sql-function.is-query"
"""Options of functions that Paimon's connector writes. Source: `SQLFunctionConverter`."""

SPARK_SETTING = "sqlConfig."
"""What precedes the settings of Spark among a function's options: those where it was made. Source:
Spark's `UserDefinedFunction`."""


@dataclass(frozen=True, slots=True)
class CatalogFunction:
    """A function by its full name. `definitions` are documents (`FunctionDefinition`) by the names
    of engines."""

    name: TableName
    parameters: tuple[Column, ...]
    returns: DataType | None
    definitions: Mapping[str, Mapping[str, Any]]
    is_deterministic: bool
    comment: str | None
    options: Mapping[str, str]

    @property
    def body(self) -> str:
        """Its expression or query in Spark's SQL. Raises UnsupportedStatementError if Spark has no
        definition, or one in another language."""
        definition = self.definitions.get(DIALECT) or {}
        kind = definition.get("type")
        if kind == "sql" and self.returns is not None:
            return str(definition.get("definition") or "")
        if kind in ("lambda", "file"):
            reason = f"its definition is of the type {kind}, whose Java only Paimon's engines run"
        elif kind == "sql":
            reason = "its definition names no type for its value"
        else:
            others = ", ".join(f"`{engine}`" for engine in sorted(self.definitions))
            reason = f"it has a definition for {others} only" if others else "it has no definition"
        raise UnsupportedStatementError(
            f"The function `{self.name}` can't be called here: {reason}.",
            hint=f"CREATE OR REPLACE FUNCTION {table_text(self.name)}(x INT) RETURNS INT RETURN … "
            "defines it in SQL.",
        )


def stored_views(connection: Connection) -> StoredViews | None:
    """The views of the connection's catalog; None if it can't keep any."""
    catalog = connection.catalog
    match catalog.metastore:
        case "rest":
            return StoredViews(lambda *request: _server_answer(connection, *request))
        case "filesystem":
            return connection.committer.stored_views()
        case _:
            return None


def may_have_definitions(connection: Connection, database: str) -> bool:
    """Whether views or functions may be kept for a database. Its mark may be out of reach of a key
    for tables: then they may."""
    catalog = connection.catalog
    if catalog.metastore != "filesystem":
        return catalog.metastore == "rest"
    try:
        return database_mark(catalog, database) is not None
    except PaimonMagicsError:
        return True


def view_of(name: TableName, document: Mapping[str, Any]) -> CatalogView:
    """The view in a `GetViewResponse`."""
    schema = document.get("schema") or {}
    return CatalogView(
        name,
        schema_from_document({key: schema.get(key) for key in ("fields", "options", "comment")}),
        str(schema.get("query") or ""),
        dict(schema.get("dialects") or {}),
        str(document.get("owner") or ""),
    )


def function_of(name: TableName, document: Mapping[str, Any]) -> CatalogFunction:
    """The function in a `GetFunctionResponse`."""
    parameters, returned = (
        schema_from_document({"fields": document.get(key) or []}).columns
        for key in ("inputParams", "returnParams")
    )
    return CatalogFunction(
        name,
        parameters,
        returned[0].type if returned else None,
        dict(document.get("definitions") or {}),
        document.get("deterministic") is not False,
        document.get("comment"),
        dict(document.get("options") or {}),
    )


def _server_answer(connection: Connection, method: str, path: str, body: Any) -> Any:
    status, answer = connection.catalog.ask(method, path, body)
    if status == 200:
        return answer
    message = str(answer.get("message") or f"The catalog's server answered {status}.")
    raise refusal(status, message, str(answer.get("resourceType")))
