"""The items that callers hand to the owner of the queues: values, with the futures of answers.

If the process dies, waiting items are lost; none of them was answered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from paimon_magics.coordinator.inserts.admission.validator import TableInfo, ValidatedInsert
from paimon_magics.coordinator.inserts.queue.events import Event
from paimon_magics.coordinator.inserts.queue.values import Answer, Mode
from paimon_magics.coordinator.protocol.errors import BrokeOffError
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.tables.commits.fencing import NotOwnerError

Answered = asyncio.Future[Answer] | Future[Answer]
"""The future in which a caller waits for an answer."""


@dataclass(slots=True)
class Insert:
    """A valid insert, its sender, and the future of its answer. Once it `may_be_taken`, its rows
    may be in the log, and no answer may say otherwise.
    """

    table_info: TableInfo
    validated: ValidatedInsert
    mode: Mode
    answer: Answered
    key: str = ""
    offset: int = -1
    digest: bytes = b""
    user: str = ""
    may_be_taken: bool = False


@dataclass(frozen=True, slots=True)
class TableRequest:
    """An event other than inserts, for the table with an id. `make` returns it for the ask number.
    `table_info` is given if the table may have no queue yet.
    """

    table_id: str
    make: Callable[[int], Event]
    answer: Answered | None = None
    table_info: TableInfo | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """External work has ended, in order with all other items. `adopt` takes its outcome into the
    queues, without access to the log or a store. An item `at_once` changes no queue.
    """

    adopt: Callable[[], object]
    at_once: bool = False


Item = Insert | TableRequest | Done
"""An item of the owner of the queues."""


def fail_items(items: Iterable[Item], error: PaimonMagicsError) -> None:
    """Answer the callers that wait for items with an error; with the error of `not_known` if the
    rows may have been accepted.
    """
    for item in items:
        if isinstance(item, Done) or item.answer is None:
            continue
        reason: PaimonMagicsError = error
        if isinstance(item, Insert) and item.may_be_taken:
            reason = not_known(item, error)
        fail([item.answer], reason)


def not_known(insert: Insert, why: PaimonMagicsError) -> BrokeOffError:
    """The error for the sender of an insert that may have been accepted."""
    error = BrokeOffError(
        f"It is not known whether the rows were accepted: {why.message}",
        hint=(
            "Send the request again with its `Idempotency-Key`, or its channel and offset: then "
            "the rows are inserted once. If the request has none, check first whether its rows "
            "are in the table."
        ),
        may_repeat=bool(insert.key),
        address=why.address if isinstance(why, NotOwnerError) else "",
    )
    error.__cause__ = why
    return error


# Hand answers from the owner of the queues to waiting callers, in an event loop or in a thread.


def deliver(replies: Sequence[tuple[Answered, Answer]]) -> None:
    """Set all answers, with one call for each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Answer], Answer]]] = {}
    for future, answer in replies:
        if isinstance(future, Future):
            if not future.done():
                future.set_result(answer)
        else:
            loops.setdefault(future.get_loop(), []).append((future, answer))
    for loop, some in loops.items():
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
            loop.call_soon_threadsafe(_set_results, some)


def _set_results(replies: Sequence[tuple[asyncio.Future[Answer], Answer]]) -> None:
    for future, answer in replies:
        if not future.done():
            future.set_result(answer)


def fail(futures: Sequence[Answered], error: Exception) -> None:
    """Set an error on every future that has no answer yet."""
    for future in futures:
        if isinstance(future, Future):
            if not future.done():
                future.set_exception(error)
        else:
            with contextlib.suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(_set_error, future, error)


def _set_error(future: asyncio.Future[Answer], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
