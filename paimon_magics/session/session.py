"""A Session on one warehouse: a statement's text in, its Outcome out.

This is the whole path from `parse_cell` to the commit; notebooks only add their options.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from paimon_magics.boundary import knows_other_words, short_errors
from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.session.connection import Connection
from paimon_magics.session.copying.from_python import CopySurface
from paimon_magics.session.frontend import somebody_is_there
from paimon_magics.session.inserts.insert import WriteMode, insert_rows, write_frame_to
from paimon_magics.session.inserts.new_tables import WantedTable, option_text, write_to_new
from paimon_magics.session.merge_builder import MergeBuilder, delete_statement, update_statement
from paimon_magics.session.name_cache import KnownNames
from paimon_magics.session.outcome import Outcome, noted
from paimon_magics.session.pyspark_answers import PysparkAnswers
from paimon_magics.session.queries.follow import SnapshotChanges, follow
from paimon_magics.session.queries.table_frames import chosen_of_table
from paimon_magics.session.reports.administration import Administration
from paimon_magics.session.reports.health import Health, Helper, tables_of
from paimon_magics.session.reports.layout import Layout, layout_of
from paimon_magics.session.reports.surface import Reporting
from paimon_magics.session.scope import StatementScope, statement_scope
from paimon_magics.session.settings_checks import parsed
from paimon_magics.session.statements import dry_runs, queries
from paimon_magics.session.statements.handlers import run_statement
from paimon_magics.session.statements.show import history_of
from paimon_magics.session.streaming import register_source, start_stream, stream_frame
from paimon_magics.session.streams import Stream
from paimon_magics.session.writes.small_inserts import check_wait, flush_table
from paimon_magics.settings import Settings, Wait
from paimon_magics.spark.frame_methods import note_calls
from paimon_magics.spark.interrupts import between_locks
from paimon_magics.spark.jvm import stop
from paimon_magics.spark.pyspark_calls import answer_by, answer_no_longer
from paimon_magics.spark.sessions import check_process, end_behind
from paimon_magics.statements.clauses.names import named, table_text, text_literal
from paimon_magics.statements.statement import Query, TableName
from paimon_magics.statements.subjects import Statement
from paimon_magics.tables.catalog.catalog import Catalog

if TYPE_CHECKING:
    from paimon_magics.session.doctor import Diagnosis
    from paimon_magics.spark.handles import DataFrame, SparkSession
    from paimon_magics.tables.stores.probes import StoreReport

# Method names of other libraries, with ours.
_OTHER_WORDS = {
    **dict.fromkeys(("sql", "query", "execute", "exec", "read_sql", "run_sql"), "run(text)"),
    **dict.fromkeys(("read", "load", "scan", "read_table", "to_pandas"), "table(name)"),
    **dict.fromkeys(("save", "append", "overwrite", "upsert", "to_table"), "write(frame, name)"),
    **dict.fromkeys(("create_table", "createDataFrame"), "write(frame, name, create=True)"),
    **dict.fromkeys(("tables", "list_tables", "show_tables"), "run('SHOW TABLES')"),
    **dict.fromkeys(("snapshots", "log"), "history(name)"),
    **dict.fromkeys(("stop", "disconnect", "shutdown"), "close()"),
    **dict.fromkeys(("copy", "load_files", "export"), "copy_into(target, source, type)"),
    "commit": "run(text), whose statements are committed by themselves",
}


@short_errors
@knows_other_words(_OTHER_WORDS)
class Session(CopySurface):
    """Runs statements on one warehouse. Made by `connect`; stays open until `close`.

    Several threads may use one session, each with its own frames. They share the current database,
    which USE changes.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known_names: KnownNames | None = None
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
        `wait` specifies when a small INSERT … VALUES returns, as in `insert`; the same holds for a
        small DELETE or UPDATE. The first error stops the run; the statements before it have taken
        effect.

        `confirm` answers the question before a statement that deletes much or can't be undone: True
        runs it, False raises UnconfirmedError. Without it, a person is asked, a program is not.

        Raises StatementError (change the statement), SetupError (change the environment),
        JobError, CommitConflictError or UnknownOutcomeError: see `paimon_magics.errors`.
        """
        check_wait(wait)
        queries.check_limit(limit)
        if dry_run:
            return self._planned(dry_runs.dry_run_of, text, parameters, frames)
        with self._scope(frames) as scope:
            statements = parsed(scope, text)
        if not statements:
            return Outcome(statement="", kind="nothing", message="There is no statement.")
        values = dict(parameters or {})
        asks = (somebody_is_there() if confirm is None else not confirm) and dry_runs.may_take_away(
            text
        )
        if asks:  # before anything has run
            self.check_confirmed(text, values, frames=frames)
        for number, statement in enumerate(statements):
            if asks and number:  # the statements before it may have written what it deletes
                with self._scope(frames) as scope:
                    dry_runs.check_after_others(scope, statement, values)
            outcome = self._run_one(
                statement, values, frames, include_buffer=include_buffer, wait=wait
            )
        if limit is not None and outcome.dataframe is not None:
            outcome = queries.limited(outcome, limit)
        return outcome

    def explain(
        self,
        text: str,
        parameters: Mapping[str, object] | None = None,
        *,
        frames: Mapping[str, object] | None = None,
    ) -> Outcome:
        """Return how the statements of `text` would run: snapshots, files, reads and writers."""
        return self._planned(dry_runs.explanation_of, text, parameters, frames)

    def preview(
        self,
        text: str,
        parameters: Mapping[str, object] | None = None,
        *,
        frames: Mapping[str, object] | None = None,
    ) -> Outcome:
        """Return what the statements of `text` would delete, a row for each partition; for a
        DELETE, UPDATE, MERGE or COPY INTO a table, at most 10 of their rows. Writes nothing.
        Raises UnsupportedStatementError for statements that delete nothing."""
        return self._planned(dry_runs.preview_of, text, parameters, frames)

    def check_confirmed(
        self,
        text: str,
        parameters: Mapping[str, object] | None = None,
        *,
        frames: Mapping[str, object] | None = None,
    ) -> None:
        """Raise UnconfirmedError if `text` would delete much, with the losses. Writes nothing."""
        self._check_open()
        if dry_runs.may_take_away(text):
            with self._scope(frames) as scope:
                dry_runs.check_confirmed(scope, parsed(scope, text), dict(parameters or {}))

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

        It reads the snapshot of this moment. `columns`, and the condition `where` (a SQL string),
        limit what is read; so do `.select`, `.where`, `.groupBy` and `.agg` on the frame
        (see docs/python-api.md). `options` are Paimon's read options, such as
        `**{"incremental-between": "3,7"}`. With `include_buffer` the frame also has small inserts
        that are acknowledged but not loaded yet. Rows come in no particular order.

        Raises UnknownNameError for an unknown name, column or option, InvalidValueError for options
        that contradict each other. For a condition that Spark refuses, raises what a query raises.
        """
        texts = {key: option_text(value) for key, value in options.items()}
        with self._scope() as scope:
            return chosen_of_table(
                scope, self._full(name), texts, columns, where, include_buffer=include_buffer
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
            self._connection, self._full(name), from_snapshot=from_snapshot,
            consumer_id=consumer_id, poll_ms=poll_ms, wait=wait,
        )  # fmt: skip

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
        new = WantedTable.of(primary_key, partition_by, options, create=create)
        if new is None:
            return self._timed(lambda scope: write_frame_to(scope, frame, named(name), mode))
        return self._timed(lambda scope: write_to_new(scope, frame, named(name), mode, new))

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

        def insert(scope: StatementScope) -> Outcome:
            inserted = insert_rows(scope, self._full(name), rows, label=label, wait=wait)
            return inserted if isinstance(inserted, Outcome) else inserted.outcome()

        return self._timed(insert)

    async def insert_async(
        self, name: str, rows: object, *, label: str | None = None, wait: Wait | None = None
    ) -> Outcome:
        """`insert` for an event loop: many inserts may be pending, and are grouped. Inserts into
        one table are acknowledged in the order of the calls."""
        with self._scope() as scope:
            inserted = insert_rows(scope, self._full(name), rows, label=label, wait=wait)
            if isinstance(inserted, Outcome):
                return inserted
            await asyncio.wrap_future(inserted.answer)
            return await asyncio.to_thread(inserted.outcome)

    def flush(self, name: str) -> Outcome:
        """Make all acknowledged small inserts of a table visible, and wait until they are.

        Raises SetupError if there is no coordinator, or if it takes longer than 5 minutes.
        """
        return self._timed(lambda scope: flush_table(scope, self._full(name)))

    def compact(self, name: str) -> Outcome:
        """Compact all files of a table with this session's Spark: `CALL sys.compact`."""
        return self.run(f"CALL sys.compact({text_literal(table_text(named(name)))})")

    def history(self, name: str) -> Outcome:
        """Return a table's snapshots, newest first, with user, notebook and statement."""
        with self._scope() as scope:
            return history_of(scope, self._full(name))

    def layout(self, name: str) -> Layout:
        """Return the layout of a table: rows, bytes and files of each partition and bucket, small
        files, skew. Read from manifests, without a Spark job. Raises UnknownNameError."""
        self._check_open()
        return layout_of(self.catalog, self._full(name), name, self._connection.zone)

    def health(self, name: str | None = None) -> Health:
        """Check the layout of a table, or of all tables of a database (`shop.*`; without a name,
        the current database), against the tables' options. Raises UnknownNameError."""
        self._check_open()
        names = tables_of(self.catalog, name, self.database)
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

    def delete(
        self,
        name: str,
        where: str | None,
        parameters: Mapping[str, object] | None = None,
        *,
        frames: Mapping[str, object] | None = None,
        wait: Wait | None = None,
    ) -> Outcome:
        """Delete the rows of a table that meet the condition `where`, a SQL string:

            session.delete("shop.orders", "id = :id", {"id": 7})

        It runs `DELETE FROM … WHERE …`, with `parameters`, `frames` and `wait` as in `run`. The
        condition "true" selects all rows. None is refused, so that a missing condition deletes
        nothing.

        Raises what DELETE raises.
        """
        statement = delete_statement(named(name), where)
        return self._run_one(statement, parameters, frames, wait=wait)

    def update(
        self,
        name: str,
        values: Mapping[str, str],
        where: str | None,
        parameters: Mapping[str, object] | None = None,
        *,
        frames: Mapping[str, object] | None = None,
        wait: Wait | None = None,
    ) -> Outcome:
        """Update the rows of a table that meet the condition `where`. `values` are SQL strings by
        column, or by the field of a struct:

            session.update("shop.orders", {"amount": "amount + :more"}, "id = 7", {"more": 1})

        It runs `UPDATE … SET … WHERE …`, with `parameters`, `frames` and `wait` as in `run`. The
        condition "true" selects all rows. None is refused, so that a missing condition changes
        nothing.

        Raises what UPDATE raises.
        """
        statement = update_statement(named(name), values, where)
        return self._run_one(statement, parameters, frames, wait=wait)

    def merge(self, frame: object, name: str, on: str | Sequence[str]) -> MergeBuilder:
        """Begin a MERGE of a frame into a table; nothing runs before `.run()`:

            session.merge(frame, "shop.orders", on="t.id = s.id") \\
                .when_matched_update({"amount": "t.amount + s.amount"}) \\
                .when_not_matched_insert() \\
                .run()

        In SQL strings the table is `t` and the frame `s`. `on` may also be the names of columns
        that are equal on both sides. Raises InvalidValueError for a value that is not a frame.
        """
        self._check_open()
        return MergeBuilder(self._connection, frame, named(name), on)

    def stream(self, name: str, **options: object) -> DataFrame:
        """Return a table, its `$audit_log` or its `$binlog` as a streaming DataFrame:

            session.stream("shop.orders$audit_log", **{"scan.mode": "latest"})

        By default it begins with all existing rows, and continues with the changes. `options`
        are Paimon's for streams (`scan.mode`, `scan.snapshot-id`, `scan.timestamp`, `consumer-id`),
        and those of its connector for Spark (`read.stream.maxRowsPerTrigger`): docs/streams.md.

        Raises UnknownNameError for an unknown name or option, UnsupportedStatementError for a table
        that has no changes to read, InvalidValueError for options that contradict each other.
        """
        texts = {key: option_text(value) for key, value in options.items()}
        with self._scope() as scope:
            return stream_frame(scope, self._full(name), texts)

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

        `checkpoint` is a folder of this stream alone; the same call with it resumes where the
        stream stopped, after any failure. `mode` is `append`, `upsert` (rows of an aggregation
        replace those of their keys) or `complete` (each micro-batch replaces the whole table). Rows
        of a table with keys replace those of their keys in any mode, and the column `rowkind` of an
        `$audit_log` marks deleted rows. `trigger` is how often a micro-batch begins
        ("10 seconds"), or "available-now" to stop after the existing rows; by default, at once.

        Raises what `write` raises for columns that don't fit, and InvalidValueError for a frame
        that is not a stream, before anything is written.
        """
        with self._scope() as scope:
            return start_stream(
                scope, frame, self._full(name), checkpoint=os.fspath(checkpoint or ""), mode=mode,
                trigger=trigger,
            )  # fmt: skip

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._connection.state.closed

    @property
    def spark(self) -> SparkSession:
        """The Spark session that jobs run in. PySpark's own calls on it read Paimon's tables and
        refuse to change them (docs/coming-from-pyspark.md). Raises SetupError in a forked child."""
        check_process(self._connection.is_inherited)
        return self._connection.spark

    @property
    def warehouse(self) -> str:
        """The warehouse's path, URI, or name on a REST server."""
        return self._connection.catalog.warehouse

    @property
    def catalog(self) -> Catalog:
        """The catalog of the warehouse."""
        return self._connection.catalog

    @property
    def catalog_options(self) -> Mapping[str, str]:
        """The catalog's options, credentials included: not for display."""
        return self._connection.catalog.options

    @property
    def coordinator(self) -> str:
        """Where commits are made: "embedded", "in-process", or the address given to `connect`."""
        return self._connection.coordinator

    @property
    def store(self) -> StoreReport:
        """The report on the warehouse's store, from when the session was opened."""
        return self._connection.store

    @property
    def known_names(self) -> KnownNames:
        """The name cache: the catalog's names as they were last read, for completion."""
        if self._known_names is None:
            seen, scope = self.catalog.visibility, StatementScope(self._connection)
            self._known_names = KnownNames(self.catalog_options, seen, scope)
        return self._known_names

    @property
    def settings(self) -> Settings:
        """The session's settings."""
        return self._connection.settings

    @property
    def database(self) -> str:
        """The database of unqualified table names."""
        return self._connection.state.database

    def close(self, *, stop_spark: bool = False) -> None:
        """End the session. Spark keeps running for frames that still need it, unless
        `stop_spark`. In a forked child this ends nothing of the parent's."""
        connection = self._connection
        answer_no_longer(self._spark_calls)
        connection.state.closed = True
        if connection.is_inherited:
            connection.committer.close()
            return
        connection.state.close()
        connection.views.close()
        connection.committer.close()
        if stop_spark:
            stop(connection.spark)

    def __enter__(self) -> Self:
        self._connection.state.begin_block()
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection.state.ends_with_block():
            self.close()

    def __repr__(self) -> str:
        new = "new warehouse, " if self.store.is_new else ""
        state = "closed" if self.closed else f"{new}database {self.database}"
        return f"Session({self.warehouse}, {state})"

    def _check_open(self) -> None:
        check_process(self._connection.is_inherited)
        if self.closed:
            raise SetupError(
                "This session is closed.",
                hint="Open one with paimon_magics.connect() or %paimon connect.",
            )

    @contextmanager
    def _scope(self, frames: Mapping[str, object] | None = None) -> Iterator[StatementScope]:
        """Run the body as one statement of this session, which is open."""
        self._check_open()
        with statement_scope(self._connection, frames) as scope:
            yield scope

    def _timed(self, run: Callable[[StatementScope], Outcome]) -> Outcome:
        """Return the outcome of `run`, with its notes and how long it took."""
        started = time.monotonic()
        with self._scope() as scope:
            outcome = noted(run(scope), scope)
        outcome.seconds = time.monotonic() - started
        return outcome

    def _planned(
        self,
        plan: Callable[..., Outcome],
        text: str,
        parameters: Mapping[str, object] | None,
        frames: Mapping[str, object] | None,
    ) -> Outcome:
        """Return what `plan` says of the statements of `text`, which don't run."""
        with self._scope(frames) as scope:
            statements = parsed(scope, text)
            if not statements:
                return Outcome(statement="", kind="nothing", message="There is no statement.")
            return plan(scope, text, statements, dict(parameters or {}))

    def _run_one(
        self,
        statement: Statement,
        parameters: Mapping[str, object] | None,
        frames: Mapping[str, object] | None,
        *,
        include_buffer: bool = False,
        wait: Wait | None = None,
    ) -> Outcome:
        """Run one statement; its outcome says how long it took and what was noted meanwhile."""
        check_wait(wait)
        started = time.monotonic()
        try:
            with between_locks(self._connection.spark), self._scope(frames) as scope:
                outcome = run_statement(
                    scope, statement, dict(parameters or {}), include_buffer=include_buffer,
                    wait=wait,
                )  # fmt: skip
                noted(outcome, scope)
        except Exception as error:
            if (end := end_behind(error, self.spark)) is not None:
                raise end from error
            raise
        finally:
            if self._known_names is not None and not isinstance(statement, Query):
                self._known_names.forget()
        outcome.seconds = time.monotonic() - started
        return outcome

    def _full(self, name: str) -> TableName:
        return self._connection.full_name(named(name))

    def _explained(self, error: Exception) -> PaimonMagicsError | None:
        is_of_jvm = isinstance(error, ConnectionError) or type(error).__module__.startswith("py4j")
        return end_behind(error, self._connection.spark) if is_of_jvm else None
