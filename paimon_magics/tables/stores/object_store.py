"""Object stores: create-if-absent by a conditional PUT.

A server that does not support the condition would ignore it and overwrite, so the first use of a
store tests the condition on a separate object. The response to a request alone is not trusted: it
may be lost, or a proxy may repeat the request and then report that the object exists. So every
created object carries a mark that identifies its writer. (S3 also answers 409 although no writer
has created the object; the request is then repeated.)

A kind of store (`s3`, `gcs`, `azure`, `oss`) says how its client is made (`object_client`); all
else is done here.

If the process dies while it creates an object, the object exists completely or not at all.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from paimon_magics.errors import SetupError, UnsupportedStatementError
from paimon_magics.redaction import conceal_options
from paimon_magics.tables.stores.object_client import (
    ObjectClient,
    ObjectExistsError,
    check_bucket,
    failure,
    failure_text,
    is_failure,
    is_final,
    was_never_sent,
)
from paimon_magics.tables.stores.paths import FileStatus
from paimon_magics.tables.stores.store import os_errors

_log = logging.getLogger(__name__)
_PATIENCE_SECONDS = 10.0
_IMPATIENT_SECONDS = 4.0
_PAUSE_SECONDS = 0.05
_PAUSE_SECONDS_MAX = 1.0
_REQUEST_TIMEOUT = timedelta(seconds=20)
_IMPATIENT_TIMEOUT = timedelta(seconds=4)
_CONNECT_TIMEOUT = timedelta(seconds=5)
_T = TypeVar("_T")


_WINDOW_BYTES = 256 << 10


class ObjectStore:
    """A bucket (of Azure: a container). See `Store`. With `is_impatient`, requests give up after a
    few seconds.

    A kind of store sets `condition`, the header of a conditional PUT, and `mark`, the name of the
    metadata that marks an object's writer, and makes its access and its clients.
    """

    renames_folders = False
    condition: ClassVar[str]
    mark: ClassVar[str] = "paimon-magics-mark"

    def __init__(
        self, location: str, options: Mapping[str, str], *, is_impatient: bool = False
    ) -> None:
        conceal_options(options)
        parts = urlsplit(location)
        self._name = f"{parts.scheme}://{parts.netloc}"
        self.bucket = parts.netloc
        self._folder = self.key(location)
        self._access = self.access_of(location, options)
        self._location = location
        self._is_impatient = is_impatient
        self._checked = False
        self._guard = threading.Lock()
        # The clients with the access that they were made for: `renew`, on another thread, may
        # have replaced `_access` since.
        self._clients: tuple[Any, ObjectClient, ObjectClient] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name})"

    @property
    def access(self) -> Any:
        """How the bucket is reached now."""
        return self._access

    @staticmethod
    def access_of(location: str, options: Mapping[str, str]) -> Any:
        """How the bucket of a location is reached by these options: a value that can be compared.
        Raises SetupError for options with which no request can succeed."""
        raise NotImplementedError

    def new_client(self, access: Any, **settings: Any) -> ObjectClient:
        """A client for the access. `settings`: `client_options` and `retry_config` of obstore."""
        raise NotImplementedError

    def open(self, path: str) -> ObjectReader:
        """A reader of the object at a path, by ranges. Raises FileNotFoundError; the reader raises
        OSError."""
        status = self.status(path)
        if status is None:
            raise FileNotFoundError(f"File {path} does not exist")

        def get(start: int, end: int) -> bytes:
            return self._client().get_range(self.key(path), start, end)

        def fetch(start: int, end: int) -> bytes:
            with os_errors():
                return self._ask("read", path, lambda: get(start, end))

        return ObjectReader(status[0], fetch)

    def upload(self, file: Path, path: str) -> None:
        """Write the object at a path from a local file of any size, part by part."""
        self._ask("written", path, lambda: self._client().put_file(self.key(path), file))

    def check(self) -> None:
        """See `Store.check`: creates an object twice; the store must refuse the second request."""
        with self._guard:
            if self._checked:
                return
            path = f"{self._name}/{f'{self._folder}/.paimon-magics-{uuid.uuid4().hex}'.lstrip('/')}"
            try:
                first = self.create(path, b"1")
                second = self.create(path, b"2")
            except OSError as error:
                raise SetupError(
                    f"The test whether {self._name} creates objects only if they are absent "
                    f"failed: {error}",
                    hint="Retry. If the test fails again, the store does not support the header "
                    f"{self.condition}, so commits there are not safe.",
                ) from error
            finally:
                with contextlib.suppress(SetupError):
                    self.delete([path])
            if not first or second:
                raise UnsupportedStatementError(
                    f"The server of {self._name} ignores the header {self.condition}: two writers "
                    "could overwrite each other's snapshots there.",
                    hint="Use a newer version of the server, or commit through a REST catalog.",
                )
            self._checked = True

    def renew(self, options: Mapping[str, str]) -> None:
        """Use the credentials, region and endpoint of these options from now on. Requests in
        progress keep the old settings."""
        conceal_options(options)
        self._access = self.access_of(self._location, options)

    def create(self, path: str, content: bytes) -> bool:
        """See `Store.create`."""
        mark = uuid.uuid4().hex
        unclear: BaseException | None = None
        deadline = time.monotonic() + self._patience
        pause = _PAUSE_SECONDS
        while True:
            try:
                client = self._client(patient=False)
                client.put_new(self.key(path), content, (self.mark, mark))
                return True
            except ObjectExistsError as error:
                failed: BaseException = error
            except BaseException as error:
                if not is_failure(error):
                    raise
                if is_final(error) and unclear is None:
                    raise failure("created", path, error) from error
                if not was_never_sent(error):
                    unclear = error
                failed = error
            owner = self._mark_of(path)
            if owner is not None:
                return owner == mark
            if time.monotonic() > deadline:
                if unclear is None and not isinstance(failed, ObjectExistsError):
                    raise failure("created", path, failed) from failed
                raise OSError(f"{path} may have been created: {failure_text(failed)}") from failed
            time.sleep(pause)
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)

    def write(self, path: str, content: bytes) -> None:
        """See `Store.write`."""
        self._ask("written", path, lambda: self._client().put(self.key(path), content))

    def read(self, path: str) -> bytes | None:
        """See `Store.read`."""

        def get() -> bytes | None:
            try:
                return self._client().get(self.key(path))
            except FileNotFoundError as error:
                check_bucket(error)
                return None

        return self._ask("read", path, get)

    def names(self, folder: str, prefix: str = "") -> list[str]:
        """See `Store.names`; lists only the names that have the prefix, not the whole folder, where
        the store lists in order."""
        start = f"{self.key(folder)}/{prefix}"

        def walk() -> list[str]:
            keys: list[str] = []
            # The client's own prefixes end at folders. Names are listed in order, so the listing
            # starts at the prefix and ends with the first name after it. (Not every server respects
            # the start, and some servers list in no order.)
            client = self._client()
            for page in client.pages(self.key(folder), after=start):
                for key in page:
                    if key.startswith(start):
                        keys.append(key)
                    elif key > start and client.lists_in_order:
                        return keys
            return keys

        paths = self._ask("listed", folder, walk)
        leaves = (path.removeprefix(f"{self.key(folder)}/") for path in paths)
        return sorted(leaf for leaf in leaves if leaf and "/" not in leaf)

    def entries(self, folder: str) -> list[tuple[str, int | None]]:
        """The leaf names in a folder, sorted, each with the size in bytes, or None for a folder."""
        below, objects = self._ask("listed", folder, lambda: self._client().level(self.key(folder)))
        folders: dict[str, int | None] = {path.rsplit("/", 1)[-1]: None for path in below}
        files = {
            key.rsplit("/", 1)[-1]: size
            for key, size in objects
            if key != self.key(folder)  # its marker
        }
        return sorted((files | folders).items())

    def has_folder(self, folder: str) -> bool:
        """Whether a folder holds an object, even if only its own marker."""

        def first() -> bool:
            return any(self._client().pages(self.key(folder), rows=1))

        return self._ask("listed", folder, first)

    def delete(self, paths: Iterable[str]) -> None:
        """See `Store.delete`."""
        keys = [self.key(path) for path in paths]

        def delete_all() -> None:
            try:
                self._client().delete(keys)
            except FileNotFoundError:  # Azure and Google report a missing object, and may stop
                for key in keys:
                    try:
                        self._client().delete([key])
                    except FileNotFoundError as error:
                        check_bucket(error)

        if keys:
            self._ask("deleted", f"{self._name}/{keys[0]}", delete_all)

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the bucket, over what is there. Raises FileNotFoundError."""
        if self.status(source) is None:
            raise FileNotFoundError(f"File {source} does not exist")
        keys = self.key(source), self.key(target)
        self._ask("copied", source, lambda: self._client().copy(*keys))

    def files_below(self, folder: str) -> list[str]:
        """See `Store.files_below`."""
        start = f"{self.key(folder)}/"

        def walk() -> list[str]:
            pages = self._client().pages(self.key(folder))
            return [key[len(start) :] for page in pages for key in page if key.startswith(start)]

        return [f"{folder.rstrip('/')}/{name}" for name in self._ask("listed", folder, walk)]

    def statuses_below(self, folder: str) -> Iterator[list[FileStatus]]:
        """See `Store.statuses_below`."""
        start = f"{self.key(folder)}/"
        pages = self._ask("listed", folder, lambda: self._client().statuses(self.key(folder)))
        while True:
            page = self._ask("listed", folder, lambda: next(pages, None))
            if page is None:
                return
            yield [
                FileStatus(key[len(start) :], size, at_ms)
                for key, size, at_ms in page
                if key.startswith(start)
            ]

    def folders(self, folder: str) -> list[str]:
        """See `Store.folders`."""
        return [name for name, size in self.entries(folder) if size is None]

    def move_folder(self, source: str, target: str) -> None:
        """See `Store.move_folder`: there are no folders."""
        raise NotImplementedError(f"{self!r} renames no folders")

    def delete_folder(self, folder: str) -> None:
        """Delete all objects of a folder, page by page."""

        def delete_pages() -> None:
            for page in self._client().pages(self.key(folder)):
                self.delete([f"{self._name}/{key}" for key in page])

        self._ask("deleted", folder, delete_pages)

    def status(self, path: str) -> tuple[int, int] | None:
        """The size in bytes of an object, and when it was written, in epoch milliseconds; None if
        there is no object."""

        def head() -> tuple[int, int] | None:
            try:
                return self._client().head(self.key(path))
            except FileNotFoundError:
                return None

        return self._ask("checked", path, head)

    def modified_ms(self, path: str) -> int | None:
        """See `Store.modified_ms`."""
        status = self.status(path)
        return None if status is None else status[1]

    def size(self, path: str) -> int | None:
        """See `Store.size`."""
        status = self.status(path)
        return None if status is None else status[0]

    def make_folder(self, folder: str, *, has_parent: bool = False) -> None:
        """See `Store.make_folder`: there are no folders."""

    def remove_if_empty(self, folder: str) -> bool:
        """See `Store.remove_if_empty`: there are no folders."""
        return True

    def _mark_of(self, path: str) -> str | None:
        """The mark of an object, "" if it has none; None if there is no object or the request
        failed."""
        try:
            return self._client(patient=False).mark(self.key(path), self.mark)
        except Exception as error:
            _log.debug("The marker file of %s can't be read: %s", path, error)
            return None

    def _client(self, *, patient: bool = True) -> ObjectClient:
        """The client. The `patient` client repeats failed requests; the other leaves that to the
        caller."""
        access, clients = self._access, self._clients
        if clients is None or clients[0] != access:
            tries = 1 if self._is_impatient else 5
            clients = access, self._open_client(access, tries), self._open_client(access, 0)
            self._clients = clients
        return clients[1 if patient else 2]

    @property
    def _patience(self) -> float:
        return _IMPATIENT_SECONDS if self._is_impatient else _PATIENCE_SECONDS

    def _open_client(self, access: Any, max_retries: int) -> ObjectClient:
        impatient = self._is_impatient
        return self.new_client(
            access,
            client_options={
                "timeout": _IMPATIENT_TIMEOUT if impatient else _REQUEST_TIMEOUT,
                "connect_timeout": _IMPATIENT_TIMEOUT if impatient else _CONNECT_TIMEOUT,
            },
            retry_config={
                "max_retries": max_retries,
                "retry_timeout": timedelta(seconds=self._patience),
            },
        )

    def key(self, path: str) -> str:
        """The key of the object at a path, or of a folder."""
        parts = urlsplit(path)
        # Not `parts.path`: a partition value may contain `?` or `#`, which would end it.
        _, _, rest = path.partition("://")
        assert (parts.netloc, bool(rest)) == (self.bucket, True), path
        return re.sub("/+", "/", rest.partition("/")[2]).strip("/")

    def _ask(self, done: str, path: str, action: Callable[[], _T]) -> _T:
        try:
            return action()
        except BaseException as error:
            if not is_failure(error):
                raise
            raise failure(done, path, error) from error


# A file-like reader of an object, by ranges.
#
# A large range is one request for just that range. Small ones are served from a window, so that a
# parser that reads some bytes at a time sends few requests.


class ObjectReader(io.RawIOBase):
    """Reads `size` bytes by `fetch`, which gets a range's start and end. For one thread."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self._size = size
        self._fetch = fetch
        self._position = 0
        self._window_start = 0
        self._window = memoryview(b"")

    def readable(self) -> bool:
        """Whether it reads: yes."""
        return True

    def seekable(self) -> bool:
        """Whether the position can be set: yes."""
        return True

    def tell(self) -> int:
        """The position, in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position; return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int = -1) -> bytes:
        """The next bytes; all that are left for a negative size."""
        end = self._size if size < 0 else min(self._position + size, self._size)
        if end <= self._position:
            return b""
        content = self._range(self._position, end)
        self._position = end
        return content

    def readinto(self, buffer: object) -> int:
        """Read as many bytes as fit; return how many these are."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        content = self.read(len(view))
        view[: len(content)] = content
        return len(content)

    def _range(self, start: int, end: int) -> bytes:
        inside = start - self._window_start
        if inside >= 0 and end - self._window_start <= len(self._window):
            return bytes(self._window[inside : inside + end - start])
        if end - start >= _WINDOW_BYTES:
            return self._fetch(start, end)
        self._window = memoryview(self._fetch(start, min(start + _WINDOW_BYTES, self._size)))
        self._window_start = start
        return bytes(self._window[: end - start])
