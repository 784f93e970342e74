"""Runs the user's own SQL in Spark, with views of Paimon's tables in place of the table names."""

from __future__ import annotations

import datetime
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Literal

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from paimon_magics.columnar.time_zones import is_ambiguous, rules_of
from paimon_magics.errors import JobError, UnknownNameError
from paimon_magics.spark.failures import translate
from paimon_magics.spark.interrupts import at_interrupt
from paimon_magics.spark.job_watching import WorkKnown, watched
from paimon_magics.spark.jvm import has_temporary_view, is_connect
from paimon_magics.spark.session_settings import session_zone
from paimon_magics.spark.stopping import stop_of_thread
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.queries.query_text import merging_places, parameter_ranges
from paimon_magics.statements.queries.rewriting import (
    Replacement,
    RewrittenText,
    cuts_of,
    replacements_for,
    rewrite,
)
from paimon_magics.statements.statement import QueryText, TableReference, TextRange

_CANCEL_SECONDS = 0.2
_TRIES, _TRY_SECONDS = 10, 0.05

# The loggers and messages by which py4j reports an interrupt, in
# py4j.java_gateway.GatewayClient.send_command and
# py4j.clientserver.ClientServerConnection.shutdown_socket.
_PY4J_LOGGERS = (logging.root, logging.getLogger("py4j.clientserver"))
_PY4J_ON_INTERRUPT = (
    "KeyboardInterrupt while sending command",
    "Exception occurred while shutting down connection",
    "Exception while sending command.",
)

_OnTag = Callable[[str], object]
_NUMBER = "__number"


def query_frame(
    spark: SparkSession,
    statement: str,
    query: QueryText,
    views: Sequence[tuple[TableReference, str]],
    parameters: Mapping[str, object],
    more: Sequence[Replacement] = (),
) -> DataFrame:
    """The frame of `query`, a part of the text `statement`, with `parameters` bound.

    `views` are pairs of a reference to a table and the view that it reads. `more` is replaced as
    well. Raises our errors, with positions in `statement`.
    """
    replacements = [*cuts_of(query), *more]
    replacements += binding_replacements(spark, statement, query, parameters)
    for reference, view in views:
        replacements += replacements_for(reference, view)
    return frame_of_text(
        spark, statement, rewrite(statement, query.range, replacements), parameters
    )


def binding_replacements(
    spark: SparkSession, statement: str, query: QueryText, parameters: Mapping[str, object]
) -> list[Replacement]:
    """The replacements in the query's text with which Spark binds `parameters` to their values."""
    if not parameters:
        return []
    replacements: list[Replacement] = [(TextRange(at, at), " ") for at in _blanks(statement, query)]
    twice = _that_come_twice(spark, parameters)
    for place, name in parameter_ranges(statement) if twice else ():
        if name in twice and _is_kept(place.start, query):
            replacements.append((place, twice[name]))
    return replacements


def frame_of_text(
    spark: SparkSession, statement: str, text: RewrittenText, parameters: Mapping[str, object]
) -> DataFrame:
    """The frame of a query made of pieces of `statement`, with `binding_replacements` made.

    Raises our errors, with positions in `statement`.
    """
    twice = _that_come_twice(spark, parameters)
    arguments = {name: value for name, value in parameters.items() if name not in twice}
    try:
        return spark.sql(text.text, args=arguments or None)
    except Exception as error:
        raise translate(
            error,
            statement=statement,
            original_position=text.original_position,
            spark_text=text.text,
        ) from error


def _that_come_twice(spark: SparkSession, parameters: Mapping[str, object]) -> dict[str, str]:
    """Literals, by parameter, for instants whose wall-clock time occurs twice in the session's
    zone.

    Spark replaces a marker with the wall-clock time without its offset, which stands for the first
    of the two instants.
    """
    moments = {
        name: value
        for name, value in parameters.items()
        if isinstance(value, datetime.datetime) and value.tzinfo is not None
    }
    if not moments:
        return {}
    rules = rules_of(session_zone(spark))
    return {
        name: f"TIMESTAMP'{value.isoformat(sep=' ')}'"
        for name, value in moments.items()
        if is_ambiguous(value.astimezone(rules))
    }


def _blanks(statement: str, query: QueryText) -> list[int]:
    return [place for place in merging_places(statement) if _is_kept(place, query)]


def _is_kept(place: int, query: QueryText) -> bool:
    """Whether an offset of the statement is in the part of the query that Spark gets."""
    whole = query.range
    return whole.start <= place < whole.end and not any(
        cut.start <= place < cut.end for cut in query.cuts
    )


def is_temporary_view(spark: SparkSession, name: str) -> bool:
    """Whether `name`, of one part, is a temporary view of this session."""
    if is_connect(spark):
        return kind_in_spark(spark, [name]) == "view"
    # Only the views are checked. `tableExists` also queries the catalogs, and takes some
    # milliseconds for a name that no catalog has.
    return has_temporary_view(spark, name)


def known_to_spark(spark: SparkSession, parts: Sequence[str]) -> bool:
    """Whether Spark itself has a table or view of that name."""
    return kind_in_spark(spark, parts) is not None


def kind_in_spark(spark: SparkSession, parts: Sequence[str]) -> Literal["table", "view"] | None:
    """The kind of Spark's own object with a name: "view" for a temporary view, "table" for any
    other object, None if there is none."""
    name = ".".join(quoted(part) for part in parts)
    try:
        # tableExists is the cheap question; for Paimon's tables its answer is no.
        if not spark.catalog.tableExists(name):
            return None
    except Exception:
        # A name that no catalog of Spark's can have, such as one in a missing catalog, whose
        # plug-in may raise anything. A Spark that has ended shows in the next call.
        return None
    with suppress(AnalysisException):
        return "view" if spark.catalog.getTable(name).isTemporary else "table"
    return "table"


def function_exists(spark: SparkSession, parts: Sequence[str]) -> bool:
    """Whether Spark itself has a function of that name."""
    try:
        return bool(spark.catalog.functionExists(".".join(quoted(part) for part in parts)))
    except Exception:
        return False  # a name that no catalog of Spark's can have


def has_own_catalog(spark: SparkSession, name: str | None) -> bool:
    """Whether Spark has a catalog plug-in (in Java, such as Paimon's connector) as the catalog
    `name`, or as the current catalog for None. The plug-in then owns the names in that catalog."""
    try:
        catalog = name or spark.catalog.currentCatalog()
        return spark.conf.get(f"spark.sql.catalog.{catalog}", None) is not None
    except Exception:
        # The current catalog can't be made, or Spark has ended: the method that is answered
        # reports that.
        return False


def rows_where(spark: SparkSession, rows: pa.Table, condition: str) -> list[int]:
    """The numbers of the rows that meet a condition on their columns. Raises UnknownNameError for a
    condition that Spark can't read or that names other columns, and errors of ours for one that
    fails for a value."""
    numbered = rows.append_column(_NUMBER, pa.array(range(rows.num_rows), pa.int64()))
    try:
        frame = spark.createDataFrame(numbered).where(F.expr(condition)).select(_NUMBER)
        return [int(row[0]) for row in frame.collect()]
    except (AnalysisException, ParseException) as error:
        columns = ", ".join(f"`{name}`" for name in rows.column_names)
        raise UnknownNameError(
            f"The condition {condition!r} can't be used: {translate(error).message}",
            hint=f"It may name the columns {columns} only.",
        ) from error
    except PySparkException as error:
        raise translate(error) from error


@contextmanager
def cancellable(
    spark: SparkSession, work: WorkKnown | None = None, *, begun: str | None = None
) -> Iterator[str]:
    """End the Spark jobs that start in the body together with it: any exception cancels the running
    jobs, and an interrupt, or the `Stop` of this thread, cancels them at once. The thread's
    listener, if any, gets their progress, with the amount of work that `work` returns.

    Yields the tag of the jobs. With `begun`, the tag of a body that has ended, the jobs are those
    still running since then, and their progress is not reported.
    """
    tag = begun or f"paimon-magics-{uuid.uuid4()}"
    add, cancel, remove = _tags(spark)
    if begun is None:
        add(tag)
    stopped = threading.Event()
    try:
        with (
            _cancelled_when_stopped(partial(cancel, tag), stopped, is_connect(spark)),
            watched(spark, tag, work) if begun is None else nullcontext(),
        ):
            yield tag
        if stopped.is_set():  # within grpc, which went on
            raise KeyboardInterrupt
    except BaseException as error:
        _try(partial(cancel, tag), _tries(spark, stopped))
        if not isinstance(error, Exception):
            raise
        if stopped.is_set():  # PySpark, fetching rows, raises the job's error instead
            raise KeyboardInterrupt from error
        if "cancelled" in str(error) and "job" in str(error).lower():
            raise JobError("The Spark job was cancelled.", hint="Nothing was committed.") from error
        raise
    finally:
        if begun is None:
            _try(partial(remove, tag), _tries(spark, stopped))
        if stopped.is_set():
            for logger in _PY4J_LOGGERS:
                logger.removeFilter(_is_no_interrupt)


def cancel_jobs(spark: SparkSession, tag: str) -> None:
    """Cancel the jobs of a body of `cancellable` that still run, if Spark has not been stopped."""
    _try(partial(_tags(spark)[1], tag), 1)


def _tries(spark: SparkSession, stopped: threading.Event) -> int:
    """The number of tries of a call to the JVM. After an interrupt py4j makes the JVM close every
    connection of this process, even those opened a moment later (`GatewayServer.shutdownSocket`).
    """
    return _TRIES if stopped.is_set() and not is_connect(spark) else 1


def _try(tell: Callable[[], object], tries: int) -> None:
    """Call `tell` until it succeeds, `tries` times at most; Spark may have been stopped."""
    for count in range(tries):
        if count:
            time.sleep(_TRY_SECONDS)
        with suppress(Exception):
            tell()
            return


@contextmanager
def _cancelled_when_stopped(
    cancel: Callable[[], object], stopped: threading.Event, connect: bool
) -> Iterator[None]:
    """On an interrupt or the thread's `Stop` in the body, set `stopped` and call `cancel`
    repeatedly until the body ends.

    The exception alone is not enough: while fetching rows, PySpark waits for the end of the job
    before it raises the exception. One call is not enough: the job may begin just after it. Another
    thread makes the calls, since the interrupted thread may be in the middle of a call to the JVM.
    """
    over = threading.Event()

    def cancel_on() -> None:
        while not over.is_set():
            with suppress(Exception):
                cancel()
            over.wait(_CANCEL_SECONDS)

    def begin() -> None:
        stopped.set()
        for logger in _PY4J_LOGGERS:
            logger.addFilter(_is_no_interrupt)
        threading.Thread(target=cancel_on, daemon=True).start()

    stop = stop_of_thread()
    try:
        with (
            at_interrupt(begin, stopped, connect),
            nullcontext() if stop is None else stop.heard_by(begin),
        ):
            yield
    finally:
        over.set()


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """A filter of log records that drops what py4j logs, with a trace, about an interrupt: that
    there was one, that the JVM had left the connection before py4j could close it, and that the
    connection opened in its place was closed with the others."""
    message = record.getMessage()
    return not any(text in message for text in _PY4J_ON_INTERRUPT)


def _tags(spark: SparkSession) -> tuple[_OnTag, _OnTag, _OnTag]:
    """Functions that add a tag to the jobs of this thread, cancel jobs by it, and remove it.

    For a session in this process they are those of its context: the session's own `interruptTag`
    knows only the tags of the calling JVM thread, and an interrupt loses Python's connection to
    that thread.
    """
    if is_connect(spark):
        return spark.addTag, spark.interruptTag, spark.removeTag
    context = spark.sparkContext
    return context.addJobTag, context.cancelJobsWithTag, context.removeJobTag
