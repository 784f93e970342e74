"""Opening the session of this process: Spark starts while everything else is prepared beside it.

A process has one open session at a time, so that a cell can't write into another warehouse than the
one it was written for. For the same reason cells have no session after a failed connect until the
user connects again: they were written for the place that could not be reached.

The session's imports take a second or two, and a JVM takes several to start, while this process
waits. So this module imports only what starting Spark needs; the rest is imported meanwhile.
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
from paimon_magics.spark.sessions import adopt, check_process, is_alive, is_started, slots, start

if TYPE_CHECKING:
    from paimon_magics.session.connection import Connection
    from paimon_magics.session.session import Session
    from paimon_magics.spark.handles import SparkSession

# How to ask for the default warehouse explicitly.
_LOCAL = f"for the folder `{DEFAULT_WAREHOUSE}`: %paimon connect warehouse={DEFAULT_WAREHOUSE}"

# Settings that `connect` may change in an open session.
_AT_ONCE = ("full_tracebacks",)

_lock = threading.Lock()
_active: Session | None = None
_active_words: PlaceWords | None = None
_failed: FailedConnect | None = None


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # another thread of the parent may have had it
    os.register_at_fork(after_in_child=_renew_lock)


@dataclass(frozen=True, slots=True)
class FailedConnect:
    """A failed connect: its target (`place`, "" if none was named), the error in one line, and what
    would help."""

    place: str
    error: str
    hint: str


@short_errors
def connect(
    warehouse: str | os.PathLike[str] | None = None,
    *,
    catalog: Mapping[str, str] | None = None,
    coordinator: str | None = None,
    token: str | Callable[[], str] | None = None,
    spark: SparkSession | None = None,
    **settings: object,
) -> Session:
    """Open a session, or return the open one if no place is named or it is the same place.

    - `warehouse`: a folder or URI. Default: that of the coordinator whose address is in
      PAIMON_COORDINATOR, else the folder that PAIMON_WAREHOUSE names, else
      `paimon-warehouse` in the current folder.
    - `catalog`: Paimon's catalog options (`metastore`, `uri`, `s3.endpoint`, …); the warehouse may
      be among them.
    - `coordinator`: where commits are made. "embedded" is a process that all notebooks of this user
      share, started by the first; "in-process" is this process; an address such as
      `https://lake.example.org:8123` is a coordinator, with the warehouse that it owns. Of several
      addresses, separated by commas, the first that answers is used. Default:
      PAIMON_COORDINATOR, else "embedded" ("in-process" for a REST catalog, which decides
      between writers itself). `token` is the token for an address, or a function that returns it
      and is called again when the token has expired. Default: PAIMON_COORDINATOR_TOKEN, else the
      content of the file in PAIMON_COORDINATOR_TOKEN_FILE, which is also read again after expiry.
      Credentials of the warehouse's store belong in `catalog`.
    - `spark`: a SparkSession to use; else the active one, else a new one on the setting `master`.
    - `settings`: fields of `Settings`.

    Raises SetupError when the warehouse or Spark can't be used, or when a session on another
    warehouse is open. Then cells are refused until another call succeeds; an open session stays
    open, and `connect()` without arguments returns to it.
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
    """Return the session that a cell runs in, and whether it was opened for this cell. A new
    session is on the configured place, else on the place that the environment names.

    Raises SetupError after a failed connect, and if the new session would be on the default place
    after a connection to a named one. A failure here is not kept as `FailedConnect`: the next cell
    asks for the same place.
    """
    words = PlaceWords(warehouse, catalog, coordinator)
    with _lock:
        check_usable(words)
        session = active_session()
        if session is not None:
            return session, False
        return _connected(words, settings, None), True


def active_session() -> Session | None:
    """The open session of this process; None if there is none."""
    return _active if _active is not None and not _active.closed else None


def usable_session() -> Session | None:
    """The open session that cells may use; None after a failed connect."""
    return active_session() if _failed is None else None


def failed_connect() -> FailedConnect | None:
    """The last connect if it failed, else None."""
    return _failed


def connect_failed(error: BaseException, place: str = "") -> None:
    """Record that a connect failed, so that no cell runs in a place that it was not written for."""
    global _failed
    if isinstance(error, PaimonMagicsError):
        _failed = FailedConnect(place, error.message, error.hint)
    else:
        _failed = FailedConnect(place, f"It was interrupted by {type(error).__name__}", "")


def check_usable(configured: PlaceWords | None = None) -> None:
    """Raise SetupError if the last connect failed. Also if a connection to a named place was closed
    and neither `configured` nor the environment names a place: the next cell was probably not
    written for the default place."""
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
    again = "Connect again with %paimon connect or paimon_magics.connect(…)"
    if back is None:
        return f"{again}; {_LOCAL}"
    return f"{again}; without arguments it returns to {back.warehouse}, which is still open."


def _connected(
    words: PlaceWords, settings: Mapping[str, object], spark: SparkSession | None
) -> Session:
    """Return the requested session: the open one, or a new one."""
    global _active, _active_words, _failed
    check_process(is_inherited=_active is not None and _active._connection.is_inherited)
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
        opened._connection.state.was_open = True
        _failed = None
        return opened
    _active = _opened(words, wanted, spark)
    _active_words, _failed = words, None
    return _active


def _is_named(words: PlaceWords) -> bool:
    """Whether the caller or the environment names a place."""
    is_there = os.environ.get("PAIMON_WAREHOUSE") or "://" in os.environ.get(
        "PAIMON_COORDINATOR", ""
    )
    return words.names_a_place or bool(is_there)


def _is_more_than_a_folder(words: PlaceWords) -> bool:
    """Whether the place is an object store, a catalog with options or a coordinator."""
    of_environment = os.environ.get("PAIMON_COORDINATOR", "")
    named = (words.shown, words.coordinator or "", of_environment)
    return bool(words.catalog) or any("://" in name for name in named)


def _opened(words: PlaceWords, settings: Settings, spark: SparkSession | None) -> Session:
    """Open a session on `spark`, or on a Spark that starts while the rest is imported and
    checked."""
    was_there = spark is not None or is_started()
    with ThreadPoolExecutor(1, "paimon-magics-opening") as aside:
        ready = aside.submit(_ready, words, settings)
        if not was_there and _is_more_than_a_folder(words):
            # More can be wrong than with a folder, so it is checked before a JVM starts.
            ready.result()
        session = adopt(spark) if spark is not None else start(settings)
        try:
            return ready.result()(session)
        except BaseException:
            if not was_there:
                session.stop()  # the next attempt may want it with other settings
            raise


def _ready(words: PlaceWords, settings: Settings) -> Callable[[SparkSession], Session]:
    """Prepare all but Spark; return the function that makes the session on a Spark session."""
    from paimon_magics.session.session import Session

    connected = _prepared(words, settings)
    return lambda spark: Session(connected(spark))


def connection_on(words: PlaceWords, settings: Settings, spark: SparkSession) -> Connection:
    """Open a connection on `spark` that is not the process's session. Raises SetupError."""
    return _prepared(words, settings)(adopt(spark))


def _prepared(words: PlaceWords, settings: Settings) -> Callable[[SparkSession], Connection]:
    from paimon_magics.planning.options.values import duration_ms
    from paimon_magics.session.connect_target import committer_of, found_target
    from paimon_magics.session.connection import Connection, SessionState
    from paimon_magics.spark.views import Views

    if settings.snapshot_time_retained:
        duration_ms("snapshot_time_retained", settings.snapshot_time_retained)
    place = found_target(words, settings)
    committer = committer_of(place, settings)
    place.catalog.visibility = committer.visibility()

    def connection_with(spark: SparkSession) -> Connection:
        return Connection(
            spark=spark,
            catalog=place.catalog,
            store=place.store,
            committer=committer,
            coordinator=place.coordinator,
            settings=settings,
            views=Views(spark, settings.kept_views_max),
            slots=slots(spark),
            state=SessionState(settings.database),
            words=words,
        )

    return connection_with


def _check_same(
    opened: Session, words: PlaceWords, wanted: Settings, changes: Mapping[str, object]
) -> None:
    """Raise SetupError unless `opened` is the requested session."""
    if words.names_a_place:
        _check_same_place(opened, words, wanted)
    for name in changes:
        if name in _AT_ONCE:
            continue
        if getattr(opened.settings, name) != getattr(wanted, name):
            raise SetupError(
                f"The open session has `{name}` = {getattr(opened.settings, name)!r}, not "
                f"{getattr(wanted, name)!r}.",
                hint="Settings are set when a session is opened. Close it first: "
                "session.close(), or %paimon connect --close.",
            )
    if words.coordinator and words.coordinator.rstrip("/") != opened.coordinator.rstrip("/"):
        raise SetupError(
            f"The open session commits through `{opened.coordinator}`, not `{words.coordinator}`.",
            hint="Close it first: session.close(), or %paimon connect --close.",
        )
    before = None if _active_words is None else _active_words.token
    if words.token is not None and before is not None and words.token != before:
        raise SetupError(
            f"The open session uses another token at `{opened.coordinator}`.",
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
