"""Finding the coordinator that owns a warehouse, by the lease that it keeps there."""

from __future__ import annotations

import socket
import time
from urllib.parse import urlsplit

from paimon_magics.coordinator.lease import Lease
from paimon_magics.coordinator.ownership import current_lease, owned_elsewhere
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.tables.catalog import Catalog

__all__ = ["is_loopback", "owner_address"]


def owner_address(catalog: Catalog) -> str | None:
    """Where the coordinator answers, or answered last, that owns the warehouse's commits; None
    when none does, or nobody can tell.

    Raises SetupError, which names host and user, for one that only its own machine can reach.
    """
    lease = _lease(catalog)
    if lease is None or lease.released or not is_loopback(lease.address):
        return None
    if lease.home.host == socket.gethostname():
        return lease.address
    if lease.expires_at_ms < time.time() * 1000:
        return None
    raise owned_elsewhere(lease)


def is_loopback(address: str) -> bool:
    """Whether an address is on the machine that it is used on: a token is sent nowhere else
    because of what stands in a warehouse."""
    try:
        return urlsplit(address).hostname in ("127.0.0.1", "localhost", "::1")
    except ValueError:
        return False


def _lease(catalog: Catalog) -> Lease | None:
    if catalog.metastore == "rest":
        return None
    try:
        return current_lease(catalog.stores.of(catalog.warehouse), catalog.warehouse)
    except (PaimonMagicsError, OSError):
        return None
