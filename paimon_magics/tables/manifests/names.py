"""Names of the metadata files that one run of a commit creates: manifests, manifest lists and index
manifests.

All names of a run have its token and are numbered in one sequence, in the order in which the files
are created. So the token of a run that died is enough to find its files without listing a folder:
the first number without a file is the end. This holds because a run removes its files from the last
to the first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any

__all__ = ["MetadataNames", "manifest_folder", "remove_metadata", "token_of"]

_KINDS = ("manifest", "manifest-list", "index-manifest")


def manifest_folder(paimon: Any) -> str:
    """The folder of a table's manifests, which its branches share."""
    return f"{paimon.table_path.rstrip('/')}/manifest"


class MetadataNames:
    """Gives out the names of one run. `token` must be unique to the run."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.given: list[str] = []

    def manifest(self) -> str:
        """The name of the next manifest."""
        return self._next("manifest")

    def manifest_list(self) -> str:
        """The name of the next manifest list."""
        return self._next("manifest-list")

    def index_manifest(self) -> str:
        """The name of the next index manifest."""
        return self._next("index-manifest")

    def _next(self, kind: str) -> str:
        self.given.append(f"{kind}-{self._token}-{len(self.given)}")
        return self.given[-1]


def token_of(manifest_list: str) -> str | None:
    """The token in the name of a manifest list; None for a name of another form."""
    token, _, number = manifest_list.removeprefix("manifest-list-").rpartition("-")
    return token if token and number.isdigit() else None


def remove_metadata(paimon: Any, token: str, keep: Collection[str]) -> int:
    """Remove the files of the run with this token, except those in `keep`; return their number.

    The caller knows that the run can't publish any more. Costs a few requests for each file.
    """
    folder = manifest_folder(paimon)
    found: list[str] = []
    number = 0
    while True:
        names = [f"{kind}-{token}-{number}" for kind in _KINDS]
        there = [name for name in names if paimon.file_io.exists(f"{folder}/{name}")]
        if not there:
            break
        found += there
        number += 1
    left = [name for name in reversed(found) if name not in keep]
    for name in left:
        with contextlib.suppress(FileNotFoundError):
            paimon.file_io.delete(f"{folder}/{name}")
    return len(left)
