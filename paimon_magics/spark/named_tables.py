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

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from paimon_magics.spark.named_formats import FORMAT_METHODS
from paimon_magics.spark.progress import is_connect
from paimon_magics.spark.pyspark_calls import (
    Answers,
    Wrap,
    answer,
    answer_not,
    asked,
    given,
    is_elsewhere,
    replace,
    told,
)
from paimon_magics.statements.clauses.names import quoted

__all__ = ["Answers", "answer_by", "answer_no_longer"]


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
    return {one: {**_METHODS.get(one, {}), **FORMAT_METHODS.get(one, {})} for one in places}


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
