"""Begins a coordinator's process: as the owner of a warehouse, or standing by until it is.

Ownership comes before everything that writes to the warehouse, and is released after that has
ended.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from starlette.types import ASGIApp

from paimon_magics.coordinator.http.forwarding import Forwarding
from paimon_magics.coordinator.ownership.redacted_log import keep_secrets_out_of_logs
from paimon_magics.coordinator.ownership.state_folder import Running
from paimon_magics.coordinator.process.composition import OwnerParts, ownership_of, start_owner
from paimon_magics.coordinator.process.connections import Bounds, process_connections_max
from paimon_magics.coordinator.process.place import Place, place_of
from paimon_magics.coordinator.process.server import Server, Shutdown
from paimon_magics.coordinator.process.succession import Succession
from paimon_magics.version import __version__

__all__ = ["CoordinatorProcess", "begin"]


@dataclass(frozen=True, slots=True)
class CoordinatorProcess:
    """A started process whose web server does not run yet. `parts` returns what answers for the
    warehouse, None while it stands by; `stands_by_again` whether it ends to begin anew."""

    parts: Callable[[], OwnerParts | None]
    server: Server
    place: Place
    stands_by_again: Callable[[], bool]

    @property
    def announcement(self) -> str:
        """What it says when it answers: its address, and where tokens come from."""
        return f"paimon-coordinator {self.place.address} {self.place.tokens}"

    def serve(self) -> None:
        """Answer requests until the shutdown."""
        outer = [self.place.listening]
        inner = [] if self.place.inner is self.place.listening else [self.place.inner]
        if self.place.network.certificate is None:
            self.server.run_on(outer + inner, [])
        else:
            self.server.run_on(inner, outer)


def begin(options: argparse.Namespace, ending: ExitStack) -> CoordinatorProcess:
    """Make the parts and start them; `ending` stops and closes them.

    Raises errors of ours when the process can't start.
    """
    keep_secrets_out_of_logs()
    shutdown = Shutdown(options.drain_ms / 1000)
    place = place_of(options, ending)
    reload = None if place.certificate is None else place.certificate.look
    parts: Callable[[], OwnerParts | None]
    stands_by_again = lambda: False  # noqa: E731
    if options.standby:
        succession = Succession(options, place, shutdown)
        ending.callback(succession.close)
        shutdown.take_signals(succession.wind_up, reload)
        succession.start()
        app: ASGIApp = succession.app
        parts = lambda: succession.parts  # noqa: E731
        stands_by_again = lambda: not shutdown.was_signalled and succession.has_lost  # noqa: E731
    else:
        ownership = ownership_of(options, place, ending)
        owner = start_owner(options, place, ownership, shutdown, ending)
        # Clients that wait until their rows are visible are released when the process ends.
        shutdown.take_signals(owner.wind_up, reload)
        app, parts = owner.app, lambda: owner
    server = _server(app, place, shutdown, options.request_bytes_max)
    ending.callback(place.folder.retract)
    place.folder.announce(Running(place.inner_address, os.getpid(), __version__))
    begun = parts()
    if begun is not None and begun.idling is not None:
        begun.idling.start()
    return CoordinatorProcess(parts, server, place, stands_by_again)


def _server(app: ASGIApp, place: Place, shutdown: Shutdown, request_bytes_max: int) -> Server:
    network = place.network
    if not network.is_local or network.peers.all:
        app = Forwarding(app, network.peers, is_insecure=network.is_insecure)
    bounds = Bounds(free=network.peers, process_max=process_connections_max())
    return Server(app, shutdown, request_bytes_max, bounds, place.certificate)
