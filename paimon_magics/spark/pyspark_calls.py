"""PySpark's own calls that this project answers: who is asked, and about what.

Methods are replaced on PySpark's classes, once in a process (`replace`). Each call then asks the
object that answers at the moment (`asked`). Calls from this project's packages are never
intercepted.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from paimon_magics.spark.progress import is_connect

__all__ = [
    "Answers",
    "Told",
    "Wrap",
    "answer",
    "answer_not",
    "asked",
    "given",
    "is_elsewhere",
    "keeps",
    "replace",
    "told",
]

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
