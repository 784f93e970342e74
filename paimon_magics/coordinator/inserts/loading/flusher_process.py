"""The processes that load small inserts: from records of the log to files of the table.

They run beside the coordinator, so that writing files does not slow acknowledgement down, and keep
nothing between two jobs.

If a process dies or stands still, its coordinator aborts the transaction, which removes its files,
and has the batch written again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from paimon_magics.coordinator.runtime.children import ChildProcess, do_jobs
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.reading.keyed_rows import KeyedRead
from paimon_magics.tables.writing.write_spec import WriteSpec, Written

_PROCESSES_MAX = 5  # as many as there are places for loads: see `engine.loading`
_WAIT_SECONDS = 1.0  # before another process is started
_POLL_SECONDS = 0.1

_OF_THE_STORE = "Paimon hitting "
"""The native writer's errors begin with these words when the rows are not the reason: a store that
does not answer, is full, or denies access; a config that it does not understand. All are
ValueErrors.
"""

_OF_THE_ROWS = (ValueError, ArithmeticError, TypeError, LookupError, NotImplementedError)
"""The errors that reading and writing rows raise for unexpected values."""


@dataclass(frozen=True, slots=True)
class FlushJob:
    """Records `first` to `last` of the segments, to be written by the specification `task`.
    `definitions` has the table's schemas by their ids, `target` is the present one. `read` is for
    the rows that changes name.
    """

    task: WriteSpec
    read: KeyedRead
    definitions: Mapping[int, TableSchema]
    target: TableSchema
    segments: Sequence[tuple[int, bytes]]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class FlushResult:
    """The `written` files, None if there were no rows, and the `chain` of the last record. `unfit`
    has the records that can't be written: lsn, reason, and the record as a segment of its own.
    `users` sent the written records, each user once, in the order of their first records.
    `has_read` says that rows of the table were read, and the written rows derive from them.
    """

    written: Written | None
    rows: int
    chain: int
    unfit: tuple[tuple[int, str, bytes], ...]
    has_read: bool = False
    users: tuple[str, ...] = ()


class WriteFailedError(Exception):
    """The job failed. `permanent` if the rows are the reason, `damaged` if the log is damaged."""

    def __init__(self, why: str, *, permanent: bool, damaged: bool = False) -> None:
        super().__init__(why)
        self.permanent = permanent
        self.damaged = damaged


class FlushProcesses:
    """The parent's side: some processes, which start when they are needed, and again when they have
    died. A second process starts when a job has waited for the first for a while, so that a table
    with slow files does not block other tables. For any thread.
    """

    def __init__(self) -> None:
        self._children = [ChildProcess(__name__, "loads inserts") for _ in range(_PROCESSES_MAX)]
        self._free = threading.Condition()
        self._idle = list(reversed(self._children))

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that run."""
        return [child.pid for child in self._children if child.pid is not None]

    @property
    def busy_seconds(self) -> float:
        """How long the longest present job has lasted; 0 without a job."""
        return max(child.busy_seconds for child in self._children)

    def warm_up(self) -> None:
        """Start a process before a job waits for it."""
        with self._free:
            child = self._idle[-1] if self._idle else None
        if child is self._children[0]:
            child.warm_up()

    def write(self, job: FlushJob, meanwhile: Callable[[], object] = lambda: None) -> FlushResult:
        """Run a job, and call `meanwhile` twice a second until the answer comes.

        Raises WriteFailedError, and ChildDiedError when the process has ended or stands still.
        """
        child = self._take(meanwhile)
        try:
            answer = child.ask(job, meanwhile)
        finally:
            with self._free:
                self._idle.append(child)
                self._idle.sort(key=self._children.index, reverse=True)
                self._free.notify()
        if isinstance(answer, FlushResult):
            return answer
        why, permanent, damaged = answer
        raise WriteFailedError(why, permanent=permanent, damaged=damaged)

    def close(self) -> None:
        """End the processes."""
        for child in self._children:
            child.close()

    def _take(self, meanwhile: Callable[[], object]) -> ChildProcess:
        """A process without a job; a process that is not running yet only after a wait."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            with self._free:
                if self._idle and (
                    self._idle[-1].pid is not None
                    or len(self._idle) == len(self._children)
                    or time.monotonic() > deadline
                ):
                    return self._idle.pop()
                self._free.wait(_POLL_SECONDS)
            meanwhile()


def main() -> None:
    """Do jobs until the input ends."""
    do_jobs(_done)


def _done(job: FlushJob) -> FlushResult | tuple[str, bool, bool]:
    from paimon_magics.coordinator.inserts.log.records import DamagedError
    from paimon_magics.errors import StatementError

    try:
        return _write(job)
    except DamagedError as error:
        return f"The log is damaged: {error}.", False, True
    except (StatementError, *_OF_THE_ROWS) as error:
        return str(error), not str(error).startswith(_OF_THE_STORE), False
    except Exception as error:
        return f"{type(error).__name__}: {error}", False, False


def _write(job: FlushJob) -> FlushResult:
    import pyarrow as pa

    from paimon_magics.coordinator.inserts.loading.rows import entries_of
    from paimon_magics.coordinator.inserts.log.records import read_segments, seal
    from paimon_magics.faults import reach
    from paimon_magics.tables.reading.applied_changes import changed_rows
    from paimon_magics.tables.writing.writer import write_batches

    records, chain = read_segments(job.segments, job.first - 1, upto=job.last)
    assert chain is not None
    entries, unfit = entries_of(records, job.definitions, job.target)
    batches = [entry for entry in entries if isinstance(entry, pa.RecordBatch)]
    task = job.task
    has_changes = len(batches) < len(entries)
    if has_changes:
        task = task.with_kinds()
        batches = changed_rows(job.target, entries, job.read.rows).to_batches()
        reach("flush.changed")
    rows = sum(batch.num_rows for batch in batches)
    written = write_batches(task, batches) if rows else None
    reach("flush.written")
    dead = tuple(
        (failure.lsn, failure.why, seal([records[failure.lsn - job.first]], 0).body)
        for failure in unfit
    )
    left_out = {failure.lsn for failure in unfit}
    users = dict.fromkeys(record.user for record in records if record.lsn not in left_out)
    return FlushResult(written, rows, chain, dead, has_changes, tuple(users))
