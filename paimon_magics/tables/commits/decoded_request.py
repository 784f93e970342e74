"""A commit request whose messages are decoded once, and the files that they name."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pypaimon.utils.file_store_path_factory import canonical_data_file_path
from pypaimon.write.commit_message import CommitMessage

from paimon_magics.errors import CommitConflictError, InvalidValueError, LayoutChangedError
from paimon_magics.planning.commits.requests import Append, CommitRequest, Compact
from paimon_magics.tables.schema.history import identity_of
from paimon_magics.tables.snapshots.upkeep import mark_written
from paimon_magics.tables.stores.allowed_paths import is_plain_name
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.cleanup import LeftTo, remove_uncommitted
from paimon_magics.tables.writing.commit_messages import read_messages

ROW_PARTS = ("new_files", "deleted_files", "changelog_files", "index_adds", "index_deletes")
"""The members of a CommitMessage that add or remove rows: data files, and entries of indexes."""
COMPACTION_PARTS = (
    *("compact_before", "compact_after", "compact_changelog_files"),
    *("compact_index_adds", "compact_index_deletes"),
)
"""The members that a compaction has."""
_LEVEL_MAX = 1_000


@dataclass(frozen=True, slots=True)
class DecodedRequest:
    """A request to commit to `table`, and its decoded `messages` without empty ones; `positions`
    are theirs in the request. `left_out` are messages whose files are not committed."""

    table: Table
    request: CommitRequest
    messages: Sequence[CommitMessage]
    positions: Sequence[int]
    left_out: Sequence[CommitMessage] = ()

    @property
    def file_names(self) -> frozenset[str]:
        """The names, without folders, of all files that the transaction wrote and the messages
        commit."""
        names: set[str] = set()
        for message in self.messages:
            names.update(name for _, name in _written_names(message))
            names.update(entry.index_file.file_name for entry in _index_adds(message))
        return frozenset(names)

    @property
    def index_names(self) -> frozenset[str]:
        """The names of the index files that the messages add."""
        adds = (entry for message in self.messages for entry in _index_adds(message))
        return frozenset(entry.index_file.file_name for entry in adds)

    @property
    def changes_index(self) -> bool:
        """Whether the messages add or remove index files."""
        return bool(self.index_names) or any(
            message.index_deletes or message.compact_index_deletes for message in self.messages
        )


def written_files(message: CommitMessage) -> list[Any]:
    """The data and changelog files that a message adds to its bucket, without those that a
    compaction moves to another level: they are older than the message."""
    before = {file.file_name for file in message.compact_before}
    compacted = [file for file in message.compact_after if file.file_name not in before]
    return [
        *message.new_files,
        *message.changelog_files,
        *compacted,
        *message.compact_changelog_files,
    ]


def _written_names(message: CommitMessage) -> list[tuple[Any, str]]:
    """The names of all files that a message adds to its bucket, indexes beside data files among
    them, each with the data file that it belongs to."""
    names = [
        (file, name)
        for file in written_files(message)
        for name in (file.file_name, *(file.extra_files or ()))
    ]
    before = {file.file_name: set(file.extra_files or ()) for file in message.compact_before}
    names += [
        (file, name)
        for file in message.compact_after
        if file.file_name in before
        for name in file.extra_files or ()
        if name not in before[file.file_name]
    ]
    return names


def decoded(table: Table, request: CommitRequest) -> DecodedRequest:
    """Decode a request to commit to `table`. Raises InvalidValueError for a message that can't be
    read, LayoutChangedError if the table's definition was replaced since it was written."""
    change = request.change
    bodies = change.left_out if isinstance(change, Compact) else ()
    try:
        with _without_collections():
            messages = list(read_messages(table.paimon, request.messages))
            left_out = list(read_messages(table.paimon, bodies))
    except Exception as error:
        base_schema = request.transaction.base_schema
        if base_schema not in ("", identity_of(table.paimon.table_schema)):
            raise replaced_since(table) from error
        raise InvalidValueError(
            f"A commit message for `{table.name}` can't be read: {error}",
            hint="Messages are in the form of Paimon's CommitMessageSerializer, version 14.",
        ) from error
    positions = [at for at, message in enumerate(messages) if not message.is_empty()]
    return DecodedRequest(table, request, [messages[at] for at in positions], positions, left_out)


def replaced_since(table: Table) -> LayoutChangedError:
    """The error for rows that were written before the table's definition was replaced."""
    return LayoutChangedError(
        f"The definition of `{table.name}` was replaced since these rows were written: they do not "
        "fit the table any more.",
        hint="Nothing was written. Run the statement again.",
    )


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Pause Python's search for cycles: it looks again and again at the files of a large request,
    which have none, and takes as long as decoding them. Where two threads do this, it goes on when
    the first one is done."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def check_names(commit: DecodedRequest) -> None:
    """Raise InvalidValueError for messages that add files outside the transaction's prefix, name
    any file outside the table's folders, or say of a file what no writer says."""
    prefix = commit.request.transaction.file_prefix
    appends = isinstance(commit.request.change, Append)
    paths = commit.table.paths
    folder = str(commit.table.paimon.path_factory().data_file_path())
    if folder != commit.table.location:
        paths.check([f"{folder}/file"])
    for message in [*commit.messages, *commit.left_out]:
        for file in written_files(message):
            is_own = file.file_name.startswith(prefix) and not file.external_path
            if not is_own:
                raise _not_its_own(file.file_name)
            _check_claims(file)
        # A changed file stays on its level; readers expect no other file of its keys there.
        free = {0, *(file.level for file in message.deleted_files)}
        for file in message.new_files if appends else ():
            if file.level not in free:
                raise _not_written(file.file_name, f"is on level {file.level}, not 0")
        for _, name in _written_names(message):
            if not (name.startswith(prefix) and is_plain_name(name)):
                raise _not_its_own(name)
        for name, external_path in _all_names(message):
            if not is_plain_name(name):
                raise _not_its_own(name)
            if external_path:
                paths.check([external_path])


def _check_claims(file: Any) -> None:
    """Check what can be checked of a file without reading it."""
    if file.row_count < 0 or file.file_size < 0 or (file.delete_row_count or 0) > file.row_count:
        raise _not_written(
            file.file_name,
            f"has {file.row_count} rows, of which {file.delete_row_count or 0} delete, and "
            f"{file.file_size} bytes",
        )
    if not 0 <= file.level <= _LEVEL_MAX or file.min_sequence_number > file.max_sequence_number:
        raise _not_written(
            file.file_name,
            f"is on level {file.level}, and has the sequence numbers {file.min_sequence_number} "
            f"to {file.max_sequence_number}",
        )


def _not_written(name: str, claim: str) -> InvalidValueError:
    return InvalidValueError(
        f"The message of the file {name!r} says that it {claim}.",
        hint="Nothing was committed. No writer of Paimon writes such a file.",
    )


def _index_adds(message: CommitMessage) -> list[Any]:
    return [*message.index_adds, *message.compact_index_adds]


def _all_names(message: CommitMessage) -> Iterator[tuple[str, str | None]]:
    """The names of all files of any kind that a message adds or removes, each with its recorded
    path outside the table's folder."""
    parts = {part: getattr(message, part) for part in (*ROW_PARTS, *COMPACTION_PARTS)}
    for part, files in parts.items():
        for file in files:
            if "index" in part:
                yield file.index_file.file_name, file.index_file.external_path
                continue
            for name in (file.file_name, *(file.extra_files or ())):
                yield name, file.external_path


def _not_its_own(name: str) -> InvalidValueError:
    return InvalidValueError(
        f"The file {name!r} does not belong to the transaction.",
        hint="Nothing was committed. A transaction commits only files whose names begin with its "
        "prefix.",
    )


def check_files(commit: DecodedRequest) -> None:
    """Raise CommitConflictError if a file that the messages commit is missing."""
    file_io = commit.table.paimon.file_io
    for path in file_paths(commit):
        if not file_io.exists(path):
            raise file_is_gone(commit.table, path)


def file_is_gone(table: Table, path: str) -> CommitConflictError:
    """The error for a missing file that a commit needs."""
    return CommitConflictError(
        f"The file {path} is gone, so the commit to `{table.name}` can't be made.",
        hint="Nothing was written. Run the statement again.",
    )


def file_paths(commit: DecodedRequest) -> list[str]:
    """The paths of all files in the table's folder that the transaction wrote and the messages
    commit."""
    return _paths(commit.table, commit.messages)


def left_out_paths(commit: DecodedRequest) -> list[str]:
    """The paths of the files that the transaction wrote for the messages that it leaves out."""
    committed = commit.file_names
    prefix = commit.request.transaction.file_prefix
    names = [(path, path.rpartition("/")[2]) for path in _paths(commit.table, commit.left_out)]
    return [path for path, name in names if name.startswith(prefix) and name not in committed]


def _paths(table: Table, messages: Sequence[CommitMessage]) -> list[str]:
    paimon = table.paimon
    paths = [
        canonical_data_file_path(paimon, tuple(message.partition), message.bucket, name)
        for message in messages
        for file, name in _written_names(message)
        if not file.external_path
    ]
    factory = paimon.path_factory()
    paths += [
        factory.bucket_index_path(tuple(entry.partition.values), entry.bucket, entry.index_file)
        for message in messages
        for entry in _index_adds(message)
        if entry.index_file.global_index_meta is None
    ]
    return paths


# Removes files that a committed transaction wrote but did not commit.


def settle(commit: DecodedRequest, left_to: LeftTo | None = None) -> None:
    """After a commit, report the written partitions as done where the table's options ask for that,
    and remove the files of messages that it left out and of attempts that do not count. It does not
    wait. Its exceptions, of any type, say nothing about the commit. `left_to` is that of
    `remove_uncommitted`.

    Files that were left out are removed first. The reason: an attempt that wrote some of them
    counts if its other files were committed, and then the notes that lead to these files are
    removed.
    """
    try:
        if not isinstance(commit.request.change, Compact):
            mark_written(commit.table, [tuple(message.partition) for message in commit.messages])
    finally:
        _remove_uncommitted(commit, left_to)


def _remove_uncommitted(commit: DecodedRequest, left_to: LeftTo | None) -> None:
    try:
        commit.table.paths.delete(left_out_paths(commit))
    finally:
        transaction = commit.request.transaction
        if transaction.attempts_folder is not None:
            names = commit.file_names
            remove_uncommitted(commit.table, transaction, names, 0, left_to=left_to)
