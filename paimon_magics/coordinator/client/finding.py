"""Finding the coordinator that owns a warehouse's commits: at an address, or by its lease.

Every coordinator of a warehouse on disks or in an object store keeps a lease with its address in
the warehouse, and its token in a state folder that only its user can read. So a client whose
coordinator is gone finds the next one, if that runs on the same machine for the same user.
"""

from __future__ import annotations

import os
import socket
import ssl
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import httpx

from paimon_magics.coordinator.client.addresses import Addresses, ca_of, tls_context
from paimon_magics.coordinator.client.tokens import Token
from paimon_magics.coordinator.ownership.lease import Lease
from paimon_magics.coordinator.ownership.lease_watch import (
    current_lease,
    is_renewed,
    owned_elsewhere,
)
from paimon_magics.coordinator.ownership.state_folder import token_of
from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.warehouse_mark import read_warehouse_id

__all__ = ["At", "Endpoint", "Finder", "check_answers", "is_loopback", "lease_here", "living_lease"]

_PROBE_SECONDS_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a coordinator, and its token."""

    address: str
    token: str

    def __repr__(self) -> str:
        return f"Endpoint({self.address})"


class Finder(Protocol):
    """Finds the coordinator. For any thread. `tls` is whom its clients trust."""

    tls: ssl.SSLContext

    def find(
        self, failed: Endpoint | None = None, address: str = "", *, start: bool = True
    ) -> Endpoint | None:
        """The coordinator's endpoint. `failed` is an endpoint that did not answer, or no longer
        owns the warehouse and may have named the owner's `address`. With `start`, a coordinator may
        be started.

        None when there is no endpoint other than `failed`. Raises SetupError when the owner is out
        of reach, or no coordinator can be started.
        """

    def renewed(self, refused: Endpoint) -> Endpoint | None:
        """The same place with another token, where that of `refused` was not taken; None if there
        is no other. Raises SetupError when none can be read."""


class At:
    """Finds a coordinator at known addresses: the first that answers, where there are several. When
    that is gone, the next one, or the warehouse's next owner on this machine. The token is the new
    owner's if this user can read it, else the same.

    `catalog` is the warehouse's, once that is known. `tls` is whom the client trusts.
    """

    def __init__(
        self,
        addresses: Addresses | str,
        token: Token | str,
        catalog: Catalog | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._addresses = Addresses.of(addresses) if isinstance(addresses, str) else addresses
        self._token = Token(token) if isinstance(token, str) else token
        self.tls = tls_context(self._addresses) if tls is None else tls
        self.catalog = catalog

    def find(
        self, failed: Endpoint | None = None, address: str = "", *, start: bool = True
    ) -> Endpoint | None:
        """See `Finder.find`."""
        known = self._addresses
        if failed is None:
            return Endpoint(self._first(known.all) or known.all[0], self._token.text)
        if address in known and address != failed.address:
            return Endpoint(address, self._token.text)
        if not address and len(known.all) > 1:
            other = self._first(known.after(failed.address))
            if other is not None:
                return Endpoint(other, self._token.text)
        if not address and self.catalog is not None:
            lease = living_lease(self.catalog)
            address = "" if lease is None else lease.address
        if not is_loopback(address) or address == failed.address:
            return None
        return Endpoint(address, token_of_owner(self.catalog, address) or self._token.text)

    def renewed(self, refused: Endpoint) -> Endpoint | None:
        """See `Finder.renewed`."""
        text = self._token.renewed(refused.token)
        return None if text is None else Endpoint(refused.address, text)

    def _first(self, addresses: tuple[str, ...]) -> str | None:
        """The first address that answers; the only one is not asked."""
        if len(self._addresses.all) == 1:
            return addresses[0] if addresses else None
        return next((one for one in addresses if not _problem_at(one, self.tls)), None)


def living_lease(catalog: Catalog) -> Lease | None:
    """The lease of the coordinator that owns the warehouse's commits, if it may be alive; None if
    there is none, or it can't be read.

    Raises SetupError, which names host and user, for a coordinator on another machine that only
    that machine can reach. To find out whether that lives takes it some seconds.
    """
    lease = _lease(catalog)
    if lease is None or lease.home.host == socket.gethostname():
        return lease
    if not is_renewed(catalog.stores.of(catalog.warehouse), catalog.warehouse, lease):
        return None
    raise owned_elsewhere(lease)


def lease_here(catalog: Catalog) -> Lease | None:
    """Like `living_lease`, but None for a coordinator on another machine."""
    lease = _lease(catalog)
    return lease if lease is not None and lease.home.host == socket.gethostname() else None


def _lease(catalog: Catalog) -> Lease | None:
    """The lease of a coordinator that can be reached on its own machine only, if any."""
    if catalog.metastore == "rest":
        return None
    try:
        lease = current_lease(catalog.stores.of(catalog.warehouse), catalog.warehouse)
        if lease is None or lease.released or not is_loopback(lease.address):
            return None
        # A copy of a warehouse has a copy of its lease.
        id = read_warehouse_id(catalog.stores, catalog.warehouse) if lease.warehouse else None
    except (PaimonMagicsError, OSError):
        return None
    return lease if id in (None, lease.warehouse) else None


def token_of_owner(catalog: Catalog | None, address: str) -> str | None:
    """The token of the coordinator at an address, if it owns the warehouse and is this user's."""
    lease = None if catalog is None else lease_here(catalog)
    return token_of(lease.home) if lease is not None and lease.address == address else None


def check_answers(address: str, ca: str = "") -> None:
    """Ask a coordinator once whether it lives, without its token, to find a wrong address at once:
    a client's requests are repeated for a minute. Of several addresses one has to answer; `ca` is
    the file of certificates that are trusted. Raises SetupError where none does."""
    addresses = Addresses.of(address)
    tls = tls_context(addresses, ca_of(ca, os.environ))
    problems = []
    for one in addresses.all:
        problem = _problem_at(one, tls)
        if not problem:
            return
        problems.append(f"{one}: {problem}")
    raise SetupError(
        f"No coordinator answers at {'; '.join(problems)}.",
        hint="Check that it runs, and its address."
        + (" The setting coordinator_ca names whom to trust." if "CERT" in problems[0] else ""),
    )


def _problem_at(address: str, tls: ssl.SSLContext) -> str:
    """Why no coordinator answers at an address; "" if one does."""
    try:
        answer = httpx.get(
            f"{address}/health/live", timeout=_PROBE_SECONDS_MAX, trust_env=False, verify=tls
        )
        return "" if answer.is_success else f"it answers {answer.status_code}"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return str(error) or type(error).__name__


def is_loopback(address: str) -> bool:
    """Whether an address is on this machine. An address that was read from a warehouse gets a token
    only then."""
    try:
        return urlsplit(address).hostname in ("127.0.0.1", "localhost", "::1")
    except ValueError:
        return False
