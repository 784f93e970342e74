"""Unions of serialised sketches and bitmaps, as in Paimon's merge engine.

Only this module uses DataSketches (the extra `sketches`) and pyroaring. Sources: `ThetaSketch`,
`HllSketchUtil`, `RoaringBitmap32` of Paimon.
"""

from __future__ import annotations

import struct
from typing import Any

from paimon_magics.errors import SetupError

__all__ = ["hll_union", "rbm32_union", "theta_union"]

_EMPTY, _SINGLE_ITEM = 4, 32  # flags of a compact theta sketch


def theta_union(one: bytes, other: bytes) -> bytes:
    """The union of two theta sketches, compact and ordered. Raises ValueError for bytes that are no
    sketch."""
    sketches = _data_sketches()
    union = sketches.theta_union()
    for part in (one, other):
        union.update(_read(sketches.compact_theta_sketch, part))
    found = bytearray(union.get_result().serialize())
    if found[0] > 1:  # Java writes the sampling probability there
        struct.pack_into("<f", found, 12, 1.0)
    elif not found[5] & _EMPTY:
        found[5] |= _SINGLE_ITEM  # Java sets this flag
    return bytes(found)


def hll_union(one: bytes, other: bytes) -> bytes:
    """The union of two HLL sketches, compact, with 4 bits a slot. Raises ValueError for bytes that
    are no sketch."""
    sketches = _data_sketches()
    newer = _read(sketches.hll_sketch, other)
    union = sketches.hll_union(newer.lg_config_k)
    union.update(newer)
    union.update(_read(sketches.hll_sketch, one))
    return bytes(union.get_result(sketches.tgt_hll_type.HLL_4).serialize_compact())


def rbm32_union(one: bytes, other: bytes) -> bytes:
    """The union of two bitmaps of 32-bit numbers, in the portable format of the Roaring project's
    specification. Raises ValueError for bytes that are no bitmap."""
    from pyroaring import BitMap

    return bytes((_read(BitMap, one) | _read(BitMap, other)).serialize())


def _read(kind: Any, stored: bytes) -> Any:
    try:
        return kind.deserialize(stored)
    except Exception as error:  # several kinds of C++ exceptions
        raise ValueError(str(error)) from error


def _data_sketches() -> Any:
    try:
        import datasketches
    except ImportError:
        raise SetupError(
            "Merging theta and HLL sketches needs the package `datasketches`, which is not "
            "installed.",
            hint="Install the extra: pip install 'paimon-magics[sketches]', on every machine that "
            "runs Spark's tasks.",
        ) from None
    return datasketches
