"""Prunes manifests and their entries for a read, while they are read: see `manifests.narrowing`.

By partitions and buckets all entries are judged, since the entry that deletes a file has those of
the one that adds it. By keys and statistics, which may be missing where a file is deleted
(`manifest.delete-file-drop-stats`), only entries that add files are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.binary_rows import decode_bounds
from paimon_magics.columnar.value_ranges import may_match
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.manifests.columns import only
from paimon_magics.tables.manifests.file_kinds import DELETE
from paimon_magics.tables.schema.types import arrow_type
from paimon_magics.tables.splits.pruning import (
    has_fields,
    in_buckets,
    in_key_ranges,
    in_partitions,
)

__all__ = ["EntryPruning"]

_Bools = npt.NDArray[np.bool_]


class EntryPruning:
    """A `Narrowing` for the conditions of a read. `in_value_ranges` marks the files whose
    statistics can meet them; the columns `unused` are not needed where there is no condition."""

    def __init__(
        self,
        schema: TableSchema,
        predicates: Sequence[ColumnPredicate],
        in_value_ranges: Callable[[pa.Table], _Bools],
        unused: Sequence[str] = (),
    ) -> None:
        self._schema = schema
        self._predicates = predicates
        self._in_value_ranges = in_value_ranges
        self._unused = unused
        self._of_partitions = [one for one in predicates if one.column in schema.partition_keys]

    def manifests(self, found: pa.Table) -> _Bools:
        """Marks the manifests whose ranges of partitions can meet the conditions."""
        keys = self._schema.partition_keys
        kept = np.ones(found.num_rows, dtype=bool)
        least, greatest = (
            found.column(f"partition_{end}_values").combine_chunks() for end in ("min", "max")
        )
        if not self._of_partitions or not found.num_rows or least.null_count or greatest.null_count:
            return kept
        if not has_fields(least, len(keys)) or not has_fields(greatest, len(keys)):
            return kept
        types = [arrow_type(self._schema.column(key).type) for key in keys]
        lows, highs = decode_bounds(least, types), decode_bounds(greatest, types)
        counts = found.column("partition_null_counts").to_pylist()
        totals = pc.add(found["num_added_files"], found["num_deleted_files"]).to_pylist()
        for one in self._of_partitions:
            place = keys.index(one.column)
            known = [row[place] if row is not None and len(row) > place else None for row in counts]
            nulls = np.array([count is None or count > 0 for count in known])
            all_null = np.array([
                count is not None and count >= entries
                for count, entries in zip(known, totals, strict=True)
            ])  # fmt: skip
            kept &= may_match(one, lows[place], highs[place], nulls, all_null)
        return kept

    def entries(self, found: pa.Table) -> pa.Table:
        """The entries of files that can hold matching rows."""
        if self._predicates:
            return found.filter(pa.array(self._can_match(found)))
        left = only(found, [name for name in found.column_names if name not in self._unused])
        columns = {name: left.column(name) for name in left.column_names}
        for name in self._unused:
            columns[name] = pa.nulls(found.num_rows, found.schema.field(name).type)
        return pa.table([columns[name] for name in found.column_names], found.schema)

    def _can_match(self, found: pa.Table) -> _Bools:
        schema, predicates = self._schema, self._predicates
        kept = in_partitions(found, schema, predicates) & in_buckets(found, schema, predicates)
        if schema.data_evolution_enabled or not kept.any():
            return kept
        places = np.flatnonzero(kept)
        files = found.take(pa.array(places))
        can = (
            in_key_ranges(files, schema, predicates)
            if schema.is_primary_key_table
            else self._in_value_ranges(files)
        )
        kept[places] = can | np.asarray(pc.equal(files["kind"], DELETE))
        return kept
