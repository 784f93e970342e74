"""One turn of the queues' thread: the decisions about all inserts that arrived together, before any
of them is carried out.

Each table's queue decides (`queue.step`); the records of all tables are appended to the log at
once. Until they are durable a turn has changed nothing: it may be dropped, and is lost without harm
if the process dies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from paimon_magics.coordinator.inserts.admission.items import Insert
from paimon_magics.coordinator.inserts.engine.table_queue import TableQueue
from paimon_magics.coordinator.inserts.log.interface import Appended, Keyed, Log, Remembered
from paimon_magics.coordinator.inserts.log.names import stored_name
from paimon_magics.coordinator.inserts.log.records import Record, seal
from paimon_magics.coordinator.inserts.queue.events import Append, Arrived, Effect, Reply
from paimon_magics.coordinator.inserts.queue.step import step
from paimon_magics.coordinator.inserts.queue.values import Arrival, Known, Queue, Refused

__all__ = ["Turn"]


@dataclass(slots=True)
class Turn:
    """The tables' next `states` (queue and chain), which hold when the `groups` are in the log, and
    the `effects` that follow then. `waiting` has the inserts by their ask numbers."""

    states: list[tuple[TableQueue, Queue, int]] = field(default_factory=list)
    groups: list[Appended] = field(default_factory=list)
    effects: list[tuple[TableQueue, Effect]] = field(default_factory=list)
    waiting: dict[int, Insert] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def take(
        self,
        table: TableQueue,
        inserts: Sequence[Insert],
        log: Log,
        numbers: Iterator[int],
        now_ms: int,
    ) -> None:
        """Have one table's queue decide about inserts; each gets the next of the `numbers`. Raises
        the log's errors, since the log is asked for their labels."""
        keys = [insert.key for insert in inserts if insert.key]
        remembered = log.remembered(table.id, keys) if keys else {}
        by_ask = {next(numbers): insert for insert in inserts}
        arrivals = tuple(_arrival(ask, insert, remembered) for ask, insert in by_ask.items())
        queue, effects = step(table.queue, Arrived(arrivals, now_ms))
        chain = table.chain
        groups = []
        for effect in effects:
            if isinstance(effect, Append):
                group = _group(table, effect, by_ask, chain, now_ms)
                groups.append(group)
                chain = group.segment.chain
                self.counts["records"] += len(effect.inserts)
                self.counts["rows"] += sum(arrival.rows for _, arrival in effect.inserts)
        self.waiting |= by_ask
        self.groups += groups
        self.effects += [(table, one) for one in effects if not isinstance(one, Append)]
        self.states.append((table, queue, chain))

    def hand_over(self) -> None:
        """Note that the log is given the records now, so that its inserts may be taken."""
        replies = [effect for _, effect in self.effects if isinstance(effect, Reply)]
        refused = {reply.ask for reply in replies if isinstance(reply.answer, Refused)}
        for ask, insert in self.waiting.items():
            insert.may_be_taken = ask not in refused

    def take_back(self) -> None:
        """Note that the log certainly has none of the records, and will not have them."""
        for insert in self.waiting.values():
            insert.may_be_taken = False


def _arrival(ask: int, insert: Insert, remembered: Mapping[str, Remembered]) -> Arrival:
    """An insert as its queue sees it, with what is remembered of its label or channel."""
    found = remembered.get(insert.key) if insert.key else None
    same = None if found is None else found.inserts.get(insert.offset)
    validated = insert.validated
    return Arrival(
        ask,
        validated.rows,
        len(validated.payload),
        insert.mode,
        insert.key,
        insert.offset,
        insert.digest,
        None if same is None else Known(*same),
        None if found is None else found.last_offset,
        None if found is None else found.first_offset,
    )


def _group(
    table: TableQueue, append: Append, by_ask: dict[int, Insert], chain: int, now_ms: int
) -> Appended:
    records = []
    keys = []
    begun = set()
    for lsn, arrival in append.inserts:
        validated = by_ask[arrival.ask].validated
        records.append(
            Record(
                lsn,
                validated.format,
                validated.schema_id,
                validated.rows,
                now_ms,
                validated.payload,
                arrival.key,
                arrival.offset,
                arrival.digest,
                by_ask[arrival.ask].user,
            )
        )
        if arrival.key:
            is_new = arrival.offset >= 0 and arrival.last_offset is None
            begins = is_new and arrival.key not in begun
            if begins:
                begun.add(arrival.key)
            keys.append(Keyed(arrival.key, arrival.offset, lsn, arrival.digest, begins))
    return Appended(table.id, stored_name(table.name), seal(records, chain), tuple(keys))
