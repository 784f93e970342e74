"""Reads CREATE, REPLACE, DROP, TRUNCATE, SHOW and DESCRIBE of tables."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_magics.statements.clauses.names import table_name
from paimon_magics.statements.clauses.properties import (
    read_partition,
    read_properties,
    read_property_key,
)
from paimon_magics.statements.data_types import DataType, as_nullable
from paimon_magics.statements.lexing.cursor import Cursor, RefusedHere
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS
from paimon_magics.statements.queries.query_text import at_query, read_query
from paimon_magics.statements.statement import (
    AnalyzeTable,
    ColumnDefinition,
    CreateTable,
    Describe,
    DescribeDetail,
    DescribeHistory,
    DropTable,
    QueryText,
    RefreshTable,
    ShowColumns,
    ShowCreateTable,
    ShowOptions,
    ShowPartitions,
    TableName,
    TruncateTable,
)
from paimon_magics.statements.table_changes import (
    AlterTable,
    SetOptions,
    TableChange,
    UnsetOptions,
)
from paimon_magics.statements.types.sql_types import read_type

_REFUSED_CLAUSES = ("CLUSTERED", "CLUSTER", "SKEWED", "STORED", "ROW", "DEFAULT")


_DEFAULT_ENDS = (",", "NOT", "COMMENT", "GENERATED", "PRIMARY", "FIRST", "AFTER", "CHECK")


class _Definition:
    """The parts of a CREATE TABLE that have been read so far."""

    def __init__(self) -> None:
        self.columns: list[ColumnDefinition] = []
        self.partitioned_by: tuple[str, ...] = ()
        self.primary_key: tuple[str, ...] = ()
        self.options: list[tuple[str, str]] = []
        self.comment: str | None = None
        self.using: str | None = None
        self.location: str | None = None
        self.query: QueryText | None = None


def read_create_table(cursor: Cursor, *, or_replace: bool, must_exist: bool = False) -> CreateTable:
    """Read what follows CREATE [OR REPLACE] TABLE, or REPLACE TABLE."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if if_not_exists and or_replace:
        cursor.fail("a table's name", hint="OR REPLACE and IF NOT EXISTS exclude each other.")
    name, position = table_name(cursor)
    if cursor.at("LIKE"):
        return _read_like(cursor, name, position, or_replace, if_not_exists)
    table = _Definition()
    if cursor.at("(") and not at_query(cursor):
        _read_columns(cursor, table)
    while not cursor.at_end and _read_clause(cursor, table):
        pass
    if cursor.accept("AS") or at_query(cursor):
        if not at_query(cursor):
            cursor.fail("a query")
        if table.columns:
            cursor.fail(
                "the end of the statement",
                hint="CREATE TABLE … AS takes its columns from the query: leave out the columns or "
                "the query.",
            )
        table.query = read_query(cursor)
    return CreateTable(
        cursor.text,
        cursor.offset,
        name,
        position,
        if_not_exists,
        or_replace,
        tuple(table.columns),
        table.partitioned_by,
        table.primary_key,
        tuple(table.options),
        table.comment,
        table.using,
        table.location,
        table.query,
        must_exist,
    )


def _read_like(
    cursor: Cursor, name: TableName, position: int, or_replace: bool, if_not_exists: bool
) -> CreateTable:
    """Read `LIKE table` and its clauses, of which Spark has fewer than for a definition."""
    if or_replace:
        cursor.fail(
            "the columns or a query",
            hint="LIKE makes new tables only. To replace a table by an empty copy of another one: "
            f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM other WHERE false.",
        )
    cursor.next()
    like, like_position = table_name(cursor)
    table = _Definition()
    while not cursor.at_end:
        clause = cursor.position, cursor.peek().text
        if cursor.at_any("PARTITIONED", "COMMENT", "AS", "(") or not _read_clause(cursor, table):
            cursor.fail_at(
                clause[0],
                f"`{clause[1]}` can't follow CREATE TABLE … LIKE.",
                "After LIKE come USING, LOCATION and TBLPROPERTIES. For other columns or "
                "partitions, copy and adapt the definition from SHOW CREATE TABLE.",
            )
    return CreateTable(
        cursor.text,
        cursor.offset,
        name,
        position,
        if_not_exists,
        options=tuple(table.options),
        using=table.using,
        location=table.location,
        like=like,
        like_position=like_position,
    )


def read_drop_table(cursor: Cursor) -> DropTable:
    """Read what follows DROP TABLE. PURGE has no effect: Paimon has no trash for tables."""
    if_exists = cursor.accept("IF", "EXISTS")
    name, _ = table_name(cursor)
    cursor.accept("PURGE")
    return DropTable(cursor.text, cursor.offset, name, if_exists)


def read_truncate(cursor: Cursor) -> TruncateTable:
    """Read what follows TRUNCATE."""
    cursor.expect("TABLE")
    name, _ = table_name(cursor)
    partition = read_partition(cursor, values_needed=True) if cursor.accept("PARTITION") else None
    return TruncateTable(cursor.text, cursor.offset, name, partition)


def read_show_partitions(cursor: Cursor) -> ShowPartitions:
    """Read what follows SHOW PARTITIONS."""
    name, _ = table_name(cursor)
    partition = read_partition(cursor, values_needed=True) if cursor.accept("PARTITION") else None
    return ShowPartitions(cursor.text, cursor.offset, name, partition)


def read_show_create_table(cursor: Cursor) -> ShowCreateTable:
    """Read what follows SHOW CREATE TABLE."""
    name, _ = table_name(cursor)
    if cursor.at("AS", "SERDE"):
        raise RefusedHere("SHOW CREATE TABLE … AS SERDE")
    return ShowCreateTable(cursor.text, cursor.offset, name)


def read_show_options(cursor: Cursor) -> ShowOptions:
    """Read what follows SHOW TBLPROPERTIES."""
    name, _ = table_name(cursor)
    key = None
    if cursor.accept("("):
        key = read_property_key(cursor)
        cursor.expect(")")
    return ShowOptions(cursor.text, cursor.offset, name, key)


def read_show_columns(cursor: Cursor) -> ShowColumns:
    """Read what follows SHOW COLUMNS. `FROM t IN db` means `FROM db.t`."""
    if not cursor.accept_any("FROM", "IN"):
        cursor.fail("FROM or IN")
    name, _ = table_name(cursor)
    if cursor.accept_any("FROM", "IN"):
        position = cursor.position
        database = cursor.identifier("a database's name")
        if name.database is not None and name.database.lower() != database.lower():
            cursor.fail_at(
                position,
                f"The table has two databases: `{name.database}` and `{database}`.",
                "Name the database once.",
            )
        name = TableName(name.table, database, name.catalog, name.branch, name.system_table)
    return ShowColumns(cursor.text, cursor.offset, name)


def read_describe_history(cursor: Cursor) -> DescribeHistory:
    """Read what follows DESCRIBE HISTORY."""
    name, _ = table_name(cursor)
    if cursor.accept("LIMIT"):
        cursor.fail_at(
            cursor.position,
            "DESCRIBE HISTORY takes no LIMIT: it lists the snapshots newest first.",
            "`%%paimon --limit 2` shows two rows. SELECT * FROM t$snapshots ORDER BY snapshot_id "
            "DESC LIMIT 2 reads two.",
        )
    return DescribeHistory(cursor.text, cursor.offset, name)


def read_describe_table(cursor: Cursor) -> Describe:
    """Read what follows DESCRIBE [TABLE]."""
    extended = bool(cursor.accept_any("EXTENDED", "FORMATTED"))
    name, _ = table_name(cursor)
    column = partition = None
    if cursor.at("PARTITION", "("):
        cursor.next()
        partition = read_partition(cursor, values_needed=True)
    if cursor.peek().kind in IDENTIFIER_KINDS and not cursor.at("AS"):
        column = ".".join(read_path(cursor))
    if cursor.at("AS", "JSON"):
        raise RefusedHere("DESCRIBE … AS JSON")
    if partition is not None and column is not None:
        cursor.fail_at(
            cursor.position,
            "DESCRIBE takes a PARTITION or a column, not both.",
            "Leave one of them out.",
        )
    return Describe(cursor.text, cursor.offset, name, extended, column, partition)


def read_describe_detail(cursor: Cursor) -> DescribeDetail:
    """Read what follows DESCRIBE DETAIL."""
    name, _ = table_name(cursor)
    return DescribeDetail(cursor.text, cursor.offset, name)


def read_refresh(cursor: Cursor) -> RefreshTable:
    """Read what follows REFRESH TABLE."""
    name, position = table_name(cursor)
    return RefreshTable(cursor.text, cursor.offset, name, position)


def read_analyze(cursor: Cursor) -> AnalyzeTable:
    """Read what follows ANALYZE TABLE."""
    name, position = table_name(cursor)
    if cursor.at("PARTITION"):
        raise RefusedHere("ANALYZE TABLE … PARTITION")
    cursor.expect("COMPUTE", "STATISTICS")
    columns: tuple[str, ...] | None = ()
    no_scan = cursor.accept("NOSCAN")
    if not no_scan and cursor.accept("FOR", "ALL", "COLUMNS"):
        columns = None
    elif not no_scan and cursor.accept("FOR"):
        cursor.expect("COLUMNS")
        columns = cursor.listed(lambda: cursor.identifier("a column's name"))
    return AnalyzeTable(cursor.text, cursor.offset, name, position, columns, no_scan)


def read_comment_on_table(cursor: Cursor) -> AlterTable:
    """Read what follows COMMENT ON TABLE: a change of the option `comment`."""
    name, position = table_name(cursor)
    if not cursor.accept("IS"):
        cursor.fail("IS and the comment in quotes")
    change: TableChange = UnsetOptions(("comment",), if_exists=True)
    if not cursor.accept("NULL"):
        change = SetOptions((("comment", cursor.string("the comment in quotes, or NULL")),))
    return AlterTable(cursor.text, cursor.offset, name, position, (change,))


def _read_columns(cursor: Cursor, table: _Definition) -> None:
    cursor.expect("(")
    while not cursor.at(")"):
        if not _read_constraint(cursor, table):
            definition, is_key = read_definition(cursor)
            table.columns.append(definition)
            if is_key:
                _set_primary_key(cursor, table, (definition.name,))
        if not cursor.accept(","):
            break
    cursor.expect(")")


def _read_constraint(cursor: Cursor, table: _Definition) -> bool:
    index = cursor.index
    if cursor.accept("CONSTRAINT"):
        if cursor.peek().kind in IDENTIFIER_KINDS and cursor.peek(1).upper in (
            "PRIMARY",
            "CHECK",
            "UNIQUE",
            "FOREIGN",
        ):
            cursor.next()
        else:  # a column named `constraint`
            cursor.index = index
            return False
    if cursor.at("PRIMARY", "KEY", "("):
        _set_primary_key(cursor, table, read_primary_key(cursor))
        return True
    if cursor.at("CHECK", "(") or cursor.at("UNIQUE", "(") or cursor.at("FOREIGN", "KEY", "("):
        raise RefusedHere(f"CREATE TABLE … {cursor.peek().upper} constraint")
    return False


def _set_primary_key(cursor: Cursor, table: _Definition, columns: tuple[str, ...]) -> None:
    if table.primary_key:
        cursor.fail_at(
            cursor.position,
            "PRIMARY KEY occurs twice.",
            "Name all its columns in one PRIMARY KEY (…).",
        )
    table.primary_key = columns


def _read_clause(cursor: Cursor, table: _Definition) -> bool:
    """Read one clause after the columns; return false if none begins here."""
    position = cursor.position
    if cursor.accept("USING"):
        _once(cursor, position, "USING", table.using)
        table.using = ".".join(cursor.path("a table format", "a table format")).lower()
    elif cursor.accept("COMMENT"):
        _once(cursor, position, "COMMENT", table.comment)
        table.comment = cursor.string("the comment in quotes")
    elif cursor.accept("LOCATION"):
        _once(cursor, position, "LOCATION", table.location)
        table.location = cursor.string("the location in quotes")
    elif cursor.accept_any("TBLPROPERTIES", "OPTIONS"):
        for key, value in read_properties(cursor):
            _once(cursor, position, f"The option '{key}'", dict(table.options).get(key))
            table.options.append((key, value))
    elif cursor.accept("PARTITIONED", "BY"):
        _once(cursor, position, "PARTITIONED BY", table.partitioned_by or None)
        _read_partitioned_by(cursor, table)
    elif cursor.at_any(*_REFUSED_CLAUSES):
        raise RefusedHere(f"CREATE TABLE … {cursor.peek().upper} {cursor.peek(1).upper}")
    else:
        return False
    return True


def _once(cursor: Cursor, position: int, what: str, value: object) -> None:
    if value is not None:
        cursor.fail_at(position, f"{what} occurs twice.", "Leave one of them out.")


def _read_partitioned_by(cursor: Cursor, table: _Definition) -> None:
    def partition_column() -> str:
        position = cursor.position
        name = cursor.identifier("a partition column")
        if cursor.at("("):
            raise RefusedHere(f"CREATE TABLE … PARTITIONED BY {name}(…)")
        if cursor.at("."):
            cursor.fail("`,` or `)`", hint="Paimon partitions by whole columns only.")
        if not cursor.at_any(",", ")"):
            data_type = read_type(cursor)
            comment = cursor.string("the comment") if cursor.accept("COMMENT") else None
            table.columns.append(ColumnDefinition(name, data_type, comment, None, position))
        return name

    table.partitioned_by = cursor.in_brackets(partition_column)


# Column definitions and paths, as CREATE TABLE and ALTER TABLE write them.


@dataclass(slots=True)
class ColumnDetails:
    """What follows a column's name: its type, and clauses in any order."""

    type: DataType
    comment: str | None = None
    default: str | None = None
    is_key: bool = False
    first: bool = False
    after: str | None = None


def read_definition(cursor: Cursor) -> tuple[ColumnDefinition, bool]:
    """Read `name type …`; return the column, and whether it is declared PRIMARY KEY."""
    position = cursor.position
    name = cursor.identifier("a column's name")
    details = read_details(cursor, "CREATE TABLE")
    definition = ColumnDefinition(name, details.type, details.comment, details.default, position)
    return definition, details.is_key


def read_details(cursor: Cursor, statement: str, *, positioned: bool = False) -> ColumnDetails:
    """Read a type and NOT NULL, DEFAULT, COMMENT and, if `positioned`, FIRST or AFTER."""
    cursor.accept(":")
    details = ColumnDetails(read_type(cursor))
    while True:
        if cursor.accept("NOT", "NULL"):
            details.type = as_nullable(details.type, False)
        elif cursor.accept("COMMENT"):
            details.comment = cursor.string("the comment in quotes")
        elif cursor.accept("DEFAULT"):
            details.default = cursor.text_until(*_DEFAULT_ENDS, what="the default value")
        elif cursor.at("PRIMARY", "KEY") and not positioned:
            cursor.index += 2
            cursor.accept("NOT", "ENFORCED")
            details.is_key = True
        elif _at_identity(cursor):
            raise RefusedHere(f"{statement} … GENERATED AS IDENTITY")
        elif cursor.at_any("GENERATED", "CHECK", "UNIQUE", "REFERENCES", "COLLATE"):
            raise RefusedHere(f"{statement} … {cursor.peek().upper}")
        elif positioned and cursor.at_any("FIRST", "AFTER"):
            details.first, details.after = read_position(cursor)
        else:
            return details


def _at_identity(cursor: Cursor) -> bool:
    """Whether GENERATED ALWAYS, or BY DEFAULT, AS IDENTITY comes next; or the word alone."""
    always = cursor.at("GENERATED", "ALWAYS", "AS", "IDENTITY")
    return always or cursor.at("GENERATED", "BY", "DEFAULT", "AS", "IDENTITY")


def read_position(cursor: Cursor) -> tuple[bool, str | None]:
    """Read FIRST or AFTER column; return (is first, column before it)."""
    if cursor.accept("FIRST"):
        return True, None
    cursor.expect("AFTER")
    return False, cursor.identifier("a column's name")


def read_path(cursor: Cursor) -> tuple[str, ...]:
    """Read a column's path: its name, then names of fields of structs."""
    return cursor.path("a column's name", "a field's name")


def read_primary_key(cursor: Cursor) -> tuple[str, ...]:
    """Read `PRIMARY KEY (a, b) [NOT ENFORCED] [RELY | NORELY]`."""
    cursor.expect("PRIMARY", "KEY")
    columns = cursor.in_brackets(lambda: cursor.identifier("a column's name"))
    if cursor.at("ENFORCED"):
        raise RefusedHere("CREATE TABLE … PRIMARY KEY ENFORCED")
    cursor.accept("NOT", "ENFORCED")
    cursor.accept_any("RELY", "NORELY")
    return columns
