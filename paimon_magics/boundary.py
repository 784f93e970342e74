"""The entries of the public Python API, and how errors leave them.

`short_errors` makes a function, or all public members of a class, an entry. When a
PaimonMagicsError or an interrupt leaves an entry, it shows the caller's own frames and its message:
no frames of this package, of PySpark or of py4j, and no chain of causes. Nothing is lost:
`__cause__` has the cause, and `full_trace` returns the whole trace. `show_full_tracebacks`, or
PAIMON_FULL_TRACEBACKS in the environment, leaves errors unchanged.

An entry also checks arguments whose annotation is a plain type (`_PLAIN`), before it does anything
else; the error names a wrong argument. Python's own errors for an unknown keyword or an unknown
member stay Python's, and suggest the known names (`knows_other_words`). Unexpected errors keep
their trace, which belongs in a report of the defect.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import os
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral, Real
from types import FrameType, FunctionType, GeneratorType, TracebackType
from typing import Any, TypeVar, cast

from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    likely_meant,
    value_text,
)
from paimon_magics.redaction import redacted, scrub

FULL_TRACEBACKS = "PAIMON_FULL_TRACEBACKS"
_OFF = ("", "0", "false", "no", "off")
_ENTRY = "__paimon_magics_entry__"
# Methods that Python, notebooks and other libraries call by themselves, and that may run jobs.
_SHOWN_BY = (
    *("__repr__", "__str__", "_repr_html_", "__enter__", "__exit__", "__next__"),
    *("__arrow_c_schema__", "__arrow_c_stream__"),
)
_SHORT = (PaimonMagicsError, KeyboardInterrupt)
_PLAIN: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a string"),
    "int": ((Integral,), "a whole number"),
    "float": ((Real,), "a number"),
    "bool": ((bool,), "True or False"),
    "Mapping[str, object]": ((Mapping,), "a dictionary that maps names to values"),
    "Mapping[str, str]": ((Mapping,), "a dictionary that maps names to strings"),
    "str | os.PathLike[str]": ((str, os.PathLike), "a path"),
}

_KEYWORD = re.compile(r"keyword argument '(\w+)'")
# Names of arguments in other libraries, with the names here.
_OTHER_KEYWORDS = {
    "params": "parameters",
    "args": "parameters",
    "if_exists": "mode",
    "partitionBy": "partition_by",
    "partition_cols": "partition_by",
    "partition_keys": "partition_by",
    "primary_keys": "primary_key",
    "table": "name",
    "table_name": "name",
    "df": "frame",
    "data": "frame",
    "sql": "text",
    "query": "text",
    "path": "warehouse",
    "n": "limit",
}

# The method by which IPython lets an exception draw its own traceback.
_RENDERER = "_render_traceback_"
_STOPPED = "KeyboardInterrupt: the call was stopped, and its Spark jobs with it."
_STATEMENT_STOPPED = (
    "A statement that was not committed yet left nothing behind; "
    "session.history(TABLE) shows the commits."
)
_INSERT_STOPPED = (
    "Rows that were sent may have been acknowledged. With a label it is safe to insert them again: "
    "session.insert(…, label='…')."
)
# By the name of the entry: the state after a call of it was interrupted.
_WHEN_STOPPED = {
    "run": _STATEMENT_STOPPED,
    "write": _STATEMENT_STOPPED,
    "insert": _INSERT_STOPPED,
    "insert_async": _INSERT_STOPPED,
    "flush": "Acknowledged rows are still loaded.",
}
_NOT_THE_USERS = ("IPython", "ipykernel", "asyncio", "paimon_magics", "traitlets")
_PLACES_MAX = 4

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_full = os.environ.get(FULL_TRACEBACKS, "").lower() not in _OFF


def show_full_tracebacks(full: bool) -> None:
    """Set whether errors show the whole trace and their causes, in this process from now on."""
    global _full
    _full = full


def shows_full_tracebacks() -> bool:
    """Whether errors show the whole trace and their causes."""
    return _full


def short_errors(entry: Decorated) -> Decorated:
    """A decorator: make a function, or all public members of a class, entries of the Python API."""
    if isinstance(entry, type):
        for name, member in list(vars(entry).items()):
            if name in _SHOWN_BY or not name.startswith("_"):
                replacement = _member(member)
                if replacement is not None:
                    setattr(entry, name, replacement)
        return cast(Decorated, entry)
    function: Any = entry
    return cast(Decorated, _function(function))


def knows_other_words(words: Mapping[str, str]) -> Callable[[Decorated], Decorated]:
    """A decorator of a class: the AttributeError for an unknown member suggests another. `words`
    has suggestions for names from other libraries; else the most similar name is suggested."""

    def decorate(entry: Decorated) -> Decorated:
        def no_member(self: object, name: str) -> object:
            kind = type(self)
            if hasattr(kind, name) or name.startswith("_"):
                return object.__getattribute__(self, name)  # the error of the member itself
            public = [member for member in dir(kind) if not member.startswith("_")]
            meant = f"Use {words[name]}." if name in words else likely_meant(name, public)
            meant = meant or f"dir({kind.__name__}) lists its members."
            try:
                raise AttributeError(f"{value_text(self, begins=True)} has no `{name}`. {meant}")
            except AttributeError as error:
                error.__traceback__ = None
                raise

        cast(Any, entry).__getattr__ = no_member
        return entry

    return decorate


def show_as(error: BaseException, lines: Callable[[], list[str]]) -> None:
    """Let a notebook show these lines in place of the trace, unless full tracebacks are on."""
    if not _full:
        setattr(error, _RENDERER, lines)


def is_entry(member: object) -> bool:
    """Whether a function, property or method of a class is an entry."""
    if isinstance(member, property):
        return is_entry(member.fget)
    return hasattr(getattr(member, "__func__", member), _ENTRY)


def full_trace(error: BaseException) -> str:
    """The whole trace of an error that has left an entry, with its causes."""
    inside: TracebackType | None = getattr(error, "_inside", None)
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        error.__traceback__ = inside
    elif inside is not None:
        last.tb_next = inside
    if inside is not None:
        error._inside = None  # type: ignore[attr-defined]
    lines = traceback.format_exception(error)
    cause = error.__cause__
    if isinstance(error, PaimonMagicsError) and cause is not None and not _full:
        separator = "\nThe above exception was the direct cause of the following exception:\n\n"
        lines = [*traceback.format_exception(cause), separator, *lines]
    return redacted("".join(lines).rstrip())


def _member(member: object) -> object | None:
    """The member of a class as an entry; None if it is not a function, property or class method."""
    if isinstance(member, classmethod):
        return classmethod(_function(cast(FunctionType, member.__func__)))
    if isinstance(member, property):
        return property(_function(cast(FunctionType, member.fget)), doc=member.__doc__)
    return _function(member) if inspect.isfunction(member) else None


def _function(function: FunctionType) -> Callable[..., Any]:
    if is_entry(function):
        return function
    check = _checks(function)
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def waits(*args: Any, **kwargs: Any) -> Any:
            try:
                check(args, kwargs)
                return await function(*args, **kwargs)
            except _SHORT as error:
                _shorten(error, function.__name__)
                raise  # a bare `raise` adds no frame of this function
            except BaseException as error:
                scrub(error)
                raise

        setattr(waits, _ENTRY, True)
        return waits

    @functools.wraps(function)
    def calls(*args: Any, **kwargs: Any) -> Any:
        try:
            check(args, kwargs)
            result = function(*args, **kwargs)
        except _SHORT as error:
            _shorten(error, function.__name__)
            raise
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                error.__traceback__ = None  # the call itself failed: its arguments are wrong
                error.args = (f"{error}. {_taken(function, str(error))}",)
            scrub(error)
            raise
        except BaseException as error:
            explained = _explained(args, error)
            if explained is not None:
                _shorten(explained, function.__name__)
                raise explained from error
            scrub(error)
            raise
        return _each(result, function.__name__) if isinstance(result, GeneratorType) else result

    setattr(calls, _ENTRY, True)
    return calls


def _explained(arguments: tuple[Any, ...], error: BaseException) -> PaimonMagicsError | None:
    """Our error for a foreign one, from the `_explained` method of the entry's object."""
    explain = getattr(type(arguments[0]), "_explained", None) if arguments else None
    if explain is None or not isinstance(error, Exception):
        return None
    ours: PaimonMagicsError | None = explain(arguments[0], error)
    return ours


def _taken(function: FunctionType, message: str) -> str:
    """The advice for a call with wrong arguments: the meant parameter, else all parameters."""
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    unknown = _KEYWORD.search(message)
    meant = unknown and (_OTHER_KEYWORDS.get(unknown[1]) or likely_meant(unknown[1], names))
    if meant in names:
        return f"Did you mean `{meant}`?"
    if meant and meant.startswith("Did"):
        return meant
    return f"It takes {', '.join(names) or 'no arguments'}."


def _each(items: Iterator[Any], entry: str) -> Iterator[Any]:
    try:
        yield from items
    except _SHORT as error:
        _shorten(error, entry)
        raise


def _shorten(error: BaseException, entry: str) -> None:
    """Remove the inner frames and the causes from an error that leaves the entry of this name."""
    scrub(error)
    if _full:
        return
    last = inside = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is not None:
        last.tb_next = getattr(error, "_inside", None)  # frames that an inner entry has removed
    error._inside = inside  # type: ignore[attr-defined]
    error.__traceback__ = None
    if isinstance(error, PaimonMagicsError):
        error.hide_cause()
        error.tell_place()
    else:
        error.__context__ = error.__context__ or error.__cause__
        error.__cause__ = None  # and with it, Python prints no context
    show_as(error, functools.partial(_rendered, error, entry))


def _rendered(error: BaseException, entry: str) -> list[str]:
    """The lines that a notebook shows for an error of the Python API: its text, and the calls that
    led to it, unless the cell has only one line."""
    if isinstance(error, PaimonMagicsError):
        text = error.text()
    else:
        text = f"{_STOPPED}\n{_WHEN_STOPPED.get(entry, '')}"
    frames = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _NOT_THE_USERS
    ]
    lines = text.splitlines()
    if len(frames) == 1 and len(linecache.getlines(frames[0][0].f_code.co_filename)) == 1:
        return lines
    left_out = ["  …"] if len(frames) > _PLACES_MAX else []
    shown = [*frames[:1], *frames[1:][1 - _PLACES_MAX :]]
    places = [_place(frame, line) for frame, line in shown]
    return [*lines, *places[:1], *left_out, *places[1:]]


def _place(frame: FrameType, line: int) -> str:
    code = frame.f_code
    source = linecache.getline(code.co_filename, line).strip()
    named = None
    shell = frame.f_globals.get("get_ipython")
    if callable(shell):
        named = shell().compile.format_code_name(code.co_filename)
    where = " ".join(named) if named else os.path.basename(code.co_filename)
    within = "" if code.co_name.startswith("<") else f", in {code.co_name}"
    return f"  {where}, line {line}{within}: {source}"


def _checks(function: FunctionType) -> Callable[[tuple[Any, ...], dict[str, Any]], None]:
    """A function that checks the arguments of `function` that have plain types; it raises
    InvalidValueError."""
    names = list(inspect.signature(function).parameters)
    wanted = {
        name: _PLAIN[plain]
        for name, annotation in function.__annotations__.items()
        if name != "return" and (plain := str(annotation).removesuffix(" | None")) in _PLAIN
    }
    optional = {
        name for name, annotation in function.__annotations__.items() if "None" in str(annotation)
    }

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            if name not in wanted or (value is None and name in optional):
                continue
            types, words = wanted[name]
            if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
                called = function.__name__
                raise InvalidValueError(
                    f"`{name}` of {called}() is {value_text(value)}, but it must be {words}.",
                    hint=f"help({function.__qualname__}) describes the arguments.",
                )

    return check
