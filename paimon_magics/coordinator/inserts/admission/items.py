"""What is handed to the thread that owns the queues, by whoever asks: values, each with its answer.

A process that dies takes those along that wait; nobody was answered.
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
    """An insert that the validator has let in, and who waits for its answer."""

    table_info: TableInfo
    validated: ValidatedInsert
    mode: Mode
    answer: Answered
    key: str = ""
    offset: int = -1
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class Asked:
    """Something but inserts, for one table. `make` gives the event for the number of who asks.
    `table_info` is given where the table may have no queue yet, `accept_loss` for opening one."""

    location: str
    make: Callable[[int], Event]
    answer: Answered | None = None
    table_info: TableInfo | None = None
    accept_loss: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """Something to be done to the tables themselves, in its order among all else; `answer` has its
    end."""

    do: Callable[[], object]
    answer: Future[None]


Item = Insert | Asked | Work
"""What is handed to the queues' thread."""
