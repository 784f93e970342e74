"""`doctor`: all that somebody asks who is told that something does not work, in one text to copy.

Versions, Java, Spark, the warehouse and its store (tried now), the coordinator's process, where the
logs and the state are, settings and environment. Nothing is started for it, and no secret is in it.
It works without a connection, and after one that failed.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from paimon_magics.boundary import short_errors
from paimon_magics.coordinator.client.starting import state_at
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.redaction import MASK, is_secret_name, masked, redacted
from paimon_magics.session.opening import active_session, failed_connect
from paimon_magics.settings import Settings
from paimon_magics.spark.java import find_java
from paimon_magics.spark.sessions import log_file
from paimon_magics.tables.stores.probes import probe_store

if TYPE_CHECKING:
    from paimon_magics.session.session import Session

__all__ = ["Diagnosis", "doctor"]

_PACKAGES = ("paimon-magics", "pyspark", "pypaimon", "pypaimon-rust", "pyarrow", "pandas", "polars",
             "obstore", "sqlglot", "ipython", "ipywidgets")  # fmt: skip
_VARIABLES = ("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "TZ", "XDG_STATE_HOME")
_PREFIXES = ("PAIMON_", "AWS_", "PYSPARK_")
_NAME_WIDTH = 22

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, in sections of names and values; as text, a page to copy."""

    sections: tuple[tuple[str, Facts], ...]

    def __getitem__(self, section: str) -> dict[str, str]:
        """The facts of one section, by their names."""
        return dict(dict(self.sections)[section])

    def __str__(self) -> str:
        lines: list[str] = []
        for title, facts in self.sections:
            lines.append(title)
            lines += [f"  {name:{_NAME_WIDTH}} {value}".rstrip() for name, value in facts]
        return redacted("\n".join(lines))

    __repr__ = __str__


@short_errors
def doctor(session: Session | None = None) -> Diagnosis:
    """Look at everything that a session rests on; `session` is the open one where none is given."""
    session = session or active_session()
    options = {} if session is None else dict(session.catalog_options)
    sections = [
        ("Versions", _versions()),
        ("Spark", _spark(session)),
        ("Connection", _connection(session)),
    ]
    if session is not None:
        sections += [
            ("Catalog options", tuple((k, masked(k, v)) for k, v in sorted(options.items()))),
            ("Store", _store(options)),
            ("Coordinator", _coordinator(session, options)),
            ("Settings", _settings(session.settings)),
        ]
    sections.append(("Environment", _environment(os.environ)))
    return Diagnosis(tuple(sections))


def _versions() -> Facts:
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    facts = [("Python", f"{platform.python_version()} ({sys.executable})"), ("System", system)]
    for name in _PACKAGES:
        try:
            facts.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            facts.append((name, "not installed"))
    try:
        java = find_java(os.environ)
        facts.append(("Java", f"{java.version} in {java.home} ({java.source})"))
    except PaimonMagicsError as error:
        facts.append(("Java", error.message))
    return tuple(facts)


def _spark(session: Session | None) -> Facts:
    log = log_file()
    started = (("log", str(log) if log is not None else "that of the session that was given"),)
    if session is None:
        return (("session", "none"),)
    try:
        conf = session.spark.conf
        facts = (
            ("version", str(session.spark.version)),
            ("master", str(conf.get("spark.master"))),
            ("time zone", str(conf.get("spark.sql.session.timeZone"))),
        )
    except Exception as error:  # its JVM is gone
        return (("session", f"does not answer: {type(error).__name__}"), *started)
    return (*facts, *started)


def _connection(session: Session | None) -> Facts:
    failed = failed_connect()
    facts = [("session", "none" if session is None else "closed" if session.closed else "open")]
    if session is not None:
        facts += [("warehouse", session.warehouse), ("database", session.database)]
    if failed is not None:
        where = f" to {failed.place}" if failed.place else ""
        facts.append(("last connect", f"failed{where}: {failed.error}"))
    return tuple(facts)


def _store(options: Mapping[str, str]) -> Facts:
    try:
        report = probe_store(options)
    except PaimonMagicsError as error:
        return (("tried", f"failed: {error}"),)
    return (("kind", report.kind), *report.facts, ("tried", report.tried))


def _coordinator(session: Session, options: Mapping[str, str]) -> Facts:
    facts: list[tuple[str, str]] = [("what commits", session.coordinator)]
    path, running = state_at(options, os.environ)
    is_own = session.coordinator == "embedded"
    if is_own:
        facts += [
            ("state folder", str(path)),
            ("log", str(path / "coordinator.log")),
            ("process", "none runs" if running is None else f"{running.pid}"),
        ]
    if session.coordinator == "in-process" or (is_own and running is None):
        return tuple(facts)
    try:
        facts += _status(session)
    except PaimonMagicsError as error:
        facts.append(("answers", f"no: {error}"))
    return tuple(facts)


def _status(session: Session) -> list[tuple[str, str]]:
    status = session.administration.status_now()
    facts = [
        ("address", status.address),
        ("version", status.version),
        ("host, process", f"{status.host}, {status.process}"),
        ("takes commits", "no: " + status.problem if status.problem else "yes"),
        ("reaches its store", "no: " + status.store_trouble if status.store_trouble else "yes"),
    ]
    facts += [(f"store: {name}", value) for name, value in sorted(status.store.items())]
    facts += [("not loaded", waiting) for waiting in status.waiting]
    return facts


def _settings(settings: Settings) -> Facts:
    return tuple((field.name, repr(getattr(settings, field.name))) for field in fields(settings))


def _environment(environment: Mapping[str, str]) -> Facts:
    found = sorted(name for name in environment if name in _VARIABLES or name.startswith(_PREFIXES))
    return tuple((name, _shown(name, environment[name])) for name in found)


def _shown(name: str, value: str) -> str:
    # Options of a catalog in one variable are as secret as any of them.
    is_secret = is_secret_name(name) or name == "PAIMON_CATALOG_OPTIONS"
    return MASK if is_secret else masked(name, value)
