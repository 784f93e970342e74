"""Clients that change tables and insert at once, and the ledger of what they were answered.

Each table has a column of its own, `c17`, which no other table has: an insert that names it is
taken by that table or refused, whoever renames, drops or creates tables meanwhile. So the ledger
knows which table has a row, though names move.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from paimon_magics.coordinator.client.remote import RemoteCoordinator
from paimon_magics.coordinator.protocol.definition_changes import (
    DefinitionChange,
    TableAlteration,
    TableCreation,
    TableDrop,
    TableRename,
    change_document,
)
from paimon_magics.errors import PaimonMagicsError, SetupError, UnknownOutcomeError
from paimon_magics.planning.commits.requests import CommitRequest, OverwritePartitions
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.statements.table_changes import AddColumn, SetOptions
from paimon_magics.statements.types.type_text import from_paimon
from paimon_magics.statements.version_changes import (
    CreateBranch,
    CreateTag,
    DeleteBranches,
    RollBackToTag,
    VersionChange,
)
from paimon_magics.tables.catalog.rest_documents import schema_document

NAMES = [TableName(table, database) for database, table in zip("ppqq", "abac", strict=True)]
DATABASES = ("p", "q")
DONE, REFUSED, UNCLEAR = "done", "refused", "unclear"
_ATTEMPTS = 6
_COLUMNS_MAX = 12


@dataclass
class Sent:
    """An insert of one or several rows: the table that may take it, when it was sent first and
    answered last, and what became of it."""

    table: int
    rows: list[int]
    began: float
    headers: dict[str, str]
    outcome: str = UNCLEAR
    ended: float = 0.0
    lsn: int = 0


@dataclass
class Rollback:
    """A rollback to the tag of a table, and when."""

    table: int
    began: float
    ended: float


@dataclass
class Ledger:
    """What was sent and answered, for any thread. `tables` has the outcomes of creations, `users`
    the transactions that truncate, with their times and outcomes."""

    sent: list[Sent] = field(default_factory=list)
    tables: dict[int, str] = field(default_factory=dict)
    drops: Counter[str] = field(default_factory=Counter)
    truncations: dict[str, tuple[float, float, str]] = field(default_factory=dict)
    rollbacks: list[Rollback] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    known: dict[TableName, int] = field(default_factory=dict)
    numbers: Any = field(default_factory=itertools.count)
    ids: Any = field(default_factory=itertools.count)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, what: str, answer: httpx.Response | None) -> None:
        status = "none" if answer is None else str(answer.status_code)
        with self.lock:
            self.answers[f"{what} {status}"] += 1
            if answer is not None and answer.status_code in (500, 502, 507):
                self.faults.append(f"{what}: {status} {answer.text}")


def table_id_of(columns: Sequence[str]) -> int:
    """The number of the table that has these columns."""
    return next(int(each[1:]) for each in columns if each[:1] == "c" and each[1:].isdigit())


class Client(threading.Thread):
    """A client that does what its seed says, until `until` by the monotonic clock."""

    def __init__(
        self, number: int, seed: int, ledger: Ledger, address: str, token: str, until: float
    ) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self.number, self.ledger, self.until = number, ledger, until
        self.chance = random.Random(f"{seed}-{number}")
        self.error: BaseException | None = None
        self.remote: RemoteCoordinator
        self._at = (address, token)
        self._channels: dict[int, tuple[str, int]] = {}
        self._labelled: list[tuple[Sent, dict[str, Any]]] = []

    def run(self) -> None:
        address, token = self._at
        headers = {"authorization": f"Bearer {token}"}
        actions = {
            self.insert: 60,
            self.repeat_label: 6,
            self.create: 8,
            self.rename: 7,
            self.drop: 2,
            self.alter: 3,
            self.branch: 3,
            self.flush: 4,
            self.truncate: 0.7,
            self.roll_back: 0.4,
        }
        try:
            with httpx.Client(
                base_url=address, headers=headers, timeout=60, trust_env=False
            ) as self.http:
                while time.monotonic() < self.until:
                    chosen = self.chance.choices(list(actions), list(actions.values()))[0]
                    chosen()
        except BaseException as error:
            self.error = error

    # ---- requests ----

    def _call(
        self, what: str, path: str, body: Any = None, method: str = "POST"
    ) -> tuple[str, httpx.Response | None]:
        try:
            answer = self.http.request(method, path, json=body)
        except httpx.TransportError:
            self.ledger.note(what, None)
            return UNCLEAR, None
        status = answer.status_code
        outcome = DONE if status == 200 else REFUSED if 400 <= status < 500 else UNCLEAR
        if status in (408, 423, 425):
            outcome = UNCLEAR
        self.ledger.note(what, answer)
        return outcome, answer

    def _surely(self, what: str, path: str, body: dict[str, Any]) -> tuple[str, Any]:
        """Send a change, and again as a session does while its outcome is not known."""
        for attempt in range(_ATTEMPTS):
            outcome, answer = self._call(what, path, body | {"repeated": attempt > 0})
            if outcome is not UNCLEAR:
                return outcome, answer.json() if answer is not None else {}
            time.sleep(0.05 * (attempt + 1))
        return UNCLEAR, {}

    def _change(self, what: str, change: DefinitionChange) -> str:
        body = {"id": f"{self.chance.random()}", "change": change_document(change)}
        outcome, answer = self._surely(what, "/v1/changes", body)
        return REFUSED if outcome is DONE and not answer["done"] else outcome

    def _any_name(self) -> TableName:
        return self.chance.choice(NAMES)

    def _known(self) -> tuple[TableName, int] | None:
        name = self._any_name()
        id = self.ledger.known.get(name)
        if id is not None and self.chance.random() > 0.05:
            return name, id
        outcome, answer = self._call(
            "look", f"/v1/paimon/databases/{name.database}/tables/{name.table}", method="GET"
        )
        if outcome is not DONE or answer is None:
            self.ledger.known.pop(name, None)
            return None
        columns = [each["name"] for each in answer.json()["schema"]["fields"]]
        self.ledger.known[name] = id = next(
            int(c[1:]) for c in columns if c[0] == "c" and c[1:].isdigit()
        )
        return name, id

    # ---- definitions ----

    def create(self) -> None:
        name = self._any_name()
        if name in self.ledger.known and self.chance.random() < 0.8:
            return
        id = next(self.ledger.ids)
        statement = parse_statement(
            f"CREATE TABLE t (n BIGINT, channel STRING, c{id} BIGINT) TBLPROPERTIES "
            "('auto_batch_load' = 'true', 'group_commit_interval_ms' = "
            f"'{self.chance.choice([100, 300, 2_000])}')"
        )
        assert isinstance(statement, CreateTable)
        schema = plan_create_table(statement)
        with self.ledger.lock:
            self.ledger.tables[id] = UNCLEAR  # others may see it before its creator does
        if self.chance.random() < 0.5:
            outcome = self._change("create", TableCreation(name, schema))
        else:
            identifier = {"database": name.database, "object": name.table}
            body = {"identifier": identifier, "schema": schema_document(schema)}
            path = f"/v1/paimon/databases/{name.database}/tables"
            outcome, _ = self._call("create by REST", path, body)
        self.ledger.tables[id] = outcome
        if outcome is not DONE:
            return
        self.ledger.known[name] = id
        self._insert(name, id, "sync_mode")
        tag = {"table": _document(name), "change": change_document(CreateTag(f"c{id}"))}
        self._surely("tag", "/v1/tables/versions", tag)

    def rename(self) -> None:
        source, target = self.chance.sample(NAMES, 2)
        if source not in self.ledger.known or self.chance.random() < 0.3:
            source, target = target, source
        if self.chance.random() < 0.5:
            outcome = self._change("rename", TableRename(source, target))
        else:
            body = {"source": _identifier(source), "destination": _identifier(target)}
            outcome, _ = self._call("rename by REST", "/v1/paimon/tables/rename", body)
        if outcome is DONE:
            id = self.ledger.known.pop(source, None)
            if id is not None:
                self.ledger.known[target] = id

    def drop(self) -> None:
        name = self._any_name()
        if self.chance.random() < 0.5:
            outcome = self._change("drop", TableDrop(name))
        else:
            path = f"/v1/paimon/databases/{name.database}/tables/{name.table}"
            outcome, _ = self._call("drop by REST", path, method="DELETE")
        with self.ledger.lock:
            self.ledger.drops[outcome] += 1
        if outcome is DONE:
            self.ledger.known.pop(name, None)
            if self.chance.random() < 0.5:
                self.create()

    def alter(self) -> None:
        name = self._any_name()
        if self.chance.random() < 0.3:
            number = self.chance.randrange(_COLUMNS_MAX)
            add = AddColumn((f"extra{number}",), from_paimon("INT"))
            self._change("add column", TableAlteration(name, (add,)))
        else:
            interval = (("group_commit_interval_ms", str(self.chance.choice([100, 500, 3_000]))),)
            self._change("set option", TableAlteration(name, (SetOptions(interval),)))

    # ---- versions ----

    def _change_version(self, what: str, name: TableName, change: VersionChange) -> str:
        body = {"table": _document(name), "change": change_document(change)}
        return self._surely(what, "/v1/tables/versions", body)[0]

    def branch(self) -> None:
        branch = f"b{self.chance.randrange(2)}"
        if self.chance.random() < 0.5:
            self._change_version("create branch", self._any_name(), CreateBranch(branch))
        else:
            self._change_version("delete branch", self._any_name(), DeleteBranches((branch,)))

    def roll_back(self) -> None:
        known = self._known()
        if known is None:
            return
        name, id = known
        rollback = Rollback(id, time.monotonic(), float("inf"))
        self.ledger.rollbacks.append(rollback)
        if self._change_version("roll back", name, RollBackToTag(f"c{id}")) is not UNCLEAR:
            rollback.ended = time.monotonic()

    def truncate(self) -> None:
        began = time.monotonic()
        try:
            opened = self.remote.begin(self._any_name())
        except PaimonMagicsError as error:
            self.ledger.answers[f"begin {type(error).__name__}"] += 1
            return
        user = opened.commit_user
        self.ledger.truncations[user] = (began, float("inf"), UNCLEAR)
        outcome = DONE
        try:
            self.remote.commit(CommitRequest(opened, OverwritePartitions(swallow_newer=True)))
        except PaimonMagicsError as error:
            unclear = isinstance(error, (UnknownOutcomeError, SetupError))
            outcome = UNCLEAR if unclear else REFUSED
            self.ledger.answers[f"truncate {type(error).__name__}"] += 1
        else:
            self.ledger.answers["truncate done"] += 1
        ended = float("inf") if outcome is UNCLEAR else time.monotonic()
        self.ledger.truncations[user] = (began, ended, outcome)

    # ---- rows ----

    def flush(self) -> None:
        name = self._any_name()
        self._call("flush", f"/v1/inserts/{name.database}/{name.table}/flush")

    def insert(self) -> None:
        known = self._known()
        if known is None:
            return
        for _ in range(self.chance.choice([1, 1, 5, 20])):
            mode = self.chance.choices(["async_mode", "sync_mode", "off_mode"], [90, 7, 3])[0]
            self._insert(*known, mode)

    def _insert(self, name: TableName, id: int, mode: str) -> None:
        kind = self.chance.choice(["plain", "label", "channel", "channel"])
        named = {"group_commit": mode}
        channel = ""
        if kind == "label":
            named |= {"idempotency-key": f"l-{self.number}-{self.chance.random()}"}
        elif kind == "channel":
            channel, offset = self._channels.get(id) or (f"{self.number}-{self.chance.random()}", 0)
            self._channels[id] = (channel, offset)
            named |= {"paimon-channel": channel, "paimon-offset": str(offset)}
        rows = [next(self.ledger.numbers) for _ in range(self.chance.choice([1, 1, 3]))]
        sent = Sent(id, rows, time.monotonic(), named)
        self.ledger.sent.append(sent)
        columns = ["n", "channel", f"c{id}"]
        body = {"columns": columns, "rows": [[n, channel, id] for n in rows]}
        self._send(sent, name, body)
        if kind == "label":
            self._labelled = [*self._labelled[-20:], (sent, body)]
        if kind == "channel":
            if sent.outcome is DONE:
                self._channels[id] = (channel, offset + 1)
            else:
                del self._channels[id]  # it goes on by another name

    def _send(self, sent: Sent, name: TableName, body: dict[str, Any]) -> None:
        unclear = False
        for attempt in range(_ATTEMPTS if len(sent.headers) > 1 else 1):
            path = f"/v1/inserts/{name.database}/{name.table}"
            outcome, answer = self._post(path, body, sent.headers)
            if outcome is DONE:
                assert answer is not None
                sent.outcome, sent.ended = DONE, time.monotonic()
                sent.lsn = answer.json()["lsn"]
                return
            if outcome is REFUSED:
                if answer is not None and answer.status_code in (400, 404):
                    self.ledger.known.pop(name, None)
                sent.outcome = UNCLEAR if unclear else REFUSED
                return
            unclear = True
            time.sleep(0.02 * (attempt + 1))

    def _post(
        self, path: str, body: Any, headers: dict[str, str]
    ) -> tuple[str, httpx.Response | None]:
        try:
            answer = self.http.post(path, content=json.dumps(body).encode(), headers=headers)
        except httpx.TransportError:
            self.ledger.note("insert", None)
            return UNCLEAR, None
        self.ledger.note("insert", answer)
        status = answer.status_code
        return (DONE if status == 200 else REFUSED if status < 500 else UNCLEAR), answer

    def repeat_label(self) -> None:
        """Send an insert again, wherever its table is now: the answer is the first one's."""
        if not self._labelled:
            return
        sent, body = self.chance.choice(self._labelled)
        places = [name for name, id in list(self.ledger.known.items()) if id == sent.table]
        if not places or sent.outcome is not DONE:
            return
        path = f"/v1/inserts/{places[0].database}/{places[0].table}"
        outcome, answer = self._post(path, body, sent.headers)
        if outcome is not DONE or answer is None:
            return
        document = answer.json()
        if (document["lsn"], document.get("duplicate")) != (sent.lsn, True):
            self.ledger.faults.append(f"{sent} was answered {document} when it was repeated")


def _document(name: TableName) -> dict[str, Any]:
    return {"database": name.database, "table": name.table}


def _identifier(name: TableName) -> dict[str, Any]:
    return {"database": name.database, "object": name.table}
