"""Notes of task attempts beside the table: which attempts write for a transaction, and in which
folders.

A task that Spark stops continues for seconds, a worker that dies reports nothing, and only one of
two attempts of a task counts. So each attempt notes the folders (partition values and bucket)
before it writes in them, and its id is part of the names of its files. Cleanup visits only the
folders that the transaction wrote in; the table is never listed.

All notes of a table lie in one folder, `.attempts`, and begin with their transaction's prefix:

    PREFIX.open          attempts may begin, and may hand over what they wrote
    PREFIX.ID.0, .1, …   folders of the attempt ID, as an Arrow stream
    PREFIX.ID.ended      it creates no more files

An attempt checks that the transaction is open after each note, and again when it has written
everything. If it is not, the attempt removes its files itself. The end of a transaction begins with
the removal of `open`: after it, the notes of all attempts that may still write can be seen. Before
that, a commit removes the notes of the attempts that count. Without `open`, the files of every
attempt with a note may be deleted.

On a local disk of a POSIX system an attempt writes no `ended` note. It holds a lock on its first
note, which is also released when its process dies. In other stores a dead attempt looks like a
running attempt until its notes are a day old.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from paimon_magics.errors import JobError, PaimonMagicsError
from paimon_magics.faults import reach
from paimon_magics.tables.stores.paths import local_path
from paimon_magics.tables.stores.store import Store, open_store
from paimon_magics.tables.table import ATTEMPTS_FOLDER

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

_OPEN = "open"
_ENDED = "ended"
_ID_CHARACTERS = 12
_BUCKET = ""  # no partition column has this name
_DEAD_AFTER_MS = 24 * 3600 * 1000
_NOTE_BYTES_MAX = 64 << 20

_log = logging.getLogger(__name__)

Folder = tuple[int, tuple[Any, ...]]
"""A folder of data files: its bucket, and the values of the partition columns."""


IoOptions = Sequence[tuple[str, str]]
"""The options with which a task opens the store of a table, sorted."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The attempts whose files may all be deleted once a transaction is closed.

    `others` are the ids of its attempts that don't count. `left` are the ids of attempts that ended
    and left notes in other transactions of the table, by the transaction's stem.
    """

    others: frozenset[str]
    left: Mapping[str, frozenset[str]]


def attempts_stem(location: str, prefix: str) -> str:
    """The stem of the transaction with that file prefix: the paths of its notes begin with it."""
    return f"{local_path(location) or location}/{ATTEMPTS_FOLDER}/{prefix.rstrip('-')}"


# ---- in a task ----


class Attempt:
    """A running attempt. The names of its files must contain its `name_part`. Writers in `writers`
    are aborted when it fails. Without a `stem` it leaves no notes, and its files have no id."""

    def __init__(self, store: Store, stem: str | None) -> None:
        self.id = "" if stem is None else uuid.uuid4().hex[:_ID_CHARACTERS]
        self.name_part = f"{self.id}-" if self.id else ""
        self.writers: list[Abortable] = []
        self._store = store
        self._stem = stem
        self._noted: list[str] = []
        self._seen: set[tuple[Any, ...]] = set()
        self._lock: int | None = None

    def note(self, partitions: pa.RecordBatch, buckets: Sequence[int] | pa.Array) -> None:
        """Note the folders that files will be created in; call it before they are created.

        `partitions` has the partition columns, `buckets` the bucket of each of its rows; folders
        may repeat. Raises JobError when the transaction has ended.
        """
        if self._stem is None:
            return
        columns = [pa.array(buckets, pa.int32()), *partitions.columns]
        rows = pa.Table.from_arrays(columns, names=[_BUCKET, *partitions.schema.names])
        rows = rows.group_by(rows.schema.names, use_threads=False).aggregate([])
        new = [i for i, row in enumerate(_tuples(rows)) if row not in self._seen]
        if not new:
            return
        rows = rows.take(new)
        self._seen.update(_tuples(rows))
        path = f"{self._stem}.{self.id}.{len(self._noted)}"
        try:
            self._store.write(path, _stream(rows))
        except FileNotFoundError:  # the end of the last transaction removed the folder
            raise ended_error() from None
        self._noted.append(path)
        if len(self._noted) == 1:
            self._lock = _locked(path)
        self.check_open()

    def is_over(self) -> bool:
        """Whether the transaction has ended, so that this attempt can't count."""
        return bool(self._noted) and self._store.read(f"{self._stem}.{_OPEN}") is None

    def check_open(self) -> None:
        """Raise JobError when the transaction has ended."""
        if self.is_over():
            raise ended_error()

    def end(self, *, clean: bool) -> None:
        """End the attempt: it creates no more files. `clean`: none of its files is left."""
        if not self._noted or self._stem is None:
            return
        try:
            if clean:
                self._store.delete(self._noted)
                self._store.remove_if_empty(self._stem.rpartition("/")[0])
            elif self._lock is None:
                self._store.write(f"{self._stem}.{self.id}.{_ENDED}", b"1")
        finally:
            if self._lock is not None:
                os.close(self._lock)


@contextlib.contextmanager
def attempt(stem: str | None, options: IoOptions) -> Iterator[Attempt]:
    """Run the body as an attempt; `options` reach the store. If `stem` is None, it leaves no notes.

    If the body finds that the transaction has ended, it must remove its files and raise.
    """
    running = Attempt(open_store(stem or "", dict(options)), stem)
    try:
        yield running
    except BaseException:
        with contextlib.suppress(PaimonMagicsError, OSError):
            running.end(clean=running.is_over())
        raise
    running.end(clean=False)


class Abortable(Protocol):
    """A writer whose files can be removed."""

    def abort(self) -> None:
        """Remove its files."""


@contextlib.contextmanager
def writing_attempt(
    stem: str | None, options: IoOptions, step: str = "attempt.written"
) -> Iterator[Attempt]:
    """Run the body as an attempt, and abort the attempt's `writers` if the body fails, or if the
    transaction is over at its end. `step` is that end, for `faults.reach`.

    Raises JobError when the transaction has ended.
    """
    with attempt(stem, options) as running:
        try:
            yield running
            reach(step)
            running.check_open()
        except BaseException:
            for writer in running.writers:
                writer.abort()
            raise


# ---- where transactions are opened and ended ----


def open_attempts(store: Store, stem: str) -> None:
    """Allow attempts of a transaction to begin. Raises FileNotFoundError for a table that was
    dropped or renamed: its folder must not come back."""
    folder = stem.rpartition("/")[0]
    while True:
        store.make_folder(folder, has_parent=True)
        try:
            store.write(f"{stem}.{_OPEN}", b"1")
        except FileNotFoundError:  # another transaction ended and removed the empty folder
            continue
        return


def close_attempts(store: Store, stem: str, counted: frozenset[str]) -> Closed:
    """Allow no more attempts to begin, and remove the notes of the attempts `counted`."""
    folder, _, prefix = stem.rpartition("/")
    before = _listed(store, folder)
    forgotten = [name for name in before.get(prefix, ()) if _id(name) in counted]
    store.delete(f"{stem}.{name}" for name in forgotten)
    store.delete([f"{stem}.{_OPEN}"])
    after = _listed(store, folder)
    left = {
        f"{folder}/{other}": frozenset(map(_id, names)) - {_OPEN}
        for other, names in after.items()
        # A listing takes time: a transaction that is opened or committed meanwhile may look as if
        # it had ended and left notes. In two listings it can't.
        if other == prefix or (_OPEN not in names and _OPEN not in before.get(other, (_OPEN,)))
    }
    if not after:
        store.remove_if_empty(folder)
    return Closed(left.pop(stem, frozenset()), left)


def unsettled_prefixes(store: Store, location: str) -> list[str]:
    """The file prefixes of the transactions of a table whose attempts may still hand over or remove
    files: one of them runs, or a note is not a day old yet. Others died."""
    folder = attempts_stem(location, "").rpartition("/")[0]
    prefixes = []
    for prefix, notes in _listed(store, folder).items():
        stem = f"{folder}/{prefix}"
        is_fresh = any(not _is_old(store, f"{stem}.{note}") for note in notes)
        if is_fresh or running_attempts(store, stem, frozenset(map(_id, notes)) - {_OPEN}):
            prefixes.append(f"{prefix}-")
    return prefixes


def forget_attempts(store: Store, stem: str, ids: frozenset[str]) -> None:
    """Remove the notes of attempts whose files are settled, and the folder if it is empty then."""
    store.delete(f"{stem}.{name}" for name in _notes(store, stem) if _id(name) in ids)
    store.remove_if_empty(stem.rpartition("/")[0])


def running_attempts(store: Store, stem: str, ids: frozenset[str]) -> frozenset[str]:
    """The attempts among `ids` that may still create files."""
    if local_path(stem) is not None and fcntl is not None:
        return frozenset(id for id in ids if not _lock_is_free(f"{stem}.{id}.0"))
    names = frozenset(_notes(store, stem))
    return frozenset(
        id
        for id in ids
        if f"{id}.0" in names
        and f"{id}.{_ENDED}" not in names
        and not _is_old(store, f"{stem}.{id}.0")
    )


def noted_folders(store: Store, stem: str, ids: frozenset[str]) -> set[Folder]:
    """All folders that the attempts `ids` have noted."""
    folders: set[Folder] = set()
    for name in _notes(store, stem):
        if _id(name) not in ids or name.endswith(f".{_ENDED}"):
            continue
        folders |= _folders_in(store, f"{stem}.{name}")
    return folders


def _folders_in(store: Store, path: str) -> set[Folder]:
    """The folders in a note. It may be anybody's: one that no attempt can have written is logged,
    and names none."""
    size = store.size(path)
    if size is not None and size > _NOTE_BYTES_MAX:
        _log.warning("No attempt wrote the note %s of %d bytes, which is ignored.", path, size)
        return set()
    content = store.read(path)
    if not content:
        return set()
    try:
        with pa.ipc.open_stream(content) as reader:
            return {(_bucket(row[0]), row[1:]) for row in _tuples(reader.read_all())}
    except Exception as error:  # Arrow raises errors of many types for what is no stream
        _log.warning("No attempt wrote the note %s, which is ignored: %s", path, error)
        return set()


def _bucket(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"its bucket is {value!r}")
    return value


def attempt_of_file(name: str, prefix: str) -> str | None:
    """The id of the attempt that created a file of the transaction with that prefix."""
    parts = name.removeprefix(prefix).split("-", 2)
    is_ours = len(parts) == 3 and name.startswith(prefix) and len(parts[1]) == _ID_CHARACTERS
    return parts[1] if is_ours else None


def _notes(store: Store, stem: str) -> Sequence[str]:
    """The names of a transaction's notes after its prefix."""
    folder, _, prefix = stem.rpartition("/")
    return _listed(store, folder, f"{prefix}.").get(prefix, ())


def _listed(store: Store, folder: str, start: str = "") -> dict[str, list[str]]:
    """The names of the notes after their transaction's prefix, by that prefix."""
    notes: dict[str, list[str]] = {}
    for name in store.names(folder, start):
        prefix, dot, rest = name.partition(".")
        if prefix and dot:  # temporary files begin with a dot
            notes.setdefault(prefix, []).append(rest)
    return notes


def _id(name: str) -> str:
    return name.partition(".")[0]


def _is_old(store: Store, path: str) -> bool:
    modified_ms = store.modified_ms(path)
    return modified_ms is None or time.time() * 1000 - modified_ms > _DEAD_AFTER_MS


def _tuples(rows: pa.Table) -> Sequence[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _locked(path: str) -> int | None:
    """A lock on a local file, held until the descriptor is closed; None elsewhere."""
    path_here = local_path(path)
    if path_here is None or fcntl is None:
        return None
    try:
        descriptor = os.open(path_here, os.O_RDWR)
    except FileNotFoundError:
        raise ended_error() from None
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _lock_is_free(path: str) -> bool:
    path_here = local_path(path)
    assert path_here is not None
    try:
        descriptor = os.open(path_here, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def ended_error() -> JobError:
    """The error that an attempt raises when its transaction has ended."""
    return JobError(
        "The statement of this task has ended: its table was dropped or renamed, or the "
        "coordinator ended the statement.",
        hint="Nothing was written. If the table still exists, run the statement again.",
    )
