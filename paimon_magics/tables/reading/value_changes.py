"""What becomes of stored values when their column gets another type: which can't be read, and which
come out as others."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from paimon_magics.columnar.fields import Field, can_evolve, evolved
from paimon_magics.errors import PaimonMagicsError

__all__ = ["INTEGERS", "can_be_read", "changed_places", "failing_places"]

# What floating-point numbers tell for certain: 15 digits, 6 of a FLOAT.
_DOUBLE_SHARE, _FLOAT_SHARE = 5e-15, 5e-6
INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def can_be_read(array: pa.Array, stored: Field, wanted: Field) -> bool:
    """Whether all of these values can be read as the new type."""
    try:
        evolved(array, stored, wanted, len(array))
    except (PaimonMagicsError, pa.ArrowException, ArithmeticError, ValueError):
        return False
    return True


def failing_places(
    array: pa.Array, passes: Callable[[pa.Array], bool], count_max: int, start: int = 0
) -> list[int]:
    """Where the first `count_max` values are that do not pass, by halves."""
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
    """Where the first `count_max` values are that come out as others, and don't come back."""
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
    """Whether a value that comes back otherwise says the same: `007` of 7, `TRUE` of true, and
    digits that a floating-point number does not tell for certain."""
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
