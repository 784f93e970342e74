"""Reads any Avro file as Arrow batches with the types of its own schema, one record a row.

The files of tables are read by `file_formats`, by the types of their table. Light to import:
Spark's tasks load it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pyarrow as pa

from paimon_magics.errors import InvalidValueError, UnsupportedStatementError

_BATCH_ROWS = 4_000
_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "enum": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}


def avro_schema(path: str) -> pa.Schema:
    """The schema of an Avro file on this machine, as Arrow's.

    Raises InvalidValueError for a file that is none, UnsupportedStatementError for a type that a
    table can't store.
    """
    import fastavro

    with open(path, "rb") as file:
        try:
            written = fastavro.reader(file).writer_schema
        except (ValueError, EOFError, KeyError) as error:
            raise InvalidValueError(
                f"`{path}` is no Avro file: {error}.",
                hint="Nothing was written. Correct TYPE, or name the files with PATTERN.",
            ) from error
    if not isinstance(written, dict) or written.get("type") != "record":
        raise UnsupportedStatementError(
            f"`{path}` has values of an Avro type that is no record.",
            hint="Write a record with a field for each column.",
        )
    return pa.schema([(field["name"], _arrow(field["type"], field["name"])) for field in
                      written["fields"]])  # fmt: skip


def avro_batches(path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The records of an Avro file on this machine; fields that it lacks are NULL. Raises OSError,
    ValueError for a damaged file."""
    import fastavro

    with open(path, "rb") as file:
        records: list[dict[str, Any]] = []
        for record in fastavro.reader(file):
            assert isinstance(record, dict)
            records.append({name: _plain(value) for name, value in record.items()})
            if len(records) == _BATCH_ROWS:
                yield pa.RecordBatch.from_pylist(records, schema)
                records = []
        yield pa.RecordBatch.from_pylist(records, schema)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, UUID) else value


def _arrow(written: Any, column: str) -> pa.DataType:
    """The Arrow type of an Avro type."""
    if isinstance(written, list):
        others = [kind for kind in written if kind != "null"]
        if len(others) == 1:
            return _arrow(others[0], column)
        raise _unsupported("a union of several types", column)
    if isinstance(written, str):
        kind, properties = written, {}
    else:
        kind, properties = written["type"], written
    if not isinstance(kind, str):
        return _arrow(kind, column)
    logical = properties.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(properties["precision"], properties.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical in ("time-millis", "time-micros", "duration"):
        raise _unsupported(f"the logical type {logical}", column)
    match kind:
        case "array":
            return pa.list_(_arrow(properties["items"], column))
        case "map":
            return pa.map_(pa.string(), _arrow(properties["values"], column))
        case "record":
            fields = properties["fields"]
            return pa.struct([(field["name"], _arrow(field["type"], column)) for field in fields])
        case _ if kind in _PRIMITIVES:
            return _PRIMITIVES[kind]
    raise _unsupported(f"the type {kind}", column)


def _unsupported(what: str, column: str) -> UnsupportedStatementError:
    return UnsupportedStatementError(
        f"Field `{column}` of the Avro file has {what}, which can't be loaded.",
        hint="Leave the field out of the files, or write it as a text.",
    )
