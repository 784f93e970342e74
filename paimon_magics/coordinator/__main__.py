"""`python -m paimon_magics.coordinator`: run a coordinator for one warehouse.

It prints one line when it answers: its address, and the file that holds its token. SIGTERM and
SIGINT end it after the commits under way. When another coordinator has taken the warehouse over it
ends by itself, with the exit code 3; 2 is for what it can't start with.
"""

from __future__ import annotations

import argparse
import gc
import getpass
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.routing import BaseRoute, WebSocketRoute

from paimon_magics.coordinator.core import Limits
from paimon_magics.coordinator.http.authorisation import TokenFile
from paimon_magics.coordinator.http.hub import HUB_CACHE_MS, hub_service
from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit
from paimon_magics.coordinator.inserts.log.database import DatabaseLog
from paimon_magics.coordinator.inserts.log.disk_reserve import Room
from paimon_magics.coordinator.inserts.log.interface import Log
from paimon_magics.coordinator.inserts.log.objects import ObjectLog
from paimon_magics.coordinator.inserts.log.registry import LogRegistry
from paimon_magics.coordinator.inserts.queue.values import Thresholds
from paimon_magics.coordinator.ownership.catalog_options import ENVIRONMENT as CATALOG_OPTIONS
from paimon_magics.coordinator.ownership.catalog_options import catalog_options
from paimon_magics.coordinator.ownership.ownership import Ownership
from paimon_magics.coordinator.ownership.redacted_log import keep_secrets_out_of_logs
from paimon_magics.coordinator.ownership.state_folder import Running, StateFolder
from paimon_magics.coordinator.routes.app import application
from paimon_magics.coordinator.routes.catalog import catalog_routes
from paimon_magics.coordinator.routes.insert_stream import InsertStream
from paimon_magics.coordinator.routes.inserts import InsertRoutes
from paimon_magics.coordinator.routes.store_options import StoreOptions
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.idling import Idling
from paimon_magics.coordinator.service.served import Context
from paimon_magics.coordinator.store.sqlite import SqliteDatabase
from paimon_magics.coordinator.store.store import Store, open_store, store_address
from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.redaction import conceal_options
from paimon_magics.settings import Settings
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.commits.fencing import DeposedError
from paimon_magics.tables.stores.s3_access import ENVIRONMENT_KEYS, with_credentials
from paimon_magics.version import __version__

__all__ = ["main"]

_REQUEST_BYTES_MAX = 16 * 1024 * 1024
# Long enough for a store that does not answer for a while, short enough to wait for.
_OWNERSHIP_LEASE_MS = 30_000
_IDLE_MS = 600_000
_LABEL_RETENTION_MS = 3 * 86_400_000  # as long as Doris keeps labels
_LOG_RESERVE_BYTES = 256 * 1024 * 1024
_OBJECTS_BEFORE_COLLECTION = 50_000
_LAST_WORDS_SECONDS = 1.0
_GRACE_SECONDS = 30  # for who waits for something that does not come
_DEPOSED = 3  # the exit codes
_FAILED = 4


def main(arguments: list[str] | None = None) -> int:
    """Run until a signal; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _serve(options)
    except PaimonMagicsError as error:
        print(error.text(), file=sys.stderr)
        return 2


def _serve(options: argparse.Namespace) -> int:
    keep_secrets_out_of_logs()
    if options.embedded and options.log == "warehouse":
        raise SetupError(
            "A coordinator that owns the warehouse only when needed can't keep its log there.",
            hint="Leave --embedded or --log warehouse out.",
        )
    hub = hub_service(options.hub_cache_ms) if options.hub else None
    folder = StateFolder(Path(options.state))
    folder.hold()
    store = open_store(folder.path, store_address(options.store))
    catalog = _catalog(options)
    listening = socket.create_server(("127.0.0.1", options.port if hub is None else hub.port))
    # Accepted connections inherit it; without it answers wait 40 ms for an acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}{'' if hub is None else hub.root}"
    ownership = None
    if catalog.metastore != "rest":  # else that catalog's own comparison decides between several
        ownership = Ownership(
            catalog.stores.of(catalog.warehouse),
            catalog.warehouse,
            folder.home(),
            address=address,
            user=getpass.getuser(),
            pid=os.getpid(),
            lease_ms=options.ownership_lease_ms,
        )
    limits = Limits(
        lease_ms=options.lease_ms,
        cleanup_grace_ms=options.cleanup_grace_ms,
        receipt_retention_ms=options.receipt_retention_ms,
        watch_every_ms=options.watch_every_ms,
        expire_every_ms=options.expire_every_ms,
    )
    coordinator = Coordinator(catalog, store, Settings(), limits, ownership)
    group = inserts = None
    if ownership is not None:
        group = _group_commit(options, folder, store, catalog, coordinator, ownership)
        coordinator.place = group.places.of_transaction
    routes: Sequence[BaseRoute] = catalog_routes(
        Context(
            catalog,
            catalog.publish,
            coordinator.turns,
            fence=None if ownership is None else ownership.fence,
            watch=coordinator.watching,
            order=group,
            properties=store,
        )
    )
    if group is not None:
        elsewhere = options.store or options.log == "warehouse"
        room = Room(None if elsewhere else folder.path, options.log_reserve_bytes)
        inserts = InsertRoutes(group, coordinator, room)
        stream = WebSocketRoute("/v1/inserts/{database}/{table}/stream", InsertStream(inserts))
        routes = [*inserts.routes(), stream, *routes]
    store_options = StoreOptions(catalog, ownership, takes_new=options.embedded)
    routes = [*store_options.routes(), *routes]
    app = application(
        coordinator,
        TokenFile(folder.token()) if hub is None else hub.authoriser,
        warehouse=catalog.warehouse,
        request_bytes_max=options.request_bytes_max,
        routes=routes,
        root="" if hub is None else hub.root,
        group=group,
        inserts=inserts,
    )
    idling = None
    if options.embedded:
        app = idling = Idling(
            app,
            coordinator,
            options.idle_ms,
            lambda: setattr(server, "should_exit", True),
            has_work=lambda: group is not None and group.has_work,
        )
    config = uvicorn.Config(
        app,
        log_config=None,  # what it says goes where all else goes
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        ws_max_size=options.request_bytes_max,
        ws_per_message_deflate=False,
    )
    server = _Server(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _end(server, group))
    if ownership is not None:
        ownership.on_loss = lambda error: _end_deposed(server, coordinator, group, error)
        if not options.embedded:  # which takes it when somebody writes: readers hinder nobody
            ownership.acquire()
    coordinator.start()
    if group is not None:
        group.on_failure = lambda: setattr(server, "should_exit", True)
        group.start()
    _spare_garbage_collection()
    folder.announce(Running(address, os.getpid(), __version__))
    if idling is not None:
        idling.start()
    tokens = f"token-file={folder.token_file}" if hub is None else "tokens=hub"
    print(f"paimon-coordinator {address} {tokens}", flush=True)
    try:
        server.run(sockets=[listening])
    finally:
        folder.retract()
        if group is not None:
            group.stop()
        coordinator.stop()
    if coordinator.deposed is not None:
        print(coordinator.deposed.text(), file=sys.stderr)
        return _DEPOSED
    if group is not None and group.problem is not None:
        print(group.problem, file=sys.stderr)
        return _FAILED
    return 0


def _catalog(options: argparse.Namespace) -> Catalog:
    """The catalog. One that was started by a session has its credentials from there alone: what the
    environment had then must not outlast what a later session brings."""
    found = catalog_options(
        warehouse=options.warehouse,
        file=options.catalog,
        environment=os.environ,
        assignments=options.catalog_option,
    )
    os.environ.pop(CATALOG_OPTIONS, None)
    if options.embedded:
        found = with_credentials(found)
        for name in ENVIRONMENT_KEYS:
            os.environ.pop(name, None)
    conceal_options(found)
    return Catalog.open(found)


def _group_commit(
    options: argparse.Namespace,
    folder: StateFolder,
    store: Store,
    catalog: Catalog,
    coordinator: Coordinator,
    ownership: Ownership,
) -> GroupCommit:
    """Group commit, with its log beside the coordinator's store."""
    who = f"{getpass.getuser()} on {socket.gethostname()}"
    files = catalog.stores.of(catalog.warehouse)
    log: Log
    if options.log == "warehouse":
        log = ObjectLog(files, catalog.warehouse, who)
    elif isinstance(store.database, SqliteDatabase):
        # A file of its own: transactions do not wait for inserts, nor inserts for them.
        log = DatabaseLog(SqliteDatabase(folder.path / "log.sqlite"))
    else:
        log = DatabaseLog(store.database, owned=False)
    return GroupCommit(
        catalog,
        coordinator,
        log,
        LogRegistry(files, catalog.warehouse, log.id, log.name, who),
        Settings(),
        own=ownership.acquire,
        may_answer=ownership.check_time,
        thresholds=Thresholds(
            soft_bytes=options.log_bytes_max // 2, hard_bytes=options.log_bytes_max
        ),
        label_retention_ms=options.label_retention_ms,
    )


def _spare_garbage_collection() -> None:
    """Look for circles among objects seldom: inserts make many objects and no circles, and what was
    loaded at the start stays anyway. That was a sixth of what an insert cost."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION, 20, 20)


def _end(server: uvicorn.Server, group: GroupCommit | None) -> None:
    """End when who asks now is answered."""
    server.should_exit = True
    if group is not None:  # who waits to see its rows need not wait any more
        threading.Thread(target=group.wind_up, daemon=True).start()


def _end_deposed(
    server: uvicorn.Server,
    coordinator: Coordinator,
    group: GroupCommit | None,
    error: DeposedError,
) -> None:
    """Answer who asks now with the error, and end."""
    coordinator.depose(error)
    if group is not None:
        group.depose(error)
    timer = threading.Timer(_LAST_WORDS_SECONDS, lambda: setattr(server, "should_exit", True))
    timer.daemon = True
    timer.start()


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn would end the process by them, before we have closed."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _parser() -> argparse.ArgumentParser:
    defaults = Limits()
    parser = argparse.ArgumentParser(
        prog="paimon-coordinator", description="Owns the commits of one Paimon warehouse."
    )
    parser.add_argument("--warehouse", help="the warehouse's folder or URI")
    parser.add_argument(
        "--catalog", help="a JSON file of catalog options, for what no command line should show"
    )
    parser.add_argument(
        "--catalog-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one of Paimon's catalog options, as s3.endpoint; may be given many times",
    )
    parser.add_argument(
        "--state", required=True, help="a folder on a local disk for its database and token"
    )
    parser.add_argument(
        "--store", help="postgresql://… to keep its database there (default: in the state folder)"
    )
    parser.add_argument(
        "--log",
        choices=("store", "warehouse"),
        default="store",
        help="where small inserts are kept until they are loaded: beside the database (default), "
        "or in the warehouse's own store",
    )
    parser.add_argument("--port", type=int, default=0, help="a port on 127.0.0.1 (default: any)")
    parser.add_argument("--lease-ms", type=int, default=defaults.lease_ms)
    parser.add_argument("--cleanup-grace-ms", type=int, default=defaults.cleanup_grace_ms)
    parser.add_argument("--receipt-retention-ms", type=int, default=defaults.receipt_retention_ms)
    parser.add_argument("--watch-every-ms", type=int, default=defaults.watch_every_ms)
    parser.add_argument("--expire-every-ms", type=int, default=defaults.expire_every_ms)
    parser.add_argument("--hub", action="store_true", help="run as a service of a JupyterHub")
    parser.add_argument("--hub-cache-ms", type=int, default=HUB_CACHE_MS)
    parser.add_argument("--ownership-lease-ms", type=int, default=_OWNERSHIP_LEASE_MS)
    parser.add_argument(
        "--embedded", action="store_true", help="own the warehouse when needed, end when idle"
    )
    parser.add_argument("--idle-ms", type=int, default=_IDLE_MS)
    parser.add_argument("--request-bytes-max", type=int, default=_REQUEST_BYTES_MAX)
    parser.add_argument("--label-retention-ms", type=int, default=_LABEL_RETENTION_MS)
    parser.add_argument("--log-bytes-max", type=int, default=Thresholds().hard_bytes)
    parser.add_argument("--log-reserve-bytes", type=int, default=_LOG_RESERVE_BYTES)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
