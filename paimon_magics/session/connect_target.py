"""Where a session works: the catalog of its warehouse, and the coordinator that commits to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from paimon_magics.coordinator.client.addresses import ca_of
from paimon_magics.coordinator.client.choosing import (
    IN_PROCESS,
    chosen_coordinator,
    coordinator_at,
    default_coordinator,
    environment_options,
    is_address,
    local_committer,
    remote_coordinator,
)
from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At
from paimon_magics.errors import SetupError
from paimon_magics.redaction import conceal_options
from paimon_magics.session.place_words import PlaceWords
from paimon_magics.settings import DEFAULT_WAREHOUSE, Settings
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.probes import StoreReport, probe_store
from paimon_magics.tables.stores.s3_access import s3_access, with_region
from paimon_magics.tables.stores.store import OBJECT_SCHEMES, S3_SCHEMES

_ADDRESS = ("s3.endpoint", "s3.region", "s3.path-style-access")


@dataclass(frozen=True, slots=True)
class ConnectTarget:
    """An open catalog and the report on its `store`. `coordinator` says where commits are made, as
    the argument of `connect`; `remote` is the coordinator at an address, None if none was named."""

    catalog: Catalog
    store: StoreReport
    coordinator: str
    remote: CoordinatorClient | None


def found_target(words: PlaceWords, settings: Settings) -> ConnectTarget:
    """Return the place that `words` and the environment name. Starts nothing.

    Raises SetupError when they contradict each other, or when the warehouse can't be used.
    """
    warehouse, catalog = words.warehouse, words.catalog
    named = warehouse is not None or catalog is not None
    chosen = chosen_coordinator(words.coordinator, os.environ, warehouse_is_named=named)
    if not is_address(chosen):
        opened, store = _opened(_catalog_options(warehouse, catalog))
        if store.read_only and not store.is_remote:
            chosen = IN_PROCESS  # a coordinator could do nothing there
        return ConnectTarget(opened, store, chosen or default_coordinator(opened), None)
    at = coordinator_at(chosen, words.token, os.environ, settings.coordinator_ca)
    remote = remote_coordinator(at, settings)
    if catalog is not None and warehouse is None:
        catalog = {"warehouse": remote.warehouse(), **catalog}
    else:
        warehouse = warehouse or remote.warehouse()
    options = _with_keys(_catalog_options(warehouse, catalog), at, remote, settings)
    opened, store = _opened(options)
    if opened.directory is None:  # else it may not look for the owner in the store
        at.catalog = opened
    return ConnectTarget(opened, _compared(store, chosen, remote.store()), chosen, remote)


def _with_keys(
    options: dict[str, str], at: At, remote: RemoteCoordinator, settings: Settings
) -> dict[str, str]:
    """The options with the coordinator as the source of keys, if it hands out any and they have
    none. What they say about the store's address stays."""
    is_s3 = urlsplit(options.get("warehouse", "")).scheme in S3_SCHEMES
    is_own = options.get("metastore", "filesystem") == "filesystem"
    if not is_s3 or not is_own or s3_access(options).access_key is not None:
        return options
    key = remote.key()
    if key is None:
        return options
    ca = ca_of(settings.coordinator_ca, os.environ)
    address = {name: value for name, value in key.items() if name in _ADDRESS}
    return {**address, **options, **at.key_source(ca).options()}


def committer_of(place: ConnectTarget, settings: Settings) -> CoordinatorClient:
    """Return the client that commits there. A coordinator that must be started begins to start in
    the background."""
    return place.remote or local_committer(place.coordinator, place.catalog, settings)


def _compared(store: StoreReport, address: str, theirs: Mapping[str, str]) -> StoreReport:
    """Return the store's report, with a note on where the coordinator's access to it differs."""
    differs = [
        f"{name} {theirs[name]} (here {ours})"
        for name, ours in store.facts
        if theirs.get(name, ours) != ours
    ]
    if not differs:
        return store
    note = (
        f"The coordinator at {address} reaches the store with other options: {', '.join(differs)}."
    )
    return replace(store, notes=(note,))


def _opened(options: dict[str, str]) -> tuple[Catalog, StoreReport]:
    """Open the catalog and probe its store. An object store is probed first, since the probe's
    errors are the clearest."""
    is_of_ours = options.get("metastore", "filesystem") in ("filesystem", "jdbc")
    if is_of_ours and urlsplit(options.get("warehouse", "")).scheme in OBJECT_SCHEMES:
        conceal_options(options)
        report = probe_store(with_region(options))
        return Catalog.open(options), report
    catalog = Catalog.open(options)
    return catalog, probe_store(catalog.options)


def _catalog_options(
    warehouse: str | os.PathLike[str] | None, catalog: Mapping[str, str] | None
) -> dict[str, str]:
    """The catalog's options that are given, else those of the environment: a notebook then keeps no
    key of a store."""
    if catalog is None:
        options = environment_options(os.environ)
        if warehouse is not None:
            options["warehouse"] = os.fspath(warehouse)
    else:
        options = {str(key): str(value) for key, value in catalog.items()}
        named = options.get("warehouse") if warehouse is None else os.fspath(warehouse)
        if named is not None and options.get("warehouse", named) != named:
            raise SetupError(
                f"Two warehouses are given: `{named}`, and `{options['warehouse']}` among the "
                "catalog's options.",
                hint="Leave one of them out.",
            )
        if named is not None:
            options["warehouse"] = named
    if "warehouse" not in options and not catalog:
        options["warehouse"] = os.environ.get("PAIMON_WAREHOUSE") or DEFAULT_WAREHOUSE
    return options
