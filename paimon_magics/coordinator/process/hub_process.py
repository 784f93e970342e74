"""A coordinator as a service of a JupyterHub: it answers first, and then starts its parts.

A hub ends when a service that it starts ends before its first answer. So whatever is in the way
here (a wrong option, a store that is away, another owner) is answered to who asks, and tried again.
If the process dies at any step, the hub or its supervisor starts it again.
"""

from __future__ import annotations

import argparse
import logging
import os
import threading
from contextlib import ExitStack
from urllib.parse import urlsplit

from paimon_magics.coordinator.http.beginning import Beginning
from paimon_magics.coordinator.http.hub import HUB_CACHE_MS, hub_service
from paimon_magics.coordinator.ownership.catalog_options import ENVIRONMENT as CATALOG_OPTIONS
from paimon_magics.coordinator.ownership.redacted_log import keep_secrets_out_of_logs
from paimon_magics.coordinator.process.composition import OwnerParts
from paimon_magics.coordinator.process.network import LOOPBACK, Network, listen
from paimon_magics.coordinator.process.place import Entrance, entrance_of, place_of
from paimon_magics.coordinator.process.server import Shutdown
from paimon_magics.coordinator.process.succession import (
    StartedParts,
    Succession,
    announce,
    serve_on,
    server_of,
    start_parts,
)
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.errors import PaimonMagicsError, SetupError

_AGAIN_MS = 5_000.0
_LEAVING_SECONDS = 3.0  # for a start that is under way when the process ends
_BODY_BYTES_MAX = 1 << 20

_log = logging.getLogger(__name__)


class HubProcess:
    """A process with `--hub`. It listens; its parts are started in a thread, and again after a
    failure. `ending` ends all of it. Raises SetupError if it can't listen.
    """

    def __init__(self, options: argparse.Namespace, ending: ExitStack) -> None:
        keep_secrets_out_of_logs(options.log_format)
        self.entrance = entrance_of(options, ending)
        hub = self.entrance.hub
        assert hub is not None
        self._options = options
        self._catalog_options = os.environ.get(CATALOG_OPTIONS)
        self._app = Beginning(hub.root, hub.authoriser, tries_again=True)
        self._shutdown = Shutdown(options.drain_ms / 1000)
        self._begun: StartedParts | None = None
        self._parts = ExitStack()
        self._is_closing = False
        self._rests = threading.Event()  # no start is under way
        self._rests.set()
        certificate = self.entrance.certificate
        reload = None if certificate is None else certificate.look
        self._shutdown.take_signals(self._wind_up, reload)
        self._server = server_of(
            self._app, self.entrance, self._shutdown, options.request_bytes_max
        )
        ending.callback(self._close)
        self._loop = Runtime().loop(
            "start", lambda: _AGAIN_MS if self._begun is None else None, self._round
        )

    @property
    def parts(self) -> OwnerParts | None:
        """The parts that answer for the warehouse; None before they have started."""
        begun = self._begun
        if begun is None:
            return None
        return begun.owner if begun.succession is None else begun.succession.parts

    @property
    def shutdown(self) -> Shutdown:
        """The request to end it."""
        return self._shutdown

    @property
    def demoted(self) -> Succession | None:
        """Its succession, if it ended in order to stand by again."""
        succession = None if self._begun is None else self._begun.succession
        return None if succession is None or not succession.next_socket else succession

    @property
    def announcement(self) -> str:
        """The line that it prints when it answers: its address, and where tokens come from."""
        return f"paimon-coordinator {self.entrance.address} tokens=hub"

    def serve(self) -> None:
        """Answer requests until the shutdown."""
        serve_on(self._server, self.entrance)

    def _round(self) -> None:
        self._rests.clear()
        try:
            if self._begun is None and not self._is_closing:
                self._begin()
        except Exception as error:  # whatever it is, the hub and its users go on
            if self._is_closing:
                return
            known = error if isinstance(error, PaimonMagicsError) else SetupError(str(error))
            self._app.trouble = known
            _log.error("The coordinator has not started: %s", known.text())
        finally:
            self._rests.set()

    def _begin(self) -> None:
        if self._catalog_options is not None:  # the attempt before has taken them
            os.environ[CATALOG_OPTIONS] = self._catalog_options
        with ExitStack() as ending:
            place = place_of(self._options, ending, self.entrance)
            begun = start_parts(self._options, place, self._shutdown, ending)
            announce(place, ending)
            if self._is_closing:
                return
            if begun.succession is not None:
                begun.succession.start()
            self._parts, self._begun = ending.pop_all(), begun
        self._app.trouble = None
        self._app.become(begun.app)
        _log.warning("The coordinator has started.")

    def _wind_up(self) -> None:
        if self._begun is not None:
            self._begun.wind_up()

    def _close(self) -> None:
        self._is_closing = True
        self._loop.stop()
        self._rests.wait(_LEAVING_SECONDS)
        self._parts.close()


def answer_only(error: PaimonMagicsError) -> None:
    """Answer, at the port where a hub expects its service, why that can't start, until a signal.

    Returns at once if no hub waits for an answer, or nothing can listen there.
    """
    url = urlsplit(os.environ.get("JUPYTERHUB_SERVICE_URL", ""))
    if not url.port:
        return
    root, authoriser = os.environ.get("JUPYTERHUB_SERVICE_PREFIX", "/").rstrip("/"), None
    try:
        authoriser = hub_service(HUB_CACHE_MS, is_local=False).authoriser
        listening = listen(LOOPBACK, url.port)
    except PaimonMagicsError:
        if authoriser is not None:
            return
        listening = listen(LOOPBACK, url.port)
    with listening:
        shutdown = Shutdown()
        shutdown.take_signals(lambda: None)
        app = Beginning(root, authoriser, tries_again=False)
        app.trouble = error
        entrance = Entrance(None, Network(), listening, listening)
        serve_on(server_of(app, entrance, shutdown, _BODY_BYTES_MAX), entrance)
