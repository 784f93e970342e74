"""Policies of S3 that limit a key to what somebody may read and write. Pure.

The key of a table, which an engine gets, is limited to the table's folder. The key of a session is
limited to the folders of all tables that its user may read; it writes only what sessions write
(data files, indexes beside them, notes of tasks), since all else is the coordinator's work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any
from urllib.parse import urlsplit

from paimon_magics.coordinator.protocol.principals import Principal, Scope
from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.commits.requests import ANY_NAMES
from paimon_magics.planning.copying.load_history import PENDING_FOLDER

POLICY_CHARACTERS_MAX = 2_048
"""The longest policy that STS takes with a request."""

_OBJECT = "arn:aws:s3:::"
_WILD = "*?${}"
_READ = ["s3:GetObject"]
_PUT = ["s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
_DELETE = "s3:DeleteObject"
_OWN = ".paimon-magics*"  # ids of tables, the coordinator's log


class Level(IntEnum):
    """What a key may do in a table's folder: each level includes the one before it.

    ADD writes files whose names no other user's transactions may take. COMMIT writes and deletes
    what an engine does at its commits: manifests too, tags (`tag.automatic-creation`), and the
    deletion of snapshots that expire; it may list the names in the bucket. Snapshots and schemas
    are written by the coordinator alone.
    """

    READ = 0
    ADD = 1
    COMMIT = 2


# What the levels may neither write nor delete, below a table's folder and those of its branches.
# `.attempts` tells the coordinator what to remove, `.streams` what streams pass over, and
# `copy-into/pending` which files are loaded by which commit. The records of loaded files, beside
# it, are the connector's, which writes them with the key of the table.
_PROTECTED: dict[Level, tuple[str, ...]] = {
    Level.ADD: ("branch/*",),
    Level.COMMIT: ("schema/*", ".attempts/*", ".streams/*", f"{PENDING_FOLDER}/*", _OWN),
}
# What COMMIT may delete and not write. The hints beside are written by who expires.
_DELETED_ONLY = ("snapshot/snapshot-*",)
_METADATA = ("schema", "snapshot", "tag", "branch", "manifest", "changelog", "statistics")


def level_of(principal: Principal, database: str, table: str) -> Level:
    """What a principal who may read a table may do in its folder, by their scopes on it.

    Paimon's Java library expires snapshots after each of its commits, and writes the hint of the
    earliest one after the first: a key that may not fails commits that have succeeded.
    """
    if principal.may_on(Scope.CHANGE, database, table):
        return Level.COMMIT
    may_insert = principal.may_on(Scope.INSERT, database, table)
    may_maintain = principal.may_on(Scope.MAINTAIN, database, table)
    return Level.ADD if may_insert or may_maintain else Level.READ


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of a bucket, without slashes around it."""

    bucket: str
    path: str

    @classmethod
    def of(cls, location: str) -> Folder:
        """The folder of a location in S3. Raises UnsupportedStatementError for a name to which no
        policy can be limited."""
        parts = urlsplit(location)
        _, _, rest = location.partition("://")
        path = rest.partition("/")[2].strip("/")
        if set(path) & set(_WILD):
            raise UnsupportedStatementError(
                f"No key can be limited to {location}: its name has one of the characters {_WILD}.",
                hint="Rename the table or its database, or read it with keys of your own.",
            )
        return cls(parts.netloc, path)

    def below(self, pattern: str) -> str:
        """The pattern of paths below the folder."""
        return f"{self.path}/{pattern}".lstrip("/")


def table_policy(
    folder: Folder, level: Level, names: str = ANY_NAMES, ends_at_ms: int | None = None
) -> str:
    """The policy of the key of a table. `names` is how the names of files begin that ADD writes.
    `ends_at_ms`, in epoch milliseconds, is when it ends where that is before the key's own end.
    Raises UnsupportedStatementError for one that is too long."""
    below, root = folder.below("*"), f"{_OBJECT}{folder.bucket}/"
    # Clients ask for an object with the name of a folder, too.
    objects = [f"{root}{below}", f"{root}{folder.path}"]
    statements = [_allow(_READ, objects), *_listing(folder.bucket, [below])]
    if level is Level.ADD:
        statements.append(_allow(_PUT, [f"{root}{folder.below(f'*/{names}*')}"]))
        statements.append(_deny(_PUT[:1], _below(folder, _PROTECTED[level])))
    elif level is Level.COMMIT:
        # In its folders alone: an object with the name of a folder hides what the folder has.
        statements += [
            _allow([*_PUT, _DELETE], [f"{root}{folder.below('*/*')}"]),
            _deny([_PUT[0], _DELETE], _below(folder, _PROTECTED[level])),
            *_of_arrow(folder),
            _deny(_PUT[:1], _below(folder, _DELETED_ONLY)),
        ]
    return _policy(statements, ends_at_ms)


def _below(folder: Folder, patterns: Iterable[str]) -> list[str]:
    """Resources to deny below a folder and its branches, as short as can be: what is denied besides
    is not allowed anyway. Folders of partitions have a `=` in their names."""
    parts = folder.path.split("/")
    if not set(parts) & set(_METADATA):
        return [f"{_OBJECT}*/{pattern}" for pattern in patterns]
    root = f"{_OBJECT}*/{parts[-1]}/"
    return [f"{root}{of_branch}{p}" for p in patterns for of_branch in ("", "branch/*/")]


def _of_arrow(folder: Folder) -> list[dict[str, Any]]:
    """What pypaimon needs besides to write: Arrow asks whether the bucket is there, which S3 takes
    for a list of the bucket, and creates the folders above a file as empty objects."""
    parts = folder.path.split("/")
    above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    resources = [f"{_OBJECT}{folder.bucket}/{path}/" for path in above]
    whole = _allow(["s3:ListBucket"], [f"{_OBJECT}{folder.bucket}"])
    listing = {**whole, "Condition": {"Null": {"s3:prefix": "true"}}}
    return [listing, _allow(_PUT[:1], resources)]


Tables = Callable[[], Iterable[tuple[str, str]]]
"""Gives the database and name of each table of the warehouse."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The tables of a session's key, as patterns of paths below the warehouse's folder; those that
    are hidden from it by database and name."""

    reads: Sequence[str]
    adds: Sequence[str]
    hidden: Sequence[tuple[str, str]] = ()


def session_policy(
    warehouse: Folder, reach: Reach, names: str = ANY_NAMES, ends_at_ms: int | None = None
) -> str:
    """The policy of a session's key. It writes files whose names begin with `names`, in folders of
    tables, and how far its readers of changes have come. Raises UnsupportedStatementError for one
    that is too long."""
    bucket = warehouse.bucket
    statements = _listing(bucket, [warehouse.below(pattern) for pattern in reach.reads])
    root = f"{_OBJECT}{bucket}/"
    adds = [f"{root}{warehouse.below(pattern)}" for pattern in reach.adds]
    reads = [f"{root}{warehouse.below(pattern)}" for pattern in reach.reads]
    if only_read := [resource for resource in reads if resource not in adds]:
        statements.append(_allow(_READ, only_read))
    if adds:
        tables = f"{root}{warehouse.below('*.db/*/')}"
        own = [f"{tables}{names}*", f"{tables}consumer/consumer-*"]
        denied = [f"{tables}branch/*", f"{root}{warehouse.below('.paimon-magics*')}"]
        statements += [
            _allow([*_READ, *_PUT], adds),
            {"Effect": "Deny", "Action": _PUT, "NotResource": own},
            _deny(_PUT[:1], denied),
        ]
    for database, table in reach.hidden:
        path = warehouse.below(f"{database}.db/")
        statements += [
            _deny(["s3:*"], [f"{root}{path}{table}/*"]),
            _listing_denied(bucket, {"StringLike": {"s3:prefix": f"{path}{table}/*"}}),
            # Whoever lists the database's folder sees the names in all of its tables.
            _listing_denied(
                bucket,
                {
                    "StringLike": {"s3:prefix": f"{path}*"},
                    "StringNotLike": {"s3:prefix": f"{path}*/*"},
                },
            ),
        ]
    return _policy(statements, ends_at_ms)


def _listing_denied(bucket: str, condition: dict[str, Any]) -> dict[str, Any]:
    return {**_deny(["s3:ListBucket"], [f"{_OBJECT}{bucket}"]), "Condition": condition}


def reach_of(principal: Principal, tables: Tables, closed: Iterable[tuple[str, str]] = ()) -> Reach:
    """What a session of a principal reaches. `tables` gives the database and name of each table: a
    pattern is expanded where S3's own would match more. `closed` are those of `closed_table`."""
    hidden = [(d, t) for d, t in closed if not principal.may_on(Scope.READ, d, t)]
    if principal.grants is None:
        everything = ["*.db/*"] if principal.may(Scope.READ) else []
        return Reach(everything, everything if _may_add(principal.scope) else [], hidden)
    reads, adds = set[str](), set[str]()
    for grant in principal.grants:
        pattern = _pattern(grant.database, grant.table)
        if pattern is not None:
            paths = [pattern]
        else:
            # A name that is a pattern itself would reach other tables: it has no key.
            plain = ((d, t) for d, t in tables() if not set(d + t) & set(_WILD))
            paths = [_path(d, t) for d, t in plain if grant.matches(d, t)]
        reads.update(paths)
        if _may_add(grant.scope):
            adds.update(paths)
    return Reach(_least(reads), _least(adds), hidden)


def _may_add(scope: Scope | None) -> bool:
    return scope is not None and (scope.includes(Scope.INSERT) or scope.includes(Scope.MAINTAIN))


def _path(database: str, table: str) -> str:
    return f"{database}.db/{table}/*"


def _pattern(database: str, table: str) -> str | None:
    """The pattern of the paths of a grant's tables; None where it would match others too, since a
    `*` of S3 also stands for slashes."""
    if set(database + table) & (set(_WILD) - {"*"}):
        return None
    if table == "*" and "*" not in database[:-1]:
        return f"{database}.db/*"
    if "*" in database or "*" in table[:-1]:
        return None
    return f"{database}.db/{table}" if table.endswith("*") else _path(database, table)


def _least(patterns: Iterable[str]) -> list[str]:
    """The patterns without those of single tables whose whole database is among them."""
    paths = set(patterns)
    if "*.db/*" in paths:
        return ["*.db/*"]
    whole = {f"{pattern.partition('/')[0]}/*" for pattern in paths} & paths
    return sorted(
        pattern
        for pattern in paths
        if pattern in whole or f"{pattern.partition('/')[0]}/*" not in whole
    )


def _listing(bucket: str, patterns: Sequence[str]) -> list[dict[str, Any]]:
    """Statements that allow to list what has the patterns."""
    if not patterns:
        return []
    prefixes = {"StringLike": {"s3:prefix": list(patterns)}}
    return [{**_allow(["s3:ListBucket"], [f"{_OBJECT}{bucket}"]), "Condition": prefixes}]


def _allow(actions: Sequence[str], resources: Sequence[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": list(actions), "Resource": list(resources)}


def _deny(actions: Sequence[str], resources: Sequence[str]) -> dict[str, Any]:
    return {"Effect": "Deny", "Action": list(actions), "Resource": list(resources)}


def _policy(statements: list[dict[str, Any]], ends_at_ms: int | None) -> str:
    """The text of a policy; one that allows nothing denies everything."""
    whole = list(statements) or [_deny(["s3:*"], [f"{_OBJECT}*"])]
    if ends_at_ms is not None:
        end = datetime.fromtimestamp(ends_at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        over = {"DateGreaterThan": {"aws:CurrentTime": end}}
        whole.append({**_deny(["s3:*"], [f"{_OBJECT}*"]), "Condition": over})
    text = json.dumps({"Version": "2012-10-17", "Statement": whole}, separators=(",", ":"))
    if len(text) > POLICY_CHARACTERS_MAX:
        raise UnsupportedStatementError(
            f"The policy of the key has {len(text):,} characters; the store takes "
            f"{POLICY_CHARACTERS_MAX:,}.",
            hint="Grant on whole databases, or on patterns that end with `*`, in place of many "
            "single tables; or shorten the names of the folders.",
        )
    return text
