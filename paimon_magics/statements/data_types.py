"""Paimon's data types as values, independent of any engine's library.

The rules are those of Paimon's `DataTypes`, `DataTypeJsonParser` and the page "Data Types" of its
documentation. `types.type_text` writes and reads types in Paimon's schema form
(`DECIMAL(10, 2) NOT NULL` or, for nested types, the JSON objects of a `schema-N` file).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, assert_never


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


# Families of types.

Family = Literal[
    "boolean", "integer", "float", "decimal", "text", "binary", "date", "time", "timestamp",
    "timestamp_ltz", "variant", "blob", "nested",
]  # fmt: skip
INTEGER_BITS: Mapping[str, int] = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
INTEGERS = tuple(INTEGER_BITS)
FLOATS = ("FLOAT", "DOUBLE")
TYPE_FAMILIES: Mapping[str, Family] = {
    **dict.fromkeys(INTEGERS, "integer"),
    **dict.fromkeys(FLOATS, "float"),
    **dict.fromkeys(("CHAR", "VARCHAR", "STRING"), "text"),
    **dict.fromkeys(("BINARY", "VARBINARY", "BYTES"), "binary"),
    "DECIMAL": "decimal",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIME": "time",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_LTZ": "timestamp_ltz",
    "VARIANT": "variant",
    "BLOB": "blob",
}
"""The atomic types. Those of a family hold the same kind of values, the narrowest first."""


def types_of(*families: Family) -> tuple[str, ...]:
    """The names of the types of these families."""
    return tuple(name for name, family in TYPE_FAMILIES.items() if family in families)


def family_of(data_type: DataType) -> Family:
    """The family of a type; that of arrays, maps and their like is `nested`."""
    return TYPE_FAMILIES[data_type.name] if isinstance(data_type, AtomicType) else "nested"


def is_type(data_type: DataType, *names: str) -> bool:
    """Whether the type is atomic and has one of these names."""
    return isinstance(data_type, AtomicType) and data_type.name in names
