"""Merges rows that are not in a table yet with the table's rows of the same keys, as its merge
engine will once they are written.

The table's rows were merged before. Paimon's merge engines give the same result in two steps as in
one, because compaction merges in steps too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.folding import merge_rows
from paimon_magics.columnar.merging import KIND, SEQUENCE, group_rows, is_retract
from paimon_magics.planning.reads.row_kinds import KIND_NAMES
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.schema.merge_options import merge_rule

__all__ = ["merged_on_top", "needs_rows_below"]

_KINDS = {name: kind for kind, name in enumerate(KIND_NAMES)}


def needs_rows_below(schema: TableSchema) -> bool:
    """Whether merging new rows needs the table's rows of the same keys. It does not where the last
    row wins whatever it holds."""
    return (
        schema.merge_engine != "deduplicate"
        or bool(schema.sequence_fields)
        or schema.flag("ignore-delete")
    )


def merged_on_top(schema: TableSchema, below: pa.Table, rows: pa.Table) -> pa.Table:
    """Merge `rows`, oldest first, with `below`, the table's rows of these keys: one row for each
    key, none for a deleted key.

    Both have the table's columns; `rows` may have their kinds in the column KIND, too. `below` is
    empty where `needs_rows_below` is false. Raises JobError for rows that the merge engine does not
    take.
    """
    kinds = _kinds(schema, rows)
    if KIND in rows.schema.names:
        rows = rows.drop_columns([KIND])
    rule = merge_rule(schema)
    order = replace(rule.order, keys=schema.primary_keys)
    rule = replace(rule, order=order, looks_up=False)  # `below` is merged already
    if not rows.num_rows:
        return below
    slices = [_numbered(rows, kinds, below.num_rows)]
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
    if KIND in rows.schema.names:
        return np.asarray(rows.column(KIND)).astype(np.int8)
    if schema.rowkind_field is None:
        return np.zeros(rows.num_rows, np.int8)
    given = rows.column(schema.rowkind_field).to_pylist()
    return np.array([_KINDS.get(text, 0) for text in given], np.int8)
