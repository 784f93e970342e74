"""The instants at which data files were made.

Manifests have wall-clock times without a zone, those of the writer's process. Files of the native
writer, which are recognized by name, have theirs in UTC. Those of others are read in this process's
zone, as in Java's `DataFileMeta.creationTimeEpochMillis`: they are right for files that were
written in this zone. Where a time does not occur or occurs twice, the offset before the change
counts, as in Java.
"""

from __future__ import annotations

import datetime
import re
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.time_zones import UTC, process_zone, rules_of
from paimon_magics.planning.reports.view_queries import NATIVE_NAME

_MINUTE_MS = 60_000
_EPOCH = datetime.datetime(1970, 1, 1)
_IS_NATIVE = re.compile(NATIVE_NAME)


def creation_instants(files: pa.Table) -> pa.ChunkedArray:
    """When each of the files was made, in milliseconds since 1970 UTC; null where no time is
    stored. `files` has the columns `creation_time` and `file_name`."""
    clocks = files.column("creation_time").cast(pa.int64())
    zone = process_zone()
    if zone == UTC:
        return clocks
    is_native = _are_native(files)
    if pc.all(is_native, min_count=0).as_py():
        return clocks
    filled = np.asarray(pc.fill_null(clocks, 0))
    local = pa.chunked_array([pc.subtract(pa.array(filled), pa.array(_ahead_ms(filled, zone)))])
    return pc.if_else(pc.or_(is_native, clocks.is_null()), clocks, local)


def all_native(files: pa.Table) -> bool:
    """Whether the native writer wrote all files, so that their times need no zone. `files` has the
    column `file_name`."""
    return bool(pc.all(_are_native(files), min_count=0).as_py())


def _are_native(files: pa.Table) -> pa.ChunkedArray:
    return pc.match_substring_regex(files.column("file_name"), f"^{NATIVE_NAME}")


def creation_instant_ms(clock_ms: int, file_name: str) -> int:
    """As `creation_instants`, for one file; `clock_ms` is its wall-clock time as if it were UTC."""
    if _IS_NATIVE.match(file_name):
        return clock_ms
    return clock_ms - _offset_ms(clock_ms // _MINUTE_MS, process_zone())


def _ahead_ms(clocks: npt.NDArray[np.int64], zone: str) -> npt.NDArray[np.int64]:
    # Many files share a minute, and no offset changes within one.
    minutes, places = np.unique(clocks // _MINUTE_MS, return_inverse=True)
    offsets = [_offset_ms(minute, zone) for minute in minutes.tolist()]
    return np.array(offsets, dtype=np.int64)[places]


@lru_cache(maxsize=10_000)
def _offset_ms(minute: int, zone: str) -> int:
    clock = (_EPOCH + datetime.timedelta(minutes=minute)).replace(tzinfo=rules_of(zone))
    ahead = clock.utcoffset()
    assert ahead is not None
    return ahead // datetime.timedelta(milliseconds=1)
