"""The history of loaded files in a table's folder (`planning/copying/load_history.py`): read,
written, and completed after loads whose process died.

With a coordinator only that writes here: a history decides what others load, and the keys of
sessions may not write it. Who reads it counts the files of a noted load as soon as its snapshot is
there, whether or not the records are written yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

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
from paimon_magics.tables.stores.store import store_errors
from paimon_magics.tables.table import StoredTable, Table, branch_folder

_KEPT_MS = 24 * 3600 * 1000
"""How long the note of a load without a snapshot is kept: longer than a statement can commit."""


class LoadHistory:
    """Which files were loaded into a table, or into its branch."""

    def __init__(self, table: Table | StoredTable) -> None:
        self._table = table
        self._store = table.store
        folder = branch_folder(table)
        self._history = f"{folder}/{HISTORY_FOLDER}"
        self._pending = f"{folder}/{PENDING_FOLDER}"

    def loaded(
        self, sources: Mapping[str, tuple[int, int]], now_ms: int, *, settles: bool
    ) -> set[str]:
        """The paths among `sources` (size in bytes, time of change in epoch milliseconds) that were
        loaded as they are now. With `settles` it completes what interrupted loads have left.

        Raises InvalidValueError where it can't be known any more whether a load was committed.
        """
        with store_errors("Reading the history of loaded files"):
            # The notes come first: who completes a load writes its records before its note goes.
            noted = _Noted(self._table, self._notes())
            for load in noted.unknown:
                self._check_unknown(load, sources)
            records = [*self._records(sources), *noted.records]
            if settles:
                self._settle(noted, now_ms)
            return loaded_paths(sources, records, noted.latest_id)

    def note(self, load: PendingLoad) -> None:
        """Note a load before it is committed. Raises SetupError if the store refuses."""
        with store_errors("Noting the files to load"):
            self._store.make_folder(self._pending)
            self._store.write(self._note_path(load.commit_user), load.text.encode())

    def settle(self, now_ms: int) -> None:
        """Complete what interrupted loads have left. Raises SetupError if the store refuses."""
        with store_errors("Completing the history of loaded files"):
            self._settle(_Noted(self._table, self._notes()), now_ms)

    def record(self, commit_user: str, snapshot_id: int | None) -> None:
        """Complete the noted load of a transaction that was committed in a snapshot, or without
        one if it had no rows. Raises SetupError if the store refuses."""
        with store_errors("Recording the loaded files"):
            content = self._store.read(self._note_path(commit_user))
            load = None if content is None else pending_of(content)
            if load is not None:
                self._complete(load, snapshot_id)

    def complete(self, load: PendingLoad, snapshot_id: int | None) -> None:
        """Record the files of a load that was committed in a snapshot, or without one. Raises
        SetupError if the store refuses; the next load then does it."""
        with store_errors("Recording the loaded files"):
            self._complete(load, snapshot_id)

    def forget(self, commit_user: str) -> None:
        """Remove the note of a load that is recorded, or certainly not committed."""
        self._store.delete([self._note_path(commit_user)])

    def forget_above(self, snapshot_id: int) -> None:
        """Remove the records of loads after a snapshot, which the table has gone back to."""
        with store_errors("Removing the history of loaded files"):
            self._store.delete(
                f"{self._history}/{record.name}"
                for record in self._records()
                if record.snapshot_id > snapshot_id
            )

    def take(self, branch: LoadHistory, after: int) -> None:
        """Take the records of a branch's loads after a snapshot, which the table has got."""
        with store_errors("Writing the history of loaded files"):
            records = [each for each in branch._records() if each.snapshot_id > after]
            if records:
                self._store.make_folder(self._history)
            for record in records:
                self._store.write(f"{self._history}/{record.name}", record.text.encode())

    def _note_path(self, commit_user: str) -> str:
        return f"{self._pending}/{commit_user}"

    def _notes(self) -> list[PendingLoad]:
        contents = (
            self._store.read(self._note_path(name)) for name in self._store.names(self._pending)
        )
        loads = (None if content is None else pending_of(content) for content in contents)
        return [load for load in loads if load is not None]

    def _complete(self, load: PendingLoad, snapshot_id: int | None) -> None:
        self._store.make_folder(self._history)
        for record in load.committed(load.base_snapshot_id if snapshot_id is None else snapshot_id):
            self._store.write(f"{self._history}/{record.name}", record.text.encode())
        self.forget(load.commit_user)

    def _settle(self, noted: _Noted, now_ms: int) -> None:
        """Record the loads that were committed. One that was not may still run, so its note stays
        for a day."""
        for load in noted.loads:
            snapshot_id = noted.snapshot_ids.get(load.commit_user)
            if snapshot_id is not None:
                self._complete(load, snapshot_id)
            elif load not in noted.unknown and now_ms - load.noted_ms > _KEPT_MS:
                self.forget(load.commit_user)

    def _check_unknown(self, load: PendingLoad, sources: Mapping[str, tuple[int, int]]) -> None:
        meant = loaded_paths(sources, load.records, max(load.base_snapshot_id, 0))
        if meant:
            raise InvalidValueError(
                f"A COPY INTO `{self._table.name}` ended without an answer, and its snapshot would "
                f"have expired since: it is unknown whether {min(meant)} was loaded.",
                hint="Nothing was written. Look into the table. Then load the file with FORCE = "
                f"TRUE, or delete {self._note_path(load.commit_user)} if its rows are missing.",
            )

    def _records(self, paths: Iterable[str] | None = None) -> list[LoadRecord]:
        """The records of files at these paths; of all files without paths."""
        wanted = None if paths is None else {record_prefix(path) for path in paths}
        records = []
        for name in self._store.names(self._history):
            if wanted is not None and f"{name.rpartition('-')[0]}-" not in wanted:
                continue
            with suppress(FileNotFoundError):
                content = self._store.read(f"{self._history}/{name}")
                record = None if content is None else record_of(content)
                if record is not None:
                    records.append(record)
        return records


class _Noted:
    """Noted loads, and what the table's snapshots say of them; each snapshot is read once."""

    def __init__(self, table: Table | StoredTable, loads: Sequence[PendingLoad]) -> None:
        self.loads = loads
        self.latest_id = latest_snapshot_id(table)
        self.snapshot_ids: dict[str, int] = {}
        users, gone_id = {load.commit_user for load in loads}, 0
        first = min((load.base_snapshot_id for load in loads), default=self.latest_id) + 1
        for snapshot_id in range(first, self.latest_id + 1):
            snapshot = read_snapshot(table.paimon, snapshot_id)
            if snapshot is None:
                gone_id = snapshot_id
            elif snapshot.commit_user in users:
                self.snapshot_ids[snapshot.commit_user] = snapshot_id
        self.unknown = [
            load
            for load in loads
            if load.commit_user not in self.snapshot_ids and load.base_snapshot_id < gone_id
        ]
        """The loads whose snapshots may have expired."""

    @property
    def records(self) -> list[LoadRecord]:
        """The records of the loads that were committed."""
        return [
            record
            for load in self.loads
            if load.commit_user in self.snapshot_ids
            for record in load.committed(self.snapshot_ids[load.commit_user])
        ]
