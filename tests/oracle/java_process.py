"""Runs Paimon's Java library in a JVM of its own, as a client process like any other."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from paimon_magics.spark.java import find_java
from tests.backends.jvm import JVM_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOURCE = Path(__file__).with_name("JavaWriter.java")


def compile_java_writer(spark: SparkSession, folder: Path) -> str:
    """Compile the writer in Spark's JVM, into a folder. Return the class path to run it with."""
    compiler = spark._jvm.org.codehaus.janino.SimpleCompiler()  # type: ignore[attr-defined]
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    thread = spark._jvm.java.lang.Thread.currentThread()  # type: ignore[attr-defined]
    compiler.setParentClassLoader(thread.getContextClassLoader())
    compiler.cook(_SOURCE.read_text())
    for name, code in compiler.getBytecodes().items():
        (folder / f"{name}.class").write_bytes(code)
    jars = [jar.removeprefix("file:") for jar in str(spark.conf.get("spark.jars")).split(",")]
    own = os.path.join(os.path.dirname(pyspark.__file__), "jars", "*")
    return os.pathsep.join([str(folder), *jars, own])


def start_java_writer(
    class_path: str, options: Mapping[str, str], table: str, first: int, commits: int
) -> subprocess.Popen[str]:
    """Start a JVM that commits the keys `first` … `first + commits - 1`, one row (k INT, v STRING)
    in each commit, through the REST catalog of `options`, which may include a store's."""
    rest = ("uri", "warehouse", "token")
    return subprocess.Popen(
        [
            str(find_java(os.environ).home / "bin" / "java"),
            "-Xmx256m",
            *JVM_OPTIONS,
            f"-Djava.io.tmpdir={class_path.split(os.pathsep)[0]}",  # a folder of the test's
            "-cp",
            class_path,
            "JavaWriter",
            *(options[key] for key in rest),
            table,
            str(first),
            str(commits),
            *(f"{key}={value}" for key, value in options.items() if key not in rest),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
