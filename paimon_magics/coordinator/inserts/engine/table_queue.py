"""One table's place in group commit: its queue, a value, and what the engine knows besides it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from paimon_magics.coordinator.inserts.admission.items import Asked, Insert
from paimon_magics.coordinator.inserts.queue.values import Mode, Queue
from paimon_magics.statements.statement import TableName

__all__ = ["TableQueue"]


@dataclass(slots=True)
class TableQueue:
    """A table with small inserts; the owner of the queues alone changes it.

    `id` is the table's UUID, `name` its present name. `chain` is that of its last record in the
    log. `is_open` tells that the log registry names this log for the table; what came
    before is `parked`, None where nobody is opening it. `mode` is the table's mode, None before an
    insert. `noted` is the last record in the registry's note, which `Openings` alone sets.
    `may_be_dropped` is set by a drop that has failed, perhaps after the table was gone.
    """

    id: str
    name: TableName
    queue: Queue = field(default_factory=Queue)
    chain: int = 0
    is_open: bool = False
    parked: list[Insert | Asked] | None = None
    mode: Mode | None = None
    noted: int = 0
    may_be_dropped: bool = False

    def take_parked(self) -> Sequence[Insert | Asked]:
        """What waited for the table to be opened."""
        parked, self.parked = self.parked or [], None
        return parked
