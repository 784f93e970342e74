"""The binding of a state folder to one warehouse, by the warehouse's id.

A coordinator identifies its warehouse by a UUID. So all spellings mean the same warehouse, and its
state, which has acknowledged rows and labels, is never used with another warehouse. A folder of an
older version has no binding: it is bound to the first warehouse that opens it, if its contents name
no other warehouse.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import apsw

from paimon_magics.coordinator.ownership.state_folder import Binding, StateFolder
from paimon_magics.errors import SetupError
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.warehouse_mark import (
    check_not_moved,
    read_warehouse_id,
    warehouse_id,
)
from paimon_magics.tables.stores.paths import canonical_location

# Where versions without bindings noted tables by location: file, table, number of rows to check.
_OLD_LOCATIONS = (
    ("log.sqlite", "log_tables"),
    ("coordinator.sqlite", "stopped"),
    ("coordinator.sqlite", "publications"),
)
_ROWS_MAX = 1_000


class WarehouseBinding:
    """Binds a state folder, which this process holds, to the warehouse of a catalog.

    `id` is the warehouse's id; "" while it is unknown, and in front of a REST catalog. With
    `names_folder` the folder can be found by that id.
    """

    def __init__(self, folder: StateFolder, catalog: Catalog, *, names_folder: bool) -> None:
        self._folder = folder
        self._catalog = catalog
        self._names_folder = names_folder
        self._location = canonical_location(catalog.warehouse)
        self.id = ""

    def begin(self, *, writes: bool) -> None:
        """Check that the folder belongs to the warehouse. With `writes`, mark the warehouse and
        bind the folder if that has not been done.

        Raises SetupError if the folder belongs to another warehouse, and the store's errors.
        """
        if self._catalog.metastore == "rest":
            return
        check_not_moved(self._catalog.stores, self._catalog.warehouse)
        bound = self._folder.binding()
        adopt = None if bound is None or bound.location != self._location else bound.id
        if not writes and self._is_unmarked():
            self._check(bound, adopt or "")
            self.id = adopt or ""
            return
        if bound is None:
            self._check_contents()
        id = self._marked(bound, adopt)
        self._check(bound, id)
        self._folder.bind(Binding(id, self._location))
        if self._names_folder:
            self._folder.name_by_id(id)
        self.id = id

    def settle(self) -> str:
        """Mark the warehouse and bind the folder, before the first write to the warehouse. Return
        the warehouse's id."""
        if self._catalog.metastore != "rest":
            check_not_moved(self._catalog.stores, self._catalog.warehouse)
        is_bound = self.id and self._folder.binding() == Binding(self.id, self._location)
        if not is_bound or self._is_unmarked():  # it may have been made anew
            self.begin(writes=True)
        return self.id

    def look(self) -> None:
        """Raise SetupError if another warehouse, or none, is in the place of the bound warehouse;
        and the store's errors.
        """
        if not self.id:
            return
        there = read_warehouse_id(self._catalog.stores, self._catalog.warehouse)
        if there != self.id:
            what = "nothing" if there is None else f"another warehouse (id {there})"
            raise SetupError(
                f"The warehouse {self._catalog.warehouse} is gone: in its place is {what}.",
                hint=(
                    "Mount the warehouse again, or move it back. The coordinator resumes as "
                    "soon as it is there."
                ),
            )

    def _is_unmarked(self) -> bool:
        return read_warehouse_id(self._catalog.stores, self._catalog.warehouse) is None

    def _marked(self, bound: Binding | None, adopt: str | None) -> str:
        stores, warehouse = self._catalog.stores, self._catalog.warehouse
        if bound is not None and adopt is None:
            # An unmarked warehouse elsewhere must not get an id if it is then refused.
            present = read_warehouse_id(stores, warehouse)
            self._check(bound, present or "")
            adopt = bound.id
        return warehouse_id(stores, warehouse, adopt)

    def _check(self, bound: Binding | None, id: str) -> None:
        if bound is not None and id != bound.id:
            raise self._refusal(f"{bound.location} (id {bound.id})", id)

    def _check_contents(self) -> None:
        """Refuse a folder of an older version that names only another warehouse's tables."""
        locations = set(_old_locations(self._folder.path))
        if locations and not any(at.startswith(f"{self._location}/") for at in locations):
            raise self._refusal(f"of the table at {min(locations)}", "")

    def _refusal(self, belongs_to: str, id: str) -> SetupError:
        shown = f" (id {id})" if id else ""
        return SetupError(
            f"The state folder {self._folder.path} belongs to the warehouse {belongs_to}, not to "
            f"{self._catalog.warehouse}{shown}.",
            hint=(
                "Start the coordinator with that warehouse, or name another state folder with "
                "--state."
            ),
        )


def _old_locations(folder: Path) -> Iterator[str]:
    for file, table in _OLD_LOCATIONS:
        path = folder / file
        if not path.exists():
            continue
        # A database that can't be read is refused when it is opened, with the reason.
        with contextlib.suppress(apsw.Error), contextlib.closing(apsw.Connection(str(path))) as db:
            for (text,) in db.execute(f"SELECT location FROM {table} LIMIT {_ROWS_MAX}"):
                location, at, _ = text.rpartition("@")
                yield canonical_location(location if at and file == "log.sqlite" else text)
