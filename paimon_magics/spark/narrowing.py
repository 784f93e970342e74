"""Replans frames of tables from the steps that were taken on them, with fewer columns and files.

`mapInArrow` hides from Catalyst which columns and rows of a merge read are used. So the frame of a
table is recorded with its Source, and the frames that `select`, `where` and similar methods derive
from it are recorded with these steps (`spark.frame_methods`). When such a frame runs, the steps are
repeated on a new frame of the same snapshot, which reads only the required columns and files.

The result always has the same rows as in Spark:

- The columns that are read are a superset, from texts alone. If a name is still missing, Spark
  can't resolve it, and the frame runs unchanged.
- A condition that leaves out files was compared by Spark with the user's own (`sameSemantics`).
- Steps refer to columns by name, and so do conditions that are known in this form. If a step refers
  to a column by its frame, or other frames use the result this way, the new frame follows an empty
  piece of the old frame in a union. A union has the columns of its first part, so `frame.day`
  refers to the same column as before. Catalyst drops the piece.

Spark Connect looks up columns of frames by their original plans, also in a union. There only frames
that run directly are replanned. Columns of the table, functions of them and conditions are also
taken by name there if Spark confirms equivalence. A frame with a step that refers to a column by
its frame in another way runs unchanged.
"""

from __future__ import annotations

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
    hidden_named,
    list_null,
    rows_wanted,
    used_columns,
)
from paimon_magics.spark.jvm import is_connect
from paimon_magics.spark.session_settings import settings_of
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.queries.rewriting import hidden_columns_named

_STEPS_MAX = 100
_MARKS = ("''", '"', "\\", "`")  # what the settings in LEXING are about
_KEEP_ROWS = ("alias", "drop", "orderBy", "sort")  # as many as before

Use = Literal["run", "input", "counted"]

# Attributes of frames, which live as long as the frames. A settled frame stands for the frame
# itself. The source frames of a frame keep their snapshots as long as the frame exists.
_RECORD, _SETTLED = "_paimon_magics_record", "_paimon_magics_settled"
_ORIGINS = "_paimon_magics_origins"


@dataclass(slots=True)
class _Record:
    """How a frame was made: by `steps` on the frames `before` them, of which the first is that of
    the table. Without steps it is the frame of the table itself."""

    source: Source
    before: tuple[DataFrame, ...] = ()
    steps: tuple[Step, ...] = ()
    planned: dict[tuple[Use, int | None], DataFrame] = field(default_factory=dict)


def _record(frame: DataFrame) -> _Record | None:
    return vars(frame).get(_RECORD)


def note_source(frame: DataFrame, source: Source) -> None:
    """Record that a frame shows all columns of a source."""
    vars(frame)[_RECORD] = _Record(source)


def note_step(before: DataFrame, after: DataFrame, step: Step) -> None:
    """Record the step that made a frame. Steps on a frame without a record are not recorded."""
    record = _record(before)
    note_origins(after, before)
    if record is None or len(record.steps) >= _STEPS_MAX:
        return
    if not _is_read_otherwise(before, step):
        before_it, steps = (*record.before, before), (*record.steps, step)
        vars(after)[_RECORD] = _Record(record.source, before_it, steps)


def _is_read_otherwise(frame: DataFrame, step: Step) -> bool:
    """Whether Spark parses a text of the step in a non-default way, so that the required columns of
    the text are unknown."""
    texts = [value for value in (*step.args, *step.kwargs.values()) if isinstance(value, str)]
    if not any(mark in text for text in texts for mark in _MARKS):
        return False
    return any(
        value.lower() == "true" for value in settings_of(frame.sparkSession, LEXING).values()
    )


def note_origins(frame: DataFrame, *sources: object) -> None:
    """Record the frames of tables that a frame is derived from, directly or through other
    frames."""
    roots = tuple(dict.fromkeys(root for source in sources for root in _roots(source)))
    if roots:
        vars(frame)[_ORIGINS] = roots


def shares_source(frame: object, other: object) -> bool:
    """Whether two frames come from the same frame of a table."""
    return not set(_roots(frame)).isdisjoint(_roots(other))


def steps_of(frame: DataFrame) -> tuple[Step, ...] | None:
    """The steps that made a frame of a table's; None for a frame without a record."""
    record = _record(frame)
    return None if record is None else record.steps


def known_count(frame: DataFrame) -> int | None:
    """The number of rows of a frame; None if only a job can count them."""
    record = _record(frame)
    keeps = record is not None and all(step.method in _KEEP_ROWS for step in record.steps)
    return record.source.row_count() if record is not None and keeps else None


def with_hidden(frame: DataFrame, step: Step) -> tuple[DataFrame, tuple[str, ...]] | None:
    """The frame again, with the hidden columns of its table that the next `step` uses, and their
    names; None if it uses none, or the table has none of them."""
    record = _record(frame)
    hidden = frozenset() if record is None else hidden_named(step)
    if record is None or not hidden or not hidden.isdisjoint(frame.columns):
        return None
    shown = record.source.showing(hidden)
    if shown is None:
        return None
    base, names = shown
    for each in record.steps:
        if each.method == "drop" and hidden_columns_named(" ".join(map(str, each.args))):
            continue  # what `hide` has noted
        if each.grouped is not None:
            return None
        after = getattr(base, each.method)(*each.args, **each.kwargs)
        note_step(base, after, each)
        base = after
    return (base, names) if set(names) <= set(base.columns) else None


def hide(frame: DataFrame, names: tuple[str, ...]) -> DataFrame:
    """The frame without the hidden columns that `with_hidden` has added."""
    result = frame.drop(*names)
    note_step(frame, result, Step("drop", names, {}))
    return result


def settle(frame: DataFrame, planned: DataFrame) -> None:
    """Use `planned` for the frame from now on, for example because Spark keeps its rows."""
    vars(frame).pop(_RECORD, None)
    if planned is not frame:
        vars(frame)[_SETTLED] = planned


def narrowed(frame: DataFrame, use: Use, rows: int | None = None) -> DataFrame:
    """The frame that runs in place of `frame`: the same rows in the same columns, or `frame`.

    "run" is for a frame that runs directly, "input" for a frame that others are derived from,
    "counted" for a frame of which only the number of rows matters: the result may lack columns.
    `rows` is an upper bound on the rows needed, in any selection: the result may have fewer rows
    than the frame, but at least this number.
    """
    frame = vars(frame).get(_SETTLED, frame)
    record = _record(frame)
    if record is None:
        return frame
    planned = record.planned.get((use, rows))
    if planned is None:
        try:
            planned = _planned(frame, record, use, rows) or frame
        except (PySparkException, PaimonMagicsError):
            # The frame itself reads the same rows, and raises the error that its user should see.
            planned = frame
        if planned is not frame:  # a frame that its own record refers to would go late
            record.planned[use, rows] = planned
            note_origins(planned, frame)
    return planned


def _planned(
    frame: DataFrame, record: _Record, use: Use, looked_at: int | None
) -> DataFrame | None:
    root = (record.before or (frame,))[0]
    connect = is_connect(frame.sparkSession)
    if connect and use == "input":
        return None
    columns, names = record.source.columns, record.source.names
    wanted = used_columns(record.steps, names, counted=use == "counted")
    results = (*record.before[1:], frame)
    conditions = filters_of_steps(root, record.steps, results, columns, connect=connect)
    filters, bound = conditions.filters, conditions.bound
    rows = rows_wanted(record.steps, looked_at, conditions.whole)
    shields = list_null(record.steps)
    fewer = filters or rows is not None or (wanted is not None and len(wanted) < len(names))
    if not (fewer or shields or record.source.is_small):
        return None
    base = record.source.read(Narrowed(wanted, filters, bound, rows, shields))
    if base is None:
        return None
    planned = _with_steps(base, record, conditions.by_name, connect=connect)
    if use == "counted":
        if connect:
            _ = planned.schema  # asks the server whether it can resolve the steps
        return planned
    if _shown_by(planned) != _shown_by(frame):
        return None
    return _in_place_of(frame, planned) if use == "input" else planned


def _shown_by(frame: DataFrame) -> list[tuple[object, ...]]:
    """The columns that a frame shows. Nullability in Spark is not compared, because it depends on
    how the rows are read."""
    return [(field.name, field.dataType, field.metadata) for field in frame.schema]


def _with_steps(
    base: DataFrame, record: _Record, by_name: Mapping[int, Step], *, connect: bool
) -> DataFrame:
    """The steps once more, on `base`."""
    named = [by_name.get(number, step) for number, step in enumerate(record.steps)]
    try:
        return _repeated(base, record.before, named, in_place=0)
    except AnalysisException:  # a step uses a column by its frame
        if connect:
            raise
    try:
        return _repeated(base, record.before, record.steps, in_place=1)
    except AnalysisException:
        # A step uses a column that an earlier step has made, by its frame.
        return _repeated(base, record.before, record.steps, in_place=len(record.steps))


def _repeated(
    base: DataFrame, before: Sequence[DataFrame], steps: Sequence[Step], *, in_place: int
) -> DataFrame:
    """The steps once more, on `base`. Before the first `in_place` of them the new frame gets the
    columns of the old one."""
    frame = base
    for number, (old, step) in enumerate(zip(before, steps, strict=True)):
        if number < in_place:
            frame = _in_place_of(old, frame)
        receiver: Any = frame if step.grouped is None else frame.groupBy(*step.grouped)
        frame = getattr(receiver, step.method)(*step.args, **step.kwargs)
    return frame


def _in_place_of(old: DataFrame, new: DataFrame) -> DataFrame:
    """The rows of `new` in the columns of `old`; `new` may have fewer columns."""
    nothing = old.where(F.lit(False))
    if new.columns != old.columns:
        nothing = nothing.select(*map(quoted, new.columns))
    return nothing.unionAll(new)


def _roots(value: object) -> tuple[DataFrame, ...]:
    if not isinstance(value, DataFrame):
        return ()
    record = _record(value)
    if record is not None:
        return (record.before or (value,))[:1]
    origins: tuple[DataFrame, ...] = vars(value).get(_ORIGINS, ())
    return origins
