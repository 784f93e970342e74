"""The audit log as a Paimon table, which any engine can read.

It has a partition for each day (UTC), and a key for each entry, so writing an entry twice changes
nothing. With the table's option `partition.expiration-time` whole days that are older are removed.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from paimon_magics.coordinator.audit.entries import Entry
from paimon_magics.coordinator.service.own_tables import OwnTable
from paimon_magics.coordinator.service.transactions import Transactions
from paimon_magics.planning.options.values import duration_ms
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.manifests.partitions import list_partitions

ENGINE = "audit"
_RETENTION = "partition.expiration-time"
_EXPIRE_SECONDS = 3_600.0
_DAYS_AT_ONCE = 100

_SQL = """
CREATE TABLE audit (
    day STRING NOT NULL COMMENT 'the day of the request, in UTC',
    id STRING NOT NULL COMMENT 'begins with its time',
    requested_at TIMESTAMP_LTZ(3),
    action STRING COMMENT 'the requested action',
    user_name STRING COMMENT 'the user that the token names; NULL if it names none',
    claimed_name STRING COMMENT 'the user that the client names, if the token names none',
    credential STRING COMMENT 'how the sender was identified: a token with its id, an issuer, …',
    address STRING COMMENT 'address of the sender',
    database_name STRING,
    table_name STRING,
    snapshot_id BIGINT COMMENT 'the snapshot that the request made',
    outcome STRING COMMENT 'done, refused, failed, or unknown: the coordinator ended meanwhile',
    status INT COMMENT 'HTTP status of the answer',
    detail STRING
) PARTITIONED BY (day)
TBLPROPERTIES ('primary-key' = 'day,id', 'bucket' = '1', 'auto_compact' = 'true')
"""


class AuditTable:
    """Writes entries to the table in transactions of the coordinator. For one thread."""

    def __init__(
        self, catalog: Catalog, transactions: Transactions, settings: Settings, name: TableName
    ) -> None:
        assert name.database is not None
        self.name = name.database, name.table
        self._own = OwnTable(catalog, transactions, settings, name, _SQL, ENGINE)
        self._expired_at = float("-inf")

    def write(self, entries: Sequence[Entry]) -> None:
        """Commit entries. Raises errors of ours and OSError."""
        self._own.write([_row(entry) for entry in entries])

    def expire(self) -> None:
        """Remove the days that have passed the table's retention, once an hour. Raises as `write`
        does.
        """
        if time.monotonic() - self._expired_at < _EXPIRE_SECONDS:
            return
        self._expired_at = time.monotonic()
        table = self._own.load()
        text = dict(table.schema.options).get(_RETENTION)
        if text is None:
            return
        retention = datetime.timedelta(milliseconds=duration_ms(_RETENTION, text))
        first = (datetime.datetime.now(datetime.UTC) - retention).strftime("%Y-%m-%d")
        old = [str(values[0]) for values in list_partitions(table) if str(values[0]) < first]
        if old:
            self._own.drop_partitions([[("day", day)] for day in old[:_DAYS_AT_ONCE]])


def _row(entry: Entry) -> dict[str, Any]:
    at = datetime.datetime.fromtimestamp(entry.at_ms / 1000, datetime.UTC)
    return {
        **{key: value or None for key, value in asdict(entry).items() if key in _SAME},
        "day": at.strftime("%Y-%m-%d"),
        "requested_at": at,
        "user_name": entry.user,
        "claimed_name": entry.claimed,
        "database_name": entry.database,
        "table_name": entry.table,
        "outcome": entry.outcome.value,
    }


_SAME = ("id", "action", "credential", "address", "snapshot_id", "status", "detail")
