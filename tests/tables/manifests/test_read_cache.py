"""What the cache of files that never change keeps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paimon_magics.tables.manifests.columns import ReadCache


def test_cache_counts_object_overhead_of_small_values() -> None:
    read: list[str] = []

    def get(name: str) -> npt.NDArray[np.int8]:
        def value() -> npt.NDArray[np.int8]:
            read.append(name)
            return np.zeros(10, dtype=np.int8)

        return cache.get(name, value)

    cache = ReadCache[npt.NDArray[np.int8]](bytes_max=300, each_bytes=90)
    for name in ("a", "b", "c", "a", "d"):
        get(name)
    assert read == ["a", "b", "c", "d"]
    get("a")
    get("b")  # least recently used, and gone
    assert read == ["a", "b", "c", "d", "b"]
