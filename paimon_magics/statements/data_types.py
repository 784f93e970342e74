"""Paimon's data types as values, free of any engine's library.

A type is written and read in Paimon's schema form (`DECIMAL(10, 2) NOT NULL` or, for nested types,
the JSON objects of a `schema-N` file). Source of the rules: Paimon's `DataTypes`,
`DataTypeJsonParser` and the page "Data Types" of its documentation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = [
    "ArrayType",
    "AtomicType",
    "DataType",
    "MapType",
    "RowField",
    "RowType",
    "as_nullable",
    "contains_type",
]


@dataclass(frozen=True, slots=True)
class AtomicType:
    """A type without children.

    `name` is Paimon's type root in upper case: BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT,
    DOUBLE, DECIMAL, CHAR, VARCHAR, STRING, BINARY, VARBINARY, BYTES, DATE, TIME, TIMESTAMP,
    TIMESTAMP_LTZ, VARIANT, BLOB. `parameters` are its numbers, always explicit where the type has
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


DataType = AtomicType | ArrayType | MapType | RowType


def as_nullable(data_type: DataType, nullable: bool) -> DataType:
    """The same type with the given nullability of its outermost level."""
    return replace(data_type, nullable=nullable)


def contains_type(data_type: DataType, name: str) -> bool:
    """Whether the atomic type of that name is at any level of the type."""
    match data_type:
        case AtomicType():
            return data_type.name == name
        case ArrayType(element=element):
            return contains_type(element, name)
        case MapType(key=key, value=value):
            return contains_type(key, name) or contains_type(value, name)
        case RowType(fields=fields):
            return any(contains_type(field.type, name) for field in fields)
