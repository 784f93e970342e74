"""Notes what is done with the frames of tables, so that they are planned when they are run.

PySpark's methods are wrapped on its classes, as in `spark.pyspark_calls`: the frames stay PySpark's
own. Frames without a record are not touched, and neither are calls from PySpark's and this
project's packages. `spark.narrowing` plans.
"""

from __future__ import annotations

import functools
import importlib
import sys
import weakref
from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

from paimon_magics.spark.frame_steps import PARTS, Step
from paimon_magics.spark.narrowing import (
    Use,
    known_count,
    narrowed,
    note_made,
    note_step,
    settle,
    shares_source,
    steps_of,
)
from paimon_magics.spark.progress import is_connect

_MARK = "__paimon_magics_notes__"
_UNSEEN = ("paimon_magics", "paimon_widgets", "pyspark")

_STEPS = (
    *("select", "selectExpr", "where", "filter", "withColumn", "withColumns", "drop", "alias"),
    *("orderBy", "sort", "limit", "agg"),
)
"""Methods that are noted, and called once more on a frame that is planned anew."""

_RUNS = (
    *("collect", "toArrow", "toPandas", "toLocalIterator", "tail"),
    *("foreach", "foreachPartition", "explain"),
)
"""Methods that run the frame, or tell how it would run."""

_RUNS_FOR = {"show": 20, "take": None, "head": 1, "first": 1, "isEmpty": 1}
"""Methods that look at some rows only, and at how many if no number is given."""

_SETS = (
    *("union", "unionAll", "unionByName", "intersect", "intersectAll", "exceptAll", "subtract"),
)
_OTHERS = (
    *(
        "join",
        "crossJoin",
        "lateralJoin",
        *_SETS,
        "distinct",
        "dropDuplicates",
        "drop_duplicates",
        "sample",
    ),
    *("repartition", "repartitionByRange", "coalesce", "hint", "sortWithinPartitions", "offset"),
    *("withColumnRenamed", "withColumnsRenamed", "toDF", "fillna", "dropna", "replace"),
    *("describe", "summary", "mapInPandas", "mapInArrow", "unpivot", "melt", "cube", "rollup"),
    *("groupingSets", "observe", "checkpoint", "localCheckpoint", "withMetadata", "transpose"),
    *("createTempView", "createOrReplaceTempView", "createGlobalTempView"),
    *("createOrReplaceGlobalTempView",),
)
"""Methods for which the frame is planned with what has been noted until then."""

_KEPT = ("cache", "persist")
_GROUPS = ("groupBy", "groupby")
_REGROUPED = ("pivot", "apply", "applyInPandas", "applyInArrow")
_OF_GROUPS = ("agg", "count", "sum", "avg", "mean", "min", "max")

# The frame that a grouping was made of, and its columns.
_grouped: weakref.WeakKeyDictionary[object, tuple[DataFrame, tuple[Any, ...]]] = (
    weakref.WeakKeyDictionary()
)


def note_calls(spark: SparkSession) -> None:
    """Wrap the methods of PySpark's classes that `spark` uses, once in a process."""
    package = "pyspark.sql.connect" if is_connect(spark) else "pyspark.sql.classic"
    frames = importlib.import_module(f"{package}.dataframe").DataFrame
    columns = importlib.import_module(f"{package}.column").Column
    group = "pyspark.sql.connect.group" if is_connect(spark) else "pyspark.sql.group"
    groups = importlib.import_module(group).GroupedData
    for names, wrap in (
        (_STEPS, _step),
        (_RUNS, _run("run")),
        (_RUNS_FOR, _runs_for),
        (("count",), _counts),
        (_OTHERS, _other),
        (_KEPT, _keeps),
        (_GROUPS, _groups),
        (("__getitem__",), _item),
    ):
        for name in names:
            _replace(frames, name, wrap)
    for name in _OF_GROUPS:
        _replace(groups, name, _of_groups)
    for name in _REGROUPED:
        _replace(groups, name, _regroups)
    _replace(columns, "__and__", _both)
    _replace_property(frames, "write")


_Method = Callable[..., Any]


def _replace(owner: type, name: str, wrap: Callable[[_Method, str], _Method]) -> None:
    original = getattr(owner, name, None)
    if original is None or hasattr(original, _MARK):
        return
    noting = functools.wraps(original)(wrap(original, name))
    setattr(noting, _MARK, True)
    setattr(owner, name, noting)


def _replace_property(owner: type, name: str) -> None:
    original = getattr(owner, name, None)
    getter = original.fget if isinstance(original, property) else None
    if getter is None or hasattr(getter, _MARK):
        return
    noting = functools.wraps(getter)(_run("run")(getter, name))
    setattr(noting, _MARK, True)
    setattr(owner, name, property(noting))


def _is_seen() -> bool:
    """Whether the call of the wrapped method, two stack frames up, comes from the user."""
    module = sys._getframe(2).f_globals.get("__name__", "")
    return module.partition(".")[0] not in _UNSEEN


def _step(original: _Method, name: str) -> _Method:
    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_seen():
            return original(self, *args, **kwargs)
        return _noted(original, self, Step(name, args, kwargs))

    return noting


def _noted(call: _Method, frame: Any, step: Step) -> Any:
    """Call a method whose step is noted."""
    if steps_of(frame) is None:
        frame = narrowed(frame, "made of")
    made = call(frame, *step.args, **step.kwargs)
    note_step(frame, made, step)
    return made


def _run(use: Use) -> Callable[[_Method, str], _Method]:
    def wrap(original: _Method, name: str) -> _Method:
        del name

        def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
            return original(narrowed(self, use) if _is_seen() else self, *args, **kwargs)

        return noting

    return wrap


def _runs_for(original: _Method, name: str) -> _Method:
    usual = _RUNS_FOR[name]

    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_seen():
            return original(self, *args, **kwargs)
        given = args[0] if args else kwargs.get("n", kwargs.get("num"))
        given = usual if given is None else given
        rows = None
        if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
            # `show` looks whether there is one more.
            rows = given + 1 if name == "show" else given
        return original(narrowed(self, "run", rows), *args, **kwargs)

    return noting


def _counts(original: _Method, name: str) -> _Method:
    del name

    def noting(self: Any) -> Any:
        if not _is_seen():
            return original(self)
        known = known_count(self)
        return original(narrowed(self, "counted")) if known is None else known

    return noting


def _other(original: _Method, name: str) -> _Method:
    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_seen():
            return original(self, *args, **kwargs)
        others = [one for one in (*args, *kwargs.values()) if isinstance(one, DataFrame)]
        frames = [self, *others]
        # Where one table is read twice, Spark tells its columns apart by the frames that they come
        # from, which a frame that is planned anew is not.
        apart = name in _SETS or not any(
            shares_source(frame, other) for i, frame in enumerate(frames) for other in frames[:i]
        )

        def planned(value: Any) -> Any:
            return narrowed(value, "made of") if apart and isinstance(value, DataFrame) else value

        given = [planned(one) for one in args]
        named = {key: planned(one) for key, one in kwargs.items()}
        made = original(planned(self), *given, **named)
        if isinstance(made, DataFrame):
            note_made(made, *frames)
        return made

    return noting


def _keeps(original: _Method, name: str) -> _Method:
    """Keeping a frame's rows keeps those of the frame as it is planned now; it is not planned
    again."""
    del name

    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_seen():
            return original(self, *args, **kwargs)
        planned = narrowed(self, "made of")
        made = original(planned, *args, **kwargs)
        settle(self, planned)
        return made

    return noting


def _groups(original: _Method, name: str) -> _Method:
    del name

    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        frame = narrowed(self, "made of") if steps_of(self) is None else self
        made = original(frame, *args, **kwargs)
        if _is_seen() and steps_of(frame) is not None and not kwargs:
            _grouped[made] = (frame, args)
        return made

    return noting


def _of_groups(original: _Method, name: str) -> _Method:
    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(self, *args, **kwargs)
        found = _grouped.get(self) if _is_seen() else None
        if found is not None:
            note_step(found[0], made, Step(name, args, kwargs, found[1]))
        return made

    return noting


def _regroups(original: _Method, name: str) -> _Method:
    del name

    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = _grouped.get(self) if _is_seen() else None
        if found is None:
            return original(self, *args, **kwargs)
        frame, keys = found
        made = original(narrowed(frame, "made of").groupBy(*keys), *args, **kwargs)
        if isinstance(made, DataFrame):
            note_made(made, frame)
        return made

    return noting


def _item(original: _Method, name: str) -> _Method:
    """`frame[condition]` and `frame[["a", "b"]]` are filters and selections."""
    del name

    def noting(self: Any, item: Any) -> Any:
        if not _is_seen() or not isinstance(item, Column | list | tuple):
            return original(self, item)
        step = Step("select", tuple(item), {}) if isinstance(item, list | tuple) else None
        step = step or Step("filter", (item,), {})
        return _noted(lambda frame, *_, **__: original(frame, item), self, step)

    return noting


def _both(original: _Method, name: str) -> _Method:
    """Notes the parts of a condition: PySpark has no way to ask for them later."""
    del name

    def noting(self: Any, other: Any) -> Any:
        made = original(self, other)
        if isinstance(other, Column):
            made.__dict__[PARTS] = (self, other)
        return made

    return noting
