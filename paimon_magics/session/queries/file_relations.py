"""Files that a query names by their format and path, as ``csv.`my.csv` ``.

Options of Spark's reader may follow the name: ``csv.`my.csv` WITH ('header' = 'false')``. Module
`csv_files` guesses those that a CSV file lacks. A relative path starts at Python's current folder,
the notebook's.
"""

from __future__ import annotations

import contextlib
import glob
import gzip
import io
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlparse

from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    SetupError,
    TableDamagedError,
    UnknownNameError,
    UnsupportedStatementError,
    likely_meant,
)
from paimon_magics.planning.copying.file_formats import reader_options
from paimon_magics.planning.formatting import count_text, shortened, size_text
from paimon_magics.session.queries.csv_files import (
    first_beginnings,
    separator_in,
    with_guesses,
)
from paimon_magics.session.queries.file_beginnings import SCHEME, lines_of_first_value
from paimon_magics.session.scope import StatementScope
from paimon_magics.spark.failures import translate
from paimon_magics.spark.files import CORRUPT, BadLines, bad_lines, file_frame, lacks_file_system
from paimon_magics.spark.sessions import runs_here
from paimon_magics.statements.statement import TableName, TableReference
from paimon_magics.tables.stores.store import OBJECT_SCHEMES, store_errors
from paimon_magics.temporary_folders import OwnedFolder

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame
    from paimon_magics.tables.stores.object_store import ObjectReader, ObjectStore


_FORMATS = ("parquet", "orc", "avro", "csv", "json", "text", "binaryfile")
_LAKES = ("delta", "iceberg", "hudi")
_OF_ENDING = {
    **{"csv": "csv", "tsv": "csv", "parquet": "parquet", "orc": "orc", "avro": "avro"},
    **{"json": "json", "jsonl": "json", "ndjson": "json", "txt": "text"},
}
"""What a URI begins with."""

_PATTERN = re.compile(r"[*?\[{]")


_PARQUET_TYPE = re.compile(r"\(([A-Z]\w*)")
_LOOKED_AT_FILES = 10  # of a folder; files of one folder have the same columns


_JARS = "Start Spark with the jars and keys of the store, as docs/stores.md shows"
_PART_BYTES = 8 << 20
_FREE_SHARE = 0.5
"""Upper bound on the share of the free disk that copies use."""


_LOOKED_AT_MAX = 10_000_000  # lines of a file on this machine, until its first bad one is numbered
_SHOWN_MAX = 60
_CSV_PRUNING = "columnPruning"


@dataclass(frozen=True, slots=True)
class FileRelation:
    """Files of a format (Spark's word, in lower case) at a path, with options of Spark's reader."""

    format: str
    path: str
    options: tuple[tuple[str, str], ...] = ()


def file_relation(reference: TableReference) -> FileRelation | None:
    """Return the files that a two-part name means; None if its first part is not a file format.
    Raises as `reader_options`, and UnsupportedStatementError for clauses that only tables have.
    """
    name = reference.name
    kind = (name.database or "").lower()
    if kind not in _FORMATS or name.branch is not None or name.system_table is not None:
        return None
    if reference.time_travel or reference.changes:
        raise UnsupportedStatementError(
            f"{name} names files, which have no snapshots and no changes.",
            hint="Leave out the clauses behind the path. Only tables have a past: "
            f"CREATE TABLE t AS SELECT * FROM {name}.",
        )
    options = reader_options(kind, reference.options)
    return FileRelation(kind, name.table, tuple(options.items()))


def file_meant(name: TableName) -> str:
    """The hint for a file that was named without its format, or with one that has more than files;
    "" if no file has the name."""
    kind = (name.database or "").lower()
    if kind in _LAKES and "/" in name.table:
        return (
            f"A path behind `{kind}.` is a table of another format. Where Spark has its package, "
            f"spark.read.format('{kind}').load('{name.table}') reads it: pass that DataFrame by "
            "frames={…}."
        )
    path = str(name).replace("`", "")
    ending = _OF_ENDING.get(path.removesuffix(".gz").rpartition(".")[2].lower())
    if ending is None or not os.path.exists(os.path.expanduser(path)):
        return ""
    return f"A file of that name exists: read it as {ending}.`{path}`."


def frame_of_files(scope: StatementScope, files: FileRelation) -> DataFrame:
    """Return the rows of the files as a lazy frame; adds a note on how a CSV file was read.

    Raises UnknownNameError if there is no file, InvalidValueError for a file of another format, and
    what `_staged` raises.
    """
    set_keys = {key.lower() for key, _ in files.options}
    options = dict(files.options)
    is_here = not SCHEME.match(files.path) and runs_here(scope.spark)
    path = _found_here(files.path) if is_here else files.path
    if files.format == "csv":
        is_seen = is_here or SCHEME.match(path) is not None
        seen_path = path.removeprefix("file://") if is_seen else ""
        options = with_guesses(scope, options, files.path, seen_path)
    if files.format == "json" and "multiline" not in set_keys:
        options |= _json_guesses(scope, files.path, path.removeprefix("file://"), is_here=is_here)
    reader = _reader_options(files.format, options)
    try:
        frame, path = _frame(scope, files, path, reader)
        _check_lines(scope, files.format, path, files.path, options, frame)
    except PaimonMagicsError:
        raise
    except Exception as error:
        ours = translate(error)
        condition = getattr(error, "getCondition", lambda: "")()
        if condition == "PATH_NOT_FOUND":
            raise missing_file(files.path) from error
        if condition == "PARQUET_TYPE_ILLEGAL":
            raise _unknown_type(files.path, path, ours) from error
        if isinstance(ours, TableDamagedError):  # the footer can't be read
            raise InvalidValueError(
                f"`{files.path}` can't be read as {files.format}: {ours.message}",
                hint="Write the file's format before the dot, as in csv.`my.csv`.",
            ) from error
        raise ours from error
    if files.format == "csv" and "sep" not in set_keys and len(frame.columns) == 1:
        separator = separator_in(frame.columns[0])
        if separator is not None:
            scope.note(f"It has one column; WITH ('sep' = '{separator}') splits it into several.")
    return frame


def _frame(
    scope: StatementScope, files: FileRelation, path: str, options: Mapping[str, str]
) -> tuple[DataFrame, str]:
    """The frame of the files, and the path that Spark reads: that of a copy where it has no jar for
    the store."""
    try:
        return file_frame(scope.spark, files.format, path, options), path
    except Exception as error:
        if not lacks_file_system(error):
            raise
    copy = _staged(scope, files.path)
    return file_frame(scope.spark, files.format, copy, options), copy


def _found_here(path: str) -> str:
    """The absolute local path; raises UnknownNameError if nothing is there."""
    whole = os.path.abspath(os.path.expanduser(path))
    # An exact name may contain a pattern's characters, which Spark would take for a pattern.
    if os.path.exists(whole):
        whole = re.sub(r"([*?\[\]{}\\])", r"\\\1", whole)
    elif "{" not in whole and not glob.glob(whole):
        raise missing_file(path)
    return f"file://{whole}"


def missing_file(path: str) -> UnknownNameError:
    """The error for a path where there is nothing, with a similar name."""
    whole = Path(os.path.abspath(os.path.expanduser(path)))
    hint = "Check the path."
    if not SCHEME.match(path):
        if whole.parent.is_dir():
            hint = (
                likely_meant(whole.name, (entry.name for entry in whole.parent.iterdir())) or hint
            )
        else:
            hint = f"There is no folder {whole.parent} either."
        if not os.path.isabs(path):
            hint = f"Relative paths begin at {Path.cwd()}. {hint}"
    return UnknownNameError(f"There is no file or folder `{path}`.", hint=hint)


def _unknown_type(shown: str, path: str, error: PaimonMagicsError) -> InvalidValueError:
    """The error for a Parquet file with a type that Spark lacks, such as TIME; names the columns of
    a file on this machine. `error` is Spark's, with the type: `INT64 (TIME(MICROS,true))`."""
    kind = _PARQUET_TYPE.search(error.message)
    name = "" if kind is None else kind[1]
    columns = _columns_of_type(path, name)
    listed = " and ".join(f"`{column}`" for column in columns)
    what = (
        f"Columns {listed}" if len(columns) > 1 else f"Column {listed}" if columns else "A column"
    )
    has = "have" if len(columns) > 1 else "has"
    return InvalidValueError(
        f"{what} of `{shown}` {has} Parquet's type {name}, which Spark can't read.",
        hint=f"Read the file in Python: frame = pyarrow.parquet.read_table({shown!r}); a query or "
        "session.write takes the frame, with a time of day as a number of milliseconds. Or leave "
        "the column out, with the argument `columns`.",
    )


def _columns_of_type(path: str, name: str) -> list[str]:
    """The columns of the first Parquet file at a local path, pattern or folder that have a logical
    type of that name; [] where nothing can be told."""
    import pyarrow.parquet as pq

    for file in _local_files(path.removeprefix("file://")):
        with contextlib.suppress(Exception):  # a hint: Spark has said what is wrong
            schema = pq.ParquetFile(file).schema
            leaves = [schema.column(index) for index in range(len(schema))]
            # As in `Time(isAdjustedToUTC=true, timeUnit=milliseconds)`.
            kinds = [str(leaf.logical_type).partition("(")[0].upper() for leaf in leaves]
            of_kind = [leaf.path for leaf, kind in zip(leaves, kinds, strict=True) if kind == name]
            if of_kind:
                return of_kind
    return []


def _local_files(path: str) -> Iterator[str]:
    """The first visible files at a local path, pattern or folder."""
    plain = re.sub(r"\\(.)", r"\1", path)  # Spark escapes a pattern's characters in a name
    for name in [plain] if plain != path else sorted(glob.glob(path)):
        if os.path.isdir(name):
            below = glob.iglob(os.path.join(glob.escape(name), "**", "[!._]*"), recursive=True)
            yield from islice(filter(os.path.isfile, below), _LOOKED_AT_FILES)
        elif os.path.isfile(name):
            yield name


def _json_guesses(scope: StatementScope, shown: str, path: str, *, is_here: bool) -> dict[str, str]:
    """The options for a JSON file that holds a list, or an object on several lines, which Spark
    can't read line by line, only as a whole. Raises InvalidValueError for several such objects: of
    these, Spark would read the first alone."""
    for text in first_beginnings(scope, path) if is_here or SCHEME.match(path) else ():
        lines, has_more = lines_of_first_value(text)
        if lines > 1 and has_more:
            raise InvalidValueError(
                f"`{shown}` has several JSON values, and the first one takes {lines} lines. Spark "
                "reads one value of each line, or one of each file.",
                hint="Write each value on a line of its own, or all of them as one list.",
            )
        if lines > 1 or text.lstrip().startswith("["):
            return {"multiLine": "true"}
    return {}


# Files of an object store that Spark has no jars for: this process copies them beside Spark, with
# the catalog's keys. A copy lives in a temporary folder as long as the connection.


def _staged(scope: StatementScope, path: str) -> str:
    """Copy the object, or all objects of the folder, at `path`; return the `file:` URI of the copy.
    Adds a note.

    Raises UnknownNameError if there is nothing. Raises SetupError if the store refuses, if Spark
    runs on other machines, or if it is not an object store. Raises InvalidValueError for a pattern
    and for more bytes than the disk can spare.
    """
    if path.partition("://")[0] not in OBJECT_SCHEMES or not runs_here(scope.spark):
        raise SetupError(f"Spark has no jar for the store of `{path}`.", hint=f"{_JARS}.")
    if _PATTERN.search(path):
        raise InvalidValueError(
            f"`{path}` is a pattern, and Spark has no jar for its store.",
            hint=f"Name one file or a folder, which is copied; or {_JARS[0].lower()}{_JARS[1:]}.",
        )
    store = cast("ObjectStore", scope.catalog.stores.of(path))
    with store_errors(f"Copying `{path}` to this machine"):
        objects = _objects(store, path)
        if not objects:
            raise UnknownNameError(f"There is no file or folder `{path}`.", hint="Check the path.")
    copy, owned = _copied(scope, path, objects)
    scope.connection.state.keep_spooled([owned])
    return copy


def copied_files(
    scope: StatementScope, folder: str, paths: Sequence[str]
) -> tuple[str, OwnedFolder]:
    """Copy objects of a folder of an object store; return the `file:` URI of the folder with the
    copies, and what removes them when nothing refers to it. Adds a note.

    Raises SetupError if the store refuses, or if Spark runs on other machines,
    InvalidValueError for more bytes than the disk can spare.
    """
    if folder.partition("://")[0] not in OBJECT_SCHEMES or not runs_here(scope.spark):
        raise SetupError(f"Spark has no jar for the store of `{folder}`.", hint=f"{_JARS}.")
    store = cast("ObjectStore", scope.catalog.stores.of(folder))
    with store_errors(f"Copying `{folder}` to this machine"):
        objects = {path[len(folder) :].lstrip("/"): store.open(path) for path in paths}
    return _copied(scope, folder, objects)


def _copied(
    scope: StatementScope, path: str, objects: dict[str, ObjectReader]
) -> tuple[str, OwnedFolder]:
    with store_errors(f"Copying `{path}` to this machine"):
        size_bytes = sum(reader.seek(0, io.SEEK_END) for reader in objects.values())
        owned = OwnedFolder("files")
        _check_disk(path, size_bytes, owned.path)
        root = owned.path / PurePosixPath(path).name
        count = len(objects)
        while objects:  # a reader keeps some of what it has read
            below, reader = objects.popitem()
            _copy(reader, root / below)
    scope.note(
        f"Spark has no jar for the store of `{path}`, so {count_text(count, 'file')} "
        f"({size_text(size_bytes)}) were copied to this machine."
    )
    return f"file://{root}", owned  # not escaped: Spark takes it as it is


def _objects(store: ObjectStore, path: str) -> dict[str, ObjectReader]:
    """Readers of the object at `path`, by "", or of all objects below it, by their paths there."""
    whole = path.rstrip("/")
    if not path.endswith("/"):
        with contextlib.suppress(FileNotFoundError):
            return {"": store.open(whole)}
    files = _shown(whole, store.files_below(whole))
    return {str(PurePosixPath(file).relative_to(whole)): store.open(file) for file in files}


def _shown(folder: str, files: list[str]) -> list[str]:
    """The files that Spark would read: none whose name or folder is hidden, as `_SUCCESS` is
    (`HadoopFSUtils.shouldFilterOutPathName`)."""
    return [
        file
        for file in files
        if not any(
            part.startswith(".") or (part.startswith("_") and "=" not in part)
            for part in file[len(folder) :].split("/")
        )
    ]


def _check_disk(path: str, size_bytes: int, folder: Path) -> None:
    spare_bytes = int(shutil.disk_usage(folder).free * _FREE_SHARE)
    if size_bytes > spare_bytes:
        raise InvalidValueError(
            f"`{path}` has {size_text(size_bytes)}, and Spark has no jar for its store. A copy may "
            f"take {size_text(spare_bytes)} of the disk of {folder.parent}.",
            hint=f"{_JARS}, or set the environment variable TMPDIR to a larger disk.",
        )


def _copy(reader: ObjectReader, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    reader.seek(0)
    with open(target, "wb") as file:
        while part := reader.read(_PART_BYTES):
            file.write(part)


# Lines of CSV and JSON files that don't fit the columns: counted, left out, or refused.
#
# Spark's mode PERMISSIVE, its default, puts NULL where a line has too few values, and cuts surplus
# values, without a warning; bytes that are not characters become U+FFFD. Here a job counts such
# lines before the statement runs, and they are refused if they would become rows of a table. The
# modes DROPMALFORMED and FAILFAST hold for all lines, whatever columns a statement reads. With an
# explicit PERMISSIVE nothing is checked.


def _reader_options(kind: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options for Spark's reader that let a mode hold for all lines. Spark alone looks only at
    the columns that a statement reads. In FAILFAST its error for a JSON file would not name the
    line, so `_check_lines` refuses the file. Raises InvalidValueError for an unknown mode."""
    mode = _mode(options)
    if mode not in ("", "PERMISSIVE", "DROPMALFORMED", "FAILFAST"):
        raise InvalidValueError(
            f"The option `mode` of a file can't be '{mode}'.",
            hint="Its values are PERMISSIVE, DROPMALFORMED and FAILFAST.",
        )
    if kind == "csv" and mode in ("DROPMALFORMED", "FAILFAST"):
        return {**options, _CSV_PRUNING: "false"}
    if kind == "json" and mode == "FAILFAST":
        return {key: value for key, value in options.items() if key.lower() != "mode"}
    return dict(options)


def _check_lines(
    scope: StatementScope,
    kind: str,
    path: str,
    shown: str,
    options: Mapping[str, str],
    frame: DataFrame,
) -> None:
    """Report how many lines of files don't fit the columns of `frame`, with an example; `shown` is
    the path as the user wrote it. Raises InvalidValueError for such lines in the mode FAILFAST, and
    without a mode where they would fill a table."""
    mode = _mode(options)
    if kind not in ("csv", "json") or mode == "PERMISSIVE" or not frame.columns:
        return
    if kind == "json" and not mode and CORRUPT not in frame.columns:
        return  # Spark has read all lines already, to find their columns
    if frame.columns == [CORRUPT]:
        return  # the rows say it themselves
    lines = bad_lines(scope.spark, kind, path, options, frame.schema)
    if not mode and scope.fills_table:
        mode = "FAILFAST"
    notes = _notes(lines, kind, shown, len(frame.columns), mode)
    if mode == "FAILFAST" and notes:
        raise InvalidValueError(
            " ".join(notes),
            hint="Nothing was written. Correct the file, or set its 'encoding' or 'sep' by WITH "
            "(…) after the path. With 'mode' = 'DROPMALFORMED' such lines are left out, with "
            "'PERMISSIVE' they are stored as Spark reads them.",
        )
    for note in notes:
        scope.note(note)


def _mode(options: Mapping[str, str]) -> str:
    by_name = {key.lower(): value for key, value in options.items()}
    return str(by_name.get("mode", "")).upper()


def _notes(bad: BadLines, kind: str, shown: str, columns: int, mode: str) -> list[str]:
    notes = []
    if bad.unfit:
        lines = count_text(bad.unfit, "line" if kind == "csv" else "object")
        verb = "does" if bad.unfit == 1 else "do"
        fits = f"{columns} columns" if kind == "csv" else "columns"
        became = {
            "DROPMALFORMED": " and " + ("was" if bad.unfit == 1 else "were") + " left out",
            "FAILFAST": "",
        }.get(mode, "; missing values are NULL, those beyond the last column are cut")
        if kind == "json" and not mode:
            became = "; their values are NULL"
        notes.append(
            f"{lines} of `{shown}` {verb} not fit its {fits}{became}: {_place(bad.unfit_at)}."
        )
        if not mode:
            notes[-1] += (
                " WITH ('mode' = 'FAILFAST') after the path refuses them, 'DROPMALFORMED' leaves "
                "them out."
            )
    if bad.undecoded:
        rows = count_text(bad.undecoded, "row")
        has = "has" if bad.undecoded == 1 else "have"
        notes.append(
            f"{rows} of `{shown}` {has} bytes that are not characters of its encoding, as in "
            f"{_file(bad.undecoded_at[0])}: {shortened(bad.undecoded_at[1], _SHOWN_MAX)!r}. "
            f"WITH ('encoding' = '{_encoding_meant(bad.undecoded_at[1])}') is for files that are "
            "not UTF-8."
        )
    return notes


def _encoding_meant(text: str) -> str:
    """The encoding that the file of an undecoded text may have."""
    return "UTF-16" if "\0" in text else "ISO-8859-1"


def _place(at: tuple[str, str]) -> str:
    path, line = at
    number = _line_number(path, line)
    text = shortened(line.strip(), _SHOWN_MAX)
    return f"{_file(path)}, {'' if number is None else f'line {number:,}, '}{text!r}"


def _file(path: str) -> str:
    return unquote(path.rpartition("/")[2])


def _line_number(path: str, line: str) -> int | None:
    """The number of a line in a file on this machine; None if it is elsewhere, or unknown."""
    place = urlparse(path)
    if place.scheme != "file":
        return None
    name = unquote(place.path)
    wanted = line.rstrip("\r\n").encode()
    try:
        with gzip.open(name) if name.endswith(".gz") else open(name, "rb") as file:
            for number, content in enumerate(islice(file, _LOOKED_AT_MAX), 1):
                if content.rstrip(b"\r\n") == wanted:
                    return number
    except OSError:
        return None
    return None
