"""The world around the coordinator: databases, the warehouse's store, child processes, clocks.

Our code runs as it is. What it calls is simulated: each call may let others run first, take long,
fail before or after its effect, or be the process's last one.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import pkgutil
import queue as real_queue
import random as real_random
import stat
import sys
import threading as real_threading
import time as real_time
import traceback
import uuid as real_uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future as RealFuture
from concurrent.futures import ThreadPoolExecutor as RealExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

from pyarrow.fs import FileType
from pypaimon.filesystem.local_file_io import LocalFileIO

import paimon_magics
from paimon_magics.coordinator.inserts.loading import flusher_process
from paimon_magics.coordinator.runtime.children import ChildDiedError
from paimon_magics.coordinator.store.database import (
    Change,
    StoreLostError,
    StoreUnavailableError,
)
from paimon_magics.coordinator.store.sqlite import MemoryDatabase
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores import allowed_paths, local_store, paths
from paimon_magics.tables.stores.store import LocalStore, UnreachableError
from tests.simulation.faults import SIMULATED, Faults, PanicException
from tests.simulation.mistakes import watch
from tests.simulation.primitives import Executor, InlineExecutor, Primitives, UniqueTime
from tests.simulation.scheduler import Process, Scheduler, current

__all__ = ["Child", "DatabaseServer", "SimDatabase", "World", "mark_of", "prepare"]

T = TypeVar("T")

_FILE_IO = [
    "new_input_stream",
    "new_output_stream",
    "get_file_status",
    "list_status",
    "exists",
    "delete",
    "mkdirs",
    "rename",
    "try_to_write_atomic",
    "copy_file",
]
_STORE = [
    "create",
    "write",
    "read",
    "names",
    "delete",
    "modified_ms",
    "make_folder",
    "remove_if_empty",
]
_STRANGE: tuple[Callable[[], BaseException], ...] = (
    lambda: RuntimeError(SIMULATED),
    lambda: KeyError(SIMULATED),
    lambda: MemoryError(SIMULATED),
    lambda: PanicException(SIMULATED),
)

_active: World | None = None


class World:
    """One run's world. `calm` is set when nothing fails any more."""

    def __init__(self, scheduler: Scheduler, faults: Faults, seed: int) -> None:
        self.scheduler = scheduler
        self.random = scheduler.random
        self.faults = faults
        self.calm = False
        self.primitives = Primitives(scheduler, seed, faults.lock_pauses)
        self.outage_until_us = 0
        self.calls = 0
        self.crash_at: list[int] = []
        self.crashable: Process | None = None
        self.seen_faults: set[str] = set()
        self.mistakes: dict[str, None] = {}

    # ---- calls ----

    def call(self, kind: str, what: str, effect: Callable[[], T]) -> T:
        """Carry out a call that a task makes to something outside its process."""
        scheduler, task = self.scheduler, current()
        assert task is not None
        scheduler.check()
        self.calls += 1
        scheduler.note(what)
        scheduler.perhaps(self.faults.pauses)
        if not self.calm:
            self._perhaps_crash(task.process)
        if self._happens("slow"):
            self.sleep_us(self.random.randrange(1_000, 400_000))
        error = None if self.calm else self._failure(kind, what)
        if error is not None and not error[0]:
            scheduler.note(f"  fails: {error[1]!r}")
            raise error[1]
        task.depth += 1
        try:
            result = effect()
        finally:
            task.depth -= 1
        if error is not None:
            scheduler.note(f"  done, but fails: {error[1]!r}")
            raise error[1]
        if not self.calm:
            self._perhaps_crash(task.process)
        scheduler.perhaps(self.faults.pauses)
        scheduler.check()
        return result

    def sleep_us(self, us: int) -> None:
        """Let time pass for this task."""
        self.scheduler.block(us)

    def happens(self, kind: str) -> bool:
        """Whether a fault of that kind happens now."""
        return self._happens(kind)

    def _happens(self, kind: str) -> bool:
        rate = 0.0 if self.calm else self.faults[kind]
        if rate and self.random.random() < rate:
            self.seen_faults.add(kind)
            return True
        return False

    def crash_soon(self) -> None:
        """Have the process that answers crash within its next calls, in a run with crashes."""
        if self.faults.crashes and not self.calm:
            self.crash_at.insert(0, self.calls + self.random.randrange(40))

    def _perhaps_crash(self, process: Process) -> None:
        if self.crash_at and self.calls >= self.crash_at[0] and process is self.crashable:
            self.crash_at.pop(0)
            self.seen_faults.add("crashes")
            self.scheduler.crash(process)

    def _failure(self, kind: str, what: str) -> tuple[bool, BaseException] | None:
        """The error of a call, and whether it comes after the effect; None for a success."""
        if kind == "database":
            return self._database_failure()
        if self._happens("store freezes"):
            self.sleep_us(self.random.randrange(1_000_000, 8_000_000))
            is_done = self.random.random() < 0.5
            # A store tells by the error whether a file was perhaps created: see `Store.create`.
            is_unclear = is_done and what.startswith("create ")
            return is_done, _lost_answer(kind) if is_unclear else _no_answer(kind)
        if self._happens("store fails"):
            return False, _no_answer(kind)
        if self._happens("store loses answers"):
            return True, _lost_answer(kind)
        if self._happens("store fails strangely"):
            return self.random.random() < 0.5, self.random.choice(_STRANGE)()
        return None

    def _database_failure(self) -> tuple[bool, BaseException] | None:
        now_us = self.scheduler.now_us
        if now_us < self.outage_until_us:
            self.sleep_us(100_000)
            return False, StoreUnavailableError("The simulated database is away.")
        if self._happens("database outage"):
            self.outage_until_us = now_us + self.random.randrange(500_000, 6_000_000)
            is_done = self.random.random() < 0.5
            return is_done, StoreUnavailableError("The connection broke.", unclear=True)
        if self._happens("database freezes"):
            self.sleep_us(5_000_000)
            is_done = self.random.random() < 0.5
            return is_done, StoreUnavailableError("No answer in time.", unclear=True)
        if self._happens("database refuses"):
            return False, StoreUnavailableError("The simulated database is full.")
        if self._happens("database is unclear"):
            is_done = self.random.random() < 0.5
            return is_done, StoreUnavailableError("The answer is lost.", unclear=True)
        return None

    # ---- putting it under our code ----

    @contextmanager
    def active(self) -> Iterator[None]:
        """Have our modules and pypaimon use this world in the `with` block."""
        global _active
        simulated = self.primitives
        kinds: dict[int, Any] = {
            id(real_threading): simulated.threading,
            id(real_queue): simulated.queue,
            id(real_time): simulated.time,
            id(real_uuid): simulated.uuid,
            id(real_random): simulated.random,
            id(real_uuid.uuid4): simulated.uuid.uuid4,
            id(real_time.sleep): simulated.time.sleep,
            id(RealFuture): simulated.Future,
            id(RealExecutor): lambda *args, **named: Executor(simulated, *args, **named),
        }
        for namespace, name, value in _places:
            namespace[name] = kinds[id(value)]
            if value is RealExecutor and namespace["__name__"].startswith("pypaimon"):
                namespace[name] = lambda *_, **__: InlineExecutor(simulated)
            if namespace["__name__"] == "pypaimon.schema.table_schema" and value is real_time:
                namespace[name] = UniqueTime(simulated)
        local_store._threads.cache_clear()
        paths.os = allowed_paths.os = _STILL_OS  # type: ignore[assignment]
        before, flusher_process.ChildProcess = flusher_process.ChildProcess, Child  # type: ignore
        _active = self
        try:
            yield
        finally:
            _active = None
            flusher_process.ChildProcess = before  # type: ignore[misc]
            local_store._threads.cache_clear()
            paths.os = allowed_paths.os = os  # type: ignore[attr-defined]
            for namespace, name, value in _places:
                namespace[name] = value


_REAL = (
    real_threading,
    real_queue,
    real_time,
    real_uuid,
    real_random,
    real_uuid.uuid4,
    real_time.sleep,
    RealFuture,
    RealExecutor,
)
# Ids of tables are made of the real paths of their folders, which differ from run to run.
_STILL_OS = SimpleNamespace(
    **{**vars(os), "path": SimpleNamespace(**{**vars(os.path), "realpath": os.path.normpath})}
)
_places: list[tuple[dict[str, Any], str, Any]] = []
_is_hooked = False


def prepare() -> None:
    """Find all places where our modules and pypaimon use what is simulated. To be called outside
    of all runs, and again when modules were imported since."""
    global _is_hooked
    if not _is_hooked:
        _import_all(paimon_magics)
        LocalFileIO.exists = lambda self, path: os.path.exists(path)  # type: ignore[method-assign]
        LocalFileIO.new_input_stream = _opened  # type: ignore[method-assign]
        LocalFileIO.list_status = _listed  # type: ignore[method-assign]
        _hook(LocalFileIO, "file io", _FILE_IO)
        _hook(LocalStore, "store", _STORE)
        watch(_note_mistake)
        setattr(Catalog, "detach_table", _noting_drops(Catalog.detach_table))  # noqa: B010
        _is_hooked = True
    _places.clear()
    ids = {id(value) for value in _REAL}
    for module_name, module in sorted(sys.modules.items()):
        if module is None or module_name.split(".")[0] not in ("paimon_magics", "pypaimon"):
            continue
        namespace = vars(module)
        _places.extend((namespace, n, v) for n, v in list(namespace.items()) if id(v) in ids)


_SKIPPED = ("magics", "session", "spark", "widgets", "__main__")


def _import_all(package: Any) -> None:
    for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", lambda _: None):
        parts = each.name.split(".")
        if parts[1] in _SKIPPED or parts[-1] == "__main__":
            continue
        try:
            importlib.import_module(each.name)
        except ImportError:  # an optional package
            continue


def _hook(owner: type, kind: str, names: Sequence[str]) -> None:
    for name in names:
        setattr(owner, name, _hooked(kind, name, getattr(owner, name)))


def _hooked(kind: str, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **named: Any) -> Any:
        task, world = current(), _active
        if task is None or world is None or task.depth:
            return method(self, *args, **named)
        about = str(args[0]).rpartition("/")[2] if args and isinstance(args[0], str) else ""
        if "-" in about:  # ids of files that the native library names
            about = about[:8]

        def effect() -> Any:
            result = method(self, *args, **named)
            if kind == "store" and name in ("create", "write"):
                _stamp(args[0], world.scheduler.now_us)
            return result

        result = world.call(kind, f"{name} {about}", effect)
        if isinstance(result, list):
            result.sort(key=str if name == "names" else lambda each: str(each.path))
            world.random.shuffle(result)
        return result

    return call


def _stamp(path: str, now_us: int) -> None:
    """Give a file that was written the simulated time: some rules ask for a file's age."""
    os.utime(path.removeprefix("file://"), ns=(now_us * 1_000, now_us * 1_000))


class _Status:
    """What pypaimon asks of a listed file."""

    def __init__(self, path: str) -> None:
        status = os.stat(path)
        is_folder = stat.S_ISDIR(status.st_mode)
        self.path = self.original_path = path
        self.base_name = os.path.basename(path)
        self.size = None if is_folder else status.st_size
        self.type = FileType.Directory if is_folder else FileType.File
        self.mtime = status.st_mtime


def _opened(_: LocalFileIO, path: str) -> object:
    return open(path, "rb")


def _listed(_: LocalFileIO, path: str) -> list[_Status]:
    try:
        return [_Status(entry.path) for entry in os.scandir(path)]
    except FileNotFoundError:
        return []


def mark_of(location: str) -> str | None:
    """The id of the table in a folder, None for one that has none yet."""
    try:
        with open(f"{location}/.paimon-magics-table", "rb") as file:
            return str(json.load(file)["id"])
    except FileNotFoundError:
        return None


def _noting_drops(method: Callable[..., Any]) -> Callable[..., Any]:
    def detach_table(self: Catalog, name: TableName, **named: Any) -> Any:
        task = current()
        if task is not None and task.before_drop is not None:
            task.depth += 1
            try:
                table = self.find(name)
                identity = None if table is None else mark_of(table.location)
            finally:
                task.depth -= 1
            if identity is not None:
                task.before_drop(identity)
        return method(self, name, **named)

    return detach_table


def _note_mistake(error: BaseException) -> None:
    if _active is not None:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(where.filename)}:{where.lineno}"
        _active.mistakes[f"our code failed by {error!r} in {place}"] = None


def _no_answer(kind: str) -> BaseException:
    if kind == "store":
        return UnreachableError("The simulated store does not answer.")
    return OSError(errno.EIO, "The simulated store does not answer")


def _lost_answer(kind: str) -> BaseException:
    return OSError(errno.EIO, "The simulated store's answer is lost")


class DatabaseServer:
    """A database outside of all processes: it survives them. It begins as one of the `images`."""

    images: ClassVar[dict[str, bytes]] = {}

    def __init__(self, name: str) -> None:
        self.inner = MemoryDatabase(name, self.images.get(name))
        self.owner: object = None
        self.done: set[str] = set()


class SimDatabase:
    """A `Database` on a server. One that is opened later takes the server over."""

    def __init__(self, world: World, server: DatabaseServer) -> None:
        self._world = world
        self._server = server
        self.name = server.inner.name
        self.dialect = server.inner.dialect
        self.is_shared = True
        world.call("database", f"{self.name} open", self._own)

    def _own(self) -> None:
        self._server.owner = self

    def _check(self) -> None:
        if self._server.owner is not self:
            raise StoreLostError(f"Another coordinator uses {self.name}.")

    def read(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """See `Database.read`."""

        def effect() -> list[tuple[Any, ...]]:
            self._check()
            return self._server.inner.read(statement, *values)

        return self._world.call("database", f"{self.name} read", effect)

    def write(self, changes: Sequence[Change], id: str = "") -> None:
        """See `Database.write`."""

        def effect() -> None:
            self._check()
            if id not in self._server.done:
                self._server.inner.write(changes, id)
                self._server.done.add(id)
                self._server.done.discard("")

        self._world.call("database", f"{self.name} write {len(changes)}", effect)

    def close(self) -> None:
        """See `Database.close`."""


class Child:
    """A child process: see `runtime.children.ChildProcess`."""

    def __init__(self, module: str, purpose: str) -> None:
        assert _active is not None
        self._world = _active
        self._turn = _active.primitives.threading.Lock()
        self._is_closed = False
        self.pid: int | None = None
        self.busy_seconds = 0.0

    def warm_up(self) -> None:
        self.pid = 1

    def rest(self) -> None:
        self.pid = None

    def close(self) -> None:
        self._is_closed = True

    kill = close

    def ask(self, job: Any, meanwhile: Callable[[], object] = lambda: None) -> Any:
        world, task = self._world, current()
        assert task is not None
        with self._turn:
            if self._is_closed:
                raise ChildDiedError("The coordinator is stopping.")
            world.scheduler.note(f"child {job.first}..{job.last}")
            if world.happens("child dies"):
                raise ChildDiedError("The simulated process died.", 1)
            if world.happens("child freezes"):
                for _ in range(4):
                    world.sleep_us(5_000_000)
                    meanwhile()
                raise ChildDiedError(
                    "The simulated process did not respond for 20 s and was ended."
                )
            world.scheduler.perhaps(world.faults.pauses)
            task.depth += 1
            try:
                result = flusher_process._done(job)
            finally:
                task.depth -= 1
            if world.happens("slow"):
                world.sleep_us(700_000)
                meanwhile()
            if world.happens("child dies"):
                raise ChildDiedError("The simulated process died.", -9)
            world.scheduler.check()
            return result
