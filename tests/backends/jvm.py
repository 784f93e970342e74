"""How the JVMs of the tests are started.

They live for seconds or some minutes, and run most of their code a few times: the second compiler,
which takes a third of the CPU time of such a JVM, and the collector for servers cost more than they
save. With these options the first tutorial takes 43 s of CPU time in place of 77.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

__all__ = ["JVM_OPTIONS", "prepare_jvms"]

JVM_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:MetaspaceSize=256m",  # Spark's classes take that much: no whole collection on the way
)


def prepare_jvms(environ: MutableMapping[str, str] = os.environ) -> None:
    """Tell Spark's launcher the options, in this process and those that it starts."""
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
        environ.setdefault(name, " ".join(JVM_OPTIONS))
