"""`paimon-spark-connect`: a Spark Connect server that notebooks share.

It runs Spark's own server, with the Java and the Python that a notebook's session would have here,
and with the settings of `connect-server.conf`. It prints one line when it is ready: its address.
SIGTERM and SIGINT end it. The exit code is that of Spark's launcher, 2 when it can't start.

The token of SPARK_CONNECT_AUTHENTICATE_TOKEN, if there is one, is what notebooks must know. All of
them run code in this account: docs/capacity.md says what that means.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from paimon_magics.errors import PaimonMagicsError, SetupError
from paimon_magics.spark.java import find_java, newest_java, prepare_environment, utf8_locale
from paimon_magics.temporary_folders import OwnedFolder, remove_left
from paimon_magics.version import __version__

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
PORT = 15002
_LOOPBACK = "127.0.0.1"
_HERE = Path(__file__).parent
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_UNABLE = 2
_LOOK_S = 0.2
_ENDS_S = 20
_PYTHON_IDLE_SECONDS = "120"  # Spark ends idle processes after a minute, then this begins
_SOCKET_FOLDER_CHARACTERS_MAX = 60  # as in module `sessions`


def parser() -> argparse.ArgumentParser:
    """The options of our own; all others are those of `spark-submit`."""
    options = argparse.ArgumentParser(
        prog="paimon-spark-connect",
        description="Run a Spark Connect server that notebooks share.",
        epilog="All other options are spark-submit's: --master, --driver-memory, --jars, --conf …",
        allow_abbrev=False,
    )
    options.add_argument("--host", default=_LOOPBACK, help="address to listen at")
    options.add_argument("--port", type=int, default=PORT, help="port to listen at")
    return options


def launch_words(host: str, port: int, folder: Path, more: Sequence[str]) -> list[str]:
    """The command that starts Spark's server; its files go to `folder`. Of two values of a setting
    Spark takes the last one, so `more`, the caller's own options, stand last."""
    from paimon_magics.spark import python_daemon

    # What is free of the heap goes back to the machine when nothing runs.
    java = ["-XX:G1PeriodicGCInterval=60000", "-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=30"]
    settings = {
        "spark.connect.grpc.binding.address": host,
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.port.maxRetries": "0",  # not at another port than notebooks know
        "spark.scheduler.allocation.file": (_HERE / "fair-scheduler.xml").as_uri(),
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.local.dir": str(folder),
        "spark.paimonMagics.version": __version__,
    }
    if _is_local(more):  # nothing listens for other machines, beside the server itself
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = _LOOPBACK
    if sys.platform == "linux":  # on macOS a fork after these imports may crash
        settings["spark.python.daemon.module"] = python_daemon.MODULE
    if len(str(folder)) <= _SOCKET_FOLDER_CHARACTERS_MAX:
        settings["spark.python.unix.domain.socket.dir"] = str(folder)
    else:
        settings["spark.python.unix.domain.socket.enabled"] = "false"
    if " " not in str(folder):
        java.append(f"-Djava.io.tmpdir={folder}")
    settings["spark.driver.defaultJavaOptions"] = " ".join(java)
    words = [str(_spark_home() / "bin" / "spark-submit"), "--class", _CLASS]
    words += ["--name", "paimon-spark-connect", "--load-spark-defaults"]
    words += ["--properties-file", str(_HERE / "connect-server.conf")]
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    return [*words, *more, "spark-internal"]


def launch_environment(environ: Mapping[str, str], more: Sequence[str] = ()) -> dict[str, str]:
    """The environment of Spark's server with the options `more`. Raises SetupError if there is no
    Java for it."""
    from paimon_magics.spark import python_daemon

    java = find_java(environ, newest_java(importlib.metadata.version("pyspark")))
    environment = {**environ, **prepare_environment(java), **utf8_locale(environ)}
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault(python_daemon.IDLE_SECONDS, _PYTHON_IDLE_SECONDS)
    if _is_local(more):
        environment.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    environment["SPARK_HOME"] = str(_spark_home())
    environment.pop("SPARK_REMOTE", None)  # Spark's launcher would be a client
    return environment


def main(arguments: Sequence[str]) -> int:
    """Run the server until a signal; return the exit code. Raises SetupError if it can't start."""
    options, more = parser().parse_known_args(arguments)
    _check_open(options.host, options.port, os.environ)
    environment = launch_environment(os.environ, more)
    remove_left()
    owned = OwnedFolder("connect")
    try:
        words = launch_words(options.host, options.port, owned.path, more)
        server = subprocess.Popen(words, env=environment, start_new_session=True)
        try:
            return _watched(server, options.host, options.port)
        finally:
            _end(server)
    finally:
        owned.remove()


def command() -> None:
    """The program `paimon-spark-connect`."""
    try:
        sys.exit(main(sys.argv[1:]))
    except PaimonMagicsError as error:
        print(error, file=sys.stderr)
        sys.exit(_UNABLE)


def _spark_home() -> Path:
    """SPARK_HOME, else the Spark of the package `pyspark`, which is not imported."""
    named = os.environ.get("SPARK_HOME")
    spec = importlib.util.find_spec("pyspark")
    assert named or (spec is not None and spec.origin is not None)
    return Path(named) if named else Path(str(spec.origin)).parent  # type: ignore[union-attr]


def _is_local(more: Sequence[str]) -> bool:
    """Whether spark-submit's options leave the tasks in the server's own process."""
    masters = [
        following if word == "--master" else word.rpartition("=")[2]
        for word, following in zip_longest(more, more[1:], fillvalue="")
        if word == "--master" or word.startswith(("--master=", "spark.master="))
    ]
    return not masters or masters[-1].startswith("local")


def _check_open(host: str, port: int, environ: Mapping[str, str]) -> None:
    """Raise SetupError for an address that strangers could reach, or that is taken."""
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback and not environ.get(TOKEN):
        raise SetupError(
            f"A server at {host} without a token would run anybody's code.",
            hint=f"Set {TOKEN} to a long random text, which notebooks have in their environment "
            "too; and let them reach it by TLS, by a proxy in front of it.",
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise SetupError(
                f"The server can't listen at {host}:{port}: {error.strerror}.",
                hint="End what listens there, or choose another port by --port.",
            ) from error


def _watched(server: subprocess.Popen[bytes], host: str, port: int) -> int:
    """Say when the server answers, and wait for its end or a signal; return the exit code."""
    ended: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: ended.append(number))
    is_ready = False
    while server.poll() is None and not ended:
        if not is_ready and _answers(host, port):
            is_ready = True
            print(f"Spark Connect server at sc://{host}:{port}", flush=True)
        time.sleep(_LOOK_S)
    return 0 if ended else int(server.returncode)


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_LOOK_S):
            return True
    except OSError:
        return False


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the JVM, and its Python processes with it."""
    server.terminate()
    try:
        server.wait(_ENDS_S)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


if __name__ == "__main__":
    command()
