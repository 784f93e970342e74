"""Which of some files can hold rows that a statement looked for, by partitions, buckets, keys and
statistics."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.splits.pruning import (
    in_buckets,
    in_key_ranges,
    in_partitions,
    in_value_ranges,
)
from paimon_magics.tables.table import Table

__all__ = ["may_be_found"]


def may_be_found(table: Table, files: pa.Table, conditions: Sequence[ColumnPredicate]) -> pa.Table:
    """The files (columns of MANIFEST_ENTRIES) that can hold rows which meet all conditions. A
    condition on a column that the table no longer has says nothing."""
    schema = table.schema
    names = {column.name for column in schema.columns}
    known = [one for one in conditions if one.column in names]
    for judge in (in_partitions, in_buckets):
        files = files.filter(pa.array(judge(files, schema, known)))
    if schema.is_primary_key_table:
        return files.filter(pa.array(in_key_ranges(files, schema, known)))
    if schema.data_evolution_enabled:
        return files  # a file has only some columns of its rows
    columns = TableSchemas(table.paimon).columns
    return files.filter(pa.array(in_value_ranges(files, columns, schema.columns, known)))
