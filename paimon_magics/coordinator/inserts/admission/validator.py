"""Check that rows fit a table, before any of them is stored.

An `InsertValidator` is made for one schema of a table. It checks a request and returns a
`ValidatedInsert`, from which a record is made. The flusher can write all rows that the validator
accepts, so one client's rows don't block another's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from paimon_magics.coordinator.inserts.admission.json_values import (
    ColumnReader,
    column_reader,
    default_value,
)
from paimon_magics.coordinator.inserts.admission.key_changes import is_change, key_change
from paimon_magics.coordinator.inserts.log.records import Format
from paimon_magics.coordinator.inserts.queue.values import Mode, Thresholds
from paimon_magics.coordinator.protocol.json_text import exact_json_value, json_value
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.options.values import memory_size_bytes, positive_value
from paimon_magics.planning.row_changes.logged_changes import check_takes_change
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.planning.writes.inserts import check_adds_rows, rows_hidden_by
from paimon_magics.statements.data_types import as_nullable, contains_type, depth_of
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.marks import TableIds
from paimon_magics.tables.schema.history import version_of

_MEMBERS = {"columns", "rows"}
_HINT = 'Send {"columns": ["id", "name"], "rows": [[1, "a"], [2, "b"]]}.'
_ARRAY_HINT = 'Each row is a list of values: {"rows": [[1, "a"]]}.'
_PLANS_MAX = 256

_FRESH_MS = 1_000
_TABLES_MAX = 4_096
_MODES = ", ".join(Mode)
_DEPTH_MAX = 50  # Arrow's streams, in which rows go to the process that writes files, end at 64


class ValidatedInsert(NamedTuple):
    """A request whose rows fit the table: the contents of its record. Each insert makes one: a
    frozen dataclass would take four times as long."""

    format: Format
    schema_id: int
    rows: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class StatementColumns:
    """The columns that a statement gives, with their readers, and the checks of these, in the order
    of its values."""

    columns: tuple[Column, ...]
    readers: tuple[ColumnReader, ...]
    checks: tuple[Callable[[Any], object], ...] = ()


class InsertValidator:
    """Checks requests against one schema of one table. For one thread."""

    def __init__(self, name: TableName, schema: TableSchema) -> None:
        self.name = name
        self.schema = schema
        # Only decimals need the digits that a float does not keep.
        is_exact = any(contains_type(column.type, "DECIMAL") for column in schema.columns)
        self._value = exact_json_value if is_exact else json_value
        self._plans: dict[tuple[str, ...] | None, StatementColumns] = {}
        self._changes_allowed: set[bool] = set()  # by whether they update

    def json(self, body: bytes) -> ValidatedInsert:
        """Check a JSON request: `{columns?, rows}`, a change of rows (`key_changes`), or
        `{statements: [{columns?, rows}, …]}`.

        Raises InvalidValueError, which names the statement, row and column; and
        UnsupportedStatementError for a change that the table does not support.
        """
        try:
            document = self._value(body)
        except ValueError as error:
            raise InvalidValueError(f"The body is not JSON: {error}.", hint=_HINT) from error
        rows = 0
        format = Format.JSON
        statements = statements_of(document)
        if len(statements) > 1 and self._are_single_rows(statements):
            return ValidatedInsert(format, self.schema.schema_id, len(statements), body)
        for number, statement in enumerate(statements):
            many = "statements" in document
            try:
                if is_change(statement):
                    format = Format.CHANGES
                    rows += self._check_change(statement)
                else:
                    rows += self._check(statement)
            except _RefusedError as error:
                where = f"Statement {number + 1}, row" if many else "Row"
                raise InvalidValueError(f"{where} {error.message}", hint=error.hint) from error
            except InvalidValueError as error:
                if many:
                    error.message = f"Statement {number + 1}: {error.message}"
                raise
        return ValidatedInsert(format, self.schema.schema_id, rows, body)

    def _are_single_rows(self, statements: Sequence[Any]) -> bool:
        """Whether each statement is one certainly valid row of all columns, as in most requests
        with many statements. All values of a column are checked together, which costs a fifth.
        """
        rows = []
        for statement in statements:
            if type(statement) is not dict or len(statement) != 1:
                return False
            statement_rows = statement.get("rows")
            if type(statement_rows) is not list or len(statement_rows) != 1:
                return False
            rows.append(statement_rows[0])
        plan = self._plans.get(None)  # None until a statement was checked by itself
        if plan is None or set(map(type, rows)) != {list}:
            return False
        readers = plan.readers
        if set(map(len, rows)) != {len(readers)}:
            return False
        return all(
            reader.is_plain(values)
            for reader, values in zip(readers, zip(*rows, strict=True), strict=True)
        )

    def _check_change(self, statement: Any) -> int:
        """The number of keys of a change of rows. Raises errors of ours unless it fits."""
        updates = "update" in statement
        if updates not in self._changes_allowed:
            check_takes_change(self.name, self.schema, updates=updates)
            self._changes_allowed.add(updates)
        return key_change(self.name, self.schema, statement).rows

    def _check(self, statement: Any) -> int:
        """The number of a statement's rows. Raises InvalidValueError unless all of them fit."""
        if type(statement) is not dict or "rows" not in statement or statement.keys() - _MEMBERS:
            raise InvalidValueError(
                "A statement must be an object with `rows` and, if wanted, `columns`.", hint=_HINT
            )
        rows = statement["rows"]
        plan = self.columns_of(statement.get("columns"))
        width = len(plan.readers)
        # The fast path: most inserts have one row.
        if type(rows) is list and len(rows) == 1 and type(rows[0]) is list:
            (row,) = rows
            if len(row) == width:
                self._check_row(plan, row)
                return 1
        if type(rows) is not list or set(map(type, rows)) - {list}:
            raise InvalidValueError("`rows` must be a list of lists.", hint=_ARRAY_HINT)
        if set(map(len, rows)) - {width}:
            number = next(n for n, row in enumerate(rows) if len(row) != width)
            raise _RefusedError(
                f"{number + 1} has {len(rows[number])} values, but {width} columns are given.",
                hint=f"The columns are {', '.join(f'`{c.name}`' for c in plan.columns)}.",
            )
        for column, reader, values in zip(
            plan.columns, plan.readers, zip(*rows, strict=True), strict=bool(rows)
        ):
            if not reader.is_plain(values):
                _check_values(column, reader, values)
        return len(rows)

    def _check_row(self, plan: StatementColumns, row: list[Any]) -> None:
        try:
            for check, value in zip(plan.checks, row, strict=True):
                check(value)
        except (ValueError, RecursionError):
            for column, reader, value in zip(plan.columns, plan.readers, row, strict=True):
                _check_values(column, reader, (value,))

    def columns_of(self, names: Any) -> StatementColumns:
        """The plan for the columns that a statement names; `names` is None for all columns.

        Raises InvalidValueError for columns with which no row can be written.
        """
        if names is not None and (
            type(names) is not list or not all(type(name) is str for name in names)
        ):
            raise InvalidValueError("`columns` must be a list of column names.", hint=_HINT)
        key = None if names is None else tuple(names)
        plan = self._plans.get(key)
        if plan is None:
            plan = statement_columns(self.name, self.schema, key)
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            self._plans[key] = plan
        return plan


def statements_of(document: Any) -> Sequence[Any]:
    """The statements of a request's JSON; raises InvalidValueError for anything else."""
    if type(document) is dict and len(document) == 1 and "statements" in document:
        statements = document["statements"]
        if type(statements) is list and statements:
            return statements
        raise InvalidValueError(
            "`statements` must be a list of at least one statement.", hint=_HINT
        )
    if type(document) is not dict:
        raise InvalidValueError("The body must be a JSON object.", hint=_HINT)
    return [document]


def statement_columns(
    name: TableName,
    schema: TableSchema,
    names: tuple[str, ...] | None,
    *,
    in_json: bool = True,
) -> StatementColumns:
    """The columns of those names, None for all. Names match without regard to case, as in SQL.

    Raises InvalidValueError for a column that is unknown, given twice, or missing although it is
    required; and with `in_json` for a column whose values have no JSON form. Without `in_json`
    there are no readers.
    """
    if names is None:
        columns = list(schema.columns)
    else:
        by_column: dict[str, Column] = {}
        by_name: dict[str, list[Column]] = {}
        for column in schema.columns:
            by_name.setdefault(column.name.lower(), []).append(column)
        for wanted in names:  # the first repeated column ends the loop
            column = _column(name, schema, by_name.get(wanted.lower(), []), wanted)
            if column.name in by_column:
                raise InvalidValueError(
                    f"Column `{column.name}` of `{name}` is given twice.",
                    hint="Name each column once.",
                )
            by_column[column.name] = column
        columns = list(by_column.values())
        for column in schema.columns:
            if column.name not in by_column:
                _check_left_out(name, column)
    if not in_json:
        return StatementColumns(tuple(columns), ())
    readers: list[ColumnReader] = []
    for column in columns:
        if (reader := _reader_of(column)) is None:
            raise InvalidValueError(
                f"Values of column `{column.name}` of `{name}` can't be sent as JSON.",
                hint="Send an Arrow stream, or leave the column out.",
            )
        readers.append(reader)
    return StatementColumns(tuple(columns), tuple(readers), tuple(r.check for r in readers))


def _column(name: TableName, schema: TableSchema, same: list[Column], wanted: str) -> Column:
    """The column with this name, among the columns with the `same` name in any case."""
    for column in same:
        if column.name == wanted or len(same) == 1:
            return column
    raise InvalidValueError(
        f"There is no column `{wanted}` in `{name}`.",
        hint=nearest(wanted, schema.column_names, what="columns"),
    )


def _reader_of(column: Column) -> ColumnReader | None:
    """The reader of a column. Paimon replaces every NULL by the column's default, so a NULL is
    accepted if there is a readable default.
    """
    if column.default is None:
        return column_reader(column.type)
    try:
        default_value(column.type, column.default)
    except ValueError:
        return column_reader(as_nullable(column.type, False))
    return column_reader(as_nullable(column.type, True))


def _check_left_out(name: TableName, column: Column) -> None:
    if column.default is not None:
        try:
            default_value(column.type, column.default)
        except ValueError as error:
            raise InvalidValueError(
                f"Column `{column.name}` of `{name}` can't be left out: {error}.",
                hint=f"Give `{column.name}` a value.",
            ) from error
    elif not column.type.nullable:
        raise InvalidValueError(
            f"Column `{column.name}` of `{name}` is NOT NULL and has no default, but the statement "
            "gives it no value.",
            hint=f"Add `{column.name}` to the columns that are written.",
        )


def _check_values(column: Column, reader: ColumnReader, values: Sequence[Any]) -> None:
    for number, value in enumerate(values):
        try:
            reader.check(value)
        except (ValueError, RecursionError) as error:
            raise _RefusedError(
                f"{number + 1}, column `{column.name}`: {error}.",
                hint="No row of the request was inserted.",
            ) from error


class _RefusedError(InvalidValueError):
    """A row that does not fit. Its message begins with the row's number; `json` puts the statement
    in front."""


# What the validation of a table's inserts needs: its schema, mode and thresholds.


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table as of `loaded_ms`, by this process's steady clock.

    `identity` is the table's id (`TableIds`); queues and the log know the table by it. `location`
    is the table's path. `version` changes with the table and its schema; clients send it back.
    `validator` and `thresholds` are for its newest schema, `mode` is for inserts without a mode.
    `changes_by_values` says whether values of a column tell which rows an insert deletes.
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
    changes_by_values: bool = False


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
        self._turn = threading.RLock()
        self._known: dict[tuple[str, str], TableInfo] = {}
        self._looking: set[tuple[str, str]] = set()
        self._pool = runtime.pool("known tables", 1)

    def fresh(self, database: str, table: str) -> TableInfo | None:
        """The table, if it was loaded within the last second; else None. After half a second it is
        loaded again in the background, so that a steady series of inserts never waits for it.
        """
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
        accept small inserts.
        """
        self._own()
        name = _main_branch(database, table)
        loaded_ms = self._clock.steady_ms()
        loaded = self._catalog.load(name)
        before = self._known.get((database, table))
        identity = self._ids.id_of(loaded)
        if before is not None and (before.identity, before.schema) == (
            identity,
            loaded.schema,
        ):
            table_info = replace(before, loaded_ms=loaded_ms)
        else:
            schema = loaded.schema
            _check(name, schema)
            table_info = TableInfo(
                name,
                identity,
                loaded.location,
                version_of(loaded),
                schema,
                InsertValidator(name, schema),
                thresholds_of(schema, self._defaults),
                mode_of(schema.option("group_commit_mode"), Mode.ASYNC),
                loaded_ms,
                schema.rowkind_field is not None,
            )
        with self._turn:
            if len(self._known) >= _TABLES_MAX:
                self._known.clear()
            self._known[database, table] = table_info
        return table_info

    def find(self, name: TableName) -> TableInfo | None:
        """Load the table; None if it accepts no small inserts."""
        try:
            return self.load(name.database or "", name.table)
        except (InvalidTableError, UnsupportedStatementError):
            return None

    def end(self) -> None:
        """Stop loading tables in the background."""
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
    """The name of a table's main branch. Only that branch accepts small inserts: a table has one
    queue.

    Raises UnsupportedStatementError for the name of a branch or a system table.
    """
    main, mark, _ = table.partition("$")
    if mark:
        raise UnsupportedStatementError(
            f"`{database}.{table}` accepts no small inserts: only the main branch of a table does.",
            hint=f"Insert into `{database}.{main}`, or write the branch with a statement.",
        )
    return TableName(table, database)


def _check(name: TableName, schema: TableSchema) -> None:
    if not schema.flag("auto_batch_load"):
        raise InvalidTableError(
            f"Table `{name}` does not accept small inserts: its option 'auto_batch_load' is not "
            "true.",
            hint=(
                f"Run ALTER TABLE {name} SET TBLPROPERTIES ('auto_batch_load' = 'true'), or "
                "write the table with a statement."
            ),
        )
    check_adds_rows(name, schema)
    deep = next((c.name for c in schema.columns if depth_of(c.type) > _DEPTH_MAX), None)
    if deep is not None:
        raise UnsupportedStatementError(
            f"Table `{name}` accepts no small inserts: the type of its column `{deep}` has more "
            f"than {_DEPTH_MAX} levels.",
            hint="Write it by statements.",
        )
    hidden = rows_hidden_by(schema)
    if hidden is not None and not schema.write_only:
        raise UnsupportedStatementError(
            f"Table `{name}` accepts no small inserts: rows would stay invisible until a "
            f"compaction ({hidden}).",
            hint="Write the table with statements, which compact what they write.",
        )
    if schema.bucket_mode == "KEY_DYNAMIC":
        raise UnsupportedStatementError(
            f"Table `{name}` accepts no small inserts: its keys can move between partitions, so "
            "only one statement at a time may write it.",
            hint=(
                "Write the table with statements, or re-create it with the partition columns in "
                "its primary key."
            ),
        )
