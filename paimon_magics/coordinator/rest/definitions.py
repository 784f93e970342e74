"""The endpoints of views and functions. Engines define them, and use them.

For a sender with grants they count like tables of their names.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.protocol.principals import Scope
from paimon_magics.coordinator.protocol.visibility import check_right
from paimon_magics.coordinator.rest.definition_documents import (
    changed_function,
    changed_view,
    function_from,
    function_name,
    view_from,
    view_name,
)
from paimon_magics.coordinator.rest.endpoints import (
    Call,
    Handler,
    database_of,
    require_database,
    seen_databases,
)
from paimon_magics.coordinator.rest.errors import (
    already_exists,
    bad_request,
    not_found,
    suppress_missing,
)
from paimon_magics.coordinator.rest.requests import like_filter, page, safe_name
from paimon_magics.coordinator.service.definitions import Kind
from paimon_magics.coordinator.service.served import Context
from paimon_magics.errors import UnknownNameError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.rest_documents import mapping_of, text_of

__all__ = ["DEFINITION_ENDPOINTS"]

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Sort:
    """What the endpoints of views and of functions differ in."""

    kind: Kind
    new: Callable[[Any], Document]
    changed: Callable[[Document, Any, str], Document]
    safe: Callable[[str], str]

    @property
    def resource(self) -> str:
        return self.kind.name

    def missing(self, name: TableName) -> Exception:
        return not_found(self.resource, str(name))


_VIEWS = _Sort(Kind.VIEW, view_from, changed_view, view_name)
_FUNCTIONS = _Sort(Kind.FUNCTION, function_from, changed_function, function_name)


# ---- one ----


def _get(sort: _Sort) -> Handler:
    def handler(context: Context, call: Call) -> Any:
        name = _named(context, call, sort, Scope.READ)
        return _answer(sort, name.table, _found(context, sort, name))

    return handler


def _create(sort: _Sort) -> Handler:
    def handler(context: Context, call: Call) -> Any:
        database = database_of(context, call)
        name = _named_in_body(call, sort, database)
        call.is_about(name)
        check_right(call.principal, Scope.WRITE, database, name.table)
        by, at_ms = call.user or "", now_ms()
        document = sort.new(call.body) | {
            "id": str(uuid.uuid4()),
            "owner": by,
            **{"createdAt": at_ms, "createdBy": by, "updatedAt": at_ms, "updatedBy": by},
        }
        if not context.definitions.create(sort.kind, name, document):
            raise already_exists(sort.resource, str(name))

    return handler


def _alter(sort: _Sort) -> Handler:
    def handler(context: Context, call: Call) -> Any:
        name = _named(context, call, sort, Scope.WRITE)

        def changed(document: Document) -> Document:
            altered = sort.changed(document, call.body.get("changes"), str(name))
            return altered | {"updatedAt": now_ms(), "updatedBy": call.user or ""}

        try:
            context.definitions.change(sort.kind, name, changed)
        except UnknownNameError:
            raise sort.missing(name) from None

    return handler


def _drop(sort: _Sort) -> Handler:
    def handler(context: Context, call: Call) -> Any:
        name = _named(context, call, sort, Scope.WRITE)
        try:
            context.definitions.drop(sort.kind, name)
        except UnknownNameError:
            raise sort.missing(name) from None

    return handler


def _rename_view(context: Context, call: Call) -> Any:
    source = _identifier(call.body.get("source"), "source")
    target = _identifier(call.body.get("destination"), "destination")
    call.is_about(source, detail=f"to {target}")
    _check_seen(context, call, _VIEWS, source, Scope.WRITE)
    check_right(call.principal, Scope.WRITE, target.database or "", target.table)
    require_database(context, target.database or "")
    try:
        renamed = context.definitions.rename(Kind.VIEW, source, target)
    except UnknownNameError:
        raise _VIEWS.missing(source) from None
    if not renamed:
        raise already_exists("VIEW", str(target))


def _found(context: Context, sort: _Sort, name: TableName) -> Document:
    try:
        return context.definitions.of(sort.kind, name)
    except UnknownNameError:
        raise sort.missing(name) from None


def _answer(sort: _Sort, name: str, document: Document) -> Document:
    """A `GetViewResponse` or a `GetFunctionResponse`."""
    if sort is _FUNCTIONS:
        return {"uuid": document["id"], "name": name} | _without(document, "id")
    schema = {key: document[key] for key in ("fields", "query", "dialects", "comment", "options")}
    return {"name": name, "schema": schema} | _without(document, *schema)


def _without(document: Document, *keys: str) -> Document:
    return {key: value for key, value in document.items() if key not in keys}


# ---- lists ----


def _list_names(sort: _Sort) -> Handler:
    def handler(context: Context, call: Call) -> Any:
        names = _seen(context, call, sort, database_of(context, call))
        found, token = page(call.request, names, str)
        return {f"{sort.kind}s": found, "nextPageToken": token}

    return handler


def _list_details(sort: _Sort) -> Handler:
    def handler(context: Context, call: Call) -> Any:
        database = database_of(context, call)
        found, token = page(call.request, _seen(context, call, sort, database), str)
        details = []
        for name in found:
            with suppress_missing():  # it was dropped meanwhile
                document = _found(context, sort, TableName(name, database))
                details.append(_answer(sort, name, document))
        return {f"{sort.kind}Details": details, "nextPageToken": token}

    return handler


def _list_everywhere(sort: _Sort) -> Handler:
    def handler(context: Context, call: Call) -> Any:
        matches = like_filter(call.request, "databaseNamePattern")
        names = [
            (database, name)
            for database in filter(matches, seen_databases(context, call))
            for name in _seen(context, call, sort, database)
        ]
        found, token = page(call.request, names, ".".join)
        shown = [{"database": database, "object": name} for database, name in found]
        return {f"{sort.kind}s": shown, "nextPageToken": token}

    return handler


def _seen(context: Context, call: Call, sort: _Sort, database: str) -> list[str]:
    matches = like_filter(call.request, f"{sort.kind}NamePattern")
    may = call.principal.may_on
    names = context.definitions.names(sort.kind, database)
    return [name for name in names if matches(name) and may(Scope.READ, database, name)]


# ---- names ----


def _named(context: Context, call: Call, sort: _Sort, needed: Scope) -> TableName:
    """What the path names, for a sender who may do what they ask with it."""
    database = database_of(context, call)
    name = TableName(call.names["name"], database)
    try:
        sort.safe(name.table)
    except Exception:
        raise sort.missing(name) from None
    if needed is not Scope.READ:
        call.is_about(name)
    _check_seen(context, call, sort, name, needed)
    return name


def _check_seen(context: Context, call: Call, sort: _Sort, name: TableName, needed: Scope) -> None:
    """Raise 404 for what is hidden from the sender, after the same look at the store, and 403 for
    what they may not do."""
    if not call.principal.may_on(Scope.READ, name.database or "", name.table):
        with suppress_missing():
            _found(context, sort, TableName(uuid.uuid4().hex, name.database))
        raise sort.missing(name)
    check_right(call.principal, needed, name.database or "", name.table)


def _named_in_body(call: Call, sort: _Sort, database: str) -> TableName:
    if sort is _FUNCTIONS:
        return TableName(sort.safe(text_of(call.body, "name", "The body")), database)
    name = _identifier(call.body.get("identifier"), "identifier")
    if name.database != database:
        raise bad_request(
            f"The view is to be created in `{database}` by the path and in `{name.database}` by "
            "its identifier."
        )
    return name


def _identifier(document: Any, where: str) -> TableName:
    identifier = mapping_of(document, where)
    return TableName(
        view_name(text_of(identifier, "object", where)),
        safe_name(text_of(identifier, "database", where), "database"),
    )


def _endpoints(sort: _Sort) -> list[tuple[str, str, Handler]]:
    inside, one = f"/databases/{{database}}/{sort.kind}s", "{name}"
    return [
        ("GET", inside, _list_names(sort)),
        ("POST", inside, _create(sort)),
        ("GET", f"/databases/{{database}}/{sort.kind}-details", _list_details(sort)),
        ("GET", f"/{sort.kind}s", _list_everywhere(sort)),
        ("GET", f"{inside}/{one}", _get(sort)),
        ("POST", f"{inside}/{one}", _alter(sort)),
        ("DELETE", f"{inside}/{one}", _drop(sort)),
    ]


DEFINITION_ENDPOINTS: list[tuple[str, str, Handler]] = [
    ("POST", "/views/rename", _rename_view),
    *_endpoints(_VIEWS),
    *_endpoints(_FUNCTIONS),
]
