"""Finding the coordinator that owns a warehouse's commits: at an address, or by its lease.

Every coordinator of a warehouse on disks or in an object store keeps a lease with its address in
the warehouse, and its token in a state folder that only its user can read. So a client whose
coordinator is gone finds the next one, if that runs on the same machine for the same user.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import httpx

from paimon_magics.coordinator.ownership.lease import Lease
from paimon_magics.coordinator.ownership.ownership import current_lease, owned_elsewhere
from paimon_magics.coordinator.ownership.state_folder import token_of
from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.tables.catalog.catalog import Catalog

__all__ = ["At", "Endpoint", "Finder", "check_answers", "is_loopback", "living_lease"]

_PROBE_SECONDS_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a coordinator, and its token."""

    address: str
    token: str

    def __repr__(self) -> str:
        return f"Endpoint({self.address})"


class Finder(Protocol):
    """Finds the coordinator. For any thread."""

    def find(
        self, failed: Endpoint | None = None, address: str = "", *, start: bool = True
    ) -> Endpoint | None:
        """The coordinator's endpoint. `failed` is an endpoint that did not answer, or no longer
        owns the warehouse and may have named the owner's `address`. With `start`, a coordinator may
        be started.

        None when there is no endpoint other than `failed`. Raises SetupError when the owner is out
        of reach, or no coordinator can be started.
        """


class At:
    """Finds a coordinator at a known address; when that is gone, the warehouse's next owner. The
    token is the new owner's if this user can read it, else the same.

    `catalog` is the warehouse's, once that is known.
    """

    def __init__(self, address: str, token: str, catalog: Catalog | None = None) -> None:
        self._endpoint = Endpoint(address.rstrip("/"), token)
        self.catalog = catalog

    def find(
        self, failed: Endpoint | None = None, address: str = "", *, start: bool = True
    ) -> Endpoint | None:
        """See `Finder.find`."""
        if failed is None:
            return self._endpoint
        if not address and self.catalog is not None:
            lease = living_lease(self.catalog)
            address = "" if lease is None else lease.address
        if not is_loopback(address) or address == failed.address:
            return None
        return Endpoint(address, token_of_owner(self.catalog, address) or self._endpoint.token)


def living_lease(catalog: Catalog) -> Lease | None:
    """The lease of the coordinator that owns the warehouse's commits, if it may be alive; None if
    there is none, or it can't be read.

    Raises SetupError, which names host and user, for a coordinator on another machine that only
    that machine can reach.
    """
    if catalog.metastore == "rest":
        return None
    try:
        lease = current_lease(catalog.stores.of(catalog.warehouse), catalog.warehouse)
    except (PaimonMagicsError, OSError):
        return None
    if lease is None or lease.released or not is_loopback(lease.address):
        return None
    if lease.home.host == socket.gethostname():
        return lease
    if lease.expires_at_ms < time.time() * 1000:
        return None
    raise owned_elsewhere(lease)


def token_of_owner(catalog: Catalog | None, address: str) -> str | None:
    """The token of the coordinator at an address, if it owns the warehouse and is this user's."""
    lease = None if catalog is None else living_lease(catalog)
    return token_of(lease.home) if lease is not None and lease.address == address else None


def check_answers(address: str) -> None:
    """Ask a coordinator once whether it lives, without its token, to find a wrong address at once:
    a client's requests are repeated for a minute. Raises SetupError where none answers."""
    try:
        answer = httpx.get(
            f"{address.rstrip('/')}/health/live", timeout=_PROBE_SECONDS_MAX, trust_env=False
        )
        problem = "" if answer.is_success else f"it answers {answer.status_code}"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        problem = str(error) or type(error).__name__
    if problem:
        raise SetupError(
            f"No coordinator answers at {address}: {problem}.",
            hint="Check that it runs, and its address.",
        )


def is_loopback(address: str) -> bool:
    """Whether an address is on this machine. An address that was read from a warehouse gets a token
    only then."""
    try:
        return urlsplit(address).hostname in ("127.0.0.1", "localhost", "::1")
    except ValueError:
        return False
