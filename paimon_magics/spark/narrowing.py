"""Plans frames of tables anew from the steps that were taken on them, with fewer columns and files.

`mapInArrow` hides from Catalyst which columns and rows of a merge read are used. So the frame of a
table is noted with its Source, and the frames that `select`, `where` and their like make of it are
noted with these steps (`spark.frame_methods`). When such a frame is run, the steps are taken once
more on a new frame of the same snapshot, which reads only columns and files that they need.

It never gives other rows than Spark would:

- The columns that are read are a superset, from texts alone. If a name is missing all the same,
  Spark can't resolve it, and the frame runs as it is.
- A condition that leaves out files was compared by Spark with the user's own (`sameSemantics`).
- The new frame stands behind an empty piece of the old one, in a union. A union has the columns of
  its first part, so that `frame.day` means the same column as before. Catalyst drops the piece.

Spark Connect looks columns of frames up by the plans they come from, also in a union. There only
frames that are run at once are planned anew, and not if a step uses such a column.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.reads.column_texts import (
    Guess,
    guesses,
    is_plain_name,
    mentioned,
    text_within,
    uses_other_rows,
)
from paimon_magics.planning.schemas.table_schema import Column as TableColumn
from paimon_magics.spark.frame_sources import Narrowed, Source
from paimon_magics.spark.progress import is_connect
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import ColumnFilter, FilterValue, Query

__all__ = [
    "PARTS",
    "Step",
    "conditions_in",
    "known_count",
    "narrowed",
    "note_made",
    "note_source",
    "note_step",
    "settle",
    "shares_source",
    "steps_of",
]

PARTS = "_paimon_magics_parts"
"""Attribute of a Column that `&` made: the two Columns."""

_STEPS_MAX = 100
_KEEP_ROWS = ("alias", "drop", "orderBy", "sort")  # as many as before
_TABLE = "paimon_magics_frame"

Use = Literal["run", "made of", "counted"]


@dataclass(frozen=True, slots=True)
class Step:
    """A method that was called on a frame; `grouped` are the arguments of `groupBy` before it."""

    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    grouped: tuple[Any, ...] | None = None


@dataclass(slots=True)
class _Record:
    """How a frame was made: by `steps` on the frames `before` them, of which the first is that of
    the table. Without steps it is the frame of the table itself."""

    source: Source
    before: tuple[DataFrame, ...] = ()
    steps: tuple[Step, ...] = ()
    planned: dict[Use, DataFrame] = field(default_factory=dict)


_records: weakref.WeakKeyDictionary[DataFrame, _Record] = weakref.WeakKeyDictionary()
_settled: weakref.WeakKeyDictionary[DataFrame, DataFrame] = weakref.WeakKeyDictionary()
# The frames of tables that a frame comes from. They keep their snapshots while it is there.
_made_of: weakref.WeakKeyDictionary[DataFrame, tuple[DataFrame, ...]] = weakref.WeakKeyDictionary()


def note_source(frame: DataFrame, source: Source) -> None:
    """Note that a frame shows all columns of a source."""
    _records[frame] = _Record(source)


def note_step(before: DataFrame, after: DataFrame, step: Step) -> None:
    """Note the step that made a frame. Nothing is noted behind a frame without a record."""
    record = _records.get(before)
    note_made(after, before)
    if record is not None and len(record.steps) < _STEPS_MAX:
        _records[after] = _Record(record.source, (*record.before, before), (*record.steps, step))


def note_made(frame: DataFrame, *sources: object) -> None:
    """Note that a frame was made of others, of which those count that come from tables."""
    roots = tuple(dict.fromkeys(root for one in sources for root in _roots(one)))
    if roots:
        _made_of[frame] = roots


def shares_source(one: object, other: object) -> bool:
    """Whether two frames come from the same frame of a table."""
    return not set(_roots(one)).isdisjoint(_roots(other))


def steps_of(frame: DataFrame) -> tuple[Step, ...] | None:
    """The steps that made a frame of a table's; None for a frame without a record."""
    record = _records.get(frame)
    return None if record is None else record.steps


def known_count(frame: DataFrame) -> int | None:
    """How many rows a frame has; None where only a job tells."""
    record = _records.get(frame)
    keeps = record is not None and all(one.method in _KEEP_ROWS for one in record.steps)
    return record.source.row_count() if record is not None and keeps else None


def settle(frame: DataFrame, planned: DataFrame) -> None:
    """Let `planned` stand for the frame from now on, as for a frame whose rows Spark keeps."""
    _records.pop(frame, None)
    if planned is not frame:
        _settled[frame] = planned


def narrowed(frame: DataFrame, use: Use) -> DataFrame:
    """The frame that runs in place of `frame`: the same rows in the same columns, or `frame`.

    "run" is for a frame that is run as it is, "made of" for one that others are made of, "counted"
    for one whose rows alone matter: the result may lack columns.
    """
    frame = _settled.get(frame, frame)
    record = _records.get(frame)
    if record is None:
        return frame
    found = record.planned.get(use)
    if found is None:
        try:
            found = _planned(frame, record, use) or frame
        except (PySparkException, PaimonMagicsError):
            # The frame itself reads the same rows, and raises what its user should see.
            found = frame
        if found is not frame:  # a record that refers to its own frame would keep it for ever
            record.planned[use] = found
            note_made(found, frame)
    return found


def _planned(frame: DataFrame, record: _Record, use: Use) -> DataFrame | None:
    root = (record.before or (frame,))[0]
    connect = is_connect(frame.sparkSession)
    if connect and use == "made of":
        return None
    columns = record.source.columns
    wanted = _used(record.steps, [one.name for one in columns], counted=use == "counted")
    filters, bound = _filters(root, record.steps, columns, connect=connect)
    if not (
        filters or (wanted is not None and len(wanted) < len(columns)) or record.source.is_small
    ):
        return None
    base = record.source.read(Narrowed(wanted, filters, bound))
    if base is None:
        return None
    if connect:
        found = _made_again(base, record, in_place=0)
    else:
        try:
            found = _made_again(base, record, in_place=1)
        except AnalysisException:
            # A step uses a column that an earlier step has made, by its frame.
            found = _made_again(base, record, in_place=len(record.steps))
    if use == "counted":
        if connect:
            _ = found.schema  # asks the server whether it can resolve the steps
        return found
    if found.schema != frame.schema:
        return None
    return _in_place_of(frame, found) if use == "made of" else found


def _made_again(base: DataFrame, record: _Record, *, in_place: int) -> DataFrame:
    """The steps once more, on `base`. Before the first `in_place` of them the new frame gets the
    columns of the old one."""
    found = base
    for number, (before, step) in enumerate(zip(record.before, record.steps, strict=True)):
        if number < in_place:
            found = _in_place_of(before, found)
        found = _taken(found, step)
    return found


def _in_place_of(old: DataFrame, new: DataFrame) -> DataFrame:
    """The rows of `new` in the columns of `old`, of which it may have fewer."""
    nothing = old.where(F.lit(False))
    if new.columns != old.columns:
        nothing = nothing.select(*map(quoted, new.columns))
    return nothing.unionAll(new)


def _taken(frame: DataFrame, step: Step) -> DataFrame:
    called: Any = frame if step.grouped is None else frame.groupBy(*step.grouped)
    found: DataFrame = getattr(called, step.method)(*step.args, **step.kwargs)
    return found


def _used(steps: Sequence[Step], columns: Sequence[str], *, counted: bool) -> frozenset[str] | None:
    """The columns that the steps can use; None for all."""
    used: set[str] = set()
    for step in steps:
        if step.method == "limit":
            continue
        for text in _texts((*step.args, *step.kwargs.items(), *(step.grouped or ()))):
            found = None if text is None else mentioned(text, columns)
            if found is None:
                return None
            used |= found
        if step.method in ("select", "selectExpr", "agg") or step.grouped is not None:
            # Functions of groups without arguments are for all columns of numbers.
            whole = step.grouped is not None and step.method not in ("agg", "count")
            return None if whole and not step.args else frozenset(used)
    return frozenset(used) if counted else None


def _texts(values: Iterable[object]) -> Iterator[str | None]:
    """The texts of a step's arguments; None for one that may mean any column."""
    for value in values:
        match value:
            case bool() | None:
                pass
            case str():
                yield value
            case Column():
                yield text_within(str(value))
            case list() | tuple():
                yield from _texts(value)
            case dict():
                yield from _texts(value.items())
            case _:
                # A number is the place of a column, and of anything else nothing is known.
                yield None


def _filters(
    root: DataFrame, steps: Sequence[Step], columns: Sequence[TableColumn], *, connect: bool
) -> tuple[tuple[ColumnFilter, ...], dict[str, object]]:
    """The conditions on stored columns that all rows meet, and the values bound in them."""
    found: list[ColumnFilter] = []
    bound: dict[str, object] = {}
    own = {one.name.lower(): one.name for one in columns}
    """The columns that are still those of the table, by their names in lower case."""
    for step in steps:
        if step.method in ("where", "filter"):
            condition = next(iter((*step.args, *step.kwargs.values())), None)
            if isinstance(condition, str):
                found += (one for one in conditions_in(condition) if one.column.lower() in own)
            elif isinstance(condition, Column):
                kept = [one for one in columns if one.name.lower() in own]
                for guess in _of_column(root, condition, kept):
                    found.append(_filter(guess, bound))
        else:
            own = {key: name for key, name in own.items() if key in _kept(step, own, connect)}
        if not own:
            break
    return tuple(found), bound


def _kept(step: Step, own: Mapping[str, str], connect: bool) -> set[str]:
    """Which of the table's columns have the same values, by the same name, after a step, and which
    rows may be left out before it without changing the others."""
    texts = list(_texts((*step.args, *step.kwargs.items())))
    if None in texts or any(uses_other_rows(text or "") for text in texts):
        return set()
    match step.method:
        case "alias" | "orderBy" | "sort":
            return set(own)
        case "drop" | "withColumn" | "withColumns":
            return set(own) - {(text or "").lower() for text in texts}
        case "select" | "selectExpr":
            chosen: set[str] = set()
            for value in _flat((*step.args, *step.kwargs.values())):
                if isinstance(value, str) and value == "*":
                    chosen |= set(own)
                elif isinstance(value, str) or not connect:
                    # With Spark Connect the text of a literal has no quotes.
                    text = text_within(str(value))
                    chosen |= {text.lower()} if is_plain_name(text) else set()
            return chosen
        case _:
            return set()


def _flat(values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def conditions_in(condition: str) -> tuple[ColumnFilter, ...]:
    """The conditions on single columns in a condition's text, which Spark has accepted."""
    try:
        statement = parse_statement(f"SELECT * FROM {_TABLE} WHERE ({condition}\n)")
    except PaimonMagicsError:
        return ()
    if not isinstance(statement, Query):
        return ()
    first = next(iter(statement.query.references), None)
    return () if first is None or first.name.table != _TABLE else first.filters


def _of_column(
    root: DataFrame, condition: Column, columns: Sequence[TableColumn]
) -> Iterator[Guess]:
    """The comparisons that a condition joins by AND, as far as Spark says that they are the same
    as what their texts tell."""
    parts = condition.__dict__.get(PARTS)
    if parts is not None:
        for part in parts:
            yield from _of_column(root, part, columns)
        return
    for guess in guesses(text_within(str(condition)), columns):
        try:
            asked = root.where(condition)
            if asked.sameSemantics(root.where(_column_of(guess))):
                yield guess
                return
        except PySparkException:
            return  # it uses a column that the table does not have


def _column_of(guess: Guess) -> Column:
    column = F.col(quoted(guess.column))
    values = [str(one) if guess.as_text else one for one in guess.values]
    match guess.operator:
        case "=":
            return column == values[0]
        case "<":
            return column < values[0]
        case "<=":
            return column <= values[0]
        case ">":
            return column > values[0]
        case ">=":
            return column >= values[0]
        case "in":
            return column.isin(*values)
        case "is null":
            return column.isNull()
        case _:
            return column.isNotNull()


def _filter(guess: Guess, bound: dict[str, object]) -> ColumnFilter:
    values = []
    for value in guess.values:
        name = f"value{len(bound)}"
        bound[name] = value
        values.append(FilterValue("parameter", name))
    return ColumnFilter(guess.column, guess.operator, tuple(values))


def _roots(value: object) -> tuple[DataFrame, ...]:
    if not isinstance(value, DataFrame):
        return ()
    record = _records.get(value)
    if record is not None:
        return (record.before or (value,))[:1]
    return _made_of.get(value, ())
