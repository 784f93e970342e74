"""The expiry of a table's rows (`record-level.expire-time`), and the files that may hold such rows.

Rows expire by compactions only, as in Paimon. Source: `RecordLevelExpire`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paimon_magics.columnar.record_expiry import RecordExpiry
from paimon_magics.planning.compaction.picks import Moment
from paimon_magics.planning.options.values import duration_ms
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.manifests.column_statistics import column_bounds
from paimon_magics.tables.schema.history import TableSchemas
from paimon_magics.tables.schema.types import arrow_type
from paimon_magics.tables.table import Table

__all__ = ["expired_files", "record_expiry"]


def record_expiry(schema: TableSchema, moment: Moment) -> RecordExpiry | None:
    """Which rows have expired at a moment; None for a table whose rows don't. Raises
    InvalidTableError for an option's value that can't be read."""
    age = schema.stored_option("record-level.expire-time")
    field = schema.stored_option("record-level.time-field")
    if age is None or field is None:
        return None
    seconds = int(duration_ms("record-level.expire-time", age)) // 1000
    return RecordExpiry(field, moment.epoch_ms // 1000 - seconds)


def expired_files(
    table: Table, expiry: RecordExpiry | None
) -> Callable[[pa.Table], npt.NDArray[np.bool_]] | None:
    """Marks the files (columns of MANIFEST_ENTRIES) whose statistics allow expired rows. As in
    Paimon, a file without statistics of the time is not marked."""
    if expiry is None:
        return None
    column = table.schema.column(expiry.field)
    data_type = arrow_type(column.type)
    columns_of = TableSchemas(table.paimon).columns

    def marked(files: pa.Table) -> npt.NDArray[np.bool_]:
        least = [
            column_bounds(files.slice(row, 1), columns_of, [column])[column.name].least
            for row in range(files.num_rows)
        ]
        return expiry.too_old(pa.array(least, data_type))

    return marked
