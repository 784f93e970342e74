"""PySpark's own calls that this project answers: those that name a table, and those that read,
write or stream the format `paimon`.

Spark's catalog takes plug-ins in Java only. Without one, `df.write.saveAsTable("ids")` silently
makes a table of Spark's own beside the Paimon table of that name. So the public methods of
PySpark's classes that take a table's name are patched (module `patches`). Reads of Paimon's tables
are answered. Calls that would change a Paimon table, or create a table under its name, are refused.
Calls with any other name go to Spark as before.

A batch in the format `paimon` is read as the session reads the table, so that Spark's own scans
read as many files as possible. Rows are written as the session writes them, since a Python data
source can't make Spark gather the rows of a bucket. A stream is read by the data source
(`data_source`), whose options are checked before. Its micro-batches are written by the function of
`foreachBatch`.

Calls that reach the JVM in another way are not intercepted: Scala, `_jvm`, another process, or a
method that was taken from its object before. There the data source itself reads, and does not
write.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from paimon_magics.spark.data_source import FORMAT
from paimon_magics.spark.jvm import is_connect
from paimon_magics.spark.patches import CALL_PATCHES, Call, Patch
from paimon_magics.spark.streaming_queries import streaming_frame
from paimon_magics.statements.clauses.names import quoted

_SETTINGS = "_paimon_magics_settings"


@dataclass(frozen=True, slots=True)
class _Settings:
    """The settings of a reader or a writer: PySpark has no way to query them later."""

    format: str = ""
    mode: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, target: object) -> _Settings:
        """The settings of a reader or a writer so far."""
        settings = getattr(target, _SETTINGS, None)
        return settings if isinstance(settings, cls) else cls()

    def after(self, call: Call) -> _Settings:
        """The settings once the arguments of a call are added."""
        arguments = call.arguments
        modes = map(arguments.get, ("mode", "saveMode", "outputMode"))
        options = dict(arguments.get("options", {}))
        if "key" in arguments:
            options[arguments["key"]] = arguments.get("value")
        if isinstance(arguments.get("path"), str):
            options["path"] = arguments["path"]
        parts = arguments.get("cols", arguments.get("partitionBy")) or self.parts
        return _Settings(
            arguments.get("format") or arguments.get("source") or self.format,
            next(filter(None, modes), self.mode),
            {
                **self.options,
                **{str(key): _text(value) for key, value in options.items() if value is not None},
            },
            tuple(str(name) for part in _listed(parts) for name in _listed(part)),
        )

    def name_ours(self, answers: Answers, target: object) -> bool:
        """Whether the format is Paimon's, and the call is for these answers."""
        return self.format.lower() == FORMAT and not _is_elsewhere(target, answers)


def _text(value: object) -> str:
    """An option value as PySpark passes it on."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _listed(value: Any) -> Sequence[Any]:
    return [value] if isinstance(value, str) else value


class Answers(Protocol):
    """Answers the calls whose names are Paimon's."""

    @property
    def spark(self) -> SparkSession:
        """The Spark session that Paimon's tables are read on."""

    def table(self, name: str, options: Mapping[str, str]) -> DataFrame | None:
        """The rows of Paimon's table `name`, with the reader's options; None for a name that is
        Spark's."""

    def changes(self, name: str, options: Mapping[str, str]) -> DataFrame | None:
        """The changes of Paimon's table `name` that a reader's options choose; None for a name that
        is Spark's."""

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
        """Write the rows of a frame to the table `name`, or to the table that the options of a
        writer name. `parts` are the partition columns to use."""

    def stream_options(self, options: Mapping[str, str], name: str | None) -> dict[str, str] | None:
        """The options of a stream of the table that the options, or `name`, name, as the data
        source takes them; None for a `name` that is Spark's."""

    def stream_sink(
        self, frame: DataFrame | None, options: Mapping[str, str], mode: str, name: str | None
    ) -> Callable[[DataFrame, int], None] | None:
        """The function that writes micro-batches to the table that the options, or `name`, name;
        None for a `name` that is Spark's."""


class _Responders:
    """The objects that answer PySpark's calls in this process. The patches are there as long as one
    of them may answer."""

    def __init__(self) -> None:
        self._current: Answers | None = None
        self._fallback: Answers | None = None
        self._open: weakref.WeakSet[Answers] = weakref.WeakSet()

    def add(self, answers: Answers, *, otherwise: bool) -> None:
        """Use `answers` from now on; with `otherwise` only while no other object answers."""
        if otherwise:
            self._fallback = answers
        else:
            self._current = answers
            self._open.add(answers)

    def remove(self, answers: Answers) -> None:
        """Stop using `answers`."""
        self._open.discard(answers)
        if self._current is answers:
            self._current = None
        if not self._open and self._fallback is None:
            CALL_PATCHES.restore()

    def of(self, target: object) -> Answers | None:
        """The object to ask about a call of a method of `target`; None for calls that go to
        Spark."""
        answers = self._current or self._fallback
        through_server = type(target).__module__.startswith("pyspark.sql.connect")
        is_asked = answers is not None and through_server == is_connect(answers.spark)
        return answers if is_asked else None


_RESPONDERS = _Responders()


def answer_by(answers: Answers, *, otherwise: bool = False) -> None:
    """Use `answers` for the names and formats in PySpark's calls from now on; with `otherwise` only
    while no other object answers."""
    _RESPONDERS.add(answers, otherwise=otherwise)
    packages = ["pyspark.sql"]
    if is_connect(answers.spark):
        packages.append("pyspark.sql.connect")
    for package in packages:
        for place, methods in _METHODS.items():
            module, _, name = place.partition(":")
            if package == "pyspark.sql" and name == "DataFrame":
                module = "classic.dataframe"
            CALL_PATCHES.apply(
                getattr(importlib.import_module(f"{package}.{module}"), name), methods
            )


def answer_no_longer(answers: Answers) -> None:
    """Stop using `answers`. The last session restores PySpark's own methods."""
    _RESPONDERS.remove(answers)


def _is_elsewhere(target: object, answers: Answers) -> bool:
    """Whether the target uses another Spark Connect server, whose frames can't mix with ours."""
    spark = target if isinstance(target, type(answers.spark)) else getattr(target, "_client", None)
    return is_connect(answers.spark) and spark is not None and spark is not answers.spark


def _note(call: Call) -> Any:
    """Record the settings of a reader or a writer."""
    result = call.proceed()
    setattr(call.target, _SETTINGS, _Settings.of(call.target).after(call))
    return result


def _load(call: Call) -> Any:
    answers, settings = _RESPONDERS.of(call.target), _Settings.of(call.target).after(call)
    if answers is not None and settings.name_ours(answers, call.target):
        return answers.load(settings.options)
    return call.proceed()


def _save(call: Call) -> Any:
    answers, settings = _RESPONDERS.of(call.target), _Settings.of(call.target).after(call)
    name = call.arguments.get("name") if call.method == "saveAsTable" else None
    if answers is not None and settings.name_ours(answers, call.target):
        frame = _frame_of(call.target)
        answers.save(frame, settings.options, settings.mode, settings.parts, name)
        return None
    if answers is not None and isinstance(name, str):
        answers.refuse(call.name, name)
    return call.proceed()


def _frame_of(writer: Any) -> Any:
    """The frame whose writer it is."""
    frame = writer._df
    if hasattr(frame, "columns"):
        return frame
    from pyspark.sql.connect.dataframe import DataFrame  # Spark Connect's writer has its plan

    return DataFrame(frame, writer._spark)


def _stream(call: Call, method: str) -> tuple[Answers | None, _Settings, str | None]:
    """The object that answers for a stream of a table, if one does, what the stream is set to, and
    the table's name if the call is of `method`, which names one."""
    answers, settings = _RESPONDERS.of(call.target), _Settings.of(call.target).after(call)
    is_table = call.method == method
    name = call.arguments.get("tableName") if is_table else None
    if answers is not None and (
        not _is_elsewhere(call.target, answers)
        if is_table
        else settings.name_ours(answers, call.target)
    ):
        return answers, settings, name
    return None, settings, name


def _load_stream(call: Call) -> Any:
    answers, settings, name = _stream(call, "table")
    options = None if answers is None else answers.stream_options(settings.options, name)
    if answers is None or options is None:
        return call.proceed()
    # By a reader of its own: this one would keep options that were put otherwise.
    return streaming_frame(answers.spark, options)


def _start(call: Call) -> Any:
    answers, settings, name = _stream(call, "toTable")
    if answers is not None:
        frame, mode = getattr(call.target, "_df", None), settings.mode or "append"
        sink = answers.stream_sink(frame, settings.options, mode, name)
        if sink is None and name is not None and settings.name_ours(answers, call.target):
            # Spark would make a table of its own for a format that can't be one.
            sink = answers.stream_sink(frame, {**settings.options, "table": name}, mode, None)
        if sink is not None:
            arguments = call.arguments
            writer = call.target.foreachBatch(sink)
            if arguments.get("queryName"):
                writer = writer.queryName(arguments["queryName"])
            if settings.mode:
                writer = writer.outputMode(settings.mode)
            return writer.options(**arguments.get("options", {})).start()
    return call.proceed()


def _table(call: Call) -> Any:
    answers = _RESPONDERS.of(call.target)
    name = None if answers is None else _name(call)
    if answers is not None and name is not None and not _is_elsewhere(call.target, answers):
        read = answers.changes if call.method == "changes" else answers.table
        frame = read(name, _Settings.of(call.target).options)
        if frame is not None:
            return frame
    return call.proceed()


def _query(call: Call) -> Any:
    answers = _RESPONDERS.of(call.target)
    if answers is not None and not _is_elsewhere(call.target, answers):
        arguments = call.arguments
        text = arguments.get("sqlQuery")
        if isinstance(text, str):
            frame = answers.query(text, arguments.get("args"), bool(arguments.get("kwargs")))
            if frame is not None:
                return frame
    return call.proceed()


def _exists(call: Call) -> Any:
    answers = _RESPONDERS.of(call.target)
    name = None if answers is None else _name(call)
    exists = None if answers is None or name is None else answers.exists(name)
    return call.proceed() if exists is None else exists


def _refuse(call: Call) -> Any:
    answers = _RESPONDERS.of(call.target)
    name = None if answers is None else _name(call)
    if answers is not None and name is not None:
        answers.refuse(call.name, name)
    return call.proceed()


def _name(call: Call) -> str | None:
    """The table's name in a call: its first argument, behind the database of `dbName` if it has
    one."""
    arguments = call.arguments
    name = next(iter(list(arguments.values())[1:2]), None)
    database = arguments.get("dbName")
    if not isinstance(name, str):
        return None
    return f"{quoted(database)}.{quoted(name)}" if isinstance(database, str) else name


_NOTED = dict.fromkeys(("format", "option", "options"), _note)
_METHODS: Mapping[str, Mapping[str, Patch]] = {
    "session:SparkSession": {"sql": _query, "table": _table},
    "readwriter:DataFrameReader": {**_NOTED, "load": _load, "table": _table, "changes": _table},
    "readwriter:DataFrameWriter": {
        **_NOTED,
        **dict.fromkeys(("mode", "partitionBy"), _note),
        **dict.fromkeys(("save", "saveAsTable"), _save),
        "insertInto": _refuse,
    },
    "streaming.readwriter:DataStreamReader": {
        **_NOTED,
        **dict.fromkeys(("load", "table"), _load_stream),
    },
    "streaming.readwriter:DataStreamWriter": {
        **_NOTED,
        **dict.fromkeys(("outputMode", "partitionBy"), _note),
        **dict.fromkeys(("start", "toTable"), _start),
    },
    "dataframe:DataFrame": {"writeTo": _refuse, "mergeInto": _refuse},
    "catalog:Catalog": {
        "tableExists": _exists,
        **dict.fromkeys(
            (
                *("createTable", "createExternalTable", "dropTable", "truncateTable"),
                *("getTable", "getTableProperties", "getCreateTableString", "listColumns"),
                *("listPartitions", "recoverPartitions", "refreshTable", "analyzeTable"),
                *("cacheTable", "uncacheTable", "isCached"),
            ),
            _refuse,
        ),
    },
}
"""The patched methods, by module and class."""
