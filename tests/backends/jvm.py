"""The options of the tests' JVMs.

They live for seconds or some minutes, and run most of their code a few times. The second compiler
(C2), which takes a third of the CPU time of such a JVM, and the garbage collector for servers cost
more than they save. With these options the first tutorial takes 43 s of CPU time instead of 77.

Half of what is left of a start is loading classes. `make test` therefore has a JVM write the
classes of Spark that a session uses into an archive (Java's class-data sharing), which the others
map. A JVM passes over an archive that is absent, or of another Java or Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

__all__ = ["CLASS_ARCHIVE", "JVM_OPTIONS", "prepare_jvms", "write_class_archive"]

CLASS_ARCHIVE = Path(__file__).parents[2] / "build" / "spark-classes.jsa"
"""Made by `make test`; some 170 MB."""

JVM_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:ReservedCodeCacheSize=240m",  # without C2 it would be 48 MB, and swept
    "-XX:MetaspaceSize=256m",  # what Spark's classes take: no full collections while it grows
)
_NAMES = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")
_IN_PROCESS = "LIBHDFS_OPTS"  # of the JVM that a Python starts in itself when it opens HDFS
# An archive that doesn't fit is no matter for warnings in the output of a test.
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
_SESSION = """
import sys
import paimon_magics

with paimon_magics.connect(sys.argv[1], coordinator="in-process") as session:
    session.run("CREATE TABLE t (p STRING, k INT, v STRING, PRIMARY KEY (p, k)) "
                "PARTITIONED BY (p) TBLPROPERTIES ('bucket' = '2')")
    session.run("INSERT INTO t SELECT CAST(id % 2 AS STRING), id, 'x' FROM range(10)")
    session.run("SELECT p, count(DISTINCT v), max(k) FROM t GROUP BY p ORDER BY p").to_arrow()
    session.run("SELECT a.k FROM t a JOIN t$files f ON true WHERE a.k > 3").to_pandas()
    session.run("CREATE TEMPORARY VIEW v AS SELECT *, row_number() OVER (ORDER BY k) AS n FROM t")
    session.run("INSERT OVERWRITE t SELECT p, k + 1, upper(v) FROM v WHERE n IN (1, 2)")
    session.run("SELECT rowkind, v FROM t$audit_log UNION SELECT v, p FROM t").to_arrow()
    session.spark.createDataFrame(session.table("t").toPandas()).collect()
    gateway = session.spark.sparkContext._gateway
    session.spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


def prepare_jvms(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set the options for Spark's launcher, in this process and those that it starts."""
    mapped = (f"-XX:SharedArchiveFile={CLASS_ARCHIVE}", *_QUIET)
    for name in _NAMES:
        environ.setdefault(name, " ".join((*JVM_OPTIONS, *mapped)))
    environ.setdefault(_IN_PROCESS, " ".join(JVM_OPTIONS))


def write_class_archive() -> None:
    """Run a session whose JVM writes `CLASS_ARCHIVE` when it ends."""
    CLASS_ARCHIVE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CLASS_ARCHIVE.parent) as folder:
        made = Path(folder, CLASS_ARCHIVE.name)
        options = (*JVM_OPTIONS, f"-XX:ArchiveClassesAtExit={made}", *_QUIET)
        subprocess.run(
            [sys.executable, "-c", _SESSION, f"{folder}/warehouse"],
            env={**os.environ, **dict.fromkeys(_NAMES[:1], " ".join(options))},
            check=True,
            timeout=300,
        )
        os.replace(made, CLASS_ARCHIVE)


if __name__ == "__main__":
    write_class_archive()
