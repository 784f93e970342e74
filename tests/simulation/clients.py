"""Clients: each sends requests one after the other, and repeats what had no clear answer.

A request is carried out in the server's process, by the services behind its routes. On the way it,
or its answer, may be lost, and it may come twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from paimon_magics.coordinator.core.values import (
    Aborted,
    Done,
    Gone,
    Halted,
    Mismatch,
    NotCommitted,
    Overwritten,
    Refusal,
    Unknown,
)
from paimon_magics.coordinator.http import answers
from paimon_magics.coordinator.inserts.admission.items import Insert
from paimon_magics.coordinator.inserts.queue.values import Mode, Refused
from paimon_magics.coordinator.protocol.errors import BrokeOffError
from paimon_magics.coordinator.routes import insert_requests
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.tables.commits.fencing import NotOwnerError
from tests.simulation import definitions
from tests.simulation.ledger import Attempt, Change, Ledger
from tests.simulation.mistakes import is_mistake
from tests.simulation.owners import OwnerProcess
from tests.simulation.scheduler import Crashed, Process
from tests.simulation.world import World

__all__ = ["NAMES", "Client"]

NAMES = tuple(TableName(name, "default") for name in ("t", "u", "v"))
_SQL = (
    "CREATE TABLE t (id BIGINT, name STRING) TBLPROPERTIES ('auto_batch_load' = 'true', "
    "'bucket' = '-1', 'group_commit_interval_ms' = '{interval}'{more})"
)
_EXPIRING = (
    ", 'snapshot.num-retained.min' = '1', 'snapshot.num-retained.max' = '2', "
    "'snapshot.time-retained' = '1 s'"
)
_TRIES_MAX = 60
_ANSWER_US = 75_000_000  # a statement waits up to 60 s for its hold, while loads may fail
_REFUSED = (400, 403, 404, 409, 410, 413, 416, 422, 423, 429, 501, 507)


@dataclass(frozen=True)
class Said:
    """What a client got: the answer or error of the server, or neither."""

    answer: Any = None
    error: BaseException | None = None
    is_unreachable: bool = False

    @property
    def is_untaken(self) -> bool:
        """Whether an insert was answered with an error that says that no row was taken: any other
        than that it is not known."""
        is_expected = isinstance(self.error, PaimonMagicsError)
        return is_expected and not isinstance(self.error, BrokeOffError)

    @property
    def outcome(self) -> str:
        """ "done", "refused" or "unclear"."""
        if self.error is not None:
            return "refused" if status_of(self.error) in _REFUSED else "unclear"
        match self.answer:
            case None:
                return "refused" if self.is_unreachable else "unclear"
            case Refused(reason=reason):
                status = insert_requests._REFUSALS[reason][0]
                if reason.value in ("dead", "store"):
                    return "unclear"
                return "refused" if status in _REFUSED else "unclear"
            case Refusal() | Gone() | Mismatch() | Overwritten() | Halted() | Unknown():
                return "refused"
            case NotCommitted() | Aborted():
                return "refused"
            case _:
                return "done"


@cache
def _schema(interval_ms: int, *, is_expiring: bool) -> TableSchema:
    more = _EXPIRING if is_expiring else ""
    statement = parse_statement(_SQL.format(interval=interval_ms, more=more))
    assert isinstance(statement, CreateTable)
    return plan_create_table(statement)


def status_of(error: BaseException) -> int:
    """The status with which an error is answered."""
    if isinstance(error, NotOwnerError):
        return 503
    if isinstance(error, PaimonMagicsError):
        return answers._status(error)
    return 500


class Client:
    """One client. `owner` returns the process that answers now, None while none does."""

    def __init__(
        self,
        world: World,
        ledger: Ledger,
        owner: Callable[[], OwnerProcess | None],
        number: int,
        rows: Callable[[], int],
        warehouse: str,
    ) -> None:
        self.world = world
        self.ledger = ledger
        self.process = Process(f"k{number}")
        self.number = number
        self.warehouse = warehouse
        self._owner = owner
        self.new_row = rows
        self._labels = 0
        self._channels: dict[tuple[str, str], int] = {}
        self.unanswered: list[str] = []

    # ---- the network ----

    def ask(
        self, what: str, work: Callable[[OwnerProcess], Any], *, may_repeat: bool = False
    ) -> Said:
        """Send a request, and wait for what comes back."""
        world, scheduler = self.world, self.world.scheduler
        owner = self._owner()
        if owner is None:
            world.sleep_us(200_000)
            return Said(is_unreachable=True)
        if world.happens("network loses requests"):
            world.sleep_us(1_000_000)
            return Said()
        said: list[Said] = []
        answered = world.primitives.threading.Event()

        def handle() -> None:
            try:
                found = Said(answer=work(owner))
            except Crashed:
                raise
            except BaseException as error:
                found = Said(error=error)
                if is_mistake(error):
                    self.ledger.problems.append(f"{what} failed by {error!r}")
            said.append(found)
            answered.set()

        scheduler.spawn(owner.process, what, handle)
        if may_repeat and world.happens("network repeats"):
            scheduler.spawn(owner.process, f"{what} again", handle)
        waited_us = 0
        while not answered.wait(0.5) and waited_us < _ANSWER_US:
            waited_us += 500_000
            if not owner.process.alive:
                return Said()
        if not said:
            self.unanswered.append(f"{what}: no answer within {_ANSWER_US / 1e6:.0f} s")
            return Said()
        if world.happens("network loses answers"):
            return Said()
        return said[0]

    def wait_before(self, tries: int) -> None:
        """Wait before the next try, longer each time."""
        self.world.sleep_us(min(1_000_000, 50_000 * 2 ** min(tries, 5)))

    # ---- inserts ----

    def insert(self, name: TableName, *, labelled: bool, mode: Mode, channel: str = "") -> str:
        """Insert rows; with a label or in a channel until there is a clear answer."""
        count = self.world.random.choice((1, 1, 2, 5))
        rows = tuple(self.new_row() for _ in range(count))
        statement = {"columns": ["id", "name"], "rows": [[row, f"r{row}"] for row in rows]}
        body = json.dumps(statement).encode()
        key, offset = "", -1
        if channel:
            key = f"c:{channel}{self.number}"
            offset = self._channels.setdefault((name.table, channel), 0)
        elif labelled:
            self._labels += 1
            key = f"l:{self.number}-{self._labels}"
        outcome = "unclear"
        for tries in range(_TRIES_MAX):
            attempts: list[Attempt] = []
            said = self.ask(
                f"insert {rows[0]} into {name.table}",
                lambda owner, made=attempts: self._insert(
                    owner, name, rows, body, key, offset, mode, made
                ),
                may_repeat=bool(key),
            )
            outcome = said.outcome
            state = "refused" if said.is_untaken and not key else outcome  # asked once only
            for attempt in attempts:
                attempt.state = state if outcome != "done" else attempt.state
                if outcome == "done":
                    attempt.state = "done"
                    attempt.ended = self.world.scheduler.steps
            self.world.scheduler.note(f"insert {rows} -> {outcome} {said.answer} {said.error!r}")
            if not key or not (said.is_unreachable or outcome == "unclear"):
                break
            self.wait_before(tries)
        else:
            self.unanswered.append(f"insert {rows} into {name.table}: never a clear answer")
        if channel and outcome == "done":
            self._channels[name.table, channel] = offset + 1
        return outcome

    def _insert(
        self,
        owner: OwnerProcess,
        name: TableName,
        rows: tuple[int, ...],
        body: bytes,
        key: str,
        offset: int,
        mode: Mode,
        attempts: list[Attempt],
    ) -> Any:
        group = owner.group
        known = group.known_tables
        info = known.fresh("default", name.table) or known.load("default", name.table)
        state = owner.coordinator.state
        if state.stopped.get(info.location) is not None:
            return Halted(state.stopped[info.location].reason)
        validated = info.validator.json(body)
        digest = insert_requests.Named(key, offset).of(body).digest
        future = self.world.primitives.future()
        channel = key if key.startswith("c:") else ""
        begun = self.world.scheduler.steps
        attempt = Attempt(rows, info.identity, "sent", begun, channel=channel, is_small=True)
        attempts.append(attempt)
        self.ledger.attempts.append(attempt)
        group.submit(Insert(info, validated, mode, future, key, offset, digest, "sim"))
        return future.result()

    def flush(self, name: TableName) -> str:
        """Have what waits loaded."""

        def work(owner: OwnerProcess) -> Any:
            info = owner.group.known_tables.load("default", name.table)
            if owner.group.queue_of(info) is None:
                return Done()
            try:
                return owner.group.flush(info.identity).result(20)
            except TimeoutError:
                return None

        return self.ask(f"flush {name.table}", work).outcome

    # ---- tables ----

    def create(self, name: TableName, *, repeated: bool = False) -> str:
        """Create a table."""
        rng = self.world.random
        schema = _schema(rng.choice((100, 400, 1500)), is_expiring=rng.random() < 0.3)

        def work(owner: OwnerProcess) -> Any:
            definitions.create(owner, name, schema, repeated=repeated)
            return Done()

        said = self.ask(f"create {name.table}", work)
        self.world.scheduler.note(f"create {name.table} -> {said.outcome} {said.error!r}")
        return said.outcome

    def change(self, kind: str, name: TableName, target: TableName | None = None) -> str:
        """Drop or rename a table."""
        changes: list[Change] = []

        def work(owner: OwnerProcess) -> Any:
            def begun(identity: str) -> Change:
                change = Change(kind, identity, "sent", self.world.scheduler.steps)
                changes.append(change)
                self.ledger.changes.append(change)
                return change

            if kind == "drop":
                definitions.drop(owner, name, begun)
            elif kind == "rename":
                assert target is not None
                definitions.rename(owner, name, target)
            return Done()

        said = self.ask(f"{kind} {name.table} {target.table if target else ''}", work)
        for change in changes:
            change.state = said.outcome
        self.world.scheduler.note(f"{kind} {name.table} -> {said.outcome} {said.error!r}")
        return said.outcome
