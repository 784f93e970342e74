"""Statements as values, which the parsers make and planning reads.

Positions are character offsets into `StatementText.text`, the statement as the user wrote it
(without the separating semicolon); `StatementText.offset` is where that text begins in its cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paimon_magics.statements.data_types import DataType


@dataclass(frozen=True, slots=True)
class TextRange:
    """Characters `start` (inclusive) to `end` (exclusive) of the statement's text."""

    start: int
    end: int


NAME_BYTES_MAX = 250
"""The longest name of a database or table, in bytes of UTF-8. It becomes the name of a folder, for
which file systems take 255, and a database's ends with `.db`."""


@dataclass(frozen=True, slots=True)
class TableName:
    """A table's name as the user wrote it; parts that the user left out are None.

    `` paimon.shop.`orders$branch_b$audit_log` `` has catalog "paimon", database "shop", table
    "orders", branch "b" and system table "audit_log". Names keep the user's case, except that
    `system_table` is lower case (Paimon's system tables ignore case).
    """

    table: str
    database: str | None = None
    catalog: str | None = None
    branch: str | None = None
    system_table: str | None = None

    @property
    def object_name(self) -> str:
        """The last part as Paimon writes it: `orders`, `orders$files`, `orders$branch_b$files`."""
        branch = f"$branch_{self.branch}" if self.branch is not None else ""
        system_table = f"${self.system_table}" if self.system_table is not None else ""
        return f"{self.table}{branch}{system_table}"

    def __str__(self) -> str:
        return ".".join(p for p in (self.catalog, self.database, self.object_name) if p is not None)


@dataclass(frozen=True, slots=True)
class TimeTravel:
    """`VERSION AS OF v` or `TIMESTAMP AS OF t` (kinds "version" and "timestamp"), with `v` or `t`
    as the text `value`, quotes included."""

    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class ChangesClause:
    """`CHANGES FROM VERSION start TO VERSION end`, or TIMESTAMP, with texts as in `TimeTravel`.
    Without an `end` the changes go on to the latest. EXCLUSIVE leaves a bound out."""

    kind: str
    start: str
    end: str | None
    with_start: bool = True
    with_end: bool = True


@dataclass(frozen=True, slots=True)
class FilterValue:
    """A value that a column is compared with. `kind` is "number", "string", "date", "boolean" or
    "parameter"; `text` is the literal without quotes, or the bind parameter's name."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ColumnFilter:
    """A condition that every row of a relation must meet to be in the query's result.
    `operator` is one of `=`, `<`, `<=`, `>`, `>=`, `in`, `is null`, `is not null`. The query itself
    applies it, too, so that a read may use it to read less, but need not."""

    column: str
    operator: str
    values: tuple[FilterValue, ...] = ()

    def either(self, other: ColumnFilter) -> ColumnFilter | None:
        """The condition that this one or the other holds; None unless both list values of one
        column."""
        listed = self.operator in ("=", "in") and other.operator in ("=", "in")
        if not listed or self.column.lower() != other.column.lower():
            return None
        return ColumnFilter(self.column, "in", self.values + other.values)


@dataclass(frozen=True, slots=True)
class TableReference:
    """One place where a query reads a table that could be Paimon's.

    `range` covers the name with its time-travel and options clauses, without the alias.
    `has_alias` says whether the user gave an alias. `alias` is the relation's name in the rest of
    the query: the user's alias, or the last part of the table's name. If two relations share that
    part and the query distinguishes them by their database, it is a generated name. `qualifiers`
    are the ranges where the table's name qualifies a column (`shop.orders` in `shop.orders.id`)
    and must become `alias`. `alias_position` is where an alias can be inserted, after `range` and
    a TABLESAMPLE clause; -1 if Spark allows none (`TABLE orders`).
    `options` are those of a `WITH ('k' = 'v')` clause. `filters` are the query's conditions on this
    relation alone, `other_conditions` the texts of others that may concern it. `unordered` says
    that the result does not depend on the order in which rows are read. `only_filters` says that
    its SELECT reads nothing else, and has no other conditions. `rows_wanted` is the upper bound on
    the rows needed that meet the filters; None for all. `bounds` are texts whose values make the
    one option."""

    name: TableName
    range: TextRange
    has_alias: bool
    time_travel: TimeTravel | None = None
    qualifiers: tuple[TextRange, ...] = ()
    alias: str = ""
    alias_position: int = -1
    options: tuple[tuple[str, str], ...] = ()
    filters: tuple[ColumnFilter, ...] = ()
    unordered: bool = False
    other_conditions: tuple[str, ...] = ()
    only_filters: bool = False
    rows_wanted: int | None = None
    bounds: tuple[str, ...] = ()
    changes: ChangesClause | None = None


@dataclass(frozen=True, slots=True)
class QueryText:
    """A query inside a statement: its range, and the names in it.

    `range` is the query's range in the statement's text; the ranges of `references` are offsets
    into the statement's text, too. `parameters` are the bind names (`:day` gives
    "day") in order of first use. `is_values` is true for a plain VALUES list, which Spark
    evaluates without a job. The query's CTEs are not among the references. `cuts`
    are ranges inside `range` that do not belong to the query: in `WITH c AS (…) INSERT INTO t
    SELECT …` the query is the whole text without `INSERT INTO t`. `defaults` are the ranges of
    the word DEFAULT where it is a value of a VALUES list in an INSERT, `decimals` DOUBLE and FLOAT
    literals there that are read as the DECIMALs beside them."""

    range: TextRange
    references: tuple[TableReference, ...] = ()
    parameters: tuple[str, ...] = ()
    is_values: bool = False
    cuts: tuple[TextRange, ...] = ()
    defaults: tuple[TextRange, ...] = ()
    decimals: tuple[tuple[TextRange, str], ...] = ()


@dataclass(frozen=True, slots=True)
class StatementText:
    """Base of all statements: the user's text and its offset in the cell."""

    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class Query(StatementText):
    """SELECT, WITH, VALUES, TABLE: anything that returns rows and changes nothing."""

    query: QueryText


@dataclass(frozen=True, slots=True)
class CreateTemporaryView(StatementText):
    """CREATE [OR REPLACE] TEMPORARY VIEW name [(columns)] AS query (name without parts). `columns`
    is None without a list."""

    name: str
    or_replace: bool
    query: QueryText
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class PartitionItem:
    """One item of a PARTITION clause: `dt = 'x'` has a value (its SQL text), `hh` has None.
    DROP PARTITION also compares: `dt < 'x'`, `dt IN ('x', 'y')`, `dt IS NULL`."""

    column: str
    value: str | None
    position: int
    operator: str = "="


@dataclass(frozen=True, slots=True)
class Insert(StatementText):
    """INSERT INTO | OVERWRITE. `columns` is None without a column list.

    `partition` is None without a PARTITION clause. INSERT INTO … REPLACE WHERE and REPLACE USING
    overwrite, too: partitions that meet the condition `replace_where`, or that have the values of
    the columns `replace_using` in a row of the source.
    """

    target: TableName
    target_position: int
    overwrite: bool
    source: QueryText
    columns: tuple[str, ...] | None = None
    by_name: bool = False
    partition: tuple[PartitionItem, ...] | None = None
    replace_where: TextRange | None = None
    replace_using: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column of CREATE TABLE or ADD COLUMN. `default` is the SQL text of DEFAULT.

    `type.nullable` is false for NOT NULL. `position` is where the definition begins in the text.
    """

    name: str
    type: DataType
    comment: str | None = None
    default: str | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class CreateTable(StatementText):
    """CREATE TABLE with columns, with AS query (CTAS), or with neither.

    `using` is the provider in lower case, or None. `options` are TBLPROPERTIES and OPTIONS in
    the order written. A `PRIMARY KEY (…)` constraint sets `primary_key`; the option
    'primary-key' stays in `options`. `location` is the LOCATION clause. `must_exist` is true for
    REPLACE TABLE, which fails if the table does not exist. `like` is the table of CREATE TABLE …
    LIKE, whose definition is copied.
    """

    name: TableName
    name_position: int
    if_not_exists: bool = False
    or_replace: bool = False
    columns: tuple[ColumnDefinition, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    comment: str | None = None
    using: str | None = None
    location: str | None = None
    query: QueryText | None = None
    must_exist: bool = False
    like: TableName | None = None
    like_position: int = 0


@dataclass(frozen=True, slots=True)
class DropTable(StatementText):
    name: TableName
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateDatabase(StatementText):
    name: str
    if_not_exists: bool = False
    comment: str | None = None
    location: str | None = None
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class AlterDatabase(StatementText):
    """ALTER DATABASE … SET or UNSET DBPROPERTIES, and COMMENT ON DATABASE, which changes the
    property `comment`."""

    name: str
    updates: tuple[tuple[str, str], ...] = ()
    removals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DropDatabase(StatementText):
    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class UseDatabase(StatementText):
    """USE [DATABASE|SCHEMA|NAMESPACE] name. `USE paimon.db` has the catalog "paimon"; `USE paimon`
    has the database "paimon", because the parser can't distinguish a catalog from a database."""

    database: str
    catalog: str | None = None


@dataclass(frozen=True, slots=True)
class ShowDatabases(StatementText):
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class ShowTables(StatementText):
    database: str | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class ShowTableExtended(StatementText):
    """SHOW TABLE EXTENDED [IN database] LIKE 'pattern' [PARTITION (…)]."""

    database: str | None
    pattern: str
    partition: tuple[PartitionItem, ...] | None = None


@dataclass(frozen=True, slots=True)
class ShowViews(StatementText):
    database: str | None = None
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class ShowProcedures(StatementText):
    """SHOW PROCEDURES, those of Paimon's catalog."""


@dataclass(frozen=True, slots=True)
class ShowCurrent(StatementText):
    """SHOW CURRENT NAMESPACE."""


@dataclass(frozen=True, slots=True)
class ShowPartitions(StatementText):
    name: TableName
    partition: tuple[PartitionItem, ...] | None = None


@dataclass(frozen=True, slots=True)
class ShowCreateTable(StatementText):
    name: TableName


@dataclass(frozen=True, slots=True)
class ShowOptions(StatementText):
    """SHOW TBLPROPERTIES name [('key')]."""

    name: TableName
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ShowColumns(StatementText):
    name: TableName


@dataclass(frozen=True, slots=True)
class DescribeHistory(StatementText):
    name: TableName


@dataclass(frozen=True, slots=True)
class DescribeDetail(StatementText):
    """DESCRIBE DETAIL name, a statement of Delta Lake."""

    name: TableName


@dataclass(frozen=True, slots=True)
class AnalyzeTable(StatementText):
    """ANALYZE TABLE name COMPUTE STATISTICS [NOSCAN | FOR COLUMNS … | FOR ALL COLUMNS]. `columns`
    is None for all columns, and () without FOR."""

    name: TableName
    name_position: int
    columns: tuple[str, ...] | None = ()
    no_scan: bool = False


@dataclass(frozen=True, slots=True)
class RefreshTable(StatementText):
    """REFRESH [TABLE] name."""

    name: TableName
    name_position: int


@dataclass(frozen=True, slots=True)
class Describe(StatementText):
    """DESCRIBE [TABLE] [EXTENDED|FORMATTED] name [PARTITION (…)] [column]."""

    name: TableName
    extended: bool = False
    column: str | None = None
    partition: tuple[PartitionItem, ...] | None = None


@dataclass(frozen=True, slots=True)
class DescribeDatabase(StatementText):
    name: str
    extended: bool = False


@dataclass(frozen=True, slots=True)
class TruncateTable(StatementText):
    name: TableName
    partition: tuple[PartitionItem, ...] | None = None


@dataclass(frozen=True, slots=True)
class Refused(StatementText):
    """A statement that is recognized but not offered: DELETE, MERGE, CREATE TABLE … LIKE, …

    `kind` is the form that the user wrote ("DELETE", "CREATE TABLE … LIKE"); `name` is its table,
    None if none could be read.
    """

    kind: str
    name: TableName | None = None


@dataclass(frozen=True, slots=True)
class PassThrough(StatementText):
    """Any other statement: Spark runs the text as it is, unless one of `names` is a Paimon table.

    `names` are all names in the text that could be a table's, with their positions.
    """

    names: tuple[tuple[TableName, int], ...] = ()


# An assigned column or field as a value, as UPDATE and MERGE write it.


@dataclass(frozen=True, slots=True)
class Assignment:
    """`path = value`. `path` are the parts of the name as written, which may begin with the table's
    name or alias, and lead to a field of a STRUCT. `value` is the value's range, None for the word
    DEFAULT."""

    path: tuple[str, ...]
    position: int
    value: TextRange | None


# DELETE, UPDATE and MERGE INTO. They change rows of one table. Spark evaluates the user's own text:
# `RowSelection` says which ranges of it are replaced, so that the rest is a query of these rows.

VALUE_PREFIX = "__paimon_magics_value_"
"""Begins the names of the columns that a selection adds: one for each assignment, by its number."""

MatchKind = Literal["MATCHED", "NOT MATCHED", "NOT MATCHED BY SOURCE"]
"""Which rows a clause is about: pairs of a target and a source row, source rows without a target
row, target rows without a source row."""


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The rows of a table that a statement changes, as a query.

    With `replacements`, the statement's text is a query that returns all columns of the target's
    rows that meet the condition, and a column `VALUE_PREFIX…` for each assignment. `query` has the
    references in that text; the one whose name begins at `target_position` is the target.
    `condition` is the range of WHERE's, None without one.
    """

    query: QueryText
    target_position: int
    replacements: tuple[tuple[TextRange, str], ...]
    condition: TextRange | None = None


@dataclass(frozen=True, slots=True)
class Delete(StatementText):
    """[WITH …] DELETE FROM target [[AS] alias] [WHERE condition]."""

    target: TableName
    target_position: int
    alias: str | None
    selection: RowSelection


@dataclass(frozen=True, slots=True)
class Update(StatementText):
    """[WITH …] UPDATE target [[AS] alias] SET assignments [WHERE condition]."""

    target: TableName
    target_position: int
    alias: str | None
    assignments: tuple[Assignment, ...]
    selection: RowSelection


RowChange = Delete | Update
"""A statement that changes rows of a table where they meet a condition."""


# MERGE INTO: its source, condition and clauses, in the order written. Ranges are offsets into the
# statement's text.


@dataclass(frozen=True, slots=True)
class UpdateAction:
    """UPDATE SET; `assignments` is None for `UPDATE SET *`."""

    assignments: tuple[Assignment, ...] | None


@dataclass(frozen=True, slots=True)
class InsertAction:
    """INSERT; `assignments` is None for `INSERT *`. Their paths have one part in each column."""

    assignments: tuple[Assignment, ...] | None


@dataclass(frozen=True, slots=True)
class DeleteAction:
    """DELETE."""


MergeAction = UpdateAction | InsertAction | DeleteAction


@dataclass(frozen=True, slots=True)
class MergeClause:
    """WHEN `kind` [AND `condition`] THEN `action`. `position` is where WHEN stands."""

    kind: MatchKind
    condition: TextRange | None
    action: MergeAction
    position: int


@dataclass(frozen=True, slots=True)
class MergeInto(StatementText):
    """MERGE INTO `target` USING `source` ON `condition` and its clauses.

    `target_alias` and `source_alias` are the names of both sides in the clauses: aliases, or the
    last parts of the tables' names. `source` is a query on `source_text`, a text of the same length
    as the statement's in which all but the source (and the WITH before MERGE) is blank: positions
    in one are positions in the other. `within` has the bind names and the tables of subqueries
    between ON and the end; `qualifiers` are ranges there that must become the alias beside them.
    `evolves_schema` is WITH SCHEMA EVOLUTION: the target gets the columns that the source has.
    """

    target: TableName
    target_position: int
    target_alias: str
    source: QueryText
    source_text: str
    source_alias: str
    condition: TextRange
    clauses: tuple[MergeClause, ...]
    within: QueryText
    qualifiers: tuple[tuple[TextRange, str], ...] = ()
    evolves_schema: bool = False

    def of_kind(self, kind: MatchKind) -> tuple[MergeClause, ...]:
        """The clauses of one kind, in the order written."""
        return tuple(clause for clause in self.clauses if clause.kind == kind)


# GRANT, REVOKE and SHOW GRANTS: who may do what with which tables.

SCOPES = ("READ", "INSERT", "CHANGE", "ALTER", "MAINTAIN", "WRITE", "ADMIN")
"""The scopes that can be granted."""


@dataclass(frozen=True, slots=True)
class GrantedTables:
    """Tables by pattern, in which `*` stands for any text. `database` is None for a table of the
    current database, `*` with `table` `*` for the whole warehouse."""

    database: str | None
    table: str


@dataclass(frozen=True, slots=True)
class ChangeGrants(StatementText):
    """GRANT or REVOKE of scopes on tables, or of roles.

    `grantees` are texts such as `user:alice`, `role:analysts` and `group:sales`.
    """

    is_revoke: bool
    scopes: tuple[str, ...]
    tables: GrantedTables | None
    roles: tuple[str, ...]
    grantees: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShowGrants(StatementText):
    """SHOW GRANTS [ON …] [TO …]."""

    tables: GrantedTables | None = None
    grantee: str | None = None
