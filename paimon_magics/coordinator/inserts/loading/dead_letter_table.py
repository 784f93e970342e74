"""Dead letters as a Paimon table, so that any engine can query what was not loaded, and why.

The table is `paimon_magics.dead_letters` of the same warehouse. It has a row for each record, keyed
by the identity of the record's table and its lsn. The log keeps a letter until it is retried or
discarded; this table keeps each letter and what became of it. Writing one twice changes nothing.

If the process dies before a letter is written here, the next start writes it.
"""

from __future__ import annotations

import datetime
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from paimon_magics.coordinator.inserts.log.log import DeadLetter
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
    table_identity STRING NOT NULL COMMENT 'where the table lies, and when it was made',
    record BIGINT NOT NULL COMMENT 'the number of its record, in the order of acknowledgement',
    table_name STRING COMMENT 'the name of the table',
    state STRING COMMENT 'waiting, retried or discarded',
    reason STRING COMMENT 'why it could not be loaded',
    row_count INT,
    schema_id INT COMMENT 'of the schema that its rows fitted',
    acknowledged_at TIMESTAMP_LTZ(3),
    buried_at TIMESTAMP_LTZ(3),
    request STRING COMMENT 'the insert as it was sent, where that was JSON',
    arrow BYTES COMMENT 'or as an Arrow stream'
) TBLPROPERTIES ('primary-key' = 'table_identity,record', 'bucket' = '1')
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Told:
    """A dead letter, the name of its table, and its state."""

    letter: DeadLetter
    table: str
    state: State = "waiting"


class DeadLetterTable:
    """Writes dead letters to the table, through transactions of the coordinator. Safe for several
    threads."""

    def __init__(self, catalog: Catalog, coordinator: Coordinator, settings: Settings) -> None:
        transactions = coordinator.transactions
        self._own = OwnTable(catalog, transactions, settings, NAME, _SQL, "auto_batch_load")
        self._turn = threading.Lock()
        self._untold: dict[tuple[str, int], Told] = {}

    def tell(self, letters: Sequence[Told]) -> None:
        """Write letters to the table. If that fails, they are kept for `tell_again`."""
        with self._turn:
            self._untold |= {
                (letter.letter.table_id, letter.letter.lsn): letter for letter in letters
            }
        self.tell_again()

    def tell_again(self) -> None:
        """Write the letters that are not written yet."""
        with self._turn:
            letters = list(self._untold.values())
            if not letters:
                return
            try:
                self._own.write([_row(letter) for letter in letters])
            except (PaimonMagicsError, OSError) as error:
                _log.warning("%d dead letters are not in `%s` yet: %s", len(letters), NAME, error)
            else:
                self._untold.clear()


def _row(told: Told) -> dict[str, Any]:
    letter = told.letter
    row: dict[str, Any] = {
        "table_identity": letter.table_id,
        "record": letter.lsn,
        "table_name": told.table,
        "state": told.state,
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
