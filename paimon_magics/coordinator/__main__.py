"""`python -m paimon_magics.coordinator`: run a coordinator for one warehouse.

It prints one line when it answers: its address, and the file that holds its token. SIGTERM and
SIGINT end it after the commits under way.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from paimon_magics.coordinator.app import application
from paimon_magics.coordinator.authorisation import TokenFile
from paimon_magics.coordinator.core import Limits
from paimon_magics.coordinator.hub import HUB_CACHE_MS, hub_service
from paimon_magics.coordinator.rest_catalog import rest_catalog_routes
from paimon_magics.coordinator.service import Coordinator
from paimon_magics.coordinator.store import open_store, store_address
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.settings import Settings
from paimon_magics.tables.catalog import Catalog

__all__ = ["main"]

_REQUEST_BYTES_MAX = 16 * 1024 * 1024


def main(arguments: list[str] | None = None) -> int:
    """Run until a signal; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _serve(options)
    except PaimonMagicsError as error:
        print(error.text(), file=sys.stderr)
        return 2


def _serve(options: argparse.Namespace) -> int:
    hub = hub_service(options.hub_cache_ms) if options.hub else None
    state = Path(options.state)
    store = open_store(state, store_address(options.store))
    catalog = Catalog.open({"warehouse": options.warehouse})
    limits = Limits(
        lease_ms=options.lease_ms,
        cleanup_grace_ms=options.cleanup_grace_ms,
        receipt_retention_ms=options.receipt_retention_ms,
        watch_every_ms=options.watch_every_ms,
    )
    coordinator = Coordinator(catalog, store, Settings(), limits)
    coordinator.start()
    token_file = state / "token"
    app = application(
        coordinator,
        TokenFile(_token(token_file)) if hub is None else hub.authoriser,
        warehouse=catalog.warehouse,
        request_bytes_max=options.request_bytes_max,
        routes=rest_catalog_routes(
            catalog, catalog.publish, turn=coordinator.turns, watch=coordinator.watching
        ),
        root="" if hub is None else hub.root,
    )
    listening = socket.create_server(("127.0.0.1", options.port if hub is None else hub.port))
    address = f"http://127.0.0.1:{listening.getsockname()[1]}{'' if hub is None else hub.root}"
    tokens = f"token-file={token_file}" if hub is None else "tokens=hub"
    print(f"paimon-coordinator {address} {tokens}", flush=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
    server = _Server(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    try:
        server.run(sockets=[listening])
    finally:
        coordinator.stop()
    return 0


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn would end the process by them, before we have closed."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _token(path: Path) -> str:
    """The token in the file, made when there is none; readable by its owner alone."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    token = secrets.token_urlsafe(32)
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
    return token


def _parser() -> argparse.ArgumentParser:
    defaults = Limits()
    parser = argparse.ArgumentParser(
        prog="paimon-coordinator", description="Owns the commits of one Paimon warehouse."
    )
    parser.add_argument("--warehouse", required=True, help="the warehouse's folder")
    parser.add_argument(
        "--state", required=True, help="a folder on a local disk for its database and token"
    )
    parser.add_argument(
        "--store", help="postgresql://… to keep its database there (default: in the state folder)"
    )
    parser.add_argument("--port", type=int, default=0, help="a port on 127.0.0.1 (default: any)")
    parser.add_argument("--lease-ms", type=int, default=defaults.lease_ms)
    parser.add_argument("--cleanup-grace-ms", type=int, default=defaults.cleanup_grace_ms)
    parser.add_argument("--receipt-retention-ms", type=int, default=defaults.receipt_retention_ms)
    parser.add_argument("--watch-every-ms", type=int, default=defaults.watch_every_ms)
    parser.add_argument("--hub", action="store_true", help="run as a service of a JupyterHub")
    parser.add_argument("--hub-cache-ms", type=int, default=HUB_CACHE_MS)
    parser.add_argument("--request-bytes-max", type=int, default=_REQUEST_BYTES_MAX)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
