"""The lease on a warehouse's commits, as a value and a JSON document, and when it has expired.

This module does no I/O. The document of epoch E is an object of its own, `owner-E.json`, which is
created only if it is absent: of two coordinators that try to succeed the same lease, one wins.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from enum import StrEnum

from paimon_magics.coordinator.runtime.work import Clock
from paimon_magics.errors import SetupError
from paimon_magics.tables.commits.fencing import NotOwnerError
from paimon_magics.tables.stores.store import Store

FOLDER = ".paimon-magics"
"""The folder of a warehouse for coordinators' objects. It is not a database: the folders of
databases end in `.db`.
"""

_NAME = re.compile(r"owner-([1-9][0-9]{0,17})\.json")

_PREFIX = "claim-"

_LEASE_PREFIX = "owner-"

RENEWALS_PER_LEASE = 6
_LOOKS_PER_LEASE = 30
_LOOK_MS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Home:
    """The identity of a state folder: only a process that holds it may succeed its lease at once.

    `id` was drawn at random when the folder was made: a new folder at the same path is another
    home. A copy elsewhere is another home by its path.
    """

    host: str
    folder: str
    id: str


@dataclass(frozen=True, slots=True)
class Owner:
    """A coordinator's process, as its lease names it: the home of its state, its address, its user
    and its process id."""

    home: Home
    address: str
    user: str
    pid: int

    def lease(self, instance: str, lease_ms: int) -> Lease:
        """Return the lease that this process would have, with epoch 0 and no end."""
        return Lease(0, instance, self.home, self.address, self.user, self.pid, lease_ms, 0)


@dataclass(frozen=True, slots=True)
class Lease:
    """The ownership of a warehouse's commits. `instance` is fresh for each process. `warehouse` is
    the warehouse's id, "" in a lease of an older version: in a copy there is the original's lease.

    It expires `lease_ms` after the last change of its object; `expires_at_ms` is that time by the
    owner's clock. A `released` lease can be succeeded at once.
    """

    epoch: int
    instance: str
    home: Home
    address: str
    user: str
    pid: int
    lease_ms: int
    expires_at_ms: int
    released: bool = False
    warehouse: str = ""

    def document(self) -> bytes:
        """The lease as it is stored."""
        return json.dumps(asdict(self), indent=2).encode()

    @property
    def who(self) -> str:
        """The owner, for a message."""
        return f"{self.user} on {self.home.host} (process {self.pid})"


def epoch_in(names: Iterable[str]) -> int:
    """The highest epoch among these file names, 0 for none."""
    return max((int(m[1]) for m in map(_NAME.fullmatch, names) if m is not None), default=0)


def lease_of(content: bytes, epoch: int) -> Lease | None:
    """The lease in an epoch's document; None if it can't be read, for example after a crash."""
    try:
        document = json.loads(content)
        home = Home(**{field.name: str(document["home"][field.name]) for field in fields(Home)})
        return Lease(
            epoch=epoch,
            instance=str(document["instance"]),
            home=home,
            address=str(document["address"]),
            user=str(document["user"]),
            pid=int(document["pid"]),
            lease_ms=int(document["lease_ms"]),
            expires_at_ms=int(document["expires_at_ms"]),
            released=document["released"] is True,
            warehouse=str(document.get("warehouse", "")),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


# Claims: which of two coordinators decides the fate of a transaction, a commit or a removal. Within
# one coordinator, its core decides. But a transaction that a client brings to the next coordinator
# may have expired in the previous coordinator, which may have been interrupted right before it
# removed the files. So a coordinator first creates the transaction's claim, if it is absent, before
# it removes files, or commits a transaction that it has not opened since its start. It does not act
# against another coordinator's claim for the other fate. Its own claim follows its core's decision:
# a commit that was claimed and then refused is removed. If the process dies, the claim stays: the
# same decision can be continued, the other can't be made.


class Fate(StrEnum):
    """What becomes of a transaction."""

    COMMIT = "commit"
    REMOVAL = "removal"


class Claims:
    """The claims of one warehouse, for a coordinator whose process has the id `instance`."""

    def __init__(self, store: Store, warehouse: str, instance: str) -> None:
        self._store = store
        self._instance = instance
        self._folder = f"{warehouse.rstrip('/')}/{FOLDER}"

    def take(self, file_prefix: str, fate: Fate) -> bool:
        """Claim a fate for the transaction with that file prefix; return False when another
        coordinator has claimed the other fate.

        Raises errors of the store; the claim may exist after an error.
        """
        path = self._path(file_prefix)
        at_ms = int(time.time() * 1000)
        document = {"fate": fate, "at_ms": at_ms, "instance": self._instance}
        content = json.dumps(document).encode()
        if self._store.create(path, content):
            return True
        present = self._store.read(path)
        if present is None:
            return self.take(file_prefix, fate)  # dropped in between
        claim = _read(present)
        is_same, is_own = claim.get("fate") == fate, claim.get("instance") == self._instance
        if is_same != is_own:  # a decision is taken up, or this one's has changed
            self._store.write(path, content)
        return is_same or is_own

    def drop(self, file_prefix: str) -> None:
        """Drop a claim: the commit is in the table, or the files are removed."""
        self._store.delete([self._path(file_prefix)])

    def drop_older(self, before_ms: int) -> None:
        """Drop the claims from before that time, which coordinators left when they died."""
        for name in self._store.names(self._folder, _PREFIX):
            path = f"{self._folder}/{name}"
            content = self._store.read(path)
            if content is not None and int(_read(content).get("at_ms", 0)) < before_ms:
                self._store.delete([path])

    def _path(self, file_prefix: str) -> str:
        return f"{self._folder}/{_PREFIX}{file_prefix.strip('-')}.json"


def _read(content: bytes) -> dict[str, int | str]:
    try:
        document = json.loads(content)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


# The leases in a warehouse, which say who owns its commits: one object for each epoch.


class LeaseFolder:
    """Reads and writes the leases of one warehouse. Raises what its store raises."""

    def __init__(self, store: Store, warehouse: str) -> None:
        self._store = store
        self._folder = f"{warehouse.rstrip('/')}/{FOLDER}"

    def highest(self) -> int:
        """The highest epoch of a lease, 0 for none."""
        return epoch_in(self._store.names(self._folder, _LEASE_PREFIX))

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
                f"{path} is a folder, but must be a file with a lease of the warehouse.",
                hint="Remove the folder. No coordinator creates it.",
            ) from error

    def create(self, lease: Lease) -> bool:
        """Create the object of a lease's epoch; return whether it has this lease now, False when it
        has another coordinator's lease. Raises SetupError when there is no lease, for example on a
        full disk.
        """
        failed: OSError | None = None
        try:
            if self._store.create(self._path(lease.epoch), lease.document()):
                return True
        except OSError as error:
            failed = error  # the object itself shows whether it was created
        content = self.content(lease.epoch)
        if content is None and failed is not None:
            raise SetupError(
                f"The lease of the warehouse's commits could not be written: {failed}",
                hint="The coordinator resumes when the warehouse can be written.",
            ) from failed
        mine = None if content is None else lease_of(content, lease.epoch)
        return mine is not None and mine.instance == lease.instance

    def write(self, lease: Lease) -> None:
        """Rewrite the object of the owner's own epoch."""
        self._store.write(self._path(lease.epoch), lease.document())

    def remove_older(self, epoch: int) -> None:
        """Remove the objects of epochs before `epoch`."""
        names = self._store.names(self._folder, _LEASE_PREFIX)
        older = [name for name in names if 0 < epoch_in([name]) < epoch]
        self._store.delete(f"{self._folder}/{name}" for name in older)

    def _path(self, epoch: int) -> str:
        return f"{self._folder}/owner-{epoch}.json"


# Watching the lease of a warehouse: whether somebody renews it, and whether it has run out.


def look_seconds(lease_ms: int) -> float:
    """The pause between two looks at a lease of that length, in seconds."""
    return min(lease_ms / _LOOKS_PER_LEASE, _LOOK_MS_MAX) / 1000


def current_lease(store: Store, warehouse: str) -> Lease | None:
    """Return the lease of the highest epoch, which may have expired; None without a readable
    lease."""
    leases = LeaseFolder(store, warehouse)
    epoch = leases.highest()
    return leases.read(epoch) if epoch else None


def is_renewed(store: Store, warehouse: str, lease: Lease) -> bool:
    """Whether a running coordinator renews a lease, or has succeeded it: its object is watched for
    two renewals. Clocks of two machines are not compared. Raises what the store raises.
    """
    watch = LeaseWatch(LeaseFolder(store, warehouse), Clock().steady_ms)
    watch.look()
    if watch.lease != lease:
        return True
    pause = look_seconds(lease.lease_ms)
    for _ in range(2 * _LOOKS_PER_LEASE // RENEWALS_PER_LEASE + 1):
        time.sleep(pause)
        if watch.look():
            return True
    return False


class LeaseWatch:
    """The repeatedly observed lease of the highest epoch, by the watcher's own clock, which never
    goes back. `lease` is the observed lease, None if there is none or it can't be read. Not for
    several threads.
    """

    def __init__(self, leases: LeaseFolder, now_ms: Callable[[], float]) -> None:
        self._leases = leases
        self._now_ms = now_ms
        self._content: bytes | None = None
        self._looked_ms = self._since_ms = 0.0
        self.epoch = -1
        self.lease: Lease | None = None

    def look(self) -> bool:
        """Look, and return whether anything has changed since the last look. If it raises an error
        of the store, this look does not count.
        """
        looked_ms = self._now_ms()
        epoch = self._leases.highest()
        content = self._leases.content(epoch) if epoch else None
        has_changed = (epoch, content) != (self.epoch, self._content)
        if has_changed:
            self.epoch, self._content = epoch, content
            self.lease = lease_of(content, epoch) if content else None
            self._since_ms = self._now_ms()
        self._looked_ms = looked_ms
        return has_changed

    def has_run_out(self, lease_ms: int) -> bool:
        """Whether the lease has expired for its owner too: it was seen unchanged for a whole lease,
        and the owner counts from before it wrote.

        The time before the last look counts, so that a watcher that stands still between its look
        and this question does not take a living owner for dead. Clocks of two machines are not
        compared, and may differ by any time. `lease_ms` is the length to assume for an unreadable
        lease.
        """
        length_ms = lease_ms if self.lease is None else self.lease.lease_ms
        return self.epoch >= 0 and self._looked_ms - self._since_ms >= length_ms


def owned_elsewhere(lease: Lease | None) -> NotOwnerError:
    """Return the error for a coordinator that needs a warehouse of another owner."""
    if lease is None:
        return NotOwnerError(
            "Another coordinator owns the warehouse's commits.",
            hint="Use that coordinator, or stop it first.",
        )
    return NotOwnerError(
        f"The coordinator of {lease.who} at {lease.address} (epoch {lease.epoch}) owns the "
        "warehouse's commits.",
        hint=(
            f"Connect with coordinator='{lease.address}' and its token. Or wait until it stops; "
            f"{lease.lease_ms / 1000:.0f} s after its death another coordinator takes over. "
            "Users with separate accounts share a service: start it with `paimon-coordinator "
            "--warehouse … --state …`, and make a token for each user with `paimon-coordinator "
            "token add NAME --allow write --state …`. Each user connects with "
            "coordinator='http://HOST:PORT' and the token."
        ),
        address=lease.address,
    )
