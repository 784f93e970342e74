"""Read names, bodies and pages from the REST catalog's requests. Invalid ones are answered 400."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar
from urllib.parse import unquote_plus

from starlette.requests import Request

from paimon_magics.coordinator.protocol.json_text import json_value
from paimon_magics.coordinator.rest.errors import RestError, bad_request, not_found
from paimon_magics.planning.formatting import shortened
from paimon_magics.statements.statement import NAME_BYTES_MAX, TableName
from paimon_magics.tables.catalog.rest_documents import mapping_of, text_of

__all__ = [
    "identifier_of",
    "like_filter",
    "object_name",
    "page",
    "path_names",
    "read_body",
    "safe_name",
    "table_name",
    "whole_number",
]

_DIGITS_MAX = 40  # of a number that is read; some have zeros in front

_T = TypeVar("_T")


async def read_body(request: Request) -> dict[str, Any]:
    """The body, which must be a JSON object; an empty one counts as `{}`."""
    raw = await request.body()
    if not raw.strip():
        return {}
    try:
        document = json_value(raw)
    except ValueError as error:
        raise bad_request(f"The body is not JSON: {error}") from error
    return mapping_of(document, "The body")


def path_names(request: Request, template: str) -> dict[str, str]:
    """The names in the path at the template's `{…}`, decoded as the clients encode them (`+` is a
    space). A slash in a name is refused, since it would shift the names after it.
    """
    raw = request.scope.get("raw_path") or request.scope["path"].encode()
    if b"%2f" in raw.lower():
        raise bad_request("A name in the path contains a slash.")
    wanted = template.split("/")
    found = raw.decode("latin-1").split("/")[-len(wanted) :]
    return {
        key[1:-1]: unquote_plus(value)
        for key, value in zip(wanted, found, strict=True)
        if key.startswith("{")
    }


def safe_name(name: str, what: str) -> str:
    """Return `name` if it is safe as a folder's name, and can't lead out of its parent; else raise
    400."""
    if (
        not name
        or len(name.encode(errors="replace")) > NAME_BYTES_MAX
        or name.strip() != name
        or name.startswith(".")
        or set("/\\") & set(name)
        or any(ord(character) < 32 or ord(character) == 127 for character in name)
    ):
        raise bad_request(f"`{name}` is not a valid name of a {what}.")
    return name


def object_name(database: str, name: str) -> TableName:
    """The table of a database and an object name, which may have a branch (`t$branch_b`)."""
    safe_name(database, "database")
    safe_name(name, "table")
    table, *rest = name.split("$")
    branch = None
    if rest and rest[0].startswith("branch_"):
        branch = safe_name(rest.pop(0).removeprefix("branch_"), "branch")
    if rest:
        raise _NoTableError(f"`{name}` is no table: this catalog serves tables and branches only.")
    return TableName(
        safe_name(table, "table"), database, branch=None if branch == "main" else branch
    )


class _NoTableError(RestError):
    def __init__(self, message: str) -> None:
        super().__init__(400, message)


def table_name(names: dict[str, str]) -> TableName:
    """The table that the path names. Raises 404 TABLE for a system table, which clients make of the
    table itself."""
    try:
        return object_name(names["database"], names["table"])
    except _NoTableError as error:
        name = f"{names['database']}.{names['table']}"
        raise not_found("TABLE", name, error.message) from None


def identifier_of(document: Any, where: str) -> TableName:
    """A table from an identifier document, `{"database": …, "object": …}`."""
    identifier = mapping_of(document, where)
    return object_name(text_of(identifier, "database", where), text_of(identifier, "object", where))


def page(
    request: Request, items: Iterable[_T], key: Callable[[_T], str], *, descending: bool = False
) -> tuple[Sequence[_T], str | None]:
    """The page of `items`, in the order of their keys, that the request asks for, and the token of
    the next page.

    A token is the key of a page's last item, so that pages stay right while items come and go.
    Items of one key are on one page.
    """
    token = request.query_params.get("pageToken")
    count = whole_number(request, "maxResults")
    ordered = sorted(items, key=key, reverse=descending)
    comes_after = operator.lt if descending else operator.gt
    left = [item for item in ordered if not token or comes_after(key(item), token)]
    while 0 < count < len(left) and key(left[count]) == key(left[count - 1]):
        count += 1
    if count == 0 or len(left) <= count:
        return left, None
    return left[:count], key(left[count - 1])


def whole_number(request: Request, parameter: str) -> int:
    """The whole number of 64 bits in a query parameter; 0 without it. Raises 400 for another
    text."""
    text = request.query_params.get(parameter)
    if not text:
        return 0
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
        number = int(text)
        if number < 2**63:
            return number
    shown = shortened(text, _DIGITS_MAX)
    raise bad_request(f"'{shown}' is no whole number below 2^63, which is what {parameter} takes.")


def like_filter(request: Request, parameter: str) -> Callable[[str], bool]:
    """A function that tells whether a name is LIKE the pattern in a query parameter. Without the
    parameter every name is. The protocol knows one wildcard, `%`, at the end only: raises 400 where
    it is elsewhere (Paimon's `RESTUtil.validatePrefixSqlPattern`)."""
    pattern = request.query_params.get(parameter)
    if not pattern:
        return lambda name: True
    parts = re.split(r"(\\.|%)", pattern)
    prefix = list(itertools.takewhile(lambda part: part != "%", parts))
    if set(parts[len(prefix) :]) - {"", "%"}:
        raise bad_request(f"A pattern may have % at its end only, unlike '{pattern}'.")
    regex = re.compile("".join(map(_like_part, parts)), re.DOTALL)
    return lambda name: regex.fullmatch(name) is not None


def _like_part(part: str) -> str:
    match part:
        case "%":
            return ".*"
        case _ if len(part) == 2 and part.startswith("\\"):
            return re.escape(part[1])
        case _:
            return re.escape(part)
