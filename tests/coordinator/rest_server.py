"""A REST catalog on a real server for tests: uvicorn in a thread, on a free port of 127.0.0.1."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from paimon_magics.coordinator.http.authorisation import Authoriser, TokenFile
from paimon_magics.coordinator.http.guard import Guard, guarded
from paimon_magics.coordinator.routes.catalog import catalog_routes
from paimon_magics.coordinator.runtime.threads import Runtime
from paimon_magics.coordinator.service.coordinator import Coordinator
from paimon_magics.coordinator.service.key_moves import KeyMover
from paimon_magics.coordinator.service.served import Context, NameLocks
from paimon_magics.coordinator.store.state_store import StateStore
from paimon_magics.coordinator.turns import Turns
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.local_store import publish_local_file
from paimon_magics.tables.stores.store import Publish

TOKEN = "a-token-of-the-test's"


def client_options(url: str, warehouse: Path, token: str = TOKEN) -> dict[str, str]:
    """The catalog options with which Paimon's clients connect to the server."""
    return {
        "metastore": "rest",
        "uri": url,
        "warehouse": str(warehouse),
        "token.provider": "bear",
        "token": token,
    }


@contextlib.contextmanager
def served(
    options: dict[str, str],
    publish: Publish = publish_local_file,
    authoriser: Authoriser | None = None,
    coordinator: Coordinator | None = None,
    store: StateStore | None = None,
    names: NameLocks | None = None,
) -> Iterator[str]:
    """The URL of a server for the catalog of these options, until the end of the block.

    `coordinator`, of the same warehouse, shares its turns and watches the tables. `store` keeps the
    properties, views and functions of databases. `names` are its locks on names.
    """
    catalog = Catalog.open(options)
    routes = catalog_routes(
        Context(
            catalog,
            publish,
            Turns() if coordinator is None else coordinator.turns,
            watch=None if coordinator is None else coordinator.watching,
            properties=None if store is None else store.database_properties,
            definition_store=None if store is None else store.definitions,
            names=names or NameLocks(Runtime()),
            mover=None if coordinator is None else KeyMover(catalog, coordinator.transactions),
        )
    )
    guard = Guard(
        Starlette(routes=guarded(routes)),
        authoriser or TokenFile(TOKEN.__eq__),
        request_bytes_max=1_000_000,
    )
    with serving(guard) as url:
        yield url


@contextlib.contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """The URL of a server for an application, until the end of the block."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert thread.is_alive() and time.monotonic() < deadline
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
