"""Plans frames of tables anew from the steps that were taken on them, with fewer columns and files.

`mapInArrow` hides from Catalyst which columns and rows of a merge read are used. So the frame of a
table is noted with its Source, and the frames that `select`, `where` and their like make of it are
noted with these steps (`spark.frame_methods`). When such a frame is run, the steps are taken once
more on a new frame of the same snapshot, which reads only columns and files that they need.

It never gives other rows than Spark would:

- The columns that are read are a superset, from texts alone. If a name is missing all the same,
  Spark can't resolve it, and the frame runs as it is.
- A condition that leaves out files was compared by Spark with the user's own (`sameSemantics`).
- Steps are taken with columns by their names, conditions that are known in that form. Where a step
  names a column by its frame, or others use the result so, the new frame stands behind an empty
  piece of the old one, in a union. A union has the columns of its first part, so that `frame.day`
  means the same column as before. Catalyst drops the piece.

Spark Connect looks columns of frames up by the plans they come from, also in a union. There only
frames that are run at once are planned anew. Columns of the table, functions of them and conditions
are taken by names there too, where Spark says that they are the same, and a frame with a step that
uses a column by its frame otherwise runs as it is.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.reads.spark_settings import LEXING
from paimon_magics.spark.frame_steps import (
    Narrowed,
    Source,
    Step,
    filters_of_steps,
    list_null,
    rows_wanted,
    used_columns,
)
from paimon_magics.spark.progress import is_connect
from paimon_magics.spark.session_settings import settings_of
from paimon_magics.statements.clauses.names import quoted

_STEPS_MAX = 100
_MARKS = ("''", '"', "\\", "`")  # what the settings in LEXING are about
_KEEP_ROWS = ("alias", "drop", "orderBy", "sort")  # as many as before

Use = Literal["run", "made of", "counted"]


@dataclass(slots=True)
class _Record:
    """How a frame was made: by `steps` on the frames `before` them, of which the first is that of
    the table. Without steps it is the frame of the table itself."""

    source: Source
    before: tuple[DataFrame, ...] = ()
    steps: tuple[Step, ...] = ()
    planned: dict[tuple[Use, int | None], DataFrame] = field(default_factory=dict)


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
    if record is None or len(record.steps) >= _STEPS_MAX:
        return
    if not _is_read_otherwise(before, step):
        _records[after] = _Record(record.source, (*record.before, before), (*record.steps, step))


def _is_read_otherwise(frame: DataFrame, step: Step) -> bool:
    """Whether Spark takes a text of the step apart otherwise than it does by default, so that what
    the text needs is not known."""
    texts = [value for value in (*step.args, *step.kwargs.values()) if isinstance(value, str)]
    if not any(mark in text for text in texts for mark in _MARKS):
        return False
    return any(
        value.lower() == "true" for value in settings_of(frame.sparkSession, LEXING).values()
    )


def note_made(frame: DataFrame, *sources: object) -> None:
    """Note that a frame was made of others, of which those count that come from tables."""
    roots = tuple(dict.fromkeys(root for source in sources for root in _roots(source)))
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
    keeps = record is not None and all(step.method in _KEEP_ROWS for step in record.steps)
    return record.source.row_count() if record is not None and keeps else None


def settle(frame: DataFrame, planned: DataFrame) -> None:
    """Let `planned` stand for the frame from now on, as for a frame whose rows Spark keeps."""
    _records.pop(frame, None)
    if planned is not frame:
        _settled[frame] = planned


def narrowed(frame: DataFrame, use: Use, rows: int | None = None) -> DataFrame:
    """The frame that runs in place of `frame`: the same rows in the same columns, or `frame`.

    "run" is for a frame that is run as it is, "made of" for one that others are made of, "counted"
    for one whose rows alone matter: the result may lack columns. With `rows` so many rows are
    looked at, whichever: the result may have fewer than the frame, but not fewer than these.
    """
    frame = _settled.get(frame, frame)
    record = _records.get(frame)
    if record is None:
        return frame
    found = record.planned.get((use, rows))
    if found is None:
        try:
            found = _planned(frame, record, use, rows) or frame
        except (PySparkException, PaimonMagicsError):
            # The frame itself reads the same rows, and raises what its user should see.
            found = frame
        if found is not frame:  # a record that refers to its own frame would keep it for ever
            record.planned[use, rows] = found
            note_made(found, frame)
    return found


def _planned(frame: DataFrame, record: _Record, use: Use, asked: int | None) -> DataFrame | None:
    root = (record.before or (frame,))[0]
    connect = is_connect(frame.sparkSession)
    if connect and use == "made of":
        return None
    columns, names = record.source.columns, record.source.names
    wanted = used_columns(record.steps, names, counted=use == "counted")
    made = (*record.before[1:], frame)
    found_filters = filters_of_steps(root, record.steps, made, columns, connect=connect)
    filters, bound = found_filters.filters, found_filters.bound
    rows = rows_wanted(record.steps, asked, found_filters.whole)
    shields = list_null(record.steps)
    fewer = filters or rows is not None or (wanted is not None and len(wanted) < len(names))
    if not (fewer or shields or record.source.is_small):
        return None
    base = record.source.read(Narrowed(wanted, filters, bound, rows, shields))
    if base is None:
        return None
    found = _with_steps(base, record, found_filters.by_name, connect=connect)
    if use == "counted":
        if connect:
            _ = found.schema  # asks the server whether it can resolve the steps
        return found
    if _shown_by(found) != _shown_by(frame):
        return None
    return _in_place_of(frame, found) if use == "made of" else found


def _shown_by(frame: DataFrame) -> list[tuple[object, ...]]:
    """The columns that a frame shows. Whether Spark knows of one that it has no NULLs is not
    compared: that depends on how the rows are read."""
    return [(field.name, field.dataType, field.metadata) for field in frame.schema]


def _with_steps(
    base: DataFrame, record: _Record, by_name: Mapping[int, Step], *, connect: bool
) -> DataFrame:
    """The steps once more, on `base`."""
    named = [by_name.get(number, step) for number, step in enumerate(record.steps)]
    if connect:
        return _made_again(base, record.before, named, in_place=0)
    try:
        return _made_again(base, record.before, named, in_place=0)
    except AnalysisException:
        pass  # a step uses a column by its frame
    try:
        return _made_again(base, record.before, record.steps, in_place=1)
    except AnalysisException:
        # A step uses a column that an earlier step has made, by its frame.
        return _made_again(base, record.before, record.steps, in_place=len(record.steps))


def _made_again(
    base: DataFrame, before: Sequence[DataFrame], steps: Sequence[Step], *, in_place: int
) -> DataFrame:
    """The steps once more, on `base`. Before the first `in_place` of them the new frame gets the
    columns of the old one."""
    found = base
    for number, (old, step) in enumerate(zip(before, steps, strict=True)):
        if number < in_place:
            found = _in_place_of(old, found)
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


def _roots(value: object) -> tuple[DataFrame, ...]:
    if not isinstance(value, DataFrame):
        return ()
    record = _records.get(value)
    if record is not None:
        return (record.before or (value,))[:1]
    return _made_of.get(value, ())
