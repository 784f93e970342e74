"""Whether two sets of files of a primary-key table have a key in common. Reads key columns only.

The keys of the side with fewer rows are held in memory, those of the other come in batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from paimon_magics.columnar.key_numbers import key_numbers
from paimon_magics.planning.reads.splits import StoredFile
from paimon_magics.tables.reading.table_files import whole_rows_reader
from paimon_magics.tables.table import Table

__all__ = ["HELD_KEYS_MAX", "have_common_key"]

HELD_KEYS_MAX = 2_000_000
"""Keys that are held in memory: some 200 MB of texts. More on both sides are not compared, and
count as common."""


def have_common_key(
    table: Table,
    ours: Sequence[StoredFile],
    theirs: Sequence[StoredFile],
    elsewhere: frozenset[str] = frozenset(),
) -> bool:
    """Whether a row of `ours` has the key of a row of `theirs`; `elsewhere` are the stores of
    files outside the table's folder. True also where both have more than HELD_KEYS_MAX rows.

    Raises FileNotFoundError if one of the files is gone.
    """
    held, streamed = sorted((ours, theirs), key=_rows)
    if not held:
        return False
    if _rows(held) > HELD_KEYS_MAX:
        return True
    known = pa.concat_tables(_keys(table, held, elsewhere)).combine_chunks()
    return any(_meet(known, batch) for batch in _keys(table, streamed, elsewhere))


def _rows(files: Sequence[StoredFile]) -> int:
    return sum(file.rows for file in files)


def _keys(
    table: Table, files: Sequence[StoredFile], elsewhere: frozenset[str]
) -> Iterator[pa.Table]:
    keys = table.schema.trimmed_primary_keys
    reader = whole_rows_reader(table, [file.schema_id for file in files], elsewhere)
    reader = replace(reader, wanted=tuple(one for one in reader.wanted if one.name in keys))
    for file in files:
        for rows in reader.batches(file):
            yield pa.table([rows.column(key) for key in keys], names=list(keys))


def _meet(known: pa.Table, batch: pa.Table) -> bool:
    """Whether a row of `known` equals a row of `batch`. Floating-point numbers are equal as in
    Java."""
    ours, theirs = key_numbers([known, batch])
    return bool(np.isin(theirs, ours).any())
