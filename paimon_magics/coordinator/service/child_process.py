"""A process beside the coordinator that does jobs, so that they slow nothing down.

It reads jobs from its standard input and answers on its standard output; each message is a length
and a pickle. It ends when its input does. What is unpickled comes from the process at the pipe's
other end, which runs the same program for the same user.
"""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

__all__ = ["ChildDiedError", "ChildProcess", "do_jobs"]

_LENGTH_BYTES = 8
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

    @property
    def pid(self) -> int | None:
        """The id of the process, if it runs."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def warm_up(self) -> None:
        """Start the process before a job waits for it."""
        with self._turn:
            self._running()

    def ask(self, job: Any, meanwhile: Callable[[], object] = lambda: None) -> Any:
        """Have a job done, and call `meanwhile` twice a second until the answer comes. Raises
        ChildDiedError when the process has ended."""
        with self._turn:
            process = self._running()
            assert process.stdin is not None and process.stdout is not None
            try:
                _send(process.stdin, job)
                while not select.select([process.stdout], [], [], _POLL_SECONDS)[0]:
                    meanwhile()
                return _receive(process.stdout)
            except BaseException as error:
                code = self._end()
                if isinstance(error, OSError | EOFError):
                    raise ChildDiedError(f"The process that {self._purpose} died.", code) from error
                raise

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
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {self._module} import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C in a terminal reaches the coordinator alone
            )
        return self._process

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


def do_jobs(do: Callable[[Any], Any]) -> None:
    """Be the process: answer each job with what `do` returns, until the input ends."""
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            job = _receive(sys.stdin.buffer)
            _send(answers, do(job))
        except (EOFError, BrokenPipeError):  # the coordinator has gone
            os._exit(0)


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """The code with which a process ended; it may be about to end."""
    try:
        return process.wait(0.1)
    except subprocess.TimeoutExpired:
        return None


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
