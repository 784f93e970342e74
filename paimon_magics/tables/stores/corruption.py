"""Errors for damaged files of a table: they are missing, or their content can't be right.

This module reads no content. The reader names the file that it reads.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence

from paimon_magics.errors import (
    PaimonMagicsError,
    SetupError,
    TableDamagedError,
    UnsupportedStatementError,
)
from paimon_magics.tables.stores.access_failures import not_accessed
from paimon_magics.tables.stores.paths import local_path

_FOLDERS_MIXED = "a folder stands where a file is expected, or a file where a folder is"
"""The reason of a path that is damaged in this way."""

RESTORE = "Restore the file, or go back to a snapshot that does not use it."

_RUN_AGAIN = (
    "The table may have been dropped, or its snapshot may have expired, during the read: run the "
    "statement again. If the file is still missing, "
)
_MISSING = re.compile(r"^it is gone$|FileNotFoundException|NoSuchFileException|NoSuchKey")

SNAPSHOT_VERSION = 3
SCHEMA_VERSION = 3
MANIFEST_VERSION = 2


def damaged(what: str, reason: object, hint: str = RESTORE) -> PaimonMagicsError:
    """The error that `what` can't be read, with the reason: a TableDamagedError, or a SetupError
    if the store denied the access or was out of reach (`access_failures`)."""
    other = not_accessed(f"{what} can't be read", reason)
    if other is not None:
        return other
    text = str(reason).rstrip(".")
    if isinstance(reason, FileNotFoundError) or _MISSING.search(text):
        # Usually nothing is damaged: the table was dropped during the read.
        text, hint = "it is gone", f"{_RUN_AGAIN}{hint[:1].lower()}{hint[1:]}"
    return TableDamagedError(f"{what} can't be read: {text}.", hint=hint)


def unread_by_java(path: str, reason: object) -> PaimonMagicsError:
    """The error for a file that Java could not read. In the locale C, Java can't open files whose
    names have letters outside ASCII; such a file is intact."""
    local = local_path(path)
    if local is not None and not local.isascii() and os.path.exists(local):
        return SetupError(
            f"Spark's Java can't name the file {local}: its locale lacks some of these letters.",
            hint="Start Spark with the environment variable LC_ALL=C.UTF-8 on each machine.",
        )
    return damaged(f"The file {path}", reason)


@contextlib.contextmanager
def parsing(what: str, hint: str = RESTORE) -> Iterator[None]:
    """Raise errors of the body that a malformed text causes (`misread`) as TableDamagedError for
    `what`; let other errors through."""
    try:
        yield
    except Exception as error:
        reason = misread(error)
        if reason is None:
            raise
        raise damaged(what, reason, hint) from error


def misread(error: BaseException) -> str | None:
    """The reason in an error that a malformed text has caused in a parser, or a folder in place of
    a file; None for other errors.

    The causes of the error are searched too, as pypaimon wraps the first one.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, IsADirectoryError | NotADirectoryError):
            return _FOLDERS_MIXED
        if isinstance(cause, ValueError | KeyError | TypeError | AttributeError | RecursionError):
            return f"{type(cause).__name__}: {cause}"
        cause = cause.__cause__
    return None


def check_stored(paths: Sequence[str], sizes_bytes: Sequence[int]) -> None:
    """Raise TableDamagedError for a local data file that is gone or whose size differs from the
    table's metadata. Spark's scan would silently skip an empty file."""
    for path, size in zip(paths, sizes_bytes, strict=True):
        local = local_path(path)
        if local is None:
            continue
        try:
            stored = os.stat(local).st_size
        except FileNotFoundError:
            raise damaged(f"The data file {local}", "it is gone") from None
        if stored != size:
            raise damaged(
                f"The data file {local}",
                f"it has {stored} bytes, but the table's metadata says {size}",
            )


# The newest supported versions of Paimon's metadata files.
#
# The meaning of a newer release's files is unknown, so a newer version is refused by name. Sources:
# `Snapshot.CURRENT_VERSION`, `TableSchema.CURRENT_VERSION`, and the versions of
# `ManifestEntrySerializer` and `ManifestFileMetaSerializer`.


def check_version(what: str, version: int | None, newest: int) -> None:
    """Raise UnsupportedStatementError for a version above `newest`. The first releases wrote
    none."""
    if version is not None and version > newest:
        raise UnsupportedStatementError(
            f"{what} has version {version} of its format. Only versions up to {newest} are "
            "supported.",
            hint="A newer release of Paimon wrote it. Read the table with that release.",
        )
