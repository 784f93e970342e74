"""Which files can hold rows that meet a query's conditions: by partition, bucket and statistics.

All decisions are made here. `manifests.column_statistics` reads the statistics. `file_pruning`
prunes the files of a read step by step, and by their file indexes. `table_scan` leaves out
manifests, and entries of others, by `EntryPruning`.

A file is pruned only if it certainly holds no such row. Statistics of values may be used only where
no row hides another one (append tables, fully merged buckets): elsewhere a row that does not meet a
condition may hide one that does. Rules: `AppendOnlyFileStoreScan`, `KeyValueFileStoreScan`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.binary_rows import decode_bounds, decode_rows
from paimon_magics.columnar.bucket_hash import default_bucket
from paimon_magics.columnar.value_bounds import may_match
from paimon_magics.planning.reads.predicates import ColumnPredicate, few_values
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.tables.manifests.column_statistics import (
    counts_at,
    file_statistics,
    has_fields,
)
from paimon_magics.tables.manifests.columns import only
from paimon_magics.tables.manifests.names import DELETE
from paimon_magics.tables.schema.types import arrow_type

_Bools = npt.NDArray[np.bool_]
ColumnsOf = Callable[[int], Sequence[Column]]
"""Returns the columns of a schema by its id."""

_KEYS_MAX = 1000
"""Keys whose buckets are computed; of more, all buckets are read."""


def can_match(
    files: pa.Table,
    schema: TableSchema,
    columns_of: ColumnsOf,
    predicates: Sequence[ColumnPredicate],
    *,
    keeps_deletes: bool = False,
) -> _Bools:
    """Files that can hold rows which meet the conditions: by partition and bucket, then by keys or
    values. `schema` is the schema that is read. With `keeps_deletes`, entries that delete a file
    are judged by partition and bucket only."""
    matches = in_partitions(files, schema, predicates) & in_buckets(files, schema, predicates)
    if schema.data_evolution_enabled or not matches.any():
        return matches  # with data evolution a file has only some columns of its rows
    rows = np.flatnonzero(matches)
    left = files.take(pa.array(rows))
    in_ranges = (
        in_key_ranges(left, schema, predicates)
        if schema.is_primary_key_table
        else in_value_ranges(left, columns_of, schema.columns, predicates)
    )
    if keeps_deletes:
        in_ranges |= np.asarray(pc.equal(left["kind"], DELETE))
    matches[rows] = in_ranges
    return matches


def in_partitions(
    files: pa.Table, schema: TableSchema, predicates: Sequence[ColumnPredicate]
) -> _Bools:
    """Files whose partition can meet the conditions on partition keys."""
    wanted = _on(predicates, schema.partition_keys)
    if not wanted or not files.num_rows:
        return _all(files)
    codes = files["partition"].combine_chunks().dictionary_encode()
    columns = decode_rows(codes.dictionary, _types(schema, schema.partition_keys))
    values = dict(zip(schema.partition_keys, columns, strict=True))
    matches = _all(codes.dictionary)
    for predicate in wanted:
        column = values[predicate.column]
        nulls = np.asarray(column.is_null())
        matches &= may_match(predicate, column, column, nulls, nulls)
    of_files: _Bools = matches[np.asarray(codes.indices)]
    return of_files


def in_buckets(
    files: pa.Table, schema: TableSchema, predicates: Sequence[ColumnPredicate]
) -> _Bools:
    """Files of the buckets that the conditions on the bucket keys name. All files unless each
    bucket key has one value or few, the buckets are fixed and `bucket-function.type` is default."""
    keys = schema.bucket_keys
    if schema.bucket <= 0 or not keys or schema.bucket_function != "default":
        return _all(files)
    values = few_values(predicates, keys, _KEYS_MAX)
    if values is None:
        return _all(files)
    if not all(values):
        return np.zeros(files.num_rows, dtype=bool)
    try:
        rows = zip(*product(*values), strict=True)
        columns = [pa.array(*key) for key in zip(rows, _types(schema, keys), strict=True)]
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return _all(files)  # a value that the type can't have
    totals = np.asarray(files["total_buckets"])
    bucket = np.asarray(files["bucket"])
    matches = _all(files)
    for total in np.unique(totals):
        if total > 0:
            expected = default_bucket(columns, int(total))
            matches &= (totals != total) | np.isin(bucket, expected)
    return matches


def in_key_ranges(
    files: pa.Table, schema: TableSchema, predicates: Sequence[ColumnPredicate]
) -> _Bools:
    """Files whose range of keys can meet the conditions on primary keys."""
    keys = schema.trimmed_primary_keys
    wanted = _on(predicates, keys)
    matches = _all(files)
    if not wanted or not files.num_rows:
        return matches
    least, greatest = _decoded(files, "key", _types(schema, keys))
    never = np.zeros(files.num_rows, dtype=bool)  # keys are not NULL
    for predicate in wanted:
        place = keys.index(predicate.column)
        matches &= may_match(predicate, least[place], greatest[place], never, never)
    return matches


def in_value_ranges(
    files: pa.Table,
    columns_of: ColumnsOf,
    columns: Sequence[Column],
    predicates: Sequence[ColumnPredicate],
) -> _Bools:
    """Files whose statistics can meet the conditions. `columns` are those of the schema that is
    read. Statistics are used where the column has the same type in the file."""
    matches = _all(files)
    if not predicates or not files.num_rows:
        return matches
    wanted = {column.name: column for column in columns}
    for rows, statistics in file_statistics(files, columns_of):
        total = np.asarray(statistics.files["row_count"])
        for predicate in predicates:
            known = statistics.of(wanted[predicate.column])
            if known is not None:
                nulls, all_null = known.nulls != 0, known.nulls >= total
                matches[rows] &= may_match(predicate, known.least, known.greatest, nulls, all_null)
    return matches


# Prunes manifests and their entries for a read, while they are read.
#
# Partitions and buckets prune all entries, since the entry that deletes a file has the same
# partition and bucket as the entry that adds it. Keys and statistics, which may be missing for a
# deleted file (`manifest.delete-file-drop-stats`), prune only entries that add files.


class EntryPruning:
    """What can be left out of a snapshot while its manifests are read, for the conditions of a
    read. The columns `unused` are not needed where there is no condition."""

    def __init__(
        self,
        schema: TableSchema,
        columns_of: ColumnsOf,
        predicates: Sequence[ColumnPredicate],
        unused: Sequence[str] = (),
    ) -> None:
        self._schema = schema
        self._columns_of = columns_of
        self._predicates = predicates
        self._unused = unused

    def manifests(self, manifests: pa.Table) -> _Bools:
        """Marks the manifests (columns of MANIFEST_FILES) whose ranges of partitions can meet the
        conditions."""
        keys = self._schema.partition_keys
        wanted = _on(self._predicates, keys)
        matches = _all(manifests)
        ends = [manifests[f"partition_{end}_values"].combine_chunks() for end in ("min", "max")]
        if not wanted or not manifests.num_rows:
            return matches
        if not all(not rows.null_count and has_fields(rows, len(keys)) for rows in ends):
            return matches
        least, greatest = _decoded(manifests, "partition", _types(self._schema, keys))
        entries = np.asarray(pc.add(manifests["num_added_files"], manifests["num_deleted_files"]))
        for predicate in wanted:
            place = keys.index(predicate.column)
            counts = counts_at(manifests["partition_null_counts"], place)
            nulls, all_null = counts != 0, counts >= entries
            matches &= may_match(predicate, least[place], greatest[place], nulls, all_null)
        return matches

    def entries(self, entries: pa.Table) -> pa.Table:
        """The entries (columns of MANIFEST_ENTRIES) of files that can hold matching rows, with NULL
        in columns that are not needed. If it keeps the entry that adds a file, it also keeps the
        entry that deletes the file."""
        if self._predicates:
            columns_of, predicates = self._columns_of, self._predicates
            matches = can_match(entries, self._schema, columns_of, predicates, keeps_deletes=True)
            return entries.filter(pa.array(matches))
        left = only(entries, [name for name in entries.column_names if name not in self._unused])
        columns = {name: left.column(name) for name in left.column_names}
        for name in self._unused:
            columns[name] = pa.nulls(entries.num_rows, entries.schema.field(name).type)
        return pa.table([columns[name] for name in entries.column_names], entries.schema)


def _on(predicates: Sequence[ColumnPredicate], keys: Sequence[str]) -> list[ColumnPredicate]:
    return [predicate for predicate in predicates if predicate.column in keys]


def _types(schema: TableSchema, keys: Sequence[str]) -> list[pa.DataType]:
    return [arrow_type(schema.column(key).type) for key in keys]


def _decoded(
    files: pa.Table, of: str, types: Sequence[pa.DataType]
) -> tuple[list[pa.Array], list[pa.Array]]:
    """The least and the greatest values in the statistics of files or manifests."""
    least, greatest = (
        decode_bounds(files[f"{of}_{end}_values"].combine_chunks(), types) for end in ("min", "max")
    )
    return least, greatest


def _all(rows: pa.Table | pa.Array) -> _Bools:
    return np.ones(len(rows), dtype=bool)
