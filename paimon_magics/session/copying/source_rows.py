"""The rows of the files of a COPY INTO, in the columns of its table.

Rows that could not be loaded go into a table of their own: REJECTED_ROWS. They are committed before
those that can be loaded. A load that dies between the two leaves them, and finds them again when it
is repeated: `load_id` tells the two apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    SetupError,
    TableDamagedError,
    UnknownNameError,
    nearest,
)
from paimon_magics.planning.copying.file_formats import ReadOptions
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.schemas.table_schema import Column, TableSchema
from paimon_magics.session.copying.source_files import FileCopies, SourceFile
from paimon_magics.session.queries.csv_files import quoting
from paimon_magics.session.queries.file_beginnings import (
    MARK,
    beginnings,
    values_of_lines,
    whole_values,
)
from paimon_magics.session.scope import StatementScope, located
from paimon_magics.spark.copied_rows import (
    FILE_URI,
    RECORD,
    UNQUOTED_EMPTY,
    Origins,
    SourceRows,
    first_lines,
    origins_of,
    plain_path,
    read_avro,
    read_files,
    text_schema,
    with_nulls,
    without_empty_values,
    without_record,
)
from paimon_magics.spark.failures import translate
from paimon_magics.spark.files import lacks_file_system
from paimon_magics.spark.sessions import runs_here
from paimon_magics.spark.types import spark_type
from paimon_magics.statements.copying import CopyIntoTable
from paimon_magics.statements.data_types import AtomicType

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame, StructType


from typing import TYPE_CHECKING

from paimon_magics.session.inserts.insert import write_frame_to
from paimon_magics.session.inserts.new_tables import WantedTable, write_to_new
from paimon_magics.statements.statement import TableName

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

_SHOWN_MAX = 5


def rows_of_files(
    scope: StatementScope,
    copy: CopyIntoTable,
    schema: TableSchema,
    options: ReadOptions,
    files: Sequence[SourceFile],
    copies: FileCopies,
    *,
    tolerant: bool,
) -> tuple[SourceRows, Origins]:
    """Return the lazy rows of files, and the numbers of the files. With `tolerant`, lines that
    can't be read are rows with a RECORD; otherwise they end the job. `copies` has the copies of
    files; more are added where Spark can't read the files.

    Raises UnknownNameError for a column that the table lacks, InvalidValueError for files without
    any column of the table, and for a first line that would become a row though it has names.
    """
    targets = _targets(copy, schema)
    reading = _Reading(scope, copy, options, files, tolerant, copies)
    with _read_errors(copy):
        rows = reading.by_name(targets) if options.by_name else reading.by_position(targets)
        origins = origins_of(rows.frame, reading.places)
        rows = replace(rows, frame=origins.of(rows.frame))
    return rows, origins


def _targets(copy: CopyIntoTable, schema: TableSchema) -> list[Column]:
    """The columns of the table that the statement loads."""
    if copy.columns is None:
        return list(schema.columns)
    by_name = {column.name.lower(): column for column in schema.columns}
    columns: list[Column] = []
    for name in copy.columns:
        column = by_name.get(name.lower())
        position = max(copy.text.find(name, copy.target_position), 0)
        if column is None:
            raise UnknownNameError(
                f"Column '{name}' does not exist in target table `{copy.target}`.",
                hint=nearest(name, schema.column_names, what="columns"),
                statement=copy.text,
                position=position,
            )
        if column in columns:
            raise InvalidValueError(
                f"Duplicate columns in column list: {name}.",
                hint="Leave one of them out.",
                statement=copy.text,
                position=position,
            )
        columns.append(column)
    return columns


@dataclass
class _Reading:
    """Reads files; of those that Spark can't read, the `copies`, which it makes."""

    scope: StatementScope
    copy: CopyIntoTable
    options: ReadOptions
    files: Sequence[SourceFile]
    tolerant: bool
    copies: FileCopies

    @property
    def paths(self) -> list[str]:
        """The paths that are read."""
        return [self.copies.paths.get(file.place, file.place) for file in self.files]

    @property
    def places(self) -> dict[str, str]:
        """The places of the files, by the plain paths that are read."""
        places = (file.place for file in self.files)
        return dict(zip(map(plain_path, self.paths), places, strict=True))

    def by_position(self, targets: Sequence[Column]) -> SourceRows:
        """CSV files whose columns are those of the table, in order."""
        schema = text_schema([f"_c{number}" for number in range(len(targets))], {})
        frame = self._texts(schema)
        if not self.options.header_is_set:
            self._check_first_line(targets)
        return self._rows(frame, targets)

    def by_name(self, targets: Sequence[Column]) -> SourceRows:
        """Files whose columns have names. Columns that the files lack get their default or NULL."""
        if self.options.type == "JSON":
            own = {
                column.name: spark_type(column.type)
                for column in targets
                if not isinstance(column.type, AtomicType)
            }
            frame = self._texts(text_schema([column.name for column in targets], own))
            self._check_keys(targets)
            return self._rows(frame, targets)
        frame = self._avro() if self.options.type == "AVRO" else self._named()
        names = [name for name in frame.columns if name != FILE_URI]
        columns = self._matched(targets, names)
        if self.options.type == "CSV":
            frame = self._texts(text_schema(names, {}))
        more = [name for name in (RECORD, FILE_URI) if name in frame.columns]
        numbered = frame.toDF(*(f"c{number}" for number in range(len(names))), *more)
        chosen = [f"c{number}" for number in columns]
        return self._rows(numbered.select(*chosen, *more), list(columns.values()))

    def _named(self) -> DataFrame:
        """The rows with the names and types of the files; those of CSV are texts."""
        return self._read(self._sparks() | {"inferSchema": "false"})

    def _avro(self) -> DataFrame:
        """The rows of Avro files, which Python tasks read on this machine."""
        if not runs_here(self.scope.spark):
            return self._named()
        if _is_elsewhere(self.paths):
            self.copies.add(self.scope, self.files)
        return read_avro(self.scope.spark, list(map(plain_path, self.paths)))

    def _rows(self, frame: DataFrame, columns: Sequence[Column]) -> SourceRows:
        options = self.options
        if options.type == "CSV":
            frame = without_empty_values(frame, [column.type for column in columns])
        return SourceRows(frame, tuple(columns), options.is_text, options.replaces_characters)

    def _sparks(self) -> dict[str, str]:
        """The options of Spark's reader."""
        options = self.options
        sparks = dict(options.spark)
        if options.type == "CSV":
            sparks["nullValue"] = UNQUOTED_EMPTY
            sparks["header"] = "true" if options.has_header else "false"
            if options.by_name:
                sparks["enforceSchema"] = "false"  # each file's header is compared
            if "escape" not in sparks:
                sparks = self._quoting | sparks
        return sparks

    @cached_property
    def _quoting(self) -> dict[str, str]:
        """How the files have quotes in values, where the statement doesn't say it."""
        sparks = self.options.spark
        return quoting(self._beginnings(), sparks.get("sep", ","), sparks.get("quote", '"'))

    def _beginnings(self) -> Iterator[str]:
        """The beginnings of the files as text, of the first ones at least. Raises InvalidValueError
        for CSV files in UTF-16, if the statement does not say so."""
        encoding = self.options.spark.get("encoding", "")
        places = map(plain_path, self.paths)
        for text in beginnings(self.scope.catalog.stores, places, encoding):
            if text.startswith(MARK) and self.options.type == "CSV":
                raise InvalidValueError(
                    "The files are in UTF-16, as the first two bytes of one say.",
                    hint="Nothing was written. Add ENCODING = 'UTF-16' to FILE_FORMAT.",
                    statement=self.copy.text,
                    position=self.copy.format.position,
                )
            yield text

    def _texts(self, schema: StructType) -> DataFrame:
        """The rows of text files with the schema of `text_schema`; RECORD if `tolerant`."""
        sparks = self._sparks() | {"columnPruning": "false"}  # else Spark counts no values
        # Else Spark fills a column of the name in its own setting, and leaves out what it has.
        sparks["columnNameOfCorruptRecord"] = RECORD
        if self.tolerant:
            sparks["mode"] = "PERMISSIVE"
        else:
            sparks["mode"], schema = "FAILFAST", without_record(schema)
        return with_nulls(self._read(sparks, schema), self.options.nulls)

    def _read(self, options: Mapping[str, str], schema: StructType | None = None) -> DataFrame:
        """The frame of the files; of copies where Spark has no jar for their store."""
        scope, kind = self.scope, self.options.type.lower()
        try:
            return read_files(scope.spark, kind, self.paths, options, schema)
        except Exception as error:
            if not lacks_file_system(error):
                raise
            self.copies.add(self.scope, self.files)
            return read_files(scope.spark, kind, self.paths, options, schema)

    def _first_lines(self) -> list[str]:
        options = {
            key: self.options.spark[key] for key in ("encoding",) if key in self.options.spark
        }
        return first_lines(self.scope.spark, self.paths[0], options)

    def _check_first_line(self, targets: Sequence[Column]) -> None:
        """Raise InvalidValueError for a first line with the names of the table's columns."""
        lines = self._first_lines()
        separator = self.options.spark.get("sep", ",")
        quote = self.options.spark.get("quote", '"')
        values = (
            [value.strip().strip(quote) for value in lines[0].split(separator)] if lines else []
        )
        names = {column.name.lower() for column in targets}
        if values and all(value.lower() in names for value in values):
            raise InvalidValueError(
                f"The first line of `{self.files[0].name}` has names of columns: "
                f"{', '.join(values[:_SHOWN_MAX])}.",
                hint="Nothing was written. SKIP_HEADER = 1 in FILE_FORMAT leaves the line out, "
                "PARSE_HEADER = TRUE matches columns by these names. SKIP_HEADER = 0 loads it as a "
                "row.",
                statement=self.copy.text,
                position=self.copy.format.position,
            )

    def _check_keys(self, targets: Sequence[Column]) -> None:
        """Raise InvalidValueError for JSON without any key that is a column, and note keys that are
        none. As for Spark and the connector, keys have the case of the column's name."""
        is_one = self.options.spark.get("multiLine") == "true"
        names = {column.name for column in targets}
        keys: dict[str, None] = {}
        is_whole = True  # about malformed lines is ON_ERROR
        for text in self._beginnings():
            values = whole_values(text) if is_one else values_of_lines(text)
            for value in values:
                is_whole = is_whole and isinstance(value, dict)
                keys.update(dict.fromkeys(value if isinstance(value, dict) else ()))
        if keys and is_whole and not keys.keys() & names:
            raise self._no_column(targets, ", ".join(f"`{key}`" for key in sorted(keys)))
        self._note_left_out([key for key in keys if key not in names])

    def _note_left_out(self, names: Sequence[str]) -> None:
        if names:
            shown = ", ".join(f"`{name}`" for name in names[:_SHOWN_MAX])
            self.scope.note(
                f"{count_text(len(names), 'column')} of the files left out, which the table lacks: "
                f"{shown}{', …' if len(names) > _SHOWN_MAX else ''}."
            )

    def _matched(self, targets: Sequence[Column], names: Sequence[str]) -> dict[int, Column]:
        """The table's columns by the places of their values in the files."""
        places = {name.lower(): number for number, name in enumerate(names)}
        matches = {
            places[column.name.lower()]: column
            for column in targets
            if column.name.lower() in places
        }
        if not matches:
            raise self._no_column(targets, ", ".join(f"`{name}`" for name in names[:_SHOWN_MAX]))
        more = [name for number, name in enumerate(names) if number not in matches]
        lacking = [column.name for column in targets if column not in matches.values()]
        self._note_left_out(more)
        if lacking:
            shown = ", ".join(f"`{name}`" for name in lacking[:_SHOWN_MAX])
            self.scope.note(f"The files have no {shown}: the default, or NULL, is stored.")
        return matches

    def _no_column(self, targets: Sequence[Column], shown: str) -> InvalidValueError:
        listed = ", ".join(f"`{column.name}`" for column in targets[:_SHOWN_MAX])
        return InvalidValueError(
            f"`{self.files[0].name}` has no column of `{self.copy.target}`: it has {shown}.",
            hint=f"Nothing was written. The table's are {listed}"
            + (", in this case. " if self.options.type == "JSON" else ". ")
            + f"To rename columns, write INSERT INTO {self.copy.target} SELECT a AS b FROM "
            f"{self.options.type.lower()}.`path`.",
            statement=self.copy.text,
            position=self.copy.path_position,
        )


def _is_elsewhere(paths: Sequence[str]) -> bool:
    return not paths[0].startswith(("/", "file:"))


@contextmanager
def _read_errors(copy: CopyIntoTable) -> Iterator[None]:
    """Raise our errors for Spark's, about the statement's path."""
    try:
        yield
    except PaimonMagicsError:
        raise
    except Exception as error:
        ours = translate(error)
        kind = copy.format.type
        if kind == "AVRO" and "avro" in str(error).lower():
            raise SetupError(
                "Spark reads no Avro files here: its package spark-avro is missing.",
                hint="Start Spark with spark.jars.packages = org.apache.spark:spark-avro_2.13 of "
                "its own version.",
            ) from error
        if isinstance(ours, TableDamagedError):  # the footer can't be read
            raise InvalidValueError(
                f"`{copy.path}` can't be read as {kind}: {ours.message}",
                hint="Nothing was written. Correct TYPE, or name the files with PATTERN.",
                statement=copy.text,
                position=copy.path_position,
            ) from error
        raise located(ours, copy.text, copy.path_position) from error


COLUMNS = ("load_id", "rejected_at", "file_path", "record", "error")
"""The columns of such a table."""


def check_rejected(scope: StatementScope, copy: CopyIntoTable, name: TableName) -> None:
    """Raise InvalidValueError for a table that can't take rejected rows: the loaded one, or one of
    other columns. It need not exist."""
    full = scope.full_name(name)
    if copy.on_error == "ABORT_STATEMENT":
        raise InvalidValueError(
            "REJECTED_ROWS needs ON_ERROR = CONTINUE or SKIP_FILE: otherwise the first row that "
            "can't be loaded ends the statement.",
            hint="Add ON_ERROR = CONTINUE.",
            statement=copy.text,
            position=max(copy.text.upper().find("REJECTED_ROWS"), 0),
        )
    if full == scope.full_name(copy.target):
        raise InvalidValueError(
            f"REJECTED_ROWS can't be `{full}`, which is loaded.",
            hint="Name another table; it is created where it is missing.",
            statement=copy.text,
            position=max(copy.text.upper().find("REJECTED_ROWS"), 0),
        )
    if not scope.catalog.table_exists(full):
        return
    names = scope.catalog.load(full).schema.column_names
    lacking = [column for column in COLUMNS if column not in names]
    if lacking:
        raise InvalidValueError(
            f"`{full}` has no column `{lacking[0]}`, so that it can't take rejected rows.",
            hint=f"Name a new table, which gets the columns {', '.join(COLUMNS)}.",
            statement=copy.text,
            position=max(copy.text.upper().find("REJECTED_ROWS"), 0),
        )


def keep_rejected(scope: StatementScope, name: TableName, bad: DataFrame) -> None:
    """Add rows to the table for rejected rows, which is created where it is missing. Adds a
    note."""
    full = scope.full_name(name)
    if scope.catalog.table_exists(full):
        outcome = write_frame_to(scope, bad, full, "append")
    else:
        outcome = write_to_new(scope, bad, full, None, WantedTable(None, None, ()))
    rows = outcome.rows_written or 0
    count, verb = count_text(rows, "rejected row"), "is" if rows == 1 else "are"
    scope.note(f"{count} {verb} in `{full}` (snapshot {outcome.snapshot_id}).")
