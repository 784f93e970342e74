"""PySpark's own calls that this project answers: those that name a table, and those that read,
write or stream the format `paimon`.

Methods are replaced on PySpark's classes, once in a process (`replace`). Each call then asks the
object that answers at the moment (`asked`). Calls from this project's packages are never
intercepted.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from paimon_magics.spark.data_source import FORMAT
from paimon_magics.spark.progress import is_connect
from paimon_magics.spark.streaming_queries import streaming_frame
from paimon_magics.statements.clauses.names import quoted

_OWN_PACKAGES = ("paimon_magics", "paimon_widgets")
_MARK = "__paimon_magics_asks__"
_TOLD = "_paimon_magics_told"

Wrap = Callable[[Callable[..., Any], str], Callable[..., Any]]
"""Makes the method that takes the place of PySpark's, which is named for errors."""


@dataclass
class Told:
    """What a reader or a writer has been told: PySpark has no way to ask for it later."""

    format: str = ""
    mode: str = ""
    options: dict[str, str] = field(default_factory=dict)
    parts: tuple[str, ...] = ()

    def note(self, arguments: Mapping[str, Any]) -> None:
        """Note the arguments of a call, by their names."""
        self.format = arguments.get("format") or arguments.get("source") or self.format
        self.mode = arguments.get("saveMode") or arguments.get("outputMode") or self.mode
        self.mode = arguments.get("mode") or self.mode
        pairs = dict(arguments.get("options", {}))
        if "key" in arguments:
            pairs[arguments["key"]] = arguments.get("value")
        if isinstance(arguments.get("path"), str):
            pairs["path"] = arguments["path"]
        self.options |= {
            str(key): _text(value) for key, value in pairs.items() if value is not None
        }
        parts = arguments.get("cols", arguments.get("partitionBy"))
        if parts:
            flat = [parts] if isinstance(parts, str) else parts
            self.parts = tuple(
                str(one) for many in flat for one in ([many] if isinstance(many, str) else many)
            )


class Answers(Protocol):
    """Answers the calls whose names are Paimon's."""

    @property
    def spark(self) -> SparkSession:
        """The Spark session that Paimon's tables are read on."""

    def table(self, name: str, options: Mapping[str, str]) -> DataFrame | None:
        """The rows of Paimon's table `name`, with the reader's options; None for a name that is
        Spark's."""

    def query(self, text: str, args: object, formatted: bool) -> DataFrame | None:
        """The rows of a statement over Paimon's tables; None for a statement that is Spark's alone.
        Raises our errors for a statement that would change a Paimon table. `args` are those of
        `SparkSession.sql`; `formatted` tells that its text has fields to fill in."""

    def exists(self, name: str) -> bool | None:
        """Whether Paimon has the table; None for a name that Spark may have."""

    def refuse(self, call: str, name: str) -> None:
        """Raise one of our errors where Paimon has a table of that name."""

    def load(self, options: Mapping[str, str]) -> DataFrame:
        """The rows of the table that the options of a reader of the format `paimon` name."""

    def save(
        self,
        frame: DataFrame,
        options: Mapping[str, str],
        mode: str,
        parts: Sequence[str],
        name: str | None,
    ) -> None:
        """Write the rows of a frame to the table `name`, or that the options of a writer name.
        `parts` are the columns that it shall be partitioned by."""

    def stream_options(self, options: Mapping[str, str], name: str | None) -> dict[str, str] | None:
        """The options of a stream of the table that the options, or `name`, name, as the data
        source takes them; None for a `name` that is Spark's."""

    def stream_sink(
        self, frame: DataFrame | None, options: Mapping[str, str], mode: str, name: str | None
    ) -> Callable[[DataFrame, int], None] | None:
        """The function that writes micro-batches to the table that the options, or `name`, name;
        None for a `name` that is Spark's."""


_answers: Answers | None = None
_otherwise: Answers | None = None


def answer(answers: Answers, *, otherwise: bool = False) -> None:
    """Ask `answers` from now on; with `otherwise` only while nobody else answers."""
    global _answers, _otherwise
    if otherwise:
        _otherwise = answers
    else:
        _answers = answers


def answer_not(answers: Answers) -> None:
    """Stop asking `answers`; does nothing where another object answers by now."""
    global _answers
    if _answers is answers:
        _answers = None


def replace(owner: type, method: str, wrap: Wrap) -> None:
    """Replace a method of one of PySpark's classes, where it has it and it is not replaced yet."""
    original = getattr(owner, method, None)
    if original is None or hasattr(original, _MARK):  # not in this version; or replaced already
        return
    asking = functools.wraps(original)(wrap(original, f"{owner.__name__}.{method}"))
    setattr(asking, _MARK, True)
    setattr(owner, method, asking)


def asked(caller: object) -> Answers | None:
    """The object to ask about a call of a method of `caller`; None for calls that go to Spark.

    The call is two stack frames up from here.
    """
    answers = _answers or _otherwise
    if answers is None:
        return None
    module = sys._getframe(2).f_globals.get("__name__", "")
    if module.partition(".")[0] in _OWN_PACKAGES:
        return None
    through_server = type(caller).__module__.startswith("pyspark.sql.connect")
    return answers if through_server == is_connect(answers.spark) else None


def is_elsewhere(caller: object, answers: Answers) -> bool:
    """Whether the caller uses another Spark Connect server, whose frames can't mix with ours."""
    spark = caller if isinstance(caller, type(answers.spark)) else getattr(caller, "_client", None)
    return is_connect(answers.spark) and spark is not None and spark is not answers.spark


def told(caller: object) -> Told:
    """What a reader or a writer has been told so far."""
    found = getattr(caller, _TOLD, None)
    if not isinstance(found, Told):
        found = Told()
        setattr(caller, _TOLD, found)
    return found


def keeps(original: Callable[..., Any], call: str) -> Callable[..., Any]:
    """A method that notes what a reader or a writer is told."""
    del call

    def asking(self: Any, *args: Any, **kwargs: Any) -> Any:
        done = original(self, *args, **kwargs)
        told(self).note(given(original, self, args, kwargs))
        return done

    return asking


def _text(value: object) -> str:
    """A value of an option as PySpark hands it on."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def given(
    original: Callable[..., Any], caller: object, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Mapping[str, Any]:
    """The arguments of a call by name; empty where PySpark would refuse the call itself."""
    try:
        return inspect.signature(original).bind(caller, *args, **kwargs).arguments
    except TypeError:
        return {}


# Intercepts PySpark's own calls that read or write the format `paimon`, or stream a table by name.
#
# A batch is read as the session reads the table, so that Spark's own scans take what they can; and
# rows are written as the session writes them, since a data source of Python's can't ask Spark to
# bring the rows of a bucket together. A stream is read by the data source (`data_source`), whose
# options are checked before; its micro-batches are written by the function of `foreachBatch`.
#
# Without an object that answers, and for calls that are not seen (Scala), the data source itself
# reads, and does not write.


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


# Intercepts PySpark's own calls that name a table, while a session is open.
#
# Spark's catalog takes plug-ins in Java only. Without one, `df.write.saveAsTable("ids")` silently
# makes a table of Spark's own beside the Paimon table of that name. So the public methods of
# PySpark's classes that take a table's name are wrapped here. Reads of Paimon's tables are
# answered. Calls that would change a Paimon table, or make a table under its name, are refused.
# Every other name goes to Spark as before.
#
# Methods are replaced on the classes, once in a process, because a frame's writer is made by the
# frame and not by the session. Without an open session they do what Spark's do. Calls from this
# project's packages are never intercepted. Calls that reach the JVM in another way (Scala, `_jvm`,
# another process, a method that was taken from its object before) are not seen.


def answer_by(answers: Answers, *, otherwise: bool = False) -> None:
    """Ask `answers` about the names and formats in PySpark's calls from now on; with `otherwise`
    only while nobody else answers."""
    answer(answers, otherwise=otherwise)
    packages = ["pyspark.sql"]
    if is_connect(answers.spark):
        packages.append("pyspark.sql.connect")
    for package in packages:
        for place, methods in _all_methods().items():
            module, _, name = place.partition(":")
            if package == "pyspark.sql" and name == "DataFrame":
                module = "classic.dataframe"
            owner = getattr(importlib.import_module(f"{package}.{module}"), name)
            for method, wrap in methods.items():
                replace(owner, method, wrap)


def answer_no_longer(answers: Answers) -> None:
    """Stop asking `answers`; does nothing where another object answers by now."""
    answer_not(answers)


def _reads(original: Callable[..., Any], call: str) -> Callable[..., Any]:
    del call

    def asking(self: Any, *args: Any, **kwargs: Any) -> Any:
        answers = asked(self)
        name = None if answers is None else _name(original, self, args, kwargs)
        if answers is not None and name is not None and not is_elsewhere(self, answers):
            found = answers.table(name, told(self).options)
            if found is not None:
                return found
        return original(self, *args, **kwargs)

    return asking


def _queries(original: Callable[..., Any], call: str) -> Callable[..., Any]:
    del call

    def asking(self: Any, *args: Any, **kwargs: Any) -> Any:
        answers = asked(self)
        if answers is not None and not is_elsewhere(self, answers):
            arguments = given(original, self, args, kwargs)
            text = arguments.get("sqlQuery")
            if isinstance(text, str):
                found = answers.query(text, arguments.get("args"), bool(arguments.get("kwargs")))
                if found is not None:
                    return found
        return original(self, *args, **kwargs)

    return asking


def _tells(original: Callable[..., Any], call: str) -> Callable[..., Any]:
    del call

    def asking(self: Any, *args: Any, **kwargs: Any) -> Any:
        answers = asked(self)
        name = None if answers is None else _name(original, self, args, kwargs)
        found = None if answers is None or name is None else answers.exists(name)
        if found is not None:
            return found
        return original(self, *args, **kwargs)

    return asking


def _refuses(original: Callable[..., Any], call: str) -> Callable[..., Any]:
    def asking(self: Any, *args: Any, **kwargs: Any) -> Any:
        answers = asked(self)
        name = None if answers is None else _name(original, self, args, kwargs)
        if answers is not None and name is not None:
            answers.refuse(call, name)
        return original(self, *args, **kwargs)

    return asking


def _name(
    original: Callable[..., Any], caller: object, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> str | None:
    """The table's name in a call: its first argument, behind the database of `dbName` if given."""
    arguments = given(original, caller, args, kwargs)
    names = [value for value in list(arguments.values())[1:2] if isinstance(value, str)]
    database = arguments.get("dbName")
    if not names:
        return None
    return f"{quoted(database)}.{quoted(names[0])}" if isinstance(database, str) else names[0]


def _all_methods() -> Mapping[str, Mapping[str, Wrap]]:
    places = dict.fromkeys((*_METHODS, *FORMAT_METHODS))
    return {place: {**_METHODS.get(place, {}), **FORMAT_METHODS.get(place, {})} for place in places}


_METHODS: Mapping[str, Mapping[str, Wrap]] = {
    "session:SparkSession": {"sql": _queries, "table": _reads},
    "readwriter:DataFrameReader": {
        "table": _reads,
        "changes": _refuses,
    },
    "readwriter:DataFrameWriter": {"insertInto": _refuses},
    "dataframe:DataFrame": {"writeTo": _refuses, "mergeInto": _refuses},
    "catalog:Catalog": {
        "tableExists": _tells,
        **dict.fromkeys(
            (
                *("createTable", "createExternalTable", "dropTable", "truncateTable"),
                *("getTable", "getTableProperties", "getCreateTableString", "listColumns"),
                *("listPartitions", "recoverPartitions", "refreshTable", "analyzeTable"),
                *("cacheTable", "uncacheTable", "isCached"),
            ),
            _refuses,
        ),
    },
}
