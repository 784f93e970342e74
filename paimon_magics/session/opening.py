"""Opening the session of this process: Spark starts while all else is made ready beside it.

One process has one open session at a time, so that a notebook can't write into a warehouse that
another cell means.

What a session rests on takes a second or two to be imported, and a JVM takes several to start, in
which this process waits. So this module itself loads no more than Spark's start needs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paimon_magics.boundary import short_errors, show_full_tracebacks
from paimon_magics.errors import SetupError
from paimon_magics.settings import Settings
from paimon_magics.spark.sessions import adopt, is_alive, is_started, slots, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from paimon_magics.session.session import Session

__all__ = ["PlaceWords", "active_session", "connect"]

# Settings that hold from then on, for an open session too.
_AT_ONCE = ("full_tracebacks",)

_lock = threading.Lock()
_active: Session | None = None


@dataclass(frozen=True, slots=True)
class PlaceWords:
    """What `connect` was told about the place, in its words."""

    warehouse: str | os.PathLike[str] | None
    catalog: Mapping[str, str] | None
    coordinator: str | None
    token: str | None


@short_errors
def connect(
    warehouse: str | os.PathLike[str] | None = None,
    *,
    catalog: Mapping[str, str] | None = None,
    coordinator: str | None = None,
    token: str | None = None,
    spark: SparkSession | None = None,
    **settings: object,
) -> Session:
    """Open a session, or return the open one when it is on the same warehouse.

    - `warehouse`: a folder or URI. With nothing given: that of the coordinator whose address is in
      PAIMON_COORDINATOR, else the folder that PAIMON_WAREHOUSE names, else
      `paimon-warehouse` in the current folder.
    - `catalog`: Paimon's catalog options instead (`metastore`, `uri`, `warehouse`, …).
    - `coordinator`: what commits. "embedded" is a process that all notebooks of this user share,
      started by the first; "in-process" commits in this process; the address of one, as
      `http://127.0.0.1:8123`, commits there, on the warehouse that it owns. With nothing given it
      is what PAIMON_COORDINATOR says, else "embedded" ("in-process" behind a REST catalog, which
      decides between writers by itself). `token` is that of an address, else
      PAIMON_COORDINATOR_TOKEN. What else the warehouse's store needs is for `catalog`.
    - `spark`: a SparkSession to use; else the active one, else a new one on the setting `master`.
    - `settings`: fields of `Settings`.

    Raises SetupError when the warehouse or Spark can't be used, or when a session on another
    warehouse is open.
    """
    global _active
    words = PlaceWords(warehouse, catalog, coordinator, token)
    with _lock:
        wanted = Settings().with_changes(settings)
        if "full_tracebacks" in settings:
            show_full_tracebacks(wanted.full_tracebacks)
        if _active is not None and not _active.closed and not is_alive(_active.spark):
            _active.close()  # somebody stopped its Spark
        if _active is not None and not _active.closed:
            _check_same(_active, words, wanted, settings)
        else:
            _active = _opened(words, wanted, spark)
        return _active


def active_session() -> Session | None:
    """The open session of this process, if there is one."""
    return _active if _active is not None and not _active.closed else None


def _opened(words: PlaceWords, settings: Settings, spark: SparkSession | None) -> Session:
    """A new session on `spark`, or on one that starts while the rest is loaded and looked at."""
    was_there = spark is not None or is_started()
    with ThreadPoolExecutor(1, "paimon-magics-opening") as aside:
        ready = aside.submit(_ready, words, settings)
        found = adopt(spark) if spark is not None else start(settings)
        try:
            return ready.result()(found)
        except BaseException:
            if not was_there:
                found.stop()  # the next attempt may want it with other settings
            raise


def _ready(words: PlaceWords, settings: Settings) -> Callable[[SparkSession], Session]:
    """What makes the session, once there is a Spark to make it on."""
    from paimon_magics.session.connection import Connection
    from paimon_magics.session.places import committer_of, found_place
    from paimon_magics.session.session import Session
    from paimon_magics.spark.views import Views

    place = found_place(words, settings)
    committer = committer_of(place, settings)

    def session_on(spark: SparkSession) -> Session:
        connection = Connection(
            spark=spark,
            catalog=place.catalog,
            committer=committer,
            coordinator=place.coordinator,
            settings=settings,
            database=settings.database,
            views=Views(spark, settings.kept_views_max),
            slots=slots(spark),
        )
        return Session(connection)

    return session_on


def _check_same(
    opened: Session, words: PlaceWords, wanted: Settings, given: Mapping[str, object]
) -> None:
    """Raise SetupError unless `opened` is the session that is asked for."""
    from paimon_magics.session.places import found_place

    place = found_place(words, wanted)
    if opened.catalog_options != place.catalog.options:
        raise SetupError(
            f"This process is connected to {opened.warehouse}; it can't be connected to "
            f"{place.catalog.warehouse} too.",
            hint="Close the open session first: session.close(), or %paimon connect --close.",
        )
    for name in given:
        if name in _AT_ONCE:
            continue
        if getattr(opened.settings, name) != getattr(wanted, name):
            raise SetupError(
                f"The open session has `{name}` = {getattr(opened.settings, name)!r}, not "
                f"{getattr(wanted, name)!r}.",
                hint="Settings belong to the opening of a session. Close it first: "
                "session.close(), or %paimon connect --close.",
            )
    if words.coordinator and words.coordinator.rstrip("/") != opened.coordinator.rstrip("/"):
        raise SetupError(
            f"The open session commits through `{opened.coordinator}`, not `{words.coordinator}`.",
            hint="Close it first: session.close(), or %paimon connect --close.",
        )
