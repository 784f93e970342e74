"""The catalog: databases and tables of one warehouse, through pypaimon, with this project's errors.

`Catalog.open` checks the options and the warehouse and writes nothing. The first database or table
creates a new warehouse's folder. The database `default` can always be used; it is created on
demand. Schemas are validated before they are stored (`planning`), as pypaimon checks little.
Nothing is cached: `load` reads the table's newest schema each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pypaimon.catalog import catalog_exception as missing
from pypaimon.schema.schema import Schema
from pypaimon.schema.schema_manager import SchemaManager
from pypaimon.schema.table_schema import TableSchema as StoredSchema

from paimon_magics.errors import (
    CommitConflictError,
    InvalidTableError,
    StatementError,
    UnknownOutcomeError,
    UnsupportedStatementError,
)
from paimon_magics.planning.schemas.alterations import plan_alteration
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.table_changes import TableChange
from paimon_magics.tables.catalog.dropping import Dropping
from paimon_magics.tables.catalog.names import (
    check_new_table,
    database_of,
    first_line,
    identifier,
    shown,
)
from paimon_magics.tables.pypaimon_internals import sync_table_properties
from paimon_magics.tables.schema.alterations import altered_schema, schema_changes
from paimon_magics.tables.schema.history import publish_schema
from paimon_magics.tables.schema.types import field_from_column
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.stores.store import store_errors
from paimon_magics.tables.table import Table

_ALTER_ATTEMPTS = 10


class Catalog(Dropping):
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
        schema = _new_schema(table_schema)
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

    def replace_table(self, name: TableName, table_schema: TableSchema) -> None:
        """Publish `table_schema` as the table's next schema, whatever the last one was. Only for a
        filesystem catalog. The caller has removed the table's rows."""
        manager = self.schema_manager(name)
        for _ in range(_ALTER_ATTEMPTS):
            latest = self.load(name).paimon.table_schema.id
            schema = StoredSchema.from_schema(latest + 1, _new_schema(table_schema))
            if self._publish_schema(name, manager, schema):
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
            if self.paimon.file_io.exists(path):
                raise InvalidTableError(
                    f"`{shown(name)}` can't become `{shown(new_name)}`: {path} exists already.",
                    hint="Choose another name, or move that folder away.",
                )
        self.call(lambda: self.paimon.rename_table(identifier(name), identifier(new_name)))
        if not self.table_exists(new_name):
            raise StatementError(
                f"`{shown(name)}` could not be renamed to `{shown(new_name)}`.",
                hint="Check the rights on the warehouse folder.",
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
            f"`{shown(name)}` was not changed: others changed it before each of {_ALTER_ATTEMPTS} "
            "attempts.",
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
                hint=f"Look at it with DESCRIBE {shown(name)} before running the statement again.",
            ) from error

    def _exists_already(self, name: TableName, if_not_exists: bool) -> bool:
        if if_not_exists:
            return False
        raise StatementError(
            f"The table `{shown(name)}` exists already.",
            hint="Use CREATE TABLE IF NOT EXISTS, DROP TABLE it first, or choose another name.",
        )


def _new_schema(schema: TableSchema) -> Schema:
    return Schema(
        fields=[field_from_column(column) for column in schema.columns],
        partition_keys=list(schema.partition_keys),
        primary_keys=list(schema.primary_keys),
        options=dict(schema.options),
        comment=schema.comment,
    )
