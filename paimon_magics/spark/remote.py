"""Sessions on a Spark Connect server that many notebooks share.

Such a notebook has no JVM of its own. The server ends a session that has been silent for a while,
so that the views and results of a killed notebook go. A live notebook may be silent for hours:
a thread gives a sign of life. A session ends at once with its notebook if that ends by itself.
"""

from __future__ import annotations

import atexit
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from paimon_magics.errors import SetupError
from paimon_magics.redaction import conceal, redacted
from paimon_magics.settings import Settings
from paimon_magics.spark.job_watching import doing
from paimon_magics.temporary_folders import OwnedFolder
from paimon_magics.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEME = "sc://"
VERSION = "spark.paimonMagics.version"
"""The server's setting with the version of this package there."""

_ENVIRONMENT = "SPARK_REMOTE"
_TIMEOUT = "spark.connect.session.manager.defaultSessionTimeout"
_TIMEOUT_DEFAULT = "60m"
_SIGNS = 5  # of life, before the server would end a session
_SIGN_S_MAX = 300.0
_ANSWERS_S = 20.0
_TOKEN = re.compile(r";token=([^;]+)")
_DETAILS = re.compile(r'details = "(.+?)"\n')  # in the text of an error of grpc's
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
# A server that restarts has forgotten its sessions: PySpark's ten minutes of tries are in vain.
_RETRIES_MAX, _RETRY_MS_MAX = 8, 5_000

_sees_files: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def server_address(master: str, environ: Mapping[str, str]) -> str | None:
    """The address of the server that a session is asked for on: the setting `master`, or
    SPARK_REMOTE where `master` has its default. None: a Spark of this process's own. Raises
    SetupError if SPARK_REMOTE is no address of a server."""
    if master.startswith(SCHEME):
        return master
    remote = environ.get(_ENVIRONMENT, "").strip()
    if not remote or master != Settings().master:
        return None
    if not remote.startswith(SCHEME):
        raise SetupError(
            f"{_ENVIRONMENT} is `{remote}`, which is no address of a Spark Connect server.",
            hint=f"Set it to {SCHEME}HOST:PORT, or unset it: the setting `master` chooses a Spark "
            "of the notebook's own.",
        )
    return remote


def open_remote(address: str, settings: Settings) -> SparkSession:
    """A new session on the Spark Connect server at `address`. Raises SetupError if PySpark's
    packages for it are missing, the server does not answer or refuses the token, or if it runs
    another version of this package."""
    for match in _TOKEN.finditer(address):
        conceal(match[1])
    place = urlsplit(address).netloc
    _check_answers(address, place)
    from pyspark.sql import SparkSession

    _forget_ended()
    builder: Any = SparkSession.builder
    try:
        with doing(f"A session on the Spark server at {place} is being opened"):
            spark = builder.remote(address).getOrCreate()
            _set_retries(spark, _RETRIES_MAX)
            _check_version(spark, place)
            spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(settings.batch_rows))
    except SetupError:
        _forget_ended()
        raise
    except Exception as error:
        _forget_ended()
        raise SetupError(
            f"The Spark Connect server at {place} refused a session: {_first_line(error)}",
            hint="Check the token: SPARK_CONNECT_AUTHENTICATE_TOKEN, or `;token=…` at the end of "
            "the address. A server with a token is reached as `localhost`, or by TLS.",
        ) from error
    _keep(spark)
    return cast("SparkSession", spark)


def sees_files_of_ours(spark: SparkSession) -> bool:
    """Whether a server of Spark Connect reads temporary files of this process: it is on this
    machine, and its account may. Tried once for each session."""
    known = _sees_files.get(spark)
    if known is None:
        from paimon_magics.spark.files import load_files

        folder = OwnedFolder("seen")
        known = False
        try:
            probe = folder.path / "probe"
            probe.write_bytes(b"")
            with suppress(Exception):
                frame = load_files(spark.read.format("binaryFile"), [probe.as_uri()])
                frame.schema  # noqa: B018 - the server looks for the file only now
                known = True
        finally:
            folder.remove()
        _sees_files[spark] = known
    return known


def _check_answers(address: str, place: str) -> None:
    try:
        import grpc  # type: ignore[import-untyped]
        from pyspark.sql.connect.client.core import DefaultChannelBuilder
    except ImportError as error:
        raise SetupError(
            f"A session on the Spark Connect server at {place} needs packages that are missing: "
            f"{_first_line(error)}",
            hint="Run pip install 'paimon-magics[connect]', and restart the kernel.",
        ) from error
    try:
        channel = DefaultChannelBuilder(address).toChannel()
    except Exception as error:
        raise SetupError(
            f"`{redacted(address)}` is no address of a Spark Connect server: {_first_line(error)}",
            hint=f"Write {SCHEME}HOST:PORT.",
        ) from error
    try:
        with doing(f"The Spark server at {place} is being reached"):
            grpc.channel_ready_future(channel).result(timeout=_ANSWERS_S)
    except grpc.FutureTimeoutError as error:
        raise SetupError(
            f"The Spark Connect server at {place} did not answer for {_ANSWERS_S:.0f} s.",
            hint="Check that it runs, and its address: the setting `master`, or SPARK_REMOTE. A "
            "server with a token is reached as `localhost`, or by TLS (`;use_ssl=true`).",
        ) from error
    finally:
        channel.close()


def _check_version(spark: Any, place: str) -> None:
    theirs = spark.conf.get(VERSION, "")
    if theirs and theirs != __version__:
        raise SetupError(
            f"The Spark Connect server at {place} has paimon-magics {theirs}, this notebook has "
            f"{__version__}.",
            hint="Tasks of the server run this notebook's code: install the same version at both, "
            "and restart the server and the kernel.",
        )


def _set_retries(spark: Any, count: int) -> None:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    policy = DefaultPolicy(max_retries=count, max_backoff=_RETRY_MS_MAX)
    spark.client.set_retry_policies([policy])


def _forget_ended() -> None:
    """Let PySpark open another session. It would return the last one, or keep it as the active one,
    though that has ended at the server."""
    from pyspark.sql.connect.session import SparkSession

    kinds: Any = SparkSession
    active = getattr(getattr(kinds, "_active_session", None), "session", None)
    for session in (getattr(kinds, "_default_session", None), active):
        if session is not None:
            session.release_session_on_close = False
            session.stop()


def _keep(spark: Any) -> None:
    """Keep the session until it is stopped, or this process ends."""
    atexit.register(_release, spark)
    every_s = min(_seconds(spark.conf.get(_TIMEOUT, _TIMEOUT_DEFAULT)) / _SIGNS, _SIGN_S_MAX)
    threading.Thread(
        target=_give_signs, args=(spark, every_s), name="signs of life for Spark", daemon=True
    ).start()


def _release(spark: Any) -> None:
    """End the session at the server, which else keeps its views and results for a while."""
    with suppress(Exception):
        if not spark.is_stopped:
            _set_retries(spark, 0)
            spark.stop()


def _give_signs(spark: Any, every_s: float) -> None:
    pause = threading.Event()
    while not pause.wait(every_s) and not spark.is_stopped:
        with suppress(Exception):  # a statement reports what is wrong
            spark.conf.get("spark.app.name", "")


def _seconds(duration: str | None) -> float:
    """A duration in Spark's notation; a number alone is of milliseconds."""
    match = _DURATION.fullmatch((duration or "").strip())
    return int(match[1]) * _UNIT_S[match[2] or "ms"] if match else _seconds(_TIMEOUT_DEFAULT)


def _first_line(error: BaseException) -> str:
    details = _DETAILS.search(str(error))
    lines = [details[1]] if details else str(error).strip().splitlines()
    return redacted(lines[0]) if lines else type(error).__name__


# Python functions that run where the server has its local files.


def run_on_server(spark: SparkSession, work: Callable[[], object]) -> None:
    """Run `work` in a task; Spark retries it if it fails, and finally raises a
    PaimonMagicsError."""
    try:
        spark.range(0, 1, 1, 1).mapInArrow(_Run(work), "id BIGINT").collect()
    except Exception as error:
        # It loads much, which a session needs later: a JVM starts meanwhile.
        from paimon_magics.spark.failures import translate

        raise translate(error) from error


@dataclass(frozen=True)
class _Run:
    """Runs in the task."""

    work: Callable[[], object]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.work()
            yield batch
