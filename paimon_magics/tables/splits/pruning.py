"""Which files can hold rows that meet a query's conditions: by partition, bucket and statistics.

A file is pruned only where it certainly holds no such row. Statistics of values may be used only
where no row hides another one (append tables, fully merged buckets): elsewhere a row that does not
meet a condition may hide one that does. Rules: `AppendOnlyFileStoreScan`, `KeyValueFileStoreScan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.tables.schema.types import arrow_type

_Bools = npt.NDArray[np.bool_]

_KEYS_MAX = 1000
"""Keys whose buckets are computed; of more, all buckets are read."""


_EXACT = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DATE")


def in_partitions(
    files: pa.Table, schema: TableSchema, predicates: Sequence[ColumnPredicate]
) -> _Bools:
    """Files whose partition can meet the conditions on partition keys."""
    keys = schema.partition_keys
    wanted = [predicate for predicate in predicates if predicate.column in keys]
    if not wanted or not files.num_rows:
        return _all(files)
    codes = files["partition"].combine_chunks().dictionary_encode()
    values = decode_rows(codes.dictionary, [arrow_type(schema.column(key).type) for key in keys])
    kept = np.ones(len(codes.dictionary), dtype=bool)
    for one in wanted:
        column = values[keys.index(one.column)]
        nulls = np.asarray(column.is_null())
        kept &= may_match(one, column, column, nulls, nulls)
    found: _Bools = kept[np.asarray(codes.indices)]
    return found


def in_buckets(
    files: pa.Table, schema: TableSchema, predicates: Sequence[ColumnPredicate]
) -> _Bools:
    """Files of the buckets that the conditions on the bucket keys name. All files unless each
    bucket key has one value or few, the buckets are fixed and `bucket-function.type` is default."""
    keys = schema.bucket_keys
    function = (schema.option("bucket-function.type") or "default").lower()
    if schema.bucket <= 0 or not keys or function != "default":
        return _all(files)
    given = few_values(predicates, keys, _KEYS_MAX)
    if given is None:
        return _all(files)
    if not all(given):
        return np.zeros(files.num_rows, dtype=bool)
    try:
        columns = [
            pa.array(values, arrow_type(schema.column(key).type))
            for key, values in zip(keys, zip(*product(*given), strict=True), strict=True)
        ]
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return _all(files)  # a value that the type can't have
    totals = np.asarray(files["total_buckets"])
    bucket = np.asarray(files["bucket"])
    kept = np.ones(files.num_rows, dtype=bool)
    for total in np.unique(totals):
        if total > 0:
            expected = default_bucket(columns, int(total))
            kept &= (totals != total) | np.isin(bucket, expected)
    return kept


def in_key_ranges(
    files: pa.Table, schema: TableSchema, predicates: Sequence[ColumnPredicate]
) -> _Bools:
    """Files whose range of keys can meet the conditions on primary keys."""
    keys = schema.trimmed_primary_keys
    wanted = [predicate for predicate in predicates if predicate.column in keys]
    if not wanted or not files.num_rows:
        return _all(files)
    types = [arrow_type(schema.column(key).type) for key in keys]
    least = decode_bounds(files["key_min_values"].combine_chunks(), types)
    greatest = decode_bounds(files["key_max_values"].combine_chunks(), types)
    never = np.zeros(files.num_rows, dtype=bool)  # keys are not NULL
    kept = np.ones(files.num_rows, dtype=bool)
    for one in wanted:
        place = keys.index(one.column)
        kept &= may_match(one, least[place], greatest[place], never, never)
    return kept


def in_value_ranges(
    files: pa.Table,
    columns_of: Callable[[int], Sequence[Column]],
    columns: Sequence[Column],
    predicates: Sequence[ColumnPredicate],
) -> _Bools:
    """Files whose statistics can meet the conditions. `columns_of` returns the columns of a schema
    by its id, `columns` are those of the schema that is read. Statistics are used where the column
    has the same type in both."""
    kept = np.ones(files.num_rows, dtype=bool)
    if not predicates or not files.num_rows:
        return kept
    wanted = {column.name: column for column in columns}
    for members, in_file in stored_columns(files, columns_of):
        rows = np.array(members)
        kept[rows] &= _in_ranges(files.take(pa.array(rows)), in_file, wanted, predicates)
    return kept


def stored_columns(
    files: pa.Table, columns_of: Callable[[int], Sequence[Column]]
) -> Iterator[tuple[list[int], list[Column]]]:
    """The numbers of files that have statistics of the same columns, and these columns."""
    schema_ids = np.asarray(files["schema_id"])
    if files["value_stats_cols"].null_count == files["write_cols"].null_count == files.num_rows:
        for schema_id in np.unique(schema_ids):
            written = np.flatnonzero(schema_ids == schema_id)
            yield written.tolist(), list(columns_of(int(schema_id)))
        return
    names = [
        stored if stored is not None else written
        for stored, written in zip(
            files["value_stats_cols"].to_pylist(), files["write_cols"].to_pylist(), strict=True
        )
    ]
    groups: dict[tuple[int, tuple[str, ...] | None], list[int]] = {}
    for row, (schema_id, stored) in enumerate(zip(schema_ids.tolist(), names, strict=True)):
        groups.setdefault((schema_id, None if stored is None else tuple(stored)), []).append(row)
    for (schema_id, stored), members in groups.items():
        in_file = list(columns_of(schema_id))
        if stored is not None:
            by_name = {column.name: column for column in in_file}
            in_file = [by_name[name] for name in stored if name in by_name]
        yield members, in_file


def _in_ranges(
    files: pa.Table,
    in_file: Sequence[Column],
    wanted: dict[str, Column],
    predicates: Sequence[ColumnPredicate],
) -> _Bools:
    kept = np.ones(files.num_rows, dtype=bool)
    least = greatest = None
    total = np.asarray(files["row_count"])
    for predicate in predicates:
        column = wanted[predicate.column]
        places = [i for i, stored in enumerate(in_file) if stored.id == column.id]
        if not places or in_file[places[0]].type != column.type:
            continue
        place = places[0]
        if least is None or greatest is None:
            if not has_fields(files["value_min_values"].combine_chunks(), len(in_file)):
                return kept  # the statistics are of other columns than expected
            types = [arrow_type(stored.type) for stored in in_file]
            least = decode_bounds(files["value_min_values"].combine_chunks(), types)
            greatest = decode_bounds(files["value_max_values"].combine_chunks(), types)
        counts = _counts_at(files["value_null_counts"], place)
        nulls, all_null = counts != 0, counts >= total
        kept &= may_match(predicate, least[place], greatest[place], nulls, all_null)
    return kept


def _counts_at(lists: pa.ChunkedArray, place: int) -> npt.NDArray[np.int64]:
    """The number at `place` of each list; -1 where there is none."""
    rows = lists.combine_chunks()
    offsets = np.asarray(rows.offsets)
    there = np.asarray(rows.is_valid()) & (np.diff(offsets) > place)
    found = np.full(len(rows), -1, dtype=np.int64)
    at = pa.array(offsets[:-1][there] + place)
    found[there] = np.asarray(pc.fill_null(rows.values.take(at), -1))
    return found


def has_fields(rows: pa.Array, fields: int) -> bool:
    """Whether all serialised rows have that many fields."""
    arities = pc.binary_slice(rows, 0, 4)
    return bool(pc.all(pc.equal(arities, fields.to_bytes(4, "big"))).as_py())


def _all(files: pa.Table) -> _Bools:
    return np.ones(files.num_rows, dtype=bool)


# The least and greatest value of a column in whole files, from statistics that are exact.
#
# Only of types whose bounds every writer stores whole: texts and binary values are truncated
# (`metadata.stats-mode`), floating-point bounds leave out NaN and the sign of zero, and times lose
# digits. Source: `AggregatePushDownUtils`, `PushDownUtils.minmaxAvailable` of Paimon.


@dataclass(frozen=True, slots=True)
class ExactBounds:
    """The least and greatest value; None where there is none but NULL."""

    least: object
    greatest: object


def exact_bounds(
    files: pa.Table, columns_of: Callable[[int], Sequence[Column]], column: Column
) -> ExactBounds | None:
    """The bounds of `column` in all rows of the files, None where their statistics do not tell.

    `columns_of` returns the columns of a schema by its id. A file that was written with another
    type of the column, or without it, does not tell.
    """
    if not isinstance(column.type, AtomicType) or column.type.name not in _EXACT:
        return None
    found: list[pa.Array] = []
    for members, in_file in stored_columns(files, columns_of):
        one = _of_files(files.take(pa.array(members)), in_file, column)
        if one is None:
            return None
        found += one
    values = pa.chunked_array(found, arrow_type(column.type))
    bounds = pc.min_max(values).as_py()
    return ExactBounds(bounds["min"], bounds["max"])


def _of_files(
    files: pa.Table, in_file: Sequence[Column], column: Column
) -> tuple[pa.Array, pa.Array] | None:
    """The least and the greatest value of each file, NULL where it has none."""
    places = [at for at, one in enumerate(in_file) if one.id == column.id]
    if not places or in_file[places[0]].type != column.type:
        return None
    place = places[0]
    types = [arrow_type(one.type) for one in in_file]
    bounds = []
    for name in ("value_min_values", "value_max_values"):
        rows = files[name].combine_chunks()
        if rows.null_count or not has_fields(rows, len(in_file)):
            return None
        bounds.append(decode_bounds(rows, types)[place])
    counts = files["value_null_counts"].to_pylist()
    totals = files["row_count"].to_pylist()
    for at, (nulls, total) in enumerate(zip(counts, totals, strict=True)):
        known = nulls[place] if nulls is not None and len(nulls) > place else None
        has_bounds = bounds[0][at].is_valid and bounds[1][at].is_valid
        if total and not has_bounds and known != total:
            return None
    return bounds[0], bounds[1]
