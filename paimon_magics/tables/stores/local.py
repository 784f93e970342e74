"""Create-if-absent on local disks: of any number of writers of one path, exactly one wins.

The content is written to a file without a name, flushed to the disk, and given its name by
`linkat(2)`, which fails if the name exists. (Renaming would silently replace a snapshot that
another process published in between.) A process that dies leaves nothing but the published file.
Where the file system has no files without a name, a temporary file beside the target is linked
instead. A process that dies may leave it behind; readers ignore its name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.syncing import sync_path

__all__ = ["publish_local_file"]

_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_HAS_UNNAMED = hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd")


def publish_local_file(path: str, content: bytes) -> bool:
    """Create `path` with `content`; return whether this call did.

    False means that the path existed, with certainty. When it returns, the content and the name
    are on the disk. Raises SetupError where it certainly created nothing, because the disk is full
    or the file system has no hard links; OSError where that is unknown.
    """
    target = Path(path)
    with _written(target, content) as link:
        try:
            link()
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in _NO_HARD_LINKS:
                raise SetupError(
                    f"The file system of {target.parent} has no hard links, so two writers could "
                    "overwrite each other's files there.",
                    hint="Put the warehouse on a local disk file system such as ext4, xfs or APFS.",
                ) from error
            if error.errno in _NO_ROOM:  # neither for a name in the folder
                raise _not_written(target, error) from error
            raise
        sync_path(target.parent)
        return True


@contextlib.contextmanager
def _written(target: Path, content: bytes) -> Iterator[Callable[[], None]]:
    """Write the content to a file and flush it; yield a function that links it to `target`."""
    temporary: Path | None = None
    try:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            descriptor = _open_unnamed(target.parent)
            if descriptor is None:
                temporary = target.with_name(f".{target.name}.{uuid.uuid4()}.tmp")
                descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except OSError as error:
            raise _not_written(target, error) from error
        # Without a buffer, which closing would try to write once more where the disk is full.
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            try:
                left = memoryview(content)
                while left:
                    left = left[file.write(left) :]
                os.fsync(descriptor)
            except OSError as error:
                raise _not_written(target, error) from error
            if temporary is not None:
                yield partial(os.link, temporary, target)
            else:
                # `src_dir_fd` is ignored for an absolute path, but makes Python call linkat(2),
                # which follows the link in /proc to the file.
                source = f"/proc/self/fd/{descriptor}"
                yield partial(os.link, source, target, src_dir_fd=descriptor)
    finally:
        if temporary is not None:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                temporary.unlink()


def _open_unnamed(folder: Path) -> int | None:
    """Open a new file without a name in the folder; None where the system has no such files."""
    if not _HAS_UNNAMED:
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o666)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            return None
        raise


def _not_written(target: Path, error: OSError) -> SetupError:
    return SetupError(
        f"{target} could not be written: {error}",
        hint="Free space on the disk or repair the folder, then run the statement again.",
    )
