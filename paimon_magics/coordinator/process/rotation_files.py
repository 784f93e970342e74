"""Files that an administrator exchanges while a coordinator runs: the store's keys, the
certificates of peers. A file that can't be used leaves the last content in force, and shows in
health and in the log.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paimon_magics.coordinator.http.answers import JSONResponse, json_body
from paimon_magics.coordinator.http.audited import report
from paimon_magics.coordinator.ownership.catalog_options import catalog_options
from paimon_magics.coordinator.protocol.json_text import member
from paimon_magics.coordinator.service.health import Fact
from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.redaction import conceal_options
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.probes import endpoint_of, probe_store

ROTATED_PATH = "/v1/coordinator/rotated"

_SAME = ("metastore", "uri")

_log = logging.getLogger(__name__)


class KeysFile:
    """The JSON file with the options of a catalog. For one thread."""

    def __init__(self, file: str, catalog: Catalog) -> None:
        self._file = Path(file)
        self._catalog = catalog
        self._options = _options_in(file)
        self._state = _state_of(self._file)
        self._count = 0
        self._trouble = ""

    def look(self) -> None:
        """Use the options in the file, if it has changed."""
        state = _state_of(self._file)
        if state == self._state:
            return
        try:
            options = _options_in(str(self._file))
            changed = {**self._catalog.options, **options}
            for name in self._options.keys() - options.keys():
                changed.pop(name, None)
            if changed != self._catalog.options:
                check_keys(changed, self._catalog.options)
                self._catalog.renew(changed)
                self._count += 1
                _log.warning("The catalog options in %s were read again.", self._file)
            self._options, self._trouble = options, ""
        except (PaimonMagicsError, OSError) as error:
            self._trouble = f"The catalog options in {self._file} can't be used: {error}"
            _log.error("%s The last ones stay in force.", self._trouble)
        self._state = state

    def facts(self) -> Iterator[Fact]:
        """The fact for the coordinator's health."""
        yield Fact("keys", self._count, self._trouble)


class TrustFile:
    """A PEM file of certificates that a context trusts. What it had before stays trusted until the
    process ends."""

    def __init__(self, file: str, tls: ssl.SSLContext) -> None:
        self._file = Path(file)
        self._tls = tls
        self._state = _state_of(self._file)

    def look(self) -> None:
        """Trust what is in the file, if it has changed."""
        state = _state_of(self._file)
        if state == self._state:
            return
        self._state = state
        try:
            self._tls.load_verify_locations(self._file)
            _log.warning("The certificates in %s were read again.", self._file)
        except OSError as error:  # ssl.SSLError is one
            _log.error("The certificates in %s can't be used: %s", self._file, error)


def check_keys(options: dict[str, str], present: dict[str, str]) -> None:
    """Raise SetupError for options with which the warehouse can't be read and written, or that are
    of another one."""
    conceal_options(options)
    for key in (*_SAME, "warehouse"):
        if options.get(key) != present.get(key):
            raise SetupError(
                f"The options have another `{key}`, so they are not those of this warehouse.",
                hint="Change the keys alone. To move a warehouse, use `paimon-coordinator move`.",
            )
    if endpoint_of(options) != endpoint_of(present):
        raise SetupError(
            "The options lead to another store.",
            hint="Restart the coordinator for another endpoint; keys alone are exchanged without.",
        )
    read_only = probe_store(options).read_only
    if read_only:
        raise SetupError(f"With these options the warehouse is read-only: {read_only}.")


def rotation_route(data_token_seconds: int | None) -> Route:
    """The route that keeps an audit entry of what an administrator has exchanged in files. Its
    answer says how long keys are good that were made of the store's; None where none are made."""

    async def note(request: Request) -> Response:
        report(request.scope, detail=str(member(await json_body(request), "what", str))[:200])
        return JSONResponse({"status": "noted", "data_token_seconds": data_token_seconds})

    return Route(ROTATED_PATH, note, methods=["POST"])


def _options_in(file: str) -> dict[str, str]:
    """The options of a file, but for the warehouse, which does not change."""
    # A stand-in, since the warehouse may come from the command line.
    options = catalog_options(warehouse="-", file=file, environment={}, assignments=())
    del options["warehouse"]
    return options


def _state_of(file: Path) -> object:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
