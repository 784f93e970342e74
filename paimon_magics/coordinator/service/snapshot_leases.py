"""Read leases: the snapshots that are being read, which must not expire meanwhile.

A holder (a session) names all the snapshots that it reads, and renews that before the lease ends.
Leases are kept in memory only: after a start, nothing expires until every holder has had the length
of a lease to renew.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from paimon_magics.coordinator.turns import Turns
from paimon_magics.errors import InvalidValueError, SetupError
from paimon_magics.planning.commits.expiry import NO_FLOOR
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.expiry.expire_snapshots import can_expire
from paimon_magics.tables.expiry.holders import Holder
from paimon_magics.tables.snapshots.latest import is_usable
from paimon_magics.tables.table import Table

_LEASES_MAX = 1_000  # of one holder
_HOLDERS_MAX = 10_000

Leased = tuple[TableName, int]
"""A table's full name, and the id of one of its snapshots."""


@dataclass(slots=True)
class _Holder:
    expires_at_ms: int
    leases: dict[Leased, str] = field(default_factory=dict)  # with the table's location


def check_count(leases: int) -> None:
    """Raise InvalidValueError for more leases than a session can have."""
    if leases > _LEASES_MAX:
        raise InvalidValueError(
            f"{leases} snapshots are too many for one session's read leases.",
            hint=(
                f"A session can read {_LEASES_MAX} snapshots at once. Release the outcomes of "
                "queries that you no longer need."
            ),
        )


class Leases:
    """The read leases of one coordinator. For any thread. `quiet_until_ms` is when every holder has
    had the time to renew after the start."""

    def __init__(self, catalog: Catalog, lease_ms: int, now_ms: int) -> None:
        self._catalog = catalog
        self._lease_ms = lease_ms
        self.quiet_until_ms = now_ms + lease_ms
        self._holders: dict[tuple[str, str], _Holder] = {}
        self._guard = threading.Lock()
        self._turns = Turns()

    def renew(
        self, holder: str, wanted: Collection[Leased], now_ms: int, principal: str = ""
    ) -> tuple[int, list[Leased]]:
        """Give the holder leases on these snapshots, and no others. Holders of different principals
        are different, even with the same name, so nobody can release the leases of somebody else.

        Return when they end, in milliseconds of the epoch, and the snapshots that can't be leased
        because they have expired or don't exist. Raises InvalidValueError for too many snapshots,
        SetupError for too many holders.
        """
        check_count(len(wanted))
        with self._guard:
            self._forget(now_ms)
            key = principal, holder
            if key not in self._holders and len(self._holders) >= _HOLDERS_MAX:
                raise SetupError(
                    f"{_HOLDERS_MAX} sessions hold read leases already.", hint="Try again later."
                )
            expires_at_ms = now_ms + self._lease_ms
            entry = self._holders.setdefault(key, _Holder(expires_at_ms))
            entry.expires_at_ms = expires_at_ms
            for lease in entry.leases.keys() - set(wanted):
                del entry.leases[lease]
            new = [lease for lease in wanted if lease not in entry.leases]
        gone = [lease for lease in new if not self._grant(entry, lease)]
        if not wanted:
            with self._guard:
                self._holders.pop(key, None)
        return expires_at_ms, gone

    def stays(self, table: Table, snapshot_id: int) -> bool:
        """Whether a snapshot exists and was not about to expire at the time of the call."""
        if not can_expire(table):
            return True
        with self._turns(table.location):
            return is_usable(table, snapshot_id)

    @contextlib.contextmanager
    def closing(self, table: Table, now_ms: int) -> Iterator[int | None]:
        """Freeze the leases of a table (or branch) for the `with` block. It gets the first leased
        snapshot, up to which it may move the EARLIEST hint, or None when nothing may expire
        yet."""
        with self._turns(table.location):
            if now_ms < self.quiet_until_ms:
                yield None
                return
            with self._guard:
                self._forget(now_ms)
                ids = [
                    snapshot_id
                    for holder in self._holders.values()
                    for (name, snapshot_id), where in holder.leases.items()
                    if where == table.location and name.branch == table.name.branch
                ]
            yield min(ids, default=NO_FLOOR)

    def holders(self, table: Table, now_ms: int) -> list[Holder]:
        """The leases on snapshots of a table or branch, by their users; "" where there are none."""
        with self._guard:
            self._forget(now_ms)
            return [
                Holder("lease", principal, snapshot_id)
                for (principal, _), entry in self._holders.items()
                for (name, snapshot_id), where in entry.leases.items()
                if where == table.location and name.branch == table.name.branch
            ]

    def count(self) -> int:
        """How many leases are held."""
        with self._guard:
            return sum(len(holder.leases) for holder in self._holders.values())

    def _grant(self, holder: _Holder, lease: Leased) -> bool:
        name, snapshot_id = lease
        table = self._catalog.load(name)
        if not can_expire(table):
            return True
        with self._turns(table.location):
            if not is_usable(table, snapshot_id):
                return False
            with self._guard:
                holder.leases[lease] = table.location
            return True

    def _forget(self, now_ms: int) -> None:
        ended = [name for name, holder in self._holders.items() if holder.expires_at_ms <= now_ms]
        for name in ended:
            del self._holders[name]
