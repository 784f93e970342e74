"""Dead letters as a Paimon table, so that any engine can query which rows were not loaded, and why.

The table is `paimon_magics.dead_letters` of the same warehouse. It has a row for each record, keyed
by the identity of the record's table and its lsn. The log keeps a letter until it is retried or
discarded; this table keeps each letter and its outcome. Writing a letter twice changes nothing.

If the process dies before a letter is written here, the next start writes it.
"""

from __future__ import annotations

import datetime
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal

from paimon_magics.coordinator.inserts.admission.validator import TableInfo
from paimon_magics.coordinator.inserts.log.log import DeadLetter, Log
from paimon_magics.coordinator.inserts.log.records import DamagedError, read_segment
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.own_tables import OwnTable
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog

NAME = TableName("dead_letters", "paimon_magics")
State = Literal["waiting", "retried", "discarded"]

_SQL = """
CREATE TABLE dead_letters (
    table_identity STRING NOT NULL COMMENT 'the identity of the table that the rows were sent to',
    record BIGINT NOT NULL COMMENT 'the number of its record, in the order of acknowledgement',
    table_name STRING COMMENT 'the name of the table',
    state STRING COMMENT 'waiting, retried or discarded',
    reason STRING COMMENT 'why it could not be loaded',
    row_count INT,
    schema_id INT COMMENT 'the schema that its rows matched',
    acknowledged_at TIMESTAMP_LTZ(3),
    buried_at TIMESTAMP_LTZ(3),
    request STRING COMMENT 'the insert as it was sent, if it was JSON',
    arrow BYTES COMMENT 'the insert as an Arrow stream, if it was not JSON'
) TBLPROPERTIES ('primary-key' = 'table_identity,record', 'bucket' = '1')
"""

_log = logging.getLogger(__name__)


class DeadLetters:
    """The dead letters of one log, which transactions of the coordinator write to the table. Safe
    for several threads.

    `name_of` returns the present name of the table with an identity, None if it is unknown.
    """

    def __init__(
        self,
        catalog: Catalog,
        coordinator: Coordinator,
        settings: Settings,
        log: Log,
        name_of: Callable[[str], str | None],
    ) -> None:
        transactions = coordinator.transactions
        self._table = OwnTable(catalog, transactions, settings, NAME, _SQL, "auto_batch_load")
        self._source = log
        self._name_of = name_of
        self._turn = threading.Lock()
        self._pending: dict[tuple[str, int], dict[str, Any]] = {}

    def list(self, identity: str | None = None) -> list[DeadLetter]:
        """The records that could not be loaded, of one table or of all, oldest first."""
        return self._source.dead_letters(identity)

    def settle(self, table_info: TableInfo, lsn: int, state: State) -> None:
        """Record that a dead letter was retried or discarded, and drop it from the log. The table
        keeps it with its new state."""
        identity = table_info.identity
        letters = [letter for letter in self._source.dead_letters(identity) if letter.lsn == lsn]
        self._write([_row(letter, str(table_info.name), state) for letter in letters])
        self._source.drop_dead_letter(identity, lsn)

    def write_new(self, identity: str, lsns: Sequence[int]) -> None:
        """Write the new dead letters with these lsns to the table."""
        wanted = set(lsns)
        letters = self._source.dead_letters(identity)
        self._write([self._waiting_row(letter) for letter in letters if letter.lsn in wanted])

    def write_all(self) -> None:
        """Write all dead letters to the table: done at the start, since the process before may have
        died before it wrote them."""
        self._write([self._waiting_row(letter) for letter in self._source.dead_letters()])

    def write_pending(self) -> None:
        """Write the letters whose earlier write failed."""
        with self._turn:
            rows = list(self._pending.values())
            if not rows:
                return
            try:
                self._table.write(rows)
            except (PaimonMagicsError, OSError) as error:
                _log.warning("%d dead letters are not in `%s` yet: %s", len(rows), NAME, error)
            else:
                self._pending.clear()

    def _write(self, rows: Sequence[dict[str, Any]]) -> None:
        with self._turn:
            self._pending |= {(row["table_identity"], row["record"]): row for row in rows}
        self.write_pending()

    def _waiting_row(self, letter: DeadLetter) -> dict[str, Any]:
        return _row(letter, self._name_of(letter.table_id) or letter.table_id, "waiting")


def _row(letter: DeadLetter, table: str, state: State) -> dict[str, Any]:
    row: dict[str, Any] = {
        "table_identity": letter.table_id,
        "record": letter.lsn,
        "table_name": table,
        "state": state,
        "reason": letter.why,
        "buried_at": _time(letter.at_ms),
    }
    try:
        (record,), _ = read_segment(letter.body, letter.lsn, None)
    except DamagedError as error:
        return {**row, "reason": f"{letter.why}; its record can't be read: {error}"}
    is_json = record.format.is_json
    return {
        **row,
        "row_count": record.rows,
        "schema_id": record.schema_id,
        "acknowledged_at": _time(record.at_ms),
        "request": record.payload.decode() if is_json else None,
        "arrow": None if is_json else record.payload,
    }


def _time(at_ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
