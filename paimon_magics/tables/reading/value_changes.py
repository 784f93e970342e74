"""Finds the stored values that can't be read, or are read as other values, when the type of their
column changes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from paimon_magics.columnar.fields import Field, can_evolve, evolved
from paimon_magics.errors import PaimonMagicsError

__all__ = ["INTEGERS", "can_be_read", "changed_places", "failing_places"]

# The relative precision of floating-point numbers: 15 decimal digits, 6 for FLOAT.
_DOUBLE_SHARE, _FLOAT_SHARE = 5e-15, 5e-6
INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def can_be_read(array: pa.Array, stored: Field, wanted: Field) -> bool:
    """Whether all values can be read as the new type."""
    try:
        evolved(array, stored, wanted, len(array))
    except (PaimonMagicsError, pa.ArrowException, ArithmeticError, ValueError):
        return False
    return True


def failing_places(
    array: pa.Array, passes: Callable[[pa.Array], bool], count_max: int, start: int = 0
) -> list[int]:
    """The positions of the first `count_max` values that do not pass, found by bisection. `passes`
    takes several values at once."""
    if not len(array) or passes(array):
        return []
    if len(array) == 1:
        return [start]
    half = len(array) // 2
    found = failing_places(array.slice(0, half), passes, count_max, start)
    if len(found) < count_max:
        rest = array.slice(half)
        found += failing_places(rest, passes, count_max - len(found), start + half)
    return found


def changed_places(array: pa.Array, stored: Field, wanted: Field, count_max: int) -> list[int]:
    """The positions of the first `count_max` values that the new type changes: casting them to it
    and back gives other values."""
    if stored.atomic is None or wanted.atomic is None or not can_evolve(wanted, stored):
        return []
    try:
        after = evolved(array, stored, wanted, len(array))
        back = evolved(after, wanted, stored, len(array))
    except (PaimonMagicsError, pa.ArrowException, ArithmeticError, ValueError):
        return []
    places = []
    for row, (one, other) in enumerate(zip(array.to_pylist(), back.to_pylist(), strict=True)):
        if one != other and one == one and not _means_the_same(one, other, stored, wanted):
            places.append(row)
            if len(places) == count_max:
                break
    return places


def _means_the_same(one: Any, other: Any, stored: Field, wanted: Field) -> bool:
    """Whether a value that comes back in another form means the same: `007` and 7, `TRUE` and true,
    and numbers that differ beyond the precision of floating point."""
    if other is None or wanted.atomic is None or stored.atomic is None:
        return False
    name = wanted.atomic.name
    if isinstance(one, float):
        share = _FLOAT_SHARE if "FLOAT" in (name, stored.atomic.name) else _DOUBLE_SHARE
        return math.isclose(one, other, rel_tol=share)
    if not isinstance(one, str):
        return False
    if name in ("CHAR", "VARCHAR", "STRING"):
        return one.rstrip(" ") == str(other).rstrip(" ")
    if name in (*INTEGERS, "DECIMAL"):
        with contextlib.suppress(ValueError):
            return float(one) == float(other)
    return name in ("BOOLEAN", "FLOAT", "DOUBLE")
