"""Group commit's periodic work: ticks for the queues, the end of expired places, and, in the pool
of loaders, the notes of how far the log goes."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from paimon_magics.coordinator.inserts.engine.dead_letters import DeadLetters
from paimon_magics.coordinator.inserts.engine.holds import Places
from paimon_magics.coordinator.inserts.engine.load_pool import Loading
from paimon_magics.coordinator.inserts.engine.queue_thread import QueueThread
from paimon_magics.coordinator.inserts.engine.table_queues import TableQueues
from paimon_magics.coordinator.inserts.queue.events import Ticked
from paimon_magics.coordinator.protocol.clock import Clock
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.tables.commits.fencing import DeposedError

__all__ = ["Ticker"]

_TICK_SECONDS = 0.05
_FORGET_EVERY_MS = 60_000
_NOTE_EVERY_MS = 5_000

_log = logging.getLogger(__name__)


class Ticker:
    """A thread that ticks until the queues' thread ends. `forget` is called every minute with the
    present time, and has the log forget old labels."""

    def __init__(
        self,
        thread: QueueThread,
        queues: TableQueues,
        places: Places,
        loading: Loading,
        letters: DeadLetters,
        forget: Callable[[int], None],
        clock: Clock,
    ) -> None:
        self._thread = thread
        self._queues = queues
        self._places = places
        self._loading = loading
        self._letters = letters
        self._forget = forget
        self._clock = clock
        self._forgot_at_ms = 0
        self._noted_at_ms = clock()
        self._ticker = threading.Thread(target=self._work, name="group-ticker", daemon=True)

    def start(self) -> None:
        """Start the thread, which begins when the queues have been read from the log."""
        self._ticker.start()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._ticker.join()

    def _work(self) -> None:
        self._thread.ready.wait()
        self._loading.soon(self._letters.tell_all)
        while self._thread.failure is None and not self._thread.stopping:
            time.sleep(_TICK_SECONDS)
            self._tick(self._clock())

    def _tick(self, at_ms: int) -> None:
        self._places.tick()
        for table in list(self._queues.all.values()):
            if table.queue.batches or table.queue.holds:
                self._thread.tell(table.location, Ticked(at_ms))
        if at_ms - self._noted_at_ms > _NOTE_EVERY_MS:
            self._noted_at_ms = at_ms
            self._loading.soon(self._note_ends)
        if at_ms - self._forgot_at_ms > _FORGET_EVERY_MS:
            self._forgot_at_ms = at_ms
            self._loading.soon(self._letters.tell_again)
            with contextlib.suppress(PaimonMagicsError):
                self._forget(at_ms)

    def _note_ends(self) -> None:
        try:
            self._queues.note_ends()
        except DeposedError:
            pass  # reported elsewhere
        except (PaimonMagicsError, OSError) as error:  # the warehouse's store: the next time, then
            _log.warning("What was acknowledged is not noted in the warehouse: %s", error)
