"""Random histories of a table, with a model that knows which files each of its states needs.

Commits, compactions, tags, branches, consumers, roll-backs, expiries and cleanings come in any
order, and many of them die at a step. The model notes what each snapshot has when it is committed;
manifests are never asked. Roots are the documents that the store has: snapshots from EARLIEST on,
tags, and changelogs, of each branch.

    python -m tests.tables.expiry.random_histories --seeds 0..1000 [--steps 120]
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

from pypaimon.manifest.manifest_list_manager import ManifestListManager

from paimon_magics import faults
from paimon_magics.coordinator.client.in_process import InProcessCommitter
from paimon_magics.errors import PaimonMagicsError, UnknownNameError
from paimon_magics.planning.commits.expiry import NO_FLOOR, ExpiryRules
from paimon_magics.planning.commits.requests import (
    Append,
    CommitRequest,
    Compact,
    OverwritePartitions,
    Transaction,
)
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.settings import Settings
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.expiry.expire_snapshots import carry_out, decide, remove_tag
from paimon_magics.tables.expiry.orphan_files import moment_of, remove_orphans
from paimon_magics.tables.snapshots.branches import create_branch, drop_branch
from paimon_magics.tables.snapshots.chain import create_tag, roll_back
from paimon_magics.tables.snapshots.consumers import forget_progress, keep_progress
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing import attempts
from paimon_magics.tables.writing.commit_messages import read_messages, write_message
from tests.tables.commits.test_commit import rows_of, written

NAME = TableName("t", "default")
SQL = (
    "CREATE TABLE t (k INT, v STRING, p STRING) PARTITIONED BY (p) TBLPROPERTIES ("
    "'manifest.merge-min-count' = '3', 'write-only' = 'true'{})"
)
LONG_CHANGELOGS = ", 'changelog.num-retained.min' = '6', 'changelog.num-retained.max' = '6'"
COMMITS = ("commit.prepared", "commit.published", "manifest.written", "publish.linked")
CRASHES = {
    "commit": COMMITS,
    "finish": COMMITS,
    "expire": (
        "expiry.decided", "expiry.data_removed", "expiry.metadata_removed",
        "expiry.snapshot_removed", "expiry.changelog_kept", "expiry.changelogs_decided",
        "expiry.changelog_data_removed",
    ),
    "clean": ("orphans.deleted",),
    "branch": ("branch.begun",),
    "unbranch": ("branch.unnamed",),
    "roll back": ("chain.cut",),
}  # fmt: skip
PARTITIONS = ("a", "b")
DAY_MS = 86_400_000


@dataclass
class Open:
    """A transaction that is not committed: the files that it wrote, by their paths."""

    transaction: Transaction
    change: Any
    message: Any
    added: dict[str, Any]
    removed: frozenset[str]


@dataclass
class World:
    """A table and its model. `states` has the paths of the data files of each snapshot ever
    committed, and of those that it added, by the name of its delta manifest list."""

    catalog: Catalog
    random: random.Random
    states: dict[str, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)
    metas: dict[str, Any] = field(default_factory=dict)
    open: list[Open] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.committer = InProcessCommitter(self.catalog, Settings(attempt_wait_ms_max=0))
        table = self.table()
        (body,) = written(table, rows_of(table, 1, "a"))
        (self.sample,) = read_messages(table.paimon, [body])
        (meta,) = self.sample.new_files
        self.content = table.store.read(f"{table.location}/p=a/bucket-0/{meta.file_name}")

    def table(self, branch: str | None = None) -> Table:
        return self.catalog.load(replace(NAME, branch=branch))

    # ---- what the store has ----

    def branches(self) -> list[str | None]:
        return [None, *self.table().paimon.branch_manager().branches()]

    def documents(self, branch: str | None, kind: str) -> dict[str, Any]:
        table = self.table()  # a branch whose removal was cut short can't be loaded
        base = table.location if branch is None else f"{table.location}/branch/branch-{branch}"
        names = table.store.names(f"{base}/{kind}", f"{kind}-")
        read = {name: table.store.read(f"{base}/{kind}/{name}") for name in names}
        documents = {n: json.loads(body) for n, body in read.items() if body is not None}
        if kind != "snapshot":
            return documents
        hint = (table.store.read(f"{base}/snapshot/EARLIEST") or b"0").decode()
        return {n: d for n, d in documents.items() if d["id"] >= int(hint)}

    def roots(self) -> list[tuple[str, Any]]:
        return [
            (kind, document)
            for branch in self.branches()
            for kind in ("snapshot", "tag", "changelog")
            for document in self.documents(branch, kind).values()
        ]

    def live(self) -> set[str]:
        """The paths of all data files that something needs."""
        needed: set[str] = set()
        for kind, document in self.roots():
            state, added = self.states[document["deltaManifestList"]]
            needed |= added if kind == "changelog" else state
        return needed

    def files(self, folder: str = "p=") -> set[str]:
        table = self.table()
        return {
            file.path
            for page in table.store.statuses_below(table.location)
            for file in page
            if file.size_bytes is not None and file.path.startswith(folder)
        }

    def check(self) -> None:
        """No live file is gone, and no file of an open transaction."""
        wanted = self.live() | {path for each in self.open for path in each.added}
        gone = wanted - self.files()
        assert not gone, f"live files are gone: {sorted(gone)}"
        lost = self.metadata() - self.files("manifest/")
        assert not lost, f"metadata is gone: {sorted(lost)}"

    def metadata(self) -> set[str]:
        lists = ManifestListManager(self.table().paimon)
        names: set[str] = set()
        there = self.files("manifest/")
        for kind, document in self.roots():
            for key in ("baseManifestList", "deltaManifestList"):
                name = document[key]
                if kind == "changelog" and f"manifest/{name}" not in there:
                    continue
                names |= {f"manifest/{name}"}
                if f"manifest/{name}" in there:
                    names |= {f"manifest/{meta.file_name}" for meta in lists.read(name)}
        return names

    # ---- what happens ----

    def write(self, branch: str | None) -> Open:
        """A transaction that has written its files."""
        table = self.table(branch)
        latest = self.latest(branch)
        state = self.states[latest["deltaManifestList"]][0] if latest else frozenset()
        kind = self.random.choice(("append", "append", "append", "overwrite", "compact"))
        partition = self.random.choice(PARTITIONS)
        mine = sorted(path for path in state if path.startswith(f"p={partition}/"))
        if kind == "compact" and len(mine) < 2:
            kind = "append"
        transaction = self.committer.begin(replace(NAME, branch=branch), compacts=kind == "compact")
        message = copy.copy(self.sample)
        message.partition, message.new_files = (partition,), []
        added, metas = {}, []
        for number in range(1 if kind == "compact" else self.random.randint(1, 2)):
            meta = copy.copy(self.sample.new_files[0])
            meta.file_name = f"{transaction.file_prefix}data-{number}.parquet"
            path = f"p={partition}/bucket-0/{meta.file_name}"
            table.store.make_folder(f"{table.location}/p={partition}/bucket-0")
            table.store.write(f"{table.location}/{path}", self.content or b"")
            added[path], metas = meta, [*metas, meta]
        removed: frozenset[str] = frozenset()
        change: Any = Append()
        if kind == "overwrite":
            change, removed = OverwritePartitions(((("p", partition),),)), frozenset(mine)
        if kind == "compact":
            gone = self.random.sample(mine, 2)
            change, removed = Compact(), frozenset(gone)
            for meta in metas:
                meta.row_count = 2 * self.sample.new_files[0].row_count
                meta.row_count = sum(self.metas[path].row_count for path in gone)
                meta.file_source = 1
            message.compact_before = [self.metas[path] for path in gone]
            message.compact_after = metas
        else:
            message.new_files = metas
        return Open(transaction, change, message, added, removed)

    def commit(self, each: Open) -> None:
        branch = each.transaction.table.branch
        table = self.table(branch)
        body = write_message(table.paimon, each.message)
        try:
            self.committer.commit(CommitRequest(each.transaction, each.change, (body,)))
        finally:
            self.learn(branch, each)

    def learn(self, branch: str | None, each: Open) -> None:
        """Note the state of a snapshot that was committed, if it was."""
        for document in self.documents(branch, "snapshot").values():
            name = document["deltaManifestList"]
            if name in self.states or document["commitUser"] != each.transaction.commit_user:
                continue
            before = [
                d
                for d in self.documents(branch, "snapshot").values()
                if d["id"] == document["id"] - 1
            ]
            state = self.states[before[0]["deltaManifestList"]][0] if before else frozenset()
            removed = each.removed
            if isinstance(each.change, OverwritePartitions):
                ((_, partition),) = each.change.specs[0]
                removed = frozenset(path for path in state if path.startswith(f"p={partition}/"))
            self.states[name] = (state - removed | each.added.keys(), frozenset(each.added))
            self.metas |= each.added

    def latest(self, branch: str | None) -> Any:
        documents = self.documents(branch, "snapshot").values()
        return max(documents, key=lambda d: d["id"], default=None)

    def expire(self, branch: str | None, count: int) -> None:
        table = self.table(branch)
        rules = ExpiryRules.also_write_only(table.schema).with_snapshots(
            count_max=count, count_min=count, time_ms=0, limit=self.random.choice((2, 50))
        )
        needed = [
            each.transaction.base_snapshot_id
            for each in self.open
            if each.transaction.table.branch == branch
        ]
        floor = min(needed, default=NO_FLOOR)
        expiry = decide(table, rules, floor, int(time.time() * 1000) + DAY_MS)
        if expiry is not None:
            carry_out(expiry)

    def clean(self) -> None:
        table = self.table()
        prefixes = [each.transaction.file_prefix for each in self.open]
        remove_orphans(
            table,
            int(time.time() * 1000) + DAY_MS,
            lambda: moment_of(table, prefixes, ()),
            dry_run=False,
        )

    def stored(self, branch: str | None = None) -> Any:
        return load_stored(self.catalog, replace(NAME, branch=branch))

    def step(self) -> None:
        """One thing that may happen, and may die on the way."""
        actions: Mapping[str, tuple[int, Callable[[], None]]] = {
            "commit": (8, self._commit),
            "begin": (2, lambda: self.open.append(self.write(self._branch()))),
            "finish": (2, self._finish),
            "abort": (1, self._abort),
            "die": (1, self._die),
            "tag": (2, self._tag),
            "untag": (1, self._untag),
            "branch": (1, self._make_branch),
            "unbranch": (1, self._drop_branch),
            "consumer": (1, self._consume),
            "roll back": (1, self._roll_back),
            "expire": (4, lambda: self.expire(self._branch(), self.random.randint(1, 4))),
            "clean": (2, self.clean),
        }
        weights = [weight for weight, _ in actions.values()]
        (name,) = self.random.choices(list(actions), weights)
        self.counts[name] += 1
        if name in CRASHES and self.random.random() < 0.4:
            faults._actions[self.random.choice(CRASHES[name])] = "raise"
        try:
            actions[name][1]()
        except OSError as error:
            if "armed" not in str(error):
                raise
            self.counts["died"] += 1
        except PaimonMagicsError as error:  # what can't be is refused
            self.counts[f"{name}: {type(error).__name__}"] += 1
        finally:
            faults._actions.clear()

    def _branch(self) -> str | None:
        return self.random.choice([None, None, *self.branches()])

    def _commit(self) -> None:
        each = self.write(self._branch())
        self.open.append(each)
        self._end(each, lambda: self.commit(each))

    def _finish(self) -> None:
        if self.open:
            each = self.random.choice(self.open)
            self._end(each, lambda: self.commit(each))

    def _abort(self) -> None:
        if self.open:
            each = self.random.choice(self.open)
            self._end(each, lambda: self.committer.abort(each.transaction))

    def _end(self, each: Open, action: Callable[[], object]) -> None:
        try:
            action()
        finally:
            self.open.remove(each)

    def _die(self) -> None:
        """Whoever had the transactions is dead: their files stay."""
        self.open.clear()
        self.committer = InProcessCommitter(self.catalog, Settings(attempt_wait_ms_max=0))

    def _tag(self) -> None:
        snapshots = list(self.documents(None, "snapshot").values())
        if snapshots:
            chosen = self.random.choice(snapshots)["id"]
            name = f"t{self.random.randint(0, 3)}"
            create_tag(
                self.stored(), name, self.catalog.publish, snapshot_id=chosen, time_retained=None
            )

    def _untag(self) -> None:
        branch = self._branch()
        tags = list(self.documents(branch, "tag"))
        if tags:
            remove_tag(self.table(branch), self.random.choice(tags).removeprefix("tag-"))

    def _make_branch(self) -> None:
        tags = list(self.documents(None, "tag"))
        tag = self.random.choice(tags).removeprefix("tag-") if tags else None
        name = f"b{self.random.randint(0, 1)}"
        create_branch(self.stored(), name, self.catalog.publish, tag=tag)

    def _drop_branch(self) -> None:
        branches = [name for name in self.branches() if name is not None]
        in_use = {each.transaction.table.branch for each in self.open}
        free = [name for name in branches if name not in in_use]
        if free:
            drop_branch(self.stored(), self.random.choice(free))

    def _consume(self) -> None:
        latest = self.latest(None)
        if self.random.random() < 0.5 or latest is None:
            forget_progress(self.table(), "c")
        else:
            keep_progress(self.table(), "c", max(1, latest["id"] - self.random.randint(0, 3)))

    def _roll_back(self) -> None:
        snapshots = list(self.documents(None, "snapshot").values())
        if snapshots and not self.open:
            chosen = self.random.choice(snapshots)["id"]
            roll_back(self.stored(), self.catalog.publish, snapshot_id=chosen)

    def finish(self) -> None:
        """Two cleanings leave what is live, and nothing else."""
        self._die()
        forget_progress(self.table(), "c")
        for _ in range(2):
            for branch in self.branches():
                with contextlib.suppress(UnknownNameError):
                    self.expire(branch, 2)
            self.clean()
        self.check()
        dead = self.files() - self.live()
        assert not dead, f"dead files are left: {sorted(dead)}"
        left = self.files("manifest/") - self.metadata()
        assert not left, f"dead metadata is left: {sorted(left)}"


def run(seed: int, options: Mapping[str, str], steps: int, *, checks_every: int = 1) -> World:
    """A random history in a new warehouse."""
    source = random.Random(seed)
    catalog = Catalog.open(dict(options))
    statement = parse_statement(SQL.format(source.choice(("", LONG_CHANGELOGS))))
    assert isinstance(statement, CreateTable)
    catalog.create_table(NAME, plan_create_table(statement))
    # Dead writers are known at once: no note has to become a day old.
    with mock.patch.object(attempts, "_DEAD_AFTER_MS", -DAY_MS):
        world = World(catalog, source)
        for number in range(steps):
            world.step()
            if number % checks_every == 0:
                world.check()
        world.finish()
    return world


def main() -> None:
    """Run what the command line names; exit with 1 after the first failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0..100", help="A..B, without B")
    parser.add_argument("--steps", type=int, default=120)
    arguments = parser.parse_args()
    first, _, end = arguments.seeds.partition("..")
    counts: Counter[str] = Counter()
    for seed in range(int(first), int(end)):
        with tempfile.TemporaryDirectory(prefix="history-") as folder:
            try:
                counts += run(seed, {"warehouse": folder}, arguments.steps).counts
            except Exception as error:
                print(f"seed {seed}: {error!r}", flush=True)
                sys.exit(1)
        if seed % 20 == 0:
            print(f"seed {seed}: {counts.total():,} so far", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
