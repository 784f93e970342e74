"""The options of the tests' JVMs.

They live for seconds or some minutes, and run most of their code a few times. The second compiler
(C2), which takes a third of the CPU time of such a JVM, and the garbage collector for servers cost
more than they save. With these options the first tutorial takes 43 s of CPU time instead of 77.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

__all__ = ["JVM_OPTIONS", "prepare_jvms"]

JVM_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:MetaspaceSize=256m",  # what Spark's classes take: no full collections while it grows
)


def prepare_jvms(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set the options for Spark's launcher, in this process and those that it starts."""
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
        environ.setdefault(name, " ".join(JVM_OPTIONS))
