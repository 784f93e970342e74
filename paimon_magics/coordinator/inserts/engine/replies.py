"""The replies to callers, and one table's place in group commit."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from paimon_magics.coordinator.inserts.admission.items import (
    Insert,
    TableRequest,
    deliver,
    fail_items,
)
from paimon_magics.coordinator.inserts.queue.events import Reply
from paimon_magics.coordinator.inserts.queue.values import Accepted, Answer, Mode, Queue, Refused
from paimon_magics.errors import PaimonMagicsError, SetupError, UnknownNameError
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.commits.fencing import DeposedError

_log = logging.getLogger(__name__)


class Replies:
    """The questions that wait for the owner of the queues. Only the owner's thread calls this.

    `may_answer` raises when this coordinator may not acknowledge now: then answers wait. `counts`
    has the counters since the start, by name.
    """

    def __init__(self, may_answer: Callable[[], None]) -> None:
        self._may_answer = may_answer
        self.numbers = itertools.count(1)
        self.counts: Counter[str] = Counter()
        self._pending: dict[int, Insert | TableRequest] = {}
        self._withheld: list[tuple[Insert | TableRequest, Answer]] = []
        self._is_refused = False  # whether the last answers were withheld

    @property
    def are_withheld(self) -> bool:
        """Whether answers wait until they may be given."""
        return bool(self._withheld)

    def expect(self, items: Mapping[int, Insert | TableRequest]) -> None:
        """Register questions by their numbers: the answer goes to the caller that waits for the
        item.
        """
        self._pending.update(items)

    def give(self, replies: list[Reply]) -> None:
        """Answer, unless this coordinator's lease has expired: then answers wait until it has a new
        lease. Raises DeposedError when another coordinator has taken over.
        """
        answers = self._withheld
        pending = self._pending
        for ask, answer in replies:
            self._count(answer)
            item = pending.pop(ask, None)
            if item is not None:
                answers.append((item, answer))
        if not answers:
            return
        try:
            self._may_answer()
        except DeposedError:
            raise
        except PaimonMagicsError as error:
            if not self._is_refused:  # it is tried again and again
                _log.error("Stored records can't be acknowledged yet: %s", error)
            self._is_refused = True
        else:
            self._is_refused = False
            self._withheld = []
            deliver([(i.answer, answer) for i, answer in answers if i.answer is not None])

    def fail_all(self, error: SetupError) -> None:
        """Answer all questions with an error; see `fail_items`."""
        waiting = [*self._pending.values(), *(item for item, _ in self._withheld)]
        self._pending.clear()
        self._withheld = []
        fail_items(waiting, error)

    def _count(self, answer: Answer) -> None:
        match answer:
            case Accepted(duplicate=True):
                self.counts["duplicates"] += 1
            case Refused(reason=reason):
                self.counts[f"refused_{reason.value}"] += 1


def dropped(name: TableName) -> UnknownNameError:
    """The error for callers that know a table that no longer exists."""
    return UnknownNameError(
        f"`{name}` was dropped.",
        hint="SHOW TABLES lists the existing tables. If its folder was put back since, an "
        f"administrator opens it for inserts: `%paimon queue {name} accept-loss`.",
    )


def shown(error: Exception) -> PaimonMagicsError:
    """An error for callers; an unexpected error names its type."""
    if isinstance(error, PaimonMagicsError):
        return error
    return SetupError(
        f"The coordinator failed unexpectedly: {error!r}",
        hint="Send the request again. The coordinator's log has the details.",
    )


# One table's place in group commit: its queue, a value, and what the engine knows besides it.


@dataclass(slots=True)
class TableQueue:
    """A table with small inserts; only the owner of the queues changes it.

    `id` is the table's UUID, `name` its present name. `chain` is that of its last record in the
    log. `is_open` says that the log registry names this log for the table; earlier items are
    `parked`, None if nobody is opening it. `mode` is the table's mode, None before an insert.
    `user` has sent the last insert, `is_long` says that its loads last long: see `loading`.
    `noted` grows with the registry's note (`loading._noted`); only `LoadPool` sets it.
    """

    id: str
    name: TableName
    queue: Queue = field(default_factory=Queue)
    chain: int = 0
    is_open: bool = False
    parked: list[Insert | TableRequest] | None = None
    mode: Mode | None = None
    user: str = ""
    is_long: bool = False
    noted: int = 0

    def take_parked(self) -> Sequence[Insert | TableRequest]:
        """The items that waited for the table to open."""
        parked, self.parked = self.parked or [], None
        return parked
