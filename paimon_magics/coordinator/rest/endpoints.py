"""What all endpoints of the REST catalog share, and how an endpoint is made of a plain function.

A handler gets the decoded request and returns a JSON value; it runs in a thread, because catalogs
and disks block. It raises errors, which become Paimon's error bodies in one place.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paimon_magics.coordinator.core import Answer, Pause
from paimon_magics.coordinator.http.guard import principal_of
from paimon_magics.coordinator.rest.errors import error_response, not_found
from paimon_magics.coordinator.rest.requests import path_names, read_body
from paimon_magics.coordinator.service.databases import Databases, PropertyStore
from paimon_magics.errors import UnknownNameError
from paimon_magics.planning.publications import Publication
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.stored_tables import StoredTable, load_stored
from paimon_magics.tables.commits.fencing import Fence
from paimon_magics.tables.commits.publishers import Publish
from paimon_magics.tables.commits.rest_commit import RecentCommits
from paimon_magics.tables.manifests.hash_indexes import HashIndexes

__all__ = ["Call", "Context", "Handler", "Order", "Turn", "Turns", "Watch", "endpoint"]


class Watch(Protocol):
    """Told of what is published and taken away; see `Watching`, which is one."""

    def before_change(self, location: str) -> Answer:
        """Have a table looked at before something is published on it."""

    def pause(self) -> Pause | None:
        """Who has let nothing new begin, None when nobody has."""

    def note(self, publication: Publication) -> Answer:
        """Remember what was published, or is going to be now."""

    def not_published(self, publication: Publication) -> Answer:
        """Forget what was going to be published and was not."""

    def chain_cut(self, location: str, branch: str | None, above: int) -> Answer:
        """The snapshots above an id were taken away on purpose."""

    def table_dropped(self, location: str) -> Answer:
        """A table was dropped."""

    def table_moved(
        self, location: str, to_location: str, to: TableName, *, branch: str | None = None
    ) -> Answer:
        """A table was renamed, or one of its branches."""

    def published_by(self, location: str, commit_user: str) -> list[Publication]:
        """What a commit user published to a table, as far as that is kept."""


Turn = Callable[[str], AbstractContextManager[None]]
"""Gives one caller at a time the table at a location; a location is as in `StoredTable`."""


class Order(Protocol):
    """Gives what engines do to a table that takes small inserts its place among these; see
    `GroupCommit`, which is one."""

    def commit(self, name: TableName, who: str) -> AbstractContextManager[Callable[[], None]]:
        """The place of a commit; the given function is called when it is published."""

    def change(
        self, name: TableName, *, takes_away: bool, renamed_to: TableName | None = None
    ) -> AbstractContextManager[None]:
        """The place of what changes a table, or takes away what has its name, maybe giving it
        another one."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the names in its path, its body (an empty one for GET and DELETE), the rest."""

    names: dict[str, str]
    body: dict[str, Any]
    request: Request

    @property
    def user(self) -> str | None:
        """Who sends it, where somebody vouches for that."""
        return principal_of(self.request).name


Handler = Callable[["Context", Call], Any]
"""Does what an endpoint is for and returns its JSON answer, None for an empty one."""


class Turns:
    """A `Turn` for this process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: dict[str, tuple[threading.RLock, int]] = {}

    @contextlib.contextmanager
    def __call__(self, location: str) -> Iterator[None]:
        """Wait for the location, and hold it until the end of the `with` block."""
        with self._guard:
            lock, users = self._waiting.get(location, (threading.RLock(), 0))
            self._waiting[location] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, users = self._waiting[location]
                if users == 1:
                    del self._waiting[location]
                else:
                    self._waiting[location] = lock, users - 1


@dataclass(frozen=True, slots=True)
class Context:
    """The catalog that is served, by what its snapshots are published, and who is told of it.

    `fence` gives the right to change the catalog, as it is at that moment; without it nothing but
    compare-and-swap stands between this and others. `order` is that of small inserts. `properties`
    keeps those of databases where the catalog can't.
    """

    catalog: Catalog
    publish: Publish
    turn: Turn
    prefix: str
    fence: Callable[[], Fence] | None = None
    watch: Watch | None = None
    recent: RecentCommits = field(default_factory=RecentCommits)
    indexes: HashIndexes = field(default_factory=HashIndexes)
    order: Order | None = None
    properties: PropertyStore | None = None

    @property
    def databases(self) -> Databases:
        """The catalog's databases, with their properties."""
        return Databases(self.catalog, self.properties)

    def table(self, name: TableName) -> StoredTable:
        """The table as it is now; 404 TABLE where it, its branch or its database is not there."""
        try:
            return load_stored(self.catalog, name)
        except UnknownNameError as error:
            raise not_found("TABLE", f"{name.database}.{name.object_name}", str(error)) from None

    @contextlib.contextmanager
    def commit_in_order(self, table: StoredTable, who: str) -> Iterator[Callable[[], None]]:
        """What a commit of `who` does in the `with` block follows all small inserts that were
        acknowledged before. See `Order.commit`."""
        if self._takes_inserts(table):
            assert self.order is not None
            with self.order.commit(table.name, who) as published:
                yield published
        else:
            yield lambda: None

    @contextlib.contextmanager
    def change_in_order(
        self, table: StoredTable, *, takes_away: bool = False, renamed_to: TableName | None = None
    ) -> Iterator[None]:
        """The same for what changes a table, or takes away what has its name."""
        if self._takes_inserts(table):
            assert self.order is not None
            with self.order.change(table.name, takes_away=takes_away, renamed_to=renamed_to):
                yield
        else:
            yield

    def _takes_inserts(self, table: StoredTable) -> bool:
        return (
            self.order is not None
            and table.name.branch is None
            and table.options.get("auto_batch_load", "").lower() == "true"
        )

    def require_database(self, database: str) -> None:
        """404 DATABASE where it is not there."""
        if not self.catalog.database_exists(database):
            raise not_found("DATABASE", database)


def endpoint(context: Context, method: str, template: str, handler: Handler) -> Route:
    """A route that answers `method` on `template` by the handler."""

    async def answer(request: Request) -> Response:
        try:
            names = path_names(request, template)
            body = await read_body(request) if method == "POST" else {}
            work = handler if method == "GET" else _fenced(handler)
            result = await run_in_threadpool(work, context, Call(names, body, request))
        except Exception as error:
            return error_response(error)
        return JSONResponse({} if result is None else result)

    return Route(template, answer, methods=[method])


def _fenced(handler: Handler) -> Handler:
    """Nothing is changed, and no change acknowledged, by who does not own the warehouse."""

    def answer(context: Context, call: Call) -> Any:
        if context.fence is None:
            return handler(context, call)
        context.fence()
        result = handler(context, call)
        context.fence().check()
        return result

    return answer
