"""A table created from a frame: with its columns, and its rows as the first ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from paimon_magics.errors import (
    InvalidTableError,
    InvalidValueError,
    PaimonMagicsError,
    StatementError,
    UnknownOutcomeError,
    value_text,
)
from paimon_magics.planning.commits.expiry import with_time_retained
from paimon_magics.planning.schemas.rules import check_schema
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.planning.writes.inserts import check_writable, uniqueness_note
from paimon_magics.session.inserts.insert import check_mode, write_frame_to
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.python_frames import (
    arrow_of,
    frame_kind,
    notes_on,
    paimon_columns,
    spark_frame,
    stream_of,
)
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.settings_checks import check_written
from paimon_magics.spark.types import columns_of
from paimon_magics.statements.data_types import RowField
from paimon_magics.statements.statement import CreateTable, TableName


@dataclass(frozen=True, slots=True)
class WantedTable:
    """What a caller asks of the new table; None for arguments that were not given."""

    primary_key: tuple[str, ...] | None
    partition_by: tuple[str, ...] | None
    options: tuple[tuple[str, str], ...]

    @classmethod
    def of(
        cls, primary_key: object, partition_by: object, options: object, *, create: bool
    ) -> WantedTable | None:
        """Make it of the arguments of `session.write`: one column name or several; options by
        Paimon's names. None without `create`.

        Raises InvalidValueError for arguments of other types, and for any without `create`.
        """
        if options is not None and not isinstance(options, Mapping):
            raise InvalidValueError(
                f"`options` is {value_text(options)}, not a dictionary.",
                hint="Give a dictionary of Paimon's table options: options={'bucket': '4'}.",
            )
        texts = ((str(key), option_text(value)) for key, value in (options or {}).items())
        table = cls(
            _names("primary_key", primary_key), _names("partition_by", partition_by), tuple(texts)
        )
        if create:
            return table
        if table != cls(None, None, ()):
            raise InvalidValueError(
                "`primary_key`, `partition_by` and `options` are for a new table only.",
                hint="Add create=True, or leave them out.",
            )
        return None


def write_to_new(
    scope: StatementScope, frame: Any, name: TableName, mode: str | None, wanted: WantedTable
) -> Outcome:
    """Create the table and write the frame to it.

    A table that exists is written with `mode`, if it is as `wanted`. Without a mode that is an
    error, since running the cell again would double the rows. Raises StatementError for it, and
    InvalidTableError for a table that is not as `wanted` or that Paimon refuses.
    """
    check_mode(mode)
    full = scope.full_name(name)
    check_written(scope, full, "INSERT")
    if scope.catalog.table_exists(full):
        if mode is None:
            raise StatementError(
                f"The table `{full}` exists already.",
                hint="Specify what happens to its rows: mode='overwrite' replaces them, "
                "mode='append' adds to them (or replaces rows of the same primary key).",
            )
        _check_as_wanted(full, scope.catalog.load(full).schema, wanted)
        return write_frame_to(scope, frame, full, mode)
    rows, columns, notes = _read(scope, frame)
    if not columns:
        raise InvalidValueError(
            "The frame has no columns.", hint="A table needs at least one column."
        )
    schema = with_time_retained(
        plan_create_table(_statement(full, wanted), columns, scope.catalog.table_defaults),
        scope.settings.snapshot_time_retained,
    )
    check_schema(schema)
    check_writable(full, schema)
    scope.definitions.create_table(full, schema)
    outcome = filled(scope, full, lambda: write_frame_to(scope, rows, full, "append"))
    unique = uniqueness_note(schema)
    outcome.notes = (*outcome.notes, *notes, *([unique] if unique else ()))
    return outcome


def _read(scope: StatementScope, frame: Any) -> tuple[Any, tuple[RowField, ...], tuple[str, ...]]:
    """Return the rows to write, their columns, and notes. Of a stream only the columns are read."""
    if frame_kind(frame) in ("Spark", "pandas-on-Spark", "Outcome"):
        spark_rows = spark_frame(scope.spark, frame)
        return spark_rows, columns_of(spark_rows.schema), ()
    reader = stream_of(frame)
    rows = reader if reader is not None else arrow_of(frame)
    empty = [field.name for field in rows.schema if str(field.type) == "null"]
    notes = tuple(f"Column `{name}` has no values; it became a STRING." for name in empty)
    return rows, paimon_columns(rows.schema), (*notes, *notes_on(frame))


def _statement(name: TableName, wanted: WantedTable) -> CreateTable:
    """The equivalent CREATE TABLE."""
    return CreateTable(
        text=f"write({name}, create=True)",
        offset=0,
        name=name,
        name_position=0,
        partitioned_by=wanted.partition_by or (),
        primary_key=wanted.primary_key or (),
        options=wanted.options,
    )


def _check_as_wanted(name: TableName, schema: TableSchema, wanted: WantedTable) -> None:
    """Raise InvalidTableError if the existing table differs from what the caller asks for."""
    for what, requested, has in (
        ("primary_key", wanted.primary_key, schema.primary_keys),
        ("partition_by", wanted.partition_by, schema.partition_keys),
    ):
        if requested is not None and requested != has:
            raise InvalidTableError(
                f"The table `{name}` exists with {what} = {_shown(has)}, not {_shown(requested)}.",
                hint=f"Leave `{what}` out, choose another name, or drop the table first.",
            )
    for key, value in wanted.options:
        if schema.option(key) != value:
            raise InvalidTableError(
                f"The table `{name}` exists with '{key}' = {schema.option(key)!r}, not {value!r}.",
                hint=f"ALTER TABLE {name} SET TBLPROPERTIES ('{key}' = '{value}') changes it, "
                "unless the option is fixed for a table with rows.",
            )


def _names(argument: str, value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Iterable):
        names = tuple(value)
        if all(isinstance(name, str) for name in names):
            return names
    raise InvalidValueError(
        f"`{argument}` is {value!r}, not a column's name or a list of names.",
        hint=f"Name columns: {argument}='id', or {argument}=['id', 'day'].",
    )


def option_text(value: object) -> str:
    """An option's value as Paimon writes it: `true`, `4`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(names: tuple[str, ...]) -> str:
    return repr(list(names))


# The first rows of a table that is created for them: CREATE TABLE … AS, and tables of frames.
#
# If writing the rows fails the table is dropped again, unless it may have rows: of this statement,
# when its commit had no clear answer, or of others who found the table meanwhile.


def filled(scope: StatementScope, name: TableName, write: Callable[[], Outcome]) -> Outcome:
    """Run `write`, which fills the new table; return its outcome as that of creating the table.

    Raises what `write` raises. The table stays after an UnknownOutcomeError, if others have written
    rows to it, and if it can't be removed; the hint says so.
    """
    try:
        outcome = write()
    except UnknownOutcomeError as error:
        error.hint = f"{error.hint} The table `{name}` was created and stays.".strip()
        raise
    except BaseException as error:
        stays = _stays(scope, name)
        if stays and isinstance(error, PaimonMagicsError):
            error.hint = f"{error.hint} {stays}".strip()
        raise
    outcome.kind = "CREATE TABLE"
    outcome.message = f"Table `{name}` created. {outcome.message}"
    return outcome


def _stays(scope: StatementScope, name: TableName) -> str:
    """Drop the table; return a sentence on why it stays, "" if it is dropped."""
    try:
        scope.connection.recent.forget(name)
        if not scope.catalog.table_exists(name):
            return ""
        if not scope.definitions.drop_table(name, if_exists=True, only_empty=True):
            return f"The table `{name}` stays: another statement has written rows to it."
    except (PaimonMagicsError, OSError) as error:
        return f"The table `{name}` was created and can't be removed: {error}"
    return ""
