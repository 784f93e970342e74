"""Create-if-absent on local disks: of any number of writers of one path, exactly one wins.

The content is written to a temporary file beside the target, flushed to the disk, and given the
target's name by `link(2)`, which fails if the name exists. (Renaming would silently replace a
snapshot that another process published in between.)
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from pathlib import Path

from paimon_magics.errors import SetupError
from paimon_magics.faults import reach

__all__ = ["publish_local_file"]

_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)


def publish_local_file(path: str, content: bytes) -> bool:
    """Create `path` with `content`; return whether this call did.

    False means that the path existed, with certainty. When it returns, the content and the name
    are on the disk. A process that dies here leaves either nothing or a temporary file, or the
    published file with its temporary name as a second link; readers ignore temporary names.
    Raises SetupError where it certainly created nothing, because the disk is full or the file
    system has no hard links; OSError where that can't be told.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4()}.tmp")
    try:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise SetupError(
                f"{target} could not be written: {error}",
                hint="Make room on the disk or mend the folder, then run the statement again.",
            ) from error
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in _NO_HARD_LINKS:
                raise SetupError(
                    f"The file system of {target.parent} has no hard links, so two writers could "
                    "overwrite each other's files there.",
                    hint="Put the warehouse on a local disk file system such as ext4, xfs or APFS.",
                ) from error
            raise
        reach("publish.linked")
        _sync_directory(target.parent)
        return True
    finally:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            temporary.unlink()


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
