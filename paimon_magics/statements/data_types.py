"""Paimon's data types as values, independent of any engine's library.

The rules are those of Paimon's `DataTypes`, `DataTypeJsonParser` and the page "Data Types" of its
documentation. `types.type_text` writes and reads types in Paimon's schema form
(`DECIMAL(10, 2) NOT NULL` or, for nested types, the JSON objects of a `schema-N` file).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import assert_never


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


def children_of(data_type: DataType) -> tuple[DataType, ...]:
    """The types directly inside the type; () for an atomic type."""
    match data_type:
        case AtomicType():
            return ()
        case ArrayType() | MultisetType() | VectorType():
            return (data_type.element,)
        case MapType(key=key, value=value):
            return key, value
        case RowType(fields=fields):
            return tuple(field.type for field in fields)
        case _:
            assert_never(data_type)


def parts_of(data_type: DataType) -> Iterator[DataType]:
    """Yield the type itself and all types nested in it."""
    yield data_type
    for child in children_of(data_type):
        yield from parts_of(child)


def depth_of(data_type: DataType) -> int:
    """How many levels of types the type has: 1 for an atomic type, 2 for an array of one."""
    return 1 + max(map(depth_of, children_of(data_type)), default=0)


def contains_type(data_type: DataType, name: str) -> bool:
    """Whether the type contains the atomic type of that name, at any level."""
    return any(isinstance(p, AtomicType) and p.name == name for p in parts_of(data_type))
