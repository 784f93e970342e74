"""The documents of views and functions: what a request creates, and what its changes make of it.

They are Paimon's (`ViewSchema`, `ViewChange`, `CreateFunctionRequest`, `FunctionDefinition`,
`FunctionChange`). Engines alone read the texts in them, so that those are kept as they came.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paimon_magics.coordinator.rest.errors import already_exists, bad_request, not_found
from paimon_magics.coordinator.rest.requests import safe_name
from paimon_magics.tables.catalog.rest_documents import (
    check_fields,
    mapping_of,
    optional_text,
    sequence_of,
    string_map,
    text_of,
)

__all__ = [
    "changed_function",
    "changed_view",
    "function_from",
    "function_name",
    "view_from",
    "view_name",
]

Document = dict[str, Any]

# Paimon's RESTFunctionValidator.
_FUNCTION_NAME = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9._-]+")


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
