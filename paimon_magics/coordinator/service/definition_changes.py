"""Changes of definitions, for sessions and for clients of the REST catalog: creating, altering,
replacing, renaming and dropping tables and databases.

Each change requires the permission; a table that a principal may not see looks like a missing
table. A change is made while no other change uses its names, by a coordinator that owns the
warehouse before and after it, and not in a pause.

**A request that is sent again** because its answer was lost is `repeated`. While this process knows
the outcome of a request, by its id, that is the answer (`RecentChanges`). Else the outcome is read
from the catalog:

- a table to create that exists as it was to be, without a second schema or a snapshot, is created;
- a table to drop that is gone, or was created at another time than the one meant, is dropped;
- a table to rename that is gone, while the table of the new name was created when the one meant
  was, is renamed;
- changes are in the table if they lead from one of its schemas, not before the one on which they
  were planned, to the next;
- a table to replace whose next schema is the one that was sent is replaced; a schema to restore is
  restored if the table has the next one;
- a database to create that exists is created, one to drop that is missing is dropped.

Where none of these holds, the change is made.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from paimon_magics.coordinator.protocol.definition_changes import (
    DatabaseAlteration,
    DatabaseCreation,
    DatabaseDrop,
    DefinitionChange,
    SchemaRestoration,
    TableAlteration,
    TableCreation,
    TableDrop,
    TableRename,
    change_document,
)
from paimon_magics.coordinator.protocol.errors import NothingChangedError, NotTheirsError
from paimon_magics.coordinator.protocol.principals import Principal, Scope, check_right
from paimon_magics.coordinator.runtime.work import Steps
from paimon_magics.coordinator.service.definitions import Kind
from paimon_magics.coordinator.service.replacements import (
    check_replacement,
    is_replacement_done,
    put_back,
    remove_planned,
)
from paimon_magics.coordinator.service.served import Context
from paimon_magics.errors import (
    CommitConflictError,
    InvalidValueError,
    PaimonMagicsError,
    SetupError,
    StatementError,
    TableDamagedError,
    UnknownNameError,
    UnknownOutcomeError,
)
from paimon_magics.faults import reach
from paimon_magics.planning.schemas.alterations import plan_alter_table
from paimon_magics.planning.schemas.replacements import TableReplacement
from paimon_magics.planning.schemas.rules import check_schema
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog, not_empty
from paimon_magics.tables.catalog.detached import Detached
from paimon_magics.tables.catalog.names import check_name
from paimon_magics.tables.manifests.file_paths import external_files
from paimon_magics.tables.schema.history import Definitions as StoredSchemas
from paimon_magics.tables.schema.history import created_at_ms
from paimon_magics.tables.snapshots.latest import latest_snapshot_id
from paimon_magics.tables.writing.bucket_counts import check_altered_count

ANYTHING = Principal(None, Scope.ADMIN)
"""The principal that changes definitions in its own process."""

_log = logging.getLogger(__name__)

_REQUESTS_MAX = 1_000
_DIGEST_BYTES = 16
_REFUSAL_CHARACTERS_MAX = 10_000  # a longer message is not kept: the change is refused again
_SENT_BEFORE = (
    "This statement was sent before, and its answer was lost: it may have been carried out then. "
    "Look at the table before you run it again."
)
_ROUNDS = 20  # of dropping a database's tables while others make new tables


@dataclass(frozen=True, slots=True)
class DefinitionChanges:
    """Makes changes of definitions for one request. `is_engine` allows definitions that only
    engines make; `repeated` says that the request may have been carried out before.
    """

    context: Context
    principal: Principal = ANYTHING
    is_engine: bool = False
    repeated: bool = False

    def make(self, change: DefinitionChange) -> Steps[bool]:
        """Make a change; return whether anything was created, dropped or changed.

        Raises errors of ours: NotTheirsError without the permission, UnknownNameError for a missing
        or hidden object, StatementError and its subclasses for an impossible change. Nothing is
        changed then, but perhaps by an earlier try of a repeated request.
        """
        try:
            return (yield from self._make(change))
        except (StatementError, NothingChangedError) as error:
            # Subclasses of StatementError are about what the change asks, not what is there.
            denies = type(error) is StatementError or isinstance(error, NothingChangedError)
            if self.repeated and denies:
                error.hint = _SENT_BEFORE
            raise

    def _make(self, change: DefinitionChange) -> Steps[bool]:
        match change:
            case TableCreation():
                return (yield from self._create_table(change))
            case TableDrop():
                return (yield from self._drop_table(change))
            case TableRename():
                return (yield from self._rename_table(change))
            case TableAlteration():
                return (yield from self._alter_table(change))
            case TableReplacement():
                return (yield from self._replace_table(change))
            case SchemaRestoration():
                return (yield from self._restore_schema(change))
            case DatabaseCreation():
                return (yield from self._create_database(change))
            case DatabaseAlteration():
                return (yield from self._alter_database(change))
            case DatabaseDrop():
                return (yield from self._drop_database(change))

    @property
    def _catalog(self) -> Catalog:
        """The catalog as the principal sees it."""
        catalog = self.context.catalog
        return catalog if self.principal.is_free else catalog.seen_by(self.principal)

    def _check_writes(self, name: TableName) -> None:
        """Raise NotTheirsError unless the principal may write a table, UnknownNameError if they may
        not see it.
        """
        database, table = name.database or "", name.table
        if not self.principal.sees_table(database, table):
            self._catalog.load(name)  # raises, as for a table that is not there
        check_right(self.principal, Scope.ALTER, database, table)

    def _check_makes(self, name: TableName) -> None:
        """The same for the name of a new table."""
        self._catalog.require_database(name.database or "")
        check_right(self.principal, Scope.ALTER, name.database or "", name.table)
        self._check_no_view(name)

    def _check_no_view(self, name: TableName) -> None:
        """Raise StatementError if a view has a table's new name. What this says stays true for who
        has the name's lock only."""
        if self.context.definitions.exists(Kind.VIEW, name):
            raise StatementError(f"`{name}` is a view.", hint="Choose another name.")

    # ---- tables ----

    def _create_table(self, change: TableCreation) -> Steps[bool]:
        self._check_makes(change.name)
        check_schema(change.schema, from_engine=self.is_engine)
        with (yield from self.context.changing(change.name, creates=True)):
            if self.repeated and self._is_as_created(change):
                return True
            self._check_no_view(change.name)
            return self._catalog.create_table(
                change.name, change.schema, if_not_exists=change.if_not_exists
            )

    def _is_as_created(self, change: TableCreation) -> bool:
        table = self._catalog.find(change.name)
        if table is None or table.schema.schema_id or latest_snapshot_id(table):
            return False
        wanted, stored = change.schema, table.schema
        options = dict(wanted.options).items() <= dict(stored.options).items()
        return options and replace(wanted, options=()) == replace(stored, options=())

    def _drop_table(self, change: TableDrop) -> Steps[bool]:
        name = change.name
        try:
            self._check_writes(name)
        except UnknownNameError:
            if change.if_exists:
                return False
            raise
        try:
            with (yield from self.context.changing(name, drops=True)) as location:
                detached = self._detach(change, location)
        except _StaysError as stays:
            return stays.is_done
        if detached is None:
            return False
        self._delete(name, detached)
        return True

    def _delete(self, name: TableName, detached: Detached | None) -> None:
        """Delete the files of a table whose name is free: others need not wait."""
        try:
            if detached is not None:
                self._catalog.delete_detached(detached)
        except PaimonMagicsError as error:  # `finish_drops` goes on
            _log.warning("The files of `%s` are not deleted yet: %s", name, error)

    def _detach(self, change: TableDrop, location: str | None) -> Detached | None:
        """Detach a table from its name. Raises _StaysError for a table that must not be dropped."""
        name = change.name
        if self.repeated and not self._is_still(name, change.created_at_ms):
            raise _StaysError(is_done=True)
        self._check_is_meant(name, change.created_at_ms)
        if change.only_empty and location and latest_snapshot_id(self._catalog.load(name)) > 0:
            raise _StaysError(is_done=False)
        detached = self._catalog.detach_table(
            name, if_exists=change.if_exists, outside=external_files
        )
        if location is not None:
            self.context.recent.forget(location)
            if self.context.watch is not None:
                self.context.watch.table_dropped(location)
        return detached

    def _check_is_meant(self, name: TableName, created: int | None) -> None:
        """Raise CommitConflictError if a table was created at another time than the one that the
        sender means. A damaged table counts as the one: else nobody could drop it."""
        with contextlib.suppress(TableDamagedError):
            table = None if created is None else self._catalog.find(name)
            if table is not None and created_at_ms(table) not in (None, created):
                raise NothingChangedError(
                    f"`{name}` is another table now: the table that this statement is about was "
                    "dropped or renamed.",
                    "If the statement is meant for the new table, run it again.",
                )

    def _is_still(self, name: TableName, created: int | None) -> bool:
        """Whether a name has a table that was created then; None means any time."""
        if created is None:
            return self._catalog.table_exists(name)
        table = self._catalog.find(name)
        return table is not None and created_at_ms(table) == created

    def _rename_table(self, change: TableRename) -> Steps[bool]:
        source, target = change.name, change.new_name
        is_gone = self.repeated and not self._catalog.table_exists(source)
        if is_gone and self._is_still(target, change.created_at_ms):
            return True
        self._check_writes(source)
        self._check_makes(target)
        with (yield from self.context.changing(source, renamed_to=target)) as location:
            self._check_no_view(target)
            self._check_is_meant(source, change.created_at_ms)
            self._catalog.rename_table(source, target)
            if location is not None:
                self.context.recent.forget(location)
                if self.context.watch is not None:
                    to_location = self._catalog.location_of(target)
                    self.context.watch.table_moved(location, to_location, target)
        return True

    def _alter_table(self, change: TableAlteration) -> Steps[bool]:
        self._check_writes(change.name)
        with (yield from self.context.changing(change.name, alters=True)):
            if self.repeated and self._is_altered(change):
                return True
            table = self._catalog.load(change.name)
            has_snapshots = latest_snapshot_id(table) > 0
            schema = plan_alter_table(table.schema, change.changes, has_snapshots=has_snapshots)
            check_altered_count(table, schema)
            self._catalog.alter_table(change.name, change.changes)
        return True

    def _is_altered(self, change: TableAlteration) -> bool:
        if change.base_schema_id is None:
            return False
        table = self._catalog.load(change.name)
        schemas = StoredSchemas().of(table)
        for id in range(change.base_schema_id, table.schema.schema_id):
            with contextlib.suppress(KeyError, PaimonMagicsError):
                if plan_alter_table(schemas[id], change.changes) == schemas[id + 1]:
                    return True
        return False

    def _replace_table(self, change: TableReplacement) -> Steps[bool]:
        name, context, removal = change.name, self.context, None
        self._check_writes(name)
        check_right(self.principal, Scope.CHANGE, name.database or "", name.table)
        check_schema(change.schema)
        if change.is_dropped:
            return (yield from self._replace_by_new(change))
        try:
            with (yield from context.changing(name, alters=True)):
                table = self._catalog.load(name)
                if self.repeated and is_replacement_done(table.schema, change):
                    return True
                self._check_is_meant(name, change.created_at_ms)
                check_replacement(table, change)
                removal = remove_planned(context, change, self.principal)
                reach("replace.emptied")
                base = change.base_schema_id
                self._catalog.replace_table(name, change.schema, base_schema_id=base)
        except (PaimonMagicsError, OSError) as error:
            if removal is not None and not isinstance(error, UnknownOutcomeError):
                yield from put_back(context, name, removal)
            raise
        return True

    def _restore_schema(self, change: SchemaRestoration) -> Steps[bool]:
        self._check_writes(change.name)
        with (yield from self.context.changing(change.name, alters=True)):
            table = self._catalog.load(change.name)
            if self.repeated and table.schema.schema_id == change.base_schema_id + 1:
                return True
            self._catalog.restore_schema(change.name, change.schema_id, change.base_schema_id)
        return True

    def _replace_by_new(self, change: TableReplacement) -> Steps[bool]:
        """Drop a table, and create another one in its place."""
        name = change.name
        drop = TableDrop(name, created_at_ms=change.created_at_ms)
        if self.repeated and not self._is_still(name, change.created_at_ms):
            creation = TableCreation(name, change.schema)
            return self._is_as_created(creation) or (yield from self._create_table(creation))
        try:
            with (yield from self.context.changing(name, drops=True)) as location:
                with contextlib.suppress(TableDamagedError):
                    table = self._catalog.find(name)
                    if table is not None:
                        self._check_is_meant(name, change.created_at_ms)
                        check_replacement(table, change)
                detached = self._detach(drop, location)
                self._create_in_place(change, detached)
        except _StaysError as stays:
            return stays.is_done
        self._delete(name, detached)
        return True

    def _create_in_place(self, change: TableReplacement, detached: Detached | None) -> None:
        """Create the table that takes the place of a detached one. If that fails, the detached one
        gets its name again, where the store renames folders."""
        try:
            reach("replace.detached")
            self._catalog.create_table(change.name, change.schema)
        except (PaimonMagicsError, OSError) as error:
            if isinstance(error, UnknownOutcomeError) or detached is None:
                raise
            if not self._catalog.put_back(change.name, detached) and isinstance(
                error, PaimonMagicsError
            ):
                error.hint = (
                    f"{error.hint} `{change.name}` was dropped: write CREATE TABLE, no longer "
                    "CREATE OR REPLACE TABLE."
                ).strip()
            raise

    # ---- databases ----

    def _create_database(self, change: DatabaseCreation) -> Steps[bool]:
        name, context = change.name, self.context
        check_right(self.principal, Scope.ALTER, name, None)
        check_name(name, "database")
        with (yield from context.changing(TableName("", name))):
            # `default` counts as existing from the start; engines may make it all the same.
            catalog = self._catalog
            exists = catalog.is_stored(name) if self.is_engine else catalog.database_exists(name)
            if not exists:
                return context.databases.create(name, dict(change.properties))
        if self.repeated or change.if_not_exists:
            return self.repeated
        raise StatementError(
            f"The database `{name}` exists already.",
            hint="Use CREATE DATABASE IF NOT EXISTS, or another name.",
        )

    def _alter_database(self, change: DatabaseAlteration) -> Steps[bool]:
        name, context = change.name, self.context
        check_name(name, "database")
        if not self._catalog.database_exists(name):
            raise self._catalog.unknown_database(name)
        check_right(self.principal, Scope.ALTER, name, None)
        with (yield from context.changing(TableName("", name))):
            context.databases.alter(name, change.removals, dict(change.updates))
        return True

    def _drop_database(self, change: DatabaseDrop) -> Steps[bool]:
        """Tables go one by one, each in its own order with small inserts."""
        name, context = change.name, self.context
        if not self._catalog.database_exists(name):
            if not (change.if_exists or self.repeated):
                raise self._catalog.unknown_database(name)
            return self.repeated
        needed = Scope.ADMIN if change.cascade else Scope.ALTER
        check_right(self.principal, needed, name, None)
        for _ in range(_ROUNDS):
            tables = context.catalog.list_tables(name)
            if not change.cascade:
                self._check_empty(name, tables)
            for table in tables:
                check_right(self.principal, needed, name, table)
            for table in tables:
                yield from self._drop_table(TableDrop(TableName(table, name), if_exists=True))
            with (yield from context.changing(TableName("", name))):
                if not context.catalog.list_tables(name):
                    if not change.cascade:
                        self._check_empty(name, ())
                    context.definitions.drop_all(name)
                    context.databases.drop(name, cascade=change.cascade)
                    return True
        raise CommitConflictError(
            f"The database `{name}` was not dropped: other users are creating tables in it.",
            hint="Run the statement again.",
        )

    def _check_empty(self, name: str, tables: Sequence[str]) -> None:
        """Raise StatementError for a database with tables, views or functions; those that are
        hidden from the principal are not named."""
        if tables:
            raise not_empty(name, self._catalog.list_tables(name))
        for kind in Kind:
            definitions = self.context.definitions.names(kind, name)
            if definitions:
                may = self.principal.may_on
                raise not_empty(name, [d for d in definitions if may(Scope.READ, name, d)], kind)


class _StaysError(Exception):
    """Ends a drop that leaves the table of that name alone; `is_done` if the intended table is
    gone.
    """

    def __init__(self, *, is_done: bool) -> None:
        super().__init__()
        self.is_done = is_done


class RecentChanges:
    """The outcomes of the last requests, by their ids. For any thread.

    A request that is repeated while it is carried out waits for the outcome. Unknown outcomes are
    not kept, nor refusals for a missing permission. For each change, only its digest is kept.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str | None, str], _Request] = OrderedDict()
        self._lock = threading.Lock()

    def once(
        self, principal: Principal, id: str, change: DefinitionChange, make: Steps[bool]
    ) -> Steps[bool]:
        """The outcome of the principal's request with this id; `make` makes it the first time.

        Raises InvalidValueError if the id was given to another change.
        """
        key, digest = (principal.name, id), _digest(change)
        with self._lock:
            known = self._known.get(key)
            if known is None:
                outcome = Future[bool | _Refusal]()
                self._known[key] = _Request(digest, outcome)
                while len(self._known) > _REQUESTS_MAX:
                    self._known.popitem(last=False)
        if known is not None:
            if known.digest != digest:
                raise InvalidValueError(
                    f"The id `{id}` was given to another change.",
                    hint=(
                        "Give each change its own id, and use that id again only to repeat the "
                        "change."
                    ),
                )
            return _answer((yield known.outcome))
        try:
            is_changed = yield from make
        except (StatementError, NotTheirsError) as error:
            is_long = len(error.message) + len(error.hint) > _REFUSAL_CHARACTERS_MAX
            if is_long or isinstance(error, NotTheirsError):
                self._forget(key)
            outcome.set_result(_Refusal(type(error), error.message, error.hint))
            raise
        except BaseException:
            self._forget(key)
            outcome.set_exception(SetupError("Whether the change was made is not known yet."))
            raise
        outcome.set_result(is_changed)
        return is_changed

    def _forget(self, key: tuple[str | None, str]) -> None:
        with self._lock:
            self._known.pop(key, None)


@dataclass(frozen=True, slots=True)
class _Request:
    """The digest of a requested change, and its outcome."""

    digest: bytes
    outcome: Future[bool | _Refusal]


@dataclass(frozen=True, slots=True)
class _Refusal:
    """An error without its references to the refused request."""

    kind: type[StatementError | NotTheirsError]
    message: str
    hint: str


def _digest(change: DefinitionChange) -> bytes:
    content = json.dumps(change_document(change), sort_keys=True).encode()
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _answer(outcome: bool | _Refusal) -> bool:
    if isinstance(outcome, _Refusal):
        raise outcome.kind(outcome.message, hint=outcome.hint)
    return outcome
