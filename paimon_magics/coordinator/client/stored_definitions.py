"""The views and functions that a catalog keeps, by the documents of Paimon's REST protocol.

`ask` sends a request, with its path below the catalog's, and returns the answer's document. It
raises UnknownNameError for a name that is missing or hidden (404), DefinedAlreadyError for one that
exists already (409), SetupError without the permission.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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

DefinitionKind = Literal["view", "function"]
Document = dict[str, Any]

DEFINED = ("VIEW", "FUNCTION", "DIALECT", "DEFINITION")
"""The resources of which a catalog answers that it has them already."""

_ANSWERED = ("name", "id", "owner", "createdAt", "createdBy", "updatedAt", "updatedBy", "uuid")


class DefinedAlreadyError(StatementError):
    """There is a view or a function of that name, or a view has the dialect."""


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
class StoredDefinitions:
    """The views and functions of one catalog. Names have their databases."""

    ask: Callable[[str, str, Document | None], Any]

    def names(self, kind: DefinitionKind, database: str) -> list[str]:
        """The names in a database that the user may see, in order. None are in a database that
        does not exist."""
        names: list[str] = []
        token = ""
        try:
            while True:
                where = f"?pageToken={quote(token, safe='')}" if token else ""
                answer = self.ask("GET", _folder(kind, database) + where, None)
                names += answer.get(f"{kind}s") or ()
                token = answer.get("nextPageToken") or ""
                if not token:
                    return sorted(names)
        except UnknownNameError:
            return sorted(names)

    def find(self, kind: DefinitionKind, name: TableName) -> Document | None:
        """The document of a view (`GetViewResponse`) or a function (`GetFunctionResponse`)."""
        try:
            document: Document = self.ask("GET", _path(kind, name), None)
        except UnknownNameError:
            return None
        return document

    def create_view(self, name: TableName, schema: Document, *, replaces: bool = False) -> None:
        """Create a view of a `ViewSchema`, or with `replaces` replace the view of that name."""
        identifier = {"database": name.database, "object": name.table}
        self._create("view", name, {"identifier": identifier, "schema": schema}, replaces)

    def create_function(
        self, name: TableName, document: Document, *, replaces: bool = False
    ) -> None:
        """Create a function, or with `replaces` replace the function of that name."""
        self._create("function", name, {"name": name.table, **document}, replaces)

    def _create(
        self, kind: DefinitionKind, name: TableName, body: Document, replaces: bool
    ) -> None:
        folder = _folder(kind, name.database or "")
        try:
            self.ask("POST", folder, body | ({"replace": True} if replaces else {}))
        except DefinedAlreadyError:
            before = self.find(kind, name) if replaces else None
            if before is None:
                raise
            self._replace(kind, name, folder, body, before)

    def _replace(
        self, kind: DefinitionKind, name: TableName, folder: str, body: Document, before: Document
    ) -> None:
        """Drop and create, for a server that does not replace in one step. The earlier definition
        comes back if the new one is refused."""
        self.drop(kind, name)
        try:
            self.ask("POST", folder, body)
        except UnknownOutcomeError:
            raise
        except Exception:
            earlier = body | {key: before[key] for key in before if key not in _ANSWERED}
            self.ask("POST", folder, earlier)
            raise

    def alter(
        self, kind: DefinitionKind, name: TableName, changes: Sequence[Mapping[str, Any]]
    ) -> None:
        """Make all changes (`ViewChange`, `FunctionChange`), or none."""
        self.ask("POST", _path(kind, name), {"changes": list(changes)})

    def rename_view(self, name: TableName, new_name: TableName) -> None:
        """Give a view another name, also in another database."""
        source, destination = (
            {"database": each.database, "object": each.table} for each in (name, new_name)
        )
        self.ask("POST", "/views/rename", {"source": source, "destination": destination})

    def drop(self, kind: DefinitionKind, name: TableName) -> None:
        """Drop a definition. Raises UnknownNameError if there is none."""
        self.ask("DELETE", _path(kind, name), None)


def _folder(kind: DefinitionKind, database: str) -> str:
    return f"/databases/{quote(database, safe='')}/{kind}s"


def _path(kind: DefinitionKind, name: TableName) -> str:
    return f"{_folder(kind, name.database or '')}/{quote(name.table, safe='')}"
