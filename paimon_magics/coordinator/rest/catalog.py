"""Paimon's REST catalog protocol over a catalog: its databases and tables, and all routes.

The protocol is Paimon's `rest-catalog-open-api.yaml`, version 1. Engines find the catalog by
`/v1/config`, read and write data files themselves, and commit through it. A part of the protocol
that is not supported is answered 501, with its name.
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
    database_of,
    endpoint,
    identifier_of,
    like_filter,
    page,
    require_database,
    require_right,
    safe_name,
    seen_databases,
    seen_tables,
    table_name,
    table_of,
    warn_of_spelling,
)
from paimon_magics.coordinator.rest.errors import (
    RestError,
    already_exists,
    bad_request,
    error_response,
    not_found,
    not_offered,
    suppress_missing,
)
from paimon_magics.coordinator.rest.versions import VERSION_ENDPOINTS
from paimon_magics.coordinator.service.definition_changes import DefinitionChanges
from paimon_magics.coordinator.service.definitions import Kind
from paimon_magics.coordinator.service.served import Context
from paimon_magics.errors import InvalidTableError, TableDamagedError, UnknownNameError
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.table_changes import AddColumn, RenameColumn, SetOptions, TableChange
from paimon_magics.tables.catalog.rest_documents import (
    changes_from_documents,
    schema_from_document,
    sequence_of,
    string_map,
    table_document,
    text_of,
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

    def config(context: Context, call: Call) -> Any:
        _check_warehouse(context, warehouse, call.request.query_params.get("warehouse"))
        return {"defaults": {"prefix": context.prefix}, "overrides": {}}

    return [
        endpoint(context, "GET", "/v1/config", config),
        *(endpoint(context, m, root + path, handler) for m, path, handler in _ENDPOINTS),
        *(endpoint(context, m, table + path, handler) for m, path, handler in VERSION_ENDPOINTS),
        _everything_else(context, f"{root}/{{rest:path}}"),
    ]


def _everything_else(context: Context, template: str) -> Route:
    async def answer(request: Request) -> Response:
        try:
            if b"%2f" in (request.scope.get("raw_path") or b"").lower():
                raise bad_request("A name in the path contains a slash.")
            raise RestError(404, f"There is no {request.method} {request.scope['path']} here.")
        except Exception as error:
            return error_response(error)

    return Route(template, answer, methods=_METHODS)


def _check_warehouse(context: Context, named: str | None, asked: str | None) -> None:
    if not asked:
        return
    forms = {asked, unquote_plus(asked)}  # clients encode it once or twice
    own = canonical_location(context.catalog.warehouse)
    if named not in forms and own not in {canonical_location(f) for f in forms if "\0" not in f}:
        raise bad_request(f"This catalog does not serve the warehouse '{asked}'.")


# ---- databases ----


def _list_databases(context: Context, call: Call) -> Any:
    matches = like_filter(call.request, "databaseNamePattern")
    names = filter(matches, seen_databases(context, call))
    found, token = page(call.request, names, str)
    return {"databases": found, "nextPageToken": token}


def _create_database(context: Context, call: Call) -> Any:
    name = safe_name(text_of(call.body, "name", "The body"), "database")
    call.is_about(TableName("", name))
    options = string_map(call.body.get("options"), "options")
    if not (
        yield from _changes(context, call).make(
            DatabaseCreation(name, tuple(options.items()), True)
        )
    ):
        raise already_exists("DATABASE", name)


def _get_database(context: Context, call: Call) -> Any:
    name = _stored_database(context, call)
    options = context.databases.properties(name)
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


def _alter_database(context: Context, call: Call) -> Any:
    name = database_of(context, call)
    removals = sequence_of(call.body.get("removals"), "removals", optional=True)
    updates = string_map(call.body.get("updates"), "updates")
    with (yield from context.changing(TableName("", name))):
        return asdict(context.databases.alter(name, texts_of(removals, "removals"), updates))


def _drop_database(context: Context, call: Call) -> Any:
    # The protocol has no CASCADE: clients that don't want it look for tables themselves.
    name = _stored_database(context, call)
    yield from _changes(context, call).make(DatabaseDrop(name, cascade=True))


def _stored_database(context: Context, call: Call) -> str:
    """The same without `default` before it is made. Its tables can be made all the same."""
    name = database_of(context, call)
    if not context.catalog.is_stored(name):
        raise not_found("DATABASE", name)
    return name


# ---- tables ----


def _list_tables(context: Context, call: Call) -> Any:
    found, token = page(call.request, _table_names(context, call), lambda name: name.table)
    return {"tables": [name.table for name in found], "nextPageToken": token}


def _list_table_details(context: Context, call: Call) -> Any:
    found, token = page(call.request, _table_names(context, call), lambda name: name.table)
    details = []
    for name in found:
        with suppress_missing():  # it was dropped meanwhile
            details.append(table_document(table_of(context, name)))
    return {"tableDetails": details, "nextPageToken": token}


def _table_names(context: Context, call: Call) -> list[TableName]:
    database = database_of(context, call)
    if call.request.query_params.get("tableType", "table") != "table":
        return []
    matches = like_filter(call.request, "tableNamePattern")
    return [
        TableName(name, database) for name in seen_tables(context, call, database) if matches(name)
    ]


def _list_all_tables(context: Context, call: Call) -> Any:
    database_matches = like_filter(call.request, "databaseNamePattern")
    table_matches = like_filter(call.request, "tableNamePattern")
    names = [
        (database, table)
        for database in filter(database_matches, seen_databases(context, call))
        for table in filter(table_matches, seen_tables(context, call, database))
    ]
    found, token = page(call.request, names, "/".join)
    tables = [{"database": database, "object": table} for database, table in found]
    return {"tables": tables, "nextPageToken": token}


def _create_table(context: Context, call: Call) -> Any:
    database = database_of(context, call)
    name = identifier_of(call.body.get("identifier"), "identifier")
    call.is_about(name)
    if name.database != database:
        raise bad_request(
            f"The table is to be created in `{database}` by the path and in `{name.database}` by "
            "its identifier."
        )
    if name.branch is not None:
        raise bad_request(f"`{name}` is a branch: create it from its table.")
    check_right(call.principal, Scope.WRITE, database, name.table)
    schema = schema_from_document(call.body.get("schema"))
    _check_is_free(context, name)
    warn_of_spelling(name, schema.options)
    if not (
        yield from _changes(context, call).make(TableCreation(name, schema, if_not_exists=True))
    ):
        raise already_exists("TABLE", str(name))


def _changes(context: Context, call: Call) -> DefinitionChanges:
    return DefinitionChanges(context, call.principal, is_engine=True)


def _check_is_free(context: Context, name: TableName) -> None:
    if context.catalog.table_exists(name):
        raise already_exists("TABLE", str(name))
    if context.definitions.exists(Kind.VIEW, name):
        raise already_exists("TABLE", str(name), f"`{name}` is a view: choose another name.")


def _get_table(context: Context, call: Call) -> Any:
    return table_document(table_of(context, table_name(call.names)))


def _get_table_by_id(context: Context, call: Call) -> Any:
    """Nothing notes ids: the tables are looked at one after the other."""
    for database in seen_databases(context, call):
        for name in seen_tables(context, call, database):
            with suppress_missing():
                table = table_of(context, TableName(name, database))
                if table.table_id == call.names["id"]:
                    return table_document(table)
    raise not_found("TABLE", call.names["id"])


def _alter_table(context: Context, call: Call) -> Any:
    name = table_name(call.names)
    table_of(context, name)
    schema = context.catalog.load(name).schema
    changes = changes_from_documents(call.body.get("changes"), schema)
    for change in changes:
        if isinstance(change, SetOptions):
            warn_of_spelling(name, change.options)
    try:
        yield from _changes(context, call).make(TableAlteration(name, tuple(changes)))
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
            case AddColumn(path=(name,)) | RenameColumn(path=(_,), new_name=name):
                if name in schema.column_names:
                    return name
            case _:
                continue
    return None


def _drop_table(context: Context, call: Call) -> Any:
    name = table_name(call.names)
    if "$" in call.names["table"]:  # also the branch `main`, which is not the whole table
        raise bad_request(f"`{call.names['table']}` is a branch: drop it as one.")
    with contextlib.suppress(TableDamagedError):
        table_of(context, name)
    yield from _change_table(context, call, TableDrop(name), name)


def _rename_table(context: Context, call: Call) -> Any:
    source = identifier_of(call.body.get("source"), "source")
    target = identifier_of(call.body.get("destination"), "destination")
    call.is_about(source, detail=f"to {target}")
    for name in (source, target):
        if name.branch is not None:
            raise bad_request(f"`{name}` is a branch: rename it as one.")
    require_right(context, call, Scope.WRITE, source)
    check_right(call.principal, Scope.WRITE, target.database or "", target.table)
    table_of(context, source)
    require_database(context, target.database or "")
    _check_is_free(context, target)
    yield from _change_table(context, call, TableRename(source, target), source)


def _change_table(context: Context, call: Call, change: DefinitionChange, name: TableName) -> Any:
    """Make a change of a table, which others may have taken away while this one has waited."""
    try:
        yield from _changes(context, call).make(change)
    except UnknownNameError as error:
        raise not_found("TABLE", f"{name.database}.{name.table}", error.message) from error


# ---- not supported ----


def _refuse(what: str) -> Handler:
    def handler(context: Context, call: Call) -> Any:
        if "database" in call.names:
            database_of(context, call)
        raise not_offered(what)

    return handler


_DATABASE = "/databases/{database}"
_ENDPOINTS: list[tuple[str, str, Handler]] = [
    ("GET", "/databases", _list_databases),
    ("POST", "/databases", _create_database),
    ("GET", _DATABASE, _get_database),
    ("POST", _DATABASE, _alter_database),
    ("DELETE", _DATABASE, _drop_database),
    ("POST", f"{_DATABASE}/register", _refuse("registering tables that are there already")),
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
    ("GET", "/permissions", _refuse("permissions")),
    ("POST", "/permissions/grant", _refuse("permissions")),
    ("POST", "/permissions/revoke", _refuse("permissions")),
]
