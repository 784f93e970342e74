"""Upkeep of tables after commits: snapshots and partitions expire by Paimon's options, and the
files that overwritten snapshots leave are removed. At the start, interrupted drops of tables are
finished.

A separate thread does it some seconds after a commit, one table and a bounded number of snapshots
at a time, so that no commit waits for it. Right before the decision, it asks what must stay: the
bases of open transactions, leased snapshots, and publications that have not been checked since.
After a failure it retries a minute later.

If the process dies here, see `tables.expiry.expire_snapshots` and `overwritten_cleanup`. A table is
known again after its next commit.
"""

from __future__ import annotations

import datetime
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from paimon_magics.coordinator.ownership.ownership import Ownership
from paimon_magics.coordinator.protocol.errors import about
from paimon_magics.coordinator.runtime.threads import Loop
from paimon_magics.coordinator.service.guards import TableGuard
from paimon_magics.coordinator.service.state_thread import StateThread
from paimon_magics.coordinator.store.state_store import StateStore
from paimon_magics.coordinator.turns import Turns
from paimon_magics.errors import PaimonMagicsError, UnknownNameError
from paimon_magics.planning.commits.automatic_tags import AutomaticTags
from paimon_magics.planning.commits.expiry import ExpiryRules
from paimon_magics.planning.commits.partition_expiry import PartitionExpiry
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.planning.formatting import shortened
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import CreateAutomaticTags, VersionChange
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.fencing import DeposedError
from paimon_magics.tables.commits.replaced_partitions import (
    Spec,
    expired_partitions,
    spec_of,
)
from paimon_magics.tables.expiry.expire_snapshots import can_expire, carry_out
from paimon_magics.tables.expiry.expired_files import remove_overwritten
from paimon_magics.tables.schema.history import is_other_table
from paimon_magics.tables.snapshots.tags_and_branches import VersionReceipt
from paimon_magics.tables.table import Table

_OVERWRITTEN = ""
_DROPPED = "dropped"
_LEFT = "Files of overwritten snapshots could not be removed"
_DROPPED_LEFT = "Files of dropped tables could not be removed"
_AGAIN_MS = 60_000  # after a failure
_DROPS_EVERY_MS = 600_000

_NEVER_MS = 2**62
_SHOWN_MAX = 500

DropPartitions = Callable[[Table, Sequence[Spec], tuple[int, str]], int | None]
"""Drops partitions of a table, as they were found in the state that is given; returns the id of the
snapshot."""

_Key = str | tuple[str, str | None]
"""A table's location and branch, _OVERWRITTEN or _DROPPED."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Job:
    """One piece of work. `run` returns the time of the next run, None without a next run. `problem`
    says what a failure means. `table` is the table that it is about, if any.
    """

    problem: str
    run: Callable[[], int | None]
    due_ms: int
    table: str = ""


class Upkeep:
    """Expires snapshots, and cleans up after overwritten snapshots.

    Right before a snapshot is removed, it asks for the first snapshot that transactions and
    publications need, and `ownership` whether this coordinator still owns the warehouse: only the
    owner knows what is being read. In a pause nothing is removed: an administrator may be copying
    the warehouse.

    `expired` counts the snapshots that were removed since the start, `expired_partitions` the
    partitions, `changed_tags` the tags that were created or deleted, `failures` the failed runs.
    `drop_partitions` commits what has expired, `change_versions` keeps tags up; until they are set,
    nothing of that happens.
    `problem` names each piece of work whose last run failed, with its reason, "" without one.
    """

    def __init__(
        self,
        catalog: Catalog,
        store: StateStore,
        state_thread: StateThread,
        ownership: Ownership | None,
        turns: Turns,
        guard: TableGuard,
    ) -> None:
        self._catalog = catalog
        self._publications = store.publications
        self._state_thread = state_thread
        self._ownership = ownership
        self._turns = turns
        self._guard = guard
        self._every_ms = state_thread.state.limits.expire_every_ms
        self._grace_ms = state_thread.state.limits.cleanup_grace_ms
        self._runtime = state_thread.runtime
        self._now_ms = state_thread.now_ms
        self._turn = threading.RLock()
        self._due: dict[_Key, _Job] = {}
        self._loop: Loop | None = None
        self._stopping = False
        self.expired = self.expired_partitions = 0
        self.changed_tags = 0
        self.drop_partitions: DropPartitions | None = None
        self.change_versions: Callable[[TableName, VersionChange], VersionReceipt] | None = None
        self._partitions_checked_ms: dict[tuple[str, str | None], int] = {}
        self.failures = 0
        self._problems: dict[_Key, str] = {}  # of each piece of work, until its next success

    @property
    def problem(self) -> str:
        """See the class."""
        with self._turn:
            return "; ".join(self._problems.values())

    def start(self) -> None:
        """Start the thread."""
        self._plan(_OVERWRITTEN, _Job(_LEFT, self._clear, self._now_ms()))
        self._plan(_DROPPED, _Job(_DROPPED_LEFT, self._finish_drops, self._now_ms()))
        self._loop = self._runtime.loop("upkeep", self._pause_ms, self._run_due)

    def stop(self) -> None:
        """Stop after the work under way."""
        self._stopping = True
        if self._loop is not None:
            self._loop.end()

    def committed(self, table: TableName, location: str) -> None:
        """Plan the expiry of a table that has a new snapshot."""
        problem = f"Snapshots of `{table}` could not expire"
        run = partial(self._expire, table)
        due_ms = self._now_ms() + self._every_ms
        self._plan((location, table.branch), _Job(problem, run, due_ms, str(table)))

    def wrote_over(self) -> None:
        """Plan the clean-up after an overwritten snapshot, which is about to be published again."""
        self._plan(_OVERWRITTEN, _Job(_LEFT, self._clear, self._now_ms() + self._every_ms))

    def _plan(self, key: _Key, job: _Job) -> None:
        with self._turn:
            if key in self._due:
                return
            self._due[key] = job
        if self._loop is not None:
            self._loop.wake()

    def _pause_ms(self) -> float | None:
        """The time until the next job is due; None without a job."""
        with self._turn:
            due_ms = min((job.due_ms for job in self._due.values()), default=None)
        return None if due_ms is None else max(0.0, due_ms - self._now_ms())

    def _run_due(self) -> None:
        """Run the jobs that are due."""
        while not self._stopping and (due := self._next()) is not None:
            key, job = due
            if self._state_thread.state.pause is not None:
                self._plan(key, replace(job, due_ms=self._now_ms() + self._every_ms))
                continue
            with about(job.table):
                error = self._runtime.attempt(job.problem, partial(self._run, key, job))
            with self._turn:
                if error is None:
                    self._problems.pop(key, None)
                else:
                    self._problems[key] = f"{job.problem}: {error}"
            if error is not None:
                self.failures += 1
                self._plan(key, replace(job, due_ms=self._now_ms() + _AGAIN_MS))

    def _run(self, key: _Key, job: _Job) -> None:
        again_ms = job.run()
        if again_ms is not None:
            self._plan(key, replace(job, due_ms=again_ms))

    def _next(self) -> tuple[_Key, _Job] | None:
        """Take the next due job; None without a due job."""
        with self._turn:
            key = min(self._due, key=lambda job_key: self._due[job_key].due_ms, default=None)
            if key is None or self._due[key].due_ms > self._now_ms():
                return None
            return key, self._due.pop(key)

    def _clear(self) -> int | None:
        """Remove the files that overwritten snapshots left; return when to run again, None if none
        are left.
        """
        self._clean_up()
        begun = [begun_ms for _, _, begun_ms in self._publications.repetitions()]
        if not begun:
            return None
        return max(min(begun) + self._grace_ms, self._now_ms() + self._every_ms)

    def _finish_drops(self) -> int:
        """Delete the remains of drops that failed or whose process died; return when to run
        again."""
        if self._ownership is not None and not self._ownership.epoch:
            # An embedded coordinator takes the warehouse when it writes.
            return self._now_ms() + self._every_ms
        self._check_owner()
        return self._now_ms() + (_AGAIN_MS if self._catalog.finish_drops() else _DROPS_EVERY_MS)

    def _expire(self, name: TableName) -> int | None:
        """Expire snapshots of a table; return when to run again, None for after the next commit."""
        try:
            table = self._catalog.load(name)
        except UnknownNameError:
            return None
        if table.schema.stored_option("partition.expiration-time") is not None:
            # Work of its own: whatever is wrong with partitions, snapshots expire.
            problem, run = f"Partitions of `{name}` could not expire", partial(self._age, name)
            key = f"partitions {table.location}", name.branch
            self._plan(key, _Job(problem, run, self._now_ms(), str(name)))
        try:
            self._tag(table)  # before the snapshots expire that get tags
            return self._expire_of(table)
        except DeposedError:
            raise
        except Exception:
            if self._is_replaced(table):  # its files went during the work
                return None
            raise

    def _tag(self, table: Table) -> None:
        """Create automatic tags, and delete those whose time is over: Paimon's `TagAutoManager`,
        which its writers call after their commits. What is wrong with that keeps no snapshot from
        expiring: it is a problem of its own, until the next commit."""
        if self.change_versions is None or table.schema.write_only or not can_expire(table):
            return
        key, problem = f"tags {table.location}", f"Tags of `{table.name}` could not be kept up"
        try:
            folder = str(table.paimon.tag_manager().tag_directory())
            if AutomaticTags.of(table.schema) is None and not table.store.names(folder, "tag-"):
                return
            self._check_owner()
            changed = self.change_versions(table.name, CreateAutomaticTags()).changed
        except DeposedError:
            raise
        except Exception as error:
            if self._is_replaced(table):  # it was dropped or renamed meanwhile
                return
            self.failures += 1
            with self._turn:
                self._problems[key] = f"{problem}: {error}"
            is_expected = isinstance(error, PaimonMagicsError | OSError)
            _log.warning("%s: %s", problem, error, exc_info=None if is_expected else error)
            return
        with self._turn:
            self._problems.pop(key, None)
        if changed:
            self.changed_tags += len(changed)
            _log.info(
                "Tags of `%s` were created by 'tag.automatic-creation', or deleted since their "
                "time is over: %s",
                table.name,
                shortened(", ".join(changed), _SHOWN_MAX),
            )

    def _age(self, name: TableName) -> None:
        """Drop the partitions of a table that have expired, if there still is the table."""
        try:
            table = self._catalog.load(name)
        except UnknownNameError:
            return
        self._expire_partitions(table)

    def _expire_partitions(self, table: Table) -> None:
        """Drop the partitions that have expired, at most once in the table's check interval:
        Paimon's `PartitionExpire`, which its writers call after their commits.

        If the process dies here, the next commit's upkeep does it.
        """
        rules = None if table.schema.write_only else PartitionExpiry.of(table.schema)
        if rules is None or self.drop_partitions is None:
            return
        place, now_ms = (table.location, table.name.branch), self._now_ms()
        if now_ms - self._partitions_checked_ms.get(place, -_NEVER_MS) < rules.check_ms:
            return
        now = datetime.datetime.fromtimestamp(now_ms / 1000).astimezone()
        old = expired_partitions(table, rules, now)
        gone, base = old.gone, old.base
        if gone:
            self._check_owner()
            specs = [spec_of(table, partition) for partition in gone]
            snapshot_id = self.drop_partitions(table, specs, base)
            self.expired_partitions += len(gone)
            shown = ", ".join("/".join(f"{k}={v}" for k, v in spec) for spec in specs)
            _log.info(
                "%d partitions of `%s` are older than 'partition.expiration-time' and were dropped "
                "by snapshot %s: %s",
                len(gone),
                table.name,
                snapshot_id,
                shortened(shown, _SHOWN_MAX),
            )
        self._partitions_checked_ms[place] = now_ms

    def _is_replaced(self, table: Table) -> bool:
        """Whether a table was dropped or renamed since it was loaded."""
        try:
            present = self._catalog.load(table.name)
        except UnknownNameError:
            return True
        return is_other_table(table, present)

    def _expire_of(self, table: Table) -> int | None:
        """See `_expire`."""
        rules = ExpiryRules.of(table.schema)
        if rules is None or not can_expire(table):
            return None
        while not self._stopping:
            with self._guard.cleaning(table.location):
                may_expire, expiry = self._guard.decided(table, rules)
                if not may_expire:
                    return self._now_ms() + self._every_ms
                if expiry is None:
                    return None
                removed = carry_out(expiry, self._turns(table.location))
            self.expired += removed
            if removed < rules.limit:
                return None
        return None

    # Cleaning up after overwritten snapshots, once their commits are in the table again.
    #
    # Before a commit is published again, the store notes it, with the number of the run that names
    # the files. The files that the overwritten snapshot and interrupted runs leave are removed
    # after a grace period: a writer that goes around the coordinator may have begun to build on
    # them.
    #
    # If the process dies here, the removal is done again after the next start.

    def _clean_up(self) -> None:
        """Remove due files. Raises errors of stores."""
        now_ms = self._now_ms()
        for p, runs, begun_ms in self._publications.repetitions():
            with self._turns(p.location):
                if begun_ms + self._grace_ms > now_ms or self._is_awaited(p):
                    continue
                self._check_owner()
                try:
                    removed = remove_overwritten(self._catalog, p, runs)
                except UnknownNameError:  # the table itself is gone
                    removed = 0
                self._publications.drop_repetition(p)
            if removed:
                _log.info("%d files of an overwritten snapshot of %s removed", removed, p.table)

    def _is_awaited(self, p: Publication) -> bool:
        """Whether it is still unknown if the commit is in the table again."""
        there = self._state_thread.state.watched.get(p.location, ())
        return any((q.id, q.snapshot_id) == (p.id, p.snapshot_id) for q in there)

    def _check_owner(self) -> None:
        """Raise DeposedError when another coordinator has taken over."""
        if self._ownership is not None:
            self._ownership.check()
