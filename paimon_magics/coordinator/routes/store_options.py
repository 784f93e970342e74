"""How a user's own coordinator reaches its store: by the options of whoever connected last.

A coordinator that a notebook started outlives it, and with it the keys, the token, the region or
the address that the notebook had. So each session that finds one tells it its own catalog options,
over the loopback and with the coordinator's token. They are tried before they are taken: the
warehouse must be readable and writable with them, and where they name another endpoint, the
coordinator's own lease must be found there, which no other store has.

A service keeps what it was started with: its options are its administrator's, and are not told.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from paimon_magics.coordinator.http.bodies import json_body
from paimon_magics.coordinator.ownership.ownership import Ownership, current_lease
from paimon_magics.coordinator.protocol.paths import OPTIONS_PATH
from paimon_magics.errors import InvalidValueError, SetupError
from paimon_magics.redaction import conceal_options
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.probes import probe_store
from paimon_magics.tables.stores.s3_access import s3_access
from paimon_magics.tables.stores.store import open_store

__all__ = ["StoreOptions"]

_SAME = ("metastore", "uri", "warehouse")

_log = logging.getLogger(__name__)


class StoreOptions:
    """The options of one coordinator's catalog. Safe for several threads. With `takes_new` they are
    renewed by who connects."""

    def __init__(self, catalog: Catalog, ownership: Ownership | None, *, takes_new: bool) -> None:
        self._catalog = catalog
        self._ownership = ownership
        self._takes_new = takes_new
        self._turn = threading.Lock()

    def renew(self, options: Mapping[str, str]) -> bool:
        """Reach the store as these options say, from now on; whether they differ from the present
        ones. Raises SetupError for options that don't work, or lead elsewhere, and where nobody
        may renew them: then the present ones stay."""
        with self._turn:
            present = self._catalog.options
            if dict(options) == present:
                return False
            if not self._takes_new:
                raise SetupError(
                    "This coordinator keeps the catalog options that it was started with.",
                    hint="They are its administrator's.",
                )
            if any(options.get(key) != present.get(key) for key in _SAME):
                raise SetupError("These options are those of another warehouse.")
            report = probe_store(options)
            if report.read_only:
                raise SetupError(f"With these options the warehouse is read only: {report}.")
            if s3_access(options).endpoint != s3_access(present).endpoint:
                self._check_is_there(options)
            self._catalog.renew(options)
        _log.warning("The catalog's options were renewed by a new connection.")
        return True

    def routes(self) -> list[Route]:
        """The endpoint that takes them."""

        async def renew(request: Request) -> Response:
            body = await json_body(request)
            options = body.get("options")
            if not isinstance(options, dict):
                raise InvalidValueError("`options` is no JSON object of catalog options.")
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
                f"The endpoint {s3_access(options).endpoint} leads to another store than this "
                "coordinator's."
            )
