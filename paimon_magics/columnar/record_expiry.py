"""Finds rows that are older than `record-level.expire-time` allows. Source: `RecordLevelExpire`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_MILLIS_FROM = 1_000_000_000_000  # a BIGINT from here on counts milliseconds, else seconds
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class RecordExpiry:
    """Rows whose time in the column `field` is before `before_seconds` (since 1970) are expired;
    rows without a time never expire."""

    field: str
    before_seconds: int

    def expired(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Marks the expired rows."""
        return self.too_old(rows.column(self.field))

    def too_old(self, times: pa.Array) -> npt.NDArray[np.bool_]:
        """Marks the times of expired rows: an INT or BIGINT, or timestamps."""
        unit = times.type.unit if pa.types.is_timestamp(times.type) else None
        numbers = np.asarray(pc.fill_null(times.cast(pa.int64()), 0))
        if unit is not None:
            # Java divides milliseconds toward zero, and drops finer digits before that.
            millis = numbers * 1000 // _PER_SECOND[unit]
            numbers = np.sign(millis) * (np.abs(millis) // 1000)
        elif times.type == pa.int64():
            numbers = np.where(numbers >= _MILLIS_FROM, numbers // 1000, numbers)
        is_old: npt.NDArray[np.bool_] = (numbers < self.before_seconds) & np.asarray(
            times.is_valid()
        )
        return is_old
