"""Returns the heap of an idle Spark to the machine.

Notebooks stay open for days and are idle most of the time. A JVM keeps the heap of its largest
statement: 1.4 GB after an insert of three million rows, of which 73 MB were in use. After a minute
without work, one full collection with tighter limits of free heap returns the rest, which takes 0.2
s. The limits are then restored, since with them statements take a fifth longer.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

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
