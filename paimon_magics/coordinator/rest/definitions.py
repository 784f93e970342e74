"""The endpoints of views and functions. Engines define them, and use them.

Their documents are Paimon's (`ViewSchema`, `ViewChange`, `CreateFunctionRequest`,
`FunctionDefinition`, `FunctionChange`). Their texts are stored unchanged: only engines and sessions
read them. For a sender with grants, they count as tables of the same name. One member is ours: a
request to create with `replace` replaces what has the name, in one step.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.protocol.principals import Scope, check_right
from paimon_magics.coordinator.rest.endpoints import (
    Call,
    Handler,
    like_filter,
    page,
    require_database,
    safe_name,
)
from paimon_magics.coordinator.rest.errors import (
    RestError,
    already_exists,
    bad_request,
    not_found,
    suppress_missing,
)
from paimon_magics.coordinator.service.definitions import Kind
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


def _view_name(name: str) -> str:
    """Return `name` if a view may have it; else raise 400. `$` is for system tables."""
    if "$" in name:
        raise bad_request(f"`{name}` is not a valid name of a view.")
    return safe_name(name, "view")


def _function_name(name: str) -> str:
    """Return `name` if a function may have it; else raise 400."""
    if not _FUNCTION_NAME.fullmatch(name):
        raise bad_request(
            f"`{name}` is not a valid name of a function: use letters, digits, `.`, `_` and `-`, "
            "with at least one letter."
        )
    return safe_name(name, "function")


def _view_from(body: Mapping[str, Any]) -> Document:
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


def _function_from(body: Mapping[str, Any]) -> Document:
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


def _changed(sort: _Sort, document: Document, changes: Any, name: str) -> Document:
    """The result of an `AlterViewRequest` or `AlterFunctionRequest` for `name`: all of its changes,
    or none. Raises 404 and 409 for the part that a change names.
    """
    parts = dict(document[sort.parts])
    changed = document | {sort.parts: parts, "options": dict(document["options"])}
    for position, item in enumerate(sequence_of(changes, "changes")):
        where = f"changes[{position}]"
        change = mapping_of(item, where)
        action = text_of(change, "action", where)
        verb = action.removesuffix(sort.part)
        if verb != action and verb in ("add", "update", "drop"):
            _change_part(sort, parts, verb, change, where, name)
        else:
            _change(changed, action, change, where)
    return changed


def _change_part(
    sort: _Sort, parts: Document, verb: str, change: Mapping[str, Any], where: str, name: str
) -> None:
    part = text_of(change, sort.part_key, where)
    kind, whose = sort.part.upper(), f"of the {sort.kind} `{name}`"
    if verb == "add" and part in parts:
        message = f"The {kind.lower()} `{part}` {whose} exists already."
        raise already_exists(kind, part, message)
    if verb != "add" and part not in parts:
        raise not_found(kind, part, f"There is no {kind.lower()} `{part}` {whose}.")
    if verb == "drop":
        del parts[part]
    else:
        parts[part] = sort.part_value(change, where)


def _change(changed: Document, action: str, change: Mapping[str, Any], where: str) -> None:
    """A change that both views and functions have."""
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
    """The differences between the endpoints of views and of functions. Their documents have named
    parts in the member `parts`. `part` is in the names of changes, whose member `part_key` names a
    part.
    """

    kind: Kind
    new: Callable[[Any], Document]
    safe: Callable[[str], str]
    parts: str
    part: str
    part_key: str
    part_value: Callable[[Mapping[str, Any], str], Any]

    @property
    def resource(self) -> str:
        return self.kind.name

    def missing(self, name: TableName) -> Exception:
        return not_found(self.resource, str(name))


_VIEWS = _Sort(
    Kind.VIEW,
    _view_from,
    _view_name,
    "dialects",
    "Dialect",
    "dialect",
    lambda change, where: text_of(change, "query", where),
)
_FUNCTIONS = _Sort(
    Kind.FUNCTION,
    _function_from,
    _function_name,
    "definitions",
    "Definition",
    "name",
    lambda change, where: _definition(change.get("definition"), f"{where}.definition"),
)


# ---- one ----


def _get(sort: _Sort, call: Call) -> Any:
    name = _name(sort, call, Scope.READ)
    return _answer(sort, name.table, _load(sort, call, name))


def _create(sort: _Sort, call: Call) -> Any:
    database = call.database()
    name = _name_in_body(sort, call, database)
    call.report(name)
    check_right(call.principal, Scope.ALTER, database, name.table)
    replaces = call.body.get("replace", False)
    if not isinstance(replaces, bool):
        raise bad_request("replace must be true or false.")
    by, at_ms = call.user or "", now_ms()
    document = sort.new(call.body) | {
        "id": str(uuid.uuid4()),
        "owner": by,
        **{"createdAt": at_ms, "createdBy": by, "updatedAt": at_ms, "updatedBy": by},
    }
    with (yield from call.context.changing(name, creates=True, in_order=False)):
        require_database(call.context, database)  # it may have been dropped meanwhile
        created = call.context.definitions.create(sort.kind, name, document, replaces=replaces)
    if not created:
        raise already_exists(sort.resource, str(name))


def _alter(sort: _Sort, call: Call) -> Any:
    name = _name(sort, call, Scope.ALTER)

    def changed(document: Document) -> Document:
        altered = _changed(sort, document, call.body.get("changes"), str(name))
        return altered | {"updatedAt": now_ms(), "updatedBy": call.user or ""}

    with _missing(sort, name):
        call.context.definitions.change(sort.kind, name, changed)


def _drop(sort: _Sort, call: Call) -> Any:
    name = _name(sort, call, Scope.ALTER)
    with _missing(sort, name):
        call.context.definitions.drop(sort.kind, name)


def _rename_view(call: Call) -> Any:
    source = _identifier(call.body.get("source"), "source")
    target = _identifier(call.body.get("destination"), "destination")
    call.report(source, detail=f"to {target}")
    _check_seen(_VIEWS, call, source, Scope.ALTER)
    check_right(call.principal, Scope.ALTER, target.database or "", target.table)
    place = call.context.changing(source, renamed_to=target, in_order=False)
    with (yield from place), _missing(_VIEWS, source):
        require_database(call.context, target.database or "")
        renamed = call.context.definitions.rename(Kind.VIEW, source, target)
    if not renamed:
        raise already_exists("VIEW", str(target))


@contextmanager
def _missing(sort: _Sort, name: TableName) -> Iterator[None]:
    """Answer 404 where the body finds no view or function of that name."""
    try:
        yield
    except UnknownNameError:
        raise sort.missing(name) from None


def _load(sort: _Sort, call: Call, name: TableName) -> Document:
    with _missing(sort, name):
        return call.context.definitions.of(sort.kind, name)


def _answer(sort: _Sort, name: str, document: Document) -> Document:
    """A `GetViewResponse` or a `GetFunctionResponse`."""
    if sort is _FUNCTIONS:
        return {"uuid": document["id"], "name": name} | _without(document, "id")
    schema = {key: document[key] for key in ("fields", "query", "dialects", "comment", "options")}
    return {"name": name, "schema": schema} | _without(document, *schema)


def _without(document: Document, *keys: str) -> Document:
    return {key: value for key, value in document.items() if key not in keys}


# ---- lists ----


def _list_names(sort: _Sort, call: Call) -> Any:
    names, token = page(call.request, _seen(sort, call, call.database()), str)
    return {f"{sort.kind}s": names, "nextPageToken": token}


def _list_details(sort: _Sort, call: Call) -> Any:
    database = call.database()
    names, token = page(call.request, _seen(sort, call, database), str)
    details = []
    for name in names:
        with suppress_missing():  # it was dropped meanwhile
            document = _load(sort, call, TableName(name, database))
            details.append(_answer(sort, name, document))
    return {f"{sort.kind}Details": details, "nextPageToken": token}


def _list_everywhere(sort: _Sort, call: Call) -> Any:
    matches = like_filter(call.request, "databaseNamePattern")
    names = [
        (database, name)
        for database in filter(matches, call.seen_databases())
        for name in _seen(sort, call, database)
    ]
    page_names, token = page(call.request, names, ".".join)
    shown = [{"database": database, "object": name} for database, name in page_names]
    return {f"{sort.kind}s": shown, "nextPageToken": token}


def _seen(sort: _Sort, call: Call, database: str) -> list[str]:
    matches = like_filter(call.request, f"{sort.kind}NamePattern")
    may = call.principal.may_on
    names = call.context.definitions.names(sort.kind, database)
    return [name for name in names if matches(name) and may(Scope.READ, database, name)]


# ---- names ----


def _name(sort: _Sort, call: Call, needed: Scope) -> TableName:
    """The name in the path, if the sender has the permission for the request."""
    name = TableName(call.names["name"], call.database())
    try:
        sort.safe(name.table)
    except RestError:
        raise sort.missing(name) from None
    if needed is not Scope.READ:
        call.report(name)
    _check_seen(sort, call, name, needed)
    return name


def _check_seen(sort: _Sort, call: Call, name: TableName, needed: Scope) -> None:
    """Raise 404 for a name that is hidden from the sender, after the same look at the store, and
    403 without the permission.
    """
    if not call.principal.may_on(Scope.READ, name.database or "", name.table):
        with suppress_missing():
            _load(sort, call, TableName(uuid.uuid4().hex, name.database))
        raise sort.missing(name)
    check_right(call.principal, needed, name.database or "", name.table)


def _name_in_body(sort: _Sort, call: Call, database: str) -> TableName:
    if sort is _FUNCTIONS:
        return TableName(sort.safe(call.text("name")), database)
    name = _identifier(call.body.get("identifier"), "identifier")
    if name.database != database:
        raise bad_request(
            f"The path names the database `{database}` for the new view, but its identifier "
            f"names `{name.database}`."
        )
    return name


def _identifier(document: Any, where: str) -> TableName:
    identifier = mapping_of(document, where)
    return TableName(
        _view_name(text_of(identifier, "object", where)),
        safe_name(text_of(identifier, "database", where), "database"),
    )


def _endpoints(sort: _Sort) -> list[tuple[str, str, Handler]]:
    inside = f"/databases/{{database}}/{sort.kind}s"
    return [
        ("GET", inside, partial(_list_names, sort)),
        ("POST", inside, partial(_create, sort)),
        ("GET", f"/databases/{{database}}/{sort.kind}-details", partial(_list_details, sort)),
        ("GET", f"/{sort.kind}s", partial(_list_everywhere, sort)),
        ("GET", f"{inside}/{{name}}", partial(_get, sort)),
        ("POST", f"{inside}/{{name}}", partial(_alter, sort)),
        ("DELETE", f"{inside}/{{name}}", partial(_drop, sort)),
    ]


DEFINITION_ENDPOINTS: list[tuple[str, str, Handler]] = [
    ("POST", "/views/rename", _rename_view),
    *_endpoints(_VIEWS),
    *_endpoints(_FUNCTIONS),
]
