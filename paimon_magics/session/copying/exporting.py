"""COPY INTO files: the rows of a table or query, in files of a folder, or in one file.

The files are complete before they have their names: they are written beside the target and moved
there, or for an object store written on this machine and uploaded. So a failure leaves what was
there before, and OVERWRITE removes nothing before the new files are complete.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    SetupError,
    UnconfirmedError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.copying.file_formats import TEXT_TYPES, has_zone, write_options
from paimon_magics.planning.formatting import count_text
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.queries.file_beginnings import SCHEME
from paimon_magics.session.queries.frames import frame_of_query
from paimon_magics.session.scope import StatementScope, errors_located, located
from paimon_magics.spark.exported_rows import columns_without_text, write_files
from paimon_magics.spark.failures import translate
from paimon_magics.spark.sessions import runs_here
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.copying import CopyIntoFiles
from paimon_magics.tables.stores.paths import canonical_location, plain_location
from paimon_magics.tables.stores.store import OBJECT_SCHEMES, store_errors
from paimon_magics.temporary_folders import OwnedFolder

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame
    from paimon_magics.tables.stores.object_store import ObjectStore

KIND = "COPY INTO files"
_OF_EXPORTS = re.compile(r"part-|_SUCCESS$|\.part-.*\.crc$|\._SUCCESS\.crc$")


@dataclass(frozen=True, slots=True)
class _Target:
    """Where files go: an absolute path of this machine, or a URI."""

    place: str
    is_local: bool

    @property
    def is_object_store(self) -> bool:
        return self.place.partition("://")[0] in OBJECT_SCHEMES


def run_export(
    scope: StatementScope, copy: CopyIntoFiles, parameters: Mapping[str, object]
) -> Outcome:
    """Write the files; return one row: where they are, and the numbers of files and rows.

    Raises InvalidValueError for options, and for a target that exists or must not be replaced, and
    UnknownNameError for a column, before anything is written. Raises JobError, SetupError.
    """
    frame, options, target = _planned(scope, copy, parameters)
    with _write_errors(copy):
        if target.is_object_store and runs_here(scope.spark):
            files, rows = _upload(scope, copy, frame, options, target)
        elif target.is_local:
            files, rows = _move(copy, frame, options, target)
        else:
            files, rows = _written_by_spark(scope, copy, frame, options, target)
    table = pa.table(
        {
            "output_path": pa.array([copy.path]),
            "file_count": pa.array([files], type=pa.int32()),
            "rows_written": pa.array([rows], type=pa.int64()),
        }
    )
    outcome = Outcome.of_rows(scope.spark, copy.text, KIND, table, query="")
    outcome.rows_written, outcome.files_written = rows, files
    return outcome


def export_lines(
    scope: StatementScope, copy: CopyIntoFiles, parameters: Mapping[str, object]
) -> list[str]:
    """Check an export; return a line for each decision. Writes nothing."""
    frame, _, target = _planned(scope, copy, parameters)
    lines = [
        f"{copy.path}: {copy.format.type} files with {count_text(len(frame.columns), 'column')}."
    ]
    if copy.single:
        lines.append("One task writes one file.")
    if copy.partition_by:
        lines.append(f"Folders by {', '.join(copy.partition_by)}.")
    there = _files_there(scope, target)
    if there:
        lines.append(f"{count_text(len(there), 'file')} would be replaced.")
    return lines


def unconfirmed_export(scope: StatementScope, copy: CopyIntoFiles) -> UnconfirmedError | None:
    """The question before OVERWRITE removes files that no export has written."""
    if not copy.overwrite:
        return None
    write_options(copy.format, copy.text)  # nobody confirms what is refused then
    with errors_located(copy.text, copy.path_position):
        target = _target(scope, copy)
        _check_target(scope, copy, target)
    others = [
        file
        for file in _files_there(scope, target)
        if file != target.place and not _OF_EXPORTS.match(file.rpartition("/")[2])
    ]
    if not others:
        return None
    return UnconfirmedError(
        f"OVERWRITE = TRUE removes {count_text(len(others), 'file')} of `{copy.path}` that no "
        f"export has written, such as {others[0].rpartition('/')[2]}.",
        hint="To run it, begin the cell with %%paimon --yes, or give session.run confirm=True. Or "
        "name another folder.",
        statement=copy.text,
        position=copy.path_position,
    )


def _planned(
    scope: StatementScope, copy: CopyIntoFiles, parameters: Mapping[str, object]
) -> tuple[DataFrame, dict[str, str], _Target]:
    options = write_options(copy.format, copy.text)
    with errors_located(copy.text, copy.path_position):
        target = _target(scope, copy)
        _check_target(scope, copy, target)
    try:
        frame = frame_of_query(scope, copy.query_text, copy.query, parameters)
    except PaimonMagicsError as error:
        if copy.query_text != copy.text:  # the name of a table
            start = copy.query.references[0].range.start if copy.query.references else 0
            error.statement = copy.text
            error.position = copy.text.find(copy.query_text[start:], copy.path_position)
        raise
    return frame, options, _checked_columns(copy, frame, target)


def _checked_columns(copy: CopyIntoFiles, frame: DataFrame, target: _Target) -> _Target:
    """The target. Raises errors for columns that files can't have."""
    names = [name.lower() for name in frame.columns]
    for name in copy.partition_by:
        if name.lower() not in names:
            raise UnknownNameError(
                f"PARTITION BY names `{name}`, which the rows do not have.",
                hint=nearest(name, frame.columns, what="columns"),
                statement=copy.text,
                position=max(copy.text.rfind(name), 0),
            )
    if copy.partition_by and len(copy.partition_by) == len(names):
        raise InvalidValueError(
            "PARTITION BY names all columns, so that no column is left for the files.",
            hint="Leave one of them out.",
            statement=copy.text,
            position=copy.path_position,
        )
    if copy.format.type in TEXT_TYPES:
        _check_texts(copy, frame)
        _check_zone(copy, frame)
    repeated = next((name for name in frame.columns if names.count(name.lower()) > 1), None)
    if repeated is not None and copy.format.type != "CSV":
        raise InvalidValueError(
            f"Two columns are called `{repeated}`.",
            hint="Give one of them another name with AS.",
            statement=copy.text,
            position=copy.path_position,
        )
    return target


def _check_texts(copy: CopyIntoFiles, frame: DataFrame) -> None:
    """Raise UnsupportedStatementError for columns whose values would be other ones when the files
    are loaded again."""
    kind = copy.format.type
    for name, type_ in columns_without_text(frame, kind.lower()).items():
        instead = f"base64({quoted(name)}) AS {quoted(name)}"
        if type_ != "binary":
            instead = f"to_json({quoted(name)}) AS {quoted(name)}"
        raise UnsupportedStatementError(
            f"{kind} files have no values for the column `{name}`, which is {type_.upper()}.",
            hint=f"Nothing was written. Write TYPE = PARQUET, or COPY INTO … FROM (SELECT {instead}"
            + (", …), and load it with unbase64." if type_ == "binary" else ", …)."),
            statement=copy.text,
            position=copy.format.position,
        )


def _check_zone(copy: CopyIntoFiles, frame: DataFrame) -> None:
    """Raise InvalidValueError for a format of times that has a zone, if a column has none."""
    pattern = str(dict(copy.format.options).get("TIMESTAMP_FORMAT", ""))
    for field in frame.schema if has_zone(pattern) else ():
        if "timestamp_ntz" in field.dataType.simpleString():
            raise InvalidValueError(
                f"TIMESTAMP_FORMAT = '{pattern}' has a zone, and the column `{field.name}` is "
                "TIMESTAMP_NTZ, which has none.",
                hint="Nothing was written. Leave the zone out of the format, or write "
                f"CAST({quoted(field.name)} AS TIMESTAMP), the time in the session's zone.",
                statement=copy.text,
                position=copy.format.position,
            )


def _target(scope: StatementScope, copy: CopyIntoFiles) -> _Target:
    path = copy.path
    if SCHEME.match(path) and not path.lower().startswith("file:"):
        return _Target(plain_location(path) if "://" in path else path.rstrip("/"), False)
    if not runs_here(scope.spark):
        return _Target(path, False)
    plain = os.path.expanduser(re.sub(r"^(?i:file:)?//*", "/", path))
    return _Target(os.path.realpath(plain), True)


def _check_target(scope: StatementScope, copy: CopyIntoFiles, target: _Target) -> None:
    """Raise InvalidValueError for a target that exists already or that must not be replaced."""
    if copy.single and copy.partition_by:
        raise InvalidValueError(
            "SINGLE = TRUE and PARTITION BY contradict each other: partitions are folders.",
            hint="Leave one of them out.",
        )
    warehouse = canonical_location(str(scope.catalog.warehouse)).rstrip("/")
    place = canonical_location(target.place).rstrip("/")  # s3a:// names the bucket of s3://
    if target.is_local:
        guarded = [warehouse, os.path.realpath("."), os.path.realpath(os.path.expanduser("~"))]
    else:
        guarded = [warehouse]
        if target.place.count("/") < 3:
            raise InvalidValueError(
                f"`{copy.path}` is a whole bucket.", hint="Name a folder below it."
            )
    is_inside = place.startswith(f"{warehouse}/")
    above = next((k for k in guarded if f"{k}/".startswith(f"{place}/")), None)
    if is_inside or above == warehouse:
        raise InvalidValueError(
            f"`{copy.path}` is a place of the warehouse {warehouse}, whose files are tables'.",
            hint="Name a folder outside of it.",
        )
    if above is not None and not copy.single:
        raise InvalidValueError(
            f"`{copy.path}` is {above}, or a folder above it.", hint="Name a folder for the files."
        )
    if copy.single and target.is_local and os.path.isdir(target.place):
        raise InvalidValueError(
            f"`{copy.path}` is a folder, and SINGLE = TRUE writes one file of that name.",
            hint=f"Name the file: '{copy.path.rstrip('/')}/rows.{copy.format.type.lower()}'.",
        )
    if not copy.overwrite and _exists(scope, target):
        raise InvalidValueError(
            f"`{copy.path}` exists already.",
            hint="Nothing was written. Add OVERWRITE = TRUE, which replaces it, or name another "
            "path.",
        )


def _exists(scope: StatementScope, target: _Target) -> bool:
    return os.path.lexists(target.place) if target.is_local else bool(_files_there(scope, target))


def _files_there(scope: StatementScope, target: _Target) -> list[str]:
    """The files at the target; [] where only Spark can tell."""
    if not (target.is_local or target.is_object_store):
        return []
    if target.is_local and os.path.isfile(target.place):
        return [target.place]
    store = scope.catalog.stores.of(target.place)
    with store_errors(f"Listing `{target.place}`"):
        files = store.files_below(target.place)
        if not target.is_local and store.size(target.place) is not None:
            files = [target.place, *files]
    return files


def _job(copy: CopyIntoFiles, frame: DataFrame, options: Mapping[str, str], folder: str) -> int:
    return write_files(
        frame,
        copy.format.type.lower(),
        folder,
        options,
        partition_by=copy.partition_by,
        single=copy.single,
    )


def _data_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("part-*") if file.is_file())


def _move(
    copy: CopyIntoFiles, frame: DataFrame, options: Mapping[str, str], target: _Target
) -> tuple[int, int]:
    """Write the files beside the target, and move them there; return their number and that of the
    rows."""
    place = Path(target.place)
    place.parent.mkdir(parents=True, exist_ok=True)
    stage = place.parent / f".{place.name}.{uuid.uuid4().hex}"
    try:
        rows = _job(copy, frame, options, f"file://{stage}")
        files = _data_files(stage)
        if copy.single:
            os.replace(files[0], place)
        else:
            _swap(stage, place)
        return len(files), rows
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _swap(stage: Path, place: Path) -> None:
    """Put a folder in the place of what is there."""
    before = stage.with_name(f"{stage.name}.old")
    is_there = os.path.lexists(place)
    if is_there:
        os.rename(place, before)
    try:
        os.rename(stage, place)
    except OSError:
        if is_there:
            os.rename(before, place)
        raise
    if before.is_dir():
        shutil.rmtree(before, ignore_errors=True)
    elif is_there:
        before.unlink()


def _upload(
    scope: StatementScope,
    copy: CopyIntoFiles,
    frame: DataFrame,
    options: Mapping[str, str],
    target: _Target,
) -> tuple[int, int]:
    """Write the files on this machine, upload them with the catalog's keys, and then remove what
    was there; return the number of files and of rows."""
    store = cast("ObjectStore", scope.catalog.stores.of(target.place))
    there = _files_there(scope, target)
    owned = OwnedFolder("export")
    uploaded: list[str] = []
    try:
        folder = owned.path / "files"
        rows = _job(copy, frame, options, f"file://{folder}")
        files = _data_files(folder)
        with store_errors(f"Uploading files to `{copy.path}`"):
            for file in files:
                name = "" if copy.single else f"/{file.relative_to(folder)}"
                uploaded.append(f"{target.place}{name}")
                store.upload(file, uploaded[-1])
            store.delete(sorted(set(there) - set(uploaded)))
        return len(files), rows
    except BaseException:
        with suppress(SetupError, OSError):
            store.delete(sorted(set(uploaded) - set(there)))
        raise
    finally:
        owned.remove()


def _written_by_spark(
    scope: StatementScope,
    copy: CopyIntoFiles,
    frame: DataFrame,
    options: Mapping[str, str],
    target: _Target,
) -> tuple[int, int]:
    """Let Spark write to a store of its own; it alone can tell what is there."""
    if copy.single:
        raise InvalidValueError(
            f"SINGLE = TRUE is not offered for `{copy.path}`, where only Spark writes.",
            hint="Leave it out, or write to a local disk or an object store.",
        )
    rows = write_files(
        frame,
        copy.format.type.lower(),
        target.place,
        options,
        partition_by=copy.partition_by,
        overwrite=copy.overwrite,
    )
    written = scope.spark.read.format("binaryFile").load(target.place)
    return len(written.inputFiles()), rows


@contextmanager
def _write_errors(copy: CopyIntoFiles) -> Iterator[None]:
    """Raise our errors for Spark's, about the statement's path."""
    try:
        yield
    except PaimonMagicsError as error:
        raise located(error, copy.text, copy.path_position) from None
    except OSError as error:
        raise SetupError(
            f"`{copy.path}` can't be written: {error.strerror or error}.",
            hint="Nothing was written. Name another folder, or ask for the right to write there.",
            statement=copy.text,
            position=copy.path_position,
        ) from error
    except Exception as error:
        if copy.format.type == "AVRO" and "avro" in str(error).lower():
            raise SetupError(
                "Spark writes no Avro files here: its package spark-avro is missing.",
                hint="Start Spark with spark.jars.packages = org.apache.spark:spark-avro_2.13 of "
                "its own version.",
            ) from error
        raise located(translate(error), copy.text, copy.path_position) from error
