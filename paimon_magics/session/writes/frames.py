"""Writing a frame that Python holds: Spark's, Arrow's, pandas' or polars'."""

from __future__ import annotations

from typing import Any, Literal

from paimon_magics.errors import InvalidValueError, PaimonMagicsError, nearest
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.python_frames import is_own, notes_on, spark_frame
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.spark_settings import check_written
from paimon_magics.session.writes.upserts import run_insert
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import Insert, TableName

WriteMode = Literal["append", "overwrite", "dynamic"]
_MODES = ("append", "overwrite", "dynamic")


def write_frame_to(
    scope: StatementScope, frame: Any, name: TableName, mode: str | None = None
) -> Outcome:
    """Write `frame` to the table as `INSERT … BY NAME` does: columns match by name, missing columns
    get their default or NULL.

    Rows of this process are stored unchanged or refused; those of a Spark DataFrame are cast like a
    query's. `mode` is `append` (the default), `overwrite` (the whole table) or `dynamic` (the
    partitions that receive rows; without partitions, the whole table). Raises InvalidValueError for
    another mode or a value that is no frame, and what an INSERT raises.
    """
    check_mode(mode)
    check_written(scope, name, "INSERT")
    mode = mode or "append"
    target = ".".join(quoted(part) for part in (name.database or "", name.object_name) if part)
    verb = "INTO" if mode == "append" else "OVERWRITE"
    # Planned as the equivalent statement; the text of its source is never read.
    insert = parse_statement(f"INSERT {verb} {target} BY NAME SELECT * FROM frame")
    assert isinstance(insert, Insert)
    given = spark_frame(scope.spark, frame)
    partition_mode = "dynamic" if mode == "dynamic" else "static"
    try:
        outcome = run_insert(
            scope, insert, {}, frame=given, mode=partition_mode, own_rows=is_own(frame)
        )
    except PaimonMagicsError as error:
        error.statement = error.position = None  # the user wrote no text to point at
        raise
    outcome.statement, outcome.query = f"write({name}, mode={mode!r})", ""
    outcome.notes = (*outcome.notes, *notes_on(frame))
    return outcome


def check_mode(mode: str | None) -> None:
    """Raise InvalidValueError if `mode` is no `WriteMode`."""
    if mode is not None and mode not in _MODES:
        raise InvalidValueError(
            f"There is no mode '{mode}'.", hint=nearest(mode, _MODES, what="modes")
        )
