"""Records the operations on frames of tables, so that the frames are planned when they run.

PySpark's methods are patched (module `patches`): the frames stay PySpark's own. Frames without a
record are not touched. Calls from PySpark's and this project's packages go to PySpark unchanged.
`spark.narrowing` plans.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

from paimon_magics.spark.frame_steps import PARTS, Step
from paimon_magics.spark.jvm import is_connect
from paimon_magics.spark.narrowing import (
    hide,
    known_count,
    narrowed,
    note_origins,
    note_step,
    settle,
    shares_source,
    steps_of,
    with_hidden,
)
from paimon_magics.spark.patches import FRAME_PATCHES, OWN_PACKAGES, Call, Patch
from paimon_magics.statements.clauses.names import quoted

_UNSEEN = (*OWN_PACKAGES, "pyspark")

_STEPS = (
    *("select", "selectExpr", "where", "filter", "withColumn", "withColumns", "drop", "alias"),
    *("orderBy", "sort", "limit", "agg"),
)
"""Methods that are recorded, and called again on a replanned frame."""

_RUNS = (
    *("collect", "toArrow", "toPandas", "toLocalIterator", "tail"),
    *("foreach", "foreachPartition", "explain"),
)
"""Methods that run the frame, or tell how it would run."""

_RUNS_FOR = {"show": 20, "take": None, "head": 1, "first": 1, "isEmpty": 1}
"""Methods that look at some rows only, and at how many if no number is given."""

_SETS = ("union", "unionAll", "unionByName", "intersect", "intersectAll", "exceptAll", "subtract")
_OTHERS = (
    *_SETS,
    *("join", "crossJoin", "lateralJoin", "distinct", "dropDuplicates", "drop_duplicates"),
    "sample",
    *("repartition", "repartitionByRange", "coalesce", "hint", "sortWithinPartitions", "offset"),
    *("withColumnRenamed", "withColumnsRenamed", "toDF", "fillna", "dropna", "replace"),
    *("describe", "summary", "mapInPandas", "mapInArrow", "unpivot", "melt", "cube", "rollup"),
    *("groupingSets", "observe", "checkpoint", "localCheckpoint", "withMetadata", "transpose"),
    *("createTempView", "createOrReplaceTempView", "createGlobalTempView"),
    "createOrReplaceGlobalTempView",
)
"""Methods for which the frame is planned with what has been noted until then."""


_GROUPED = "_paimon_magics_grouped"
"""Attribute of a grouping: the frame that it was made of, and its columns."""


def note_calls(spark: SparkSession) -> None:
    """Patch the classes of frames, columns and groupings that `spark` uses."""
    connect = is_connect(spark)
    package = "pyspark.sql.connect" if connect else "pyspark.sql.classic"
    group = "pyspark.sql.connect.group" if connect else "pyspark.sql.group"
    frames = importlib.import_module(f"{package}.dataframe").DataFrame
    FRAME_PATCHES.apply(frames, _FRAME_PATCHES, unseen=_UNSEEN)
    groups = importlib.import_module(group).GroupedData
    FRAME_PATCHES.apply(groups, _GROUP_PATCHES, unseen=_UNSEEN)
    columns = importlib.import_module(f"{package}.column").Column
    FRAME_PATCHES.apply(columns, {"__and__": _both}, unseen=())


def _step(call: Call) -> Any:
    return _noted(call, Step(call.method, call.args, call.kwargs))


def _noted(call: Call, step: Step) -> Any:
    """The result of a call, whose step is noted."""
    shown = with_hidden(call.target, step)
    if shown is not None:
        return _with_hidden(call, step, *shown)
    frame = call.target
    if steps_of(frame) is None:
        frame = narrowed(frame, "input")
    result = call.on(frame)
    note_step(frame, result, step)
    return result


def _with_hidden(call: Call, step: Step, frame: DataFrame, hidden: tuple[str, ...]) -> Any:
    """The result of a call on `frame`, which also has the columns `hidden`. As in Spark `*` does
    not show them, nor does the result if it keeps the columns that were there."""
    if step.method in ("select", "selectExpr"):
        visible = [quoted(name) for name in frame.columns if name not in hidden]
        args: list[Any] = []
        for value in step.args:
            for part in value if isinstance(value, list | tuple) else (value,):
                args += visible if isinstance(part, str) and part.strip() == "*" else [part]
        step = Step(step.method, tuple(args), step.kwargs)
    result = call.original(frame, *step.args, **step.kwargs)
    note_step(frame, result, step)
    keeps = step.method in ("where", "filter", "orderBy", "sort", "withColumn", "withColumns")
    return hide(result, hidden) if keeps else result


def _item(call: Call) -> Any:
    """`frame[condition]` and `frame[["a", "b"]]` are filters and selections."""
    (item,) = call.args
    if isinstance(item, list | tuple):
        return _noted(call, Step("select", tuple(item), {}))
    return _noted(call, Step("filter", (item,), {})) if isinstance(item, Column) else call.proceed()


def _run(call: Call) -> Any:
    return call.on(narrowed(call.target, "run"))


def _run_for(call: Call) -> Any:
    number = call.args[0] if call.args else call.kwargs.get("n", call.kwargs.get("num"))
    number = _RUNS_FOR[call.method] if number is None else number
    rows = None
    if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
        # `show` looks whether there is one more.
        rows = number + 1 if call.method == "show" else number
    return call.on(narrowed(call.target, "run", rows))


def _count(call: Call) -> Any:
    count = known_count(call.target)
    return call.on(narrowed(call.target, "counted")) if count is None else count


def _other(call: Call) -> Any:
    arguments = (*call.args, *call.kwargs.values())
    frames = [call.target, *(value for value in arguments if isinstance(value, DataFrame))]
    # If one table is read twice, Spark distinguishes its columns by their source frames, and a
    # replanned frame is a different frame.
    apart = call.method in _SETS or not any(
        shares_source(frame, other) for i, frame in enumerate(frames) for other in frames[:i]
    )

    def planned(value: Any) -> Any:
        return narrowed(value, "input") if apart and isinstance(value, DataFrame) else value

    kwargs = {key: planned(value) for key, value in call.kwargs.items()}
    result = call.original(planned(call.target), *map(planned, call.args), **kwargs)
    if isinstance(result, DataFrame):
        note_origins(result, *frames)
    return result


def _persist(call: Call) -> Any:
    """Persisting a frame keeps the rows of the frame as planned now. It is not planned again."""
    planned = narrowed(call.target, "input")
    result = call.on(planned)
    settle(call.target, planned)
    return result


def _group(call: Call) -> Any:
    frame = call.target
    shown = with_hidden(frame, Step("groupBy", call.args, call.kwargs))
    if shown is not None:
        frame, _ = shown
    elif steps_of(frame) is None:
        frame = narrowed(frame, "input")
    result = call.on(frame)
    if steps_of(frame) is not None and not call.kwargs:
        vars(result)[_GROUPED] = (frame, call.args)
    return result


def _aggregate(call: Call) -> Any:
    result = call.proceed()
    frame, columns = vars(call.target).get(_GROUPED, (None, ()))
    if frame is not None:
        note_step(frame, result, Step(call.method, call.args, call.kwargs, columns))
    return result


def _regroup(call: Call) -> Any:
    frame, columns = vars(call.target).get(_GROUPED, (None, ()))
    if frame is None:
        return call.proceed()
    result = call.on(narrowed(frame, "input").groupBy(*columns))
    if isinstance(result, DataFrame):
        note_origins(result, frame)
    return result


def _both(call: Call) -> Any:
    """Notes the parts of a condition: PySpark has no way to ask for them later."""
    result, (other,) = call.proceed(), call.args
    if isinstance(other, Column):
        vars(result)[PARTS] = (call.target, other)
    return result


_FRAME_PATCHES: Mapping[str, Patch] = {
    **dict.fromkeys(_STEPS, _step),
    **dict.fromkeys((*_RUNS, "write"), _run),
    **dict.fromkeys(_RUNS_FOR, _run_for),
    "count": _count,
    **dict.fromkeys(_OTHERS, _other),
    **dict.fromkeys(("cache", "persist"), _persist),
    **dict.fromkeys(("groupBy", "groupby"), _group),
    "__getitem__": _item,
}
_GROUP_PATCHES: Mapping[str, Patch] = {
    **dict.fromkeys(("agg", "count", "sum", "avg", "mean", "min", "max"), _aggregate),
    **dict.fromkeys(("pivot", "apply", "applyInPandas", "applyInArrow"), _regroup),
}
