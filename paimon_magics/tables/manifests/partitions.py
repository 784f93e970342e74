"""The present partitions of a table, read from its manifests, and their text.

Folders are never listed. A partition whose rows are all overwritten is gone, though its folder may
remain. A partition that is empty only by deletion vectors still exists.
"""

from __future__ import annotations

import datetime
import decimal
from typing import Any

from paimon_magics.columnar.time_zones import UTC, clock_text, rules_of
from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.reports.partition_names import escaped
from paimon_magics.statements.data_types import AtomicType, DataType
from paimon_magics.tables.manifests.live_files import ManifestCache, live_files
from paimon_magics.tables.manifests.partition_values import partition_values
from paimon_magics.tables.snapshots.latest import latest_snapshot
from paimon_magics.tables.table import Table

__all__ = ["list_partitions", "partition_name", "partition_value_text"]


def list_partitions(table: Table) -> list[tuple[Any, ...]]:
    """The key values of each partition that has files, in a stable order.

    Raises InvalidTableError for a table without partition keys.
    """
    if not table.schema.partition_keys:
        raise InvalidTableError(
            f"The table `{table.name}` has no partitions.",
            hint="It was created without PARTITIONED BY.",
        )
    snapshot = latest_snapshot(table.paimon)
    if snapshot is None:
        return []
    files = live_files(ManifestCache(table.paimon), snapshot, ())
    partitions, _ = partition_values(table.paimon, files)
    return sorted(partitions, key=lambda values: [(v is None, str(v)) for v in values])


def partition_name(table: Table, values: tuple[Any, ...], zone: str = UTC) -> str:
    """A partition as in Spark's SHOW PARTITIONS: `dt=2024-01-01/hh=1`, `dt=null`. TIMESTAMP_LTZ
    values are shown in `zone`."""
    keys = table.schema.partition_keys
    return "/".join(
        f"{escaped(key)}={escaped(_value_in_zone(value, table.schema.column(key).type, zone))}"
        for key, value in zip(keys, values, strict=True)
    )


def _value_in_zone(value: Any, data_type: DataType, zone: str) -> str:
    if getattr(data_type, "name", "") != "TIMESTAMP_LTZ" or value is None:
        return partition_value_text(value, data_type)
    if hasattr(value, "to_local_date_time"):
        value = value.to_local_date_time()
    return clock_text(value.replace(tzinfo=datetime.UTC).astimezone(rules_of(zone)))


def partition_value_text(value: Any, data_type: DataType) -> str:
    """A partition value as Spark casts it to text. NULL is `null`; times are in UTC."""
    if value is None:
        return "null"
    match value:
        case bool():
            return "true" if value else "false"
        case decimal.Decimal():
            return format(value, "f")
        case bytes():
            return value.decode("utf-8", "replace")
        case datetime.datetime():
            return clock_text(value.replace(tzinfo=None))
    if hasattr(value, "to_local_date_time"):
        return partition_value_text(value.to_local_date_time(), data_type)
    if isinstance(value, int) and isinstance(data_type, AtomicType) and data_type.name == "DATE":
        return str(datetime.date(1970, 1, 1) + datetime.timedelta(days=value))
    return str(value)
