"""The items that callers hand to the owner of the queues: values, with the futures of answers.

If the process dies, waiting items are lost; none of them was answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paimon_magics.coordinator.inserts.admission.futures import Answered, fail
from paimon_magics.coordinator.inserts.admission.table_info import TableInfo
from paimon_magics.coordinator.inserts.admission.validator import ValidatedInsert
from paimon_magics.coordinator.inserts.queue.events import Event
from paimon_magics.coordinator.inserts.queue.values import Mode
from paimon_magics.coordinator.protocol.errors import BrokeOffError
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.tables.commits.fencing import NotOwnerError

__all__ = ["Asked", "Done", "Insert", "Item", "fail_items", "not_known"]


@dataclass(slots=True)
class Insert:
    """An insert that the validator has let in, who has sent it, and the future of its answer. From
    when it `may_be_taken` its rows are, or may be, in the log: nobody is told that they are not."""

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


def fail_items(items: Iterable[Item], error: PaimonMagicsError) -> None:
    """Answer those who wait for items with an error; with that of `not_known` where the rows may
    have been taken."""
    for item in items:
        if isinstance(item, Done) or item.answer is None:
            continue
        told: PaimonMagicsError = error
        if isinstance(item, Insert) and item.may_be_taken:
            told = not_known(item, error)
        fail([item.answer], told)


def not_known(insert: Insert, why: PaimonMagicsError) -> BrokeOffError:
    """The error for who has sent an insert that may have been taken, or not."""
    error = BrokeOffError(
        f"It is not known whether the rows were taken: {why.message}",
        hint="Send the request again with its `Idempotency-Key`, or its channel and offset: then "
        "they are taken once. The rows of a request without may be in the table: look first.",
        may_repeat=bool(insert.key),
        address=why.address if isinstance(why, NotOwnerError) else "",
    )
    error.__cause__ = why
    return error
