"""A coordinator's process in a simulation, put together as `process.composition` does."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

from paimon_magics.coordinator.core.values import Limits
from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit, GroupCommitSettings
from paimon_magics.coordinator.inserts.log.database import DatabaseLog
from paimon_magics.coordinator.inserts.log.log import Log
from paimon_magics.coordinator.inserts.log.objects import ObjectLog
from paimon_magics.coordinator.inserts.log.registry import LogRegistry, RegisteredLog
from paimon_magics.coordinator.inserts.queue.values import Thresholds
from paimon_magics.coordinator.ownership.lease import Home, Owner
from paimon_magics.coordinator.ownership.ownership import Ownership
from paimon_magics.coordinator.routes.metrics import insert_facts
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.health import Noted, standard_monitor, store_fact
from paimon_magics.coordinator.service.key_moves import KeyMover
from paimon_magics.coordinator.service.served import Context, NameLocks
from paimon_magics.coordinator.store.state_store import StateStore
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.settings import Settings
from paimon_magics.tables.catalog.catalog import Catalog
from tests.simulation.faults import PanicException
from tests.simulation.scheduler import Process
from tests.simulation.world import DatabaseServer, SimDatabase, World

__all__ = ["Deployment", "OwnerProcess"]

LEASE_MS = 3_000
_PROBE_MS = 5_000.0


@dataclass
class Deployment:
    """What outlives processes: a warehouse, and the databases of state and log. `log` is
    "warehouse" or "database"."""

    warehouse: str
    log: str
    has_standby: bool
    expire_every_ms: int
    state: DatabaseServer = field(default_factory=lambda: DatabaseServer("state"))
    log_server: DatabaseServer = field(default_factory=lambda: DatabaseServer("log"))


class OwnerProcess:
    """One process, from its start to its end. `is_ready` while it answers; `end_reason` says why
    it has ended by itself."""

    def __init__(self, world: World, deployment: Deployment, number: int, home: str) -> None:
        self.world = world
        self.deployment = deployment
        self.process = Process(f"c{number}")
        self.number = number
        self.home = Home("host", f"/state/{home}", home)
        self.is_ready = self.was_ready = False
        self.is_over = False
        self.end_reason = ""
        self.end_error: BaseException | None = None
        self.lost = False
        self.began_in_calm = world.calm
        self._ended = world.primitives.threading.Event()
        self._stop_asked = False

    def start(self) -> None:
        """Start the process."""
        self.world.scheduler.spawn(self.process, "main", self._main)

    def ask_to_end(self) -> None:
        """End it, as by SIGTERM."""
        self._stop_asked = True
        self._ended.set()

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process.alive and not self.is_over

    @property
    def owns(self) -> bool:
        """Whether the process believes that it owns the warehouse."""
        ownership = getattr(self, "ownership", None)
        if ownership is None or not self.is_alive or ownership._closing.is_set():
            return False
        return bool(ownership.epoch and not ownership.is_lost and ownership.left_ms > 0)

    def _main(self) -> None:
        try:
            with ExitStack() as ending:
                self._begin(ending)
                self.is_ready = self.was_ready = True
                self.world.scheduler.note("ready")
                self._ended.wait()
                self.is_ready = False
            self.world.scheduler.note(f"ended: {self.end_reason or 'asked'}")
        except PaimonMagicsError as error:
            self.end_error = error
            self.end_reason = f"start failed: {error}"
            self.world.scheduler.note(self.end_reason)
        except (Exception, PanicException) as error:  # a supervisor starts it again
            if self.was_ready:
                raise
            self.end_error = error
            self.end_reason = f"start failed: {type(error).__name__}: {error}"
            self.world.scheduler.note(self.end_reason)
        finally:
            self.is_ready = False
            self.is_over = True
        self.world.scheduler.crash(self.process)  # what threads are left end with it

    def _end(self, why: str) -> None:
        if self.process.alive:
            self.end_reason = self.end_reason or why
        self._ended.set()

    def _begin(self, ending: ExitStack) -> None:
        deployment = self.deployment
        catalog = Catalog.open({"warehouse": deployment.warehouse})
        files = catalog.stores.of(catalog.warehouse)
        holder = Owner(self.home, f"http://{self.process.name}", "sim", self.number)
        self.ownership = ownership = Ownership(files, catalog.warehouse, holder, LEASE_MS)
        ending.callback(ownership.release)
        if deployment.has_standby:
            ownership.stand_by()
        store = StateStore(SimDatabase(self.world, deployment.state))
        ending.callback(store.close)
        limits = Limits(
            lease_ms=4_000, cleanup_grace_ms=1_500, expire_every_ms=deployment.expire_every_ms
        )
        self.coordinator = coordinator = Coordinator(
            catalog,
            store,
            Settings(),
            limits,
            ownership,
            on_failure=lambda: self._end("the coordinator failed"),
        )
        log = self._log(files, catalog.warehouse)
        ending.callback(log.close)
        registered = RegisteredLog(
            log, LogRegistry(files, catalog.warehouse, log.id, log.name, "sim")
        )
        settings = GroupCommitSettings(Thresholds(interval_ms=400), 3_600_000)
        self.group = group = GroupCommit(
            catalog,
            coordinator,
            registered,
            settings,
            ownership,
            on_failure=lambda: self._end("group commit failed"),
        )
        ownership.when_lost(lambda error: self._lost())
        self.served = Context(
            catalog,
            catalog.publish,
            coordinator.turns,
            fence=ownership.fence,
            watch=coordinator.watching,
            order=group.holds,
            properties=store.database_properties,
            definition_store=store.definitions,
            names=NameLocks(coordinator.runtime),
            slot=coordinator.slot,
            mover=KeyMover(catalog, coordinator.transactions),
        )
        self.monitor = monitor = standard_monitor(coordinator, coordinator.runtime, ownership)
        probe = Noted[object](coordinator.runtime, "store", store.check, _PROBE_MS, None)
        ending.callback(probe.stop)
        monitor.add("its store", lambda: [store_fact(probe)])
        now_ms = coordinator.runtime.clock.now_ms
        monitor.add("its inserts", lambda: insert_facts(group, now_ms()))
        ownership.acquire()
        ending.callback(coordinator.stop)
        coordinator.start()
        ending.callback(group.stop)
        group.start()

    def _lost(self) -> None:
        self.lost = True
        self._end("the warehouse was taken over")

    def _log(self, files: object, warehouse: str) -> Log:
        if self.deployment.log == "warehouse":
            return ObjectLog(files, warehouse, "sim")  # type: ignore[arg-type]
        return DatabaseLog(SimDatabase(self.world, self.deployment.log_server))
