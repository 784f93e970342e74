"""The lease on a warehouse's commits, as a value and a JSON document, and when it has run out.

This module does no I/O. The document of epoch E is an object of its own, `owner-E.json`, which is
created only if it is absent: of two coordinators that want to succeed the same lease, one wins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

__all__ = ["FOLDER", "Home", "Lease", "Owner", "Watched", "epoch_in", "lease_name", "lease_of"]

FOLDER = ".paimon-magics"
"""The folder of a warehouse for coordinators' objects. It is no database: their folders end in
`.db`."""

_NAME = re.compile(r"owner-([1-9][0-9]{0,17})\.json")


@dataclass(frozen=True, slots=True)
class Home:
    """The identity of a state folder: only a process that holds it may succeed its lease at once.

    `id` was drawn at random when the folder was made: a new folder at the same path is another
    home. A copy elsewhere is one by its path.
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

    It has run out `lease_ms` after the last change of its object; `expires_at_ms` is that time by
    the owner's clock. A `released` lease can be succeeded at once.
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


def lease_name(epoch: int) -> str:
    """The file name of an epoch's lease, without its folder."""
    return f"owner-{epoch}.json"


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


@dataclass(frozen=True, slots=True)
class Watched:
    """Another coordinator's lease, seen unchanged since `since_ms` by the watcher's own clock,
    which never goes back."""

    lease: Lease | None
    since_ms: float

    def has_run_out(self, looked_ms: float, lease_ms: int) -> bool:
        """Whether the lease has run out for its owner too: it was seen unchanged for a whole lease,
        and the owner counts from before it wrote.

        `looked_ms` is the time before the last look, so that a watcher that stands still between
        its look and this question does not take a living owner for dead. Clocks of two machines are
        not compared, and may be any time apart. `lease_ms` is the length to assume for a lease that
        can't be read.
        """
        length_ms = lease_ms if self.lease is None else self.lease.lease_ms
        return looked_ms - self.since_ms >= length_ms
