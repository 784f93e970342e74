"""Files of a table that are there and can't be right, told as such, by name.

Nothing is read here: whoever reads says what it reads.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

from paimon_magics.errors import TableDamagedError
from paimon_magics.tables.stores.paths import local_path

__all__ = ["RESTORE", "check_stored", "damaged", "misread", "parsing"]

RESTORE = "Restore the file, or go back to a snapshot that does not use it."


def damaged(what: str, reason: object, hint: str = RESTORE) -> TableDamagedError:
    """The error for `what`, which can't be read for that reason."""
    return TableDamagedError(f"{what} can't be read: {str(reason).rstrip('.')}.", hint=hint)


@contextlib.contextmanager
def parsing(what: str, hint: str = RESTORE) -> Iterator[None]:
    """What the text of `what` does not say as it must is told as TableDamagedError."""
    try:
        yield
    except Exception as error:
        reason = misread(error)
        if reason is None:
            raise
        raise damaged(what, reason, hint) from error


def misread(error: BaseException) -> str | None:
    """What an error of pypaimon's says of a text that is not as it must be; None for others."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, ValueError | KeyError | TypeError | AttributeError):
            return f"{type(found).__name__}: {found}"
        found = found.__cause__
    return None


def check_stored(paths: Sequence[str], sizes_bytes: Sequence[int]) -> None:
    """Raise TableDamagedError for a data file on this machine's disks that is gone or has another
    size than the table's metadata says: Spark's scan passes over files that are empty."""
    for path, size in zip(paths, sizes_bytes, strict=True):
        local = local_path(path)
        if local is None:
            continue
        try:
            found = os.stat(local).st_size
        except FileNotFoundError:
            raise damaged(f"The data file {local}", "it is gone") from None
        if found != size:
            raise damaged(
                f"The data file {local}",
                f"it has {found} bytes, and the table's metadata says {size}",
            )
