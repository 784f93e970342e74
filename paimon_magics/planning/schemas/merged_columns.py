"""Changes a table's columns so that they can hold all data of a frame (`write.merge-schema`).

Rules: Paimon's `SchemaMergingUtils`. Columns and fields of structs that the table lacks are added,
NULL for its older rows. Types change with `type-widening` only. One difference: if the table's type
holds the frame's type without loss, such as BIGINT for INT, Paimon refuses the write. Here the
column keeps its type, unless `explicit-cast` is set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.schemas.column_paths import type_name
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.schemas.type_changes import can_retype
from paimon_magics.statements.data_types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    RowField,
    RowType,
    as_nullable,
)
from paimon_magics.statements.table_changes import AddColumn, RetypeColumn

_UNBOUNDED = 2**31 - 1  # Paimon's STRING and BYTES are VARCHAR and VARBINARY of this length
_LENGTHS = ("CHAR", "VARCHAR", "STRING", "BINARY", "VARBINARY", "BYTES")
_TIMES = ("TIME", "TIMESTAMP", "TIMESTAMP_LTZ")

_Path = tuple[str, ...]
_Changes = list[AddColumn | RetypeColumn]


@dataclass(frozen=True, slots=True)
class MergeRules:
    """Whether types change, and whether also to types that lose data (`explicit-cast`)."""

    widens_types: bool = False
    casts_explicitly: bool = False


def merged_columns(
    schema: TableSchema, written: Sequence[RowField], rules: MergeRules
) -> tuple[AddColumn | RetypeColumn, ...]:
    """The changes after which the table has all columns of `written`, () where it has them. Names
    are compared without case.

    Raises InvalidTableError for two types that can't become one.
    """
    changes: _Changes = []
    own = [RowField(column.name, column.type) for column in schema.columns]
    _merge_fields(own, written, (), rules, changes)
    return tuple(changes)


def _merge_fields(
    own: Sequence[RowField],
    written: Sequence[RowField],
    path: _Path,
    rules: MergeRules,
    changes: _Changes,
) -> None:
    by_name = {field.name.lower(): field for field in written}
    for field in own:
        other = by_name.get(field.name.lower())
        if other is not None:
            _merge(field.type, other.type, (*path, field.name), rules, changes)
    known = {field.name.lower() for field in own}
    for field in written:
        if field.name.lower() not in known:
            known.add(field.name.lower())
            changes.append(AddColumn((*path, field.name), as_nullable(field.type, True)))


def _merge(
    own: DataType, written: DataType, path: _Path, rules: MergeRules, changes: _Changes
) -> None:
    match own, written:
        case RowType(fields=ours), RowType(fields=theirs):
            _merge_fields(ours, theirs, path, rules, changes)
        case ArrayType(element=ours), ArrayType(element=theirs):
            _merge(ours, theirs, (*path, "element"), rules, changes)
        case MapType(), MapType():
            in_keys: _Changes = []
            _merge(own.key, written.key, (*path, "key"), rules, in_keys)
            if in_keys:
                raise _unlike(path, own.key, written.key, "The keys of a MAP keep their type.")
            _merge(own.value, written.value, (*path, "value"), rules, changes)
        case _:
            if rules.widens_types:
                wanted = as_nullable(_widened(own, written, path, rules), own.nullable)
                if wanted != own:
                    changes.append(RetypeColumn(path, wanted))


def _widened(own: DataType, written: DataType, path: _Path, rules: MergeRules) -> DataType:
    """The type that a column gets for values of another type."""
    if as_nullable(own, True) == as_nullable(written, True):
        return own
    match own, written:
        case (
            AtomicType(name="DECIMAL", parameters=(digits, scale)),
            AtomicType(name="DECIMAL", parameters=(other_digits, other_scale)),
        ):
            if scale == other_scale:
                return AtomicType("DECIMAL", (max(digits, other_digits), scale))
            raise _unlike(
                path, own, written, "Both must have the same number of digits after the point."
            )
    explicit = rules.casts_explicitly
    if can_retype(own, written, allow_explicit=explicit) and (
        explicit or _size(own) <= _size(written) or _kind(own) != _kind(written)
    ):
        return written
    if not explicit and can_retype(written, own, allow_explicit=False):
        return own
    raise _unlike(
        path,
        own,
        written,
        "Cast it in the query" + ("." if explicit else ", or allow a lossy change."),
    )


def _kind(data_type: DataType) -> str:
    """Whether a type has a length or a number of digits, which must not get less."""
    name = data_type.name if isinstance(data_type, AtomicType) else ""
    return "length" if name in _LENGTHS else "digits" if name in _TIMES else name


def _size(data_type: DataType) -> int:
    if isinstance(data_type, AtomicType) and _kind(data_type) in ("length", "digits"):
        return data_type.parameters[0] if data_type.parameters else _UNBOUNDED
    return 0


def _unlike(path: _Path, own: DataType, written: DataType, hint: str) -> InvalidTableError:
    return InvalidTableError(
        f"`{'.'.join(path)}` is {type_name(own)} in the table and {type_name(written)} in the "
        "written rows: these types can't be merged ('write.merge-schema.type-widening').",
        hint=hint,
    )
