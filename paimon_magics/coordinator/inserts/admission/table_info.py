"""What the validation of a table's inserts needs: its schema, mode and thresholds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from paimon_magics.coordinator.inserts.admission.validator import InsertValidator
from paimon_magics.coordinator.inserts.queue.values import Mode, Thresholds
from paimon_magics.coordinator.runtime import Runtime
from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    UnsupportedStatementError,
)
from paimon_magics.planning.options.values import memory_size_bytes, positive_value
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.writes.inserts import check_adds_rows, rows_hidden_by
from paimon_magics.statements.data_types import depth_of
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.table_marks import TableIds
from paimon_magics.tables.schema.identity import version_of

__all__ = ["KnownTables", "TableInfo", "mode_of", "thresholds_of"]

_FRESH_MS = 1_000
_TABLES_MAX = 4_096
_MODES = ", ".join(Mode)
_DEPTH_MAX = 50  # Arrow's streams, in which rows go to the process that writes files, end at 64


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table as of `loaded_ms`, by this process's steady clock.

    `identity` is the table's id (`TableIds`); queues and the log know the table by it.
    `location` is the table's path. `version` changes with the table and its schema; clients send it
    back. `validator` and `thresholds` are for its newest schema, `mode` is for inserts that name
    none.
    """

    name: TableName
    identity: str
    location: str
    version: str
    schema: TableSchema
    validator: InsertValidator
    thresholds: Thresholds
    mode: Mode
    loaded_ms: float


class KnownTables:
    """Loads tables and keeps them for a second. Safe for several threads."""

    def __init__(
        self,
        runtime: Runtime,
        catalog: Catalog,
        ids: TableIds,
        defaults: Thresholds,
        own: Callable[[], object],
    ) -> None:
        self._clock = runtime.clock
        self._catalog = catalog
        self._ids = ids
        self._defaults = defaults
        self._own = own
        self._turn = runtime.lock()
        self._known: dict[tuple[str, str], TableInfo] = {}
        self._looking: set[tuple[str, str]] = set()
        self._pool = runtime.pool("known tables", 1)

    def fresh(self, database: str, table: str) -> TableInfo | None:
        """The table, if it was loaded within the last second; else None. After half a second it is
        loaded again in the background, so that inserts that keep coming never wait for it."""
        table_info = self._known.get((database, table))
        if table_info is None:
            return None
        age = self._clock.steady_ms() - table_info.loaded_ms
        if age > _FRESH_MS:
            return None
        if age > _FRESH_MS / 2 and (database, table) not in self._looking:
            self._looking.add((database, table))
            self._pool.run("a look", lambda: self._look(database, table))
        return table_info

    def _look(self, database: str, table: str) -> None:
        try:
            self.load(database, table)  # the next insert raises what this does
        finally:
            self._looking.discard((database, table))

    def load(self, database: str, table: str) -> TableInfo:
        """Load the table. Raises PaimonMagicsErrors for a table that does not exist or does not
        take small inserts."""
        self._own()
        name = _main_branch(database, table)
        loaded_ms = self._clock.steady_ms()
        found = self._catalog.load(name)
        before = self._known.get((database, table))
        identity = self._ids.id_of(found)
        if before is not None and (before.identity, before.schema) == (
            identity,
            found.schema,
        ):
            table_info = replace(before, loaded_ms=loaded_ms)
        else:
            schema = found.schema
            _check(name, schema)
            table_info = TableInfo(
                name,
                identity,
                found.location,
                version_of(found),
                schema,
                InsertValidator(name, schema),
                thresholds_of(schema, self._defaults),
                mode_of(schema.option("group_commit_mode"), Mode.ASYNC),
                loaded_ms,
            )
        with self._turn:
            if len(self._known) >= _TABLES_MAX:
                self._known.clear()
            self._known[database, table] = table_info
        return table_info

    def find(self, name: TableName) -> TableInfo | None:
        """Load the table; None for one that takes no small inserts."""
        try:
            return self.load(name.database or "", name.table)
        except (InvalidTableError, UnsupportedStatementError):
            return None

    def end(self) -> None:
        """Look at tables in the background no more."""
        self._pool.end()

    def forget(self, name: TableName) -> None:
        """Have the table loaded again before the next insert."""
        with self._turn:
            self._known.pop((name.database or "", name.table), None)


def thresholds_of(schema: TableSchema, defaults: Thresholds) -> Thresholds:
    """The thresholds of a table: from its options, else the defaults."""
    rows = schema.option("group_commit_rows")
    size = schema.option("group_commit_data_bytes")
    interval = schema.option("group_commit_interval_ms")
    return replace(
        defaults,
        rows=defaults.rows if rows is None else positive_value("group_commit_rows", rows),
        data_bytes=(
            defaults.data_bytes
            if size is None
            else memory_size_bytes("group_commit_data_bytes", size)
        ),
        interval_ms=(
            defaults.interval_ms
            if interval is None
            else positive_value("group_commit_interval_ms", interval)
        ),
    )


def mode_of(text: str | None, default: Mode) -> Mode:
    """The mode that a table or a request names, or the default for None.

    Raises InvalidValueError for any other text.
    """
    if text is None:
        return default
    try:
        return Mode(text.lower())
    except ValueError:
        raise InvalidValueError(
            f"`{text}` is not a mode of group commit.", hint=f"The modes are {_MODES}."
        ) from None


def _main_branch(database: str, table: str) -> TableName:
    """The name of a table's main branch, which alone takes small inserts: a table has one queue.

    Raises UnsupportedStatementError for the name of a branch or a system table.
    """
    main, mark, _ = table.partition("$")
    if mark:
        raise UnsupportedStatementError(
            f"`{database}.{table}` takes no small inserts: only the main branch of a table does.",
            hint=f"Insert into `{database}.{main}`, or write a branch by a statement.",
        )
    return TableName(table, database)


def _check(name: TableName, schema: TableSchema) -> None:
    if not schema.flag("auto_batch_load"):
        raise InvalidTableError(
            f"Table `{name}` does not take small inserts: its option 'auto_batch_load' is not "
            "true.",
            hint=f"ALTER TABLE {name} SET TBLPROPERTIES ('auto_batch_load' = 'true'), or write it "
            "by a statement.",
        )
    check_adds_rows(name, schema)
    deep = next((c.name for c in schema.columns if depth_of(c.type) > _DEPTH_MAX), None)
    if deep is not None:
        raise UnsupportedStatementError(
            f"Table `{name}` takes no small inserts: the type of its column `{deep}` has more than "
            f"{_DEPTH_MAX} levels.",
            hint="Write it by statements.",
        )
    hidden = rows_hidden_by(schema)
    if hidden is not None and not schema.write_only:
        raise UnsupportedStatementError(
            f"Table `{name}` takes no small inserts: rows would stay invisible until a compaction "
            f"({hidden}).",
            hint="Write it by statements, which compact what they write.",
        )
    if schema.bucket_mode == "KEY_DYNAMIC":
        raise UnsupportedStatementError(
            f"Table `{name}` takes no small inserts: its keys can move between partitions, so that "
            "one statement at a time writes it.",
            hint="Write it by statements, or create it anew with the partition columns in its "
            "primary key.",
        )
