"""Databases with properties, for sessions.

`POST /v1/databases` with `{name, properties, if_not_exists}` creates a database, and answers
whether it did. `GET /v1/databases/NAME` answers its properties.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paimon_magics.coordinator.http.audited import tell
from paimon_magics.coordinator.http.bodies import json_body
from paimon_magics.coordinator.http.guard import principal_of
from paimon_magics.coordinator.http.threads import run_in_threadpool
from paimon_magics.coordinator.protocol.members import member
from paimon_magics.coordinator.protocol.principals import Scope
from paimon_magics.coordinator.protocol.visibility import check_right
from paimon_magics.coordinator.service.served import Context
from paimon_magics.errors import InvalidValueError, StatementError
from paimon_magics.tables.catalog.names import check_name

__all__ = ["database_routes"]


def database_routes(context: Context) -> list[Route]:
    """The routes that create and describe databases."""

    async def create(request: Request) -> Response:
        body = await json_body(request)
        name = str(member(body, "name", str))
        tell(request.scope, database=name)
        properties = member(body, "properties", Mapping)
        check_right(principal_of(request), Scope.WRITE, name, None)
        check_name(name, "database")
        if not all(isinstance(value, str) for value in properties.values()):
            raise InvalidValueError(f"The properties of the database `{name}` must be texts.")
        created = await run_in_threadpool(lambda: _create(context, name, dict(properties)))
        if not created and not member(body, "if_not_exists", bool):
            raise StatementError(
                f"The database `{name}` exists already.",
                hint="Use CREATE DATABASE IF NOT EXISTS, or another name.",
            )
        return JSONResponse({"created": created})

    async def describe(request: Request) -> Response:
        name = request.path_params["database"]
        properties = await run_in_threadpool(lambda: context.databases.properties(name))
        return JSONResponse({"properties": properties})

    return [
        Route("/v1/databases", create, methods=["POST"]),
        Route("/v1/databases/{database}", describe, methods=["GET"]),
    ]


def _create(context: Context, name: str, properties: Mapping[str, str]) -> bool:
    if context.fence is not None:
        context.fence()
    created = context.databases.create(name, properties)
    if context.fence is not None:
        context.fence().check()
    return created
