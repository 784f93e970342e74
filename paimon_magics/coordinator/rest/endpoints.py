"""What all endpoints of the REST catalog share, and how a route is made from a handler.

A handler gets the decoded request and returns a JSON value, or steps that return a value (see
`runtime.interface`). It runs in a thread, because catalogs and disks block; a wait between two
steps occupies no thread. Its errors become Paimon's error bodies in one place.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import operator
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import unquote_plus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from paimon_magics.coordinator.http.answers import JSONResponse
from paimon_magics.coordinator.http.audited import report
from paimon_magics.coordinator.http.authorisation import SCOPES
from paimon_magics.coordinator.http.guard import principal_of
from paimon_magics.coordinator.http.limits import run_steps
from paimon_magics.coordinator.protocol.json_text import json_value
from paimon_magics.coordinator.protocol.principals import Principal, Scope, check_right
from paimon_magics.coordinator.protocol.visibility import check_table
from paimon_magics.coordinator.rest.errors import (
    RestError,
    bad_request,
    error_response,
    not_found,
    not_offered,
)
from paimon_magics.coordinator.runtime.work import Steps
from paimon_magics.coordinator.service.served import Context
from paimon_magics.errors import UnknownNameError
from paimon_magics.planning.formatting import shortened
from paimon_magics.planning.options.rules import check_option_key
from paimon_magics.statements.statement import NAME_BYTES_MAX, TableName
from paimon_magics.tables.catalog.rest_documents import (
    integer_of,
    mapping_of,
    optional_text,
    text_of,
)
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.table import StoredTable

_log = logging.getLogger(__name__)

_BODY = "The body"
_DIGITS_MAX = 40  # of a number that is read; some have zeros in front

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Call:
    """One request to a catalog: the names in its path, its body (empty for GET and DELETE), and the
    rest."""

    context: Context
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
        return self.principal.name

    @property
    def name(self) -> TableName:
        """The table that the path names. Raises 404 TABLE for a system table: clients derive those
        from the table itself."""
        database, table = self.names["database"], self.names["table"]
        try:
            return object_name(database, table)
        except _NoTableError as error:
            raise not_found("TABLE", f"{database}.{table}", error.message) from None

    def table(self) -> StoredTable:
        """The table that the path names, loaded. Raises as `table_of` does."""
        return table_of(self.context, self.name)

    def database(self) -> str:
        """The database that the path names. Raises 404 DATABASE if it does not exist."""
        name = safe_name(self.names["database"], "database")
        require_database(self.context, name)
        return name

    def seen_databases(self) -> list[str]:
        """The databases of which the sender may read something."""
        return list(filter(self.principal.sees_database, self.context.catalog.stored_databases()))

    def seen_tables(self, database: str) -> list[str]:
        """The tables of a database that the sender may read."""
        may = self.principal.may_on
        names = self.context.catalog.list_tables(database)
        return [name for name in names if may(Scope.READ, database, name)]

    def require_right(self, needed: Scope, name: TableName) -> None:
        """Raise 404 TABLE for a table that is hidden from the sender, NotTheirsError (403) if they
        lack a scope on it.
        """
        try:
            check_table(self.principal, needed, name, partial(load_stored, self.context.catalog))
        except UnknownNameError:
            message = f"There is no table `{name}`."
            raise not_found("TABLE", f"{name.database}.{name.object_name}", message) from None

    def text(self, key: str) -> str:
        """A member of the body that is a text. Raises 400."""
        return text_of(self.body, key, _BODY)

    def optional_text(self, key: str) -> str | None:
        """A member of the body that may be missing."""
        return optional_text(self.body, key, _BODY)

    def integer(self, key: str) -> int:
        """A member of the body that is a whole number. Raises 400."""
        return integer_of(self.body, key, _BODY)

    def report(self, name: TableName, **facts: Any) -> None:
        """Report to the audit log which table the request is about; with "" as the table's name,
        which database.
        """
        table = name.object_name or None
        report(self.request.scope, **{"database": name.database, "table": table, **facts})


Handler = Callable[[Call], Any]
"""Carries out a call and returns its JSON answer, None for an empty answer; or steps that do so."""


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


def endpoint(context: Context, method: str, template: str, handler: Handler) -> Route:
    """A route that answers `method` on the path `template` by the handler."""

    async def answer(request: Request) -> Response:
        try:
            names = _path_names(request, template)
            body = await _read_body(request) if method == "POST" else {}
            call = Call(context, names, body, request)
            result = await run_steps(_steps(handler, call, f"{method} {template}"))
        except ClientDisconnect:
            raise  # no client waits for an answer
        except Exception as error:
            return error_response(error)
        return JSONResponse({} if result is None else result)

    return Route(template, answer, methods=[method])


def refusing(what: str, check: Handler) -> Handler:
    """A handler of an unsupported request. `check` raises 404 if the name in the path does not
    exist: clients distinguish 404 and 501.
    """

    def handler(call: Call) -> Any:
        check(call)
        raise not_offered(what)

    return handler


def _steps(handler: Handler, call: Call, which: str) -> Steps[Any]:
    """The steps of a handler, after checking the sender's permissions. Changes are made and
    acknowledged only while this coordinator owns the warehouse.
    """
    if not call.principal.is_free:
        _check_rights(call, which)
    fence = None if which.startswith("GET ") else call.context.fence
    if fence is not None:
        fence()
    result = handler(call)
    if inspect.isgenerator(result):
        result = yield from result
    if fence is not None:
        fence().check()
    return result


def _check_rights(call: Call, which: str) -> None:
    """Check that a sender with grants may see the table or database in the path, and may change it
    if the endpoint changes it.
    """
    needed = SCOPES[which]
    database, table = call.names.get("database"), call.names.get("table")
    if database is not None and table is not None:
        call.require_right(needed, TableName(table, database))
    elif database is not None:
        if not call.principal.sees_database(database):
            call.context.catalog.database_exists(uuid.uuid4().hex)  # it takes as long
            raise not_found("DATABASE", database)
        if which.endswith("{database}") and needed is not Scope.READ:
            check_right(call.principal, needed, database, None)


_OPTIONS_LOOKED_AT = 200  # a comparison of one with all known keys takes a millisecond


def warn_of_spelling(name: TableName, options: Iterable[tuple[str, str]]) -> None:
    """Log a warning for each of the first options of a table that looks mistyped. Engines have
    options that are not known here, so a REST catalog keeps unknown options.
    """
    for key, _ in islice(options, _OPTIONS_LOOKED_AT):
        try:
            check_option_key(key)
        except UnknownNameError as error:
            _log.warning("The option '%s' of %s looks mistyped. %s", key, name, error.hint)


async def _read_body(request: Request) -> dict[str, Any]:
    """The body, which must be a JSON object; an empty one counts as `{}`."""
    raw = await request.body()
    if not raw.strip():
        return {}
    try:
        document = json_value(raw)
    except ValueError as error:
        raise bad_request(f"The body is not JSON: {error}") from error
    return mapping_of(document, _BODY)


def _path_names(request: Request, template: str) -> dict[str, str]:
    """The names in the path at the template's `{…}`, decoded as the clients encode them (`+` is a
    space). A slash in a name is refused, since it would shift the names after it."""
    raw = request.scope.get("raw_path") or request.scope["path"].encode()
    if b"%2f" in raw.lower():
        raise bad_request("A name in the path contains a slash.")
    wanted = template.split("/")
    parts = raw.decode("latin-1").split("/")[-len(wanted) :]
    return {
        key[1:-1]: unquote_plus(part)
        for key, part in zip(wanted, parts, strict=True)
        if key.startswith("{")
    }


def safe_name(name: str, what: str) -> str:
    """Return `name` if it is safe as a folder's name, and can't lead out of its parent; else raise
    400.
    """
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
        raise _NoTableError(
            f"`{name}` is not a table: this catalog serves tables and branches only."
        )
    return TableName(
        safe_name(table, "table"), database, branch=None if branch == "main" else branch
    )


class _NoTableError(RestError):
    def __init__(self, message: str) -> None:
        super().__init__(400, message)


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
    raise bad_request(f"'{shown}' is not a whole number below 2^63, which {parameter} requires.")


def like_filter(request: Request, parameter: str) -> Callable[[str], bool]:
    """A function that returns whether a name is LIKE the pattern in a query parameter. Without the
    parameter every name matches. The protocol has one wildcard, `%`, at the end only: raises 400 if
    it is elsewhere (Paimon's `RESTUtil.validatePrefixSqlPattern`).
    """
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
    is_escaped = len(part) == 2 and part.startswith("\\")
    return ".*" if part == "%" else re.escape(part[1] if is_escaped else part)
