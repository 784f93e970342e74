"""A process beside the coordinator that does jobs, so that they slow nothing down.

It reads jobs from its standard input and answers on its standard output; each message is a length
and a pickle. It ends when its input ends. Pickles come only from the process at the pipe's other
end, which runs the same program for the same user.

When it has started, and every two seconds while it works, it sends a message without content. A
process that sends nothing for `SILENCE_SECONDS` stands still: it is ended, and its job fails as if
the process had died. A job that takes longer than `_JOB_SECONDS_MAX` is ended as well.
"""

from __future__ import annotations

import os
import pickle
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

SILENCE_SECONDS = 20.0  # native code may hold Python's lock for some seconds
_START_SECONDS_MAX = 120.0  # it loads packages, perhaps on a busy machine
_ALIVE_SECONDS = 2.0
_JOB_SECONDS_MAX = 1_800.0
_LENGTH_BYTES = 8
_PIECE_BYTES = 2**20
_POLL_SECONDS = 0.5  # much shorter than any lease
_END_SECONDS = 5.0


class ChildDiedError(Exception):
    """The process has ended in the middle of a job, with the exit code `code` if that is known."""

    def __init__(self, why: str, code: int | None = None) -> None:
        super().__init__(why)
        self.code = code


class ChildProcess:
    """The parent's side. Starts the process when it is needed, and again when it has died. One job
    at a time, for any thread. The process runs `main()` of the module called `module`; `purpose`
    says in messages what it does."""

    def __init__(self, module: str, purpose: str) -> None:
        self._module = module
        self._purpose = purpose
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._busy_since: float | None = None
        self._has_started = False

    @property
    def pid(self) -> int | None:
        """The id of the process, if it runs."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    @property
    def busy_seconds(self) -> float:
        """How long the present job has lasted; 0 without a job."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def warm_up(self) -> None:
        """Start the process before a job waits for it."""
        with self._turn:
            self._running()

    def ask(self, job: Any, meanwhile: Callable[[], object] = lambda: None) -> Any:
        """Run a job, and call `meanwhile` twice a second until the answer comes. Raises
        ChildDiedError when the process has ended, or stands still.
        """
        with self._turn:
            process = self._running()
            self._busy_since = time.monotonic()
            try:
                return self._exchange(process, _message(job), meanwhile)
            except BaseException as error:
                code = self._end()
                if isinstance(error, OSError | EOFError):
                    why = str(error) if isinstance(error, TimeoutError) else "died"
                    raise ChildDiedError(
                        f"The process that {self._purpose} {why}.", code
                    ) from error
                raise
            finally:
                self._busy_since = None

    def rest(self) -> None:
        """End the process, if it has no job, until it is needed again."""
        if self._turn.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._turn.release()

    def close(self) -> None:
        """End the process for good."""
        self._closed = True
        process = self._process
        if process is not None and self._turn.acquire(timeout=_END_SECONDS):
            self._end()
            self._turn.release()
        elif process is not None:
            process.kill()

    def kill(self) -> None:
        """End the process for good, in the middle of its job."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise ChildDiedError("The coordinator is stopping.")
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._has_started = False
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {self._module} import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,  # Ctrl-C in a terminal reaches the coordinator alone
            )
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)  # it may stand still
        return self._process

    def _exchange(
        self, process: subprocess.Popen[bytes], message: bytes, meanwhile: Callable[[], object]
    ) -> Any:
        """Send a message, and return the answer. Raises OSError and EOFError when the process has
        died, TimeoutError when it stands still or takes too long."""
        assert process.stdin is not None and process.stdout is not None
        began = heard = called = time.monotonic()
        to_send, received = memoryview(message), bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            selector.register(process.stdin, selectors.EVENT_WRITE)
            while True:
                for key, _ in selector.select(_POLL_SECONDS):
                    heard = time.monotonic()
                    if key.fileobj is process.stdout:
                        received += _piece(key.fd)
                        continue
                    to_send = to_send[os.write(key.fd, to_send[:_PIECE_BYTES]) :]
                    if not to_send:
                        selector.unregister(process.stdin)
                while (answer := _taken(received)) is not None:
                    self._has_started = True
                    if answer:
                        return pickle.loads(answer)
                now = time.monotonic()
                if now - called >= _POLL_SECONDS:
                    called = now
                    meanwhile()
                silence = SILENCE_SECONDS if self._has_started else _START_SECONDS_MAX
                if now - heard > silence:
                    raise TimeoutError(f"did not respond for {silence:.0f} s and was ended")
                if now - began > _JOB_SECONDS_MAX:
                    raise TimeoutError(f"took longer than {_JOB_SECONDS_MAX:.0f} s and was ended")

    def _end(self) -> int | None:
        """End the process. Return its exit code if it had ended by itself."""
        process, self._process = self._process, None
        if process is None:
            return None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        code = _exit_code(process)
        process.kill()
        process.wait()
        return code


def _piece(fd: int) -> bytes:
    piece = os.read(fd, _PIECE_BYTES)
    if not piece:
        raise EOFError
    return piece


def _taken(received: bytearray) -> bytes | None:
    """Take the first message from the received bytes; None while it is not complete."""
    if len(received) < _LENGTH_BYTES:
        return None
    end = _LENGTH_BYTES + int.from_bytes(received[:_LENGTH_BYTES], "big")
    if len(received) < end:
        return None
    content = bytes(received[_LENGTH_BYTES:end])
    del received[:end]
    return content


def do_jobs(do: Callable[[Any], Any]) -> None:
    """Be the process: answer each job with what `do` returns, until the input ends."""
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    turn, works = threading.Lock(), threading.Event()

    def send(message: bytes) -> None:
        with turn:
            answers.write(message)
            answers.flush()

    def say_alive() -> None:
        while True:
            try:
                send(_message())
            except OSError:
                os._exit(0)
            time.sleep(_ALIVE_SECONDS)
            works.wait()

    threading.Thread(target=say_alive, name="alive", daemon=True).start()
    while True:
        try:
            job = _received_job()
            works.set()
            answer = _message(do(job))
            works.clear()
            send(answer)
        except (EOFError, BrokenPipeError):  # the coordinator has gone
            os._exit(0)


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """The code with which a process ended; it may be about to end."""
    try:
        return process.wait(0.1)
    except subprocess.TimeoutExpired:
        return None


def _message(*value: Any) -> bytes:
    """A message with a value, or one without content."""
    content = pickle.dumps(value[0], protocol=pickle.HIGHEST_PROTOCOL) if value else b""
    return len(content).to_bytes(_LENGTH_BYTES, "big") + content


def _received_job() -> Any:
    length = int.from_bytes(_exactly(_LENGTH_BYTES), "big")
    return pickle.loads(_exactly(length))


def _exactly(size: int) -> bytes:
    content = sys.stdin.buffer.read(size)
    if len(content) < size:
        raise EOFError
    return content
