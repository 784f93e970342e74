"""Starts a Spark session for notebooks, and prepares one that the user brings.

A session is on a Spark that this process starts, or on a Spark Connect server (module `remote`).
The few settings that Spark Connect lacks (the Python executable, the number of slots) are queried
here, with a fallback.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from paimon_magics.errors import JobError, PaimonMagicsError, SetupError, value_text
from paimon_magics.settings import Settings
from paimon_magics.spark import python_daemon
from paimon_magics.spark.java import find_java, newest_java, prepare_environment, utf8_locale
from paimon_magics.spark.job_watching import doing
from paimon_magics.spark.jvm import forget_ended, is_connect, no_remote, started_with
from paimon_magics.spark.remote import SCHEME, open_remote, sees_files_of_ours, server_address
from paimon_magics.temporary_folders import OwnedFolder, remove_left

UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
"""Spark's setting by which its JVM and its Python processes talk by sockets of the file system."""

_is_inherited = False  # whether the parent of this process had Spark when it forked

_SOCKET_FOLDER = "spark.python.unix.domain.socket.dir"
_log_file: Path | None = None
_folder: OwnedFolder | None = None
_idle_watch: threading.Thread | None = None

_SLOTS_UNKNOWN = 8
_LOCAL_SLOTS = re.compile(r"local\[(\d+)")  # of a server of Spark Connect
_LOOPBACK = "127.0.0.1"
# A socket's path has 107 characters at most, of which PySpark's name for it takes 43.
_SOCKET_FOLDER_CHARACTERS_MAX = 60


def start(settings: Settings) -> SparkSession:
    """The process's Spark session: the active one, else a new one on `settings.master`, or on the
    Spark Connect server that SPARK_REMOTE names.

    A new local session binds to loopback only and logs nothing to the notebook. Raises SetupError
    when there is no Java to run it on, or Spark can't start, or the server can't be used.
    """
    active = _started()
    if active is not None:
        _check_on_server(active, settings.master)
        return adopt(active)
    address = server_address(settings.master, os.environ)
    if address is not None:
        spark = open_remote(address, settings)
        _remove_left_aside()
        return adopt(spark)
    with no_remote():
        return _start_own(settings)


def _start_own(settings: Settings) -> SparkSession:
    java = find_java(os.environ, newest_java(pyspark.__version__))
    os.environ.update(prepare_environment(java))
    os.environ.update(utf8_locale(os.environ))
    # Executors must run this Python; `python3` on PATH may be any other.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.appName("paimon-magics")
        .master(settings.master)
        .config("spark.driver.memory", settings.driver_memory)
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(settings.batch_rows))
    )
    global _folder, _idle_watch
    _folder = OwnedFolder("spark")
    folder = _folder.path
    sockets = _socket_folder(folder, settings.master)
    if sockets is not None:
        builder = builder.config(UNIX_SOCKETS, "true").config(_SOCKET_FOLDER, str(sockets))
    if settings.master.startswith("local"):
        builder = _on_this_machine(builder, folder)
    global _log_file
    log = _log_file = folder / "spark.log"
    try:
        with doing("Spark is starting"):
            spark = started_with(builder, log)
    except Exception as error:
        raise SetupError(
            f"Spark could not start on `{settings.master}`: {_first_line(error)}",
            hint=f"Check the Spark master. Spark's log is {log}.",
        ) from error
    _remove_left_aside()
    if settings.master.startswith("local") and not (_idle_watch and _idle_watch.is_alive()):
        _idle_watch = release_when_idle(spark)
    return adopt(spark)


def _check_on_server(active: SparkSession, master: str) -> None:
    """Raise SetupError if `master` names a server, and a Spark of this process is running."""
    if master.startswith(SCHEME) and not is_connect(active):
        raise SetupError(
            "This process has a Spark of its own running, and can't be on a Spark Connect server "
            "too.",
            hint="Restart the kernel, and connect there first.",
        )


def _remove_left_aside() -> None:
    """Remove what killed kernels have left: it may be large, so nothing waits for that."""
    threading.Thread(target=remove_left, name="temporary folders", daemon=True).start()


def _socket_folder(folder: Path, master: str) -> Path | None:
    """The folder of the sockets between Spark and its Python processes; None if each path of a
    socket would be too long. Spark leaves sockets behind: those in `folder` are removed with it.
    Executors on other machines don't have that folder."""
    shared = Path(tempfile.gettempdir())
    places = (folder, shared) if master.startswith("local") else (shared,)
    short = (place for place in places if len(str(place)) <= _SOCKET_FOLDER_CHARACTERS_MAX)
    return next(short, None)


def _on_this_machine(builder: SparkSession.Builder, folder: Path) -> SparkSession.Builder:
    """The builder of a session whose executors are here. Its files go to `folder`."""
    os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    logging_file = Path(__file__).with_name("log4j2.properties")
    java = f"-Dlog4j2.configurationFile={logging_file.as_uri()}"
    if " " not in str(folder):  # what Spark keeps beside its memory then goes with the folder
        java += f" -Djava.io.tmpdir={folder}"
    builder = (
        builder.config("spark.driver.host", _LOOPBACK)
        .config("spark.driver.bindAddress", _LOOPBACK)
        # Each of a thousand notebooks would try a thousand ports in turn.
        .config("spark.ui.port", "0")
        .config("spark.driver.extraJavaOptions", java)
    )
    if "SPARK_CONF_DIR" in os.environ:
        return builder
    # Another Python may not have the package. On macOS a fork after these imports may crash.
    if os.environ["PYSPARK_PYTHON"] == sys.executable and sys.platform == "linux":
        builder = builder.config("spark.python.daemon.module", python_daemon.MODULE)
    # Only without the user's own configuration. Spark would make the folder for its own tables
    # beside the notebook.
    return (
        builder.config("spark.sql.warehouse.dir", str(folder / "spark-warehouse"))
        # How often tasks report the rows that they have read, for the progress display.
        .config("spark.executor.heartbeatInterval", "2s")
        # Executors still give up after ten minutes without an answer, as by default.
        .config("spark.executor.heartbeat.maxFailures", "300")
    )


def log_file() -> Path | None:
    """The file with the error streams of the Spark that `start` started and of its tasks; None
    if it started none."""
    return _log_file


def _note_fork() -> None:
    global _is_inherited
    _is_inherited = _is_inherited or SparkContext._gateway is not None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def check_process(is_inherited: bool = False) -> None:
    """Raise SetupError in a process that was forked from a process with Spark, or if the caller's
    session `is_inherited`. PySpark's connections to the JVM are shared then: each process could
    read the responses to the other's calls."""
    if _is_inherited or is_inherited:
        raise SetupError(
            "This process was forked from a process with a session or Spark and can't use either: "
            "both processes would read the same JVM responses.",
            hint='Start it with multiprocessing.get_context("spawn"), and connect there.',
        )


def is_started() -> bool:
    """Whether the process has a live Spark session, which `start` would return."""
    return _started() is not None


def _started() -> SparkSession | None:
    forget_ended()
    try:
        active = SparkSession.getActiveSession()
    except Exception:  # a JVM that another caller started is gone
        return None
    return active if active is not None and is_alive(active) else None


def adopt(spark: Any) -> SparkSession:
    """Prepare a session, ours or the user's, for our jobs; raises SetupError for anything else."""
    if not hasattr(spark, "sql") or not hasattr(spark, "createDataFrame"):
        raise SetupError(
            f"`spark` is {value_text(spark)}, not a SparkSession.",
            hint="Pass a SparkSession, or leave `spark` out to start one.",
        )
    # PySpark logs every exception that it raises; a notebook shows the exception itself.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with suppress(Exception):  # Spark Connect has no context; its server chooses its Python
        context = spark.sparkContext
        if "PYSPARK_PYTHON" not in os.environ and context.master.startswith("local"):
            context.pythonExec = sys.executable
    return spark  # type: ignore[no-any-return]


def is_alive(spark: SparkSession) -> bool:
    """Whether the session still responds: false after `spark.stop()` and when the JVM is gone."""
    context = None
    with suppress(Exception):  # Spark Connect has none
        context = spark.sparkContext
    try:
        if context is not None:
            return bool(context.defaultParallelism)
        spark.conf.get("spark.app.name", "")
    except Exception:  # of py4j, of a socket, of grpc, or of a context without a JVM
        return False
    return True


def ended(spark: SparkSession) -> SetupError | None:
    """The error for a session whose JVM is gone; None if it responds."""
    if is_alive(spark):
        return None
    if is_connect(spark):
        return SetupError(
            "The session on the Spark Connect server has ended, so the statement could not be run.",
            hint="Connect again to open another one on the same warehouse: "
            "paimon_magics.connect() or %paimon connect. The server was restarted or can't be "
            "reached, or this process gave it no sign of life for too long.",
        )
    return SetupError(
        "Spark has ended, so the statement could not be run.",
        hint="Connect again to restart Spark on the same warehouse: paimon_magics.connect() or "
        "%paimon connect.",
    )


def end_behind(error: Exception, spark: SparkSession) -> SetupError | None:
    """The error for a call that failed because the session's JVM is gone; None if the JVM is alive.
    PySpark's own error does not explain this to the user. Errors of this project other than
    JobError have another cause."""
    is_ours = isinstance(error, PaimonMagicsError) and not isinstance(error, JobError)
    return None if is_ours else ended(spark)


def runs_here(spark: SparkSession) -> bool:
    """Whether a path without a scheme is on this machine's disk: Spark's master is local, and its
    default file system is the local one. A server of Spark Connect must also read files of this
    process."""
    with suppress(Exception):
        master = spark.conf.get("spark.master", "") or ""
        store = spark.conf.get("spark.hadoop.fs.defaultFS", "file:///") or ""
        is_local = master.startswith("local") and store.startswith("file:")
        return is_local and (not is_connect(spark) or sees_files_of_ours(spark))
    return False


def is_one_process(spark: SparkSession) -> bool:
    """Whether all tasks run in the driver's JVM, and read files of this process; False if that is
    unknown."""
    with suppress(Exception):
        master = spark.conf.get("spark.master", "") or ""
        is_local = master == "local" or master.startswith("local[")
        return is_local and (not is_connect(spark) or sees_files_of_ours(spark))
    return False


def slots(spark: SparkSession) -> int:
    """The number of tasks that can run at once, or a guess if that is unknown."""
    with suppress(Exception):
        return max(1, int(spark.sparkContext.defaultParallelism))
    with suppress(Exception):
        named = spark.conf.get("spark.default.parallelism", "")
        of_master = _LOCAL_SLOTS.match(spark.conf.get("spark.master", "") or "")
        return max(1, int(named or (of_master[1] if of_master else _SLOTS_UNKNOWN)))
    return _SLOTS_UNKNOWN


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


# Returns the heap of an idle Spark to the machine.
#
# Notebooks stay open for days and are idle most of the time. A JVM keeps the heap of its largest
# statement: 1.4 GB after an insert of three million rows, of which 73 MB were in use. After a
# minute without work, one full collection with tighter limits of free heap returns the rest, which
# takes 0.2 s. The limits are then restored, since with them statements take a fifth longer.


_log = logging.getLogger(__name__)
_LOOK_S = 30.0
_QUIET_LOOKS = 2
_IDLE_BYTES = 16 * 1024 * 1024
"""What an idle Spark takes of the heap between two looks at most: for heartbeats, and the looks."""
_SPARE = 1.5
_LIMITS = {"MinHeapFreeRatio": "10", "MaxHeapFreeRatio": "20"}
_DIAGNOSTICS = "com.sun.management.HotSpotDiagnosticMXBean"
_COLLECTIONS_MAX = 4
"""Java's serial collector, which small containers have, returns a part with each collection."""


def release_when_idle(spark: SparkSession, look_s: float = _LOOK_S) -> threading.Thread:
    """Look every `look_s` seconds, in a thread that ends with the JVM, whether it is idle; then
    `release` its heap, once until it works again."""
    gateway: Any = spark.sparkContext._gateway
    thread = threading.Thread(
        target=_watch, args=(gateway, look_s), name="idle memory of Spark", daemon=True
    )
    thread.start()
    return thread


def release(jvm: Any) -> int:
    """Return the free heap to the machine; return the number of bytes. The limits of free heap are
    restored afterwards. Raises py4j's errors if the JVM has no such limits."""
    diagnostics = _bean(jvm, _DIAGNOSTICS)
    memory = jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
    before = memory.getHeapMemoryUsage().getCommitted()
    limits = {name: diagnostics.getVMOption(name).getValue() for name in _LIMITS}
    try:
        for name, limit in _LIMITS.items():  # the lower one first, and last when they go back
            diagnostics.setVMOption(name, limit)
        for _ in range(_COLLECTIONS_MAX):
            jvm.java.lang.System.gc()
            usage = memory.getHeapMemoryUsage()
            if usage.getCommitted() < _SPARE * usage.getUsed():
                break
    finally:
        for name, limit in reversed(limits.items()):
            diagnostics.setVMOption(name, limit)
    return int(before - memory.getHeapMemoryUsage().getCommitted())


def _watch(gateway: Any, look_s: float) -> None:
    jvm, child = gateway.jvm, getattr(gateway, "proc", None)
    # Its JVM may end at any moment, and not each JVM has these beans.
    with suppress(Exception):
        quiet, used = 0, _used_bytes(jvm)
        while True:
            time.sleep(look_s)
            # A call to a JVM that has ended fails, and Py4J prints it.
            if SparkContext._gateway is not gateway or (child and child.poll() is not None):
                return
            before, used = used, _used_bytes(jvm)
            is_idle = 0 <= used - before < _IDLE_BYTES
            quiet = quiet + 1 if is_idle else 0
            if quiet == _QUIET_LOOKS:
                _log.debug("Spark's idle JVM returned %d bytes.", release(jvm))


def _used_bytes(jvm: Any) -> int:
    return int(
        jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed()
    )


def _bean(jvm: Any, name: str) -> Any:
    kind = jvm.java.lang.Class.forName(name)
    return jvm.java.lang.management.ManagementFactory.getPlatformMXBean(kind)
