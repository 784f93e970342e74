"""The one authority on paths: which files may be read or deleted on behalf of a table's writers.

Writers of a table choose names and paths: in commit messages, manifests and options. These paths
are used with the permissions of the serving process, so each path is checked here first. Allowed
are files in the table's own folder, and in folders outside it (`external roots`) that the
administrator, or without one the table's own options, name. Never allowed are other tables' folders
and this project's own files (`.paimon-magics…`, the state folder).

A path must be written as Paimon writes it: absolute, without `.` and `..`. On local disks links are
resolved before the check. Any other spelling is refused, so that no spelling leads elsewhere.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from paimon_magics.errors import InvalidValueError, SetupError
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.stores.store import S3_SCHEMES, Stores

_log = logging.getLogger(__name__)
_OWN = ".paimon-magics"
_DATABASE = ".db"
_LOCAL = "file"
_NAME_BYTES_MAX = 255  # of a file, on the disks of most machines


@dataclass(frozen=True, slots=True)
class _Place:
    """A normalized path: the kind of store, the bucket or cluster, and the path's parts."""

    scheme: str
    authority: str
    parts: tuple[str, ...]

    def below(self, root: _Place) -> tuple[str, ...]:
        """The parts below `root`; () if it is not below it."""
        count = len(root.parts)
        same = (self.scheme, self.authority) == (root.scheme, root.authority)
        return self.parts[count:] if same and self.parts[:count] == root.parts else ()


@dataclass(frozen=True, slots=True)
class PathRules:
    """The folders that the administrator allows outside table folders; None allows the folders in
    each table's options. `private` folders, such as a coordinator's state folder, are never
    allowed."""

    external_roots: tuple[str, ...] | None = None
    private: tuple[str, ...] = ()

    def check(self, warehouse: str) -> None:
        """Raise SetupError for a root that has the warehouse or a private folder in it, or is no
        folder's absolute path or URI."""
        for root in self.external_roots or ():
            place = _folder(root)
            if place is None:
                raise SetupError(
                    f"The external root {root} is not an absolute path or a URI.",
                    hint="Write it as file:///data/elsewhere or s3://bucket/elsewhere.",
                )
            for other in (warehouse, *self.private):
                inner = _folder(other)
                if inner is not None and (inner == place or inner.below(place)):
                    raise SetupError(
                        f"The external root {root} contains {other}.",
                        hint="Name a folder that holds nothing but tables' files.",
                    )


TABLES_DECIDE = PathRules()
"""The rules without an administrator: tables' own options name folders outside."""


class AllowedPaths:
    """The paths of one table. Safe for several threads.

    `named_roots` returns the folders that the table's options name; it is called when a path
    outside the table's folder must be checked and `rules` defer to the table.
    """

    def __init__(
        self,
        location: str,
        warehouse: str,
        rules: PathRules,
        stores: Stores,
        named_roots: Callable[[], Sequence[str]],
    ) -> None:
        self._location = location
        self._warehouse = warehouse
        self._rules = rules
        self._stores = stores
        self._named_roots = named_roots
        self._real_folders: dict[str, str] = {}
        self._roots: list[_Place] | None = None

    @property
    def has_external_roots(self) -> bool:
        """Whether any path outside the table's folder can be allowed."""
        return bool(self._external())

    def allows(self, path: str) -> bool:
        """Whether the file at `path` may be read or deleted."""
        place = self._file(path)
        if place is None:
            return False
        if self._table is not None and (below := place.below(self._table)):
            return not _is_own(below)
        return any(place.below(root) for root in self._external()) and not self._is_private(place)

    @cached_property
    def _table(self) -> _Place | None:
        return _folder(self._location)  # most tables that are loaded have no path to be judged

    def check(self, paths: Iterable[str]) -> None:
        """Raise InvalidValueError that names the first path that is not allowed."""
        for path in paths:
            if not self.allows(path):
                raise InvalidValueError(
                    f"The path {path!r} is outside the folders of the table at {self._location}.",
                    hint="Nothing was written. Files must be in the table's folder, or below a "
                    "folder that the administrator allows with the coordinator's option "
                    "--external-root.",
                )

    def delete(self, paths: Iterable[str]) -> list[str]:
        """Delete the files that are allowed, each in its own store, and return their paths; missing
        ones are skipped. Others stay, with a warning in the log."""
        by_store: dict[int, tuple[str, list[str]]] = {}
        deleted = []
        for path in paths:
            if not self.allows(path):
                _log.warning(
                    "%r is not deleted: it is outside the folders of the table at %s",
                    path,
                    self._location,
                )
                continue
            deleted.append(path)
            plain = local_path(path) or path
            by_store.setdefault(id(self._stores.of(plain)), (plain, []))[1].append(plain)
        for first, some in by_store.values():
            self._stores.of(first).delete(some)
        return deleted

    def _file(self, path: str) -> _Place | None:
        """The normalized path of a file; None if it can't be checked."""
        place = _place(path)
        if place is None or not place.parts:
            return None
        if place.scheme != _LOCAL:
            return place
        folder = "/" + "/".join(place.parts[:-1])
        if os.path.islink(f"{folder}/{place.parts[-1]}"):
            return None
        real = self._real_folders.get(folder)
        if real is None:
            real = self._real_folders[folder] = os.path.realpath(folder)
        return _Place(_LOCAL, "", (*_parts(real), place.parts[-1]))

    def _external(self) -> list[_Place]:
        if self._roots is None:
            allowed = self._rules.external_roots
            roots = self._named_roots() if allowed is None else allowed
            self._roots = [place for root in roots if (place := _folder(root)) is not None]
        return self._roots

    def _is_private(self, place: _Place) -> bool:
        """Whether a path in an external root is this project's own, or another table's."""
        if _is_own(place.parts):
            return True
        warehouse = _folder(self._warehouse)
        if warehouse is not None and any(
            part.endswith(_DATABASE) for part in place.below(warehouse)[:1]
        ):
            return True
        folders = map(_folder, self._rules.private)
        return any(place.below(folder) for folder in folders if folder is not None)


def own_folder_only(location: str, stores: Stores) -> AllowedPaths:
    """The paths of a table without any outside its folder."""
    return AllowedPaths(location, location, PathRules(()), stores, tuple)


def is_plain_name(name: str, affix: str = "") -> bool:
    """Whether a file's name can't lead out of its folder, and is not too long together with what
    Paimon adds to it."""
    is_plain = bool(name) and not set("/\\\0") & set(name) and not name.startswith(".")
    return is_plain and len(f"{name}{affix}".encode(errors="replace")) <= _NAME_BYTES_MAX


def _folder(path: str) -> _Place | None:
    place = _place(path)
    if place is None or place.scheme != _LOCAL:
        return place
    return _Place(_LOCAL, "", _parts(os.path.realpath("/" + "/".join(place.parts))))


def _place(path: str) -> _Place | None:
    if "\0" in path:
        return None
    local = local_path(path)
    if local is not None:
        scheme, authority, rest = _LOCAL, "", local
        if not local.startswith("/"):
            return None
    else:
        scheme, separator, inside = path.partition("://")
        authority, _, rest = inside.partition("/")
        if not separator or not scheme.isalnum() or scheme == _LOCAL or not authority:
            return None
        scheme = "s3" if scheme in S3_SCHEMES else scheme
    parts = _parts(rest)
    return None if {".", ".."} & set(parts) else _Place(scheme, authority, parts)


def _is_own(parts: Iterable[str]) -> bool:
    """Whether a path leads to files of this project's own, such as marks in tables' folders."""
    return any(part.startswith(_OWN) for part in parts)


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)
