"""The coordinator's OpenAPI document, made from its routes.

`GET /openapi.json` answers it. Every endpoint is in it, with the scope that it requires; bodies are
described if they have members of their own. The REST catalog's bodies are Paimon's
(`rest-catalog-open-api.yaml`), and are objects here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from paimon_magics.coordinator.http.answers import JSONResponse
from paimon_magics.coordinator.http.authorisation import PUBLIC, SCOPES
from paimon_magics.version import __version__

_OPENAPI_PATH = "/openapi.json"

_NAME = re.compile(r"\{(\w+)(?::path)?\}")
_DATABASE = "/v1/paimon/databases/{database}"
_TABLE = "/v1/paimon/databases/{database}/tables/{table}"
_PAGES = ("maxResults:integer", "pageToken:string")
_LISTS = {
    **{name: "tableNamePattern:string" for name in ("tables", "table-details")},
    **{name: "viewNamePattern:string" for name in ("views", "view-details")},
    **{name: "functionNamePattern:string" for name in ("functions", "function-details")},
}
_QUERIES: Mapping[str, Sequence[str]] = {
    "/": ("zone:string",),
    "/v1/config": ("warehouse:string",),
    "/v1/paimon/databases": (*_PAGES, "databaseNamePattern:string"),
    **{f"{_DATABASE}/{name}": (*_PAGES, pattern) for name, pattern in _LISTS.items()},
    **{
        f"/v1/paimon/{name}": (*_PAGES, "databaseNamePattern:string", _LISTS[name])
        for name in ("tables", "views", "functions")
    },
    **{f"{_TABLE}/{name}": _PAGES for name in ("snapshots", "consumers", "partitions")},
}
# The members of a body, each with its type; those that may be left out end with a `?`.
_BODIES: Mapping[str, str] = {
    "POST /v1/transactions": "table:table base_snapshot_id:integer? base_manifest_list:string? "
    "owner:string? origin:object? ticket:string? compacts:boolean?",
    "POST /v1/transactions/{id}/commit": "change:object messages:strings properties:object "
    "read_set:object? transaction:object?",
    "POST /v1/transactions/{id}/sweep": "change:object messages:strings properties:object",
    "POST /v1/transactions/{id}/abort": "reason:string? transaction:object?",
    "POST /v1/transactions/{id}/compactions": "buckets:objects",
    "POST /v1/tables/removals": "id:string table:table removal:object is_trial:boolean",
    "POST /v1/transactions/{id}/epoch": "query:string epoch:integer transaction:object?",
    "POST /v1/transactions/{id}/load": "records:objects transaction:object?",
    "POST /v1/tables/versions": "table:table change:object repeated:boolean",
    "POST /v1/tables/check": "table:table",
    "POST /v1/tables/resume": "table:table",
    "POST /v1/changes": "id:string change:object repeated:boolean",
    "POST /v1/leases": "holder:string leases:objects",
    "POST /v1/coordinator/pause": "owner:string?",
    "POST /v1/coordinator/options": "options:object",
    "POST /v1/coordinator/backup": "file:string?",
    "POST /v1/coordinator/rotated": "what:string",
    "POST /v1/compactions/pause": "owner:string?",
    "POST /v1/tokens": "name:string allow:strings expires_in_ms:integer?",
    "POST /v1/tokens/{id}/renew": "expires_in_ms:integer?",
    "POST /v1/inserts/{database}/{table}/flush": "wait_ms:integer?",
    "POST /v1/inserts/{database}/{table}/reopen": "accept_loss:boolean?",
    "POST /v1/paimon/databases": "name:string options:object?",
    f"POST {_DATABASE}": "removals:strings? updates:object?",
    f"POST {_DATABASE}/tables": "identifier:object schema:object",
    "POST /v1/paimon/tables/rename": "source:object destination:object",
    f"POST {_TABLE}": "changes:objects",
    f"POST {_TABLE}/consumers/reset": "consumerId:string nextSnapshotId:integer?",
    "POST /v1/paimon/views/rename": "source:object destination:object",
    f"POST {_DATABASE}/views": "identifier:object schema:object",
    f"POST {_DATABASE}/views/{{name}}": "changes:objects",
    f"POST {_DATABASE}/functions": "name:string inputParams:objects? "
    "returnParams:objects? deterministic:boolean? definitions:object? comment:string? "
    "options:object?",
    f"POST {_DATABASE}/functions/{{name}}": "changes:objects",
    f"POST {_TABLE}/commit": "tableId:string? snapshot:object statistics:objects?",
    f"POST {_TABLE}/rollback": "instant:object fromSnapshot:integer?",
    f"POST {_TABLE}/tags": "tagName:string snapshotId:integer? timeRetained:string?",
    f"POST {_TABLE}/branches": "branch:string fromTag:string?",
}
_STATEMENT = {"type": "object"}
_STATEMENTS = {"oneOf": [_STATEMENT, {"type": "array", "items": _STATEMENT}]}
_INSERT = "POST /v1/inserts/{database}/{table}"
_TYPES: Mapping[str, Mapping[str, Any]] = {
    "integer": {"type": "integer"},
    "string": {"type": "string"},
    "boolean": {"type": "boolean"},
    "object": {"type": "object"},
    "strings": {"type": "array", "items": {"type": "string"}},
    "objects": {"type": "array", "items": {"type": "object"}},
    "table": {"$ref": "#/components/schemas/Table"},
}
_ERROR = {
    "description": "an error",
    "content": {"application/json": {"schema": {"type": "object"}}},
}
_PAGE = {"/": "text/html", "/metrics": "text/plain"}


def openapi_route(routes: Sequence[BaseRoute], root: str) -> Route:
    """The route that answers the document of `routes` and of itself."""

    async def answer(_: Request) -> Response:
        return JSONResponse(document)

    own = Route(_OPENAPI_PATH, answer)
    document = _openapi_document([*routes, own], root)
    return own


def _openapi_document(routes: Sequence[BaseRoute], root: str) -> dict[str, Any]:
    """The document, in the form of OpenAPI 3.1, of all routes but streams."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if not isinstance(route, Route) or route.path.endswith(":path}"):
            continue
        for method in sorted((route.methods or set()) - {"HEAD"}):
            paths.setdefault(route.path, {})[method.lower()] = _operation(method, route.path)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "paimon-coordinator",
            "version": __version__,
            "description": "What a coordinator answers. Inserts may also be streamed by a "
            "WebSocket, which this form can't describe.",
        },
        "servers": [{"url": root or "/"}],
        "security": [{"bearer": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Table": _object("database:string table:string branch:string?")},
        },
    }


def _operation(method: str, path: str) -> dict[str, Any]:
    which = f"{method} {path}"
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _NAME.findall(path)
    ]
    for query in _QUERIES.get(path, ()) if method == "GET" else ():
        name, _, kind = query.partition(":")
        parameters.append({"name": name, "in": "query", "required": False, "schema": _TYPES[kind]})
    kind = _PAGE.get(path, "application/json")
    operation: dict[str, Any] = {
        "operationId": which,
        "parameters": parameters,
        "responses": {"200": {"description": "done", "content": {kind: {}}}, "default": _ERROR},
    }
    if path in PUBLIC:
        operation["security"] = []
    else:
        operation["x-scope"] = SCOPES[which].value
    if method == "POST":
        schema = _STATEMENTS if which == _INSERT else _object(_BODIES.get(which, ""))
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return operation


def _object(members: str) -> dict[str, Any]:
    pairs = [member.split(":") for member in members.split()]
    return {
        "type": "object",
        "properties": {name: _TYPES[kind.rstrip("?")] for name, kind in pairs},
        "required": [name for name, kind in pairs if not kind.endswith("?")],
    }
