"""Flink on a cluster in one JVM of its own: its library from Maven, no installation."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from paimon_magics.spark.java import find_java
from tests.backends.jvm import JVM_OPTIONS
from tests.backends.maven import fetched_jar, fetched_jars
from tests.oracle.java_reader import PACKAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Failure", "FlinkJob", "compiled_flink_job", "flink_job"]

FLINK = "2.0.0"
_PARTS = (
    "annotations",
    "cep",
    "clients",
    "connector-datagen",
    "core",
    "core-api",
    "metrics-core",
    "queryable-state-client-java",
    "rpc-akka-loader",
    "rpc-core",
    "runtime",
    "streaming-java",
    "table-api-bridge-base",
    "table-api-java",
    "table-api-java-bridge",
    "table-common",
    "table-planner-loader",
    "table-runtime",
)
PACKAGES = (
    *(f"org.apache.flink:flink-{part}:{FLINK}" for part in _PARTS),
    "org.apache.flink:flink-shaded-asm-9:9.6-19.0",
    "org.apache.flink:flink-shaded-guava:32.1.3-jre-19.0",
    "org.apache.flink:flink-shaded-jackson:2.15.3-19.0",
    "org.apache.flink:flink-shaded-netty:4.1.100.Final-19.0",
    "org.apache.flink:flink-shaded-zookeeper-3:3.7.2-19.0",
    "com.esotericsoftware:kryo:5.6.2",
    "org.snakeyaml:snakeyaml-engine:2.6",
)
"""What runs SQL on a cluster in one JVM; some 100 MB. The rest is among Spark's own jars."""

_SOURCE = Path(__file__).with_name("FlinkJob.java")
CAUSE_LINES = 20
_LOG = """\
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.name = out
appender.out.type = Console
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{UNIX_MILLIS} %c{1} %m%n%throwable{20}
"""
_ADDRESSES = (
    "jobmanager.bind-host",
    "rest.address",
    "rest.bind-address",
    "taskmanager.bind-host",
    "taskmanager.host",
)
_FAILED = re.compile(
    r"^(\d+) (?:ExecutionGraph .* switched from \w+ to FAILED on |"
    r"JobMaster Trying to recover from a global failure)"
)


@dataclass(frozen=True, slots=True)
class Failure:
    """When a task or a job failed, in seconds since 1970, and the beginning of the trace."""

    at: float
    cause: str


class FlinkJob:
    """A running job, by its process and its log."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self._log = process, log

    def returncode(self) -> int | None:
        """The exit code of its JVM, 0 for a job that has ended well; None while it runs."""
        return self._process.poll()

    def log(self) -> str:
        """All that it has said."""
        return self._log.read_text(errors="replace")

    def checkpoints(self) -> int:
        """How many checkpoints it has completed."""
        return self.log().count(" Completed checkpoint ")

    def restarts(self) -> int:
        """How often it, or a part of it, has restarted."""
        return self.log().count(" switched from state RUNNING to RESTARTING")

    def failures(self) -> list[Failure]:
        """The failures of its tasks and of itself."""
        lines = self.log().splitlines()
        return [
            Failure(int(match[1]) / 1000, "\n".join(lines[number : number + CAUSE_LINES]))
            for number, line in enumerate(lines)
            if (match := _FAILED.match(line)) is not None
        ]


def compiled_flink_job(spark: SparkSession, folder: Path) -> str:
    """Compile the program in Spark's JVM, into a folder. Return the class path to run it with."""
    jars = fetched_jars(PACKAGES)
    jvm, gateway = spark._jvm, spark.sparkContext._gateway  # type: ignore[attr-defined]
    urls = gateway.new_array(jvm.java.net.URL, len(jars))
    for number, jar in enumerate(jars):
        urls[number] = jvm.java.io.File(jar).toURI().toURL()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.setParentClassLoader(jvm.java.net.URLClassLoader(urls))
    compiler.cook(_SOURCE.read_text())
    for name, code in compiler.getBytecodes().items():
        (folder / f"{name}.class").write_bytes(code)
    (folder / "log4j2.properties").write_text(_LOG)
    own = os.path.join(os.path.dirname(pyspark.__file__), "jars", "*")
    # Flink's first: Spark has other versions of some of their classes.
    return os.pathsep.join([str(folder), *jars, fetched_jar(PACKAGE), own])


@contextlib.contextmanager
def flink_job(
    class_path: str, options: Mapping[str, str], statements: Sequence[str]
) -> Iterator[FlinkJob]:
    """A streaming job of all INSERTs of `statements`, on a cluster with Flink's `options`. It is
    killed at the end of the block."""
    folder = Path(class_path.split(os.pathsep)[0])
    given = {**dict.fromkeys(_ADDRESSES, "127.0.0.1"), **options}
    log = folder / "flink.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                str(find_java(os.environ).home / "bin" / "java"),
                "-Xmx512m",
                *JVM_OPTIONS,
                f"-Djava.io.tmpdir={folder}",
                "-cp",
                class_path,
                "FlinkJob",
                *(f"{key}={value}" for key, value in given.items()),
                "--",
                *statements,
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield FlinkJob(process, log)
    finally:
        process.kill()
        process.wait()
