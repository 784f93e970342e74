"""The catalog: databases and tables of one warehouse, through pypaimon, with this project's errors.

`Catalog.open` checks the options and the warehouse and writes nothing. The first database or table
creates a new warehouse's folder. The database `default` can always be used; it is created on
demand. Schemas are validated before they are stored (`planning`), as pypaimon checks little.
Nothing is cached: `load` reads the table's newest schema each time. If the process dies while it
drops a table, the table is no longer visible, and `detached` finds its remaining files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from pypaimon.catalog import catalog_exception as missing
from pypaimon.schema.schema_manager import SchemaManager
from pypaimon.schema.table_schema import TableSchema as StoredSchema

from paimon_magics.errors import (
    CommitConflictError,
    InvalidTableError,
    PaimonMagicsError,
    StatementError,
    TableDamagedError,
    UnknownOutcomeError,
    UnsupportedStatementError,
)
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.schemas.alterations import plan_alteration
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.table_changes import TableChange
from paimon_magics.tables.catalog.detached import Detached, DroppedFolders, remove_remains
from paimon_magics.tables.catalog.lookup import Lookup
from paimon_magics.tables.catalog.names import (
    check_new_table,
    database_of,
    first_line,
    identifier,
    shown,
)
from paimon_magics.tables.pypaimon_internals import forget_table, sync_table_properties
from paimon_magics.tables.schema.alterations import altered_schema, schema_changes
from paimon_magics.tables.schema.history import publish_schema
from paimon_magics.tables.schema.new_schemas import new_schema, schema_after, schema_again
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.stores.store import store_errors
from paimon_magics.tables.table import Table

_log = logging.getLogger(__name__)
_ALTER_ATTEMPTS = 10

_Outside = Callable[[Table], Sequence[str]]
"""Gives the paths of the files that a table has outside its folder."""


def _nothing(table: Table) -> Sequence[str]:
    return ()


class Catalog(Lookup):
    """The databases and tables of one warehouse. Open it with `Catalog.open`."""

    def create_table(
        self, name: TableName, table_schema: TableSchema, *, if_not_exists: bool = False
    ) -> bool:
        """Create a table whose schema `check_schema` has accepted; return whether it was created.

        If the table exists, return False with `if_not_exists`, else raise StatementError. Of two
        concurrent calls only one creates it.
        """
        check_new_table(name)
        self.require_database(database_of(name))
        if self.table_exists(name):
            return self._exists_already(name, if_not_exists)
        if table_schema.stored_option("path") is not None and self.metastore != "rest":
            raise UnsupportedStatementError(
                f"A {self.metastore} catalog puts tables into its warehouse: `{shown(name)}` "
                "can't have a location of its own.",
                hint="Leave out LOCATION and the option 'path'.",
            )
        self.make_database_folder(database_of(name))
        if self.metastore != "rest":
            location = str(self.paimon.get_table_path(identifier(name)))
            with store_errors(f"The creation of `{shown(name)}`"):
                self._dropped().wait_for_name(shown(name), location)
        schema = new_schema(table_schema)
        if self.metastore == "filesystem":
            manager = self.schema_manager(name)
            if self._publish_schema(name, manager, StoredSchema.from_schema(0, schema)):
                return True
            return self._exists_already(name, if_not_exists)
        try:
            self.call(lambda: self.paimon.create_table(identifier(name), schema, False))
        except missing.TableAlreadyExistException:
            return self._exists_already(name, if_not_exists)
        return True

    def replace_table(
        self, name: TableName, table_schema: TableSchema, *, base_schema_id: int | None = None
    ) -> None:
        """Publish `table_schema` as the table's next schema, in place of the present one; not for a
        rest catalog. The caller has removed the table's rows.

        Raises CommitConflictError if the present schema is not `base_schema_id`, and if it changes
        again and again.
        """
        manager = self.schema_manager(name)
        for _ in range(_ALTER_ATTEMPTS):
            table = self.load(name)
            if base_schema_id not in (None, table.schema.schema_id):
                break
            schema = schema_after(table, table_schema)
            if self._publish_schema(name, manager, schema):
                if self.metastore == "jdbc":
                    sync_table_properties(self.paimon, identifier(name), schema)
                return
        raise self._changed_meanwhile(name)

    def restore_schema(self, name: TableName, schema_id: int, base_schema_id: int) -> None:
        """Publish the table's earlier schema `schema_id` again, as its next one; not for a rest
        catalog. Its columns keep their ids, so that files of that schema are read as before.

        Raises CommitConflictError if the present schema is not `base_schema_id`.
        """
        manager = self.schema_manager(name)
        table = self.load(name)
        if table.schema.schema_id == base_schema_id:
            schema = schema_again(table, schema_id)
            if self._publish_schema(name, manager, schema):
                if self.metastore == "jdbc":
                    sync_table_properties(self.paimon, identifier(name), schema)
                return
        raise self._changed_meanwhile(name)

    def rename_table(self, name: TableName, new_name: TableName) -> None:
        """Rename a table, also into another database.

        Raises StatementError if there is a table of the new name, InvalidTableError if the name
        can't be used or its folder exists, UnsupportedStatementError for a branch and for a table
        in a store that can't rename folders.
        """
        if name.branch is not None:
            raise UnsupportedStatementError(
                f"`{shown(name)}` is a branch: it can't be renamed as a table.",
                hint="Rename the table itself.",
            )
        table = self.load(name)
        if self.metastore != "rest" and not table.store.renames_folders:
            raise UnsupportedStatementError(
                f"`{shown(name)}` can't be renamed: its store can't rename a folder in one step.",
                hint="Create a table of the new name, and fill it with INSERT INTO … SELECT.",
            )
        check_new_table(new_name)
        self.require_database(database_of(new_name))
        if self.table_exists(new_name):
            self._exists_already(new_name, False)
        self.make_database_folder(database_of(new_name))
        if self.metastore != "rest":
            # pypaimon would move the table into a folder that is already there.
            path = self.paimon.get_table_path(identifier(new_name))
            remove_remains(self.stores.of(path), path)
            if self.paimon.file_io.exists(path):
                raise InvalidTableError(
                    f"`{shown(name)}` can't become `{shown(new_name)}`: {path} exists already.",
                    hint="Choose another name, or move that folder away.",
                )
        self.call(lambda: self.paimon.rename_table(identifier(name), identifier(new_name)))
        if not self.table_exists(new_name):
            raise StatementError(
                f"`{shown(name)}` could not be renamed to `{shown(new_name)}`.",
                hint="Check the permissions on the warehouse folder.",
            )

    def alter_table(self, name: TableName, changes: Sequence[TableChange]) -> Table:
        """Change a table's columns and options; return the changed table.

        Several changes become one new schema. A change without effect stores nothing. If another
        writer changes the table meanwhile, the changes are planned again on the new schema. Raises
        ValueError for RenameTable and DropPartitions, which do not change a schema.
        """
        for _ in range(_ALTER_ATTEMPTS):
            table = self.load(name)
            has_snapshots = latest_snapshot(table.paimon) is not None
            alteration = plan_alteration(table.schema, changes, has_snapshots=has_snapshots)
            if not alteration.changes:
                return table
            if self.metastore == "rest":
                to_send = schema_changes(alteration.changes, for_rest=True)
                self.call(partial(self.paimon.alter_table, identifier(name), to_send))
                return self.load(name)
            manager = self.schema_manager(name)
            schema = altered_schema(manager, table.paimon.table_schema, alteration)
            if self._publish_schema(name, manager, schema):
                if self.metastore == "jdbc":
                    sync_table_properties(self.paimon, identifier(name), schema)
                return self.load(name)
        raise self._changed_meanwhile(name)

    def publish(self, path: str, content: bytes) -> bool:
        """Create a file of a table's metadata if it is absent; return whether this very call did.

        False means that the path existed, with certainty. When it returns, content and name are
        durable. Raises UnsupportedStatementError for a store where that can't be relied on,
        SetupError where certainly nothing was created, OSError where that is unknown.
        """
        return self.stores.publish(path, content)

    def _changed_meanwhile(self, name: TableName) -> CommitConflictError:
        return CommitConflictError(
            f"`{shown(name)}` was not changed: other writers changed its definition first.",
            hint="Run the statement again.",
        )

    def _publish_schema(
        self, name: TableName, manager: SchemaManager, schema: StoredSchema
    ) -> bool:
        try:
            return publish_schema(self.stores, manager, schema)
        except OSError as error:
            raise UnknownOutcomeError(
                f"Whether `{shown(name)}` was stored is unknown: {first_line(error)}",
                hint=f"Check it with DESCRIBE {shown(name)} before running the statement again.",
            ) from error

    def _exists_already(self, name: TableName, if_not_exists: bool) -> bool:
        if if_not_exists:
            return False
        raise StatementError(
            f"The table `{shown(name)}` exists already.",
            hint="Use CREATE TABLE IF NOT EXISTS, drop the table first, or choose another name.",
        )

    # ---- dropping: out of the names first, then the files (module `detached`) ----

    def drop_table(
        self, name: TableName, *, if_exists: bool = False, outside: _Outside = _nothing
    ) -> bool:
        """Drop a table with all its branches and files, even if the table is damaged. Return False
        if there was none and `if_exists` is given; raise UnknownNameError without it.

        `outside` returns the table's files outside its folder.
        """
        detached = self.detach_table(name, if_exists=if_exists, outside=outside)
        if detached is None:
            return False
        self.delete_detached(detached)
        return True

    def detach_table(
        self, name: TableName, *, if_exists: bool = False, outside: _Outside = _nothing
    ) -> Detached | None:
        """The first half of `drop_table`: when it returns, no engine sees the table, and its name
        is free. `delete_detached` deletes its files. None if `drop_table` returns False."""
        if name.branch is not None:
            raise UnsupportedStatementError(
                f"`{shown(name)}` is a branch: it can't be dropped as a table.",
                hint="Delete the branch by CALL sys.delete_branch.",
            )
        if not self._is_stored(name):
            if if_exists and not name.system_table:
                return None
            self.load(name)  # says what is missing
        if self.metastore == "rest":
            self.call(lambda: self.paimon.drop_table(identifier(name), False))
            return Detached(shown(name), "", "", True)
        location = str(self.paimon.get_table_path(identifier(name)))
        elsewhere = self._outside(name, outside)
        with store_errors(f"The drop of `{shown(name)}`"):
            detached = self._dropped().detach(shown(name), location, elsewhere)
        if self.metastore == "jdbc":
            self.call(lambda: forget_table(self.paimon, identifier(name)))
        return detached or Detached(shown(name), location, "", True)

    def put_back(self, name: TableName, detached: Detached) -> bool:
        """Give a detached table its name again; return False where that is not possible, or where
        the name is taken. Then its files are still to be deleted."""
        if self.metastore != "filesystem" or not detached.is_moved or not detached.path:
            return False
        return not self.table_exists(name) and self._dropped().put_back(detached)

    def delete_detached(self, detached: Detached) -> None:
        """Delete the files of a detached table. Any process can repeat the call."""
        if detached.path:
            with store_errors(f"The deletion of the files of `{detached.label}`"):
                self._dropped().delete(detached)

    def detached(self) -> list[Detached]:
        """The tables that this process or a dead process detached but didn't delete."""
        if self.metastore == "rest":
            return []
        with store_errors("The search for dropped tables"):
            return self._dropped().left()

    def finish_drops(self) -> int:
        """Delete the files of dropped tables that dead processes left behind. Return the number of
        remaining tables: another process may still be dropping them, or they can't be deleted,
        which logs a warning."""
        left = 0
        for detached in self.detached():
            try:
                if self._dropped().is_settled(detached):
                    self.delete_detached(detached)
                else:
                    left += 1
            except PaimonMagicsError as error:
                _log.warning(
                    "Remaining files of `%s` could not be deleted: %s", detached.label, error
                )
                left += 1
        return left

    def drop_database(
        self,
        database: str,
        *,
        if_exists: bool = False,
        cascade: bool = False,
        outside: _Outside = _nothing,
    ) -> None:
        """Drop a database, and with `cascade` also its tables. `outside` as in `drop_table`.

        Raises UnknownNameError if there is none, unless `if_exists`; StatementError if it has
        tables, unless `cascade`, and if it has hidden tables; CommitConflictError if a table is
        created in it during the drop.
        """
        if not self.database_exists(database):
            if not if_exists:
                raise self.unknown_database(database)
            return
        every, tables = self.all_tables(database), self.list_tables(database)
        if (every and not cascade) or len(every) > len(tables):
            raise not_empty(database, tables)
        for table in tables if self.metastore != "rest" else ():
            self.drop_table(TableName(table, database), if_exists=True, outside=outside)
        if not self.is_stored(database):
            return
        if self.metastore == "filesystem":
            self._drop_folder(database)
        else:
            with_tables = cascade and self.metastore == "rest"
            self.call(lambda: self.paimon.drop_database(database, True, with_tables))

    def _drop_folder(self, database: str) -> None:
        """Drop a database without tables: its folder and everything else in the folder."""
        dropped, folder = self._dropped(), self.database_folder(database)
        if self.all_tables(database):
            raise _filled(database)
        with store_errors(f"The drop of the database `{database}`"):
            if not self.stores.of(folder).renames_folders:
                if not dropped.delete_database(folder):
                    raise _filled(database)
                if self.is_stored(database):
                    if self.all_tables(database):
                        raise _filled(database)
                    # Only marks of folders remain, including those of dropped tables.
                    self.call(lambda: self.paimon.file_io.delete(folder, True))
                return
            detached = dropped.detach(database, folder, is_database=True)
            if detached is None:
                return
            if dropped.has_tables(detached):
                dropped.put_back(detached)
                raise _filled(database)
        self.delete_detached(detached)

    def _is_stored(self, name: TableName) -> bool:
        if self.table_exists(name):
            return True
        if self.metastore != "jdbc" or name.system_table or not self.is_stored(database_of(name)):
            return False
        # A drop that was cut short: the table's row is there, and its folder is not.
        return name.table in self.call(lambda: self.paimon.list_tables(database_of(name)))

    def _outside(self, name: TableName, outside: _Outside) -> list[str]:
        """The files of a table outside its folder; [] if the table is too damaged to list them: it
        is dropped anyway."""
        try:
            table = self.find(name)
            return [] if table is None else [p for p in outside(table) if table.paths.allows(p)]
        except Exception as error:
            if isinstance(error, PaimonMagicsError) and not isinstance(error, TableDamagedError):
                raise
            _log.warning("Files of `%s` outside its folder may remain: %s", shown(name), error)
            return []

    def _dropped(self) -> DroppedFolders:
        return DroppedFolders(self.stores, self.warehouse)


def not_empty(database: str, inside: Sequence[str], kind: str = "table") -> StatementError:
    """The error for a database that can't be dropped because of its tables, or of other things of a
    `kind` that are `inside`."""
    names = ", ".join(f"`{name}`" for name in inside[:5])
    some = f"{count_text(len(inside), kind)} ({names}{', …' if inside[5:] else ''})"
    return StatementError(
        f"The database `{database}` is not empty: it has {some if inside else f'{kind}s'}.",
        hint=f"Drop its {kind}s first, or use DROP DATABASE … CASCADE.",
    )


def _filled(database: str) -> CommitConflictError:
    return CommitConflictError(
        f"The database `{database}` was not dropped: a table was created in it during the drop.",
        hint="Run the statement again.",
    )
