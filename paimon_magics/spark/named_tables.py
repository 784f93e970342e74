"""Intercepts PySpark's own calls that name a table, while a session is open.

Spark's catalog takes plug-ins in Java only. Without one, `df.write.saveAsTable("ids")` silently
makes a table of Spark's own beside the Paimon table of that name. So the public methods of
PySpark's classes that take a table's name are wrapped here. Reads of Paimon's tables are answered.
Calls that would change a Paimon table, or make a table under its name, are refused. Every other
name goes to Spark as before.

Methods are replaced on the classes, once in a process, because a frame's writer is made by the
frame and not by the session. Without an open session they do what Spark's do. Calls from this
project's packages are never intercepted. Calls that reach the JVM in another way (Scala, `_jvm`,
another process, a method that was taken from its object before) are not seen.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from paimon_magics.spark.progress import is_connect
from paimon_magics.statements.clauses.names import quoted

__all__ = ["Answers", "answer_by", "answer_no_longer"]

_OWN_PACKAGES = ("paimon_magics", "paimon_widgets")
_MARK = "__paimon_magics_asks__"
_OPTIONS = "_paimon_magics_options"


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


_Wrap = Callable[[Callable[..., Any], str], Callable[..., Any]]

_answers: Answers | None = None


def answer_by(answers: Answers) -> None:
    """Ask `answers` about the names in PySpark's calls from now on."""
    global _answers
    _answers = answers
    packages = ["pyspark.sql"]
    if is_connect(answers.spark):
        packages.append("pyspark.sql.connect")
    for package in packages:
        for place, methods in _METHODS.items():
            module, _, name = place.partition(":")
            if package == "pyspark.sql" and name == "DataFrame":
                module = "classic.dataframe"
            owner = getattr(importlib.import_module(f"{package}.{module}"), name)
            for method, wrap in methods.items():
                _replace(owner, method, wrap)


def answer_no_longer(answers: Answers) -> None:
    """Stop asking `answers`; does nothing where another object answers by now."""
    global _answers
    if _answers is answers:
        _answers = None


def _replace(owner: type, method: str, wrap: _Wrap) -> None:
    original = getattr(owner, method, None)
    if original is None or hasattr(original, _MARK):  # not in this version; or replaced already
        return
    asking = functools.wraps(original)(wrap(original, f"{owner.__name__}.{method}"))
    setattr(asking, _MARK, True)
    setattr(owner, method, asking)


def _asked(caller: object) -> Answers | None:
    """The object to ask about a call of a method of `caller`; None for calls that go to Spark.

    The call is two stack frames up from here.
    """
    if _answers is None:
        return None
    module = sys._getframe(2).f_globals.get("__name__", "")
    if module.partition(".")[0] in _OWN_PACKAGES:
        return None
    through_server = type(caller).__module__.startswith("pyspark.sql.connect")
    return _answers if through_server == is_connect(_answers.spark) else None


def _is_elsewhere(caller: object, answers: Answers) -> bool:
    """Whether the caller uses another Spark Connect server, whose frames can't mix with ours."""
    spark = caller if isinstance(caller, type(answers.spark)) else getattr(caller, "_client", None)
    return is_connect(answers.spark) and spark is not None and spark is not answers.spark


def _reads(original: Callable[..., Any], call: str) -> Callable[..., Any]:
    del call

    def asking(self: Any, *args: Any, **kwargs: Any) -> Any:
        answers = _asked(self)
        name = None if answers is None else _name(original, self, args, kwargs)
        if answers is not None and name is not None and not _is_elsewhere(self, answers):
            found = answers.table(name, getattr(self, _OPTIONS, {}))
            if found is not None:
                return found
        return original(self, *args, **kwargs)

    return asking


def _keeps(original: Callable[..., Any], call: str) -> Callable[..., Any]:
    """Notes a reader's options: PySpark has no way to ask for them later."""
    del call

    def asking(self: Any, *args: Any, **kwargs: Any) -> Any:
        done = original(self, *args, **kwargs)
        given = dict(_given(original, self, args, kwargs))
        pairs = given["options"] if "options" in given else {given.get("key"): given.get("value")}
        told = {str(key): str(value) for key, value in pairs.items()}
        setattr(self, _OPTIONS, {**getattr(self, _OPTIONS, {}), **told})
        return done

    return asking


def _queries(original: Callable[..., Any], call: str) -> Callable[..., Any]:
    del call

    def asking(self: Any, *args: Any, **kwargs: Any) -> Any:
        answers = _asked(self)
        if answers is not None and not _is_elsewhere(self, answers):
            given = _given(original, self, args, kwargs)
            text = given.get("sqlQuery")
            if isinstance(text, str):
                found = answers.query(text, given.get("args"), bool(given.get("kwargs")))
                if found is not None:
                    return found
        return original(self, *args, **kwargs)

    return asking


def _tells(original: Callable[..., Any], call: str) -> Callable[..., Any]:
    del call

    def asking(self: Any, *args: Any, **kwargs: Any) -> Any:
        answers = _asked(self)
        name = None if answers is None else _name(original, self, args, kwargs)
        found = None if answers is None or name is None else answers.exists(name)
        if found is not None:
            return found
        return original(self, *args, **kwargs)

    return asking


def _refuses(original: Callable[..., Any], call: str) -> Callable[..., Any]:
    def asking(self: Any, *args: Any, **kwargs: Any) -> Any:
        answers = _asked(self)
        name = None if answers is None else _name(original, self, args, kwargs)
        if answers is not None and name is not None:
            answers.refuse(call, name)
        return original(self, *args, **kwargs)

    return asking


def _given(
    original: Callable[..., Any], caller: object, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Mapping[str, Any]:
    """The arguments of a call by name; empty where PySpark would refuse the call itself."""
    try:
        return inspect.signature(original).bind(caller, *args, **kwargs).arguments
    except TypeError:
        return {}


def _name(
    original: Callable[..., Any], caller: object, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> str | None:
    """The table's name in a call: its first argument, behind the database of `dbName` if given."""
    given = _given(original, caller, args, kwargs)
    names = [value for key, value in list(given.items())[1:2] if isinstance(value, str)]
    database = given.get("dbName")
    if not names:
        return None
    return f"{quoted(database)}.{quoted(names[0])}" if isinstance(database, str) else names[0]


_METHODS: Mapping[str, Mapping[str, _Wrap]] = {
    "session:SparkSession": {"sql": _queries, "table": _reads},
    "readwriter:DataFrameReader": {
        "option": _keeps,
        "options": _keeps,
        "table": _reads,
        "changes": _refuses,
    },
    "readwriter:DataFrameWriter": {"saveAsTable": _refuses, "insertInto": _refuses},
    "dataframe:DataFrame": {"writeTo": _refuses, "mergeInto": _refuses},
    "streaming.readwriter:DataStreamReader": {"table": _refuses},
    "streaming.readwriter:DataStreamWriter": {"toTable": _refuses},
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
