"""Refuses the schemas that Paimon's Java library refuses, before anything is stored.

The rules are those of Paimon 2.0.0's `Schema`, `TableSchema`, `SchemaValidation` and the factories
of its merge functions, checked in about that order; each function names its source. Rules on types
that this project does not have (VECTOR, MULTISET) are left out. Rules on merge functions are in
`merge_rules`, rules on features in `feature_rules`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from paimon_magics.errors import InvalidTableError, nearest
from paimon_magics.planning.options.formats import FILE_FORMATS, WRITTEN_FORMATS
from paimon_magics.planning.options.rules import check_option_key, check_option_value
from paimon_magics.planning.options.values import integer_value
from paimon_magics.planning.schemas.feature_rules import FEATURE_RULES
from paimon_magics.planning.schemas.merge_rules import MERGE_RULES, STATED_MERGE_RULES
from paimon_magics.planning.schemas.table_schema import (
    TableSchema,
    check_columns_exist,
    column_list,
)
from paimon_magics.statements.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    VectorType,
    is_type,
)

_SYSTEM_NAMES = ("_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "rowkind", "_ROW_ID")
_KEY_PREFIX = "_KEY_"
# Paimon takes a comment with such a beginning as a change of the column's type
# (`ColumnDirectiveUtils`).
_COMMENT_DIRECTIVES = ("__BLOB", "__VECTOR")


def check_schema(schema: TableSchema, *, from_engine: bool = False) -> None:
    """Check the schema of a new table.

    Raises InvalidTableError for a schema that contradicts itself or Paimon's rules, and
    UnknownNameError for an option key that looks mistyped. An engine's schema may have options that
    are unknown here, and settings that Paimon stores although no writer can use them.
    """
    for key, value in schema.options:
        if not from_engine:
            check_option_key(key)
        check_option_value(key, value)
    check_structure(schema, from_engine=from_engine)


def check_stated(schema: TableSchema) -> None:
    """Check the schema of a table that a statement creates.

    Unlike `check_schema`, this refuses a table without columns: an engine may create such a table,
    but a user does not intend to.
    """
    if not schema.columns:
        raise InvalidTableError(
            "The table has no columns.",
            hint="Write CREATE TABLE t (id INT, name STRING), or CREATE TABLE t AS SELECT ….",
        )
    check_schema(schema)


def check_structure(schema: TableSchema, *, from_engine: bool = False) -> None:
    """Check all that `check_schema` checks, except single option keys and values."""
    _check_column_names(schema)
    _check_keys(schema)
    _check_types(schema)
    _check_buckets(schema)
    _check_formats(schema)
    _check_retention(schema)
    stated = () if from_engine else STATED_MERGE_RULES
    for rule in (*MERGE_RULES, *stated, *FEATURE_RULES):
        rule(schema)


def is_of_an_engine(schema: TableSchema) -> bool:
    """Whether only an engine could have made the table: a statement's would be refused."""
    try:
        for rule in STATED_MERGE_RULES:
            rule(schema)
    except InvalidTableError:
        return True
    return False


def _check_column_names(schema: TableSchema) -> None:
    """`Schema.normalizeFields` and the reserved names of `SpecialFields`.

    Names that differ in case only are refused too: Spark could not tell the columns apart.
    """
    _check_distinct(schema.column_names, "The table")
    for name in schema.column_names:
        if name in _SYSTEM_NAMES or name.startswith(_KEY_PREFIX):
            raise InvalidTableError(
                f"A column can't be named `{name}`: Paimon reserves that name.",
                hint=f"Rename it. Reserved are {', '.join(_SYSTEM_NAMES)} and names that begin "
                f"with {_KEY_PREFIX}.",
            )
        if not name.strip():
            raise InvalidTableError("A column has an empty name.", hint="Give it a name.")
    for column in schema.columns:
        _check_nested_names(column.name, column.type)
        if (column.comment or "").strip().startswith(_COMMENT_DIRECTIVES):
            raise InvalidTableError(
                f"The comment of `{column.name}` begins with a word that Paimon reads as a "
                "directive.",
                hint="Begin it with another word; declare a BLOB column by the type BLOB.",
            )


def _check_nested_names(path: str, data_type: DataType) -> None:
    match data_type:
        case ArrayType(element=element) | MultisetType(element=element):
            _check_nested_names(path, element)
        case MapType(key=key, value=value):
            _check_nested_names(path, key)
            _check_nested_names(path, value)
        case RowType(fields=fields):
            _check_distinct([field.name for field in fields], f"The column `{path}`")
            if not fields:
                raise InvalidTableError(
                    f"The column `{path}` is a STRUCT without fields.", hint="Give it a field."
                )
            for field in fields:
                _check_nested_names(f"{path}.{field.name}", field.type)
        case AtomicType() | VectorType():
            pass


def _check_distinct(names: Sequence[str], where: str) -> None:
    counts = Counter(name.lower() for name in names)
    for name in names:
        if counts[name.lower()] > 1:
            same = [n for n in names if n.lower() == name.lower()]
            raise InvalidTableError(
                f"{where} has the column `{name}` {len(same)} times"
                + (f" ({', '.join(same)})." if len(set(same)) > 1 else "."),
                hint="Rename or remove all but one column; case is ignored.",
            )


def _check_keys(schema: TableSchema) -> None:
    """`Schema.normalizeFields`, `SchemaValidation.validateOnlyContainPrimitiveType`,
    `TableSchema.trimmedPrimaryKeys`."""
    upsert_keys = column_list(schema.stored_option("upsert-key"))
    for names, where in (
        (schema.partition_keys, "PARTITIONED BY"),
        (schema.primary_keys, "The primary key"),
        (upsert_keys, "The option 'upsert-key'"),
    ):
        check_columns_exist(schema, names, where)
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            raise InvalidTableError(
                f"{where} names the column `{repeated[0]}` twice.", hint="Name it once."
            )
        for name in names:
            if not isinstance(schema.column(name).type, AtomicType):
                raise InvalidTableError(
                    f"{where} names the column `{name}`, whose type is nested.",
                    hint="Arrays, maps and structs can't be keys: use another column.",
                )
    if upsert_keys and schema.primary_keys:
        raise InvalidTableError(
            "The option 'upsert-key' can't be set for a table with a primary key.",
            hint="Keep one of them.",
        )
    if schema.primary_keys and not schema.trimmed_primary_keys:
        raise InvalidTableError(
            f"The primary key ({', '.join(schema.primary_keys)}) consists of partition keys "
            "only: every partition would hold one row.",
            hint="Add a column to the primary key.",
        )
    if schema.flag("primary-key.nullable"):
        raise InvalidTableError(
            "'primary-key.nullable' can't be true: primary keys that hold NULL are not offered.",
            hint="Leave it out; the columns of the primary key become NOT NULL.",
        )


def _check_types(schema: TableSchema) -> None:
    """The limits of types, which the constructors of Paimon's types check."""
    for column in schema.columns:
        _check_type(column.name, column.type)


def _check_type(path: str, data_type: DataType) -> None:
    match data_type:
        case ArrayType(element=element) | MultisetType(element=element):
            _check_type(path, element)
        case VectorType(element=element, length=length):
            _check_type(path, element)
            if length < 1:
                raise _bad_type(path, AtomicType("VECTOR", (length,)), "a length of at least 1")
        case MapType(key=key, value=value):
            _check_type(path, key)
            _check_type(path, value)
        case RowType(fields=fields):
            for field in fields:
                _check_type(f"{path}.{field.name}", field.type)
        case AtomicType(name="DECIMAL", parameters=(precision, scale)):
            if not (1 <= precision <= 38 and 0 <= scale <= precision):
                raise _bad_type(path, data_type, "precision 1 to 38, scale 0 to the precision")
        case AtomicType(name="CHAR" | "VARCHAR" | "BINARY" | "VARBINARY", parameters=(length,)):
            if length < 1:
                raise _bad_type(path, data_type, "a length of at least 1")
        case AtomicType(name="TIME" | "TIMESTAMP" | "TIMESTAMP_LTZ", parameters=(precision,)):
            if not 0 <= precision <= 9:
                raise _bad_type(path, data_type, "a precision of 0 to 9")
        case AtomicType() | VectorType():
            pass


def _bad_type(path: str, data_type: AtomicType, wanted: str) -> InvalidTableError:
    numbers = ", ".join(map(str, data_type.parameters))
    return InvalidTableError(
        f"The column `{path}` has the invalid type {data_type.name}({numbers}).",
        hint=f"{data_type.name} needs {wanted}.",
    )


def _check_buckets(schema: TableSchema) -> None:
    """`SchemaValidation.validateBucket`, `TableSchema.originalBucketKeys`, `ModBucketFunction`."""
    bucket = schema.bucket
    bucket_keys = column_list(schema.stored_option("bucket-key"))
    check_columns_exist(schema, bucket_keys, "The option 'bucket-key'")
    for name in bucket_keys:
        if name in schema.partition_keys:
            raise InvalidTableError(
                f"The option 'bucket-key' names the partition key `{name}`.",
                hint="Use columns that are not partition keys.",
            )
        if schema.primary_keys and name not in schema.primary_keys:
            raise InvalidTableError(
                f"The option 'bucket-key' names `{name}`, which is not in the primary key.",
                hint=f"Use columns of the primary key ({', '.join(schema.primary_keys)}).",
            )
    if bucket == -1:
        if schema.stored_option("bucket-key") is not None:
            raise InvalidTableError(
                "The option 'bucket-key' needs a number of buckets, and 'bucket' is -1.",
                hint="Set 'bucket' to a number above 0, or leave out 'bucket-key'.",
            )
        if not schema.primary_keys and schema.stored_option("full-compaction.delta-commits"):
            raise InvalidTableError(
                "The option 'full-compaction.delta-commits' can't be set for an append table "
                "without buckets.",
                hint="Leave it out.",
            )
        return
    if bucket < 1 and not (bucket == -2 and schema.primary_keys):
        raise InvalidTableError(
            f"The option 'bucket' can't be {bucket}.",
            hint="Use a number above 0, -1 for dynamic or no buckets, or (with a primary key) -2 "
            "for postponed buckets.",
        )
    if not schema.bucket_keys:
        raise InvalidTableError(
            f"The append table has 'bucket' = {bucket} and no 'bucket-key'.",
            hint="Set 'bucket-key' to the columns to hash by, or leave out 'bucket'.",
        )
    for name in schema.bucket_keys:
        if not isinstance(schema.column(name).type, AtomicType):
            raise InvalidTableError(
                f"The bucket key `{name}` has a nested type.", hint="Use another column."
            )
    if (schema.option("bucket-function.type") or "").lower() == "mod":
        types = [schema.column(name).type for name in schema.bucket_keys]
        if len(types) != 1 or not is_type(types[0], "INT", "BIGINT"):
            raise InvalidTableError(
                "'bucket-function.type' = 'mod' needs one bucket key of the type INT or BIGINT; "
                f"the bucket keys are {', '.join(schema.bucket_keys)}.",
                hint="Set 'bucket-key' to such a column, or leave out 'bucket-function.type'.",
            )


def _check_formats(schema: TableSchema) -> None:
    """`FileFormat.fromIdentifier` and the formats' `validateDataFields`."""
    for key in ("file.format", "changelog-file.format", "manifest.format"):
        name = schema.option(key)
        if name is not None and name.lower() not in FILE_FORMATS:
            raise InvalidTableError(
                f"The option '{key}' can't be '{name}'.",
                hint=nearest(name, WRITTEN_FORMATS, what="file formats"),
            )
    if (schema.option("type") or "table").lower() != "table":
        raise InvalidTableError(
            f"A table of the type '{schema.option('type')}' can't be created here.",
            hint="Leave out the option 'type'. USING parquet makes a table of plain files in "
            "Spark's own catalog; Flink and Paimon's Spark connector create tables of this type.",
        )
    if schema.flag("auto-create"):
        raise InvalidTableError(
            "The option 'auto-create' can't be true for a table.", hint="Leave it out."
        )
    per_level = schema.stored_option("file.format.per.level") or ""
    avro_levels = [p for p in per_level.split(",") if p.strip().lower().endswith(":avro")]
    if schema.file_format == "avro" or avro_levels:
        for column in schema.columns:
            match column.type:
                case AtomicType(name="TIMESTAMP" | "TIMESTAMP_LTZ", parameters=(p,)) if p > 6:
                    raise InvalidTableError(
                        f"Avro holds timestamps of up to 6 digits, and `{column.name}` has {p}.",
                        hint="Lower its precision, or use the file format parquet.",
                    )


def _check_retention(schema: TableSchema) -> None:
    """`SchemaValidation.validateTableSchema`: numbers that must be at least 1, or in order."""
    if schema.parsed("target-file-row-num", partial(integer_value, bits=64), 0) < 1:
        raise InvalidTableError(
            "The option 'target-file-row-num' is below 1.", hint="Set it to 1 or more."
        )
    minimum = maximum = 0
    for kind in ("snapshot", "changelog"):  # changelogs are kept as snapshots are by default
        minimum = schema.parsed(f"{kind}.num-retained.min", integer_value, minimum)
        maximum = schema.parsed(f"{kind}.num-retained.max", integer_value, maximum)
        if minimum < 1:
            raise InvalidTableError(
                f"The option '{kind}.num-retained.min' is below 1.", hint="Set it to 1 or more."
            )
        if minimum > maximum:
            raise InvalidTableError(
                f"'{kind}.num-retained.min' ({minimum}) is above '{kind}.num-retained.max' "
                f"({maximum}).",
                hint=f"Set '{kind}.num-retained.min' to {maximum} or less too.",
            )
