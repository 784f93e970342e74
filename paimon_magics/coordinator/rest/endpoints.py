"""What all endpoints of the REST catalog share, and how a route is made from a handler.

A handler gets the decoded request and returns a JSON value, or steps that return one (see
`runtime.steps`). It runs in a thread, because catalogs and disks block; a wait between two steps
occupies none. Errors that it raises become Paimon's error bodies in one place.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paimon_magics.coordinator.http.audited import tell
from paimon_magics.coordinator.http.authorisation import SCOPES
from paimon_magics.coordinator.http.guard import principal_of
from paimon_magics.coordinator.http.threads import run_steps
from paimon_magics.coordinator.protocol.principals import Principal, Scope
from paimon_magics.coordinator.protocol.visibility import check_right, check_table
from paimon_magics.coordinator.rest.errors import error_response, not_found
from paimon_magics.coordinator.rest.requests import path_names, read_body, safe_name
from paimon_magics.coordinator.runtime import Steps
from paimon_magics.coordinator.service.served import Context
from paimon_magics.errors import UnknownNameError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.table import StoredTable

__all__ = [
    "Call",
    "Handler",
    "database_of",
    "endpoint",
    "require_database",
    "require_right",
    "seen_databases",
    "seen_tables",
    "table_of",
]


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the names in its path, its body (an empty one for GET and DELETE), the rest."""

    names: dict[str, str]
    body: dict[str, Any]
    request: Request

    @property
    def principal(self) -> Principal:
        """The sender."""
        return principal_of(self.request)

    @property
    def user(self) -> str | None:
        """The sender's authorised name; None if there is none."""
        return principal_of(self.request).name

    def is_about(self, name: TableName, **facts: Any) -> None:
        """Say in the audit log which table it is about, or with "" as its name which database."""
        told = {"database": name.database, "table": name.object_name or None, **facts}
        tell(self.request.scope, **told)


Handler = Callable[["Context", Call], Any]
"""Carries out a call and returns its JSON answer, None for an empty one; or steps that do so."""


def table_of(context: Context, name: TableName) -> StoredTable:
    """Load a table. Raises 404 TABLE if it, its branch or its database does not exist."""
    try:
        return load_stored(context.catalog, name)
    except UnknownNameError as error:
        raise not_found("TABLE", f"{name.database}.{name.object_name}", str(error)) from None


def require_database(context: Context, database: str) -> None:
    """Raise 404 DATABASE if the database does not exist."""
    if not context.catalog.database_exists(database):
        raise not_found("DATABASE", database)


def database_of(context: Context, call: Call) -> str:
    """The database that the path names. Raises 404 DATABASE if it does not exist."""
    name = safe_name(call.names["database"], "database")
    require_database(context, name)
    return name


def endpoint(context: Context, method: str, template: str, handler: Handler) -> Route:
    """A route that answers `method` on the path `template` by the handler."""

    async def answer(request: Request) -> Response:
        try:
            names = path_names(request, template)
            body = await read_body(request) if method == "POST" else {}
            work = handler if method == "GET" else _fenced(handler)
            call = Call(names, body, request)
            if not call.principal.is_free:
                work = _seen(work, f"{method} {template}")
            result = await run_steps(_steps(work, context, call))
        except ClientDisconnect:
            raise  # there is nobody to answer
        except Exception as error:
            return error_response(error)
        return JSONResponse({} if result is None else result)

    return Route(template, answer, methods=[method])


def seen_databases(context: Context, call: Call) -> list[str]:
    """The databases of which the sender may read something."""
    return [one for one in context.catalog.stored_databases() if call.principal.sees_database(one)]


def seen_tables(context: Context, call: Call, database: str) -> list[str]:
    """The tables of a database that the sender may read."""
    may = call.principal.may_on
    names = context.catalog.list_tables(database)
    return [name for name in names if may(Scope.READ, database, name)]


def require_right(context: Context, call: Call, needed: Scope, name: TableName) -> None:
    """Raise 404 TABLE for a table that is hidden from the sender, NotTheirsError (403) for one on
    which they lack a scope."""
    try:
        check_table(call.principal, needed, name, lambda one: load_stored(context.catalog, one))
    except UnknownNameError:
        message = f"There is no table `{name}`."
        raise not_found("TABLE", f"{name.database}.{name.object_name}", message) from None


def _seen(handler: Handler, which: str) -> Handler:
    """The handler, for a sender with grants: the table or database that the path names must be
    theirs to see, and to change if the endpoint changes it."""
    needed = SCOPES[which]

    def answer(context: Context, call: Call) -> Steps[Any]:
        database, table = call.names.get("database"), call.names.get("table")
        if database is not None and table is not None:
            require_right(context, call, needed, TableName(table, database))
        elif database is not None:
            if not call.principal.sees_database(database):
                context.catalog.database_exists(uuid.uuid4().hex)  # it takes as long
                raise not_found("DATABASE", database)
            if which.endswith("{database}") and needed is not Scope.READ:
                check_right(call.principal, needed, database, None)
        return (yield from _steps(handler, context, call))

    return answer


def _steps(handler: Handler, context: Context, call: Call) -> Steps[Any]:
    """The steps of a handler, of which most have one."""
    result = handler(context, call)
    return (yield from result) if inspect.isgenerator(result) else result


def _fenced(handler: Handler) -> Handler:
    """The handler, which makes and acknowledges changes only while this coordinator owns the
    warehouse."""

    def answer(context: Context, call: Call) -> Steps[Any]:
        if context.fence is None:
            return (yield from _steps(handler, context, call))
        context.fence()
        result = yield from _steps(handler, context, call)
        context.fence().check()
        return result

    return answer
