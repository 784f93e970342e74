"""MERGE INTO: one join of one snapshot with the source, and one commit that changes the rows.

The source is computed once for each run: the writers of a primary-key table count the changed rows
and find one that is changed twice. Where they can't, Spark keeps these rows, in memory and on its
disks, while they are counted and written. `session/writes/transactions.py` says what
happens when this process dies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import PaimonMagicsError, UnsupportedStatementError
from paimon_magics.planning.commits.read_sets import ReadSet, RowSearch, read_files, read_keys
from paimon_magics.planning.commits.requests import Append, CommitReceipt
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.predicates import ColumnPredicate
from paimon_magics.planning.reads.views import PARTLY
from paimon_magics.planning.row_changes.change_rules import (
    ChangeMethod,
    check_moves,
    check_no_file_calls,
    method_of_delete,
    method_of_update,
)
from paimon_magics.planning.row_changes.merged_updates import (
    MergedUpdate,
    merged_update,
    unseen_notes,
)
from paimon_magics.planning.row_changes.merges import (
    FromText,
    MergePlan,
    ToDefault,
    Upsert,
    Value,
    assigned_columns,
    inserts_keys_of_on,
    plan_merge,
)
from paimon_magics.planning.row_changes.source_keys import SourceKey
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.planned_work import made_of, planned_bytes, reads_of
from paimon_magics.session.provenance import Operation
from paimon_magics.session.queries.frames import frame_of_query
from paimon_magics.session.queries.relations import Selection
from paimon_magics.session.row_changes.append_changes import run_place_merge
from paimon_magics.session.row_changes.merge_join import (
    MergeOnTable,
    MergePlaces,
    MergeTarget,
    SourceLookup,
    analyzed_source,
    changed_twice,
    counted_rows,
    merge_target,
    merged_rows,
    target_conditions,
)
from paimon_magics.session.row_changes.written_rows import check_seen, keyed_rows
from paimon_magics.session.scope import StatementScope, errors_located
from paimon_magics.session.writes.merged_schemas import merge_columns_of_source, merge_rules_of
from paimon_magics.session.writes.outcomes import (
    WrittenFiles,
    finished,
    of_write,
    with_losses,
    write_outcome,
)
from paimon_magics.session.writes.prepare import PreparedWrite, reads_now
from paimon_magics.session.writes.transactions import run_again
from paimon_magics.session.writes.write_jobs import persisted, run_job, run_write
from paimon_magics.spark.losses import kept_losses, without_losses
from paimon_magics.spark.merge_rows import COUNTED, KIND_NUMBERS, MatchCounts
from paimon_magics.spark.rows import last_rows
from paimon_magics.spark.session_settings import few_shuffle_tasks
from paimon_magics.spark.sizes import COMPRESSED_AT_MOST, estimate
from paimon_magics.spark.writing import JobWritten
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.queries.query_traits import random_part
from paimon_magics.statements.queries.rewriting import ROW_ID_COLUMNS, hidden_columns_named
from paimon_magics.statements.statement import DeleteAction, Insert, MergeInto, TableReference
from paimon_magics.tables.snapshots.latest import latest_snapshot_id, latest_state
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import CompletedWrite
from paimon_magics.tables.writing.write_spec import WriteSpec

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame


@dataclass(frozen=True)
class PreparedMerge:
    """A planned MERGE: what its clauses do, how the table's rows are changed, what is read of the
    table, and the rows that are written, with their kinds. `again` plans it on the table as it is
    then. The range of the source's `keys`, once it is known, leaves out files of the table;
    `lookup` finds the rows that are read. `joined_bytes` is the upper bound on the size of the rows
    that are joined; None if unknown."""

    plan: MergePlan
    method: ChangeMethod
    target: MergeTarget
    insert: PreparedWrite
    again: Callable[[], PreparedMerge]
    keys: tuple[SourceKey, ...] = ()
    lookup: SourceLookup | None = None
    joined_bytes: float | None = None

    @property
    def places(self) -> MergePlaces | None:
        """The places of the target's rows, where rows without keys change."""
        return self.target.places


def run_merge(
    scope: StatementScope,
    merge: MergeInto,
    parameters: Mapping[str, object],
    source: DataFrame | None = None,
) -> Outcome:
    """Run a MERGE as one transaction; `source` takes the place of the statement's.

    Raises errors of ours: for a statement that does not fit the table, before anything is written;
    InvalidValueError for a target row that several source rows would change; JobError if the job
    fails; CommitConflictError if the commit does.
    """
    notes = _merged_columns(scope, merge, parameters, source)
    with ExitStack() as released:
        outcome = run_again(
            prepare_merge(scope, merge, parameters, source, released),
            partial(_run_on_few_tasks, scope, merge),
            lambda outdated: outdated.again(),
            reruns_max=scope.settings.row_level_retries,
            may_run_again=lambda outdated: random_part(merge.text) is None,
        )
    outcome.notes = (*notes, *outcome.notes)
    return outcome


def _merged_columns(
    scope: StatementScope,
    merge: MergeInto,
    parameters: Mapping[str, object],
    source: DataFrame | None,
) -> tuple[str, ...]:
    """Give the table the source's columns, if `write.merge-schema` asks for that; return notes."""
    if merge_rules_of(scope, merge) is None:
        return ()
    table = scope.load(merge.target, merge.text, merge.target_position)
    _method_of_merge(table, merge)
    chosen = Selection(replace(table.name, system_table=None), latest_snapshot_id(table), -1, ())
    rows = _source(scope, merge, parameters, chosen, source)
    return merge_columns_of_source(scope, merge, without_losses(rows))


def _source(
    scope: StatementScope,
    merge: MergeInto,
    parameters: Mapping[str, object],
    chosen: Selection,
    source: DataFrame | None,
) -> DataFrame:
    if source is not None:
        return source
    try:
        return frame_of_query(
            scope.filling(), merge.source_text, merge.source, parameters, selection=chosen
        )
    except PaimonMagicsError as error:
        if error.statement == merge.source_text:
            error.statement = merge.text
        raise


def prepare_merge(
    scope: StatementScope,
    merge: MergeInto,
    parameters: Mapping[str, object],
    source: DataFrame | None = None,
    released: ExitStack | None = None,
) -> PreparedMerge:
    """Plan a MERGE and check it against its table and source. With `released` the source may be
    read, to read less of the table; Spark keeps it until `released` is closed. Without, nothing
    runs."""
    on, rows = _planned(scope, merge, parameters, source)
    conditions = target_conditions(on)
    _check_target(on, conditions.predicates(on.table.schema))
    analyzed = analyzed_source(on, conditions, rows, released)
    lookup = analyzed.lookup
    target = merge_target(on, analyzed.conditions, None if lookup is None else lookup.keys)
    source_size = estimate(analyzed.source)
    target = _with_source_size(target, source_size.size_bytes)
    changed = merged_rows(on, target, analyzed.source)

    def again() -> PreparedMerge:
        if released is not None:
            released.close()
        scope.tables.renew()
        return prepare_merge(scope, merge, parameters, source, released)

    references = merge.within.references
    if source is None:
        references = (*references, *merge.source.references)
    insert = _prepared_write(on, target, changed, references, lambda: again().insert)
    source_bytes = source_size.rows_bytes
    joined_bytes = None if source_bytes is None else source_bytes + _rows_bytes(target)
    keys = analyzed.keys
    return PreparedMerge(on.plan, on.method, target, insert, again, keys, lookup, joined_bytes)


def _planned(
    scope: StatementScope,
    merge: MergeInto,
    parameters: Mapping[str, object],
    source: DataFrame | None,
) -> tuple[MergeOnTable, DataFrame]:
    """What the clauses do to the table as it is now, and the rows of the source."""
    table = scope.load(merge.target, merge.text, merge.target_position)
    # Taken before the rows are selected: a later commit then counts as newer than the plan.
    base, manifest_list = latest_state(table)
    method = _method_of_merge(table, merge)
    named = hidden_columns_named(merge.text[merge.within.range.start :])
    shows_ids = not named.isdisjoint(ROW_ID_COLUMNS)
    name = replace(table.name, system_table=None)
    chosen = Selection(name, base, -1, (), shows_row_ids=shows_ids)
    rows = _source(scope, merge, parameters, chosen, source)
    fills = merge_rules_of(scope, merge) is not None
    plan = plan_merge(merge, table.schema, rows.columns, fills_missing=fills)
    update = _merged_update_of_merge(table, merge, plan)
    on = MergeOnTable(scope, merge, plan, table, chosen, parameters, method, manifest_list, update)
    return on, rows


def _prepared_write(
    on: MergeOnTable,
    target: MergeTarget,
    rows: DataFrame,
    references: Sequence[TableReference],
    again: Callable[[], PreparedWrite],
) -> PreparedWrite:
    """The write of the changed rows. The commit is checked against what was read: the target, and
    the tables of `references`."""
    table, base = on.table, on.chosen.snapshot_id
    is_keyed = table.schema.is_primary_key_table
    if not is_keyed and target.places is None:
        names = map(quoted, table.schema.column_names)
        rows = made_of(rows.select(*names, *kept_losses(rows)), rows)
    reads = (reads_now(on.scope, on.merge.text, table, reference) for reference in references)
    read_set = _read_set(on, () if any(reads) else target.predicates)
    if is_keyed:
        return keyed_rows(table, rows, base, again=again, read_set=read_set)
    return PreparedWrite(
        table,
        rows,
        Append(),
        base,
        again,
        read_set=read_set,
        base_manifest_list=on.manifest_list,
    )


def _with_source_size(target: MergeTarget, source_bytes: float | None) -> MergeTarget:
    """The target with Spark's estimate of the source's size, where one job does all."""
    if target.places is None or not target.places.in_one_job:
        return target
    return replace(target, places=replace(target.places, source_bytes=source_bytes))


def _rows_bytes(target: MergeTarget) -> int:
    """Upper bound on the size of the target's rows when they are shuffled."""
    plan = None if target.places is None else target.places.plan
    if plan is None:
        return planned_bytes(reads_of(target.frame)) * COMPRESSED_AT_MOST
    return sum(unit.size_bytes for unit in plan.units) * COMPRESSED_AT_MOST


def _read_set(on: MergeOnTable, conditions: tuple[ColumnPredicate, ...]) -> ReadSet:
    """What the commit is checked against: the rows that were looked for are those that meet
    `conditions`. Inserted rows are rows that nothing matched: at the commit, nothing may match them
    either. If their keys are those of ON, the keys show that."""
    schema, base, name = on.table.schema, on.chosen.snapshot_id, on.manifest_list
    wanted = RowSearch(conditions, adds_missing="insert" in on.plan.effects)
    if not schema.is_primary_key_table:
        return read_files(base, (), wanted, manifest_list=name)
    keys_suffice = not wanted.adds_missing or inserts_keys_of_on(on.merge, on.plan, schema)
    return read_keys(base, None if keys_suffice else wanted, manifest_list=name)


def _run_on_few_tasks(
    scope: StatementScope, merge: MergeInto, prepared: PreparedMerge, attempts: Attempts
) -> Outcome:
    with few_shuffle_tasks(scope.spark, prepared.joined_bytes, scope.slots):
        return _run_once(scope, merge, prepared, attempts)


def _run_once(
    scope: StatementScope, merge: MergeInto, prepared: PreparedMerge, attempts: Attempts
) -> Outcome:
    insert, plan = prepared.insert, prepared.plan
    if prepared.places is not None:
        if prepared.lookup is not None:
            prepared.lookup.ask(scope, merge)
        receipt, merged = run_place_merge(
            scope, merge, insert, prepared.places, plan.effects, attempts
        )
        outcome = _outcome(merge, insert.table, receipt, merged.files, merged.counts)
        outcome = with_losses(outcome, insert.table, merged.losses)
        return finished(scope, outcome, insert.table, merged.buckets)
    counted: list[MatchCounts] = []
    if plan.only_inserts:
        write = partial(run_job, scope)
    else:
        write = partial(_counted_write, scope, counted)

    def counts_of(written: CompletedWrite) -> MatchCounts:
        return counted[-1] if counted else MatchCounts(written.rows, 0, 0, 0)

    def operation(written: CompletedWrite) -> Operation:
        counts = counts_of(written)
        return Operation("MERGE", counts.inserted, counts.updated, counts.deleted)

    current, receipt, written = run_write(scope, insert, attempts, merge.text, write, operation)
    counts = counts_of(written)
    outcome = _outcome(merge, current.table, receipt, of_write(written), counts)
    outcome = with_losses(outcome, current.table, written.losses)
    return finished(scope, outcome, current.table, written.buckets, files_each=written.files_each)


def _counted_write(
    scope: StatementScope, counted: list[MatchCounts], prepared: PreparedWrite, task: WriteSpec
) -> JobWritten:
    """Write the changed rows and count them, or refuse them if a row is changed twice. The writers
    find that; where rows do not come to them with their kinds, Spark keeps the rows, and they are
    counted before."""
    keys = prepared.table.schema.primary_keys
    if prepared.has_kinds:
        job = run_job(scope, prepared, task, keys)
        if job.changes_twice:
            raise changed_twice()
        inserted, updated, deleted = (job.kinds[KIND_NUMBERS[effect]] for effect in COUNTED)
        updated += job.kinds[PARTLY]
        counted.append(MatchCounts(inserted, updated, deleted, 1, job.written.unseen))
        return job
    with persisted(prepared.frame) as rows:
        counted.append(counted_rows(rows, keys))
        return run_job(scope, replace(prepared, frame=rows), task)


def _outcome(
    merge: MergeInto,
    table: Table,
    receipt: CommitReceipt,
    written: WrittenFiles,
    counts: MatchCounts,
) -> Outcome:
    done = (
        f"{count_text(counts.updated, 'row')} updated, {counts.deleted:,} deleted, "
        f"{counts.inserted:,} inserted"
    )
    outcome = write_outcome(merge.text, "MERGE INTO", table, receipt, written, done)
    outcome.rows_updated, outcome.rows_deleted = counts.updated, counts.deleted
    outcome.rows_inserted, outcome.rows_unchanged = counts.inserted, counts.unseen.unwritten
    outcome.notes = unseen_notes(table.schema, counts.unseen)
    return outcome


# Which tables a MERGE may change, by its clauses.


def _method_of_merge(table: Table, merge: MergeInto) -> ChangeMethod:
    """How rows are changed. Raises UnsupportedStatementError where a clause can't be done."""
    check_no_file_calls(merge.text, merge.within.range.start, "MERGE")
    with errors_located(merge.text, merge.target_position):
        method = method_of_update(table.name, table.schema, "MERGE")
        if any(isinstance(clause.action, DeleteAction) for clause in merge.clauses):
            deletes = method_of_delete(table.name, table.schema)
            if table.schema.is_primary_key_table and deletes is not ChangeMethod.KINDS:
                raise UnsupportedStatementError(
                    f"A MERGE can't delete rows of `{table.name}`: its merge engine "
                    f"{table.schema.merge_engine} takes no deletes.",
                    hint="Leave out the DELETE clause. Delete these rows by a separate DELETE "
                    "statement.",
                )
    return method


def _merged_update_of_merge(table: Table, merge: MergeInto, plan: MergePlan) -> MergedUpdate | None:
    """What the merge engine makes of the rows that a MERGE updates. None if it updates none, or the
    table has no keys.

    Raises UnsupportedStatementError for assignments that the engine does not carry out.
    """
    assigned = assigned_columns(merge, plan, table.schema)
    if assigned is None or not table.schema.is_primary_key_table:
        return None
    nulls = {
        column.name
        for clause in plan.clauses
        if clause.effect == "update"
        for column, value in zip(table.schema.columns, clause.values, strict=True)
        if column.default is None and _is_null(merge, value)
    }
    with errors_located(merge.text, merge.target_position):
        return merged_update(table.name, table.schema, assigned, nulls)


def _is_null(merge: MergeInto, value: Value) -> bool:
    """Whether a value is NULL, as far as the statement's text says."""
    if isinstance(value, FromText):
        return merge.text[value.range.start : value.range.end].strip().upper() == "NULL"
    return isinstance(value, ToDefault)


def _check_target(on: MergeOnTable, predicates: Sequence[ColumnPredicate]) -> None:
    """Raise UnsupportedStatementError for what can't be done to rows of a table with keys. The rows
    that matter meet `predicates`."""
    merge, plan, table, schema = on.merge, on.plan, on.table, on.table.schema
    if not schema.is_primary_key_table:
        return
    place = merge.text, merge.target_position
    with errors_located(*place):
        check_moves(table.name, schema, assigned_columns(merge, plan, schema))
        if schema.bucket_mode == "KEY_DYNAMIC" and "delete" in plan.effects:
            raise UnsupportedStatementError(
                f"The keys of table `{table.name}` can move between partitions; one MERGE can't "
                "delete rows of it and write others.",
                hint="Run a separate DELETE for those rows, before or after the MERGE.",
            )
    check_seen(on.scope, table, on.chosen.snapshot_id, predicates, place)


# INSERT INTO a table with `upsert-key`: the MERGE of `planning/row_changes/merges.py`.


def run_upsert(
    scope: StatementScope, insert: Insert, prepared: PreparedWrite, upsert: Upsert
) -> Outcome:
    """Run a planned INSERT as the MERGE of its rows. Raises UnsupportedStatementError if it reads
    the table that it writes, and as `run_merge`."""
    table = prepared.table
    if prepared.read_set is not None:
        raise UnsupportedStatementError(
            f"`{table.name}` has 'upsert-key' = '{table.schema.stored_option('upsert-key')}', "
            "and this INSERT reads the table that it writes: concurrent changes of others could "
            "be lost.",
            hint="Write MERGE INTO, which reads the table once.",
            statement=insert.text,
            position=insert.target_position,
        )
    prepared.check()
    rows = last_rows(prepared.frame, upsert.keys, upsert.sequence, ascending=upsert.ascending)
    made_of(rows, prepared.frame)
    merge = upsert.merge(table.name)
    try:
        outcome = run_merge(scope, merge, {}, rows)
    except PaimonMagicsError as error:
        if error.statement == merge.text:  # the user wrote another one
            error.statement, error.position = insert.text, insert.target_position
        raise
    outcome.statement, outcome.query, outcome.kind = insert.text, None, "INSERT INTO"
    outcome.message = f"INSERT INTO{outcome.message.removeprefix('MERGE INTO')}"
    return outcome
