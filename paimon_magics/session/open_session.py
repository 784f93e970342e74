"""The open side of a session: its warehouse, Spark and settings, and how it is closed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from paimon_magics.boundary import short_errors
from paimon_magics.errors import (
    JobError,
    PaimonMagicsError,
    SetupError,
)
from paimon_magics.session.connection import Connection
from paimon_magics.session.name_cache import KnownNames
from paimon_magics.settings import Settings
from paimon_magics.spark.sessions import check_process, ended, stop
from paimon_magics.tables.catalog.catalog import Catalog

if TYPE_CHECKING:
    from paimon_magics.spark.handles import SparkSession
    from paimon_magics.tables.stores.probes import StoreReport


@short_errors
class OpenSession:
    """A connection to one warehouse, which stays open until `close`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known_names: KnownNames | None = None

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._connection.closed

    @property
    def spark(self) -> SparkSession:
        """The Spark session that jobs run in. While this session is open, PySpark's own calls on it
        read Paimon's tables and refuse to change them: see docs/coming-from-pyspark.md. Raises
        SetupError in a forked child."""
        check_process(self._connection.is_inherited)
        return self._connection.spark

    @property
    def warehouse(self) -> str:
        """The warehouse's path, URI, or name on a REST server."""
        return self._connection.catalog.warehouse

    @property
    def catalog(self) -> Catalog:
        """The catalog of the warehouse."""
        return self._connection.catalog

    @property
    def catalog_options(self) -> Mapping[str, str]:
        """The catalog's options, credentials included: not for display."""
        return self._connection.catalog.options

    @property
    def coordinator(self) -> str:
        """Where commits are made: "embedded", "in-process", or the address given to `connect`."""
        return self._connection.coordinator

    @property
    def store(self) -> StoreReport:
        """The report on the warehouse's store, from when the session was opened."""
        return self._connection.store

    @property
    def known_names(self) -> KnownNames:
        """The name cache: the catalog's names as they were last read, for completion."""
        if self._known_names is None:
            self._known_names = KnownNames(self.catalog_options, self.catalog.visibility)
        return self._known_names

    @property
    def settings(self) -> Settings:
        """The session's settings."""
        return self._connection.settings

    @property
    def database(self) -> str:
        """The database of unqualified table names."""
        return self._connection.database

    def close(self, *, stop_spark: bool = False) -> None:
        """End the session. Spark keeps running for frames that still need it, unless
        `stop_spark`. In a forked child this ends nothing of the parent's."""
        self._connection.closed = True
        if self._connection.is_inherited:
            self._connection.committer.close()
            return
        for running in tuple(self._connection.running):
            running.stop()
        self._connection.views.close()
        self._connection.view_frames.clear()
        self._connection.view_reads.clear()
        self._connection.committer.close()
        if stop_spark:
            stop(self._connection.spark)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        new = "new warehouse, " if self.store.is_new else ""
        state = "closed" if self.closed else f"{new}database {self.database}"
        return f"Session({self.warehouse}, {state})"

    def _check_open(self) -> None:
        check_process(self._connection.is_inherited)
        if self.closed:
            raise SetupError(
                "This session is closed.",
                hint="Open one with paimon_magics.connect() or %paimon connect.",
            )

    def _check_spark(self, error: Exception) -> None:
        """Raise SetupError from `error` if Spark's JVM is gone; errors of ours other than JobError
        are left alone."""
        is_ours = isinstance(error, PaimonMagicsError) and not isinstance(error, JobError)
        if not is_ours and (gone := ended(self.spark)) is not None:
            raise gone from error

    def _explained(self, error: Exception) -> PaimonMagicsError | None:
        """The error for one of PySpark's connection to its JVM, which tells nobody anything."""
        is_of_jvm = isinstance(error, ConnectionError) or type(error).__module__.startswith("py4j")
        return ended(self.spark) if is_of_jvm else None
