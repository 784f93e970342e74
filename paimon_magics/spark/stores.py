"""Finds out whether a Spark session can open a store, by trying: there is no other way.

Which file systems a session has depends on its jars. Which buckets of a store it may read depends
on its configuration, credentials and network. If the attempt fails or takes too long, a merge read
is used, which needs no file system in Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRY_S = 15.0  # a file system without credentials looks for some in several places first
# Hadoop's scheme for S3 is `s3a`; it knows others only where a session is configured so.
_SPELLINGS = {"s3": ("s3a", "s3"), "s3n": ("s3a", "s3n")}


class OpenedStores:
    """The scheme by which Spark opens a store, by the store's scheme and bucket (or host); None
    if Spark can't open it. Each store is tried once for each connection, so a session that can
    open a store only later tries again after reconnecting. For one thread at a time."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._schemes: dict[tuple[str, str], str | None] = {}

    def schemes(self, paths: Iterable[str]) -> dict[tuple[str, str], str] | None:
        """The scheme by which Spark opens each store of `paths`; None if it can't open all of
        them."""
        schemes: dict[tuple[str, str], str] = {}
        for path in paths:
            place = _place(path)
            if place in schemes:
                continue
            if place not in self._schemes:
                self._schemes[place] = self._tried(path)
            scheme = self._schemes[place]
            if scheme is None:
                return None
            schemes[place] = scheme
        return schemes

    def _tried(self, path: str) -> str | None:
        scheme = _place(path)[0]
        if scheme in ("", "file"):
            return scheme
        spellings = _SPELLINGS.get(scheme, (scheme,))
        return next(
            (spelling for spelling in spellings if self._opens(_with_scheme(path, spelling))), None
        )

    def _opens(self, path: str) -> bool:
        opened: list[bool] = []
        # A call into the JVM can't be interrupted: where it hangs, its thread is abandoned.
        thread = threading.Thread(target=lambda: opened.append(self._is_seen(path)), daemon=True)
        thread.start()
        thread.join(_TRY_S)
        return any(opened)

    def _is_seen(self, path: str) -> bool:
        """Whether Spark finds the file's status, which every scan requests before planning."""
        from paimon_magics.spark.files import load_files

        try:
            load_files(self._spark.read.format("binaryFile"), [path])
        except Exception:  # whatever Spark lacks, a jar, a key or the way there: tasks read instead
            return False
        return True


def spelled(path: str, schemes: dict[tuple[str, str], str]) -> str:
    """The path with the scheme by which Spark opens it."""
    place = _place(path)
    scheme = schemes.get(place, place[0])
    return path if scheme == place[0] else _with_scheme(path, scheme)


def _place(path: str) -> tuple[str, str]:
    scheme, separator, rest = path.partition("://")
    return (scheme, rest.partition("/")[0]) if separator else ("", "")


def _with_scheme(path: str, scheme: str) -> str:
    return f"{scheme}:{path.partition(':')[2]}"
