"""The history of loaded files in a table's folder (`planning/copying/load_history.py`): read,
written, and completed after loads whose process died."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.copying.load_history import (
    HISTORY_FOLDER,
    PENDING_FOLDER,
    LoadRecord,
    PendingLoad,
    loaded_paths,
    pending_of,
    record_of,
    record_prefix,
)
from paimon_magics.tables.snapshots.latest import latest_snapshot_id, read_snapshot
from paimon_magics.tables.snapshots.provenance import LOAD, noted
from paimon_magics.tables.stores.store import store_errors
from paimon_magics.tables.table import Table, branch_folder

_KEPT_MS = 24 * 3600 * 1000
"""How long the note of a load without a snapshot is kept: longer than a statement can commit."""


class LoadHistory:
    """Which files were loaded into a table, or into its branch."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._store = table.store
        folder = branch_folder(table)
        self._history = f"{folder}/{HISTORY_FOLDER}"
        self._pending = f"{folder}/{PENDING_FOLDER}"

    def loaded(self, sources: Mapping[str, tuple[int, int]], now_ms: int) -> set[str]:
        """The paths among `sources` (size in bytes, time of change in epoch milliseconds) that were
        loaded as they are now. Completes what interrupted loads have left.

        Raises InvalidValueError where it can't be known any more whether a load was committed.
        """
        with store_errors("Reading the history of loaded files"):
            for load in self._noted():
                self._settle(load, sources, now_ms)
            return loaded_paths(sources, self._records(sources), latest_snapshot_id(self._table))

    def note(self, load: PendingLoad) -> None:
        """Note a load before it is committed. Raises SetupError if the store refuses."""
        with store_errors("Noting the files to load"):
            self._store.make_folder(self._pending)
            self._store.write(f"{self._pending}/{load.id}", load.text.encode())

    def complete(self, load: PendingLoad, snapshot_id: int) -> None:
        """Record the files of a load that was committed in a snapshot. Raises SetupError if the
        store refuses; the next load then does it."""
        with store_errors("Recording the loaded files"):
            self._store.make_folder(self._history)
            for record in load.records:
                whole = replace(record, snapshot_id=snapshot_id)
                self._store.write(f"{self._history}/{whole.name}", whole.text.encode())
            self.forget(load)

    def forget(self, load: PendingLoad) -> None:
        """Remove the note of a load that is recorded, or certainly not committed."""
        self._store.delete([f"{self._pending}/{load.id}"])

    def _noted(self) -> Iterator[PendingLoad]:
        for name in self._store.names(self._pending):
            content = self._store.read(f"{self._pending}/{name}")
            load = None if content is None else pending_of(content)
            if load is not None:
                yield load

    def _settle(
        self, load: PendingLoad, sources: Mapping[str, tuple[int, int]], now_ms: int
    ) -> None:
        """Record a load that was committed. One that was not may still run, so its note stays for a
        day."""
        is_whole = True
        for snapshot_id in range(load.base_snapshot_id + 1, latest_snapshot_id(self._table) + 1):
            snapshot = read_snapshot(self._table.paimon, snapshot_id)
            if snapshot is None:
                is_whole = False
            elif noted(snapshot.properties).get(LOAD) == load.id:
                self.complete(load, snapshot_id)
                return
        if is_whole:
            if now_ms - load.noted_ms > _KEPT_MS:
                self.forget(load)
            return
        meant = loaded_paths(sources, load.records, max(load.base_snapshot_id, 0))
        if meant:
            raise InvalidValueError(
                f"A COPY INTO `{self._table.name}` ended without an answer, and its snapshot would "
                f"have expired since: it is unknown whether {min(meant)} was loaded.",
                hint="Nothing was written. Look into the table. Then load the file with FORCE = "
                f"TRUE, or delete {self._pending}/{load.id} if its rows are missing.",
            )

    def _records(self, sources: Mapping[str, tuple[int, int]]) -> Sequence[LoadRecord]:
        """The records of files at these paths."""
        wanted = {record_prefix(path) for path in sources}
        records = []
        for name in self._store.names(self._history):
            if f"{name.rpartition('-')[0]}-" not in wanted:
                continue
            with suppress(FileNotFoundError):
                content = self._store.read(f"{self._history}/{name}")
                record = None if content is None else record_of(content)
                if record is not None:
                    records.append(record)
        return records
