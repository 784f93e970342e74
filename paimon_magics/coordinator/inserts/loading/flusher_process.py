"""The process that loads small inserts: from records of the log to files of the table.

It runs beside the coordinator, so that writing files does not slow acknowledgement down. It reads
jobs from its standard input and answers on its standard output; each message is a length and a
pickle. It keeps nothing between two jobs, and ends when its input does.

If it dies, its coordinator aborts the transaction, which removes its files, and has the batch
written again.
"""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.tables.writing.write_spec import WriteSpec, Written

__all__ = ["FlushJob", "FlushResult", "Flusher", "FlusherDiedError", "WriteFailedError", "main"]

_LENGTH_BYTES = 8
_POLL_SECONDS = 0.5  # much shorter than any lease
_END_SECONDS = 5.0
_OF_THE_STORE = "Paimon hitting "
"""The native writer's errors begin so when the rows are not the reason: a store that does not
answer, is full, or denies access; a config that it does not understand. All are ValueErrors."""


@dataclass(frozen=True, slots=True)
class FlushJob:
    """Records `first` to `last` of the segments, to be written by the specification `task`.
    `definitions` has the table's schemas by their ids, `target` is the present one."""

    task: WriteSpec
    definitions: Mapping[int, TableSchema]
    target: TableSchema
    segments: Sequence[tuple[int, bytes]]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class FlushResult:
    """The `written` files, None if there were no rows, and the `chain` of the last record. `unfit`
    has the records that can't be written: lsn, reason, and the record as a segment of its own."""

    written: Written | None
    rows: int
    chain: int
    unfit: tuple[tuple[int, str, bytes], ...]


class FlusherDiedError(Exception):
    """The process has ended in the middle of a job."""


class WriteFailedError(Exception):
    """The job failed. `permanent` if the rows are the reason, `damaged` if the log is damaged."""

    def __init__(self, why: str, *, permanent: bool, damaged: bool = False) -> None:
        super().__init__(why)
        self.permanent = permanent
        self.damaged = damaged


class Flusher:
    """The parent's side. Starts the process when it is needed, and again when it has died. One job
    at a time, for any thread."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The id of the process, if it runs."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def warm_up(self) -> None:
        """Start the process before a job waits for it."""
        with self._turn:
            self._running()

    def write(self, job: FlushJob, meanwhile: Callable[[], object] = lambda: None) -> FlushResult:
        """Have a job done, and call `meanwhile` twice a second until the answer comes.

        Raises WriteFailedError, and FlusherDiedError when the process has ended.
        """
        with self._turn:
            process = self._running()
            assert process.stdin is not None and process.stdout is not None
            try:
                _send(process.stdin, job)
                while not select.select([process.stdout], [], [], _POLL_SECONDS)[0]:
                    meanwhile()
                answer = _receive(process.stdout)
            except BaseException as error:
                self._end()
                if isinstance(error, OSError | EOFError):
                    raise FlusherDiedError("The process that loads inserts has died.") from error
                raise
        if isinstance(answer, FlushResult):
            return answer
        why, permanent, damaged = answer
        raise WriteFailedError(why, permanent=permanent, damaged=damaged)

    def close(self) -> None:
        """End the process."""
        self._closed = True
        process = self._process
        if process is not None and self._turn.acquire(timeout=_END_SECONDS):
            self._end()
            self._turn.release()
        elif process is not None:
            process.kill()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise FlusherDiedError("The coordinator is stopping.")
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C in a terminal reaches the coordinator alone
            )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def main() -> None:
    """Do jobs until the input ends."""
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            job = _receive(sys.stdin.buffer)
            _send(answers, _done(job))
        except (EOFError, BrokenPipeError):  # the coordinator has gone
            os._exit(0)


def _done(job: FlushJob) -> FlushResult | tuple[str, bool, bool]:
    from paimon_magics.coordinator.inserts.log.records import DamagedError
    from paimon_magics.errors import StatementError

    try:
        return _write(job)
    except DamagedError as error:
        return f"The log is damaged: {error}.", False, True
    except (StatementError, ValueError) as error:
        return str(error), not str(error).startswith(_OF_THE_STORE), False
    except Exception as error:
        return f"{type(error).__name__}: {error}", False, False


def _write(job: FlushJob) -> FlushResult:
    from paimon_magics.coordinator.inserts.loading.rows import batches_of
    from paimon_magics.coordinator.inserts.log.records import read_segments, seal
    from paimon_magics.faults import reach
    from paimon_magics.tables.writing.writer import write_batches

    records, chain = read_segments(job.segments, job.first - 1, upto=job.last)
    assert chain is not None
    batches, unfit = batches_of(records, job.definitions, job.target)
    rows = sum(batch.num_rows for batch in batches)
    written = write_batches(job.task, batches) if rows else None
    reach("flush.written")
    dead = tuple((one.lsn, one.why, seal([records[one.lsn - job.first]], 0).body) for one in unfit)
    return FlushResult(written, rows, chain, dead)


def _send(pipe: IO[bytes], value: Any) -> None:
    content = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(len(content).to_bytes(_LENGTH_BYTES, "big"))
    pipe.write(content)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Any:
    length = int.from_bytes(_exactly(pipe, _LENGTH_BYTES), "big")
    return pickle.loads(_exactly(pipe, length))


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    content = pipe.read(size)
    if len(content) < size:
        raise EOFError
    return content
