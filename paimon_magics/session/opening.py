"""Opening the session of this process: Spark starts while all else is made ready beside it.

One process has one open session at a time, so that a notebook can't write into a warehouse that
another cell means. For the same reason cells have no session after a connect that failed, until
somebody connects again: they were written for the place that could not be reached.

What a session rests on takes a second or two to be imported, and a JVM takes several to start, in
which this process waits. So this module itself loads no more than Spark's start needs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paimon_magics.boundary import short_errors, show_full_tracebacks
from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.session.place_words import PlaceWords
from paimon_magics.settings import DEFAULT_WAREHOUSE, Settings
from paimon_magics.spark.sessions import adopt, is_alive, is_started, slots, start

if TYPE_CHECKING:
    from paimon_magics.session.session import Session
    from paimon_magics.spark.handles import SparkSession

__all__ = [
    "FailedConnect",
    "active_session",
    "check_usable",
    "connect",
    "connect_failed",
    "failed_connect",
    "session_of_cells",
    "usable_session",
]

# How to say that the default is meant.
_LOCAL = (
    f"for the folder `{DEFAULT_WAREHOUSE}` say so: %paimon connect warehouse={DEFAULT_WAREHOUSE}"
)

# Settings that hold from then on, for an open session too.
_AT_ONCE = ("full_tracebacks",)

_lock = threading.Lock()
_active: Session | None = None
_active_words: PlaceWords | None = None
_failed: FailedConnect | None = None


@dataclass(frozen=True, slots=True)
class FailedConnect:
    """A connect that failed: where it was to lead (`place`, "" where it did not say so), the error
    in one line, and what would help."""

    place: str
    error: str
    hint: str


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
    """Open a session, or return the open one: where no place is named, or the same one.

    - `warehouse`: a folder or URI. With nothing given: that of the coordinator whose address is in
      PAIMON_COORDINATOR, else the folder that PAIMON_WAREHOUSE names, else
      `paimon-warehouse` in the current folder.
    - `catalog`: Paimon's catalog options (`metastore`, `uri`, `s3.endpoint`, …); the warehouse may
      be among them.
    - `coordinator`: what commits. "embedded" is a process that all notebooks of this user share,
      started by the first; "in-process" commits in this process; the address of one, as
      `http://127.0.0.1:8123`, commits there, on the warehouse that it owns. With nothing given it
      is what PAIMON_COORDINATOR says, else "embedded" ("in-process" behind a REST catalog, which
      decides between writers by itself). `token` is that of an address, else
      PAIMON_COORDINATOR_TOKEN. What else the warehouse's store needs is for `catalog`.
    - `spark`: a SparkSession to use; else the active one, else a new one on the setting `master`.
    - `settings`: fields of `Settings`.

    Raises SetupError when the warehouse or Spark can't be used, or when a session on another
    warehouse is open. Then cells are refused until another call succeeds; an open session stays
    open, and `connect()` with nothing said goes back to it.
    """
    words = PlaceWords(warehouse, catalog, coordinator, token)
    with _lock:
        if active_session() is None and not _is_named(words) and _failed and _failed.place:
            check_usable()
        try:
            return _connected(words, settings, spark)
        except BaseException as error:
            connect_failed(error, words.shown)
            raise


def session_of_cells(
    warehouse: str | None,
    catalog: Mapping[str, str] | None,
    coordinator: str | None,
    settings: Mapping[str, object],
) -> tuple[Session, bool]:
    """The session that a cell runs in, and whether it was opened for it: then where it is
    configured, or the environment says.

    Raises SetupError after a connect that failed, and instead of opening another place than the one
    that was connected to before. A failure here is no `FailedConnect`: the next cell asks for the
    same place.
    """
    words = PlaceWords(warehouse, catalog, coordinator)
    with _lock:
        check_usable(words)
        session = active_session()
        if session is not None:
            return session, False
        return _connected(words, settings, None), True


def active_session() -> Session | None:
    """The open session of this process, if there is one."""
    return _active if _active is not None and not _active.closed else None


def usable_session() -> Session | None:
    """The open session, as far as cells may use it: None after a connect that failed."""
    return active_session() if _failed is None else None


def failed_connect() -> FailedConnect | None:
    """The last connect, if it failed."""
    return _failed


def connect_failed(error: BaseException, place: str = "") -> None:
    """Keep that a connect failed, so that no cell runs where it was not meant to."""
    global _failed
    if isinstance(error, PaimonMagicsError):
        _failed = FailedConnect(place, error.message, error.hint)
    else:
        _failed = FailedConnect(place, f"It was ended by {type(error).__name__}", "")


def check_usable(configured: PlaceWords | None = None) -> None:
    """Raise SetupError where the last connect failed, or where the connection that was made to a
    named place is closed and neither `configured` nor the environment names one: what runs next was
    hardly written for another place."""
    back = active_session()
    if _failed is not None:
        where = f" to {_failed.place}" if _failed.place else ""
        end = "" if _failed.error.endswith((".", "!", "?")) else "."
        raise SetupError(
            f"Nothing ran: the last connect{where} failed. {_failed.error}{end}",
            hint=f"{_failed.hint}\n{_way_on(back)}".strip(),
        )
    if back is not None or _active is None or _active_words is None:
        return
    if _active_words.names_a_place and not _is_named(configured or PlaceWords()):
        raise SetupError(
            f"Nothing ran: the connection to {_active.warehouse} is closed.",
            hint=f"Connect to it again: %paimon connect warehouse={_active.warehouse} …; {_LOCAL}",
        )


def _way_on(back: Session | None) -> str:
    again = "Connect again by %paimon connect or paimon_magics.connect(…)"
    if back is None:
        return f"{again}; {_LOCAL}"
    return f"{again}; with nothing more said it goes back to {back.warehouse}, which is still open."


def _connected(
    words: PlaceWords, settings: Mapping[str, object], spark: SparkSession | None
) -> Session:
    """The session that is asked for: the open one, or a new one."""
    global _active, _active_words, _failed
    wanted = Settings().with_changes(settings)
    if "full_tracebacks" in settings:
        show_full_tracebacks(wanted.full_tracebacks)
    opened = active_session()
    if opened is not None and not is_alive(opened.spark):
        opened.close()  # somebody stopped its Spark
        opened = None
        if not words.names_a_place and _active_words is not None:
            words = replace(_active_words, token=words.token or _active_words.token)
    if opened is not None:
        _check_same(opened, words, wanted, settings)
        _failed = None
        return opened
    _active = _opened(words, wanted, spark)
    _active_words, _failed = words, None
    return _active


def _is_named(words: PlaceWords) -> bool:
    """Whether words or environment say where."""
    is_there = os.environ.get("PAIMON_WAREHOUSE") or "://" in os.environ.get(
        "PAIMON_COORDINATOR", ""
    )
    return words.names_a_place or bool(is_there)


def _is_more_than_a_folder(words: PlaceWords) -> bool:
    """Whether the place is a store, a catalog with options or a coordinator's."""
    of_environment = os.environ.get("PAIMON_COORDINATOR", "")
    named = (words.shown, words.coordinator or "", of_environment)
    return bool(words.catalog) or any("://" in name for name in named)


def _opened(words: PlaceWords, settings: Settings, spark: SparkSession | None) -> Session:
    """A new session on `spark`, or on one that starts while the rest is loaded and looked at."""
    was_there = spark is not None or is_started()
    with ThreadPoolExecutor(1, "paimon-magics-opening") as aside:
        ready = aside.submit(_ready, words, settings)
        if not was_there and _is_more_than_a_folder(words):
            # More can be wrong than with a folder: told before a JVM is started for it.
            ready.result()
        found = adopt(spark) if spark is not None else start(settings)
        try:
            return ready.result()(found)
        except BaseException:
            if not was_there:
                found.stop()  # the next attempt may want it with other settings
            raise


def _ready(words: PlaceWords, settings: Settings) -> Callable[[SparkSession], Session]:
    """What makes the session, once there is a Spark to make it on."""
    from paimon_magics.session.connect_target import committer_of, found_target
    from paimon_magics.session.connection import Connection
    from paimon_magics.session.session import Session
    from paimon_magics.spark.views import Views

    place = found_target(words, settings)
    committer = committer_of(place, settings)

    def session_on(spark: SparkSession) -> Session:
        connection = Connection(
            spark=spark,
            catalog=place.catalog,
            store=place.store,
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
    if words.names_a_place:
        _check_same_place(opened, words, wanted)
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


def _check_same_place(opened: Session, words: PlaceWords, wanted: Settings) -> None:
    from paimon_magics.session.connect_target import found_target

    place = found_target(words, wanted)
    before, now = opened.catalog_options, place.catalog.options
    if before == now:
        return
    hint = "Close the open session first: session.close(), or %paimon connect --close …"
    if opened.warehouse == place.catalog.warehouse:
        others = sorted(k for k in {*before, *now} if before.get(k) != now.get(k))
        raise SetupError(
            f"This process is connected to {opened.warehouse} already, with other catalog options: "
            f"{', '.join(others)}.",
            hint=hint,
        )
    raise SetupError(
        f"This process is connected to {opened.warehouse}; it can't be connected to "
        f"{place.catalog.warehouse} too.",
        hint=hint,
    )
