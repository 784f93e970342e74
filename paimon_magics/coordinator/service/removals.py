"""CALL of procedures that remove snapshots, changelogs, tags and files, through a coordinator or
inside the session's own process.

What is removed is decided while no commit of the table is under way, by what the coordinator knows
of readers and writers (`guards`). A trial decides and counts, and changes nothing.

`POST /v1/tables/removals` with `{id, table, removal, is_trial}` removes; the answer is a receipt.
A client that got no answer sends the same request again: it waits for the run that is under way, or
removes what is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from paimon_magics.coordinator.protocol.errors import PausedError
from paimon_magics.coordinator.runtime.work import Steps
from paimon_magics.coordinator.service.guards import Guard
from paimon_magics.coordinator.service.served import Context
from paimon_magics.coordinator.service.tags_and_branches import change_versions
from paimon_magics.errors import (
    CommitConflictError,
    InvalidValueError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.commits.expiry import ExpiryRules
from paimon_magics.planning.options.values import option_pairs
from paimon_magics.statements.removals import (
    ExpireChangelogs,
    ExpireSnapshots,
    ExpireTags,
    PurgeFiles,
    RemoveOrphanFiles,
    TableRemoval,
)
from paimon_magics.statements.statement import TableName
from paimon_magics.statements.version_changes import DeleteBranches, DeleteTags
from paimon_magics.tables.catalog.stored_tables import load_stored
from paimon_magics.tables.expiry.expire_snapshots import (
    can_expire,
    carried_out,
    expire_changelogs,
    planned_paths,
)
from paimon_magics.tables.expiry.holders import Holder, RemovalReceipt, stored_holders
from paimon_magics.tables.expiry.orphan_files import (
    files_without,
    remove_orphans,
    sizes_of,
)
from paimon_magics.tables.snapshots.chain import expired_tags, list_tags
from paimon_magics.tables.snapshots.consumers import forget_progress, list_progress
from paimon_magics.tables.snapshots.time_travel import moment_ms
from paimon_magics.tables.table import MAIN_BRANCH, Table, branch_names

_DAY_MS = 86_400_000
_NEVER = 2**63 - 1
_UTC = "UTC"
_MODES = ("distributed", "local")
_OPTIONS = (
    "snapshot.num-retained.max",
    "snapshot.num-retained.min",
    "snapshot.time-retained",
    "snapshot.expire.limit",
    "snapshot.clean-empty-directories",
    "changelog.num-retained.max",
    "changelog.num-retained.min",
    "changelog.time-retained",
)


def remove(
    context: Context, name: TableName, removal: TableRemoval, *, is_trial: bool = False
) -> Steps[RemovalReceipt]:
    """Remove what a CALL asks for. Raises errors of ours for what can't be removed, with nothing
    removed; NotOwnerError and PausedError; and CommitConflictError where others keep removing
    files of the table meanwhile.

    Snapshots and changelogs are removed when readers had the time to say what they read. A trial
    does not wait for that."""
    guard = context.guard
    if context.fence is not None:
        guard.own()
        context.fence()
    if not is_trial and context.watch is not None and (pause := context.watch.pause()) is not None:
        raise PausedError(pause)
    table = context.catalog.load(name)
    if not can_expire(table):
        raise UnsupportedStatementError(
            f"The catalog of `{name}` publishes its snapshots itself, and removes them itself.",
            hint="Ask who runs the catalog's server, or use an engine that it lets remove files.",
        )
    match removal:
        case ExpireSnapshots():
            rules = snapshot_rules(table, removal, guard.now_ms())
            if not is_trial:
                yield guard.ready()
            return _expire(guard, table, rules, is_trial=is_trial)
        case ExpireChangelogs():
            if not is_trial:
                yield guard.ready()
            return _expire_changelogs(guard, table, removal, is_trial=is_trial)
        case ExpireTags():
            return (yield from _expire_tags(context, table, removal, is_trial=is_trial))
        case RemoveOrphanFiles():
            is_trial = is_trial or removal.dry_run
            before_ms = orphans_before_ms(table, removal, guard.now_ms())
            return (yield from _remove_orphans(context, table, before_ms, is_trial=is_trial))
        case PurgeFiles():
            if not is_trial:
                yield guard.ready()
            return (yield from _purge(context, table, is_trial=is_trial))
    assert_never(removal)


# Snapshots and changelogs.


def snapshot_rules(table: Table, removal: ExpireSnapshots, now_ms: int) -> ExpiryRules:
    """The rules by which CALL removes snapshots: the table's, with what the call gives. Raises
    InvalidValueError for values that contradict each other, and for options without an effect."""
    options = dict(table.schema.options)
    for key, value in option_pairs(removal.options or "", "snapshot.time-retained=1 d"):
        if key not in _OPTIONS:
            raise InvalidValueError(
                f"The option '{key}' does not affect the expiry of snapshots.",
                hint=nearest(key, _OPTIONS, what="options"),
            )
        options[key] = value
    schema = replace(table.schema, options=tuple(options.items()))
    return ExpiryRules.also_write_only(schema).with_snapshots(
        count_max=removal.retain_max,
        count_min=removal.retain_min,
        time_ms=_age_ms(removal.older_than, now_ms),
        limit=removal.max_deletes,
    )


def _age_ms(older_than: str | None, now_ms: int) -> float | None:
    """How long before now a time was; negative for a time to come."""
    return None if older_than is None else now_ms - moment_ms(older_than, _UTC)


def _expire(guard: Guard, table: Table, rules: ExpiryRules, *, is_trial: bool) -> RemovalReceipt:
    with guard.cleaning(table.location):
        _, expiry = guard.decided(table, rules, is_trial=is_trial)
        if is_trial:
            count, paths = (0, []) if expiry is None else planned_paths(expiry)
            return _planned(guard, table, paths, snapshots=count)
        if expiry is None:
            return RemovalReceipt(holders=_holders(guard, table))
        guard.check()
        removed = carried_out(expiry, guard.turn(table.location))
    return RemovalReceipt(
        snapshots=removed.snapshots, files=removed.files, holders=_holders(guard, table)
    )


def _expire_changelogs(
    guard: Guard, table: Table, removal: ExpireChangelogs, *, is_trial: bool
) -> RemovalReceipt:
    now_ms = guard.now_ms()
    rules = ExpiryRules.also_write_only(table.schema).with_changelogs(
        count_max=removal.retain_max,
        count_min=removal.retain_min,
        time_ms=_age_ms(removal.older_than, now_ms),
        limit=removal.max_deletes,
    )
    with guard.cleaning(table.location):
        guard.check()
        count, paths, files = expire_changelogs(
            table, rules, now_ms, every=removal.delete_all, is_trial=is_trial
        )
    if is_trial:
        return _planned(guard, table, paths, snapshots=count)
    return RemovalReceipt(snapshots=count, files=files, holders=_holders(guard, table))


def _planned(
    guard: Guard, table: Table, paths: Iterable[str], *, snapshots: int = 0
) -> RemovalReceipt:
    there = sizes_of(table, paths)
    return RemovalReceipt(
        snapshots=snapshots,
        files=there.files,
        size_bytes=there.size_bytes,
        holders=_holders(guard, table),
    )


def _holders(guard: Guard, table: Table) -> tuple[Holder, ...]:
    return (*stored_holders(table), *guard.holders(table))


# Tags.


def _expire_tags(
    context: Context, table: Table, removal: ExpireTags, *, is_trial: bool
) -> Steps[RemovalReceipt]:
    before_ms = None if removal.older_than is None else moment_ms(removal.older_than, _UTC)
    stored = load_stored(context.catalog, table.name)
    names = tuple(expired_tags(stored, context.guard.now_ms(), before_ms))
    if names and not is_trial:
        receipt = yield from change_versions(context, table.name, DeleteTags(names))
        names = receipt.changed
    others = (
        each
        for each in _holders(context.guard, table)
        if not (each.kind == "tag" and each.name in names)  # on trial they are still there
    )
    return RemovalReceipt(names=names, holders=tuple(others))


# Files that nothing refers to.


def orphans_before_ms(table: Table, removal: RemoveOrphanFiles, now_ms: int) -> int:
    """The time before which an orphan must have been written. Raises InvalidValueError for one to
    come and for a mode or parallelism that there is not, InvalidTableError for a branch."""
    if removal.mode is not None and removal.mode.lower() not in _MODES:
        raise InvalidValueError(
            f"There is no mode '{removal.mode}' of sys.remove_orphan_files.",
            hint="Leave `mode` out: 'local' and 'distributed' do the same here.",
        )
    if removal.parallelism is not None and removal.parallelism < 1:
        raise InvalidValueError(
            f"`parallelism` is {removal.parallelism}: it must be at least 1.",
            hint="Leave it out: files are looked at in the coordinator's process.",
        )
    if table.name.branch is not None:
        raise InvalidValueError(
            f"`{table.name}` is a branch: its files lie among those of its table.",
            hint=f"Clean the table: CALL sys.remove_orphan_files('{table.name.database}."
            f"{table.name.table}').",
        )
    if removal.older_than is None:
        return now_ms - _DAY_MS
    before_ms = moment_ms(removal.older_than, _UTC)
    if before_ms >= now_ms:
        raise InvalidValueError(
            "`older_than` is a time to come: files that are being written would be deleted, too.",
            hint="Give a time before every write that may still be under way, or leave it out: "
            "then files of the last day stay.",
        )
    return before_ms


def _remove_orphans(
    context: Context, table: Table, before_ms: int, *, is_trial: bool
) -> Steps[RemovalReceipt]:
    guard = context.guard
    yield from _in_peace(context, table)
    with guard.cleaning(table.location):
        orphans = remove_orphans(
            table,
            before_ms,
            lambda: guard.moment(table),
            dry_run=is_trial,
            may_continue=guard.check,
        )
    return RemovalReceipt(names=orphans.names, files=orphans.files, size_bytes=orphans.size_bytes)


def _in_peace(context: Context, table: Table) -> Steps[None]:
    """Wait until no commit of the table is under way or unclear."""
    if context.slot is not None:
        with context.slot(table.location) as free:
            yield free


# All of it.


def _purge(context: Context, table: Table, *, is_trial: bool) -> Steps[RemovalReceipt]:
    """Remove all that keeps files of a table whose rows were removed."""
    guard, name = context.guard, table.name
    if name.branch is not None:
        raise InvalidValueError(
            f"`{name}` is a branch: sys.purge_files is for whole tables.",
            hint=f"CALL sys.delete_branch('{name.database}.{name.table}', '{name.branch}') "
            "deletes it.",
        )
    writers = [each for each in guard.holders(table) if each.kind == "transaction"]
    if writers and not is_trial:
        raise CommitConflictError(
            f"`{name}` is being written: {writers[0].name or 'by another session'}.",
            hint="Nothing was removed. Run the statement again when that is over, or end it: "
            "`%paimon queue` lists what is under way.",
        )
    if is_trial:
        yield from _in_peace(context, table)
        readers = guard.holders(table)
        kept_from = min((r.snapshot_id for r in readers if r.snapshot_id), default=_NEVER)
        gone = files_without(table, kept_from, guard.now_ms(), lambda: guard.moment(table))
        return RemovalReceipt(files=gone.files, size_bytes=gone.size_bytes, holders=tuple(readers))
    branches = tuple(b for b in branch_names(table.paimon) if b != MAIN_BRANCH)
    if branches:
        yield from change_versions(context, name, DeleteBranches(branches))
    tags = tuple(list_tags(load_stored(context.catalog, name)))
    if tags:
        yield from change_versions(context, name, DeleteTags(tags))
    for consumer in list_progress(table):
        forget_progress(table, consumer)
    removed = RemovalReceipt()
    every = ExpireChangelogs(delete_all=True)
    removed += _expire_changelogs(guard, table, every, is_trial=False)
    only_latest = ExpireSnapshots(retain_max=1, retain_min=1, max_deletes=2**31 - 1)
    rules = snapshot_rules(table, only_latest, guard.now_ms()).with_snapshots(
        count_max=1, count_min=1, time_ms=0, limit=None
    )
    removed += _expire(guard, table, rules, is_trial=False)
    removed += yield from _remove_orphans(context, table, guard.now_ms(), is_trial=False)
    return replace(removed, holders=tuple(guard.holders(table)))
