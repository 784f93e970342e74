"""Finding the coordinator that owns a warehouse's commits: at an address, or by its lease.

Every coordinator of a warehouse on disks or in an object store keeps a lease in the warehouse that
tells its address, and a state folder with its token, which its user alone can read. So a client
whose coordinator is gone finds the next one, if that is on its machine and its user's.
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
    """Where a coordinator answers, and the token that it wants."""

    address: str
    token: str

    def __repr__(self) -> str:
        return f"Endpoint({self.address})"


class Finder(Protocol):
    """Knows, or finds out, where the coordinator is. For any thread."""

    def find(
        self, failed: Endpoint | None = None, address: str = "", *, start: bool = True
    ) -> Endpoint | None:
        """Where it is. `failed` did not answer, or does not own the warehouse any more, and may
        have named the `address` of who does. One may be started where `start` says so.

        None when there is no other endpoint than that. Raises SetupError when the owner is out of
        reach, or none can be started.
        """


class At:
    """A coordinator at a known address; when it is gone, the next owner, who takes the same token.

    `catalog` is the warehouse, once that is known.
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
    """The lease of the coordinator that owns the warehouse's commits, if one may be alive; None
    where nobody can tell.

    Raises SetupError, which names host and user, for one that only another machine can reach.
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
    """The token of the coordinator at that address, if it is the owner and this user's own."""
    lease = None if catalog is None else living_lease(catalog)
    return token_of(lease.home) if lease is not None and lease.address == address else None


def check_answers(address: str) -> None:
    """Ask a coordinator once whether it lives, without its token: a client repeats a request for a
    minute. Raises SetupError where nothing answers as one does."""
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
    """Whether an address is on the machine that it is used on: a token is sent nowhere else
    because of what stands in a warehouse."""
    try:
        return urlsplit(address).hostname in ("127.0.0.1", "localhost", "::1")
    except ValueError:
        return False
