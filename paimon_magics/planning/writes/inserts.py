"""Plans an INSERT before anything runs: the source of each column, and whether the table is one
that this version writes.

The rules on columns are Paimon's (`PaimonAnalysis` in its Spark connector): by position, the
numbers of columns must be equal; with a column list or BY NAME, omitted columns get their default
or NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paimon_magics.errors import (
    InvalidValueError,
    StatementError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.schemas.format_rules import check_file_format
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.planning.schemas.written_options import check_written_options
from paimon_magics.planning.writes.file_rules import check_file_rules
from paimon_magics.statements.data_types import is_type
from paimon_magics.statements.statement import Insert, TableName

# `HiveBucketFunction` takes no timestamps, and hashes decimals as Java's BigDecimal does.
_NOT_HIVES = ("DECIMAL", "TIMESTAMP", "TIMESTAMP_LTZ")


@dataclass(frozen=True, slots=True)
class FromInput:
    """The value comes from the input's column at `position`."""

    position: int


@dataclass(frozen=True, slots=True)
class Constant:
    """The value is an expression of the PARTITION clause, as SQL text."""

    sql: str


@dataclass(frozen=True, slots=True)
class Missing:
    """The statement gives no value: the column gets its default, or NULL."""


Source = FromInput | Constant | Missing


def takes_one_at_a_time(schema: TableSchema) -> bool:
    """Whether a table allows one writer at a time, because a second could put the same keys into
    other buckets or partitions."""
    return schema.bucket_mode in ("HASH_DYNAMIC", "KEY_DYNAMIC")


def plans_in_turn(schema: TableSchema, *, reads: bool) -> bool:
    """Whether a statement is planned on the snapshot that is there when its transaction begins.

    One that `reads` rows and writes others in their place does so on a table that takes small
    inserts: nothing is loaded while its transaction is open, so that no insert can come between
    what it has read and its commit. With an earlier snapshot, a stream of inserts into the changed
    keys would outdate the plan each time.
    """
    return takes_one_at_a_time(schema) or (reads and takes_small_inserts(schema))


def static_partition_columns(insert: Insert, schema: TableSchema) -> dict[str, str]:
    """Map columns to the SQL text of their values, for `column = value` in the PARTITION clause.

    Raises UnknownNameError for a column that is no partition column, InvalidValueError for a
    column that is named twice.
    """
    known = {key.lower(): key for key in schema.partition_keys}
    seen: set[str] = set()
    static: dict[str, str] = {}
    for item in insert.partition or ():
        key = known.get(item.column.lower())
        if key is None:
            raise UnknownNameError(
                f"`{item.column}` is not a partition column of `{insert.target}`.",
                hint=nearest(item.column, known.values(), what="partition columns")
                if known
                else "The table is not partitioned: leave out the PARTITION clause.",
                statement=insert.text,
                position=item.position,
            )
        if key in seen:
            raise InvalidValueError(
                f"Partition column `{key}` appears twice in the PARTITION clause.",
                hint="Name each partition column once.",
                statement=insert.text,
                position=item.position,
            )
        seen.add(key)
        if item.value is not None:
            static[key] = item.value
    return static


def match_columns(
    insert: Insert, schema: TableSchema, input_names: Sequence[str]
) -> tuple[Source, ...]:
    """Return the source of each table column's value, in the table's column order.

    `input_names` are the column names of the insert's source. Raises InvalidValueError for a wrong
    number of columns, a column named twice, or a NOT NULL column without a value, and
    UnknownNameError for a column that the table does not have.
    """
    static = static_partition_columns(insert, schema)
    columns = schema.columns
    open_columns = [column for column in columns if column.name not in static]
    if insert.columns is not None:
        positions = _by_list(insert, open_columns, static, input_names)
    elif insert.by_name:
        positions = _by_name(insert, open_columns, static, input_names)
    else:
        positions = _by_position(
            insert, _as_in_hive(insert, open_columns, input_names), static, input_names
        )
    sources: list[Source] = []
    for column in columns:
        if column.name in static:
            sources.append(Constant(static[column.name]))
        elif column.name in positions:
            sources.append(FromInput(positions[column.name]))
        elif column.type.nullable or column.default is not None:
            sources.append(Missing())
        else:
            raise InvalidValueError(
                f"Column `{column.name}` of `{insert.target}` is NOT NULL and has no default, but "
                "the statement gives it no value.",
                hint=f"Add `{column.name}` to the columns that are written.",
                statement=insert.text,
                position=insert.target_position,
            )
    return tuple(sources)


def check_writable(name: TableName, schema: TableSchema, *, writes_blobs: bool = True) -> None:
    """Raise UnsupportedStatementError for a table that this version does not write.

    The message says what is refused and why: a file format, option or layout that the writers
    don't support. Without `writes_blobs` files of BLOB columns stay as they are.
    """
    if name.system_table is not None:
        raise UnsupportedStatementError(
            f"`{name}` is a system table, and system tables are read-only.",
            hint=f"Write to `{name.table}` itself.",
        )
    check_file_format(name, schema)
    check_written_options(name, schema)
    check_file_rules(schema)
    _check_layout(name, schema)
    if writes_blobs and schema.has_type("BLOB"):
        raise UnsupportedStatementError(
            f"Table `{name}` has columns of the type BLOB, which are stored in separate files; "
            "writing them is not offered yet.",
            hint="Write it with another engine, or keep the bytes in a BINARY column.",
        )
    for key in schema.partition_keys:
        if schema.column(key).type.name in ("BINARY", "VARBINARY", "BYTES", "FLOAT", "DOUBLE"):  # type: ignore[union-attr]
            raise UnsupportedStatementError(
                f"Partition column `{key}` of `{name}` is binary or floating-point; Paimon's "
                "engines name the folders of such partitions differently.",
                hint="Partition by a string, integer, decimal or date column.",
            )


def check_adds_rows(name: TableName, schema: TableSchema) -> None:
    """Raise UnsupportedStatementError for a table that is not written, or to which rows can't just
    be added, as small inserts do: with 'upsert-key' an INSERT INTO is a MERGE
    (`RewriteUpsertTable` of Paimon)."""
    check_writable(name, schema)
    keys = schema.stored_option("upsert-key")
    if keys and not schema.is_primary_key_table:
        raise UnsupportedStatementError(
            f"Table `{name}` has 'upsert-key' = '{keys}': an insert replaces the rows that are "
            "equal in these columns. Small inserts can't do this: both rows would remain.",
            hint=f"Run INSERT INTO {name} in a session, which merges the rows.",
        )


def takes_small_inserts(schema: TableSchema) -> bool:
    """Whether small inserts into the table are logged and loaded together (`auto_batch_load`).

    Tables that sessions can't write don't take them. Nor do tables whose keys can move between
    partitions, because each row must be looked up among all rows, nor tables with VARIANT columns,
    because only Spark can make such values, nor tables that show rows after a compaction only.
    """
    if not schema.flag("auto_batch_load") or schema.bucket_mode == "KEY_DYNAMIC":
        return False
    if schema.has_type("VARIANT"):
        return False
    if rows_hidden_by(schema) is not None and not schema.write_only:
        return False
    if schema.postpones_buckets:
        return False
    try:
        check_adds_rows(TableName("table"), schema)
    except StatementError:
        return False
    return True


def _check_layout(name: TableName, schema: TableSchema) -> None:
    if schema.bucket_function != "hive" or schema.bucket == -1:
        return
    for key in schema.bucket_keys:
        kind = schema.column(key).type
        if is_type(kind, *_NOT_HIVES):
            raise UnsupportedStatementError(
                f"Table `{name}` has 'bucket-function.type' = 'hive' and the bucket key `{key}` of "
                "the type DECIMAL, TIMESTAMP or TIMESTAMP_LTZ; such buckets are not written here.",
                hint="Paimon itself computes none for timestamps. Create the table with another "
                "bucket key or another function, and copy the rows.",
            )


def uniqueness_note(schema: TableSchema) -> str:
    """A sentence on a primary key that is unique in each partition only; "" for other tables."""
    if not schema.is_unique_in_partitions_only:
        return ""
    missing = [key for key in schema.partition_keys if key not in schema.primary_keys]
    columns = " and ".join(f"`{key}`" for key in missing)
    return (
        f"The primary key lacks {columns}, and 'bucket' is {schema.bucket}: a key is unique in its "
        "partition only, and other partitions can have a row of the same key. Without the option "
        "'bucket' a row that is written again replaces the one in another partition, too."
    )


def rows_hidden_by(schema: TableSchema) -> str | None:
    """The option, as text, that hides written rows until the table is compacted; None if they are
    visible at once."""
    if not schema.is_primary_key_table:
        return None
    if schema.postpones_buckets:
        return "'postpone.batch-write-fixed-bucket' = 'false'"
    return level_zero_hidden_by(schema)


def level_zero_hidden_by(schema: TableSchema) -> str | None:
    """The option, as text, of a primary-key table that hides files of level 0; None if they are
    read."""
    if schema.engine.keeps_first_row:
        return f"'merge-engine' = '{schema.merge_engine}'"
    if schema.deletion_vectors_enabled and not schema.flag("deletion-vectors.merge-on-read"):
        return "'deletion-vectors.enabled' = 'true'"
    return None


def _as_in_hive(
    insert: Insert, columns: Sequence[Column], input_names: Sequence[str]
) -> list[Column]:
    """The columns in the order in which the query gives them. The partition columns that the
    PARTITION clause names without a value are the query's last, in the clause's order, as in Hive;
    unless the query's columns have the names of the table's: then each goes to its own."""
    dynamic = [item.column.lower() for item in insert.partition or () if item.value is None]
    if not dynamic:
        return list(columns)
    by_name = {column.name.lower(): column for column in columns}
    names = [name.lower() for name in input_names]
    if len(names) == len(by_name) and set(names) == by_name.keys():
        return [by_name[name] for name in names]
    others = [column for column in columns if column.name.lower() not in dynamic]
    return [*others, *(by_name[name] for name in dynamic)]


def _by_position(
    insert: Insert, columns: Sequence[Column], static: dict[str, str], input_names: Sequence[str]
) -> dict[str, int]:
    if len(input_names) != len(columns):
        raise InvalidValueError(
            f"`{insert.target}` takes {count_text(len(columns), 'column')}{_besides(static)} but "
            f"the statement gives {len(input_names)}.",
            hint=f"The columns are {_listed(column.name for column in columns)}. Name the columns "
            "that you write in a column list, or use BY NAME.",
            statement=insert.text,
            position=insert.source.range.start,
        )
    return {column.name: position for position, column in enumerate(columns)}


def _by_list(
    insert: Insert, columns: Sequence[Column], static: dict[str, str], input_names: Sequence[str]
) -> dict[str, int]:
    assert insert.columns is not None
    names = [_known(insert, name, columns, static) for name in insert.columns]
    _check_unique(insert, names)
    if len(names) != len(input_names):
        raise InvalidValueError(
            f"The column list names {count_text(len(names), 'column')}, but the statement gives "
            f"{len(input_names)}.",
            hint=f"The list is {_listed(names)}.",
            statement=insert.text,
            position=insert.source.range.start,
        )
    return {name: position for position, name in enumerate(names)}


def _by_name(
    insert: Insert, columns: Sequence[Column], static: dict[str, str], input_names: Sequence[str]
) -> dict[str, int]:
    names = [_known(insert, name, columns, static) for name in input_names]
    _check_unique(insert, names)
    return {name: position for position, name in enumerate(names)}


def _known(insert: Insert, name: str, columns: Sequence[Column], static: dict[str, str]) -> str:
    for column in columns:
        if column.name.lower() == name.lower():
            return column.name
    for key in static:
        if key.lower() == name.lower():
            raise InvalidValueError(
                f"Column `{key}` gets its value from the PARTITION clause and from the input.",
                hint=f"Remove `{key}` from one of the two.",
                statement=insert.text,
                position=insert.target_position,
            )
    raise UnknownNameError(
        f"`{insert.target}` has no column `{name}`.",
        hint=nearest(name, [column.name for column in columns], what="columns"),
        statement=insert.text,
        position=_find(insert.text, name, insert.target_position),
    )


def _check_unique(insert: Insert, names: Sequence[str]) -> None:
    for position, name in enumerate(names):
        if name in names[:position]:
            raise InvalidValueError(
                f"Column `{name}` is written twice.",
                hint="Name each column once.",
                statement=insert.text,
                position=_find(insert.text, name, insert.target_position),
            )


def _find(text: str, name: str, start: int) -> int:
    position = text.lower().find(name.lower(), start)
    return position if position >= 0 else start


def _besides(static: dict[str, str]) -> str:
    return f" besides the partition columns {_listed(static)}" if static else ""


def _listed(names: object) -> str:
    return ", ".join(f"`{name}`" for name in names)  # type: ignore[attr-defined]
