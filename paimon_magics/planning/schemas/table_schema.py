"""A table's schema as a value, and the schema that a CREATE TABLE statement asks for.

Holds `Column`, `TableSchema` with the properties that planning needs most, and
`plan_create_table`. Field ids follow Paimon's `Schema.Builder`: counted from 0 in the order of the
columns, where the fields nested in a column take the ids after it. Whether Paimon would accept a
schema is checked by `rules.check_schema`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol, TypeVar

from paimon_magics.errors import InvalidTableError, UnknownNameError, nearest
from paimon_magics.planning.options.changelog_producers import (
    CHANGELOG_PRODUCERS,
    ChangelogProducer,
)
from paimon_magics.planning.options.merge_engines import MERGE_ENGINES, MergeEngine
from paimon_magics.planning.options.table_options import OLDER_KEYS, default_value
from paimon_magics.planning.options.values import boolean_value, integer_value
from paimon_magics.planning.schemas.defaults import stored_default
from paimon_magics.statements.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    VectorType,
    as_nullable,
    contains_type,
)
from paimon_magics.statements.statement import CreateTable

_T = TypeVar("_T")
DEFAULT_PARTITION_NAME = "__DEFAULT_PARTITION__"
"""The default of `partition.default-name`."""

# Keys that Spark reserves for clauses, with the clause to use instead.
_CLAUSE_OF_RESERVED_KEY = {"location": "LOCATION", "provider": "USING"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column with its Paimon field id. `default` is SQL text, None without a default."""

    id: int
    name: str
    type: DataType
    comment: str | None = None
    default: str | None = None


class _ColumnLike(Protocol):
    """The attributes that a query's column needs to become a column of a table."""

    @property
    def name(self) -> str:
        """The column's name."""

    @property
    def type(self) -> DataType:
        """The column's Paimon type, with its nullability."""

    @property
    def comment(self) -> str | None:
        """The column's comment, or None."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One schema of a table. `options` are the stored options, in order and without duplicates.

    `schema_id` numbers the table's schemas from 0. A planned schema has the id that it will get
    unless the table changes first.
    """

    columns: tuple[Column, ...]
    partition_keys: tuple[str, ...] = ()
    primary_keys: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    comment: str | None = None
    schema_id: int = 0

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the top-level columns, in order."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        """Return the top-level column of that exact name; raises UnknownNameError without one."""
        for column in self.columns:
            if column.name == name:
                return column
        raise UnknownNameError(
            f"There is no column `{name}`.", hint=nearest(name, self.column_names, what="columns")
        )

    def stored_option(self, key: str) -> str | None:
        """Return the option's value as stored with the table, None if it is not set.

        An option that was renamed may be stored under its older name.
        """
        # Plans ask a hundred times: a loop takes a fifth of the time that a dictionary takes.
        for name, value in self.options:
            if name == key:
                return value
        for older in OLDER_KEYS.get(key, ()):
            if (stored := self.stored_option(older)) is not None:
                return stored
        return None

    def option(self, key: str) -> str | None:
        """Return the option's value as text, by default Paimon's default; None if it has none."""
        stored = self.stored_option(key)
        return default_value(key) if stored is None else stored

    def parsed(self, key: str, parse: Callable[[str, str], _T], otherwise: _T) -> _T:
        """Return the option's value as `parse` reads it, `otherwise` if it has none.

        Raises InvalidTableError for a value that can't be read.
        """
        text = self.option(key)
        return otherwise if text is None else parse(key, text)

    def has_type(self, name: str) -> bool:
        """Whether a column has this atomic type, at any level."""
        return any(contains_type(column.type, name) for column in self.columns)

    def flag(self, key: str) -> bool:
        """Return a boolean option's value; raises InvalidTableError for text that is no boolean."""
        return self.parsed(key, boolean_value, False)

    @property
    def is_primary_key_table(self) -> bool:
        """Whether rows are merged by a primary key; all other tables are append tables."""
        return bool(self.primary_keys)

    @property
    def is_partitioned(self) -> bool:
        """Whether the table has partition keys."""
        return bool(self.partition_keys)

    @property
    def trimmed_primary_keys(self) -> tuple[str, ...]:
        """The primary keys without the partition keys: what identifies a row in a partition."""
        return tuple(key for key in self.primary_keys if key not in self.partition_keys)

    @property
    def is_cross_partition_update(self) -> bool:
        """Whether a key can move between partitions: a partition key is not in the primary key."""
        return bool(self.primary_keys) and not set(self.partition_keys) <= set(self.primary_keys)

    @property
    def is_unique_in_partitions_only(self) -> bool:
        """Whether each partition may have a row of the same primary key. With dynamic buckets a key
        moves instead: one writer knows where each key is."""
        return self.is_cross_partition_update and self.bucket_mode != "KEY_DYNAMIC"

    @property
    def bucket(self) -> int:
        """The `bucket` option: a number of buckets, -1 (dynamic or none) or -2 (postponed)."""
        return self.parsed("bucket", integer_value, -1)

    @property
    def bucket_function(self) -> str:
        """How the bucket keys give the bucket: default, mod or hive."""
        return (self.option("bucket-function.type") or "default").lower()

    @property
    def bucket_keys(self) -> tuple[str, ...]:
        """The columns that rows are hashed by: `bucket-key`, else the trimmed primary keys."""
        return column_list(self.stored_option("bucket-key")) or self.trimmed_primary_keys

    @property
    def bucket_mode(self) -> str:
        """Paimon's `BucketMode`: HASH_FIXED, HASH_DYNAMIC, KEY_DYNAMIC, BUCKET_UNAWARE or
        POSTPONE_MODE."""
        bucket = self.bucket
        if bucket == -2:
            return "POSTPONE_MODE"
        if bucket != -1:
            return "HASH_FIXED"
        if not self.primary_keys:
            return "BUCKET_UNAWARE"
        return "KEY_DYNAMIC" if self.is_cross_partition_update else "HASH_DYNAMIC"

    @property
    def merge_engine(self) -> str:
        """`merge-engine` in lower case; `engine` says what it does."""
        return (self.option("merge-engine") or "deduplicate").lower()

    @property
    def engine(self) -> MergeEngine:
        """The traits of the merge engine; empty for an engine that is not Paimon's."""
        return MERGE_ENGINES.get(self.merge_engine) or MergeEngine(self.merge_engine)

    @property
    def changelog_producer(self) -> str:
        """`changelog-producer` in lower case; `producer` says what it does."""
        return (self.option("changelog-producer") or "none").lower()

    @property
    def producer(self) -> ChangelogProducer:
        """The traits of the changelog producer."""
        name = self.changelog_producer
        return CHANGELOG_PRODUCERS.get(name) or ChangelogProducer(name)

    @property
    def file_format(self) -> str:
        """`file.format` in lower case."""
        return (self.option("file.format") or "parquet").lower()

    @property
    def sequence_fields(self) -> tuple[str, ...]:
        """The columns of `sequence.field`, in order."""
        return column_list(self.stored_option("sequence.field"))

    @property
    def deletion_vectors_enabled(self) -> bool:
        """`deletion-vectors.enabled`."""
        return self.flag("deletion-vectors.enabled")

    @property
    def looks_up(self) -> bool:
        """Whether compactions look up what was merged before (Paimon's `LookupStrategy`)."""
        return (
            self.producer.looks_up
            or self.engine.keeps_first_row
            or self.deletion_vectors_enabled
            or self.flag("force-lookup")
        )

    @property
    def postpones_buckets(self) -> bool:
        """Whether rows that a statement writes wait for a compaction to get their buckets."""
        fixes = self.flag("postpone.batch-write-fixed-bucket")
        return self.bucket_mode == "POSTPONE_MODE" and not fixes

    @property
    def write_only(self) -> bool:
        """`write-only`: some other job compacts this table."""
        return self.flag("write-only") or self.flag("write.compaction-skip")

    @property
    def row_tracking_enabled(self) -> bool:
        """`row-tracking.enabled`."""
        return self.flag("row-tracking.enabled")

    @property
    def data_evolution_enabled(self) -> bool:
        """`data-evolution.enabled`."""
        return self.flag("data-evolution.enabled")

    @property
    def rowkind_field(self) -> str | None:
        """The column that has the row kinds of written rows, or None."""
        return self.stored_option("rowkind.field")

    @property
    def partition_default_name(self) -> str:
        """The folder name of a null partition value."""
        return self.option("partition.default-name") or DEFAULT_PARTITION_NAME


def plan_create_table(
    statement: CreateTable,
    query_columns: Sequence[_ColumnLike] | None = None,
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> TableSchema:
    """Return the schema that CREATE TABLE asks for; `query_columns` are those of its AS query,
    `defaults` the catalog's options for new tables.

    The options `primary-key`, `partition`, `comment` and `path` mean the same as their clauses
    (Paimon's `Schema` and its Spark catalog); the first three are not stored as options. Columns
    of the primary key become NOT NULL. Raises InvalidTableError for clauses and options that
    contradict each other; `check_schema` checks the result.
    """
    options = {**defaults, **_options(statement)}
    columns = _columns(statement, query_columns)
    names = tuple(column.name for column in columns)

    partition_keys = _keys(
        "partition", statement.partitioned_by, options.pop("partition", None), names
    )
    primary_keys = _keys(
        "primary-key", statement.primary_key, options.pop("primary-key", None), names
    )
    comment = _one_of("comment", statement.comment, "COMMENT", options.pop("comment", None))
    path = _one_of("path", statement.location, "LOCATION", options.pop("path", None))
    if path is not None:
        options["path"] = path

    return TableSchema(
        columns=tuple(
            replace(c, type=as_nullable(c.type, False)) if c.name in primary_keys else c
            for c in columns
        ),
        partition_keys=partition_keys,
        primary_keys=primary_keys,
        options=tuple(options.items()),
        comment=comment,
    )


def check_columns_exist(schema: TableSchema, names: Iterable[str], where: str) -> None:
    """Raise InvalidTableError for a name that is no column; `where` says what names it."""
    for name in names:
        if name not in schema.column_names:
            raise InvalidTableError(
                f"{where} names the column `{name}`, which the table does not have.",
                hint=nearest(name, schema.column_names, what="columns"),
            )


def field_option_keys(schema: TableSchema) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield (key, columns, suffix) for each option `fields.<columns>.<suffix>`."""
    for key, _ in schema.options:
        parts = key.split(".", 2)
        if parts[0] == "fields" and len(parts) == 3:
            yield key, tuple(parts[1].split(",")), parts[2]


def column_list(text: str | None) -> tuple[str, ...]:
    """The column names in an option's comma-separated list."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def nested_field_count(data_type: DataType) -> int:
    """How many field ids a column of this type takes beyond its own (one per field of a ROW)."""
    match data_type:
        case AtomicType():
            return 0
        case ArrayType(element=element) | MultisetType(element=element):
            return nested_field_count(element)
        case VectorType():
            return 0
        case MapType(key=key, value=value):
            return nested_field_count(key) + nested_field_count(value)
        case RowType(fields=fields):
            return sum(1 + nested_field_count(field.type) for field in fields)


def _options(statement: CreateTable) -> dict[str, str]:
    options: dict[str, str] = {}
    for key, value in statement.options:
        if key.lower() in _CLAUSE_OF_RESERVED_KEY:
            clause = _CLAUSE_OF_RESERVED_KEY[key.lower()]
            raise InvalidTableError(
                f"`{key}` can't be a table option.", hint=f"Use the {clause} clause."
            )
        if options.get(key, value) != value:
            raise InvalidTableError(
                f"The option '{key}' is set twice, to '{options[key]}' and to '{value}'.",
                hint="Keep one of them.",
            )
        options[key] = value
    return options


def _columns(
    statement: CreateTable, query_columns: Sequence[_ColumnLike] | None
) -> tuple[Column, ...]:
    columns: list[Column] = []
    next_id = 0
    if statement.columns or query_columns is None:
        stated = [(c.name, c.type, c.comment, c.default) for c in statement.columns]
    else:
        stated = [(c.name, c.type, c.comment, None) for c in query_columns]
    for name, data_type, comment, default in stated:
        default = stored_default(name, data_type, default)
        columns.append(Column(next_id, name, data_type, comment, default))
        next_id += 1 + nested_field_count(data_type)
    return tuple(columns)


def _keys(
    key: str, clause: tuple[str, ...], option: str | None, names: tuple[str, ...]
) -> tuple[str, ...]:
    clause_name = {"partition": "PARTITIONED BY", "primary-key": "PRIMARY KEY"}[key]
    if option is None:
        return tuple(_resolved(name, names) for name in clause)
    if clause:
        raise InvalidTableError(
            f"Both {clause_name} and the option '{key}' are given.",
            hint=f"Keep one of them, for example {clause_name} ({', '.join(clause)}).",
        )
    return column_list(option)


def _resolved(name: str, names: Iterable[str]) -> str:
    """The only column of that name, in upper or lower case; without one, the name as it is."""
    same = [n for n in names if n.lower() == name.lower()]
    return same[0] if len(same) == 1 else name


def _one_of(key: str, clause: str | None, clause_name: str, option: str | None) -> str | None:
    if clause is not None and option is not None and clause != option:
        raise InvalidTableError(
            f"The {clause_name} clause says '{clause}' and the option '{key}' says '{option}'.",
            hint="Keep one of them.",
        )
    return option if clause is None else clause
