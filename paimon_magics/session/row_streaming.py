"""The part of a session by which Python reads and writes tables as streams."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from paimon_magics.boundary import short_errors
from paimon_magics.session.row_changing import RowChanging
from paimon_magics.session.streaming import start_stream, stream_frame
from paimon_magics.session.streams import Stream
from paimon_magics.session.writes.new_tables import option_text
from paimon_magics.statements.clauses.given_names import named

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = ["RowStreaming"]


@short_errors
class RowStreaming(RowChanging):
    """A session's methods for streams."""

    def stream(self, name: str, **options: object) -> DataFrame:
        """Return a table, its `$audit_log` or its `$binlog` as a streaming DataFrame:

            session.stream("shop.orders$audit_log", **{"scan.mode": "latest"})

        By default it begins with all rows that there are, and goes on with what changes. `options`
        are Paimon's for streams (`scan.mode`, `scan.snapshot-id`, `scan.timestamp`, `consumer-id`),
        and those of its connector for Spark (`read.stream.maxRowsPerTrigger`): docs/streams.md.

        Raises UnknownNameError for an unknown name or option, UnsupportedStatementError for a table
        that has no changes to read, InvalidValueError for options that contradict each other.
        """
        self._check_open()
        connection = self._connection
        given = {key: option_text(value) for key, value in options.items()}
        with connection.naming(None):
            return stream_frame(connection, connection.full_name(named(name)), given)

    def write_stream(
        self,
        frame: DataFrame,
        name: str,
        *,
        checkpoint: str | os.PathLike[str],
        mode: str = "append",
        trigger: str | None = None,
    ) -> Stream:
        """Start to write a streaming DataFrame to a table, each micro-batch in one commit, once:

            stream = session.write_stream(session.stream("a"), "b", checkpoint="checkpoints/a-to-b")
            stream.stop()

        `checkpoint` is a folder of this stream alone; the same call with it goes on where the
        stream was, whatever died. `mode` is `append`, `upsert` (rows of an aggregation replace
        those of their keys) or `complete` (each micro-batch replaces the whole table). Rows of a
        table with keys replace those of their keys in any mode, and the column `rowkind` of an
        `$audit_log` says which rows are deleted. `trigger` is how often a micro-batch begins
        ("10 seconds"), or "available-now" to end with what is there; by default, at once.

        Raises what `write` raises for columns that don't fit, and InvalidValueError for a frame
        that is no stream, before anything is written.
        """
        self._check_open()
        connection = self._connection
        with connection.naming(None):
            full = connection.full_name(named(name))
            return start_stream(
                connection, frame, full, checkpoint=os.fspath(checkpoint or ""), mode=mode,
                trigger=trigger,
            )  # fmt: skip
