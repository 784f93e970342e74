"""`doctor`: the facts that a report of a problem needs, in one text to copy.

It has versions, Java, Spark, the warehouse and its store (probed now), and the coordinator's
process. It also has the places of logs and state, settings and environment, and advice on problems.
It starts nothing and shows no secret. It works without a connection and after a failed connect;
`doctor_of_place` checks a place without connecting to it.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING

from paimon_magics.boundary import short_errors
from paimon_magics.coordinator.client.choosing import (
    EMBEDDED,
    IN_PROCESS,
    chosen_coordinator,
    is_address,
    running_coordinator,
)
from paimon_magics.coordinator.client.starting import check_answers, living_lease, state_at
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.formatting import count_text
from paimon_magics.redaction import MASK, is_secret_name, masked, redacted
from paimon_magics.session.connect_target import ConnectTarget, found_target
from paimon_magics.session.opening import active_session, failed_connect
from paimon_magics.session.place_words import PlaceWords
from paimon_magics.settings import Settings
from paimon_magics.spark.java import find_java, newest_java
from paimon_magics.spark.remote import SCHEME
from paimon_magics.spark.sessions import UNIX_SOCKETS, log_file
from paimon_magics.tables.stores.corruption import ASK, may_not
from paimon_magics.tables.stores.probes import folders_below, keys_of_store, probe_store
from paimon_magics.tables.stores.short_keys import KeySource

if TYPE_CHECKING:
    from paimon_magics.coordinator.client.administration import Status
    from paimon_magics.session.session import Session

_PACKAGES = ("paimon-magics", "pyspark", "pypaimon", "pypaimon-rust", "pyarrow", "pandas", "polars",
             "obstore", "sqlglot", "ipython", "ipywidgets")  # fmt: skip
_VARIABLES = ("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "TZ", "XDG_STATE_HOME")
_PREFIXES = ("PAIMON_", "AWS_", "PYSPARK_")
_NAME_WIDTH = 22

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Advice:
    """A problem, and what to do about it."""

    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Findings in sections of names and values, and advice. `str` gives a page to copy."""

    sections: tuple[tuple[str, Facts], ...]
    advice: tuple[Advice, ...] = ()

    def __getitem__(self, section: str) -> dict[str, str]:
        """The facts of one section, by their names."""
        return dict(dict(self.sections)[section])

    def __str__(self) -> str:
        lines: list[str] = []
        for title, facts in self.sections:
            lines.append(title)
            lines += [f"  {name:{_NAME_WIDTH}} {value}".rstrip() for name, value in facts]
        lines.append("To do")
        for number, advice in enumerate(self.advice, start=1):
            lines += [f"  {number}. {advice.problem}", f"     {advice.remedy}".rstrip()]
        if not self.advice:
            lines.append("  nothing")
        return redacted("\n".join(lines))

    __repr__ = __str__

    def document(self) -> dict[str, object]:
        """The same as a JSON document; secrets are masked as in the text."""
        return {
            "sections": [
                {
                    "title": title,
                    "facts": [{"name": name, "value": redacted(value)} for name, value in facts],
                }
                for title, facts in self.sections
            ],
            "todo": [
                {"problem": redacted(advice.problem), "remedy": redacted(advice.remedy)}
                for advice in self.advice
            ],
        }


@dataclass(slots=True)
class _Findings:
    """A diagnosis while it is collected."""

    sections: list[tuple[str, Facts]] = field(default_factory=list)
    advice: list[Advice] = field(default_factory=list)

    def add(self, title: str, facts: Iterable[tuple[str, str]]) -> None:
        self.sections.append((title, tuple(facts)))

    def advise(self, problem: str, remedy: str) -> None:
        self.advice.append(Advice(problem, remedy))

    def refused(self, error: PaimonMagicsError) -> str:
        """Add an error as advice, with its hint as the remedy. Returns its message."""
        self.advise(error.message, error.hint)
        return error.message

    def whole(self) -> Diagnosis:
        self.add("Environment", _environment(os.environ))
        return Diagnosis(tuple(self.sections), tuple(self.advice))


@short_errors
def doctor(session: Session | None = None) -> Diagnosis:
    """Check everything that a session depends on. `session` defaults to the open one."""
    session = session or active_session()
    findings = _Findings()
    findings.add("Versions", _versions(findings))
    findings.add("Spark", _spark(session, findings))
    findings.add("Connection", _connection(session, findings))
    if session is not None:
        options = dict(session.catalog_options)
        findings.add("Catalog options", ((k, masked(k, v)) for k, v in sorted(options.items())))
        findings.add("Store", _store(options, findings))
        findings.add("Coordinator", _coordinator(session, options, findings))
        findings.add("Settings", _settings(session.settings))
    return findings.whole()


def doctor_of_place(words: PlaceWords, settings: Settings | None = None) -> Diagnosis:
    """Check everything that a session on the place of `words` would depend on; without a place, on
    the one that the environment names. Starts neither Spark nor a coordinator."""
    settings = settings or Settings()
    findings = _Findings()
    findings.add("Versions", _versions(findings))
    findings.add("Spark", _spark(None, findings))
    try:
        _check_coordinator_answers(words, settings)
        place = found_target(words, settings)
    except PaimonMagicsError as error:
        shown = words.shown or os.environ.get("PAIMON_WAREHOUSE", "")
        findings.add("Warehouse", (("place", shown), ("reached", f"no: {findings.refused(error)}")))
        return findings.whole()
    options = place.catalog.options
    what = "new: no tables yet" if place.store.is_new else "there"
    findings.add("Warehouse", (("place", place.catalog.warehouse), ("reached", what)))
    findings.add("Catalog options", ((k, masked(k, v)) for k, v in sorted(options.items())))
    store = place.store
    keys = ("keys", keys_of_store(options))
    findings.add("Store", (("kind", store.kind), *store.facts, keys, ("tried", store.tried)))
    findings.add("Coordinator", _coordinator_of(place, settings, findings))
    return findings.whole()


def _check_coordinator_answers(words: PlaceWords, settings: Settings) -> None:
    """Raise SetupError if the coordinator is named by an address and does not answer there."""
    named = words.warehouse is not None or words.catalog is not None
    chosen = chosen_coordinator(words.coordinator, os.environ, warehouse_is_named=named)
    if is_address(chosen):
        check_answers(chosen, settings.coordinator_ca)


def _versions(findings: _Findings) -> Facts:
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    facts = [("Python", f"{platform.python_version()} ({sys.executable})"), ("System", system)]
    versions: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
            if name != "paimon-magics":  # a checkout works without being installed
                findings.advise(
                    f"{name} is not installed for this Python.",
                    f"Run {sys.executable} -m pip install paimon-magics, or choose the Python, or "
                    "the notebook's kernel, that has it.",
                )
    try:
        newest = newest_java(versions["pyspark"]) if versions["pyspark"][:1].isdigit() else None
        java = find_java(os.environ, newest)
        java_text = f"{java.version} in {java.home} ({java.source})"
    except PaimonMagicsError as error:
        is_needed = not os.environ.get("SPARK_REMOTE", "").startswith(SCHEME)
        java_text = findings.refused(error) if is_needed else "none: a Spark Connect server has it"
    return (*facts, *versions.items(), ("Java", java_text))


def _spark(session: Session | None, findings: _Findings) -> Facts:
    log = log_file()
    started = (("log", str(log) if log is not None else "that of the given session"),)
    if session is None:
        return (("session", "none"),)
    try:
        conf = session.spark.conf
        facts = (
            ("version", str(session.spark.version)),
            ("master", str(conf.get("spark.master"))),
            ("time zone", str(conf.get("spark.sql.session.timeZone"))),
            ("Python processes", _sockets(conf.get(UNIX_SOCKETS, "false"))),
        )
    except Exception as error:  # its JVM is gone
        findings.advise(
            "Spark does not answer.",
            "Connect again, which starts a new one: %paimon connect, or paimon_magics.connect(…). "
            "Spark's log shows why it ended.",
        )
        return (("session", f"does not answer: {type(error).__name__}"), *started)
    return (*facts, *started)


def _sockets(unix: str | None) -> str:
    if unix == "true":
        return "reached by Unix sockets"
    # Small messages of a job wait for each other (Nagle's algorithm, delayed acknowledgements).
    return f"reached by TCP: a job takes up to 40 ms longer than with {UNIX_SOCKETS}=true"


def _connection(session: Session | None, findings: _Findings) -> Facts:
    failed = failed_connect()
    facts = [("session", "none" if session is None else "closed" if session.closed else "open")]
    if session is not None:
        facts += [("warehouse", session.warehouse), ("database", session.database)]
    if failed is not None:
        where = f" to {failed.place}" if failed.place else ""
        facts.append(("last connect", f"failed{where}: {failed.error}"))
        findings.advise(f"The last connect{where} failed. {failed.error}", failed.hint)
    return tuple(facts)


def _store(options: Mapping[str, str], findings: _Findings) -> Facts:
    try:
        report = probe_store(options)
    except PaimonMagicsError as error:
        findings.refused(error)
        return (("tried", f"failed: {error}"),)
    keys = keys_of_store(options)
    facts = (("kind", report.kind), *report.facts, ("keys", keys), ("tried", report.tried))
    return facts if report.is_remote else (*facts, *_folders_of_others(options, findings))


def _folders_of_others(options: Mapping[str, str], findings: _Findings) -> Facts:
    """Whether this account may write the folders of tables on a local disk, which other accounts
    of the machine may have made."""
    folders = folders_below(options.get("warehouse", ""))
    if not folders.looked_at:
        return ()
    seen = f"{count_text(folders.looked_at, 'folder')} of tables"
    if folders.left_out:
        seen += " (the first ones: there are more)"
    if not folders.refused:
        return (("rights", f"may write in {seen}, by their modes: nothing was written there"),)
    first = folders.refused[0]
    findings.advise(
        f"Of {seen}, {may_not(first)}; {count_text(len(folders.refused), 'such folder')}.",
        ASK,
    )
    return (("rights", f"may not write in {len(folders.refused):,} of {seen}: {first}"),)


def _coordinator(session: Session, options: Mapping[str, str], findings: _Findings) -> Facts:
    facts: list[tuple[str, str]] = [("committer", session.coordinator)]
    is_running = True
    if session.coordinator == EMBEDDED:
        own, is_running = _own_process(options)
        facts += own
    if session.coordinator != IN_PROCESS and is_running:
        facts += _status_facts(partial(_status_of, session), findings, options)
    return tuple(facts)


def _status_of(session: Session) -> Status:
    if is_address(session.coordinator):
        check_answers(session.coordinator, session.settings.coordinator_ca)
    return session.administration.status_now()


def _coordinator_of(place: ConnectTarget, settings: Settings, findings: _Findings) -> Facts:
    """The facts on the coordinator of a place, without a session."""
    facts: list[tuple[str, str]] = [("committer", place.coordinator)]
    client = place.remote
    if place.coordinator == EMBEDDED:
        options = place.catalog.options
        own, is_running = _own_process(options)
        facts += own
        if is_running:
            client = running_coordinator(options, os.environ, settings)
        else:
            try:
                living_lease(place.catalog)
            except PaimonMagicsError as error:
                facts.append(("owner", findings.refused(error)))
    if client is not None:
        with closing(client):
            status = client.administration().status
            facts += _status_facts(status, findings, place.catalog.options)
    return tuple(facts)


def _own_process(options: Mapping[str, str]) -> tuple[list[tuple[str, str]], bool]:
    """Facts on the user's own coordinator for a warehouse, and whether it runs."""
    path, running = state_at(options, os.environ)
    process = "not running; the first statement that writes starts it"
    facts = [
        ("state folder", str(path)),
        ("log", str(path / "coordinator.log")),
        ("process", process if running is None else f"{running.pid}"),
    ]
    return facts, running is not None


def _status_facts(
    status_now: Callable[[], Status], findings: _Findings, options: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Facts from the status that a coordinator reports."""
    try:
        status = status_now()
    except PaimonMagicsError as error:
        findings.refused(error)
        return [("answers", f"no: {error}")]
    if status.problem:
        findings.advise(
            f"The coordinator accepts no commits: {status.problem}",
            f"Fix the cause, then end its process ({status.process} on {status.host}). The next "
            "statement that writes, or its administrator, starts it again.",
        )
    if status.store_trouble:
        findings.advise(
            f"The coordinator can't reach its store: {status.store_trouble}",
            "Connect again with valid credentials: your own coordinator then uses them. A "
            "coordinator that runs as a service gets them from its administrator.",
        )
    if status.hands_out_keys and KeySource.of(options) is None:
        findings.advise(
            "This session has keys of its own to the store, which go around the rights at the "
            "coordinator.",
            "Take them out of the catalog options: the coordinator hands out keys that last "
            "minutes.",
        )
    for stopped in status.stopped_tables:
        findings.advise(
            f"The table in {stopped.location} is stopped: {stopped.reason}",
            "Check its rows, write the missing ones again, then run %paimon coordinator resume "
            "with its name.",
        )
    reported = [status.problem, *(stopped.reason for stopped in status.stopped_tables)]
    for problem in status.problems:
        if problem not in reported and not (
            status.store_trouble and status.store_trouble in problem
        ):
            findings.advise(problem, "Its administrator finds details on its page and in its log.")
    facts = [
        ("address", status.address),
        ("version", status.version),
        ("host, process", f"{status.host}, {status.process}"),
        ("accepts commits", "no: " + status.problem if status.problem else "yes"),
        ("hands out keys", "yes" if status.hands_out_keys else "no"),
        ("ready", "yes" if status.is_ready else "no: " + " ".join(status.problems[:1])),
        ("reaches its store", "no: " + status.store_trouble if status.store_trouble else "yes"),
    ]
    facts += [(f"store: {name}", value) for name, value in sorted(status.store.items())]
    facts += [("not loaded", waiting) for waiting in status.waiting]
    return facts


def _settings(settings: Settings) -> Facts:
    return tuple((field.name, repr(getattr(settings, field.name))) for field in fields(settings))


def _environment(environment: Mapping[str, str]) -> Facts:
    names = sorted(name for name in environment if name in _VARIABLES or name.startswith(_PREFIXES))
    return tuple((name, _shown(name, environment[name])) for name in names)


def _shown(name: str, value: str) -> str:
    # This variable holds all options of a catalog, the secret ones included.
    is_secret = is_secret_name(name) or name == "PAIMON_CATALOG_OPTIONS"
    return MASK if is_secret else masked(name, value)
