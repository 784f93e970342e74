"""What statements would delete beyond rows of the current state: snapshots, tags, branches,
columns, history. Each question states how to keep it, or how to restore it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from paimon_magics.errors import PaimonMagicsError, UnconfirmedError
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.options.values import duration_ms
from paimon_magics.session.queries.spark_calls import own_name
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.statements.handler import unconfirmed
from paimon_magics.session.writes.outcomes import rows_taken
from paimon_magics.statements.maintenance import Maintenance, RescaleBuckets
from paimon_magics.statements.statement import (
    Delete,
    DropTable,
    Insert,
    InsertAction,
    MergeInto,
    PassThrough,
    TableName,
    TruncateTable,
    Update,
)
from paimon_magics.statements.subjects import Statement
from paimon_magics.statements.table_changes import (
    AlterTable,
    DropColumn,
    DropPartitions,
    SetOptions,
    TableChange,
    UnsetOptions,
)
from paimon_magics.statements.version_changes import (
    CreateTag,
    DeleteBranches,
    DeleteTags,
    FastForward,
    ReplaceTag,
    RollBack,
    RollBackToTag,
    VersionChange,
)
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.commits.replaced_partitions import sizes_of_replaced
from paimon_magics.tables.snapshots.branches import kept_by_forward
from paimon_magics.tables.snapshots.chain import (
    latest_document,
    list_snapshots,
    list_tags,
    load_tag,
    snapshot_by_id,
)
from paimon_magics.tables.snapshots.tags_and_branches import rolled_back_to
from paimon_magics.tables.table import MAIN_BRANCH, StoredTable, Table, branch_names

_KEEP_STATE = (
    "To keep the state of now, run CALL sys.create_tag('{table}', 'before') and "
    "CALL sys.create_branch('{table}', 'before', 'before') first: `{table}$branch_before` then has "
    "its rows."
)

# What these options are without a value; None for one that keeps everything for ever.
_HOUR = "1 h"
_MANY = str(2**31 - 1)
_RETENTION: dict[str, str | None] = {
    "snapshot.time-retained": _HOUR,
    "snapshot.num-retained.min": "10",
    "snapshot.num-retained.max": _MANY,
    "changelog.time-retained": None,
    "changelog.num-retained.min": None,
    "changelog.num-retained.max": None,
    "tag.default-time-retained": None,
    "partition.expiration-time": None,
    "record-level.expire-time": None,
}
_SNAPSHOTS, _CHANGELOGS = "snapshot.", "changelog."
_ROWS, _PARTITIONS = "all rows of ", "partitions of "
# Statements of Spark's own that delete more than a table, or files.
_PASSED_LOSSES = re.compile(
    r"(?P<database>DROP\s+(?:DATABASE|SCHEMA))\b|INSERT\s+OVERWRITE\s+(?:LOCAL\s+)?DIRECTORY\b"
    r"|LOAD\s+DATA\b(?=.*\bOVERWRITE\s+INTO\b)",
    re.IGNORECASE | re.DOTALL,
)


def loss_of_change(
    scope: StatementScope,
    statement: Statement,
    name: TableName,
    change: VersionChange | Maintenance,
    position: int,
) -> UnconfirmedError | None:
    """The question before a change of tags, branches, snapshots or buckets; None if the change
    loses nothing for good. Raises what loading the table raises."""
    loaded = scope.load(name, statement.text, position)
    table = load_stored(scope.catalog, loaded.name)
    if isinstance(change, RollBack):
        return _loss_of_roll_back(statement, table, change)
    match change:
        case DeleteTags(tags=tags):
            return _loss_of_tags(statement, table, f"Deleting tags of `{name}`", tags)
        case ReplaceTag(tag=tag) | CreateTag(tag=tag, or_replace=True):
            return _loss_of_tags(statement, table, f"Moving a tag of `{name}`", [tag])
        case DeleteBranches(branches=branches):
            return unconfirmed(
                statement,
                f"Deleting a branch of `{name}`",
                f"the branch {_names(branches)} with all snapshots that were committed to it",
                "Its rows that the table lacks can't be restored: INSERT them first, or fast-"
                "forward the table to the branch.",
            )
        case FastForward(branch=branch):
            return _loss_of_forward(scope, statement, table, branch)
        case RescaleBuckets() if sizes := sizes_of_replaced(loaded, specs=()):
            before = loaded.schema.stored_option("bucket") or "-1"
            return unconfirmed(
                statement,
                f"Rescaling `{name}`",
                f"the layout of {rows_taken(sizes)}, which are written anew",
                f"CALL sys.rescale with bucket_num => {before} restores their layout.",
            )
        case _:
            return None


def loss_of_table(scope: StatementScope, table: Table) -> str:
    """What goes with a table that is dropped, in words: rows, snapshots, tags, branches; "" for a
    table that has no rows and never had any that a snapshot, tag or branch still has."""
    sizes = sizes_of_replaced(table, specs=())
    parts = [rows_taken(sizes)] if sizes else []
    if scope.catalog.metastore == "rest":
        return ", ".join(parts)  # the server knows what else goes
    stored = load_stored(scope.catalog, table.name)
    tags = list_tags(stored)
    branches = [b for b in branch_names(table.paimon) if b != MAIN_BRANCH]
    snapshots = list_snapshots(stored, 0, None)
    if not (parts or tags or branches or any(s.get("totalRecordCount") for s in snapshots)):
        return ""
    if snapshots:
        parts.append(count_text(len(snapshots), "snapshot"))
    parts += [f"the {kind} {_names(names)}" for kind, names in _named(tags, branches) if names]
    return ", ".join(parts)


def _named(tags: Sequence[str], branches: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
    return [
        ("tag" if len(tags) == 1 else "tags", tags),
        ("branch" if len(branches) == 1 else "branches", branches),
    ]


def loss_of_alteration(
    statement: AlterTable, table: Table, effective: Sequence[TableChange]
) -> UnconfirmedError | None:
    """The question before columns are dropped, or history is kept for a shorter time. `effective`
    are the changes of the statement that have an effect."""
    columns = [".".join(change.path) for change in effective if isinstance(change, DropColumn)]
    sizes = sizes_of_replaced(table, specs=()) if columns else []
    if sizes:
        return unconfirmed(
            statement,
            f"ALTER TABLE `{table.name}` DROP COLUMN",
            f"the values of {_names(columns)} in {rows_taken(sizes)}",
            "Until they expire, earlier snapshots still have them: SELECT … VERSION AS OF.",
        )
    shorter = _shortened(statement, table)
    if not shorter:
        return None
    return unconfirmed(
        statement,
        f"ALTER TABLE `{table.name}`, which sets {'; '.join(shorter)},",
        "history that is kept now: it expires with the next commits",
        "Expired snapshots can't be restored; a tag keeps a snapshot.",
    )


def loss_of_sparks_table(
    scope: StatementScope, statement: Statement, mode: str
) -> UnconfirmedError | None:
    """The question before a statement takes rows, columns, partitions or files away that are of
    Spark's own: nothing brings them back. None for other statements, for temporary views, and for
    changes that Spark refuses. `mode` is as in `Handler.unconfirmed`."""
    if isinstance(statement, PassThrough):
        return _loss_of_passed(statement)
    change = _change_of_sparks_table(statement, mode)
    if change is None:
        return None
    what, name, loss, needs_row_changes = change
    own = own_name(scope, name)
    if own is None or (needs_row_changes and not _changes_rows(scope, own)):
        return None
    return unconfirmed(
        statement,
        f"{what} `{name}`",
        f"{loss}{own}, a table of Spark's own"
        + ("" if name.catalog else f" (Paimon has no table `{scope.full_name(name)}`)"),
        f"{own} is its full name. It has no snapshots of Paimon's to go back to.",
    )


def _change_of_sparks_table(
    statement: Statement, mode: str
) -> tuple[str, TableName, str, bool] | None:
    """What a statement does to which table, what it takes away, and whether only catalogs other
    than Spark's built-in one do so; None if it takes nothing away."""
    match statement:
        case DropTable(name=name):
            return "DROP TABLE", name, "", False
        case TruncateTable(name=name, partition=partition):
            return "TRUNCATE TABLE", name, _ROWS if partition is None else _PARTITIONS, False
        case Insert(target=name, overwrite=True, partition=partition):
            is_whole = partition is None and mode != "dynamic"
            return "INSERT OVERWRITE", name, _ROWS if is_whole else _PARTITIONS, False
        case Delete(target=name, selection=selection):
            is_whole = selection.condition is None
            return "DELETE", name, _ROWS if is_whole else "rows of ", True
        case Update(target=name):
            return "UPDATE", name, "the present values of rows of ", True
        case MergeInto(target=name) if any(
            not isinstance(clause.action, InsertAction) for clause in statement.clauses
        ):
            return "MERGE INTO", name, "the present values of rows of ", True
        case AlterTable(name=name, changes=changes):
            columns = [".".join(c.path) for c in changes if isinstance(c, DropColumn)]
            if columns:
                return "ALTER TABLE … DROP COLUMN of", name, f"{_names(columns)} of ", True
            if any(isinstance(change, DropPartitions) for change in changes):
                return "ALTER TABLE … DROP PARTITION of", name, _PARTITIONS, False
    return None


def _loss_of_passed(statement: PassThrough) -> UnconfirmedError | None:
    """The question before a statement of another kind than ours deletes tables or files."""
    match = _PASSED_LOSSES.match(statement.text.strip())
    if match is None:
        return None
    words = " ".join(match[0].upper().split())
    return unconfirmed(
        statement,
        words,
        "tables of Spark's own, with their rows" if match["database"] else "what is there now",
        "It can't be undone.",
    )


def _changes_rows(scope: StatementScope, own: str) -> bool:
    """Whether the catalog of one of Spark's tables may change rows and drop columns: Spark's
    built-in catalog refuses both."""
    key = f"spark.sql.catalog.{own.partition('.')[0]}"
    return scope.spark.conf.get(key, None) is not None


def _loss_of_roll_back(
    statement: Statement, table: StoredTable, change: RollBack
) -> UnconfirmedError | None:
    latest = latest_document(table)
    if isinstance(change, RollBackToTag):
        tag = load_tag(table, change.tag)
        target_id = None if tag is None else int(tag["id"])
    else:
        target_id = rolled_back_to(table, change)
    if latest is None or target_id is None:
        return None  # running it says what is missing
    later = [s for s in list_snapshots(table, 0, None) if s["id"] > target_id]
    if not later:
        return None
    tags = [t for t in list_tags(table) if (load_tag(table, t) or latest)["id"] > target_id]
    first, last = min(s["id"] for s in later), max(s["id"] for s in later)
    which = f"snapshot {last}" if first == last else f"snapshots {first} to {last}"
    rows = sum(int(s.get("deltaRecordCount") or 0) for s in later)
    did = "removed" if rows < 0 else "added"
    with_tags = f" and the tags {_names(tags)}" if tags else ""
    return unconfirmed(
        statement,
        f"Rolling `{table.name}` back to snapshot {target_id}",
        f"{which}{with_tags}, which together {did} {count_text(abs(rows), 'row')}",
        _KEEP_STATE.format(table=table.name),
    )


def _loss_of_forward(
    scope: StatementScope, statement: Statement, table: StoredTable, branch: str
) -> UnconfirmedError | None:
    """The question before a fast-forward. Raises the error of one that will be refused."""
    name, latest = table.name, latest_document(table)
    if latest is None or name.branch is not None or branch == "main":
        return None  # running it says what is wrong
    if scope.catalog.metastore == "rest":
        way = _KEEP_STATE.format(table=name)  # the server may remove snapshots
    else:
        target = load_stored(scope.catalog, replace(name, branch=branch))
        base_id = kept_by_forward(table, target)
        newest = latest_document(target)
        if newest is not None and newest["id"] == base_id:
            return None  # the branch has nothing that the table lacks
        back = f"CALL sys.rollback('{name}', '{base_id}')"
        way = f"{back} goes back, until snapshot {base_id} expires."
        if base_id != latest["id"]:
            way += f" Snapshot {latest['id']} is the branch's afterwards."
        if snapshot_by_id(table, base_id) is None:
            way = _KEEP_STATE.format(table=name)
    return unconfirmed(
        statement,
        f"Fast-forwarding `{name}`",
        f"its present state, snapshot {latest['id']}; it gets the state of `{branch}`",
        way,
    )


def _loss_of_tags(
    statement: Statement, table: StoredTable, what: str, tags: Sequence[str]
) -> UnconfirmedError | None:
    documents = {tag: stored for tag in tags if (stored := load_tag(table, tag)) is not None}
    if not documents:
        return None
    snapshots = {int(s["id"]) for s in list_snapshots(table, 0, None)}
    expired = [tag for tag, document in documents.items() if document["id"] not in snapshots]
    loss = " and ".join(f"`{name}` from snapshot {doc['id']}" for name, doc in documents.items())
    way = (
        f"Snapshots of {_names(expired)} have expired: nothing else keeps their rows."
        if expired
        else "CALL sys.create_tag tags such a snapshot again, as long as it has not expired."
    )
    return unconfirmed(statement, what, loss, way)


def _shortened(statement: AlterTable, table: Table) -> list[str]:
    """The options of retention that a statement makes smaller, in words."""
    before = {key: table.schema.stored_option(key) for key in _RETENTION}
    after = dict(before)
    for change in statement.changes:
        match change:
            case SetOptions(options=options):
                after.update({key: value for key, value in options if key in _RETENTION})
            case UnsetOptions(keys=keys):
                after.update(dict.fromkeys(set(keys) & set(_RETENTION)))
    shorter = []
    for key in _RETENTION:
        old, new = _effective(before, key), _effective(after, key)
        if (
            new is not None
            and new != old
            and (old is None or _amount(key, new) < _amount(key, old))
        ):
            shorter.append(f"`{key}` from {old or 'for ever'} to {new}")
    return shorter


def _effective(options: dict[str, str | None], key: str) -> str | None:
    """An option's value, given or by default; a changelog is kept as long as its snapshots are."""
    value = options[key] or _RETENTION[key]
    if value is None and key.startswith(_CHANGELOGS):
        return _effective(options, key.replace(_CHANGELOGS, _SNAPSHOTS))
    return value


def _amount(key: str, value: str) -> float:
    read: Callable[[str, str], float] = duration_ms if "time" in key else lambda _, text: int(text)
    try:
        return read(key, value)
    except (PaimonMagicsError, ValueError):
        return float("inf")  # the statement itself is refused


def _names(names: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)
