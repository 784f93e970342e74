"""The local disks as a store of tables' files, and how files and their names are made durable
there.

When a journaling file system syncs one file, it also makes durable all writes that were begun
before. So writing of all files is started first, and then several threads wait for them
concurrently: they share the file system's writes. A caller with other work to do calls `begin_sync`
early.

If the process dies here, each file may be on the disk or not. So nothing may refer to them before
`sync_files` has returned.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import pwd
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.paths import FileStatus, local_path

# Writing a larger file takes longer than waiting for the journal. Its pages that are on the disk
# already would also be dropped from the cache, which slows the next read of the table.
_BEGUN_BYTES_MAX = 1 << 20
# A small commit has three files of metadata, a data file, and their folders; several may commit.
_THREADS_MAX = 32


def begin_sync(paths: Iterable[str]) -> None:
    """Start writing small files to the disk. This makes nothing durable.

    Raises FileNotFoundError for a local file that does not exist.
    """
    for path in filter(None, map(local_path, paths)):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            if hasattr(os, "posix_fadvise") and os.fstat(descriptor).st_size <= _BEGUN_BYTES_MAX:
                # Pages that are declared unneeded are written out; meanwhile they stay cached.
                with contextlib.suppress(OSError):
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def sync_files(paths: Iterable[str]) -> None:
    """Wait until the files and their names are on the disk.

    Raises FileNotFoundError for a local file that does not exist.
    """
    local = [path for path in map(local_path, paths) if path is not None]
    if not local:
        return
    begin_sync(local)
    all_paths = [*local, *dict.fromkeys(map(os.path.dirname, local))]
    for _ in _threads().map(sync_path, all_paths):
        pass


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """The waiting threads, which are reused: starting them takes longer than waiting for a disk."""
    return ThreadPoolExecutor(_THREADS_MAX, "sync")


if hasattr(os, "register_at_fork"):  # a child of this process has none of its threads
    os.register_at_fork(after_in_child=_threads.cache_clear)


def sync_path(path: str | os.PathLike[str]) -> None:
    """Wait until a local file, or the names in a local folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_HAS_UNNAMED = hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd")


class LocalStore:
    """The local disks. A file system without hard links is refused only at the first `create`."""

    renames_folders = True

    def check(self) -> None:
        """See `Store.check`."""

    def create(self, path: str, content: bytes) -> bool:
        """See `Store.create`; done by a hard link."""
        return publish_local_file(_local(path), content)

    def write(self, path: str, content: bytes) -> None:
        """See `Store.write`. Not synced to the disk: a power failure may lose the file."""
        target = Path(_local(path))
        temporary = target.with_name(f".{target.name}.{uuid.uuid4()}.tmp")
        try:
            temporary.write_bytes(content)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def read(self, path: str) -> bytes | None:
        """See `Store.read`."""
        try:
            return Path(_local(path)).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, folder: str, prefix: str = "") -> list[str]:
        """See `Store.names`."""
        try:
            with os.scandir(_local(folder)) as entries:
                return [e.name for e in entries if e.name.startswith(prefix) and not e.is_dir()]
        except FileNotFoundError:
            return []

    def delete(self, paths: Iterable[str]) -> None:
        """See `Store.delete`."""
        for path in paths:
            Path(_local(path)).unlink(missing_ok=True)

    def modified_ms(self, path: str) -> int | None:
        """See `Store.modified_ms`."""
        try:
            return os.stat(_local(path)).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None

    def size(self, path: str) -> int | None:
        """See `Store.size`."""
        try:
            return os.stat(_local(path)).st_size
        except FileNotFoundError:
            return None

    def files_below(self, folder: str) -> list[str]:
        """See `Store.files_below`."""
        return [f"{place}/{name}" for place, _, names in os.walk(_local(folder)) for name in names]

    def statuses_below(self, folder: str) -> Iterator[list[FileStatus]]:
        """See `Store.statuses_below`. Links are left out, and not followed."""
        waiting = [("", _local(folder).rstrip("/"))]
        while waiting:
            inside, place = waiting.pop()
            statuses: list[FileStatus] = []
            is_empty = True
            try:
                with os.scandir(place) as entries:
                    for entry in entries:
                        is_empty = False
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append((f"{inside}{entry.name}/", entry.path))
                        elif entry.is_file(follow_symlinks=False):
                            with contextlib.suppress(FileNotFoundError):
                                statuses.append(_status(f"{inside}{entry.name}", entry.stat()))
                if is_empty and inside:
                    at_ms = os.stat(place).st_mtime_ns // 1_000_000
                    statuses.append(FileStatus(inside.rstrip("/"), None, at_ms))
            except FileNotFoundError:
                continue
            if statuses:
                yield statuses

    def folders(self, folder: str) -> list[str]:
        """See `Store.folders`."""
        try:
            with os.scandir(_local(folder)) as entries:
                return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []

    def move_folder(self, source: str, target: str) -> None:
        """See `Store.move_folder`. Both names are durable when it returns."""
        old, new = _local(source), _local(target)
        if os.path.lexists(new):
            raise FileExistsError(f"{target} exists")
        os.rename(old, new)
        for path in (new, old):
            sync_path(os.path.dirname(path))

    def delete_folder(self, folder: str) -> None:
        """See `Store.delete_folder`. Of a link only the link goes."""
        path = _local(folder)
        while os.path.lexists(path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path) if os.path.islink(path) else shutil.rmtree(path)

    def make_folder(self, folder: str, *, has_parent: bool = False) -> None:
        """See `Store.make_folder`."""
        path = _local(folder)
        while True:
            try:
                os.mkdir(path) if has_parent else os.makedirs(path, exist_ok=True)
            except FileExistsError as error:
                if os.path.isdir(path):
                    return
                if os.path.exists(path):
                    raise NotADirectoryError(error.errno, "a file is in its place", path) from error
                continue  # it existed, and was removed before the check
            return

    def remove_if_empty(self, folder: str) -> bool:
        """See `Store.remove_if_empty`."""
        try:
            os.rmdir(_local(folder))
        except OSError:
            return False
        return True


def _status(inside: str, status: os.stat_result) -> FileStatus:
    return FileStatus(inside, status.st_size, status.st_mtime_ns // 1_000_000)


def _local(path: str) -> str:
    local = local_path(path)
    assert local is not None, path
    return local


# Create-if-absent on local disks: of any number of writers of one path, exactly one wins.
#
# The content is written to a file without a name, flushed to the disk, and given its name by
# `linkat(2)`, which fails if the name exists. (Renaming would silently replace a snapshot that
# another process published in between.) A process that dies leaves nothing but the published file.
# Where the file system has no files without a name, a temporary file beside the target is linked
# instead. A process that dies may leave it behind; readers ignore its name.


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
    """Open a new file without a name in the folder; None if the system has no such files."""
    if not _HAS_UNNAMED:
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o666)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            return None
        raise


def _not_written(target: Path, error: OSError) -> SetupError:
    if error.errno in (errno.EACCES, errno.EPERM):
        return SetupError(
            f"{target} could not be written: the account {_account()} has no permission to write "
            f"to {error.filename or target.parent}.",
            hint="Ask who looks after the folder for that permission. Reading needs none.",
        )
    return SetupError(
        f"{target} could not be written: {error}",
        hint="Free space on the disk or repair the folder, then run the statement again.",
    )


def _account() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container's user without a name
        return str(os.geteuid())
