"""The interface that a store needs from the client of a bucket, and its failures.

`ObstoreClient` speaks to S3, Google Cloud Storage and Azure. A client of another library turns its
exceptions into those that are named here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.store import StoreRefusedError, UnreachableError

PART_BYTES = 8 << 20
PARTS_AT_ONCE = 4
"""An upload of any size takes some 40 MB of memory by these."""

_PAGE_ROWS = 1_000  # what S3 gives at a time


_REFUSED = re.compile(r"status code: 40[13] ")
_NO_BUCKET = re.compile(r"(<Code>|\()(NoSuchBucket|ContainerNotFound|ContainerBeingDeleted)\b")


class ObjectExistsError(Exception):
    """The object already existed, so it was not created."""


class NeverSentError(ConnectionError):
    """A request was certainly not sent."""


class ObjectClient(Protocol):
    """A client of one bucket. Keys are those of objects; `mark` is a name and value among an
    object's metadata. For a missing object, and a missing bucket, it raises FileNotFoundError, for
    a refusal PermissionError or what `object_failures.is_final` knows."""

    lists_in_order: bool
    """Whether the keys of all pages come in order."""

    def put(self, key: str, content: bytes) -> None:
        """Write an object, replacing an existing object."""

    def put_new(self, key: str, content: bytes, mark: tuple[str, str]) -> None:
        """Create an object. Raises ObjectExistsError, by an answer of the store."""

    def put_file(self, key: str, file: Path) -> None:
        """Write an object from a local file of any size, part by part."""

    def get(self, key: str) -> bytes:
        """The content of an object."""

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """The bytes of an object from `start` to before `end`."""

    def mark(self, key: str, name: str) -> str:
        """The value of a name among an object's metadata, "" if it has none."""

    def head(self, key: str) -> tuple[int, int]:
        """The size of an object in bytes, and when it was written, in epoch milliseconds."""

    def pages(
        self, folder: str, *, after: str | None = None, rows: int | None = None
    ) -> Iterator[list[str]]:
        """The keys of the objects below a folder, page by page. A store may list only those behind
        `after`; `rows` is how many are wanted of a page."""

    def statuses(self, folder: str) -> Iterator[list[tuple[str, int, int]]]:
        """The objects below a folder, page by page: each with its key, its size in bytes, and when
        it was written, in epoch milliseconds."""

    def level(self, folder: str) -> tuple[list[str], list[tuple[str, int]]]:
        """The folders in a folder, and its objects with their sizes in bytes."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects. Raises FileNotFoundError if the store reports a missing object; others
        may be left then."""

    def copy(self, source: str, target: str) -> None:
        """Copy an object, replacing an existing object."""


class ObstoreClient:
    """A client of the library obstore. See `ObjectClient`."""

    def __init__(self, store: Any, *, lists_in_order: bool = True) -> None:
        import obstore

        self._api: Any = obstore
        self._store = store
        self.lists_in_order = lists_in_order

    def put(self, key: str, content: bytes) -> None:
        """See `ObjectClient.put`."""
        self._api.put(self._store, key, content)

    def put_new(self, key: str, content: bytes, mark: tuple[str, str]) -> None:
        """See `ObjectClient.put_new`."""
        from obstore.exceptions import AlreadyExistsError

        try:
            self._api.put(self._store, key, content, mode="create", attributes=dict([mark]))
        except AlreadyExistsError as error:
            raise ObjectExistsError(str(error)) from error

    def put_file(self, key: str, file: Path) -> None:
        """See `ObjectClient.put_file`."""
        self._api.put(self._store, key, file, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)

    def get(self, key: str) -> bytes:
        """See `ObjectClient.get`."""
        return bytes(self._api.get(self._store, key).bytes())

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """See `ObjectClient.get_range`."""
        return bytes(self._api.get_range(self._store, key, start=start, end=end))

    def mark(self, key: str, name: str) -> str:
        """See `ObjectClient.mark`."""
        return str(self._api.get(self._store, key).attributes.get(name, ""))

    def head(self, key: str) -> tuple[int, int]:
        """See `ObjectClient.head`."""
        status = self._api.head(self._store, key)
        return status["size"], int(status["last_modified"].timestamp() * 1000)

    def pages(
        self, folder: str, *, after: str | None = None, rows: int | None = None
    ) -> Iterator[list[str]]:
        """See `ObjectClient.pages`."""
        more = {} if rows is None else {"chunk_size": rows}
        start = after if self.lists_in_order else None
        for page in self._api.list(self._store, prefix=folder, offset=start, **more):
            yield [meta["path"] for meta in page]

    def statuses(self, folder: str) -> Iterator[list[tuple[str, int, int]]]:
        """See `ObjectClient.statuses`."""
        for page in self._api.list(self._store, prefix=folder, chunk_size=_PAGE_ROWS):
            yield [
                (meta["path"], int(meta["size"]), int(meta["last_modified"].timestamp() * 1000))
                for meta in page
            ]

    def level(self, folder: str) -> tuple[list[str], list[tuple[str, int]]]:
        """See `ObjectClient.level`."""
        listing = self._api.list_with_delimiter(self._store, folder)
        objects = [(meta["path"], int(meta["size"])) for meta in listing["objects"]]
        return list(listing["common_prefixes"]), objects

    def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectClient.delete`."""
        self._api.delete(self._store, keys)

    def copy(self, source: str, target: str) -> None:
        """See `ObjectClient.copy`."""
        self._api.copy(self._store, source, target)


def obstore_client(
    kind: Any,
    bucket: str,
    config: Mapping[str, Any],
    endpoint: str | None,
    *,
    lists_in_order: bool = True,
    **settings: Any,
) -> ObstoreClient:
    """A client of obstore for a bucket, by one of its classes of stores. Values of `config` that
    are None are left to the environment or the machine."""
    settings["client_options"]["allow_http"] = (endpoint or "").startswith("http://")
    present = {key: value for key, value in config.items() if value is not None}
    return ObstoreClient(kind(bucket, config=present, **settings), lists_in_order=lists_in_order)


# Settings of a store among Paimon's catalog options, under any of the names that are known.


def named_option(
    options: Mapping[str, str], prefixes: Sequence[str], names: Sequence[str]
) -> str | None:
    """The value of the first option that is set: each name is tried with each prefix."""
    keys = (f"{prefix}{name}" for name in names for prefix in prefixes)
    return next((str(options[key]) for key in keys if options.get(key)), None)


# The meaning of a failed request to an object store, derived from its client's exception.


def is_failure(error: BaseException) -> bool:
    """Whether an exception is a failure, and not an interrupt or an exit. The PanicException of a
    library in Rust is a failure, though it is no Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


_READS = ("read", "listed", "checked")


def failure(done: str, path: str, error: BaseException) -> SetupError:
    """The error for an object at `path` that can't be `done` ("read", "written")."""
    kind = StoreRefusedError if is_final(error) else UnreachableError
    return kind(
        f"{path} can't be {done}: {failure_text(error)}",
        hint="Check that the store can be reached, that the bucket exists, and that the "
        f"credentials in the catalog options may {'read' if done in _READS else 'write to'} it.",
    )


def is_final(error: BaseException) -> bool:
    """Whether the store has understood the request and refused it: nothing was done."""
    from obstore import exceptions

    # A refused listing raises a general error: only its text shows the refusal.
    return _REFUSED.search(str(error)) is not None or isinstance(
        error,
        FileNotFoundError  # the bucket
        | PermissionError
        | exceptions.PermissionDeniedError
        | exceptions.UnauthenticatedError
        | exceptions.NotSupportedError
        | exceptions.InvalidPathError
        | ValueError,
    )


def was_never_sent(error: BaseException) -> bool:
    """Whether a request was certainly not sent. Only the text shows this; otherwise the request
    counts as sent."""
    return isinstance(error, NeverSentError) or "kind: Connect," in str(error)


def check_bucket(error: FileNotFoundError) -> None:
    """Raise the error if the bucket is missing, not the object."""
    if _NO_BUCKET.search(str(error)):
        raise error


def failure_text(error: BaseException) -> str:
    """The message of a store's client on one line, without the details for its developers."""
    if was_never_sent(error):
        return "it can't be reached"
    text = str(error).split("\n\nDebug source", 1)[0]
    code = re.search(r"<Code>(.*?)</Code>", text)
    status = re.search(r"status code: (\d+ [A-Za-z ]+)", text)
    if status is not None:
        message = re.search(r"<Message>(.*?)</Message>", text)
        detail = ": ".join(match[1] for match in (code, message) if match is not None)
        return f"{status[1].strip()} ({detail})" if detail else status[1].strip()
    return " ".join(text.rsplit(" - ", 1)[-1].split())
