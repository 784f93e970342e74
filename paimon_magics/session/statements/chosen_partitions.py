"""The partitions that a procedure is limited to, by its parameters.

Source: `SparkProcedureUtils`.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_magics.errors import InvalidValueError, UnknownNameError
from paimon_magics.planning.options.values import duration_ms
from paimon_magics.session.connection import Connection
from paimon_magics.spark.conditions import rows_where
from paimon_magics.tables.compaction.scopes import (
    StoredPartitions,
    partitions_of_specs,
    stored_partitions,
)
from paimon_magics.tables.table import Table

__all__ = ["check_choice", "chosen_partitions"]


def check_choice(partitions: str | None, where: str | None) -> None:
    """Raise InvalidValueError if partitions are chosen in two ways."""
    if partitions is not None and where is not None:
        raise InvalidValueError(
            "partitions and where cannot be used together.", hint="Leave one of them out."
        )


def chosen_partitions(
    connection: Connection,
    table: Table,
    partitions: str | None,
    where: str | None,
    partition_idle_time: str | None = None,
) -> frozenset[bytes] | None:
    """The partitions with files that are chosen, serialised; None for all.

    Raises UnknownNameError for a column that is no partition column, InvalidValueError for a text
    that is no value of its column.
    """
    if partitions is None and where is None and partition_idle_time is None:
        return None
    stored = stored_partitions(table)
    kept = np.ones(len(stored.encoded), dtype=bool)
    if partitions is not None:
        kept &= partitions_of_specs(table, stored, partitions)
    if where is not None:
        kept &= _matching(connection, table, stored, where)
    if partition_idle_time is not None:
        idle_ms = duration_ms("partition_idle_time", partition_idle_time)
        kept &= stored.written_ms < time.time() * 1000 - idle_ms
    return frozenset(pc.filter(stored.encoded, pa.array(kept)).to_pylist())


def _matching(connection: Connection, table: Table, stored: StoredPartitions, where: str) -> Any:
    """Which partitions meet a condition, by Spark."""
    keys = table.schema.partition_keys
    if not keys:
        raise UnknownNameError(
            f"`{table.name}` has no partitions for `where` to choose from.",
            hint="Leave `where` out.",
        )
    rows = pa.table(stored.values, names=list(keys))
    kept = np.zeros(len(stored.encoded), dtype=bool)
    kept[rows_where(connection.spark, rows, where)] = True
    return kept
