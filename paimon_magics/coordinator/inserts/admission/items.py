"""The items that callers hand to the owner of the queues: values, with the futures of answers.

If the process dies, waiting items are lost; none of them was answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paimon_magics.coordinator.inserts.admission.futures import Answered
from paimon_magics.coordinator.inserts.admission.table_info import TableInfo
from paimon_magics.coordinator.inserts.admission.validator import ValidatedInsert
from paimon_magics.coordinator.inserts.queue.events import Event
from paimon_magics.coordinator.inserts.queue.values import Mode

__all__ = ["Asked", "Done", "Insert", "Item", "answers_of"]


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
    """An event other than inserts, for the table with an id. `make` returns it for the number of
    the ask. `table_info` is given where the table may have no queue yet."""

    table_id: str
    make: Callable[[int], Event]
    answer: Answered | None = None
    table_info: TableInfo | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """Something outside has ended, in order with all other items. `adopt` takes its outcome into
    the queues; it asks neither the log nor a store. What is `at_once` changes no queue."""

    adopt: Callable[[], object]
    at_once: bool = False


Item = Insert | Asked | Done
"""An item of the owner of the queues."""


def answers_of(items: Iterable[Item]) -> list[Answered]:
    """The futures of those who wait for items."""
    answers = [item.answer for item in items if not isinstance(item, Done)]
    return [answer for answer in answers if answer is not None]
