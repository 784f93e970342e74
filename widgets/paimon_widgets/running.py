"""The answers of a view to the questions of its page.

Spark's work runs in a thread of its own. Meanwhile the page can ask for other things, and stop that
work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import anywidget

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.spark.listening import listen, listener
from paimon_magics.spark.stopping import Stop, raise_if_stopped, stop_of_thread, stoppable

if TYPE_CHECKING:
    from paimon_magics.planning.job_progress import Progress


class Running:
    """Runs one piece of work at a time. `send` gets messages of its progress for the page."""

    def __init__(self, send: Callable[[dict[str, Any]], object]) -> None:
        self._send = send
        self._turns = threading.Lock()
        self._stops: list[Stop] = []  # of what runs or waits for its turn

    def stop(self) -> None:
        """Stop what runs or waits, if anything does."""
        for stop in tuple(self._stops):
            stop.ask()

    def start(self, work: Callable[[], object]) -> None:
        """Do it in a thread of its own, with the context of this one. From now on `stop` ends what
        it runs, also before the thread has begun."""
        stop = Stop()
        self._stops.append(stop)

        def stoppable_work() -> None:
            with self._listed(stop):
                work()

        threading.Thread(target=copy_context().run, args=(stoppable_work,), daemon=True).start()

    def run(
        self,
        work: Callable[[], dict[str, Any]],
        about: dict[str, Any],
        stopped: str,
        problem_text: Callable[[PaimonMagicsError], str] = PaimonMagicsError.text,
    ) -> dict[str, Any]:
        """The answer that `work` returns, or {"problem": …}; the text `stopped` if it is stopped.
        Messages of progress have the members of `about`."""

        def tell(progress: Progress | None) -> None:
            if progress is not None:
                share = -1 if progress.share is None else progress.share
                self._send({"of": "progress", "text": progress.text(), "share": share, **about})

        with self._stoppable(), self._turns:
            before = listener()
            listen(tell)
            try:
                raise_if_stopped()
                return work()
            except KeyboardInterrupt:
                return {"problem": stopped}
            except PaimonMagicsError as error:
                return {"problem": problem_text(error)}
            except Exception as error:  # the page waits for an answer, whatever it is
                return {"problem": f"{type(error).__name__}: {error}"}
            finally:
                listen(before)

    def _stoppable(self) -> AbstractContextManager[None]:
        """Let `stop` end the body; in a thread of `start` it does already."""
        if stop_of_thread() in self._stops:
            return nullcontext()
        stop = Stop()
        self._stops.append(stop)
        return self._listed(stop)

    @contextmanager
    def _listed(self, stop: Stop) -> Iterator[None]:
        try:
            with stoppable(stop):
                yield
        finally:
            self._stops.remove(stop)


class AnsweringView(anywidget.AnyWidget):
    """A widget whose page asks questions, which its `answer` answers."""

    def __init__(self, **state: Any) -> None:
        self._running = Running(lambda message: self.send(message))
        super().__init__(**state)
        self.on_msg(self._answer_message)

    def answer(self, question: Any) -> dict[str, Any] | None:
        """The answer to a question of the page, None if there is none."""
        raise NotImplementedError

    def _may_run_jobs(self, question: Any) -> bool:
        return False

    def _answer_message(self, _: Any, question: Any, __: Any) -> None:
        if self._may_run_jobs(question):
            self._running.start(lambda: self._send_answer(question))
        else:
            self._send_answer(question)

    def _send_answer(self, question: Any) -> None:
        answer = self.answer(question)
        if answer is not None:
            self.send(answer)
