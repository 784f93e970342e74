"""Faults to plant into our code for the time of a run: the simulation must find each of them.

Where our code has two guards against a fault, both are taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from paimon_magics.coordinator.inserts.engine import replies
from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit
from paimon_magics.coordinator.inserts.engine.holds import StatementHolds
from paimon_magics.coordinator.inserts.engine.loading import LoadPool
from paimon_magics.coordinator.inserts.engine.replies import TableQueue
from paimon_magics.coordinator.inserts.loading import flush, rows
from paimon_magics.coordinator.inserts.log import log
from paimon_magics.coordinator.inserts.log.database import DatabaseLog
from paimon_magics.coordinator.inserts.queue import step
from paimon_magics.coordinator.inserts.queue.values import Hold, Queue, Reason, Refused
from paimon_magics.coordinator.ownership.lease import LeaseWatch
from paimon_magics.coordinator.store.database import StoreUnavailableError

__all__ = ["PLANTED", "planted"]

Call = Callable[..., Any]


class Planted:
    """A fault: how the check that finds it says so, and its places: an owner, a name there, and
    what becomes of it."""

    def __init__(self, found_as: str, *places: tuple[Any, str, Callable[[Call], Call]]) -> None:
        self.found_as = found_as
        self.places = places


def _forgetting(method: Call) -> Call:
    """The log says that it has appended, and has not: acknowledged before it is durable."""

    def append(self: DatabaseLog, groups: Sequence[Any]) -> None:
        if any(group.segment.first % 3 == 2 for group in groups):
            return
        method(self, groups)

    return append


def _nothing(_: Call) -> Call:
    """A function that does nothing, and finds nothing."""
    return lambda *_, **__: None


def _no_keys(_: Call) -> Call:
    """No label or offset is stored with the rows that have it."""
    return lambda _: []


def _cut_off(_: Call) -> Call:
    """A batch whose commit got no clear answer counts as not loaded, without a look."""

    def settle(*_: Any) -> Any:
        raise flush.NotLoadedError("planted")
        yield

    return settle


def _published_at_once(method: Call) -> Call:
    """Records leave the log before their commit is asked for, which now and then fails."""

    def begin_flush(self: DatabaseLog, table_id: str, noted: Any, dead: Any) -> None:
        method(self, table_id, noted, dead)
        self.publish(table_id, noted.last, noted.chain, None)

    def failing(*args: Any) -> None:
        begin_flush(*args)
        raise StoreUnavailableError("planted")

    return _every(5, begin_flush, failing)


def _every(count: int, usual: Call, other: Call) -> Call:
    """`other` for every call with a number that `count` divides, `usual` for the rest."""
    calls = [0]

    def call(*args: Any, **named: Any) -> Any:
        calls[0] += 1
        return (usual if calls[0] % count else other)(*args, **named)

    return call


def _stranding(method: Call) -> Call:
    """Now and then a batch is not loaded, and nobody hears of it."""
    return _every(7, method, lambda *_: None)


def _silent(method: Call) -> Call:
    """Now and then nobody is answered."""
    return _every(9, method, lambda *_: None)


def _backwards(method: Call) -> Call:
    """The rows of a batch are loaded in the order of the last one first."""

    def entries_of(records: Sequence[Any], *args: Any) -> Any:
        return method(records[::-1], *args)

    return entries_of


def _refusing(method: Call) -> Call:
    """Now and then an insert is refused, and stored all the same."""

    def accept(self: Any, arrival: Any) -> None:
        method(self, arrival)
        if self._replies and self._next_lsn % 4 == 0:
            refused = Refused(Reason.MISMATCH, "planted")
            self._replies[-1] = self._replies[-1]._replace(answer=refused)

    return accept


def _holding_early(method: Call) -> Call:
    """A statement does not wait for what was acknowledged before it."""

    def ask_hold(queue: Queue, event: Any) -> Any:
        queue, effects = method(queue, event)
        holds = tuple(_early(hold, queue) for hold in queue.holds)
        queue, granted = step._granted(replace(queue, holds=holds))
        return queue, [*effects, *granted]

    return ask_hold


def _early(hold: Hold, queue: Queue) -> Hold:
    return hold if hold.granted else replace(hold, lsn=queue.published)


def _of_logged_tables(method: Call) -> Call:
    """Statements keep their places only in tables of which the log has something."""

    def restore_places(self: GroupCommit, tables: dict[str, TableQueue]) -> None:
        method(self, dict(tables))

    return restore_places


def _at_once(_: Call) -> Call:
    """A standby takes over from an owner that lives."""
    return lambda *_: True


PLANTED = {
    "appends get lost": Planted("acknowledged", (DatabaseLog, "append", _forgetting)),
    "labels are forgotten": Planted("2 times in", (log, "key_rows", _no_keys)),
    "outcomes are not looked up": Planted(
        "2 times in",
        (flush.BatchLoader, "settle", _cut_off),
        (flush.BatchLoader, "_loaded_before", _nothing),
    ),
    "records leave the log early": Planted(
        "is missing in", (DatabaseLog, "begin_flush", _published_at_once)
    ),
    "batches are stranded": Planted("wait for ever", (LoadPool, "load", _stranding)),
    "answers are not given": Planted("no answer within", (replies, "deliver", _silent)),
    "rows change their order": Planted("out of order", (rows, "entries_of", _backwards)),
    "refused rows are stored": Planted("which refused it", (step._Group, "_accept", _refusing)),
    "statements don't wait": Planted("truncated after it", (step, "_ask_hold", _holding_early)),
    "places are not restored": Planted(
        "which acknowledged it", (StatementHolds, "restore", _nothing)
    ),
    "places in new tables are not restored": Planted(
        "which acknowledged it", (GroupCommit, "_restore_places", _of_logged_tables)
    ),
    "two own the warehouse": Planted("at once", (LeaseWatch, "has_run_out", _at_once)),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a fault for the `with` block."""
    places = PLANTED[name].places
    before = [(owner, method, getattr(owner, method)) for owner, method, _ in places]
    for owner, method, change in places:
        setattr(owner, method, change(getattr(owner, method)))
    try:
        yield
    finally:
        for owner, method, original in before:
            setattr(owner, method, original)
