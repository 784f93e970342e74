"""Intercepts PySpark's own calls that read or write the format `paimon`, or stream a table by name.

A batch is read as the session reads the table, so that Spark's own scans take what they can; and
rows are written as the session writes them, since a data source of Python's can't ask Spark to
bring the rows of a bucket together. A stream is read by the data source (`data_source`), whose
options are checked before; its micro-batches are written by the function of `foreachBatch`.

Without an object that answers, and for calls that are not seen (Scala), the data source itself
reads, and does not write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from paimon_magics.spark.data_source import FORMAT
from paimon_magics.spark.pyspark_calls import (
    Answers,
    Told,
    Wrap,
    asked,
    given,
    is_elsewhere,
    keeps,
    told,
)
from paimon_magics.spark.streaming_queries import streaming_frame

__all__ = ["FORMAT_METHODS"]


def _told_by_call(
    original: Callable[..., Any], caller: object, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Told:
    """What the object has been told, with the arguments of this call."""
    found = deepcopy(told(caller))
    found.note(given(original, caller, args, kwargs))
    return found


def _is_ours(answers: Answers | None, caller: object, call: Told) -> bool:
    is_named = answers is not None and call.format.lower() == FORMAT
    return is_named and answers is not None and not is_elsewhere(caller, answers)


def _loads(original: Callable[..., Any], call: str) -> Callable[..., Any]:
    del call

    def asking(self: Any, *args: Any, **kwargs: Any) -> Any:
        answers = asked(self)
        found = _told_by_call(original, self, args, kwargs)
        if answers is not None and _is_ours(answers, self, found):
            return answers.load(found.options)
        return original(self, *args, **kwargs)

    return asking


def _saves(original: Callable[..., Any], call: str) -> Callable[..., Any]:
    is_table = call.endswith(".saveAsTable")

    def asking(self: Any, *args: Any, **kwargs: Any) -> Any:
        answers = asked(self)
        found = _told_by_call(original, self, args, kwargs)
        name = given(original, self, args, kwargs).get("name") if is_table else None
        if answers is not None and _is_ours(answers, self, found):
            answers.save(_frame_of(self), found.options, found.mode, found.parts, name)
            return None
        if answers is not None and isinstance(name, str):
            answers.refuse(call, name)
        return original(self, *args, **kwargs)

    return asking


def _loads_stream(original: Callable[..., Any], call: str) -> Callable[..., Any]:
    is_table = call.endswith(".table")

    def asking(self: Any, *args: Any, **kwargs: Any) -> Any:
        answers = asked(self)
        found = _told_by_call(original, self, args, kwargs)
        name = given(original, self, args, kwargs).get("tableName") if is_table else None
        wanted = is_table and answers is not None and not is_elsewhere(self, answers)
        if answers is not None and (wanted or _is_ours(answers, self, found)):
            options = answers.stream_options(found.options, name)
            if options is not None:
                # By a reader of its own: this one would keep options that were put otherwise.
                return streaming_frame(answers.spark, options)
        return original(self, *args, **kwargs)

    return asking


def _starts(original: Callable[..., Any], call: str) -> Callable[..., Any]:
    is_table = call.endswith(".toTable")

    def asking(self: Any, *args: Any, **kwargs: Any) -> Any:
        answers = asked(self)
        found = _told_by_call(original, self, args, kwargs)
        arguments = given(original, self, args, kwargs)
        name = arguments.get("tableName") if is_table else None
        wanted = is_table and answers is not None and not is_elsewhere(self, answers)
        if answers is not None and (wanted or _is_ours(answers, self, found)):
            frame = getattr(self, "_df", None)
            sink = answers.stream_sink(frame, found.options, found.mode or "append", name)
            if sink is not None:
                writer = self.foreachBatch(sink)
                if arguments.get("queryName"):
                    writer = writer.queryName(arguments["queryName"])
                if found.mode:
                    writer = writer.outputMode(found.mode)
                return writer.options(**arguments.get("options", {})).start()
        return original(self, *args, **kwargs)

    return asking


def _frame_of(writer: Any) -> Any:
    """The frame whose writer it is."""
    frame = writer._df
    if hasattr(frame, "columns"):
        return frame
    from pyspark.sql.connect.dataframe import DataFrame  # Spark Connect's writer has its plan

    return DataFrame(frame, writer._spark)


FORMAT_METHODS: Mapping[str, Mapping[str, Wrap]] = {
    "readwriter:DataFrameReader": {
        **dict.fromkeys(("format", "option", "options"), keeps),
        "load": _loads,
    },
    "readwriter:DataFrameWriter": {
        **dict.fromkeys(("format", "option", "options", "mode", "partitionBy"), keeps),
        **dict.fromkeys(("save", "saveAsTable"), _saves),
    },
    "streaming.readwriter:DataStreamReader": {
        **dict.fromkeys(("format", "option", "options"), keeps),
        "load": _loads_stream,
        "table": _loads_stream,
    },
    "streaming.readwriter:DataStreamWriter": {
        **dict.fromkeys(("format", "option", "options", "outputMode", "partitionBy"), keeps),
        "start": _starts,
        "toTable": _starts,
    },
}
"""The methods that are replaced, by module and class."""
