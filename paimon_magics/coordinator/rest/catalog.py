"""Paimon's REST catalog protocol over a catalog: its databases and tables, and all routes.

The protocol is Paimon's `rest-catalog-open-api.yaml`, version 1. Engines find the catalog by
`/v1/config`, read and write data files themselves, and commit through the catalog. An unsupported
part of the protocol is answered 501, with its name.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import asdict
from typing import Any
from urllib.parse import unquote_plus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paimon_magics.coordinator.protocol.definition_changes import (
    DatabaseCreation,
    DatabaseDrop,
    DefinitionChange,
    TableAlteration,
    TableCreation,
    TableDrop,
    TableRename,
)
from paimon_magics.coordinator.protocol.principals import Scope, check_right
from paimon_magics.coordinator.rest.definitions import DEFINITION_ENDPOINTS
from paimon_magics.coordinator.rest.endpoints import (
    Call,
    Handler,
    endpoint,
    identifier_of,
    like_filter,
    page,
    refusing,
    require_database,
    safe_name,
    table_of,
    warn_of_spelling,
)
from paimon_magics.coordinator.rest.errors import (
    RestError,
    already_exists,
    bad_request,
    error_response,
    not_found,
    suppress_missing,
)
from paimon_magics.coordinator.rest.versions import VERSION_ENDPOINTS
from paimon_magics.coordinator.runtime.work import Steps
from paimon_magics.coordinator.service.definition_changes import DefinitionChanges
from paimon_magics.coordinator.service.definitions import Kind
from paimon_magics.coordinator.service.served import Context
from paimon_magics.errors import (
    InvalidTableError,
    StatementError,
    TableDamagedError,
    UnknownNameError,
)
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.table_changes import AddColumn, RenameColumn, SetOptions, TableChange
from paimon_magics.tables.catalog.rest_documents import (
    changes_from_documents,
    schema_from_document,
    sequence_of,
    string_map,
    table_document,
    texts_of,
)
from paimon_magics.tables.stores.paths import canonical_location, local_path

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def rest_catalog_routes(context: Context, warehouse: str | None = None) -> list[Route]:
    """The routes that serve a catalog to Paimon's REST clients, all of them below `/v1`.

    Clients must name the warehouse by `warehouse`, by the catalog's own warehouse path, or not at
    all. Authorisation is checked before the routes (`http.guard`).
    """
    root = f"/v1/{context.prefix}"
    table = f"{root}/databases/{{database}}/tables/{{table}}"

    def config(call: Call) -> Any:
        _check_warehouse(context, warehouse, call.request.query_params.get("warehouse"))
        defaults = {"prefix": context.prefix}
        if context.data_tokens is not None:  # a client with keys of its own may say otherwise
            defaults["data-token.enabled"] = "true"
        return {"defaults": defaults, "overrides": {}}

    return [
        endpoint(context, "GET", "/v1/config", config),
        *(endpoint(context, m, root + path, handler) for m, path, handler in _ENDPOINTS),
        *(endpoint(context, m, table + path, handler) for m, path, handler in VERSION_ENDPOINTS),
        Route(f"{root}/{{rest:path}}", _no_endpoint, methods=_METHODS),
    ]


async def _no_endpoint(request: Request) -> Response:
    if b"%2f" in (request.scope.get("raw_path") or b"").lower():
        return error_response(bad_request("A name in the path contains a slash."))
    message = f"There is no endpoint {request.method} {request.scope['path']}."
    return error_response(RestError(404, message))


def _check_warehouse(context: Context, name: str | None, warehouse: str | None) -> None:
    if not warehouse:
        return
    forms = {warehouse, unquote_plus(warehouse)}  # clients encode it once or twice
    own = canonical_location(context.catalog.warehouse)
    if name not in forms and own not in {canonical_location(f) for f in forms if "\0" not in f}:
        raise bad_request(f"This catalog does not serve the warehouse '{warehouse}'.")


# ---- databases ----


def _list_databases(call: Call) -> Any:
    matches = like_filter(call.request, "databaseNamePattern")
    names = filter(matches, call.seen_databases())
    databases, token = page(call.request, names, str)
    return {"databases": databases, "nextPageToken": token}


def _create_database(call: Call) -> Any:
    name = safe_name(call.text("name"), "database")
    call.report(TableName("", name))
    options = string_map(call.body.get("options"), "options")
    if not (yield from _make(call, DatabaseCreation(name, tuple(options.items()), True))):
        raise already_exists("DATABASE", name)


def _get_database(call: Call) -> Any:
    name = _stored_database(call)
    options = call.context.databases.properties(name)
    location = options.pop("location", "")
    location = local_path(location) or location
    return {
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, location or name)),
        "name": name,
        "location": location,
        "options": options,
        "owner": options.get("owner", ""),
        "createdAt": 0,
        "createdBy": "",
        "updatedAt": 0,
        "updatedBy": "",
    }


def _alter_database(call: Call) -> Any:
    name = call.database()
    removals = sequence_of(call.body.get("removals"), "removals", optional=True)
    updates = string_map(call.body.get("updates"), "updates")
    with (yield from call.context.changing(TableName("", name))):
        return asdict(call.context.databases.alter(name, texts_of(removals, "removals"), updates))


def _drop_database(call: Call) -> Any:
    # The protocol has no CASCADE: clients that don't want it look for tables themselves.
    name = _stored_database(call)
    yield from _make(call, DatabaseDrop(name, cascade=True))


def _stored_database(call: Call) -> str:
    """The database as stored: `default` is missing until it is created, though tables can be
    created in it.
    """
    name = call.database()
    if not call.context.catalog.is_stored(name):
        raise not_found("DATABASE", name)
    return name


# ---- tables ----


def _list_tables(call: Call) -> Any:
    names, token = page(call.request, _table_names(call), str)
    return {"tables": names, "nextPageToken": token}


def _list_table_details(call: Call) -> Any:
    names, token = page(call.request, _table_names(call), str)
    details = []
    for name in names:
        with suppress_missing():  # it was dropped meanwhile
            table = TableName(name, call.names["database"])
            details.append(table_document(table_of(call.context, table)))
    return {"tableDetails": details, "nextPageToken": token}


def _table_names(call: Call) -> list[str]:
    database = call.database()
    if call.request.query_params.get("tableType", "table") != "table":
        return []
    matches = like_filter(call.request, "tableNamePattern")
    return list(filter(matches, call.seen_tables(database)))


def _list_all_tables(call: Call) -> Any:
    database_matches = like_filter(call.request, "databaseNamePattern")
    table_matches = like_filter(call.request, "tableNamePattern")
    names = [
        (database, table)
        for database in filter(database_matches, call.seen_databases())
        for table in filter(table_matches, call.seen_tables(database))
    ]
    shown, token = page(call.request, names, "/".join)
    tables = [{"database": database, "object": table} for database, table in shown]
    return {"tables": tables, "nextPageToken": token}


def _create_table(call: Call) -> Any:
    database = call.database()
    name = identifier_of(call.body.get("identifier"), "identifier")
    call.report(name)
    if name.database != database:
        raise bad_request(
            f"The path names the database `{database}` for the new table, but its identifier "
            f"names `{name.database}`."
        )
    if name.branch is not None:
        raise bad_request(f"`{name}` is a branch: create it from its table.")
    check_right(call.principal, Scope.ALTER, database, name.table)
    schema = schema_from_document(call.body.get("schema"))
    _check_is_free(call.context, name)
    warn_of_spelling(name, schema.options)
    try:
        is_new = yield from _make(call, TableCreation(name, schema, if_not_exists=True))
    except StatementError:  # perhaps of what has changed meanwhile
        require_database(call.context, database)
        _check_is_free(call.context, name)
        raise
    if not is_new:
        raise already_exists("TABLE", str(name))


def _make(call: Call, change: DefinitionChange) -> Steps[bool]:
    return DefinitionChanges(call.context, call.principal, is_engine=True).make(change)


def _check_is_free(context: Context, name: TableName) -> None:
    if context.catalog.table_exists(name):
        raise already_exists("TABLE", str(name))
    if context.definitions.exists(Kind.VIEW, name):
        raise already_exists("TABLE", str(name), f"`{name}` is a view: choose another name.")


def _get_table(call: Call) -> Any:
    return table_document(call.table())


def _get_table_by_id(call: Call) -> Any:
    """There is no index of ids: the tables are checked one after the other."""
    for database in call.seen_databases():
        for name in call.seen_tables(database):
            with suppress_missing():
                table = table_of(call.context, TableName(name, database))
                if table.table_id == call.names["id"]:
                    return table_document(table)
    raise not_found("TABLE", call.names["id"])


def _alter_table(call: Call) -> Any:
    name = call.table().name
    schema = call.context.catalog.load(name).schema
    changes = changes_from_documents(call.body.get("changes"), schema)
    for change in changes:
        if isinstance(change, SetOptions):
            warn_of_spelling(name, change.options)
    try:
        yield from _make(call, TableAlteration(name, tuple(changes)))
    except UnknownNameError as error:
        raise not_found("COLUMN", _missing_column(schema, changes), str(error)) from error
    except InvalidTableError as error:
        taken = _taken_column(schema, changes)
        if taken is not None:
            raise already_exists("COLUMN", taken, str(error)) from error
        raise


def _missing_column(schema: TableSchema, changes: list[TableChange]) -> str:
    paths = [getattr(change, "path", None) for change in changes]
    names = [".".join(p) for p in paths if p and p[0] not in schema.column_names]
    return names[0] if names else ".".join(next((p for p in paths if p), ()))


def _taken_column(schema: TableSchema, changes: list[TableChange]) -> str | None:
    for change in changes:
        match change:
            case AddColumn(path=(name,)) | RenameColumn(path=(_,), new_name=name) if (
                name in schema.column_names
            ):
                return name
    return None


def _drop_table(call: Call) -> Any:
    name = call.name
    if "$" in call.names["table"]:  # also the branch `main`, which is not the whole table
        raise bad_request(f"`{call.names['table']}` is a branch: drop it as a branch.")
    with contextlib.suppress(TableDamagedError):
        call.table()
    yield from _change_table(call, TableDrop(name), name)


def _rename_table(call: Call) -> Any:
    source = identifier_of(call.body.get("source"), "source")
    target = identifier_of(call.body.get("destination"), "destination")
    call.report(source, detail=f"to {target}")
    for name in (source, target):
        if name.branch is not None:
            raise bad_request(f"`{name}` is a branch: rename it as one.")
    call.require_right(Scope.ALTER, source)
    check_right(call.principal, Scope.ALTER, target.database or "", target.table)
    table_of(call.context, source)
    require_database(call.context, target.database or "")
    _check_is_free(call.context, target)
    try:
        yield from _change_table(call, TableRename(source, target), source)
    except StatementError:
        _check_is_free(call.context, target)
        raise


def _change_table(call: Call, change: DefinitionChange, name: TableName) -> Any:
    """Make a change of a table, which others may have removed while this change waited."""
    try:
        yield from _make(call, change)
    except UnknownNameError as error:
        raise not_found("TABLE", f"{name.database}.{name.table}", error.message) from error


# ---- not supported ----

_no_permissions = refusing("permissions", lambda call: None)
_no_registering = refusing("registering existing tables", Call.database)

_DATABASE = "/databases/{database}"
_ENDPOINTS: list[tuple[str, str, Handler]] = [
    ("GET", "/databases", _list_databases),
    ("POST", "/databases", _create_database),
    ("GET", _DATABASE, _get_database),
    ("POST", _DATABASE, _alter_database),
    ("DELETE", _DATABASE, _drop_database),
    ("POST", f"{_DATABASE}/register", _no_registering),
    ("GET", f"{_DATABASE}/tables", _list_tables),
    ("POST", f"{_DATABASE}/tables", _create_table),
    ("GET", f"{_DATABASE}/table-details", _list_table_details),
    ("GET", "/tables", _list_all_tables),
    ("GET", "/tables/id/{id}", _get_table_by_id),
    ("POST", "/tables/rename", _rename_table),
    ("GET", f"{_DATABASE}/tables/{{table}}", _get_table),
    ("POST", f"{_DATABASE}/tables/{{table}}", _alter_table),
    ("DELETE", f"{_DATABASE}/tables/{{table}}", _drop_table),
    *DEFINITION_ENDPOINTS,
    ("GET", "/permissions", _no_permissions),
    ("POST", "/permissions/grant", _no_permissions),
    ("POST", "/permissions/revoke", _no_permissions),
]
