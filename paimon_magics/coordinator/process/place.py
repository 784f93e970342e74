"""Where a coordinator's process is: its state folder, sockets, and the catalog that it serves."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from paimon_magics.coordinator.data_tokens.issuing import DataTokens
from paimon_magics.coordinator.data_tokens.sts import StsIssuer, StsSettings
from paimon_magics.coordinator.http.hub import HubService, hub_service
from paimon_magics.coordinator.http.oidc import GrantsFile
from paimon_magics.coordinator.ownership.binding import WarehouseBinding
from paimon_magics.coordinator.ownership.catalog_options import ENVIRONMENT as CATALOG_OPTIONS
from paimon_magics.coordinator.ownership.catalog_options import catalog_options
from paimon_magics.coordinator.ownership.folder_token import FolderToken
from paimon_magics.coordinator.ownership.state_folder import StateFolder
from paimon_magics.coordinator.process.network import (
    LOOPBACK,
    Certificate,
    Network,
    listen,
    network_of,
)
from paimon_magics.coordinator.process.rotation_files import KeysFile, TrustFile
from paimon_magics.coordinator.process.server import handed_over
from paimon_magics.coordinator.store.state_store import store_address
from paimon_magics.errors import SetupError
from paimon_magics.redaction import conceal_options
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.allowed_paths import PathRules
from paimon_magics.tables.stores.s3_access import ENVIRONMENT_KEYS, with_credentials
from paimon_magics.tables.stores.store import UnreachableError

_KEY_SECONDS = 900
_KEY_SECONDS_MIN = 10
_KEY_SECONDS_MAX = 43_200  # the longest that AWS makes

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entrance:
    """Where a process listens.

    `inner` is a socket on the loopback for the coordinator's own processes, the same as `listening`
    where they can use that. `certificate` is that of `listening`, None without TLS.
    """

    hub: HubService | None
    network: Network
    listening: socket.socket
    inner: socket.socket
    certificate: Certificate | None = None

    @property
    def address(self) -> str:
        """The URL at which others reach it."""
        return self.network.address(self.listening.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Place:
    """The process's state folder and entrance, the catalog that it serves, the binding of the
    folder to its warehouse, and the address of its store, None for a file in the folder.

    `permissions` are those of an issuer's tokens, None where no file has them. `own_token` is that
    of the state folder; `keys` is the file of catalog options, None without one.
    `data_tokens` hands out keys of the store, None if it hands out none.
    """

    folder: StateFolder
    store_address: str | None
    catalog: Catalog
    entrance: Entrance
    binding: WarehouseBinding
    permissions: GrantsFile | None = None
    own_token: FolderToken = field(default_factory=lambda: FolderToken(Path()))
    keys: KeysFile | None = None
    trusted: list[TrustFile] = field(default_factory=list)
    data_tokens: DataTokens | None = None

    def reread_keys(self) -> None:
        """Read the file of catalog options, and that of peers' certificates, if they have
        changed."""
        for file in (self.keys, *self.trusted):
            if file is not None:
                file.look()

    def trust_again(self, tls: ssl.SSLContext, file: str | None) -> None:
        """Have a context trust what comes into a file of certificates later, too."""
        if file:
            self.trusted.append(TrustFile(file, tls))

    @property
    def hub(self) -> HubService | None:
        """The hub whose service it is; None without --hub."""
        return self.entrance.hub

    @property
    def network(self) -> Network:
        """How others reach it."""
        return self.entrance.network

    @property
    def certificate(self) -> Certificate | None:
        """The certificate of its entrance, None without TLS."""
        return self.entrance.certificate

    def reread(self) -> Callable[[], bool] | None:
        """What reads the certificate and the file of permissions again, and returns whether
        something new is in use; None where there is neither."""
        files = [file for file in (self.certificate, self.permissions) if file is not None]
        return (lambda: any([file.look() for file in files])) if files else None

    @property
    def root(self) -> str:
        """The path below which all routes are; "" for none."""
        return self.network.root

    @property
    def address(self) -> str:
        """The URL at which others reach it."""
        return self.entrance.address

    @property
    def inner_address(self) -> str:
        """The URL at which this machine's processes reach it without TLS."""
        return f"http://{LOOPBACK}:{self.entrance.inner.getsockname()[1]}{self.root}"


def entrance_of(options: argparse.Namespace, ending: ExitStack) -> Entrance:
    """Listen where the command line, or the hub, says; `ending` ends that. Raises SetupError."""
    network, hub = network_of(options), None
    if options.hub:
        hub = hub_service(options.hub_cache_ms, network.port, is_local=network.is_local)
        network = replace(network, root=hub.root, port=hub.port)
    inherited = handed_over().listening
    listening = inner = ending.enter_context(inherited or listen(network.host, network.port))
    if network.needs_inner_port:
        inner = ending.enter_context(listen(LOOPBACK, 0))
    certificate = None
    if network.certificate is not None:
        certificate = Certificate(network.certificate, network.key)
    return Entrance(hub, network, listening, inner, certificate)


def place_of(
    options: argparse.Namespace, ending: ExitStack, entrance: Entrance | None = None
) -> Place:
    """Set up the place that the command line names, behind an entrance or with its own; `ending`
    leaves it. Raises SetupError."""
    _check(options)
    if entrance is None:
        network_of(options)  # raises before anything is held
    folder = StateFolder(Path(options.state))
    folder.hold()
    ending.callback(folder.let_go)
    catalog = _catalog(options, folder.path)
    data_tokens = data_tokens_of(options, catalog)
    binding = WarehouseBinding(folder, catalog, names_folder=options.embedded)
    # An embedded coordinator writes nothing to a new warehouse before a session does, and a standby
    # may begin while the store is unreachable.
    with suppress(UnreachableError) if options.standby else nullcontext():
        binding.begin(writes=not options.embedded and not options.standby)
    entrance = entrance or entrance_of(options, ending)
    address = store_address(options.store)
    permissions = None if options.oidc_grants is None else GrantsFile(options.oidc_grants)
    own_token, keys = FolderToken(folder.path), None
    if entrance.hub is None:
        folder.token()  # which makes it
    if options.catalog is not None and not options.embedded:
        keys = KeysFile(options.catalog, catalog)
    return Place(
        *(folder, address, catalog, entrance, binding, permissions, own_token, keys),
        data_tokens=data_tokens,
    )


def _check(options: argparse.Namespace) -> None:
    if options.embedded and options.log == "warehouse":
        raise SetupError(
            "A coordinator with --embedded can't keep its log in the warehouse.",
            hint="Leave out --embedded or --log warehouse.",
        )
    if not options.standby:
        if options.peer or options.peer_ca:
            raise SetupError(
                "--peer and --peer-ca are for a coordinator that stands by.",
                hint="Give --standby, too.",
            )
        return
    if options.embedded:
        raise SetupError(
            "A coordinator with --embedded can't stand by.",
            hint="Leave out --standby or --embedded.",
        )
    if store_address(options.store) is None and options.log != "warehouse":
        raise SetupError(
            "With --standby the next owner must find acknowledged inserts, but this coordinator "
            "would keep them on its own disk.",
            hint="Give --store postgresql://…, or --log warehouse.",
        )


def _catalog(options: argparse.Namespace, state: Path) -> Catalog:
    """Open the catalog. An embedded coordinator gets its credentials from the session that starts
    it, and removes them from its environment: they must not outlast those of a later session."""
    chosen = catalog_options(
        warehouse=options.warehouse,
        file=options.catalog,
        environment=os.environ,
        assignments=options.catalog_option,
    )
    os.environ.pop(CATALOG_OPTIONS, None)
    if options.embedded:
        chosen = with_credentials(chosen)
        for name in ENVIRONMENT_KEYS:
            os.environ.pop(name, None)
    conceal_options(chosen)
    roots = tuple(options.external_root)
    of_tables = options.embedded and not roots
    rules = PathRules(None if of_tables else roots, (str(state.resolve()),))
    return Catalog.open(chosen, rules).without_names_in_hints()


def data_tokens_of(options: argparse.Namespace, catalog: Catalog) -> DataTokens | None:
    """What issues the keys; None where they are not asked for. Raises SetupError for settings that
    are half or contradict each other, and if a trial is refused. Without an answer a warning is
    logged: commits don't need STS."""
    if options.data_tokens is None:
        for option in ("sts_role", "sts_endpoint", "data_token_seconds"):
            if getattr(options, option) is not None:
                raise SetupError(
                    f"--{option.replace('_', '-')} is for a coordinator that hands out keys.",
                    hint="Give --data-tokens sts, too.",
                )
        return None
    if options.embedded:
        raise SetupError(
            "A coordinator with --embedded hands out no keys: its user has those that it has.",
            hint="Leave out --data-tokens or --embedded.",
        )
    if catalog.metastore == "rest":
        raise SetupError(
            "--data-tokens is for a warehouse that the coordinator owns, not for a REST catalog.",
            hint="Leave it out: the catalog's own server hands out keys.",
        )
    seconds = _KEY_SECONDS if options.data_token_seconds is None else options.data_token_seconds
    if not _KEY_SECONDS_MIN <= seconds <= _KEY_SECONDS_MAX:
        raise SetupError(
            f"--data-token-seconds {seconds} is not between {_KEY_SECONDS_MIN} and "
            f"{_KEY_SECONDS_MAX}.",
            hint=f"Leave it out for {_KEY_SECONDS}.",
        )
    issuer = StsIssuer(
        catalog.warehouse,
        lambda: catalog.options,
        StsSettings(options.sts_role, options.sts_endpoint),
    )
    closed: list[tuple[str, str]] = []
    if options.audit_table is not None:
        database, _, table = options.audit_table.partition(".")
        closed.append((database, table))
    tokens = DataTokens(catalog, issuer, seconds, closed)
    try:
        tokens.check()
    except UnreachableError as error:
        _log.warning("No keys of the store can be issued now: %s", error)
    return tokens
