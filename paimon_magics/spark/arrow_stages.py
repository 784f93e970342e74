"""Python stages over a frame whose columns have any names.

`DataFrame.mapInArrow` asks its frame for each column by its name as an expression, in which a dot
means a field of a struct: `a.b` is not found, or gives another value. A name that comes twice, in
any case, is ambiguous there. The columns of such frames are renamed for the way to the tasks, which
restore the names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Work = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]


def map_in_arrow(frame: DataFrame, work: Work, schema: StructType | str) -> DataFrame:
    """Return `frame.mapInArrow(work, schema)`; the columns may have any names."""
    names = frame.columns
    are_unique = len({name.lower() for name in names}) == len(names)
    if are_unique and not any("." in name or "`" in name for name in names):
        return frame.mapInArrow(work, schema)
    numbered = frame.toDF(*(f"c{place}" for place in range(len(names))))
    return numbered.mapInArrow(_UnderNames(work, tuple(names)), schema)


@dataclass(frozen=True)
class _UnderNames:
    """Runs `work` on batches whose columns it renames to `names` first."""

    work: Work
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.work(batch.rename_columns(list(self.names)) for batch in batches)
