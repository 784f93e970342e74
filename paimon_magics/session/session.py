"""A Session on one warehouse: a statement's text in, its Outcome out.

This is the whole path from `parse_cell` to the commit; notebooks only add their options.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from paimon_magics.boundary import knows_other_words, short_errors
from paimon_magics.errors import InvalidValueError
from paimon_magics.session.connection import Connection
from paimon_magics.session.frontend import somebody_is_there
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.pyspark_answers import PysparkAnswers
from paimon_magics.session.queries.follow import SnapshotChanges, follow
from paimon_magics.session.queries.table_frames import chosen_of_table
from paimon_magics.session.reports.administration import Administration
from paimon_magics.session.reports.health import Health, Helper, tables_of
from paimon_magics.session.reports.layout import Layout, layout_of
from paimon_magics.session.reports.surface import Reporting
from paimon_magics.session.row_changing import RowChanging
from paimon_magics.session.spark_settings import parsed
from paimon_magics.session.statements.cells import (
    check_after_others,
    check_confirmed,
    dry_run_of,
    explanation_of,
    limited,
    may_take_away,
    preview_of,
)
from paimon_magics.session.statements.show import history_of
from paimon_magics.session.streaming import register_source, start_stream, stream_frame
from paimon_magics.session.streams import Stream
from paimon_magics.session.writes.frames import WriteMode, write_frame_to
from paimon_magics.session.writes.new_tables import WantedTable, option_text, write_to_new
from paimon_magics.session.writes.small_inserts import (
    check_wait,
    flush_table,
    insert_rows,
)
from paimon_magics.settings import Wait
from paimon_magics.spark.frame_methods import note_calls
from paimon_magics.spark.pyspark_calls import answer_by, answer_no_longer
from paimon_magics.statements.clauses.names import named, table_text, text_literal

if TYPE_CHECKING:
    from paimon_magics.session.doctor import Diagnosis
    from paimon_magics.spark.handles import DataFrame


# Method names of other libraries, with ours.
_OTHER_WORDS = {
    **dict.fromkeys(("sql", "query", "execute", "exec", "read_sql", "run_sql"), "run(text)"),
    **dict.fromkeys(("read", "load", "scan", "read_table", "to_pandas"), "table(name)"),
    **dict.fromkeys(("save", "append", "overwrite", "upsert", "to_table"), "write(frame, name)"),
    **dict.fromkeys(("create_table", "createDataFrame"), "write(frame, name, create=True)"),
    **dict.fromkeys(("tables", "list_tables", "show_tables"), "run('SHOW TABLES')"),
    **dict.fromkeys(("snapshots", "log"), "history(name)"),
    **dict.fromkeys(("stop", "disconnect", "shutdown"), "close()"),
    "commit": "run(text), whose statements are committed by themselves",
}


# The part of a session by which Python reads and writes tables as streams.


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


@short_errors
@knows_other_words(_OTHER_WORDS)
class Session(RowStreaming):
    """Runs statements on one warehouse. Made by `connect`.

    Several threads may use one session, each with its own frames. They share the current database,
    which USE changes.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._spark_calls = PysparkAnswers(connection, self.run)
        answer_by(self._spark_calls)
        note_calls(connection.spark)
        register_source(connection)

    def run(
        self,
        text: str,
        parameters: Mapping[str, object] | None = None,
        *,
        limit: int | None = None,
        dry_run: bool = False,
        include_buffer: bool = False,
        wait: Wait | None = None,
        frames: Mapping[str, object] | None = None,
        confirm: bool | None = None,
    ) -> Outcome:
        """Run the statements of `text` in order and return the last one's outcome.

        `parameters` are the values of bind names (`:day`); Spark binds them, they never become
        part of the text. `frames` are DataFrames (pandas, polars, Arrow, Spark) that queries may
        name, as in `FROM df`, where no table has that name. `limit` cuts the rows of a query.
        `dry_run` checks and plans everything and runs nothing. With `include_buffer`, queries of a
        table's current state also see small inserts that are acknowledged but not loaded yet.
        `wait` says when an INSERT … VALUES that is a small insert returns, as in `insert`; and so
        for a DELETE or UPDATE that is a small change. The first error stops the run; the statements
        before it have taken effect.

        `confirm` answers the question before a statement that takes much away or can't be undone:
        True runs it, False raises UnconfirmedError; without it a person is asked, a program is not.

        Raises StatementError (change the statement), SetupError (change the environment),
        JobError, CommitConflictError or UnknownOutcomeError: see `paimon_magics.errors`.
        """
        self._check_open()
        check_wait(wait)
        if limit is not None and limit < 0:
            raise InvalidValueError(
                f"`limit` of run() is {limit}.", hint="Give a number of rows, 0 or more."
            )
        statements = parsed(self._connection, text)
        if not statements:
            return Outcome(statement="", kind="nothing", message="There is no statement.")
        values = dict(parameters or {})
        if dry_run:
            with self._connection.naming(frames):
                return dry_run_of(self._connection, text, statements, values)
        asks = (somebody_is_there() if confirm is None else not confirm) and may_take_away(text)
        if asks:  # before anything has run
            self.check_confirmed(text, values, frames=frames)
        for number, statement in enumerate(statements):
            if asks and number:  # the statements before it may have brought what it takes away
                with self._connection.naming(frames):
                    check_after_others(self._connection, statement, values)
            outcome = self._run_one(
                statement, values, frames, include_buffer=include_buffer, wait=wait
            )
        if limit is not None and outcome.dataframe is not None:
            outcome = limited(outcome, limit)
        return outcome

    def explain(
        self,
        text: str,
        parameters: Mapping[str, object] | None = None,
        *,
        frames: Mapping[str, object] | None = None,
    ) -> Outcome:
        """Return how the statements of `text` would run: snapshots, files, reads and writers."""
        self._check_open()
        statements = parsed(self._connection, text)
        if not statements:
            return Outcome(statement="", kind="nothing", message="There is no statement.")
        with self._connection.naming(frames):
            return explanation_of(self._connection, text, statements, dict(parameters or {}))

    def preview(
        self,
        text: str,
        parameters: Mapping[str, object] | None = None,
        *,
        frames: Mapping[str, object] | None = None,
    ) -> Outcome:
        """Return what the statements of `text` would take away, a row for each partition; for a
        DELETE, UPDATE or MERGE of rows, at most 10 of them. Writes nothing.

        For these, INSERT OVERWRITE, TRUNCATE, DROP PARTITION and DROP TABLE; raises
        UnsupportedStatementError for others.
        """
        self._check_open()
        statements = parsed(self._connection, text)
        if not statements:
            return Outcome(statement="", kind="nothing", message="There is no statement.")
        with self._connection.naming(frames):
            return preview_of(self._connection, text, statements, dict(parameters or {}))

    def check_confirmed(
        self,
        text: str,
        parameters: Mapping[str, object] | None = None,
        *,
        frames: Mapping[str, object] | None = None,
    ) -> None:
        """Raise UnconfirmedError if a statement of `text` would take away much; the error says what
        would go. Writes nothing."""
        self._check_open()
        if may_take_away(text):
            with self._connection.naming(frames):
                statements = parsed(self._connection, text)
                check_confirmed(self._connection, statements, dict(parameters or {}))

    def table(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        where: object = None,
        *,
        include_buffer: bool = False,
        **options: object,
    ) -> DataFrame:
        """Return a table or system table as a lazy DataFrame:

            session.table("shop.orders", columns=["id", "amount"], where="day = '2026-01-31'")

        It reads the snapshot of this moment. `columns` and `where`, a condition as a text of SQL,
        say what is read; `.select`, `.where`, `.groupBy` and `.agg` on the frame say it as well
        (see docs/python-api.md). `options` are Paimon's read options, such as
        `**{"incremental-between": "3,7"}`. With `include_buffer` the frame also has small inserts
        that are acknowledged but not loaded yet. Rows come in no particular order.

        Raises UnknownNameError for an unknown name, column or option, InvalidValueError for options
        that contradict each other, and the error of a query for a condition that Spark refuses.
        """
        self._check_open()
        connection = self._connection
        given = {key: option_text(value) for key, value in options.items()}
        with connection.naming(None):
            full = connection.full_name(named(name))
            return chosen_of_table(
                connection, full, given, columns, where, include_buffer=include_buffer
            )

    def changes(
        self,
        name: str,
        *,
        from_snapshot: int | None = None,
        consumer_id: str | None = None,
        poll_ms: int = 1000,
        wait: bool = True,
    ) -> Iterator[SnapshotChanges]:
        """Iterate over the changes of a table, its `$audit_log` or `$binlog`, snapshot by snapshot.

        Begins at `from_snapshot`, else where the consumer `consumer_id` stopped, else with the next
        snapshot. A consumer keeps the snapshots that it still needs from expiring; it advances when
        the caller asks for the next changes. With `wait` the iterator looks for new snapshots every
        `poll_ms` milliseconds and does not end.

        Raises InvalidValueError for a system table without changes, UnknownNameError for a snapshot
        that has expired.
        """
        self._check_open()
        return follow(
            self._connection,
            self._connection.full_name(named(name)),
            from_snapshot=from_snapshot,
            consumer_id=consumer_id,
            poll_ms=poll_ms,
            wait=wait,
        )

    def write(
        self,
        frame: object,
        name: str,
        mode: WriteMode | None = None,
        *,
        create: bool = False,
        primary_key: str | Sequence[str] | None = None,
        partition_by: str | Sequence[str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Outcome:
        """Write a Spark, pandas or polars DataFrame, Arrow data, or a list of dictionaries.

        Columns match by name; missing columns get their default or NULL. `mode` is `append` (the
        default), `overwrite` (the whole table) or `dynamic` (the partitions that receive rows).

        With `create` a missing table is created with the frame's columns, `primary_key` and
        `partition_by` (column names) and Paimon's `options`. A table that exists is written in the
        given `mode`; without a mode that is an error.

        Raises what an INSERT raises, and StatementError for a table that exists already.
        """
        self._check_open()
        started = time.monotonic()
        wanted = WantedTable.of(primary_key, partition_by, options)
        if not create and not wanted.is_empty:
            raise InvalidValueError(
                "`primary_key`, `partition_by` and `options` are for a new table only.",
                hint="Add create=True, or leave them out.",
            )
        with self._connection.naming(None) as told:
            if create:
                outcome = write_to_new(self._connection, frame, named(name), mode, wanted)
            else:
                outcome = write_frame_to(self._connection, frame, named(name), mode)
        outcome.notes = (*outcome.notes, *told)
        outcome.seconds = time.monotonic() - started
        return outcome

    def insert(
        self, name: str, rows: object, *, label: str | None = None, wait: Wait | None = None
    ) -> Outcome:
        """Insert a few rows: a list of tuples or dictionaries, Arrow data, pandas or polars frames.

        On a table with the option `auto_batch_load`, through a coordinator, rows are acknowledged
        when they are durable and soon loaded together with others; with `wait="visible"` they are
        acknowledged when they can be read. Without `wait` the table's `group_commit_mode` decides.
        `label` makes it safe to repeat the call with the same rows. Other tables are written at
        once, as by `write`. May be called from several threads.

        Raises InvalidValueError for rows that don't fit or a label that was used for other rows.
        """
        self._check_open()
        started = time.monotonic()
        full = self._connection.full_name(named(name))
        with self._connection.telling():
            given = insert_rows(self._connection, full, rows, label=label, wait=wait)
            outcome = given if isinstance(given, Outcome) else given.outcome()
        outcome.seconds = time.monotonic() - started
        return outcome

    async def insert_async(
        self, name: str, rows: object, *, label: str | None = None, wait: Wait | None = None
    ) -> Outcome:
        """`insert` for an event loop: many inserts may be pending, and are grouped. Inserts into
        one table are acknowledged in the order of the calls."""
        self._check_open()
        full = self._connection.full_name(named(name))
        with self._connection.telling():
            given = insert_rows(self._connection, full, rows, label=label, wait=wait)
            if isinstance(given, Outcome):
                return given
            await asyncio.wrap_future(given.answer)
            return await asyncio.to_thread(given.outcome)

    def flush(self, name: str) -> Outcome:
        """Make all acknowledged small inserts of a table visible, and wait until they are.

        Raises SetupError if there is no coordinator, or if it takes longer than 5 minutes.
        """
        self._check_open()
        started = time.monotonic()
        with self._connection.telling():
            outcome = flush_table(self._connection, self._connection.full_name(named(name)))
        outcome.seconds = time.monotonic() - started
        return outcome

    def compact(self, name: str) -> Outcome:
        """Compact all files of a table with this session's Spark: `CALL sys.compact`."""
        return self.run(f"CALL sys.compact({text_literal(table_text(named(name)))})")

    def history(self, name: str) -> Outcome:
        """Return a table's snapshots, newest first, with user, notebook and statement."""
        self._check_open()
        return history_of(self._connection, self._connection.full_name(named(name)))

    def layout(self, name: str) -> Layout:
        """Return the layout of a table: rows, bytes and files of each partition and bucket, small
        files, skew. Read from manifests, without a Spark job. Raises UnknownNameError."""
        self._check_open()
        full = self._connection.full_name(named(name))
        return layout_of(self._connection.catalog, full, name, self._connection.zone)

    def health(self, name: str | None = None) -> Health:
        """Check the layout of a table, or of all tables of a database (`shop.*`; without a name,
        the current database), against the tables' options. Raises UnknownNameError."""
        self._check_open()
        names = tables_of(self._connection.catalog, name, self.database)
        helper = Helper(lambda sql: self.run(sql, confirm=True), self.layout)
        return Health(tuple(self.layout(name) for name in names), helper)

    @property
    def reports(self) -> Reporting:
        """Reports: a table's snapshots, the difference of two, its files, and more."""
        self._check_open()
        return Reporting(self._connection)

    def doctor(self) -> Diagnosis:
        """Return versions, Spark, the store (probed now), the coordinator's process, logs and
        settings as a text to copy, without secrets."""
        from paimon_magics.session.doctor import doctor

        return doctor(self)

    @property
    def administration(self) -> Administration:
        """The coordinator that commits: its status, its transactions, pause, resume and drain.

        Raises SetupError if the session commits in its own process.
        """
        self._check_open()
        return Administration(self._connection)

    def close(self, *, stop_spark: bool = False) -> None:
        """End the session. Spark keeps running for frames that still need it, unless
        `stop_spark`."""
        answer_no_longer(self._spark_calls)
        super().close(stop_spark=stop_spark)
