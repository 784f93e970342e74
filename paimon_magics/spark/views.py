"""The temporary views by which Spark's SQL refers to the frames that we make, and the temporary
functions by which it calls those of the catalog.

A view of a table at one snapshot is cached, because recreating frame and view costs Spark more than
all our work for a query. The least recently used views leave the cache. Their names begin with
`paimon_magics_`, and `close` drops them all.

Spark Connect analyzes a frame each time that it runs, so there a view must exist for as long as a
frame reads it. A view is dropped once neither the cache nor such a frame refers to it.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable
from contextlib import suppress

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from paimon_magics.spark.jvm import is_connect
from paimon_magics.statements.clauses.names import quoted

FUNCTION_SETTINGS = ("spark.sql.ansi.enabled", "spark.sql.session.timeZone")
"""Settings of Spark that a function keeps from where it was made."""

_PREFIX = "paimon_magics_"
_numbers = itertools.count(1)


def temporary_views(spark: SparkSession) -> list[str]:
    """The user's own temporary views, sorted."""
    return sorted(
        table.name
        for table in spark.catalog.listTables()
        if table.isTemporary and not table.name.startswith(_PREFIX)
    )


def user_functions(spark: SparkSession) -> list[str]:
    """The user's own functions as Spark names them, sorted: those of the catalog, which have a dot
    in their only part, are left out."""
    names = (row[0] for row in spark.sql("SHOW USER FUNCTIONS").collect())
    qualifier = f"{spark.catalog.currentCatalog()}."
    return sorted(name for name in names if "." not in name or name.startswith(qualifier))


class _View:
    """A view that Spark has. It is dropped some time after the last reference to this object."""

    def __init__(self, name: str, frame: DataFrame) -> None:
        self.name = name
        self.frame = frame


class _Current(threading.local):
    """The views that the current statement of a thread reads."""

    def __init__(self) -> None:
        self.views: list[_View] = []


class Views:
    """The views that one connection has made in its Spark session."""

    def __init__(self, spark: SparkSession, kept_max: int) -> None:
        self._spark = spark
        self._kept_max = kept_max
        self._kept: OrderedDict[Hashable, _View] = OrderedDict()
        self._current = _Current()
        self._functions: dict[tuple[str, str, tuple[str | None, ...]], str] = {}
        self._lock = threading.Lock()  # of `_kept` and `_functions`
        self._there: weakref.WeakValueDictionary[str, _View] = weakref.WeakValueDictionary()
        # Filled while Python collects garbage, when no request may be sent.
        self._unneeded: deque[str] = deque()

    def find(self, key: Hashable) -> tuple[str, DataFrame] | None:
        """The name and frame of the view kept for `key`; None if there is none. The current
        statement may use the view even when another thread pushes it out of the cache."""
        with self._lock:
            view = self._kept.get(key)
            if view is None:
                return None
            self._kept.move_to_end(key)
        self._current.views.append(view)
        return view.name, view.frame

    def keep(self, key: Hashable, frame: DataFrame) -> tuple[str, DataFrame]:
        """Make a view of `frame` and keep it for `key`; return its name and the frame. The current
        statement may use the view even when another thread pushes it out of the cache."""
        view = self._create(frame)
        self._current.views.append(view)
        with self._lock:
            self._kept[key] = view
            while len(self._kept) > max(self._kept_max, 1):
                self._kept.popitem(last=False)
        self._drop_unneeded()
        return view.name, frame

    def pass_by(self, frame: DataFrame) -> str:
        """Make a view of a frame that only the current statement needs, and return its name."""
        # Dropping a view uncaches its plan. So the plan must differ from that of the user's
        # `frame.cache()`, which Spark does not distinguish from `select("*")`.
        view = self._create(frame.where(F.lit(True)))
        self._current.views.append(view)
        return view.name

    def read_by(self, frame: DataFrame, names: Iterable[str]) -> None:
        """Keep the views `names` for as long as `frame`, or a frame made of it, exists.

        Without Spark Connect a frame is already analyzed, and no longer needs its views.
        """
        if is_connect(self._spark):
            # A frame made of this one refers to this one's plan, and not to this frame.
            plan = frame._plan
            views = tuple(self._there[name] for name in names if name in self._there)
            weakref.finalize(plan, _forget, views)

    def drop_passing(self) -> None:
        """End the thread's statement: drop its views that are not kept, and that no frame needs."""
        self._current.views.clear()
        self._drop_unneeded()

    @functools.cached_property
    def built_in_functions(self) -> tuple[str, ...]:
        """The names of the functions that Spark has built in, in lower case and sorted."""
        return tuple(row[0] for row in self._spark.sql("SHOW SYSTEM FUNCTIONS").collect())

    def is_own_function(self, name: str) -> bool:
        """Whether `name`, of one part, is a function that Spark has built in, or a temporary one.
        To ask Spark about a function takes milliseconds."""
        if name.lower() in self.built_in_functions:
            return True
        try:
            return self._spark.catalog.getFunction(quoted(name)).isTemporary
        except AnalysisException:
            return False

    def function(self, name: str, definition: str) -> str:
        """The name of a temporary function with that definition, which is what CREATE FUNCTION has
        behind the name. It stays until `close`: Spark Connect looks it up each time that a frame
        runs. Another definition of a name gets another function. Raises errors of Spark's.

        Source: Spark keeps these settings with a function (`UserDefinedFunction`).
        """
        settings = tuple(self._spark.conf.get(key) for key in FUNCTION_SETTINGS)
        with self._lock:
            known = self._functions.get((name, definition, settings))
            number = 1
            while known is None:
                free = name if number == 1 else f"{name} ({number})"
                try:
                    self._spark.sql(f"CREATE TEMPORARY FUNCTION {quoted(free)}{definition}")
                    known = self._functions[(name, definition, settings)] = free
                except AnalysisException as error:
                    if not (error.getCondition() or "").startswith("ROUTINE_ALREADY_EXISTS"):
                        raise
                    number += 1
            return known

    def close(self) -> None:
        """Drop every view and function."""
        names = [*self._there, *self._unneeded]
        self._kept.clear()
        self._current.views.clear()
        self._unneeded.clear()
        with suppress(Exception):  # Spark may have been stopped: then all of them are gone
            for name in names:
                self._spark.catalog.dropTempView(name)
            for name in self._functions.values():
                self._spark.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {quoted(name)}")

    def _create(self, frame: DataFrame) -> _View:
        name = f"{_PREFIX}{next(_numbers)}"
        frame.createOrReplaceTempView(name)
        view = self._there[name] = _View(name, frame)
        weakref.finalize(view, self._unneeded.append, name)
        return view

    def _drop_unneeded(self) -> None:
        while self._unneeded:
            with suppress(IndexError):  # another thread was quicker
                self._spark.catalog.dropTempView(self._unneeded.popleft())


def _forget(views: tuple[_View, ...]) -> None:
    """Does nothing: as an argument of a finalizer, `views` stay alive until it runs."""
