"""Rows that are not in a table yet, merged with those of their keys that are: as the table's own
merge engine would once they are there.

What is there was merged before; Paimon's engines give the same for rows that are merged in two
steps as in one, because compaction does it so.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.folding import merge_rows
from paimon_magics.columnar.merging import KIND, SEQUENCE, group_rows, is_retract
from paimon_magics.planning.reads.views import KIND_NAMES
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.schema.merge_options import merge_rule

__all__ = ["merged_on_top", "needs_rows_below"]

_KINDS = {name: kind for kind, name in enumerate(KIND_NAMES)}


def needs_rows_below(schema: TableSchema) -> bool:
    """Whether what is in the table has a say in what rows of the same keys become: not where the
    last one wins whatever it holds."""
    return (
        schema.merge_engine != "deduplicate"
        or bool(schema.sequence_fields)
        or schema.flag("ignore-delete")
    )


def merged_on_top(schema: TableSchema, below: pa.Table, rows: pa.Table) -> pa.Table:
    """One row for each key of `rows` (later ones follow earlier ones) and `below` (one for each
    key, none where `needs_rows_below` says so), or none where a row has deleted it. Both have the
    table's columns. Raises JobError for rows that the merge engine does not take."""
    rule = merge_rule(schema)
    order = replace(rule.order, keys=schema.primary_keys)
    rule = replace(rule, order=order, looks_up=False)  # what is below was merged
    if not rows.num_rows:
        return below
    slices = [_numbered(rows, _kinds(schema, rows), below.num_rows)]
    if below.num_rows:
        slices.insert(0, _numbered(below, np.zeros(below.num_rows, np.int8), 0))
    merged = merge_rows(group_rows(tuple(slices), rule.order), rule)
    kept = [batch.filter(pa.array(~is_retract(np.asarray(batch.column(KIND))))) for batch in merged]
    columns = rows.schema.names
    return pa.Table.from_batches([batch.select(columns) for batch in kept], rows.schema)


def _numbered(rows: pa.Table, kinds: npt.NDArray[np.int8], at: int) -> pa.RecordBatch:
    numbered = rows.append_column(SEQUENCE, pa.array(np.arange(at, at + rows.num_rows)))
    (batch,) = numbered.append_column(KIND, pa.array(kinds)).combine_chunks().to_batches()
    return batch


def _kinds(schema: TableSchema, rows: pa.Table) -> npt.NDArray[np.int8]:
    if schema.rowkind_field is None:
        return np.zeros(rows.num_rows, np.int8)
    given = rows.column(schema.rowkind_field).to_pylist()
    return np.array([_KINDS.get(text, 0) for text in given], np.int8)
