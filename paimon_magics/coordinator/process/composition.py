"""Composes the parts that answer for a warehouse. Each part is made after the parts that it needs,
and closed before them, also when a later part can't be made or started.

Ownership comes before all parts that write to the warehouse, and is released after they have ended.
"""

from __future__ import annotations

import argparse
import gc
import getpass
import logging
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import partial
from urllib.parse import urlsplit

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.types import ASGIApp

from paimon_magics.coordinator.audit.trail import AuditTable, Trail
from paimon_magics.coordinator.client.addresses import Addresses, tls_context
from paimon_magics.coordinator.core.values import Limits
from paimon_magics.coordinator.http.authorisation import (
    Authoriser,
    NamedTokens,
    OwnProcesses,
    TokenFile,
    Tokens,
)
from paimon_magics.coordinator.http.forwarding import is_loopback
from paimon_magics.coordinator.http.limits import ClientLimits
from paimon_magics.coordinator.http.oidc import IssuedTokens, Issuer, IssuerKeys
from paimon_magics.coordinator.http.relaying import FromStandbys
from paimon_magics.coordinator.http.stored_grants import GrantedRights, StoredGrants
from paimon_magics.coordinator.inserts.engine.group_commit import GroupCommit, GroupCommitSettings
from paimon_magics.coordinator.inserts.log.database import DatabaseLog
from paimon_magics.coordinator.inserts.log.log import DiskReserve, Log, table_name
from paimon_magics.coordinator.inserts.log.objects import ObjectLog
from paimon_magics.coordinator.inserts.log.registry import LogRegistry, RegisteredLog
from paimon_magics.coordinator.inserts.queue.values import Thresholds
from paimon_magics.coordinator.ownership.folder_token import Introductions
from paimon_magics.coordinator.ownership.lease import Owner
from paimon_magics.coordinator.ownership.ownership import Ownership
from paimon_magics.coordinator.ownership.pairing import Pairing
from paimon_magics.coordinator.process.network import Network
from paimon_magics.coordinator.process.place import Place
from paimon_magics.coordinator.process.restoring import backup_route, manifest_of
from paimon_magics.coordinator.process.rotation_files import rotation_route
from paimon_magics.coordinator.process.server import Shutdown
from paimon_magics.coordinator.routes.administration import grant_routes, token_routes
from paimon_magics.coordinator.routes.app import Parts, application
from paimon_magics.coordinator.routes.catalog import StoreOptions, catalog_routes
from paimon_magics.coordinator.routes.insert_stream import InsertStream
from paimon_magics.coordinator.routes.inserts import InsertRoutes
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.runtime.work import waited
from paimon_magics.coordinator.service.compaction_scheduler import (
    Budget,
    CompactionRules,
    CompactionScheduler,
    Endpoint,
)
from paimon_magics.coordinator.service.coordinator import Coordinator, Idling
from paimon_magics.coordinator.service.health import (
    Fact,
    HealthMonitor,
    Noted,
    key_facts,
    log_fact,
    standard_monitor,
    store_fact,
)
from paimon_magics.coordinator.service.key_moves import KeyMover
from paimon_magics.coordinator.service.served import Context, NameLocks
from paimon_magics.coordinator.service.tags_and_branches import change_versions
from paimon_magics.coordinator.store.backups import Manifest
from paimon_magics.coordinator.store.sqlite import SqliteDatabase
from paimon_magics.coordinator.store.state_store import open_store
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits.publications import Publication
from paimon_magics.settings import Settings
from paimon_magics.statements.statement import TableName
from paimon_magics.tables.schema.history import created_at_ms
from paimon_magics.temporary_folders import remove_left

_log = logging.getLogger(__name__)

_COMPACTION_WORKER = "paimon_magics.coordinator.process.compaction_worker"
_PROBE_MS, _PROBE_FILE_MS, _LETTERS_MS = 5_000.0, 30_000.0, 5_000.0
_FOLDERS_MS = 3_600_000.0
_RIGHTS_MS = 5_000.0
_RECENT = 200  # commits whose tables are looked at after the start
_OBJECTS_BEFORE_COLLECTION = 50_000
_LAST_WORDS_SECONDS = 1.0
# The limits of one client on a network: more than a notebook or a Flink job needs, and a small part
# of a coordinator's capacity.
_REQUESTS_MAX = 256
_RATE_MAX = 2_000
_STREAMS_MAX = 1_024


@dataclass(frozen=True, slots=True)
class OwnerParts:
    """The started parts that answer for the warehouse. `group` accepts small inserts; it is None
    without ownership.
    """

    coordinator: Coordinator
    group: GroupCommit | None
    app: ASGIApp
    idling: Idling | None

    @property
    def is_deposed(self) -> bool:
        """Whether it ended because another coordinator has taken over."""
        return self.coordinator.state_thread.deposed is not None

    def wind_up(self) -> None:
        """Release clients that wait until their rows are visible."""
        if self.group is not None:
            self.group.wind_up()


def start_owner(
    options: argparse.Namespace,
    place: Place,
    ownership: Ownership | None,
    shutdown: Shutdown,
    ending: ExitStack,
) -> OwnerParts:
    """Make the parts that answer for the warehouse, and start them; `ending` stops and closes them.

    The warehouse may be owned already. Otherwise it is owned from now on, or for an embedded
    coordinator from its first write. Raises errors of ours.
    """
    parts = _Composition(options, place, ownership, shutdown, ending).started()
    _spare_garbage_collection()
    return parts


@dataclass
class _Composition:
    """The parts, made in the order in which they need each other."""

    options: argparse.Namespace
    place: Place
    ownership: Ownership | None
    shutdown: Shutdown
    ending: ExitStack

    def __post_init__(self) -> None:
        place, ownership = self.place, self.ownership
        self.catalog = place.catalog
        self.runtime: Runtime = Runtime() if ownership is None else ownership.runtime
        self.secret = secrets.token_urlsafe()
        self.store = open_store(
            place.folder.path,
            place.store_address,
            self.catalog.warehouse,
            is_heir=ownership is not None and ownership.epoch > 0,
            warehouse_id=place.binding.id,
        )
        self.ending.callback(self.store.close)
        self.pairing = None if ownership is None else self._pairing()
        self.log_file: SqliteDatabase | None = None
        self.ends = partial(self.shutdown.request_after, _LAST_WORDS_SECONDS)
        self.coordinator = Coordinator(
            self.catalog,
            self.store,
            Settings(),
            _limits(self.options),
            ownership,
            self.runtime,
            on_failure=self.ends,
        )

    def started(self) -> OwnerParts:
        options, ownership, coordinator = self.options, self.ownership, self.coordinator
        group = None
        if ownership is not None:
            group = self._group_commit(ownership)
            ownership.when_lost(lambda _: self.ends())
        compactions = self._compactions()
        coordinator.when_published(compactions.committed)
        monitor = standard_monitor(
            coordinator, self.runtime, ownership, lambda: self.shutdown.is_draining
        )
        folders = self.runtime.loop("temporary folders", lambda: _FOLDERS_MS, remove_left)
        self.ending.callback(folders.end)
        self._start_keys(monitor)
        disk = self._watched(monitor)
        if group is not None:
            self._watch_log(group, monitor)
        parts = Parts(
            coordinator,
            self.catalog.warehouse,
            None if group is None else self._inserts(group, disk),
            compactions,
            monitor=monitor,
            trail=self._trail(),
            hands_out_keys=self.place.data_tokens is not None,
        )
        app = self._application(parts)
        idling = None
        if options.embedded:
            app = idling = Idling(
                self.runtime,
                app,
                coordinator,
                options.idle_ms,
                self.shutdown.request,
                has_work=lambda: (
                    compactions.has_work or (group is not None and group.backlog.has_work)
                ),
            )
        # An embedded coordinator takes the warehouse at its first write, so that readers block
        # nobody.
        if ownership is not None and not options.embedded:
            ownership.acquire()
            assert self.pairing is not None
            self.pairing.begin()
            other = self.pairing.other_store
            if other:
                _log.warning("%s", other)
            monitor.add("its past", lambda: [Fact("other_store", int(bool(other)), other)])
            rights = self.runtime.loop("rights", lambda: _RIGHTS_MS, self.pairing.note_rights)
            self.ending.callback(rights.end)
        self._start(parts, compactions)
        return OwnerParts(coordinator, group, app, idling)

    def _pairing(self) -> Pairing:
        warehouse, store = self.catalog.warehouse, self.store
        files = self.catalog.stores.of(warehouse)
        return Pairing(files, warehouse, store.pair, name=store.database.name, who=_who())

    def _rights_taken(self) -> Callable[[], object]:
        """What notes in the warehouse that rights were taken away: at once, or as soon as it can be
        written."""
        pairing = self.pairing
        if pairing is None or self.options.embedded:
            return lambda: None
        return lambda: self.runtime.attempt("noting rights", pairing.note_rights)

    def _start(self, parts: Parts, compactions: CompactionScheduler) -> None:
        """Start the parts in their order; `ending` stops them."""
        coordinator, ending = self.coordinator, self.ending
        ending.callback(coordinator.stop)
        coordinator.start()
        if parts.inserts is not None:
            ending.callback(parts.inserts.group.stop)
            parts.inserts.group.start()
        if parts.trail is not None:
            ending.callback(parts.trail.stop)
            parts.trail.start(coordinator.store.publications.recent(_RECENT))
        ending.callback(compactions.stop)
        # An embedded coordinator leaves the warehouse to others until its first write.
        is_embedded = self.options.embedded
        compactions.start([] if is_embedded else coordinator.store.publications.recent(_RECENT))

    def _group_commit(self, ownership: Ownership) -> GroupCommit:
        options = self.options
        hard_bytes = options.log_bytes_max
        thresholds = Thresholds(soft_bytes=hard_bytes // 2, hard_bytes=hard_bytes)
        return GroupCommit(
            self.catalog,
            self.coordinator,
            self._log(),
            GroupCommitSettings(thresholds, options.label_retention_ms),
            ownership,
            on_failure=self.shutdown.request,
        )

    def _log(self) -> RegisteredLog:
        """The log of small inserts: beside the coordinator's store, or in the warehouse."""
        who = _who()
        warehouse = self.catalog.warehouse
        files = self.catalog.stores.of(warehouse)
        id = self.place.binding.id

        def renamed(stored: str) -> str | None:
            table = self.catalog.find(table_name(stored))
            return None if table is None else f"{table.location}@{created_at_ms(table)}"

        log: Log
        if self.options.log == "warehouse":
            log = ObjectLog(files, warehouse, who, warehouse_id=id, renamed=renamed)
        elif isinstance(self.store.database, SqliteDatabase):
            # A file of its own, so that transactions and inserts do not wait for each other.
            sqlite = self.log_file = SqliteDatabase(self.place.folder.path / "log.sqlite")
            log = DatabaseLog(sqlite, warehouse_id=id, renamed=renamed)
        else:
            log = DatabaseLog(self.store.database, owned=False, warehouse_id=id, renamed=renamed)
        self.ending.callback(log.close)
        return RegisteredLog(log, LogRegistry(files, warehouse, log.id, log.name, who))

    def _compactions(self) -> CompactionScheduler:
        options, coordinator = self.options, self.coordinator
        is_auto = (options.compact or ("auto" if options.embedded else "off")) == "auto"
        return CompactionScheduler(
            self.runtime,
            self.catalog,
            Budget(
                options.compact_workers, options.compact_memory_bytes, options.compact_bytes_max
            ),
            Endpoint(self.place.inner_address, self.secret, _COMPACTION_WORKER),
            self.store.halts,
            CompactionRules(is_auto, options.compact_settle_ms),
            lambda: coordinator.state.pause is not None or coordinator.problem is not None,
        )

    def _inserts(self, group: GroupCommit, disk: DiskReserve) -> InsertRoutes:
        letters = Noted(
            self.runtime, "dead-letters", lambda: len(group.letters.list()), _LETTERS_MS, 0
        )
        self.ending.callback(letters.stop)
        bytes_max = self.options.request_bytes_max
        return InsertRoutes(group, self.coordinator, disk, letters, bytes_max)

    def _watched(self, monitor: HealthMonitor) -> DiskReserve:
        """Watch the disk, the store and the certificate; return the disk."""
        options, place = self.options, self.place
        elsewhere = place.store_address or options.log == "warehouse"
        disk = DiskReserve(
            self.runtime, place.folder.path, options.log_reserve_bytes, holds_log=not elsewhere
        )
        self.ending.callback(disk.stop)
        monitor.add("its disk", lambda: [disk.fact()])
        every_ms = _PROBE_MS if place.store_address else _PROBE_FILE_MS
        probe = Noted[object](self.runtime, "store", self.store.check, every_ms, None)
        self.ending.callback(probe.stop)
        monitor.add("its store", lambda: [store_fact(probe)])
        if place.certificate is not None:
            monitor.add("its certificate", place.certificate.facts)
        if place.keys is not None:
            monitor.add("its keys", place.keys.facts)
        if place.permissions is not None:
            monitor.add("its permissions", place.permissions.facts)
        return disk

    def _watch_log(self, group: GroupCommit, monitor: HealthMonitor) -> None:
        probe = Noted[object](self.runtime, "log", group.check_log, _PROBE_FILE_MS, None)
        self.ending.callback(probe.stop)
        monitor.add("its log", lambda: [log_fact(probe, group.owner.appending.trouble)])

    def _start_keys(self, monitor: HealthMonitor) -> None:
        keys = self.place.data_tokens
        if keys is not None:
            keys.start(self.runtime)
            self.ending.callback(keys.end)
            monitor.add("keys of the store", lambda: key_facts(keys))

    def _application(self, parts: Parts) -> ASGIApp:
        options, place, store = self.options, self.place, self.store
        catalog, coordinator, ownership = self.catalog, self.coordinator, self.ownership
        inserts = parts.inserts
        context = Context(
            catalog,
            catalog.publish,
            coordinator.turns,
            fence=None if ownership is None else ownership.fence,
            watch=coordinator.watching,
            order=None if inserts is None else inserts.group.holds,
            names=NameLocks(coordinator.runtime),
            slot=coordinator.slot,
            properties=store.database_properties,
            definition_store=store.definitions,
            mover=KeyMover(catalog, coordinator.transactions),
            data_tokens=place.data_tokens,
            is_open=coordinator.stored.is_open,
            guard=coordinator.guard,
        )
        coordinator.upkeep.change_versions = lambda name, change: waited(
            change_versions(context, name, change)
        )
        when_taken = self._rights_taken()
        tokens = Tokens(store.tokens, when_taken)
        grants = StoredGrants(store.grants, when_taken)
        store_options = StoreOptions(catalog, ownership, takes_new=options.embedded)
        routes: list[BaseRoute] = [*store_options.routes(), *token_routes(tokens)]
        routes += [*grant_routes(grants), *self._backup_routes()]
        issuer = place.data_tokens
        routes.append(rotation_route(None if issuer is None else issuer.seconds))
        if inserts is not None:
            stream = InsertStream(inserts.entry)
            path = "/v1/inserts/{database}/{table}/stream"
            routes += [*inserts.routes(), WebSocketRoute(path, stream)]
        app = application(
            parts,
            _authoriser(options, place, self.secret, tokens, grants),
            request_bytes_max=options.request_bytes_max,
            routes=[*routes, *catalog_routes(context)],
            root=place.root,
            limits=_client_limits(options, place.network),
        )
        if ownership is None or options.embedded:
            return app
        files = catalog.stores.of(catalog.warehouse)
        clock = coordinator.runtime.clock
        return FromStandbys(app, Introductions(files, catalog.warehouse, clock))

    def _backup_routes(self) -> list[BaseRoute]:
        """The route that makes a backup of SQLite files; nobody restores an embedded one's."""
        database, place = self.store.database, self.place
        if self.options.embedded:
            return []
        in_warehouse = self.options.log == "warehouse" or self.log_file is None
        files = [self.log_file, database]
        databases = [file for file in files if isinstance(file, SqliteDatabase)]

        def manifest() -> Manifest:
            log = "warehouse" if in_warehouse else "store"
            return manifest_of(place.binding.id, self.catalog.warehouse, log=log)

        return [backup_route(place.folder.path, databases, manifest)]

    def _trail(self) -> Trail | None:
        """The audit log, None if it is not requested. Raises SetupError for an invalid name, and
        for a coordinator that can't keep an audit log.
        """
        text: str | None = self.options.audit_table
        if text is None:
            return None
        if self.options.embedded:
            raise SetupError(
                "A coordinator with --embedded keeps no audit log: it has one user.",
                hint="Leave out --audit-table or --embedded.",
            )
        database, dot, table = text.partition(".")
        if not (database and dot and table) or set(text) & set("/\\$` ") or "." in table:
            raise SetupError(
                f"`{text}` is not a valid table name for the audit log.",
                hint="Give the names of its database and table, such as --audit-table ops.audit.",
            )
        coordinator = self.coordinator

        def properties_of(publication: Publication) -> tuple[tuple[str, str], ...]:
            request = coordinator.stored.request(publication.id)
            return () if request is None else request.properties

        name = TableName(table, database)
        target = AuditTable(self.catalog, coordinator.transactions, Settings(), name)
        every_ms = self.options.audit_every_ms
        trail = Trail(self.runtime, self.store.audit, target, properties_of, every_ms)
        coordinator.when_published(trail.published)
        return trail


def ownership_of(options: argparse.Namespace, place: Place, ending: ExitStack) -> Ownership | None:
    """This process's side of the lease on the warehouse; None if its catalog publishes by its own
    compare-and-swap. `ending` releases it.
    """
    if place.catalog.metastore == "rest":
        return None
    files = place.catalog.stores.of(place.catalog.warehouse)
    holder = Owner(place.folder.home(), place.address, getpass.getuser(), os.getpid())
    ownership = Ownership(
        files,
        place.catalog.warehouse,
        holder,
        options.ownership_lease_ms,
        binding=place.binding,
    )
    ending.callback(ownership.release)
    return ownership


def _who() -> str:
    return f"{getpass.getuser()} on {socket.gethostname()}"


def _limits(options: argparse.Namespace) -> Limits:
    return Limits(**{field.name: getattr(options, field.name) for field in fields(Limits)})


def _client_limits(options: argparse.Namespace, network: Network) -> ClientLimits:
    """The limits of each client: defaults on the network; on the loopback, only the requested
    limits.
    """
    default = ClientLimits()
    if not network.is_local or network.peers.all:
        default = ClientLimits(_REQUESTS_MAX, _RATE_MAX, _STREAMS_MAX)
    limits = {
        "in_flight_max": options.client_requests_max,
        "rate_max": options.client_rate_max,
        "streams_max": options.client_streams_max,
    }
    return replace(default, **{key: limit for key, limit in limits.items() if limit is not None})


def _spare_garbage_collection() -> None:
    """Collect garbage rarely: inserts make many objects but no reference cycles, and the objects of
    the start stay anyway. Collection was a sixth of an insert's cost.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION, 20, 20)


def _authoriser(
    options: argparse.Namespace, place: Place, secret: str, tokens: Tokens, grants: StoredGrants
) -> Authoriser:
    """The authoriser, which knows the owners of tokens. `secret` is the token of the coordinator's
    own processes. Raises SetupError for options that contradict each other.
    """
    # A hub's users have tokens of its own.
    hub = place.hub
    users: Authoriser = TokenFile(place.own_token.accepts) if hub is None else hub.authoriser
    issuer = _issuer(options, place)
    if issuer is not None:
        tls = tls_context(Addresses.of(issuer.url), options.oidc_ca or "")
        users = IssuedTokens(issuer, IssuerKeys(issuer.url, tls), users)
    return OwnProcesses(secret, GrantedRights(grants, NamedTokens(tokens, users)))


def _issuer(options: argparse.Namespace, place: Place) -> Issuer | None:
    url: str | None = options.oidc_issuer
    if url is None:
        if options.oidc_audience is not None or options.oidc_grants is not None:
            raise SetupError(
                "--oidc-audience and --oidc-grants need an issuer.",
                hint="Name it with --oidc-issuer.",
            )
        return None
    if not options.oidc_audience:
        raise SetupError(
            "--oidc-audience is required with --oidc-issuer.",
            hint="Without it, this coordinator would accept a token for any other service.",
        )
    if options.hub or options.embedded:
        word = "--hub" if options.hub else "--embedded"
        raise SetupError(
            f"A coordinator with {word} accepts no tokens of another issuer.",
            hint=f"Leave out {word} or --oidc-issuer.",
        )
    Addresses.of(url)  # raises
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise SetupError(
            f"The keys of {url} would come unencrypted, so others could replace them.",
            hint="Name the issuer by its https:// address.",
        )
    return Issuer(
        url,
        options.oidc_audience,
        options.oidc_user_claim,
        options.oidc_scope_claim,
        options.oidc_group_claim,
        place.permissions,
    )
