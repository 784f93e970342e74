"""The lease on a warehouse's commits as a value and a JSON document, and when it may be succeeded.

Nothing here acts. The document of epoch E is an object of its own, `owner-E.json`, which is created
only if it is absent: of two coordinators that want to succeed the same lease one wins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

__all__ = ["FOLDER", "Home", "Lease", "Owner", "Watched", "epoch_in", "lease_name", "lease_of"]

FOLDER = ".paimon-magics"
"""Where a warehouse keeps what coordinators tell each other; databases end in `.db`."""

_NAME = re.compile(r"owner-([1-9][0-9]{0,17})\.json")


@dataclass(frozen=True, slots=True)
class Home:
    """Where a coordinator keeps its state: whoever holds that folder is its only heir.

    `id` was drawn when the folder was made, so that a copy of it elsewhere is another home.
    """

    host: str
    folder: str
    id: str


@dataclass(frozen=True, slots=True)
class Owner:
    """A coordinator's process, as its lease tells others of it: where it keeps its state, its
    address, whose it is, and its number."""

    home: Home
    address: str
    user: str
    pid: int

    def lease(self, instance: str, lease_ms: int) -> Lease:
        """A lease of this process, which it does not have yet."""
        return Lease(0, instance, self.home, self.address, self.user, self.pid, lease_ms, 0)


@dataclass(frozen=True, slots=True)
class Lease:
    """Who owns a warehouse's commits. `instance` is fresh for each process.

    `lease_ms` after the object has last changed it has run out; `expires_at_ms` is the owner's own
    reckoning of that, by its clock. A released one can be succeeded at once.
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

    def document(self) -> bytes:
        """The lease as it is stored."""
        return json.dumps(asdict(self), indent=2).encode()

    @property
    def who(self) -> str:
        """The owner, for a message."""
        return f"{self.user} on {self.home.host} (process {self.pid})"


def lease_name(epoch: int) -> str:
    """The leaf name of the lease of an epoch."""
    return f"owner-{epoch}.json"


def epoch_in(names: Iterable[str]) -> int:
    """The highest epoch of these leaf names, 0 for none."""
    return max((int(m[1]) for m in map(_NAME.fullmatch, names) if m is not None), default=0)


def lease_of(content: bytes, epoch: int) -> Lease | None:
    """The lease in a document of that epoch; None for one that can't be read, as after a crash."""
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
        )
    except (ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class Watched:
    """A lease that somebody else has, seen unchanged since `since_ms` by the watcher's own clock,
    which never goes back."""

    lease: Lease | None
    since_ms: float

    def has_run_out(self, now_ms: float, wall_ms: float, lease_ms: int) -> bool:
        """Whether its owner can't own any more.

        That is so when it was seen unchanged for a whole lease: the owner, too, counts from before
        it wrote. What it wrote about its end by its own clock must have passed as well, unless
        that is further away than any lease could be, so that one of the clocks is wrong.
        `lease_ms` counts for a lease that can't be read.
        """
        if self.lease is None:
            return now_ms - self.since_ms >= lease_ms
        if now_ms - self.since_ms < self.lease.lease_ms:
            return False
        left_ms = self.lease.expires_at_ms - wall_ms
        return left_ms <= 0 or left_ms > self.lease.lease_ms
