"""The items that callers hand to the queues' thread: values, each with the future of its answer.

If the process dies, waiting items are lost; none of them was answered.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from paimon_magics.coordinator.inserts.admission.futures import Answered
from paimon_magics.coordinator.inserts.admission.table_info import TableInfo
from paimon_magics.coordinator.inserts.admission.validator import ValidatedInsert
from paimon_magics.coordinator.inserts.queue.events import Event
from paimon_magics.coordinator.inserts.queue.values import Mode

__all__ = ["Asked", "Insert", "Item", "Work"]


@dataclass(slots=True)
class Insert:
    """An insert that the validator has let in, who has sent it, and the future of its answer."""

    table_info: TableInfo
    validated: ValidatedInsert
    mode: Mode
    answer: Answered
    key: str = ""
    offset: int = -1
    digest: bytes = b""
    user: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """An event other than inserts, for one table. `make` returns it for the number of the ask.
    `table_info` is given where the table may have no queue yet; `accept_loss` is for reopening."""

    location: str
    make: Callable[[int], Event]
    answer: Answered | None = None
    table_info: TableInfo | None = None
    accept_loss: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """A function to run on the queues' thread, in order with all other items. `answer` is set when
    it has ended."""

    do: Callable[[], object]
    answer: Future[None]


Item = Insert | Asked | Work
"""An item of the queues' thread."""
