"""The catalog options of a user's own coordinator: the options of the session that connected last.

A coordinator outlives the notebook that started it, and the keys, token, region or address that the
notebook had. So each session that finds a coordinator sends its own catalog options, over the
loopback and with the coordinator's token. The coordinator tests the options before it uses them:
the warehouse must be readable and writable with them. If they name another endpoint, the
coordinator's own lease must exist there, which no other store has.

A coordinator that runs as a service keeps the options that its administrator started it with.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paimon_magics.coordinator.http.answers import JSONResponse, json_body
from paimon_magics.coordinator.http.limits import run_in_threadpool
from paimon_magics.coordinator.ownership.lease import current_lease
from paimon_magics.coordinator.ownership.ownership import Ownership
from paimon_magics.coordinator.protocol.documents import OPTIONS_PATH
from paimon_magics.errors import InvalidValueError, SetupError
from paimon_magics.redaction import conceal_options
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.probes import endpoint_of, probe_store
from paimon_magics.tables.stores.store import open_store

_SAME = ("metastore", "uri", "warehouse")

_log = logging.getLogger(__name__)


class StoreOptions:
    """The options of one coordinator's catalog. With `takes_new` the sessions that connect may
    renew them. Safe for several threads."""

    def __init__(self, catalog: Catalog, ownership: Ownership | None, *, takes_new: bool) -> None:
        self._catalog = catalog
        self._ownership = ownership
        self._takes_new = takes_new
        self._turn = threading.Lock()

    def renew(self, options: Mapping[str, str]) -> bool:
        """Use these options from now on. Return whether they differ from the present options.
        Raises SetupError for options that don't work or lead to another store, and if they may not
        be renewed. Then the present options stay.
        """
        with self._turn:
            present = self._catalog.options
            if dict(options) == present:
                return False
            if not self._takes_new:
                raise SetupError(
                    "This coordinator keeps the catalog options that it was started with.",
                    hint="Ask its administrator to change them.",
                )
            if any(options.get(key) != present.get(key) for key in _SAME):
                raise SetupError("The options belong to another warehouse.")
            report = probe_store(options)
            if report.read_only:
                raise SetupError(f"With these options the warehouse is read-only: {report}.")
            if endpoint_of(options) != endpoint_of(present):
                self._check_is_there(options)
            self._catalog.renew(options)
        _log.warning("The catalog's options were renewed by a new connection.")
        return True

    def routes(self) -> list[Route]:
        """The route that takes new options."""

        async def renew(request: Request) -> Response:
            body = await json_body(request)
            options = body.get("options")
            if not isinstance(options, dict):
                raise InvalidValueError("`options` must be a JSON object of catalog options.")
            texts = {str(key): str(value) for key, value in options.items()}
            conceal_options(texts)
            renewed = await run_in_threadpool(self.renew, texts)
            return JSONResponse({"status": "renewed" if renewed else "same"})

        return [Route(OPTIONS_PATH, renew, methods=["POST"])]

    def _check_is_there(self, options: Mapping[str, str]) -> None:
        """Raise SetupError unless the store that the options name is this coordinator's."""
        warehouse = self._catalog.warehouse
        lease = current_lease(open_store(warehouse, options), warehouse)
        if self._ownership is None or lease is None or not self._ownership.has_written(lease):
            raise SetupError(
                f"The endpoint {endpoint_of(options)} leads to a different store from this "
                "coordinator's."
            )
