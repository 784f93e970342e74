"""Inserts that arrive together: the queues decide, their records are appended in one step, and only
then the inserts are answered.

While it is unclear whether the log has a turn's records, the queues stand still, since the turn's
decisions depend on these records. The turn is appended again until that is clear, and all other
items wait behind it. If inserts of that turn wait too long, their callers get the answer that the
outcome is unknown. Inserts behind it, which the log never received, get the answer that they were
not accepted.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from paimon_magics.coordinator.inserts.admission.items import Insert, Item, fail, fail_items
from paimon_magics.coordinator.inserts.admission.validator import TableInfo
from paimon_magics.coordinator.inserts.engine.replies import Replies, TableQueue, shown
from paimon_magics.coordinator.inserts.log.idempotency_keys import Keyed, Remembered
from paimon_magics.coordinator.inserts.log.log import Appended, Log, stored_name
from paimon_magics.coordinator.inserts.log.records import Record, seal
from paimon_magics.coordinator.inserts.queue.events import Append, Arrived, Effect, Reply
from paimon_magics.coordinator.inserts.queue.step import step
from paimon_magics.coordinator.inserts.queue.values import Arrival, Known, Queue, Refused
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.runtime.work import as_exception
from paimon_magics.coordinator.store.database import (
    StoreLostError,
    StoreUnavailableError,
    UnstorableError,
)
from paimon_magics.faults import reach
from paimon_magics.tables.commits.fencing import DeposedError

FATAL = (StoreLostError, DeposedError)
"""Errors that end the owner of the queues."""

_TROUBLE_MS = 60_000  # then a failed append counts as over: only the next append can show it
_UNCLEAR_MS = 5_000  # how long callers wait while their turn is unclear

_log = logging.getLogger(__name__)


class Appending:
    """Appends turns to the log, in the thread of the queues' owner.

    `table_of` returns a table's queue, `park` makes inserts wait until a table is open, `do`
    carries effects out, `go_on` takes the items that waited. `append_seconds` is the total time of
    the log's appends.
    """

    def __init__(
        self,
        runtime: Runtime,
        log: Log,
        replies: Replies,
        table_of: Callable[[TableInfo], TableQueue],
        park: Callable[[TableQueue, Sequence[Insert]], None],
        do: Callable[[Iterable[tuple[TableQueue, Effect]]], None],
        go_on: Callable[[Sequence[Item]], None],
    ) -> None:
        self._runtime = runtime
        self._now_ms = runtime.clock.now_ms
        self._log = log
        self._replies = replies
        self._table_of = table_of
        self._park = park
        self._do = do
        self._go_on = go_on
        self.append_seconds = 0.0
        self._trouble = ("", 0.0)
        self._unclear: tuple[Turn, float] | None = None
        self._behind: deque[Item] = deque()

    @property
    def trouble(self) -> str:
        """Why the last append failed; "" if it did not fail, or there was no append for a
        minute."""
        why, at_ms = self._trouble
        is_old = self._runtime.clock.steady_ms() - at_ms > _TROUBLE_MS
        return "" if is_old else why

    @property
    def waiting(self) -> list[Item]:
        """The items that are not decided, or not certainly appended."""
        unclear = () if self._unclear is None else self._unclear[0].waiting.values()
        return [*self._behind, *unclear]

    @property
    def is_unclear(self) -> bool:
        """Whether it is unclear if the log has the last records, so that all items wait."""
        return self._unclear is not None

    def wait(self, item: Item) -> None:
        """Make an item wait until it is clear."""
        self._behind.append(item)

    def take(self, inserts: Sequence[Insert]) -> None:
        """Let the queues decide about inserts, append their records, and carry the turn out."""
        if self._unclear is not None:
            self._behind.extend(inserts)
            return
        turn = Turn()
        by_table: dict[str, list[Insert]] = {}
        for insert in inserts:
            by_table.setdefault(insert.table_info.identity, []).append(insert)
        for some in by_table.values():
            decide = partial(self._decide, turn, some)
            error = self._runtime.attempt("inserts", decide, fatal=FATAL)
            if error is not None:
                fail([insert.answer for insert in some], shown(error))
        self._append(turn)

    def _decide(self, turn: Turn, inserts: Sequence[Insert]) -> None:
        """Let one table's queue decide about inserts; nothing is done yet."""
        now_ms = self._now_ms()
        table = self._table_of(inserts[0].table_info)
        if table.is_open or table.queue.closed:
            turn.take(table, inserts, self._log, self._replies.numbers, now_ms)
        else:
            self._park(table, inserts)

    def _append(self, turn: Turn) -> None:
        """Append the decided records to the log, and carry the turn out."""
        turn.hand_over()
        if turn.groups:
            reach("log.sealed")
            clock = self._runtime.clock
            started_ms = clock.steady_ms()
            error = self._append_error(turn)
            match error:
                case None:
                    pass
                case UnstorableError():
                    self._append_each(turn, error)
                    return
                case StoreUnavailableError(unclear=False):
                    turn.take_back()
                    fail_items(turn.waiting.values(), error)
                    return
                case _:  # nothing is known after an unexpected exception
                    _log.error("The log does not answer: %s", error)
                    self._unclear = turn, started_ms
                    return
            self.append_seconds += (clock.steady_ms() - started_ms) / 1000
            self._replies.counts["groups"] += 1
            reach("log.appended")
        self._carry_out(turn)

    def _append_error(self, turn: Turn) -> Exception | None:
        """Append a turn's records, and return the exception; raise an exception that ends the
        owner.
        """
        try:
            self._log.append(turn.groups)
        except FATAL:
            raise
        except BaseException as raised:
            error = as_exception(raised)
            if not isinstance(error, UnstorableError):
                self._trouble = str(error), self._runtime.clock.steady_ms()
            return error
        self._trouble = ("", 0.0)
        return None

    def _append_each(self, turn: Turn, error: UnstorableError) -> None:
        """After a turn that can't be stored, take its inserts again one by one, so that only the
        insert that caused the error fails.
        """
        turn.take_back()
        inserts = list(turn.waiting.values())
        if len(inserts) == 1:
            fail([inserts[0].answer], error)
            return
        for insert in inserts:
            self.take([insert])

    def settle(self) -> None:
        """Append an unclear turn again, to learn whether the log has it."""
        if self._unclear is None:
            return
        turn, since_ms = self._unclear
        error = self._append_error(turn)
        match error:
            case None:
                self._unclear = None
                self._replies.counts["groups"] += 1
                reach("log.appended")
                self._carry_out(turn)
            case UnstorableError():
                self._unclear = None
                self._append_each(turn, error)
            case _:
                if self._runtime.clock.steady_ms() - since_ms > _UNCLEAR_MS:
                    inserts = [item for item in self._behind if isinstance(item, Insert)]
                    fail_items(turn.waiting.values(), shown(error))
                    fail_items(inserts, _not_taken(error))
                    self._behind = deque(i for i in self._behind if not isinstance(i, Insert))
                return
        behind = list(self._behind)
        self._behind.clear()
        self._go_on(behind)

    def _carry_out(self, turn: Turn) -> None:
        """Adopt the new states, which are durable now, and carry out their effects."""
        self._replies.expect(turn.waiting)
        self._replies.counts.update(turn.counts)
        for table, queue, chain in turn.states:
            table.queue, table.chain = queue, chain
        if turn.effects:
            self._do(turn.effects)
        self._replies.give(turn.replies)


def _not_taken(error: Exception) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"The insert was not accepted, because the log does not work: {error}",
        hint="Send the insert again.",
    )


# One turn of the queues' thread: the decisions about all inserts that arrived together, before any
# of them is carried out. Each table's queue decides (`queue.step`); the records of all tables are
# appended to the log at once. Until they are durable, a turn has changed nothing: it may be
# dropped, and its loss does no harm if the process dies.


@dataclass(slots=True)
class Turn:
    """The tables' next `states` (queue and chain), which hold when the `groups` are in the log, and
    the `effects` and `replies` that follow then. `waiting` has the inserts by their ask numbers."""

    states: list[tuple[TableQueue, Queue, int]] = field(default_factory=list)
    groups: list[Appended] = field(default_factory=list)
    effects: list[tuple[TableQueue, Effect]] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
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
        """Let one table's queue decide about inserts; each insert gets the next of the `numbers`.
        Raises the log's errors, since it looks their labels up in the log.
        """
        keys = [insert.key for insert in inserts if insert.key]
        remembered = log.remembered(table.id, keys) if keys else {}
        by_ask = {next(numbers): insert for insert in inserts}
        table.user = inserts[-1].user
        arrivals = tuple(_arrival(ask, insert, remembered) for ask, insert in by_ask.items())
        queue, effects = step(table.queue, Arrived(arrivals, now_ms))
        chain = table.chain
        groups = []
        for effect in effects:
            if isinstance(effect, Reply):
                self.replies.append(effect)
            elif isinstance(effect, Append):
                group = _group(table, effect, by_ask, chain, now_ms)
                groups.append(group)
                chain = group.segment.chain
                self.counts["records"] += len(effect.inserts)
                self.counts["rows"] += sum(arrival.rows for _, arrival in effect.inserts)
            else:
                self.effects.append((table, effect))
        self.waiting |= by_ask
        self.groups += groups
        self.states.append((table, queue, chain))

    def hand_over(self) -> None:
        """Note that the log receives the records now, so its inserts may be accepted."""
        for insert in self.waiting.values():
            insert.may_be_taken = True
        for reply in self.replies:
            if isinstance(reply.answer, Refused):
                self.waiting[reply.ask].may_be_taken = False

    def take_back(self) -> None:
        """Note that the log certainly has none of the records, and will not have them."""
        for insert in self.waiting.values():
            insert.may_be_taken = False


def _arrival(ask: int, insert: Insert, remembered: Mapping[str, Remembered]) -> Arrival:
    """An insert as its queue sees it, with what the log remembers of its label or channel."""
    validated = insert.validated
    name = insert.key, insert.offset, insert.digest
    arrival = Arrival(ask, validated.rows, len(validated.payload), insert.mode, *name)
    known = remembered.get(insert.key) if insert.key else None
    return arrival if known is None else _as_remembered(arrival, known)


def _as_remembered(arrival: Arrival, known: Remembered) -> Arrival:
    same = known.inserts.get(arrival.offset)
    return arrival._replace(
        known=None if same is None else Known(*same),
        last_offset=known.last_offset,
        first_offset=known.first_offset,
    )


def repeated(log: Log, table_id: str, arrival: Arrival) -> Arrival:
    """An insert that is sent as a repeat only, with what the log remembers of its name. Raises the
    log's errors."""
    known = log.remembered(table_id, [arrival.key]).get(arrival.key)
    arrival = arrival._replace(is_repeat_only=True)
    return arrival if known is None else _as_remembered(arrival, known)


def _group(
    table: TableQueue, append: Append, by_ask: dict[int, Insert], chain: int, now_ms: int
) -> Appended:
    records = []
    keys = []
    begun = set()
    for lsn, arrival in append.inserts:
        insert = by_ask[arrival.ask]
        validated = insert.validated
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
                insert.user,
            )
        )
        if arrival.key:
            is_new = arrival.offset >= 0 and arrival.last_offset is None
            begins = is_new and arrival.key not in begun
            if begins:
                begun.add(arrival.key)
            keys.append(Keyed(arrival.key, arrival.offset, lsn, arrival.digest, begins))
    return Appended(table.id, stored_name(table.name), seal(records, chain), tuple(keys))
