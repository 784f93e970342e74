"""The endpoints of views and functions. Engines define them, and use them.

For a sender with grants they count like tables of their names.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.protocol.principals import Scope, check_right
from paimon_magics.coordinator.rest.endpoints import (
    Call,
    Handler,
    database_of,
    like_filter,
    page,
    require_database,
    safe_name,
    seen_databases,
)
from paimon_magics.coordinator.rest.errors import (
    already_exists,
    bad_request,
    not_found,
    suppress_missing,
)
from paimon_magics.coordinator.service.definitions import Kind
from paimon_magics.coordinator.service.served import Context
from paimon_magics.errors import UnknownNameError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.rest_documents import (
    check_fields,
    mapping_of,
    optional_text,
    sequence_of,
    string_map,
    text_of,
)

Document = dict[str, Any]

# Paimon's RESTFunctionValidator.
_FUNCTION_NAME = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9._-]+")


# The documents of views and functions: what a request creates, and what its changes make of it.
#
# They are Paimon's (`ViewSchema`, `ViewChange`, `CreateFunctionRequest`, `FunctionDefinition`,
# `FunctionChange`). Engines alone read the texts in them, so that those are kept as they came.


def view_name(name: str) -> str:
    """Return `name` if a view may have it; else raise 400. `$` is for system tables."""
    if "$" in name:
        raise bad_request(f"`{name}` is not a valid name of a view.")
    return safe_name(name, "view")


def function_name(name: str) -> str:
    """Return `name` if a function may have it; else raise 400."""
    if not _FUNCTION_NAME.fullmatch(name):
        raise bad_request(
            f"`{name}` is not a valid name of a function: it takes letters, digits, `.`, `_` and "
            "`-`, at least one of them a letter."
        )
    return safe_name(name, "function")


def view_from(body: Mapping[str, Any]) -> Document:
    """The view that a `CreateViewRequest` creates."""
    schema = mapping_of(body.get("schema"), "schema")
    check_fields(schema.get("fields"), "schema.fields")
    return {
        "fields": schema["fields"],
        "query": text_of(schema, "query", "schema"),
        "dialects": string_map(schema.get("dialects"), "schema.dialects"),
        "comment": optional_text(schema, "comment", "schema"),
        "options": string_map(schema.get("options"), "schema.options"),
    }


def function_from(body: Mapping[str, Any]) -> Document:
    """The function that a `CreateFunctionRequest` creates."""
    for key in ("inputParams", "returnParams"):
        if body.get(key) is not None:
            check_fields(body[key], key)
    deterministic = body.get("deterministic", False)
    if not isinstance(deterministic, bool):
        raise bad_request("deterministic must be true or false.")
    definitions = mapping_of(body.get("definitions") or {}, "definitions")
    return {
        "inputParams": body.get("inputParams"),
        "returnParams": body.get("returnParams"),
        "deterministic": deterministic,
        "definitions": {
            name: _definition(definition, f"definitions.{name}")
            for name, definition in definitions.items()
        },
        "comment": optional_text(body, "comment", "The body"),
        "options": string_map(body.get("options"), "options"),
    }


@dataclass(frozen=True, slots=True)
class _Parts:
    """The named parts of a view or a function: `word` in the names of changes, the member `key`
    with a part's name, and the part that a change has."""

    word: str
    key: str
    value: Callable[[Mapping[str, Any], str], Any]


def changed_view(view: Document, changes: Any, name: str) -> Document:
    """What the changes of an `AlterViewRequest` make of the view `name`: all of them, or none.

    Raises 404 and 409 DIALECT.
    """
    dialects = _Parts("Dialect", "dialect", lambda change, where: text_of(change, "query", where))
    return _changed(view, changes, "dialects", dialects, f"of the view `{name}`")


def changed_function(function: Document, changes: Any, name: str) -> Document:
    """What the changes of an `AlterFunctionRequest` make of the function `name`: all of them, or
    none. Raises 404 and 409 DEFINITION."""
    definitions = _Parts(
        "Definition",
        "name",
        lambda change, where: _definition(change.get("definition"), f"{where}.definition"),
    )
    return _changed(function, changes, "definitions", definitions, f"of the function `{name}`")


def _changed(document: Document, changes: Any, member: str, parts: _Parts, whose: str) -> Document:
    known = dict(document[member])
    changed = document | {member: known, "options": dict(document["options"])}
    for where, change in _changes(changes):
        action = text_of(change, "action", where)
        verb = action.removesuffix(parts.word)
        if verb != action and verb in ("add", "update", "drop"):
            _change_part(known, verb, change, where, parts, whose)
        else:
            _change(changed, action, change, where)
    return changed


def _change_part(
    known: dict[str, Any],
    verb: str,
    change: Mapping[str, Any],
    where: str,
    parts: _Parts,
    whose: str,
) -> None:
    name = text_of(change, parts.key, where)
    kind = parts.word.upper()
    if verb == "add" and name in known:
        message = f"The {kind.lower()} `{name}` {whose} exists already."
        raise already_exists(kind, name, message)
    if verb != "add" and name not in known:
        raise not_found(kind, name, f"There is no {kind.lower()} `{name}` {whose}.")
    if verb == "drop":
        del known[name]
    else:
        known[name] = parts.value(change, where)


def _changes(changes: Any) -> list[tuple[str, Mapping[str, Any]]]:
    found: list[tuple[str, Mapping[str, Any]]] = []
    for position, item in enumerate(sequence_of(changes, "changes")):
        where = f"changes[{position}]"
        found.append((where, mapping_of(item, where)))
    return found


def _change(changed: Document, action: str, change: Mapping[str, Any], where: str) -> None:
    """A change that views and functions have both."""
    match action:
        case "setOption":
            changed["options"][text_of(change, "key", where)] = text_of(change, "value", where)
        case "removeOption":
            changed["options"].pop(text_of(change, "key", where), None)
        case "updateComment":
            changed["comment"] = optional_text(change, "comment", where)
        case _:
            raise bad_request(f"{where}.action is not known: {action}.")


def _definition(document: Any, where: str) -> Document:
    """A `FunctionDefinition`."""
    definition = mapping_of(document, where)
    match text_of(definition, "type", where):
        case "file":
            files = sequence_of(definition.get("fileResources"), f"{where}.fileResources")
            for position, item in enumerate(files):
                file = f"{where}.fileResources[{position}]"
                text_of(mapping_of(item, file), "uri", file)
            text_of(definition, "language", where)
        case "sql":
            text_of(definition, "definition", where)
        case "lambda":
            text_of(definition, "definition", where)
            text_of(definition, "language", where)
        case other:
            raise bad_request(f"{where}.type must be file, sql or lambda, not {other}.")
    return definition


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
