"""The snapshots that the tags of a branch keep."""

from __future__ import annotations

import json
from typing import Any

from pypaimon.tag.tag_manager import TagManager

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.formatting import printable, shortened
from paimon_magics.tables.snapshots.latest import snapshot_of
from paimon_magics.tables.stores.allowed_paths import is_plain_name
from paimon_magics.tables.stores.corruption import SNAPSHOT_VERSION, check_version, parsing
from paimon_magics.tables.table import StoredTable, Table

_SHOWN_MAX = 60


def snapshot_of_tag(path: str, content: bytes | str) -> Any:
    """The snapshot in a tag's file, without the tag's own keys. Raises TableDamagedError for
    content that is no tag's."""
    with parsing(f"The tag file {path}", "Restore the file, or remove it to give up the tag."):
        document = json.loads(content)
        check_version("The tag", document.get("version"), SNAPSHOT_VERSION)
        trimmed = {key: value for key, value in document.items() if not key.startswith("tag")}
        return snapshot_of(trimmed)


def tag_snapshot(paimon: Any, name: str) -> Any:
    """The snapshot that a tag of pypaimon's table keeps; None if there is no such tag."""
    path = paimon.tag_manager().tag_path(name)
    try:
        return snapshot_of_tag(path, paimon.file_io.read_file_utf8(path))
    except FileNotFoundError:
        return None


def tagged_snapshots(table: Table, branch: str) -> list[Any]:
    """The tagged snapshots of a branch, oldest first."""
    folder = TagManager(table.paimon.file_io, table.paimon.table_path, branch).tag_directory()
    snapshots = []
    for name in table.store.names(folder, "tag-"):
        path = f"{folder}/{name}"
        with parsing(f"The tag file {path}", "Remove the folder in its place."):
            content = table.store.read(path)
        if content is not None:  # else it was deleted meanwhile
            snapshots.append(snapshot_of_tag(path, content))
    return sorted(snapshots, key=lambda tag: int(tag.id))


# The paths of tags' files. A tag's name becomes part of one.


def is_tag_name(name: str) -> bool:
    """Whether a tag can have this name: its file is in the folder of tags."""
    return bool(name.strip()) and is_plain_name(name, "tag-")


def check_tag_name(name: str) -> None:
    """Raise InvalidTableError for a name that no new tag can have."""
    if not is_tag_name(name) or not name.isprintable():
        raise _no_tag_name(name)


def _no_tag_name(name: str) -> InvalidTableError:
    return InvalidTableError(
        f"A tag can't be named `{printable(shortened(name, _SHOWN_MAX))}`.",
        hint="The name becomes part of a file name: not blank, no slashes, no leading dot, no "
        "control characters, at most some 240 bytes.",
    )


def tag_path(table: Table | StoredTable, name: str) -> str:
    """The path of a tag's file, which need not exist. Raises InvalidTableError for a name that no
    tag can have."""
    if not is_tag_name(name):
        raise _no_tag_name(name)
    return str(table.paimon.tag_manager().tag_path(name))
