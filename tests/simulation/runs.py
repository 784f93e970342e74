"""One run of the simulation, decided by its seed: its deployment, clients, faults, and the checks
at its end."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import random
import shutil
import tempfile
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from paimon_magics.coordinator.inserts.log import database as log_database
from paimon_magics.coordinator.inserts.queue.values import Mode
from paimon_magics.coordinator.store import state_store
from paimon_magics.coordinator.store.database import Change, StoreLostError
from paimon_magics.coordinator.store.sqlite import MemoryDatabase
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.fencing import DeposedError
from tests.simulation.changes import alter, change_version
from tests.simulation.clients import NAMES, Client
from tests.simulation.engines import append_by_engine
from tests.simulation.faults import GENTLE, KINDS, Faults, faults_of
from tests.simulation.ledger import Ledger
from tests.simulation.owners import Deployment, OwnerProcess
from tests.simulation.scheduler import START_US, Process, Scheduler, StuckError
from tests.simulation.statements import append, overwrite, truncate
from tests.simulation.world import DatabaseServer, World, mark_of, prepare

__all__ = ["Result", "run"]

_ROOT = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir())
# Identities are made of paths: each run has the same ones.
_WAREHOUSE = "/proc/self/cwd/w"
_SETTLE_US = 240_000_000
_RESTARTS_MAX = 40
_TABLES = ("insert_closed", "table_stopped")


@dataclass
class Result:
    """What a run has shown. It was clean without `problems`."""

    seed: int
    problems: list[str]
    steps: int
    seconds: float
    trace: list[str] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    operations: int = 0
    seen: tuple[str, ...] = ()


_numbers = itertools.count()
_runs = itertools.count(1)
_is_warm = False


def run(seed: int, *, traced: bool = False, gentle: bool = False) -> Result:
    """Carry out the run of a seed; with `gentle` only processes crash and the network is bad."""
    global _is_warm
    if not _is_warm:
        _is_warm = True
        logging.disable(logging.CRITICAL)
        prepare()
        for warming in range(3):  # some modules are imported when they are needed
            _Run(warming, traced=False, gentle=False).carry_out()
        prepare()
        _spare()
    if next(_runs) % 64 == 0:
        gc.collect()
    return _Run(seed, traced=traced, gentle=gentle).carry_out()


def _spare() -> None:
    """Spare each run what is always the same: empty databases with their tables, garbage."""
    for name, statements in (("state", state_store._TABLES), ("log", log_database._TABLES)):
        database = MemoryDatabase(name)
        dialect = asdict(database.dialect)
        database.write([Change(statement.format(**dialect)) for statement in statements])
        DatabaseServer.images[name] = database.image()
    gc.collect()
    gc.freeze()
    gc.disable()


class _Run:
    def __init__(self, seed: int, *, traced: bool, gentle: bool) -> None:
        self.seed = seed
        shape = random.Random(seed ^ 0xABCDEF)
        self.shape = shape
        self.faults = faults_of(shape, GENTLE if gentle else KINDS)
        self.scheduler = Scheduler(seed)
        if traced:
            self.scheduler.trace = []
        self.world = World(self.scheduler, self.faults, seed)
        self.ledger = Ledger()
        self.folder = _ROOT / f"paimon-magics-simulation-{os.getpid()}-{next(_numbers)}"
        self.owners: list[OwnerProcess] = []
        self.clients: list[Client] = []
        self.keeper = Process("keeper")
        self.is_over = False
        self.is_ending = False
        self._rows = itertools.count(1)
        self._restarts = 0
        self._had_two = False

    def carry_out(self) -> Result:
        (self.folder / "w").mkdir(parents=True)
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            with self.world.active():
                try:
                    self._begin()
                    self.scheduler.run(lambda: self.is_over)
                    self._check()
                except StuckError as error:
                    self._problem(f"stuck: {error}")
                    for where, cause in self.scheduler.errors:
                        self._problem(f"{where} ended by {type(cause).__name__}: {cause}")
                finally:
                    processes = [owner.process for owner in self.owners]
                    processes += [client.process for client in self.clients]
                    self.scheduler.end([*processes, self.keeper])
        except Exception as error:
            self._problem(f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-12)}")
        finally:
            os.chdir(before)
            shutil.rmtree(self.folder, ignore_errors=True)
        scheduler = self.scheduler
        return Result(
            self.seed,
            self.ledger.problems,
            scheduler.steps,
            (scheduler.now_us - START_US) / 1e6,
            scheduler.trace or [],
            self.faults,
            self.operations,
            tuple(sorted(self.world.seen_faults)),
        )

    def _problem(self, what: str) -> None:
        self.ledger.problems.append(what)

    # ---- the processes ----

    def _begin(self) -> None:
        shape = self.shape
        has_standby = shape.random() < 0.3
        log = shape.choice(("database", "database", "warehouse"))
        expire_every_ms = shape.choice((500, 3_600_000))
        self.deployment = Deployment(_WAREHOUSE, log, has_standby, expire_every_ms)
        self.world.crash_at = sorted(self.faults.crashes)
        self.operations = shape.randrange(6, 20)
        self.scheduler.note(f"log {log}, standby {has_standby}, {self.faults}")
        self.scheduler.spawn(self.keeper, "keeper", self._keep)
        for at_us, by_us in self.faults.clock_jumps:
            self.scheduler.spawn(self.keeper, "clock", lambda a=at_us, b=by_us: self._jump(a, b))

    def _start(self, home: str) -> OwnerProcess:
        owner = OwnerProcess(self.world, self.deployment, len(self.owners) + 1, home)
        self.owners.append(owner)
        owner.start()
        return owner

    def owner(self) -> OwnerProcess | None:
        """The process that answers now."""
        for owner in reversed(self.owners):
            if owner.is_ready and owner.process.alive:
                self.world.crashable = owner.process
                return owner
        return None

    def _jump(self, at_us: int, by_us: int) -> None:
        self.world.sleep_us(at_us)
        if not self.world.calm:
            self.world.seen_faults.add("clock jumps")
            for owner in self.owners:
                owner.process.wall_ahead_us += by_us
            self.scheduler.note(f"the clock jumps by {by_us / 3.6e9:.0f} h")

    def _keep(self) -> None:
        """Start processes, restart those that have ended, and end the run."""
        homes = ["a", "b"] if self.deployment.has_standby else ["a"]
        running = {home: self._start(home) for home in homes}
        shape = self.shape
        clients = shape.choice((1, 2, 3, 4))
        names = NAMES[: shape.choice((1, 2, 2, 3))]
        working = []
        for number in range(clients):
            client = Client(
                self.world,
                self.ledger,
                self.owner,
                number,
                lambda: next(self._rows),
                self.deployment.warehouse,
            )
            self.clients.append(client)
            count = self.operations // clients + (number < self.operations % clients)
            plan = _plan(shape, count, names, is_first=number == 0)
            working.append(
                self.scheduler.spawn(
                    client.process, "client", lambda c=client, p=plan: _work(self, c, p)
                )
            )
        calm_us = self.scheduler.now_us + 12_000_000
        since_us = self.scheduler.now_us
        while True:
            self.world.sleep_us(100_000)
            self._check_owners()
            now_us = self.scheduler.now_us
            for home, owner in running.items():
                if not owner.is_alive:
                    self._ended(owner)
                    self.world.sleep_us(1_000_000)
                    ahead_us = owner.process.wall_ahead_us
                    running[home] = self._start(home)
                    running[home].process.wall_ahead_us = ahead_us
            is_done = all(task.is_done for task in working)
            if not self.world.calm and (is_done or now_us > calm_us):
                self.world.calm = True
                self.world.outage_until_us = 0
                since_us = now_us
                self.scheduler.note("calm from now on")
            if self.world.calm and is_done and self._has_settled() and self._is_healthy():
                break
            if self.world.calm and now_us - since_us > _SETTLE_US:
                self._note_waiting(is_done)
                break
        self.is_ending = True
        for owner in running.values():
            owner.ask_to_end()
        for _ in range(600):
            if all(not owner.is_alive for owner in running.values()):
                break
            self.world.sleep_us(100_000)
        else:
            if not self.deployment.has_standby:
                self._problem("the process did not end within 60 s")
        self.is_over = True

    def _check_owners(self) -> None:
        """At any time one process at most may believe that it owns the warehouse."""
        owning = [owner.process.name for owner in self.owners if owner.owns]
        if len(owning) > 1 and not self._had_two:
            self._had_two = True
            self._problem(f"{' and '.join(owning)} own the warehouse at once")

    def _ended(self, owner: OwnerProcess) -> None:
        """A process has ended by itself, or has crashed."""
        self._restarts += 1
        if owner.end_reason and not self.is_ending:
            cause = owner.end_error or owner_failure(owner)
            is_fair = owner.lost or isinstance(cause, DeposedError | StoreLostError)
            if not is_fair and (owner.began_in_calm or not owner.end_reason.startswith("start")):
                self._problem(f"{owner.process.name} ended: {owner.end_reason} ({cause!r})")
        if self._restarts > _RESTARTS_MAX:
            raise StuckError(f"{_RESTARTS_MAX} restarts: {owner.end_reason}")

    def _has_settled(self) -> bool:
        owner = self.owner()
        if owner is None or not owner.group.owner.ready.is_set():
            return False
        waits = any(
            table.queue.batches and not table.queue.closed for table in owner.group.tables.values()
        )
        return not waits and not owner.coordinator.state.transactions

    def _is_healthy(self) -> bool:
        """Whether health says that all is well, but for closed tables, which are found later."""
        owner = self.owner()
        if owner is None:
            return False
        health = owner.monitor.now()
        return health.is_ready and all(f.name in _TABLES for f in health.problems)

    def _note_waiting(self, is_done: bool) -> None:
        owner = self.owner()
        if owner is None:
            reasons = [o.end_reason for o in self.owners]
            self._problem(f"no process answers in calm: {reasons[-3:]}")
            return
        if not is_done:
            self._problem("clients have no answer in calm")
        elif self._has_settled():
            for fact in owner.monitor.now().problems:
                self._problem(f"health still tells of a problem in calm: {fact.problem}")
        for table in owner.group.tables.values():
            queue = table.queue
            if queue.batches and not queue.closed:
                self._problem(f"rows of {table.name} wait for ever: {queue.last_error!r}")
        for each in owner.coordinator.state.transactions.values():
            self._problem(f"transaction {each.id} is {each.phase} for ever")

    # ---- the checks ----

    def _check(self) -> None:
        for where, error in self.scheduler.errors:
            self._problem(f"{where} ended by {type(error).__name__}: {error}")
        for mistake in self.world.mistakes:
            self._problem(mistake)
        for client in self.clients:
            for what in client.unanswered:
                self._problem(what)
        found: dict[str, list[int]] = {}
        catalog = Catalog.open({"warehouse": self.deployment.warehouse})
        for table_name in catalog.list_tables("default"):
            table = catalog.load(TableName(table_name, "default"))
            rows = _rows_of(table)
            identity = mark_of(table.location)
            if identity in found:
                self._problem(f"two tables have the id {identity}")
            if identity is not None or rows:
                found[identity or table.location] = rows
        for owner in reversed(self.owners):
            if hasattr(owner, "group"):
                for queue in owner.group.tables.values():
                    if queue.queue.closed:
                        self._problem(f"{queue.name} is closed: {queue.queue.closed}")
                for location, stopped in owner.coordinator.state.stopped.items():
                    self._problem(f"{location} is stopped: {stopped.reason}")
                break
        self.ledger.check(found)


def owner_failure(owner: OwnerProcess) -> BaseException | None:
    """What has ended group commit or the coordinator."""
    group, coordinator = getattr(owner, "group", None), getattr(owner, "coordinator", None)
    failure = None if coordinator is None else coordinator.state_thread.failure
    return failure or (None if group is None else group.owner.failure)


def _rows_of(table: object) -> list[int]:
    """The ids of a table's rows, in the order of their commits."""
    paimon = table.paimon  # type: ignore[attr-defined]
    splits = paimon.new_read_builder().new_scan().plan().splits()
    files = [
        (file.creation_time.get_millisecond(), file.min_sequence_number, file.file_path)
        for split in splits
        for file in split.files
    ]
    rows: list[int] = []
    for _, _, path in sorted(files):
        with pq.ParquetFile(path) as file:
            rows += file.read(["id"], use_threads=False).column("id").to_pylist()
    return rows


def _plan(
    shape: random.Random, count: int, names: tuple[object, ...], *, is_first: bool
) -> list[tuple[str, object, object]]:
    kinds = ["insert", "insert", "insert", "labelled", "labelled", "channel", "flush"]
    extra = ["create", "drop", "rename", "append", "truncate", "overwrite", "sync", "engine"]
    extra += ["alter", "version"]
    for kind in shape.sample(extra, shape.choice((0, 1, 2, 4, 9))):
        kinds += [kind] * shape.choice((1, 2, 3))
    if "drop" in kinds or "rename" in kinds:
        kinds += ["create"] * 2
    plan = [(shape.choice(kinds), shape.choice(names), shape.choice(names)) for _ in range(count)]
    if is_first and "overwrite" in kinds and shape.random() < 0.5:
        plan = [("overwrite", names[0], None), *plan]  # of a table that had no small insert yet
    if is_first:
        plan = [("create", name, None) for name in names] + plan
    return plan


def _work(run: _Run, client: Client, plan: list[tuple[str, object, object]]) -> None:
    for kind, name, other in plan:
        run.world.sleep_us(run.world.random.choice((0, 1_000, 50_000, 400_000)))
        if run.world.happens("clients vanish") and kind != "create":
            continue
        match kind:
            case "insert" | "labelled" | "channel":
                client.insert(
                    name,
                    labelled=kind == "labelled",
                    mode=Mode.ASYNC,
                    channel="c" if kind == "channel" else "",
                )
            case "sync":
                mode = run.world.random.choice((Mode.SYNC, Mode.OFF))
                client.insert(name, labelled=True, mode=mode)
            case "flush":
                client.flush(name)
            case "create":
                for tries in range(30):
                    if client.create(name, repeated=tries > 0) == "done":
                        break
                    client.wait_before(tries)
            case "drop":
                client.change("drop", name)
            case "rename":
                if other != name:
                    client.change("rename", name, other)
            case "append":
                append(client, name)
            case "engine":
                append_by_engine(client, name)
            case "alter":
                alter(client, name)
            case "version":
                change_version(client, name)
            case "truncate":
                truncate(client, name)
            case "overwrite":
                overwrite(client, name)
