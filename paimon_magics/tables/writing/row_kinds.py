"""The kinds of rows that are written to a primary-key table, and rows that it does not take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.columnar.merging import KIND
from paimon_magics.planning.reads.views import DELETE, KIND_NAMES, UPDATE_BEFORE
from paimon_magics.planning.schemas.table_schema import TableSchema


@dataclass(frozen=True, slots=True)
class KindRule:
    """How a row's kind is found. It comes in the column KIND beside those of the table, or the
    column `field` of the table has it, else each row is a +I. Rows of the kinds `dropped` are not
    written. Sources: `RowKindGenerator`, `RowKindFilter`."""

    field: str | None
    dropped: frozenset[int] = frozenset()

    def applied(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.int8]]:
        """The rows to write, without KIND, and their kinds. Raises ValueError for a kind that there
        is not, and for NULL in a column that is NOT NULL."""
        kinds = self._kinds(rows)
        if KIND in rows.schema.names:
            rows = rows.drop_columns([KIND])
        if self.dropped:
            is_written = ~np.isin(kinds, sorted(self.dropped))
            if not is_written.all():
                rows, kinds = rows.filter(pa.array(is_written)), kinds[is_written]
        for field in rows.schema:
            if not field.nullable and rows.column(field.name).null_count:
                raise ValueError(f"column `{field.name}` is NOT NULL, and a row has NULL in it")
        return rows, kinds

    def _kinds(self, rows: pa.RecordBatch) -> npt.NDArray[np.int8]:
        if KIND in rows.schema.names:
            return np.asarray(rows.column(KIND)).astype(np.int8, copy=False)
        if self.field is None:
            return np.zeros(rows.num_rows, dtype=np.int8)
        texts = rows.column(self.field)
        kinds = pc.index_in(texts, pa.array(KIND_NAMES, texts.type))
        if kinds.null_count:
            wrong = texts.filter(kinds.is_null())[0].as_py()
            raise ValueError(f"column `{self.field}` has {wrong!r}, which is no row kind")
        return np.asarray(kinds).astype(np.int8)


def kind_rule(schema: TableSchema) -> KindRule:
    """The rule of a table: `rowkind.field`, `ignore-delete`, `ignore-update-before`."""
    dropped = set()
    if schema.flag("ignore-delete"):
        dropped |= {UPDATE_BEFORE, DELETE}
    if schema.flag("ignore-update-before"):
        dropped.add(UPDATE_BEFORE)
    return KindRule(schema.rowkind_field, frozenset(dropped))
