"""The least and greatest value of a column in whole files, from statistics that are exact.

Only of types whose bounds every writer stores whole: texts and binary values are truncated
(`metadata.stats-mode`), floating-point bounds leave out NaN and the sign of zero, and times lose
digits. Source: `AggregatePushDownUtils`, `PushDownUtils.minmaxAvailable` of Paimon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.binary_rows import decode_bounds
from paimon_magics.planning.schemas.table_schema import Column
from paimon_magics.statements.data_types import AtomicType
from paimon_magics.tables.schema.types import arrow_type
from paimon_magics.tables.splits.pruning import has_fields, stored_columns

__all__ = ["ExactBounds", "exact_bounds"]

_EXACT = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DATE")


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
