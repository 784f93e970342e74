"""Spark's format `paimon` without a session: `paimon_magics.register(spark)`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from paimon_magics.boundary import short_errors
from paimon_magics.session.opening import connection_on
from paimon_magics.session.place_words import PlaceWords
from paimon_magics.session.pyspark_answers import FormatAnswers
from paimon_magics.session.streaming import register_source
from paimon_magics.settings import Settings
from paimon_magics.spark.pyspark_calls import answer_by

if TYPE_CHECKING:
    from paimon_magics.spark.handles import SparkSession


@short_errors
def register(
    spark: SparkSession,
    warehouse: str | os.PathLike[str] | None = None,
    *,
    catalog: Mapping[str, str] | None = None,
    coordinator: str | None = None,
    token: str | None = None,
    **settings: object,
) -> None:
    """Let a Spark session read and write Paimon's tables in the format `paimon`, without a session
    of this project's:

        paimon_magics.register(spark, "lake")
        spark.read.format("paimon").load("shop.orders")

    The arguments are those of `connect`. Names without a format stay Spark's own. While a session
    is open, it answers, on its own warehouse. A second call replaces the first.

    Raises SetupError when the warehouse can't be used.
    """
    words = PlaceWords(warehouse, catalog, coordinator, token)
    connection = connection_on(words, Settings().with_changes(settings), spark)
    register_source(connection)
    answer_by(FormatAnswers(connection), otherwise=True)
