"""Drops tables and databases: first out of their names, then their files (module `detached`).

If the process dies in between, nobody sees the table any more, and `detached` finds what is left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from paimon_magics.errors import (
    CommitConflictError,
    PaimonMagicsError,
    StatementError,
    TableDamagedError,
    UnsupportedStatementError,
)
from paimon_magics.planning.formatting import count_text
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.detached import Detached, DroppedFolders
from paimon_magics.tables.catalog.lookup import Lookup
from paimon_magics.tables.catalog.names import database_of, identifier, shown
from paimon_magics.tables.pypaimon_internals import forget_table
from paimon_magics.tables.stores.store import store_errors
from paimon_magics.tables.table import Table

_log = logging.getLogger(__name__)

Outside = Callable[[Table], Sequence[str]]
"""Gives the paths of the files that a table has outside its folder."""


def _nothing(table: Table) -> Sequence[str]:
    return ()


class Dropping(Lookup):
    """Drops what `Lookup` finds."""

    def drop_table(
        self, name: TableName, *, if_exists: bool = False, outside: Outside = _nothing
    ) -> bool:
        """Drop a table with all its branches and files, if only a damaged one. Return False if
        there was none and `if_exists` is given; raise UnknownNameError without it.

        `outside` gives the files that it has outside its folder.
        """
        detached = self.detach_table(name, if_exists=if_exists, outside=outside)
        if detached is None:
            return False
        self.delete_detached(detached)
        return True

    def detach_table(
        self, name: TableName, *, if_exists: bool = False, outside: Outside = _nothing
    ) -> Detached | None:
        """The first half of `drop_table`: when it returns, no engine sees the table, and its name
        is free. `delete_detached` deletes its files. None where `drop_table` returns False."""
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

    def delete_detached(self, detached: Detached) -> None:
        """Delete the files of what was detached. It can be repeated, by any process."""
        if detached.path:
            with store_errors(f"The deletion of the files of `{detached.label}`"):
                self._dropped().delete(detached)

    def detached(self) -> list[Detached]:
        """What is detached and not deleted, by this process or one that died."""
        if self.metastore == "rest":
            return []
        with store_errors("The search for dropped tables"):
            return self._dropped().left()

    def finish_drops(self) -> int:
        """Delete what processes that died have left of dropped tables; return how much is left:
        what others may be dropping right now, and what can't be deleted, with a warning."""
        left = 0
        for detached in self.detached():
            try:
                if self._dropped().is_settled(detached):
                    self.delete_detached(detached)
                else:
                    left += 1
            except PaimonMagicsError as error:
                _log.warning("What is left of `%s` stays: %s", detached.label, error)
                left += 1
        return left

    def drop_database(
        self,
        database: str,
        *,
        if_exists: bool = False,
        cascade: bool = False,
        outside: Outside = _nothing,
    ) -> None:
        """Drop a database, and with `cascade` also its tables. `outside` as in `drop_table`.

        Raises UnknownNameError if there is none, unless `if_exists`; StatementError if it has
        tables, unless `cascade`, and if it has tables that are hidden; CommitConflictError if
        somebody makes one meanwhile.
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
        """Drop a database without tables: its folder, with what else is in it."""
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
                    # What is left are marks of folders, those of dropped tables among them.
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

    def _outside(self, name: TableName, outside: Outside) -> list[str]:
        """The files that a table has elsewhere; [] for one too damaged to tell: it goes, too."""
        try:
            table = self.find(name)
            return [] if table is None else [p for p in outside(table) if table.paths.allows(p)]
        except Exception as error:
            if isinstance(error, PaimonMagicsError) and not isinstance(error, TableDamagedError):
                raise
            _log.warning("Files of `%s` outside its folder may stay: %s", shown(name), error)
            return []

    def _dropped(self) -> DroppedFolders:
        return DroppedFolders(self.stores, self.warehouse)


def not_empty(database: str, tables: Sequence[str]) -> StatementError:
    """The error for a database that can't be dropped because of its tables."""
    names = ", ".join(f"`{table}`" for table in tables[:5])
    some = f"{count_text(len(tables), 'table')} ({names}{', …' if tables[5:] else ''})"
    return StatementError(
        f"The database `{database}` is not empty: it has {some if tables else 'tables'}.",
        hint="Drop its tables first, or use DROP DATABASE … CASCADE.",
    )


def _filled(database: str) -> CommitConflictError:
    return CommitConflictError(
        f"The database `{database}` was not dropped: somebody made a table in it meanwhile.",
        hint="Run the statement again.",
    )
