"""`paimon-coordinator move`: a warehouse to another place or name, as the same warehouse.

First a note in the old place says where it goes, so that no coordinator takes it there again. Then
it is renamed, where one step of a local disk does that; else its files are copied, the copy gets
the warehouse's id, the old place loses it, and the old files are removed. Each step can be
repeated: if the process dies, the same command goes on.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from paimon_magics.coordinator.core.values import PENDING
from paimon_magics.coordinator.ownership.lease import FOLDER
from paimon_magics.coordinator.ownership.state_folder import Binding, StateFolder
from paimon_magics.coordinator.process.offline import (
    CommandParser,
    Offline,
    add_catalog_options,
    add_state_options,
    add_yes,
    check_stopped,
    confirm,
    existing_folder,
    note_in_audit_log,
    offline,
    open_catalog,
)
from paimon_magics.coordinator.protocol.clock import now_ms
from paimon_magics.coordinator.store.state_store import StateStore, open_store, store_address
from paimon_magics.errors import InvalidValueError, SetupError
from paimon_magics.faults import reach
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.warehouse_mark import (
    Moved,
    id_of_mark,
    is_move_note,
    mark_moved,
    moved,
    note_move,
    unmark,
)
from paimon_magics.tables.stores.paths import canonical_location, local_path, plain_location
from paimon_magics.tables.stores.store import Stores, store_errors

_EXAMPLE = """example, with the coordinator stopped after `%paimon coordinator drain`:
  paimon-coordinator move s3://lake/curated --warehouse s3://lake/warehouse \\
    --catalog /etc/lake/catalog.json --state /var/lib/paimon-coordinator --yes

Then start the coordinator with the new --warehouse. Waiting inserts, labels, tokens and receipts go
along. Sessions and coordinators that come to the old place are told where the warehouse is."""

_AT_ONCE = 8


def move_command(arguments: Sequence[str]) -> list[str]:
    """Carry out `move`, and return the lines to show. Raises errors of ours."""
    options = _parser().parse_args(arguments)
    address = store_address(options.store)
    folder = existing_folder(options.state)
    check_stopped(folder, "a move")
    catalog = open_catalog(options, folder)
    move = _Move(catalog, options.target)
    move.check()
    note = move.note()
    if note is not None and canonical_location(note.to) != canonical_location(move.target):
        raise SetupError(
            f"The warehouse {catalog.warehouse} {note.text}.",
            hint=note.hint if note.is_done else f"Name that target: move {note.to}",
        )
    if note is not None and move.has_arrived(note):
        move.finish(note)
    else:
        if note is not None and note.is_done:
            raise move.refusal(note)
        move.check_target(note)
        move.check_links()
        if note is None:
            confirm(
                f"The warehouse {catalog.warehouse} is moved to {move.target}: it is not at its "
                "old place any more.",
                options,
            )
            note = _begun(options, folder, address, move)
        move.carry(note)
    folder.bind(Binding(note.warehouse_id, canonical_location(move.target)))
    with closing(_store(folder, address, move.target, note.warehouse_id)) as store:
        note_in_audit_log(store, "move warehouse", f"{move.source} to {move.target}")
    return [
        f"The warehouse {move.source} was moved to {move.target}.",
        f"Start the coordinator with --warehouse {move.target}.",
    ]


def _begun(
    options: argparse.Namespace, folder: StateFolder, address: str | None, move: _Move
) -> Moved:
    """Own the warehouse, see that nobody writes, and leave the note that it goes. Raises
    SetupError while a statement has a transaction."""
    with offline(options, folder, "a move") as place:
        _check_quiet(place, address)
        note = Moved(move.target, place.binding.id, now_ms(), is_done=False)
        note_move(place.catalog.stores, place.warehouse, note)
        return note


def _check_quiet(place: Offline, address: str | None) -> None:
    with closing(_store(place.folder, address, place.warehouse, place.binding.id)) as store:
        pending = [
            str(state.table)
            for state, _ in store.transactions.unfinished()
            if state.phase in PENDING
        ]
    if pending:
        raise SetupError(
            f"{len(pending)} statements are open, on {', '.join(sorted(set(pending))[:5])}: their "
            "files would stay behind.",
            hint="Start the coordinator, let them end with `%paimon coordinator drain`, stop it, "
            "and repeat the command.",
        )


def _store(folder: StateFolder, address: str | None, warehouse: str, id: str) -> StateStore:
    return open_store(folder.path, address, warehouse, is_heir=True, warehouse_id=id)


class _Move:
    """The move of one warehouse to a target. Raises InvalidValueError for a relative path."""

    def __init__(self, catalog: Catalog, target: str) -> None:
        if ":" not in target and not os.path.isabs(target):
            raise InvalidValueError(
                f"{target} is not a whole path.", hint="Write it from the root on."
            )
        self._stores: Stores = catalog.stores
        self.source = plain_location(catalog.warehouse)
        self.target = plain_location(target)

    def check(self) -> None:
        """Raise InvalidValueError for a target that can't be."""
        here, there = canonical_location(self.source), canonical_location(self.target)
        if here == there or here.startswith(f"{there}/") or there.startswith(f"{here}/"):
            raise InvalidValueError(
                f"{self.target} is not another place than {self.source}, or one is in the other.",
                hint="Name a folder or a prefix beside the warehouse.",
            )

    def note(self) -> Moved | None:
        """The note of a move that has begun, which goes along with a rename."""
        there = moved(self._stores, self.source)
        if there is None:
            there = moved(self._stores, self.target)
            if there is not None and canonical_location(there.to) != canonical_location(
                self.target
            ):
                return None
        if there is None and not self._stores.of(self.source).files_below(self.source):
            raise SetupError(
                f"There is no warehouse in {self.source}.",
                hint="Name it with --warehouse.",
            )
        return there

    def check_target(self, note: Moved | None) -> None:
        """Raise InvalidValueError for a target that has something which this move did not bring."""
        target = local_path(self.target)
        if target is not None and os.path.islink(target):
            raise InvalidValueError(
                f"{target} is a link to {os.readlink(target)}.",
                hint="Name the folder that it leads to, or a place that is free.",
            )
        with store_errors(f"Looking at {self.target}"):
            present = self._stores.of(self.target).files_below(self.target)
            if target is not None and os.path.isdir(target):
                present = present or os.listdir(target)
        if present and (note is None or self._is_renamed):
            raise InvalidValueError(
                f"{self.target} is not empty: it has {present[0]}.",
                hint="Name a place that is free.",
            )

    def check_links(self) -> None:
        """Raise InvalidValueError for a symbolic link that would lead elsewhere, or be lost."""
        source, target = local_path(self.source), local_path(self.target)
        if source is None:
            return
        if os.path.islink(source):
            raise InvalidValueError(
                f"{source} is a link to {os.readlink(source)}. Nothing was moved.",
                hint=f"Name the folder: --warehouse {os.path.realpath(source)}",
            )
        is_renamed = self._is_renamed
        links: list[str] = []
        for place, folders, files in os.walk(source):
            paths = (os.path.join(place, name) for name in (*folders, *files))
            links += filter(os.path.islink, paths)
        for link in links:
            if not is_renamed or not _stays_good(link, source, str(target)):
                raise InvalidValueError(
                    f"{link} is a link to {os.readlink(link)}, which the move would not keep. "
                    "Nothing was moved.",
                    hint="Put what it leads to in its place, and repeat the command.",
                )

    def refusal(self, note: Moved) -> SetupError:
        """The error for a move that was done, to a target that is not the warehouse any more."""
        onward = moved(self._stores, self.target)
        if onward is None:
            return SetupError(
                f"The warehouse {self.source} {note.text}, but is not there.",
                hint=f"Put it back to {self.target} from a copy.",
            )
        return SetupError(
            f"The warehouse {self.source} {note.text}, and {onward.text.partition(' ')[2]} from "
            "there.",
            hint=f"Name it with --warehouse {onward.to}, and a target that is free.",
        )

    @property
    def _is_renamed(self) -> bool:
        """Whether one step of a local disk moves it."""
        source, target = local_path(self.source), local_path(self.target)
        if source is None or target is None:
            return False
        parent = Path(target).parent
        return parent.is_dir() and Path(source).stat().st_dev == parent.stat().st_dev

    def has_arrived(self, note: Moved) -> bool:
        """Whether the target is the warehouse already."""
        return id_of_mark(self._stores, self.target) == note.warehouse_id

    def carry(self, note: Moved) -> None:
        """Bring everything to the target, and make it the warehouse."""
        reach("move.noted")
        if self._is_renamed:
            source, target = str(local_path(self.source)), str(local_path(self.target))
            if Path(target).exists():
                Path(target).rmdir()  # it is empty
            os.rename(source, target)
            reach("move.renamed")
        else:
            self._copy()
            reach("move.copied")
            mark_moved(self._stores, self.target, note.warehouse_id)
            reach("move.marked")
        self.finish(note)

    def finish(self, note: Moved) -> None:
        """Leave the old place: it keeps the note alone."""
        note_move(self._stores, self.source, replace(note, is_done=True))
        unmark(self._stores, self.source)
        reach("move.unmarked")
        store = self._stores.of(self.source)
        with store_errors(f"Removing {self.source}"):
            left = [path for path in store.files_below(self.source) if not is_move_note(path)]
            store.delete(left)
            for folder in store.folders(self.source):
                if folder != FOLDER:
                    store.delete_folder(f"{self.source}/{folder}")
        mine = self._stores.of(self.target)
        mine.delete([f"{self.target}/{FOLDER}/moved.json"])  # it came along with a rename
        mark_moved(self._stores, self.target, note.warehouse_id)

    def _copy(self) -> None:
        """Copy all files that are not in the target, until a look finds no other."""
        source, target = self._stores.of(self.source), self._stores.of(self.target)
        done: set[str] = set()
        with (
            store_errors(f"Copying {self.source} to {self.target}"),
            ThreadPoolExecutor(_AT_ONCE) as pool,
        ):
            for folder in source.folders(self.source):
                if folder != FOLDER:
                    target.make_folder(f"{self.target}/{folder}")  # also of an empty database
            while True:
                paths = [
                    path.removeprefix(f"{self.source}/")
                    for path in map(plain_location, source.files_below(self.source))
                ]
                new = [path for path in paths if path not in done and not _stays(path)]
                if not new:
                    return

                def copy(path: str) -> None:
                    content = source.read(f"{self.source}/{path}")
                    if content is not None:  # a lease may go meanwhile
                        where = f"{self.target}/{path}"
                        target.make_folder(where.rpartition("/")[0])
                        target.write(where, content)

                list(pool.map(copy, new))
                done.update(new)


def _stays_good(link: str, source: str, target: str) -> bool:
    """Whether a link leads to the same when the folder it is in was renamed."""
    text = os.readlink(link)
    leads = os.path.normpath(os.path.join(os.path.dirname(link), text))
    inside = leads == source or leads.startswith(f"{source}/")
    if os.path.isabs(text):
        return not inside
    there = os.path.dirname(target + link.removeprefix(source))
    return inside or os.path.normpath(os.path.join(there, text)) == leads


def _stays(path: str) -> bool:
    """Whether a file belongs to the old place."""
    folder, _, name = path.partition("/")
    return folder == FOLDER and (
        name in ("warehouse-id", "moved.json") or name.startswith(("owner-", "probe-"))
    )


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="paimon-coordinator move",
        description="Moves a warehouse to another place or name, as the same warehouse.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("target", help="the new folder or URI, which is free")
    add_state_options(parser)
    add_catalog_options(parser)
    add_yes(parser)
    return parser
