"""Streaming frames, and the queries that write them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from paimon_magics.errors import SetupError
from paimon_magics.spark.data_source import STREAM_FORMAT

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

AVAILABLE_NOW = "available-now"
"""The trigger of a query that ends with what there is."""


def streaming_frame(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The streaming frame of a table that the data source's options name."""
    return spark.readStream.format(STREAM_FORMAT).options(**options).load()


def start_query(
    frame: DataFrame,
    sink: Callable[[DataFrame, int], None],
    *,
    checkpoint: str,
    mode: str,
    trigger: str | None,
) -> StreamingQuery:
    """Start a query that hands its micro-batches to `sink`. `trigger` is an interval, or
    `AVAILABLE_NOW`."""
    writer = frame.writeStream.foreachBatch(sink).outputMode(mode)
    writer = writer.option("checkpointLocation", checkpoint)
    if trigger == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    elif trigger is not None:
        writer = writer.trigger(processingTime=trigger)
    return writer.start()


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """The id of a query, which Spark has stored in its checkpoint. Raises SetupError if it can't be
    read."""
    path = f"{checkpoint.rstrip('/')}/metadata"
    try:
        lines = spark.read.option("wholetext", "true").text(path).collect()
        return str(json.loads(lines[0][0])["id"])
    except Exception as error:
        raise SetupError(
            f"The id of the streaming query can't be read from {path}: {error}",
            hint="Set the checkpoint to a path that Spark can read and that no other query uses.",
        ) from error


def last_report(query: StreamingQuery) -> dict[str, Any]:
    """Spark's last report on a query's progress; empty before the first."""
    progress: Any = query.lastProgress
    if progress is None or isinstance(progress, dict):
        return progress or {}
    report: dict[str, Any] = json.loads(progress.json)
    return report
