"""Questions that wait for the core's answer: each has a number, and gets one answer or error."""

from __future__ import annotations

import contextlib
import itertools
from concurrent.futures import Future, InvalidStateError

from paimon_magics.coordinator.core.values import Answer
from paimon_magics.errors import SetupError


class PendingAnswers:
    """The questions that are not answered yet. Safe for several threads."""

    def __init__(self) -> None:
        self._futures: dict[int, Future[Answer]] = {}
        self._numbers = itertools.count(1)

    def ask(self) -> tuple[int, Future[Answer]]:
        """Return the number of a new question, and the future of its answer."""
        number = next(self._numbers)
        future: Future[Answer] = Future()
        self._futures[number] = future
        return number, future

    def answer(self, number: int, answer: Answer) -> None:
        """Answer a question."""
        future = self._futures.pop(number, None)
        if future is not None:  # None: it has failed because the store did not work
            future.set_result(answer)

    def fail(self, number: int, error: SetupError) -> None:
        """Answer a question with an error."""
        future = self._futures.pop(number, None)
        if future is not None:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)

    def fail_all(self, error: SetupError) -> None:
        """Answer all questions with an error."""
        for number in list(self._futures):
            self.fail(number, error)
