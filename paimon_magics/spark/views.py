"""The temporary views under which Spark's SQL finds the frames that we make.

A view of a table at one snapshot is kept, because making frame and view anew costs Spark more than
everything that we do for a query; the least recently used ones are dropped. Their names begin with
`paimon_magics_`, and closing drops them all.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Hashable
from contextlib import suppress

from pyspark.sql import DataFrame, SparkSession

__all__ = ["Views", "temporary_views"]

_PREFIX = "paimon_magics_"
_numbers = itertools.count(1)


def temporary_views(spark: SparkSession) -> list[str]:
    """The user's own temporary views, sorted."""
    return sorted(
        table.name
        for table in spark.catalog.listTables()
        if table.isTemporary and not table.name.startswith(_PREFIX)
    )


class _Passing(threading.local):
    """The views that only the statement needs which a thread runs."""

    def __init__(self) -> None:
        self.names: list[str] = []


class Views:
    """The views that one connection has made in its Spark session."""

    def __init__(self, spark: SparkSession, kept_max: int) -> None:
        self._spark = spark
        self._kept_max = kept_max
        self._kept: OrderedDict[Hashable, tuple[str, DataFrame]] = OrderedDict()
        self._passing = _Passing()

    def find(self, key: Hashable) -> tuple[str, DataFrame] | None:
        """The name and frame of the view kept for `key`."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key]

    def keep(self, key: Hashable, frame: DataFrame) -> tuple[str, DataFrame]:
        """Make a view of `frame` and keep it for `key`; return its name and the frame."""
        kept = (self._create(frame), frame)
        self._kept[key] = kept
        while len(self._kept) > max(self._kept_max, 1):
            self.forget(next(iter(self._kept)))
        return kept

    def forget(self, key: Hashable) -> None:
        """Drop the view of `key`; frames that were analysed with it stay valid."""
        name, _ = self._kept.pop(key)
        self._spark.catalog.dropTempView(name)

    def pass_by(self, frame: DataFrame) -> str:
        """A view's name for a frame that only the statement at hand needs."""
        name = self._create(frame)
        self._passing.names.append(name)
        return name

    def drop_passing(self) -> None:
        """Drop the views of `pass_by`; frames that were analysed with them stay valid."""
        if type(self._spark).__module__.startswith("pyspark.sql.connect"):
            return  # analysed when they are run
        for name in self._passing.names:
            self._spark.catalog.dropTempView(name)
        self._passing.names.clear()

    def close(self) -> None:
        """Drop every view."""
        names = [name for name, _ in self._kept.values()] + self._passing.names
        self._kept.clear()
        self._passing.names.clear()
        for name in names:
            with suppress(Exception):  # Spark may have been stopped
                self._spark.catalog.dropTempView(name)

    def _create(self, frame: DataFrame) -> str:
        name = f"{_PREFIX}{next(_numbers)}"
        frame.createOrReplaceTempView(name)
        return name
