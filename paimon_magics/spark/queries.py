"""Running the user's own text in Spark, with Paimon's tables in place of their names."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from paimon_magics.errors import JobError
from paimon_magics.spark.failures import translate
from paimon_magics.statements.names import quoted
from paimon_magics.statements.rewriting import cuts_of, replacements_for, rewrite
from paimon_magics.statements.statement import QueryText, TableReference

_OnTag = Callable[[str], object]

__all__ = ["cancellable", "is_temporary_view", "known_to_spark", "query_frame"]


def query_frame(
    spark: SparkSession,
    statement: str,
    query: QueryText,
    views: Sequence[tuple[TableReference, str]],
    parameters: Mapping[str, object],
) -> DataFrame:
    """The frame of `query` in the text `statement`; each reference of `views` reads that view.

    Raises errors of ours with positions in `statement`.
    """
    replacements = list(cuts_of(query))
    for reference, view in views:
        replacements += replacements_for(reference, view)
    text = rewrite(statement, query.range, replacements)
    try:
        return spark.sql(text.text, args=dict(parameters) or None)
    except Exception as error:
        raise translate(
            error,
            statement=statement,
            original_position=text.original_position,
            spark_text=text.text,
        ) from error


def is_temporary_view(spark: SparkSession, name: str) -> bool:
    """Whether `name`, a single part, is a temporary view of this session."""
    # tableExists is the cheap question; for Paimon's tables its answer is no.
    try:
        return bool(
            spark.catalog.tableExists(quoted(name))
            and spark.catalog.getTable(quoted(name)).isTemporary
        )
    except AnalysisException:
        return False


def known_to_spark(spark: SparkSession, parts: Sequence[str]) -> bool:
    """Whether Spark itself has a table or view of that name."""
    try:
        return bool(spark.catalog.tableExists(".".join(quoted(part) for part in parts)))
    except Exception:
        # Names that no catalog of Spark's can have, such as those of a missing catalog.
        return False


@contextmanager
def cancellable(spark: SparkSession) -> Iterator[None]:
    """Spark jobs that start in the body end with it: any exception cancels what still runs."""
    tag = f"paimon-magics-{uuid.uuid4()}"
    add, cancel, remove = _tags(spark)
    add(tag)
    try:
        yield
    except BaseException as error:
        with suppress(Exception):
            cancel(tag)
        if (
            isinstance(error, Exception)
            and "cancelled" in str(error)
            and "job" in str(error).lower()
        ):
            raise JobError("The Spark job was cancelled.", hint="Nothing was committed.") from error
        raise
    finally:
        with suppress(Exception):  # Spark may have been stopped
            remove(tag)


def _tags(spark: SparkSession) -> tuple[_OnTag, _OnTag, _OnTag]:
    """How jobs of this thread get a tag, are cancelled by it, and get it no longer.

    A session in this process is asked through its context: its own `interruptTag` knows only the
    tags of the JVM thread that asks, and an interrupt costs Python the connection to that thread.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return spark.addTag, spark.interruptTag, spark.removeTag
    context = spark.sparkContext
    return context.addJobTag, context.cancelJobsWithTag, context.removeJobTag
