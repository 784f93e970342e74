"""An HDFS cluster for tests, in the JVM of a process of its own: Hadoop's minicluster.

`python -m tests.backends.hdfs_cluster FOLDER` prints the cluster's URL and runs until its input
ends. The jar comes through Spark, which fetches it once into its per-user cache.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.backends.maven import fetched_jar

__all__ = ["hdfs_cluster"]


@contextlib.contextmanager
def hdfs_cluster(folder: Path) -> Iterator[str]:
    """The URL of a cluster that keeps its blocks in `folder`, until the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(folder)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        yield next(line.strip() for line in lines if line.startswith("hdfs://"))
    finally:
        try:
            process.communicate("", timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()  # its JVM goes with it
            process.wait(60)


def _jar() -> str:
    """The jar of the minicluster, in the version of PySpark's Hadoop client."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    (client,) = jars.glob("hadoop-client-api-*.jar")
    match = re.fullmatch(r"hadoop-client-api-(.+)\.jar", client.name)
    assert match is not None
    return fetched_jar(f"org.apache.hadoop:hadoop-client-minicluster:{match[1]}")


def main(folder: str) -> None:
    """Run a cluster until the input ends."""
    from pyspark.conf import SparkConf
    from pyspark.java_gateway import launch_gateway

    # A JVM with Hadoop's classes, as for a driver, but without a Spark session.
    gateway = launch_gateway(SparkConf().set("spark.driver.extraClassPath", _jar()))
    jvm = gateway.jvm
    settings = jvm.org.apache.hadoop.hdfs.HdfsConfiguration()
    settings.set("hdfs.minidfs.basedir", folder)
    for name in ("namenode.http-address", "datanode.address", "datanode.http.address",
                 "datanode.ipc.address"):  # fmt: skip
        settings.set(f"dfs.{name}", "127.0.0.1:0")
    cluster = jvm.org.apache.hadoop.hdfs.MiniDFSCluster.Builder(settings).numDataNodes(1).build()
    print(f"hdfs://127.0.0.1:{cluster.getNameNodePort()}", flush=True)
    sys.stdin.read()
    gateway.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
