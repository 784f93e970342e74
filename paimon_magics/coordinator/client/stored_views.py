"""The views and functions that a catalog keeps, by the documents of Paimon's REST protocol.

`ask` sends a request, with its path below the catalog's, and returns the answer's document. It
raises UnknownNameError for a name that is missing or hidden (404), DefinedAlreadyError for one that
exists already (409), SetupError without the permission.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import quote

from paimon_magics.errors import (
    PaimonMagicsError,
    SetupError,
    StatementError,
    UnknownNameError,
    UnknownOutcomeError,
    UnsupportedStatementError,
)
from paimon_magics.statements.statement import TableName

Document = dict[str, Any]

DEFINED = ("VIEW", "FUNCTION", "DIALECT", "DEFINITION")
"""The resources of which a catalog answers that it has them already."""

_ANSWERED = ("name", "id", "owner", "createdAt", "createdBy", "updatedAt", "updatedBy", "uuid")


class DefinedAlreadyError(StatementError):
    """There is a view or function of that name, or it has the dialect or definition."""


def refusal(status: int, message: str, resource: str) -> PaimonMagicsError:
    """The error in an answer of a REST catalog that has a status other than 200."""
    match status:
        case 404:
            return UnknownNameError(message)
        case 409 if resource in DEFINED:
            return DefinedAlreadyError(message, hint="Choose another name.")
        case 400 | 409:
            return StatementError(message)
        case 501:
            return UnsupportedStatementError(message)
        case _:
            return SetupError(message)


@dataclass(frozen=True, slots=True)
class StoredViews:
    """The views of one catalog, or its functions. Names have their databases."""

    ask: Callable[[str, str, Document | None], Any]
    kind: Literal["view", "function"] = "view"

    @property
    def functions(self) -> StoredViews:
        """The functions of the same catalog."""
        return replace(self, kind="function")

    def names(self, database: str) -> list[str]:
        """The names in a database that the user may see, in order. None are in a database that
        does not exist."""
        names: list[str] = []
        token = ""
        try:
            while True:
                where = f"?pageToken={quote(token, safe='')}" if token else ""
                answer = self.ask("GET", self._folder(database) + where, None)
                names += answer.get(f"{self.kind}s") or ()
                token = answer.get("nextPageToken") or ""
                if not token:
                    return sorted(names)
        except UnknownNameError:
            return sorted(names)

    def find(self, name: TableName) -> Document | None:
        """The document of a view (`GetViewResponse`) or function (`GetFunctionResponse`)."""
        try:
            document: Document = self.ask("GET", self._path(name), None)
        except UnknownNameError:
            return None
        return document

    def create(self, name: TableName, schema: Document, *, replaces: bool = False) -> None:
        """Create a view of a `ViewSchema`, or a function of the members of a
        `CreateFunctionRequest`; with `replaces` replace what has the name."""
        identifier = {"database": name.database, "object": name.table}
        body: Document = {"identifier": identifier, "schema": schema}
        if self.kind == "function":
            body = {"name": name.table} | schema
        folder = self._folder(name.database or "")
        try:
            self.ask("POST", folder, body | ({"replace": True} if replaces else {}))
        except DefinedAlreadyError:
            before = self.find(name) if replaces else None
            if before is None:
                raise
            self._replace(name, folder, body, before)

    def _replace(self, name: TableName, folder: str, body: Document, before: Document) -> None:
        """Drop and create, for a server that does not replace in one step. The earlier definition
        comes back if the new one is refused."""
        self.drop(name)
        try:
            self.ask("POST", folder, body)
        except UnknownOutcomeError:
            raise
        except Exception:
            earlier = body | {key: before[key] for key in before if key not in _ANSWERED}
            self.ask("POST", folder, earlier)
            raise

    def alter(self, name: TableName, changes: Sequence[Mapping[str, Any]]) -> None:
        """Make all changes (`ViewChange`, `FunctionChange`), or none."""
        self.ask("POST", self._path(name), {"changes": list(changes)})

    def rename(self, name: TableName, new_name: TableName) -> None:
        """Give a view another name, also in another database."""
        source, destination = (
            {"database": each.database, "object": each.table} for each in (name, new_name)
        )
        self.ask("POST", "/views/rename", {"source": source, "destination": destination})

    def drop(self, name: TableName) -> None:
        """Drop a view or function. Raises UnknownNameError if there is none."""
        self.ask("DELETE", self._path(name), None)

    def _folder(self, database: str) -> str:
        return f"/databases/{_segment(database)}/{self.kind}s"

    def _path(self, name: TableName) -> str:
        return f"{self._folder(name.database or '')}/{_segment(name.table)}"


def _segment(name: str) -> str:
    """A name as a segment of a path. Clients take `.` and `..` for folders, however they are
    encoded, and would name something else."""
    if name in (".", ".."):
        raise UnknownNameError(f"No view, function or database can be named `{name}`.")
    return quote(name, safe="")
