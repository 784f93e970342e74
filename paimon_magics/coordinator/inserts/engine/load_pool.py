"""Load batches in a pool of threads, and report their outcomes to the queues.

If the process dies, the next start finds out what became of the batches under way
(`loading.flush`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from paimon_magics.coordinator.inserts.engine.table_queues import TableQueue
from paimon_magics.coordinator.inserts.loading.flush import Flushing, NotLoadedError, StuckError
from paimon_magics.coordinator.inserts.log.interface import DeadLetter, Log
from paimon_magics.coordinator.inserts.log.records import read_segments, seal
from paimon_magics.coordinator.inserts.queue.events import Closed, Event, FlushFailed, Published
from paimon_magics.coordinator.inserts.queue.values import Batch
from paimon_magics.coordinator.protocol.clock import Clock
from paimon_magics.tables.commits.fencing import DeposedError

__all__ = ["Loading"]

_LOADERS = 4

_log = logging.getLogger(__name__)


class Loading:
    """The pool. `tell` gives a table's queue an event. `depose` is called when another coordinator
    owns the warehouse, `buried` with a table's identity and the lsns of new dead letters."""

    def __init__(
        self,
        flushing: Flushing,
        log: Log,
        tell: Callable[[str, Event], None],
        depose: Callable[[DeposedError], None],
        buried: Callable[[str, Sequence[int]], None],
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._flushing = flushing
        self._log = log
        self._tell = tell
        self._depose = depose
        self._buried = buried
        self._pool = ThreadPoolExecutor(_LOADERS, thread_name_prefix="load")

    def load(self, table: TableQueue, batch: Batch) -> None:
        """Begin to load a batch."""
        with contextlib.suppress(RuntimeError):  # stopping: the next start has it
            self._pool.submit(self._load, table, batch)

    def soon(self, work: Callable[[], object]) -> None:
        """Run other work in the pool."""
        with contextlib.suppress(RuntimeError):
            self._pool.submit(work)

    def bury(self, table: TableQueue, lsn: int, why: str) -> None:
        """Make a dead letter of a record, durably."""
        segments = self._log.read(table.location, lsn, lsn)
        records, chain = read_segments(segments, lsn - 1, upto=lsn)
        assert chain is not None
        letter = DeadLetter(table.location, lsn, why, self._clock(), seal(records, 0).body)
        self._log.publish(table.location, lsn, chain, None, [letter])
        self.soon(lambda: self._buried(table.location, [lsn]))

    def end(self) -> None:
        """Wait for the loads that have begun, and end the pool."""
        self._pool.shutdown(wait=True)

    def _load(self, table: TableQueue, batch: Batch) -> None:
        location = table.location
        try:
            loaded = self._flushing.load(table.name, location, batch)
            event: Event = Published(loaded.snapshot_id, self._clock(), loaded.dead)
        except NotLoadedError as error:
            _log.warning("Rows of `%s` are not loaded yet: %s", table.name, error)
            event = FlushFailed(
                str(error), self._clock(), permanent=error.permanent, refused=error.refused
            )
        except StuckError as error:
            _log.error("`%s` takes no inserts: %s", table.name, error)
            self._tell(location, Closed(str(error), self._clock()))
            event = FlushFailed(str(error), self._clock())
        except DeposedError as error:
            self._depose(error)
            return
        except Exception as error:  # stopping: the next start finds out what became of it
            _log.error("A batch of `%s` was cut off: %r", table.name, error)
            return
        self._tell(location, event)
        if isinstance(event, Published) and event.dead:
            self._buried(location, [lsn for lsn, _ in event.dead])
