"""Sends DECIMAL columns to Python as numbers of 64 bits.

Spark makes a BigDecimal of each value that it puts into Arrow, which takes longer than the rest of
a row of seven columns. Up to 18 digits it holds such a value as one number. No function of SQL
returns that number, but `xxhash64` hashes nothing else, and its steps can be undone
(`columnar.hashed_numbers`), in Spark Connect, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from paimon_magics.columnar.hashed_numbers import DIGITS_MAX, decimals_of_hashes
from paimon_magics.statements.clauses.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["HashedDecimals", "with_hashed_decimals"]


@dataclass(frozen=True, slots=True)
class HashedDecimals:
    """The DECIMAL columns of a frame that come as hashes: name, precision and scale of each."""

    columns: tuple[tuple[str, int, int], ...]

    def restored(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches with the values in place of their hashes. Raises ValueError where Spark has
        hashed something else."""
        for batch in batches:
            for name, precision, scale in self.columns:
                place = batch.schema.get_field_index(name)
                data_type = pa.decimal128(precision, scale)
                field = batch.schema.field(place).with_type(data_type)
                values = decimals_of_hashes(batch.column(place), data_type)
                batch = batch.set_column(place, field, values)
            yield batch


def with_hashed_decimals(frame: DataFrame) -> tuple[DataFrame, HashedDecimals]:
    """The frame with hashes in place of the values of DECIMAL columns of at most 18 digits, and
    what restores them in a task. DECIMALs inside other types stay as they are."""
    from pyspark.sql.types import DecimalType

    names = [field.name for field in frame.schema.fields]
    if len({name.lower() for name in names}) < len(names):
        return frame, HashedDecimals(())
    found = []
    texts = []
    for field in frame.schema.fields:
        name, data_type = quoted(field.name), field.dataType
        if isinstance(data_type, DecimalType) and data_type.precision <= DIGITS_MAX:
            found.append((field.name, data_type.precision, data_type.scale))
            hashed = f"xxhash64({name})"
            if field.nullable:
                hashed = f"CASE WHEN {name} IS NOT NULL THEN {hashed} END"
            name = f"{hashed} AS {name}"
        texts.append(name)
    if not found:
        return frame, HashedDecimals(())
    return frame.selectExpr(*texts), HashedDecimals(tuple(found))
