"""Which changes of a column's type ALTER TABLE allows.

A change is allowed if Paimon permits the cast (`DataTypeCasts`) and can carry it out when it reads
older files (`CastExecutors`). Implicit casts are always permitted, explicit casts unless
`disable-explicit-type-casting` is true.
"""

from __future__ import annotations

from paimon_magics.statements.data_types import (
    INTEGERS,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    VectorType,
    as_nullable,
)

_NUMBERS = (*INTEGERS, "FLOAT", "DOUBLE", "DECIMAL")
_STRINGS = ("CHAR", "VARCHAR")
_BINARIES = ("BINARY", "VARBINARY")
_TIMESTAMPS = ("TIMESTAMP", "TIMESTAMP_LTZ")
_NESTED = ("ARRAY", "MAP", "ROW")

# target: (sources of implicit casts, further sources of explicit casts)
_CASTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "CHAR": (
        ("CHAR",),
        (*_NUMBERS, "VARCHAR", "BOOLEAN", *_BINARIES, *_NESTED),
    ),
    "VARCHAR": (
        _STRINGS,
        (*_NUMBERS, "BOOLEAN", "DATE", "TIME", *_TIMESTAMPS, *_BINARIES, *_NESTED),
    ),
    "BOOLEAN": ((), (*_STRINGS, *INTEGERS)),
    "BINARY": (("BINARY",), (*_STRINGS, "VARBINARY")),
    "VARBINARY": (_BINARIES, _STRINGS),
    "DECIMAL": (_NUMBERS, (*_STRINGS, "BOOLEAN")),
    "TINYINT": (("TINYINT",), (*_NUMBERS, *_STRINGS, "BOOLEAN")),
    "SMALLINT": (INTEGERS[:2], (*_NUMBERS, *_STRINGS, "BOOLEAN")),
    "INT": (INTEGERS[:3], (*_NUMBERS, *_STRINGS, "BOOLEAN", *_TIMESTAMPS)),
    "BIGINT": (INTEGERS, (*_NUMBERS, *_STRINGS, "BOOLEAN", *_TIMESTAMPS)),
    "FLOAT": ((*INTEGERS, "FLOAT", "DECIMAL"), (*_NUMBERS, *_STRINGS, "BOOLEAN")),
    "DOUBLE": (_NUMBERS, (*_STRINGS, "BOOLEAN")),
    "DATE": (("TIMESTAMP",), ("TIMESTAMP_LTZ", *_STRINGS)),
    "TIME": (("TIMESTAMP",), ("TIMESTAMP_LTZ", *_STRINGS)),
    "TIMESTAMP": (_TIMESTAMPS, ("DATE", "TIME", *_STRINGS, "INT", "BIGINT")),
    "TIMESTAMP_LTZ": (_TIMESTAMPS, ("DATE", "TIME", *_STRINGS, "INT", "BIGINT")),
}
# Paimon casts these to STRING only, not to VARCHAR of a length.
_ONLY_TO_STRING = ("DATE", "TIME", *_TIMESTAMPS)


def can_retype(source: DataType, target: DataType, *, allow_explicit: bool) -> bool:
    """Whether a column of type `source` may become `target`; nullability is ignored."""
    if as_nullable(source, True) == as_nullable(target, True):
        return True
    source_root, target_root = _root(source), _root(target)
    if source_root in _ONLY_TO_STRING and target_root == "VARCHAR" and target != _string(target):
        return False
    without_loss, explicit = _CASTS.get(target_root, ((), ()))
    return source_root in without_loss or (allow_explicit and source_root in explicit)


def _root(data_type: DataType) -> str:
    match data_type:
        case AtomicType(name="STRING"):
            return "VARCHAR"
        case AtomicType(name="BYTES"):
            return "VARBINARY"
        case AtomicType(name=name):
            return name
        case ArrayType():
            return "ARRAY"
        case MapType():
            return "MAP"
        case MultisetType():
            return "MULTISET"
        case VectorType():
            return "VECTOR"
        case RowType():
            return "ROW"


def _string(data_type: DataType) -> DataType:
    return AtomicType("STRING", (), data_type.nullable)
