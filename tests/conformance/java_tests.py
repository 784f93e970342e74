"""Runs Paimon's Java tests of a REST catalog, compiled from a checkout, as clients of coordinators.

Needs a JDK. Paimon's library and those of its tests come from Maven; the rest is in Spark's jars.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as xml
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyspark

from tests.backends.maven import fetched_jars
from tests.conformance.outcomes import Outcome
from tests.oracle.java_reader import PACKAGE, S3_PACKAGE

__all__ = ["java_outcomes"]

_PACKAGES = (
    PACKAGE,
    "org.junit.platform:junit-platform-console-standalone:1.8.1",
    "org.assertj:assertj-core:3.27.7",
    "net.bytebuddy:byte-buddy:1.18.2",
    "net.bytebuddy:byte-buddy-agent:1.18.2",
    "org.mockito:mockito-core:3.4.6",
    "org.objenesis:objenesis:3.1",
    "com.squareup.okhttp3:mockwebserver:4.12.0",
    "com.squareup.okhttp3:okhttp:4.12.0",
    "com.squareup.okio:okio-jvm:3.6.0",
    "org.jetbrains.kotlin:kotlin-stdlib:1.9.10",
)
_ADAPTER = Path(__file__).parent
_ANYWHERE = ("CoordinatorCatalogTest",)
_CLASSES = ("CoordinatorSimpleTableTest", *_ANYWHERE)
"""The first is about tables in local folders."""
_SOURCES = (
    "paimon-core/src/test/java",
    "paimon-common/src/test/java",
    "paimon-test-utils/src/main/java",
)
_RESOURCES = ("paimon-core/src/test/resources", "paimon-common/src/test/resources")
_MINUTES_MAX = 30


def java_outcomes(
    source: Path, build: Path, host: str, only: Sequence[str], *, on_s3: bool
) -> list[Outcome]:
    """What each test did. `source` is a checkout of Paimon, `host` starts the coordinators; `only`
    are names of classes and `Class.method`, none for all that can run there."""
    folder = build / "java"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    packages = (*_PACKAGES, S3_PACKAGE) if on_s3 else _PACKAGES
    jars = [*fetched_jars(packages), str(Path(pyspark.__file__).parent / "jars" / "*")]
    _compile(source, folder / "classes", jars)
    _run(source, folder, jars, host, only or (_ANYWHERE if on_s3 else _CLASSES))
    return list(_reported(folder / "reports"))


def _compile(source: Path, classes: Path, jars: list[str]) -> None:
    """Compile the adapter, with what it needs of Paimon's tests."""
    classes.mkdir()
    roots = [*_ADAPTER.glob("*.java"), *_providers(source)]
    subprocess.run(
        [
            *("javac", "-nowarn", "-proc:none", "-implicit:class", "-Xlint:none"),
            *("-d", str(classes), "-cp", os.pathsep.join(jars)),
            *("-sourcepath", os.pathsep.join(str(source / folder) for folder in _SOURCES)),
            *map(str, roots),
        ],
        check=True,
    )


def _providers(source: Path) -> Iterator[Path]:
    """The classes that Paimon's tests register as services: Java looks for all that are named."""
    for folder in _RESOURCES:
        for file in (source / folder / "META-INF" / "services").iterdir():
            for line in file.read_text().splitlines():
                name = line.partition("#")[0].partition("$")[0].strip().replace(".", "/")
                found = (source / root / f"{name}.java" for root in _SOURCES)
                yield from (path for path in found if name and path.exists())


def _run(source: Path, folder: Path, jars: list[str], host: str, only: Sequence[str]) -> None:
    path = [str(folder / "classes"), *(str(source / part) for part in _RESOURCES), *jars]
    with (folder / "output.txt").open("w") as output:
        subprocess.run(
            [
                *("java", "-Xmx1g", "-cp", os.pathsep.join(path)),
                f"-Djava.io.tmpdir={_made(folder / 'scratch')}",
                *("org.junit.platform.console.ConsoleLauncher", "--include-engine=junit-jupiter"),
                *("--details=tree", "--disable-banner", "--disable-ansi-colors"),
                f"--reports-dir={folder / 'reports'}",
                *_chosen(only),
            ],
            check=False,  # tests that fail are in the reports
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "CONFORMANCE_HOST": host},
            timeout=60 * _MINUTES_MAX,
        )


def _chosen(only: Sequence[str]) -> list[str]:
    package = "org.apache.paimon.rest"
    return [
        f"--select-{'method' if '.' in name else 'class'}={package}.{name.replace('.', '#')}"
        for name in only
    ]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _reported(reports: Path) -> Iterator[Outcome]:
    """The outcomes in JUnit's report."""
    for case in xml.parse(reports / "TEST-junit-jupiter.xml").getroot().iter("testcase"):
        problem = next((found for kind in ("failure", "error") for found in case.iter(kind)), None)
        if case.find("skipped") is None:
            said = None if problem is None else problem.text or problem.get("message") or "failed"
            name = re.sub(r"\(.*?\)", "", str(case.get("name")))
            yield Outcome(f"{str(case.get('classname')).rpartition('.')[2]}.{name}", said)
