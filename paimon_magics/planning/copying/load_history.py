"""Which files were loaded into a table: the records, as Paimon's connector keeps them, and loads
that are not known to be complete.

The connector writes a file for each loaded file, after its commit (`CopyLoadHistoryManager`). If it
dies between the two, the file is loaded twice. Here a load notes its records as one document
before its commit, by the commit user of its transaction. Whoever comes next finds the document, and
whether there is a snapshot of that commit user.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from paimon_magics.errors import InvalidValueError

HISTORY_FOLDER = "copy-into/history"
"""The connector's folder of records, below a table's."""

PENDING_FOLDER = "copy-into/pending"
"""The folder of loads whose records may not have been written yet."""

_HASH_CHARACTERS = 16
_KEYS = ("filePath", "fileSize", "lastModified", "loadedAt", "snapshotId", "rowsLoaded")


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """A loaded file: its path, size in bytes and time of change, when it was loaded, both in epoch
    milliseconds, in which snapshot, and how many of its rows."""

    path: str
    size_bytes: int
    modified_ms: int
    loaded_ms: int
    snapshot_id: int
    rows: int

    @property
    def name(self) -> str:
        """The name of the record's file."""
        return f"{record_prefix(self.path)}{self.loaded_ms}"

    @property
    def document(self) -> dict[str, str | int]:
        """The content of the record's file."""
        return dict(zip(_KEYS, astuple(self), strict=True))

    @property
    def text(self) -> str:
        """The content of the record's file, as JSON."""
        return json.dumps(self.document, ensure_ascii=False)


def record_prefix(path: str) -> str:
    """What the names of all records of a file begin with."""
    return f"load-{hashlib.sha256(path.encode()).hexdigest()[:_HASH_CHARACTERS]}-"


def record_of(text: str | bytes) -> LoadRecord | None:
    """Parse a record; None for a file that is none, or that is damaged: as for the connector, it
    then counts as not loaded."""
    try:
        return _record(json.loads(text))
    except (ValueError, KeyError, TypeError):
        return None


def records_of(documents: Sequence[Any]) -> tuple[LoadRecord, ...]:
    """The records of the documents of a client. Raises InvalidValueError for one that is none."""
    try:
        return tuple(map(_record, documents))
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidValueError(
            f"The record of a loaded file can't be read: {error!r}.",
            hint=f"Send {', '.join(_KEYS)} of each file.",
        ) from error


def _record(document: Any) -> LoadRecord:
    path, *numbers = (document[key] for key in _KEYS)
    return LoadRecord(str(path), *map(int, numbers))


@dataclass(frozen=True, slots=True)
class PendingLoad:
    """A load that was about to commit: the commit user of its transaction, the snapshot before it,
    0 for none, and its records, which lack the id of their snapshot. `noted_ms` is when it was
    noted, in epoch milliseconds."""

    commit_user: str
    base_snapshot_id: int
    noted_ms: int
    records: tuple[LoadRecord, ...]

    def committed(self, snapshot_id: int) -> tuple[LoadRecord, ...]:
        """Its records, committed in this snapshot."""
        return tuple(replace(record, snapshot_id=snapshot_id) for record in self.records)

    @property
    def text(self) -> str:
        """The document."""
        return json.dumps(
            {
                "commitUser": self.commit_user,
                "baseSnapshotId": self.base_snapshot_id,
                "notedAt": self.noted_ms,
                "records": [record.document for record in self.records],
            },
            ensure_ascii=False,
        )


def pending_of(text: str | bytes) -> PendingLoad | None:
    """Parse the document of a load; None if it is none: it was cut while it was written, so that
    the load has not committed."""
    try:
        document = json.loads(text)
        return PendingLoad(
            str(document["commitUser"]),
            int(document["baseSnapshotId"]),
            int(document["notedAt"]),
            tuple(map(_record, document["records"])),
        )
    except (ValueError, KeyError, TypeError):
        return None


def loaded_paths(
    sources: Mapping[str, tuple[int, int]], records: Iterable[LoadRecord], latest_snapshot_id: int
) -> set[str]:
    """The paths among `sources` (size in bytes, time of change in epoch milliseconds) that were
    loaded as they are now. A record of a snapshot later than the table's latest does not count: the
    table was rolled back to before the load."""
    return {
        record.path
        for record in records
        if sources.get(record.path) == (record.size_bytes, record.modified_ms)
        and record.snapshot_id <= latest_snapshot_id
    }
