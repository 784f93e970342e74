"""The leases in a warehouse, which say who owns its commits: one object for each epoch."""

from __future__ import annotations

from paimon_magics.coordinator.ownership.lease import FOLDER, Lease, epoch_in, lease_name, lease_of
from paimon_magics.errors import SetupError
from paimon_magics.tables.stores.store import Store

__all__ = ["LeaseFolder"]

_PREFIX = "owner-"


class LeaseFolder:
    """Reads and writes the leases of one warehouse. Raises what its store raises."""

    def __init__(self, store: Store, warehouse: str) -> None:
        self._store = store
        self._folder = f"{warehouse.rstrip('/')}/{FOLDER}"

    def check(self) -> None:
        """Check that the store can create an absent object atomically; see `Store.check`."""
        self._store.check()

    def highest(self) -> int:
        """The highest epoch of a lease, 0 for none."""
        return epoch_in(self._store.names(self._folder, _PREFIX))

    def read(self, epoch: int) -> Lease | None:
        """The lease of an epoch; None without one, or when it can't be read."""
        content = self.content(epoch)
        return None if content is None else lease_of(content, epoch)

    def content(self, epoch: int) -> bytes | None:
        """The object of an epoch as bytes; None without one."""
        path = self._path(epoch)
        try:
            return self._store.read(path)
        except IsADirectoryError as error:
            raise SetupError(
                f"{path} is a folder, where a lease of the warehouse has to be.",
                hint="Remove it. No coordinator makes such a folder.",
            ) from error

    def create(self, lease: Lease) -> bool:
        """Create the object of a lease's epoch; return whether it has this lease now, False when
        another's is there. Raises SetupError when there is none, for example on a full disk."""
        failed: OSError | None = None
        try:
            if self._store.create(self._path(lease.epoch), lease.document()):
                return True
        except OSError as error:
            failed = error  # the object itself shows whether it was created
        found = self.content(lease.epoch)
        if found is None and failed is not None:
            raise SetupError(
                f"The lease of the warehouse's commits could not be written: {failed}",
                hint="The coordinator goes on once the warehouse can be written.",
            ) from failed
        mine = None if found is None else lease_of(found, lease.epoch)
        return mine is not None and mine.instance == lease.instance

    def write(self, lease: Lease) -> None:
        """Rewrite the object of the owner's own epoch."""
        self._store.write(self._path(lease.epoch), lease.document())

    def remove_older(self, epoch: int) -> None:
        """Remove the objects of epochs before `epoch`."""
        names = self._store.names(self._folder, _PREFIX)
        older = [name for name in names if 0 < epoch_in([name]) < epoch]
        self._store.delete(f"{self._folder}/{name}" for name in older)

    def _path(self, epoch: int) -> str:
        return f"{self._folder}/{lease_name(epoch)}"
