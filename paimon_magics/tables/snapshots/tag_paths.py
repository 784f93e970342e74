"""The paths of tags' files. A tag's name becomes part of one."""

from __future__ import annotations

from paimon_magics.errors import InvalidTableError
from paimon_magics.planning.formatting import shortened
from paimon_magics.tables.stores.allowed_paths import is_plain_name
from paimon_magics.tables.table import StoredTable, Table

_SHOWN_MAX = 60

__all__ = ["check_tag_name", "is_tag_name", "tag_path"]


def is_tag_name(name: str) -> bool:
    """Whether a tag can have this name: its file is in the folder of tags."""
    return bool(name.strip()) and is_plain_name(name, "tag-")


def check_tag_name(name: str) -> None:
    """Raise InvalidTableError for a name that no tag can have."""
    if not is_tag_name(name):
        raise InvalidTableError(
            f"A tag can't be named `{shortened(name, _SHOWN_MAX)}`.",
            hint="The name becomes part of a file's: not blank, no slashes, no leading dot, at "
            "most some 240 bytes.",
        )


def tag_path(table: Table | StoredTable, name: str) -> str:
    """The path of a tag's file, which need not exist. Raises InvalidTableError for a name that no
    tag can have."""
    check_tag_name(name)
    return str(table.paimon.tag_manager().tag_path(name))
