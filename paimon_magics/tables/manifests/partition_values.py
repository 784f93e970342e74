"""The partition values of data files; each partition is decoded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pypaimon.table.row.generic_row import GenericRowDeserializer

__all__ = ["partition_values"]


def partition_values(
    paimon: Any, files: pa.Table
) -> tuple[list[tuple[Any, ...]], npt.NDArray[np.int64]]:
    """The partition values of `files` (columns of MANIFEST_ENTRIES), each partition once, in the
    order of first appearance; and for each file the position of its partition among them."""
    encoded = files.column("partition").combine_chunks().dictionary_encode()
    fields = paimon.partition_keys_fields
    values = [
        tuple(GenericRowDeserializer.from_bytes(row, fields).values)
        for row in encoded.dictionary.to_pylist()
    ]
    return values, np.asarray(encoded.indices).astype(np.int64)
