"""What commands share that work on a warehouse and a store which no coordinator uses now.

They hold the state folder and own the warehouse while they work, so that no coordinator starts
meanwhile. If the process dies, both are free again: the folder at once, the warehouse for the same
folder.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from paimon_magics.coordinator.audit.entries import Entry, Outcome, entry_id
from paimon_magics.coordinator.client.owner_requests import Requests
from paimon_magics.coordinator.client.starting import At
from paimon_magics.coordinator.ownership.binding import WarehouseBinding
from paimon_magics.coordinator.ownership.catalog_options import catalog_options
from paimon_magics.coordinator.ownership.lease import Owner
from paimon_magics.coordinator.ownership.ownership import Ownership
from paimon_magics.coordinator.ownership.state_folder import Running, StateFolder
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.store.state_store import StateStore
from paimon_magics.errors import InvalidValueError, SetupError
from paimon_magics.origin import user_name
from paimon_magics.redaction import conceal_options
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.stores.allowed_paths import PathRules
from paimon_magics.tables.stores.store import Store

_LEASE_MS = 30_000
_UNAUTHORIZED = 401


@dataclass(frozen=True, slots=True)
class Offline:
    """A warehouse and a state folder that this process holds. `warehouse_id` is the id by which
    they belong together."""

    folder: StateFolder
    catalog: Catalog
    binding: WarehouseBinding
    ownership: Ownership

    @property
    def warehouse(self) -> str:
        """The warehouse's location."""
        return self.catalog.warehouse

    @property
    def files(self) -> Store:
        """The warehouse's own store."""
        return self.catalog.stores.of(self.catalog.warehouse)

    @property
    def who(self) -> str:
        """This process's user and host, for notes."""
        return f"{getpass.getuser()} on {os.uname().nodename}"


def existing_folder(state: str) -> StateFolder:
    """The state folder of a coordinator. Raises SetupError for one that does not exist, and for
    root where it is another account's, which could not read the files that root makes."""
    path = Path(state)
    if not path.is_dir():
        raise SetupError(
            f"There is no state folder {state}.",
            hint="Name the folder that the coordinator uses as its --state.",
        )
    mark = path / "id"  # made by the coordinator, whoever made the folder
    owner = (mark if mark.exists() else path).stat().st_uid
    if hasattr(os, "geteuid") and os.geteuid() == 0 and owner != 0:
        name = account(owner)
        raise SetupError(
            f"The state folder {state} belongs to the account {name}, which could not read the "
            "files of a command that runs as root.",
            hint=f"Run it as that account: sudo -u '{name}' paimon-coordinator …",
        )
    return StateFolder(path)


def account(uid: int) -> str:
    """The name of an account; `#` and its number where it has none, as sudo takes it."""
    import pwd  # on POSIX alone

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"


def asking(folder: StateFolder, running: Running, ending: ExitStack) -> Requests:
    """Requests to the coordinator that runs with a state folder; `ending` closes them. Raises
    SetupError for a standby whose owner does not take the folder's token."""
    requests = Requests(At(running.address, folder.token()))
    ending.callback(requests.close)
    with contextlib.suppress(httpx.TransportError, ValueError):  # the request itself will say
        answer = requests.answer("GET", "/health/owner").json()
        is_standby = answer.get("status") == "standby"
        if is_standby and requests.answer("GET", "/health/ready").status_code == _UNAUTHORIZED:
            owner = answer.get("owner")
            where = f"The owner is {answer['who']}, at {owner}" if owner else "No owner is known"
            raise SetupError(
                f"The coordinator with the state folder {folder.path} is a standby, and the "
                f"owner does not take its token. {where}.",
                hint="Run the command with the owner's --state on its machine; or with --address "
                f"{owner or 'ADDRESS'} and an administrator's token in PAIMON_COORDINATOR_TOKEN.",
            )
    return requests


def check_stopped(folder: StateFolder, what: str) -> None:
    """Raise SetupError while a process holds a state folder."""
    if folder.is_held():
        running = folder.running()
        shown = f" (process {running.pid} at {running.address})" if running else ""
        raise SetupError(
            f"The coordinator with the state folder {folder.path} runs{shown}, and must not during "
            f"{what}.",
            hint="Stop it, as with `systemctl stop paimon-coordinator`, and repeat the command.",
        )


@contextmanager
def offline(
    options: argparse.Namespace,
    folder: StateFolder,
    what: str,
    check: Callable[[Catalog], object] = lambda _: None,
) -> Iterator[Offline]:
    """Hold the folder and the warehouse of a command line in the `with` block. `check` sees the
    catalog before anything is written. Raises SetupError while a coordinator, or a standby of one,
    has one of them."""
    check_stopped(folder, what)
    folder.hold()
    try:
        catalog = open_catalog(options, folder)
        check(catalog)
        binding = WarehouseBinding(folder, catalog, names_folder=False)
        binding.begin(writes=True)
        owner = Owner(folder.home(), "", getpass.getuser(), os.getpid())
        files = catalog.stores.of(catalog.warehouse)
        ownership = Ownership(files, catalog.warehouse, owner, _LEASE_MS, binding=binding)
        try:
            ownership.acquire()
            yield Offline(folder, catalog, binding, ownership)
        finally:
            ownership.release()
    finally:
        folder.let_go()


def open_catalog(options: argparse.Namespace, folder: StateFolder) -> Catalog:
    """Open the catalog of a command line; without a warehouse there, that of the state folder.

    Raises SetupError for the warehouse of a REST catalog, which nobody owns."""
    bound = folder.binding()
    warehouse = options.warehouse
    if warehouse is None and options.catalog is None and bound is not None:
        warehouse = bound.location
    chosen = catalog_options(
        warehouse=warehouse,
        file=options.catalog,
        environment=os.environ,
        assignments=options.catalog_option,
    )
    if chosen.get("metastore") == "rest":
        raise SetupError(
            "The warehouse of a REST catalog is that server's.",
            hint="Back it up, restore and move it with the tools of that server.",
        )
    conceal_options(chosen)
    return Catalog.open(chosen, PathRules((), (str(folder.path.resolve()),)))


def note_in_audit_log(store: StateStore, action: str, detail: str) -> None:
    """Keep an entry of a command that has ended; the next coordinator writes it to the table."""
    at_ms = now_ms()
    entry = Entry(
        entry_id(at_ms),
        at_ms,
        action,
        claimed=user_name() or None,
        credential="command line",
        outcome=Outcome.DONE,
        detail=detail,
    )
    store.audit.save([(entry.id, entry.body, True)])


class CommandParser(argparse.ArgumentParser):
    """A parser whose help, and that of its words, has examples in lines of their own."""

    def __init__(self, **words: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **words)


def confirm(question: str, options: argparse.Namespace) -> None:
    """Go on if the user agrees, by `--yes` or at a terminal. Raises InvalidValueError otherwise."""
    if options.yes:
        return
    if sys.stdin is not None and sys.stdin.isatty():
        print(f"{question} Type yes to go on: ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() == "yes":
            return
    raise InvalidValueError(question, hint="Nothing was changed. Repeat the command with --yes.")


def add_catalog_options(command: argparse.ArgumentParser) -> None:
    """Add the options that name a warehouse, as a coordinator's."""
    command.add_argument(
        "--warehouse", help="the warehouse's folder or URI (default: that of the state folder)"
    )
    command.add_argument("--catalog", help="a JSON file of catalog options, for secrets")
    command.add_argument(
        "--catalog-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one of Paimon's catalog options; may be repeated",
    )


def add_state_options(command: argparse.ArgumentParser) -> None:
    """Add the options that name a state folder and a store, as a coordinator's."""
    command.add_argument("--state", required=True, help="the state folder of the coordinator")
    command.add_argument("--store", help="postgresql://… if the coordinator's store is there")
    command.add_argument(
        "--log",
        choices=("store", "warehouse"),
        default="store",
        help="where the coordinator keeps small inserts (default: store)",
    )


def add_yes(command: argparse.ArgumentParser) -> None:
    """Add the option that answers the command's question."""
    command.add_argument(
        "--yes",
        action="store_true",
        help="go on where something can't be undone, without a question",
    )


def add_place(command: argparse.ArgumentParser) -> None:
    """Add the options that name a coordinator, by its state folder or its address."""
    command.add_argument("--state", help="the state folder of the coordinator")
    command.add_argument("--store", help="postgresql://… if the coordinator's store is there")
    command.add_argument("--address", help="ask the coordinator at this address instead")
