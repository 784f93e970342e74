"""Spark's JVM: its start and end, and its objects that PySpark has no public method for.

Only a session in this process has a JVM; one on a Spark Connect server has none (`is_connect`). No
other module accesses these objects. Only `sessions` uses PySpark's gateway as well, to make the
JVM return memory. `java` finds the Java that a JVM runs on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark import SparkContext, java_gateway
from pyspark.sql import SparkSession

_CATALOG = "_paimon_magics_catalog"
_ENDS_S = 10


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a session of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def started_with(builder: SparkSession.Builder, log: Path) -> SparkSession:
    """The session of `builder`, and with it a JVM, whose error stream and its Python processes'
    goes to the file `log`. No JVM is left if that fails or is interrupted. Raises what PySpark
    raises."""
    with _error_stream_to(log), _jvm_of_body():
        return builder.getOrCreate()


def forget_ended() -> None:
    """Let PySpark start another JVM if the one that this process started has ended."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None and process.poll() is not None:
        _forget()


def stop(spark: SparkSession) -> None:
    """Stop Spark, and end the JVM if this process has started it, which `SparkSession.stop` leaves
    with its heap. A session that is asked for later starts another one."""
    spark.stop()
    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None or SparkContext._active_spark_context is not None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    process.stdin.close()  # the JVM ends at the end of its input
    with suppress(subprocess.TimeoutExpired):
        process.wait(_ENDS_S)


@contextmanager
def no_remote() -> Iterator[None]:
    """Hide SPARK_REMOTE in the body: PySpark, and Spark's launcher, prefer it to a master. Nothing
    goes on by Spark Connect, either, where this process had a session that has ended."""
    os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
    remote = os.environ.pop("SPARK_REMOTE", None)
    try:
        yield
    finally:
        if remote is not None:
            os.environ["SPARK_REMOTE"] = remote


@contextmanager
def _jvm_of_body() -> Iterator[None]:
    """End the JVM that the body starts, if the body fails or is interrupted.

    PySpark would leave it running: as a process without a parent and with an unknown port, or with
    an incomplete context that prevents another context.
    """
    processes: list[subprocess.Popen[bytes]] = []
    module: Any = java_gateway
    popen = module.Popen

    def noted(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = popen(*args, **options)
        processes.append(process)
        return process

    module.Popen = noted
    try:
        yield
    except BaseException as error:
        is_interrupted = not isinstance(error, Exception)
        earlier = getattr(SparkContext._gateway, "proc", None)
        if is_interrupted and earlier is not None:
            processes.append(earlier)  # the context was begun in it
        if processes:
            _forget()
        for process in processes:
            process.kill()
            process.wait(_ENDS_S)
        raise
    finally:
        module.Popen = popen


@contextmanager
def _error_stream_to(log: Path) -> Iterator[None]:
    """Processes that start in the body write their errors to `log`.

    The JVM and its Python daemons keep the error stream that they start with. They would write the
    traces of every failed task into the notebook, which shows the exception already.
    """
    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        os.dup2(descriptor, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(descriptor)


def _forget() -> None:
    """Let PySpark start another JVM. It keeps objects of a JVM that is gone."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


# Objects in the JVM.


def activate(spark: SparkSession) -> None:
    """Make the session the JVM's active one."""
    session: Any = spark
    classes = session._jvm.org.apache.spark.sql.classic
    classes.SparkSession.setActiveSession(session._jsparkSession)


def has_temporary_view(spark: SparkSession, name: str) -> bool:
    """Whether a name of one part is a temporary view of the session. No catalog is asked."""
    session: Any = spark
    catalog = vars(session).get(_CATALOG)  # the same one for the session's life
    if catalog is None:
        catalog = vars(session)[_CATALOG] = session._jsparkSession.sessionState().catalog()
    return bool(catalog.getTempView(name).isDefined())


def status_store(spark: SparkSession) -> Any:
    """The store behind Spark's SQL page, which exists without the page too (public in Scala, and
    unstable)."""
    session: Any = spark
    return session._jsparkSession.sharedState().statusStore()


def zone_transitions_text(spark: SparkSession, zone: str) -> str:
    """The transitions of a time zone by the JVM's database, as Java writes them, by one call each
    for the zone and its rules."""
    session: Any = spark
    rules = session._jvm.java.time.ZoneId.of(zone).getRules()
    return str(rules.getTransitions().toString())


def settings_text(spark: SparkSession) -> str:
    """All settings that have been set, in one text and by one call."""
    conf: Any = spark.conf
    return str(conf._jconf.getAllAsJava().toString())
