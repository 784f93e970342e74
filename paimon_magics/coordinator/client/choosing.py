"""Choose a session's committer: the given one, the environment's, or the default."""

from __future__ import annotations

from collections.abc import Mapping

from paimon_magics.coordinator.client.addresses import (
    Addresses,
    TokenSource,
    ca_of,
    tls_context,
    token_of_user,
)
from paimon_magics.coordinator.client.addresses import is_address as is_address
from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.coordinator.client.interface import CoordinatorClient
from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.client.starting import At, Embedded, Finder, can_start, state_at
from paimon_magics.coordinator.ownership.catalog_options import (
    environment_options as environment_options,
)
from paimon_magics.coordinator.ownership.state_folder import StateFolder
from paimon_magics.errors import SetupError, nearest
from paimon_magics.settings import Settings
from paimon_magics.tables.catalog.catalog import Catalog

EMBEDDED = "embedded"
IN_PROCESS = "in-process"
_WORDS = (EMBEDDED, IN_PROCESS)


def chosen_coordinator(
    option: str | None, environment: Mapping[str, str], *, warehouse_is_named: bool
) -> str:
    """An address, EMBEDDED, IN_PROCESS, or "" for the default.

    Without the session's `option`, PAIMON_COORDINATOR counts. An address in it counts only if the
    session names no warehouse, since the coordinator has its own. Raises SetupError for any other
    text.
    """
    chosen = option or environment.get("PAIMON_COORDINATOR") or ""
    if not option and is_address(chosen) and warehouse_is_named:
        return ""
    if is_address(chosen):
        Addresses.of(chosen)  # raises
    elif chosen and chosen not in _WORDS:
        raise SetupError(
            f"The coordinator `{chosen}` is neither an address nor one of {', '.join(_WORDS)}.",
            hint="Give an address such as http://127.0.0.1:8123, or one of these words. "
            + nearest(chosen, _WORDS, what="words"),
        )
    return chosen


def coordinator_at(
    address: str, token: TokenSource | None, environment: Mapping[str, str], ca: str = ""
) -> At:
    """The coordinator at an address, or at the first of several that answers. `ca` is the file of
    certificates that are trusted. Raises SetupError without a token."""
    addresses = Addresses.of(address)
    tls = tls_context(addresses, ca_of(ca, environment))
    return At(addresses, token_of_user(token, environment, address), tls=tls)


def remote_coordinator(
    finder: Finder, settings: Settings, *, is_own: bool = False
) -> RemoteCoordinator:
    """The client of the coordinator that `finder` finds; `is_own` as in `RemoteCoordinator`."""
    return RemoteCoordinator(
        finder,
        coordinator_wait_ms=settings.coordinator_wait_ms,
        exclusive_wait_ms=settings.exclusive_wait_ms,
        read_lease_ms_max=settings.read_lease_ms_max,
        is_own=is_own,
    )


def running_coordinator(
    options: Mapping[str, str], environment: Mapping[str, str], settings: Settings
) -> RemoteCoordinator | None:
    """The client of the user's own coordinator for a warehouse; None if none runs. Starts no
    coordinator, and does not change the catalog options of a running one."""
    path, running = state_at(options, environment)
    if running is None:
        return None
    at = At(running.address, StateFolder(path).token())
    return remote_coordinator(at, settings, is_own=True)


def default_coordinator(catalog: Catalog) -> str:
    """The default committer of a catalog: EMBEDDED where that is possible."""
    # A REST catalog compares and publishes by itself: there is nothing to own.
    return EMBEDDED if can_start() and catalog.metastore != "rest" else IN_PROCESS


def local_committer(chosen: str, catalog: Catalog, settings: Settings) -> CoordinatorClient:
    """The committer for a choice other than an address. A coordinator that has to be started begins
    at once, in the background; if that fails, the first commit raises the error."""
    if (chosen or default_coordinator(catalog)) == IN_PROCESS:
        return InProcessCommitter(catalog, settings)
    finder = Embedded(catalog, idle_ms=settings.coordinator_idle_ms)
    remote = remote_coordinator(finder, settings, is_own=True)
    remote.look_ahead()
    return remote
