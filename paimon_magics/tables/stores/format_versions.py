"""The newest versions of Paimon's metadata files that are known here.

What a newer release means by its files can't be known, so a newer version is refused by name.
Sources: `Snapshot.CURRENT_VERSION`, `TableSchema.CURRENT_VERSION`, and the versions of
`ManifestEntrySerializer` and `ManifestFileMetaSerializer`.
"""

from __future__ import annotations

from paimon_magics.errors import UnsupportedStatementError

__all__ = ["MANIFEST_VERSION", "SCHEMA_VERSION", "SNAPSHOT_VERSION", "check_version"]

SNAPSHOT_VERSION = 3
SCHEMA_VERSION = 3
MANIFEST_VERSION = 2


def check_version(what: str, version: int | None, newest: int) -> None:
    """Raise UnsupportedStatementError for a version above `newest`. The first releases wrote
    none."""
    if version is not None and version > newest:
        raise UnsupportedStatementError(
            f"{what} has version {version} of its format. Only versions up to {newest} are known "
            "here.",
            hint="A newer release of Paimon wrote it. Read the table with that release.",
        )
