"""The files that COPY INTO loads: found at a path, with their sizes and times of change, and copied
beside Spark where it can't read their store."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    UnknownNameError,
    UnsupportedStatementError,
)
from paimon_magics.session.queries.file_beginnings import SCHEME
from paimon_magics.session.queries.file_relations import copied_files, missing_file
from paimon_magics.session.scope import StatementScope
from paimon_magics.spark.sessions import runs_here
from paimon_magics.statements.copying import CopyIntoTable
from paimon_magics.tables.stores.paths import (
    canonical_location,
    location_spellings,
    plain_location,
)
from paimon_magics.tables.stores.store import Store, store_errors
from paimon_magics.temporary_folders import OwnedFolder

_PATTERN = re.compile(r"[*?\[]")
_FILE_URI = re.compile(r"^file:/*", re.IGNORECASE)
_SHOWN_FILES = 3


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to load: `path` as the load history has it, a plain path of this machine or a URI as
    `place`, `real_path` which is the same for all spellings of the place and all links to it, its
    size in bytes and its time of change in epoch milliseconds."""

    path: str
    place: str
    real_path: str
    size_bytes: int
    modified_ms: int

    @property
    def spellings(self) -> set[str]:
        """The paths by which a record of the history may name the file."""
        return {_recorded(spelling) for spelling in location_spellings(self.place)}

    @property
    def recorded_paths(self) -> list[str]:
        """The paths by which its load is recorded: as the connector names it, and where links lead
        to it, the real one, by which a load through another link finds it."""
        is_link = self.path.startswith("file:") and self.real_path != self.path
        return [self.path, self.real_path] if is_link else [self.path]

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return self.place.rpartition("/")[2]

    @property
    def state(self) -> tuple[int, int]:
        """What shows that the file was not changed."""
        return self.size_bytes, self.modified_ms


def source_files(scope: StatementScope, copy: CopyIntoTable) -> list[SourceFile]:
    """Return the files that a statement names, by name, each once. Files in folders below, and
    hidden ones, do not count.

    Raises UnknownNameError if there is nothing, or no file that PATTERN matches.
    """
    pattern = _compiled(copy)
    try:
        places = list(_places(scope, copy))
    except PaimonMagicsError as error:
        raise _located(copy, error) from error
    shown = [place for place in places if not place.rpartition("/")[2].startswith(("_", "."))]
    if copy.files is not None:
        shown = places
    matching = [place for place in shown if pattern.search(place.rpartition("/")[2])]
    if not matching:
        raise _located(copy, _no_file(copy, shown))
    store = _store(scope, matching[0])
    with store_errors(f"Looking at the files of `{copy.path}`"):
        files = [file for place in sorted(matching) if (file := _file(store, place)) is not None]
    once: dict[str, SourceFile] = {}
    for file in files:
        once.setdefault(file.real_path, file)
    return list(once.values())


def check_unchanged(scope: StatementScope, files: Sequence[SourceFile]) -> None:
    """Raise InvalidValueError if a file was changed, so that it is unknown what was read of it."""
    if not files:
        return
    store = _store(scope, files[0].place)
    for file in files:
        with store_errors(f"Looking at `{file.place}`"):
            now = _file(store, file.place)
        if now is None or now.state != file.state:
            did = "removed" if now is None else "changed"
            raise InvalidValueError(
                f"`{file.place}` was {did} while it was loaded.",
                hint="Nothing was written. Run the statement again when the files are complete; "
                "write a file under another name first, and rename it.",
            )


@dataclass
class FileCopies:
    """Copies of files beside Spark: their `paths` by the files' places. They are removed when
    nothing refers to this object any more, or before."""

    paths: dict[str, str] = field(default_factory=dict)
    _owned: list[OwnedFolder] = field(default_factory=list)

    def add(self, scope: StatementScope, files: Sequence[SourceFile]) -> None:
        """Copy the files of an object store, which Spark can't read. Raises as `copied_files`."""
        copies, owned = _copied(scope, files)
        self._owned.append(owned)
        self.paths |= zip((file.place for file in files), copies, strict=True)

    def remove(self) -> None:
        """Remove the copies."""
        self.paths.clear()
        while self._owned:
            self._owned.pop().remove()


def _copied(scope: StatementScope, files: Sequence[SourceFile]) -> tuple[list[str], OwnedFolder]:
    # Of URIs, whose `//` commonpath would cut.
    folder = os.path.commonprefix([file.place for file in files]).rpartition("/")[0]  # noqa: RUF071
    root, owned = copied_files(scope, folder, [file.place for file in files])
    return [f"{root}/{file.place[len(folder) :].lstrip('/')}" for file in files], owned


def _compiled(copy: CopyIntoTable) -> re.Pattern[str]:
    try:
        return re.compile(copy.pattern or "")
    except re.error as error:
        hint = "Write a regular expression, such as PATTERN = '.*\\.csv'."
        if copy.pattern and copy.pattern.startswith("*"):
            hint = f"`*` alone is no regular expression, and FROM takes such patterns. {hint}"
        raise InvalidValueError(
            f"PATTERN = '{copy.pattern}' is no regular expression: {error}.",
            hint=hint,
            statement=copy.text,
            position=max(copy.text.find(str(copy.pattern)), 0),
        ) from error


def _places(scope: StatementScope, copy: CopyIntoTable) -> Iterator[str]:
    """The places of all files at the statement's path."""
    path = copy.path
    is_local = not SCHEME.match(path) or _FILE_URI.match(path) is not None
    if is_local:
        if not runs_here(scope.spark):
            raise UnsupportedStatementError(
                f"Spark runs on another machine, which does not have `{path}`.",
                hint="Put the files into a store that both reach, and name its URI.",
            )
        # Two slashes at the beginning would stay.
        path = re.sub("^//+", "/", os.path.abspath(os.path.expanduser(_FILE_URI.sub("/", path))))
    elif "://" in path:
        path = plain_location(path)
    path = path.rstrip("/") or "/"
    if copy.files is not None:
        yield from _listed(scope, copy, path, copy.files)
    elif is_local:
        yield from _local(copy.path, path)
    else:
        yield from _stored(scope, copy.path, path)


def _listed(
    scope: StatementScope, copy: CopyIntoTable, path: str, names: Iterable[str]
) -> Iterator[str]:
    for name in names:
        place = plain_location(f"{path}/{name}")
        if _store(scope, path).size(place) is None or os.path.isdir(place):
            raise UnknownNameError(
                f"There is no file `{name}` at `{copy.path}`.",
                hint="Nothing was loaded. FILES has paths below the one after FROM.",
            )
        yield place


def _local(shown: str, path: str) -> Iterator[str]:
    exists = os.path.exists(path)
    places = [path] if exists or not _PATTERN.search(path) else sorted(glob.glob(path))
    if not exists and (places == [path] or not places):
        raise missing_file(shown)
    for place in places:
        if os.path.isdir(place):
            yield from (entry.path for entry in os.scandir(place) if entry.is_file())
        else:
            yield place


def _stored(scope: StatementScope, shown: str, path: str) -> Iterator[str]:
    """The files of another store: one file, those of a folder, or those that a pattern fits."""
    store = _store(scope, path)
    with store_errors(f"Listing `{shown}`"):
        if _PATTERN.search(path) and store.size(path) is None and not store.names(path):
            fixed = path[: cast("re.Match[str]", _PATTERN.search(path)).start()].rpartition("/")[0]
            every = store.files_below(fixed)
            places = [place for place in every if _fits(place, path)]
        elif (names := store.names(path)) or store.size(path) is None:
            places = [f"{path}/{name}" for name in names]
        else:
            places = [path]
    if not places:
        raise UnknownNameError(f"There is no file or folder `{shown}`.", hint="Check the path.")
    yield from places


def _fits(place: str, pattern: str) -> bool:
    """Whether a pattern names a file or its folder."""
    names = place if place.count("/") == pattern.count("/") else place.rpartition("/")[0]
    same_depth = names.count("/") == pattern.count("/")
    return same_depth and fnmatch.fnmatchcase(names, pattern)


def _file(store: Store, place: str) -> SourceFile | None:
    size_bytes, modified_ms = store.size(place), store.modified_ms(place)
    if size_bytes is None or modified_ms is None:
        return None
    real = _recorded(canonical_location(place))
    return SourceFile(_recorded(place), place, real, size_bytes, modified_ms)


def _recorded(place: str) -> str:
    """A place as the connector's records have it."""
    return place if SCHEME.match(place) else f"file:{place}"


def _store(scope: StatementScope, place: str) -> Store:
    return scope.catalog.stores.of(place)


def _no_file(copy: CopyIntoTable, shown: Sequence[str]) -> UnknownNameError:
    names = [place.rpartition("/")[2] for place in shown]
    if copy.pattern is None or not names:
        return UnknownNameError(
            f"`{copy.path}` has no files.",
            hint="Files in folders below it, and names that begin with _ or a dot, do not count. "
            f"A pattern names those of its folders: FROM '{copy.path.rstrip('/')}/*/'.",
        )
    listed = ", ".join(names[:_SHOWN_FILES]) + (", …" if len(names) > _SHOWN_FILES else "")
    return UnknownNameError(
        f"PATTERN = '{copy.pattern}' matches none of the {len(names):,} files of `{copy.path}`.",
        hint=f"It is a regular expression for the files' names, such as {listed}.",
    )


def _located(copy: CopyIntoTable, error: PaimonMagicsError) -> PaimonMagicsError:
    error.statement, error.position = copy.text, copy.path_position
    return error
