"""The function of `foreachBatch` that writes a stream's micro-batches to a table.

Spark calls it in this process, or, on Spark Connect, in a process of the server, to which it goes
without its connection: it opens one there, on the same warehouse and coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from paimon_magics.errors import PaimonMagicsError, sent_to_driver
from paimon_magics.session.connection import Connection
from paimon_magics.session.opening import connection_on
from paimon_magics.session.place_words import PlaceWords
from paimon_magics.session.writes.epochs import write_epoch
from paimon_magics.settings import Settings
from paimon_magics.spark.streaming_queries import query_id
from paimon_magics.spark.views import Views
from paimon_magics.statements.statement import TableName

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame, SparkSession

__all__ = ["StreamSink", "Written", "sink_of"]


@dataclass
class Written:
    """What a sink of this process has written: rows, the number of epochs with those before it, and
    the snapshot of the last one. `error` is what it failed with."""

    epochs: int = 0
    rows: int = 0
    snapshot_id: int | None = None
    error: PaimonMagicsError | None = None


@dataclass
class StreamSink:
    """Writes micro-batches to `table`, in Spark's output mode `mode`. `checkpoint` is the query's
    checkpoint, which has the query's id."""

    table: TableName
    mode: str
    checkpoint: str
    words: PlaceWords = field(repr=False)
    settings: Settings
    written: Written = field(default_factory=Written)
    _given: Connection | None = None
    _connection: Connection | None = None
    _query_id: str = ""

    def __getstate__(self) -> dict[str, Any]:
        """The sink without what belongs to this process."""
        kept = self.__dict__ | {"_given": None, "_connection": None, "written": Written()}
        return kept

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write micro-batch `number` of the query."""
        with sent_to_driver():
            try:
                self._write(batch, number)
            except PaimonMagicsError as error:
                self.written.error = error
                raise

    def _write(self, batch: DataFrame, number: int) -> None:
        connection = self._connection_on(batch.sparkSession)
        if not self._query_id:
            self._query_id = query_id(batch.sparkSession, self.checkpoint)
        outcome = write_epoch(connection, batch, self.table, self.mode, self._query_id, number)
        self.written.epochs = number + 1
        if outcome is not None:
            self.written.rows += outcome.rows_written or 0
            self.written.snapshot_id = outcome.snapshot_id or self.written.snapshot_id

    def _connection_on(self, spark: SparkSession) -> Connection:
        """A connection whose statements run in the session of the micro-batch."""
        known = self._connection
        if known is not None and known.spark is spark:
            return known
        if self._given is not None:
            views = Views(spark, self.settings.kept_views_max)
            self._connection = replace(self._given, spark=spark, views=views, running=[])
        else:
            self._connection = connection_on(self.words, self.settings, spark)
        return self._connection


def sink_of(connection: Connection, table: TableName, mode: str, checkpoint: str) -> StreamSink:
    """The sink of a query that this process starts."""
    words = PlaceWords(
        catalog=dict(connection.catalog.options),
        coordinator=connection.coordinator,
        token=connection.words.token,
    )
    return StreamSink(table, mode, checkpoint, words, connection.settings, _given=connection)
