"""Which tables can be written in which file format.

These formats can't store every type so that other engines read the same values.
"""

from __future__ import annotations

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.options.formats import FILE_FORMATS, WRITTEN_FORMATS
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.schemas.written_options import values_by_level
from paimon_magics.statements.data_types import (
    AtomicType,
    DataType,
    RowType,
    contains_type,
    is_type,
    parts_of,
)
from paimon_magics.statements.statement import TableName

_MICROSECONDS = 6
_LTZ_LEGACY = "orc.timestamp-ltz.legacy.type"


def check_file_format(name: TableName, schema: TableSchema) -> None:
    """Raise UnsupportedStatementError for a table whose files this version can't write safely."""
    for file_format in sorted(_written_formats(schema) - {"parquet"}):
        if file_format not in WRITTEN_FORMATS:
            *others, last = (f"'{written}'" for written in WRITTEN_FORMATS)
            raise UnsupportedStatementError(
                f"`{name}` has {file_format} files; writing such files is not offered.",
                hint=f"Set 'file.format' to {', '.join(others)} or {last}.",
            )
        _check_types(name, schema, file_format)


def _written_formats(schema: TableSchema) -> frozenset[str]:
    """The formats of the files that are written to a table, at any level; changelogs included."""
    if not schema.is_primary_key_table:
        return frozenset([schema.file_format])
    by_level = values_by_level(schema, "file.format.per.level")
    changelog = schema.stored_option("changelog-file.format")
    formats = {schema.file_format, *by_level.values()}
    if changelog is not None and schema.changelog_producer != "none":
        formats.add(changelog.lower())
    return frozenset(formats)


def fits_format(schema: TableSchema, file_format: str) -> bool:
    """Whether files of a format hold all types of a table."""
    return not schema.has_type("VARIANT") and all(
        _reason_of(file_format, column.name, column.type) is None for column in schema.columns
    )


def fits_spark(schema: TableSchema) -> bool:
    """Whether stored values of all types of a table pass through Spark as they are: its timestamps
    end at microseconds."""
    return all(
        _digits(part) <= _MICROSECONDS
        for column in schema.columns
        for part in parts_of(column.type)
    )


def _check_types(name: TableName, schema: TableSchema, file_format: str) -> None:
    legacy = (schema.stored_option(_LTZ_LEGACY) or "true").lower() != "false"
    for column in schema.columns:
        if file_format == "orc" and legacy and contains_type(column.type, "TIMESTAMP_LTZ"):
            raise UnsupportedStatementError(
                f"Column `{column.name}` of `{name}` can't be written to ORC files: Paimon's Java "
                "library reads TIMESTAMP_LTZ there in the time zone of its machine.",
                hint=f"Set '{_LTZ_LEGACY}' = 'false' for the table, use TIMESTAMP_NTZ, or "
                "'file.format' = 'parquet'.",
            )
        reason = _reason_of(file_format, column.name, column.type)
        if reason is not None:
            raise UnsupportedStatementError(
                f"Column `{column.name}` of `{name}` can't be written to {file_format} files: "
                f"{reason}.",
                hint="Use 'file.format' = 'parquet' for such a table.",
            )


def _reason_of(file_format: str, name: str, data_type: DataType) -> str | None:
    """Why a column can't be stored in a format; None if it can."""
    if file_format == "avro":
        names = [
            name,
            *(f.name for t in parts_of(data_type) if isinstance(t, RowType) for f in t.fields),
        ]
        for each in names:
            if not _is_avro_name(each):
                return (
                    f"`{each}` is no name for such files, which have letters, digits and "
                    "underscores only in names"
                )
    return _reason(file_format, data_type)


def _is_avro_name(name: str) -> bool:
    """Whether Avro's Java library takes a name (`Schema.validateName`)."""
    return not name[:1].isdecimal() and all(
        character == "_"
        or ((character.isalpha() or character.isdecimal()) and character < "\U00010000")
        for character in name
    )


def _reason(file_format: str, data_type: DataType) -> str | None:
    for part in parts_of(data_type):
        if file_format == "avro":
            if is_type(part, "VARIANT"):
                return "Paimon does not store VARIANT values in such files"
            if _digits(part) > FILE_FORMATS[file_format].timestamp_digits_max:
                return "the format has no timestamps finer than microseconds"
        elif part is not data_type and _digits(part) > 0:
            return (
                "other engines misread nested timestamps before 1970 with fractional seconds in "
                "such files"
            )
    return None


def _digits(data_type: DataType) -> int:
    """The fractional digits of a timestamp's seconds; 0 for any other type."""
    if isinstance(data_type, AtomicType) and data_type.name.startswith("TIMESTAMP"):
        return data_type.parameters[0]
    return 0
