"""Paimon's data types as values, independent of any engine's library.

The rules are those of Paimon's `DataTypes`, `DataTypeJsonParser` and the page "Data Types" of its
documentation. `types.type_text` writes and reads types in Paimon's schema form
(`DECIMAL(10, 2) NOT NULL` or, for nested types, the JSON objects of a `schema-N` file).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class AtomicType:
    """A type without children.

    `name` is Paimon's type root in upper case: BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT,
    DOUBLE, DECIMAL, CHAR, VARCHAR, STRING, BINARY, VARBINARY, BYTES, DATE, TIME, TIMESTAMP,
    TIMESTAMP_LTZ, VARIANT, BLOB. `parameters` are its numbers, always explicit if the type has
    any: (precision, scale) for DECIMAL, (length,) for CHAR, VARCHAR, BINARY and VARBINARY,
    (precision,) for TIME, TIMESTAMP and TIMESTAMP_LTZ.
    """

    name: str
    parameters: tuple[int, ...] = ()
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class ArrayType:
    element: DataType
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class MapType:
    key: DataType
    value: DataType
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class RowField:
    name: str
    type: DataType
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class RowType:
    fields: tuple[RowField, ...]
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class MultisetType:
    """Kept in schemas, for engines that have it; no values are read or written."""

    element: DataType
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class VectorType:
    """Kept in schemas, for engines that have it; no values are read or written. `length` is the
    number of elements of each value."""

    element: DataType
    length: int
    nullable: bool = True


DataType = AtomicType | ArrayType | MapType | RowType | MultisetType | VectorType


def as_nullable(data_type: DataType, nullable: bool) -> DataType:
    """Return the same type with this nullability at its outermost level."""
    return replace(data_type, nullable=nullable)


def parts_of(data_type: DataType) -> Iterator[DataType]:
    """Yield the type itself and all types nested in it."""
    yield data_type
    match data_type:
        case ArrayType(element=element) | MultisetType(element=element):
            yield from parts_of(element)
        case VectorType(element=element):
            yield from parts_of(element)
        case MapType(key=key, value=value):
            yield from parts_of(key)
            yield from parts_of(value)
        case RowType(fields=fields):
            for field in fields:
                yield from parts_of(field.type)


def depth_of(data_type: DataType) -> int:
    """How many levels of types the type has: 1 for an atomic type, 2 for an array of one."""
    match data_type:
        case ArrayType(element=inner) | MultisetType(element=inner) | VectorType(element=inner):
            return 1 + depth_of(inner)
        case MapType(key=key, value=value):
            return 1 + max(depth_of(key), depth_of(value))
        case RowType(fields=fields):
            return 1 + max((depth_of(field.type) for field in fields), default=0)
    return 1


def contains_type(data_type: DataType, name: str) -> bool:
    """Whether the type contains the atomic type of that name, at any level."""
    return any(isinstance(p, AtomicType) and p.name == name for p in parts_of(data_type))
