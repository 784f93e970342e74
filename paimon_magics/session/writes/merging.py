"""MERGE INTO: one join of one snapshot with the source, and one commit that changes the rows.

The source is computed once for each run: the changed rows are kept by Spark, in memory and on its
disks, while they are counted and written. What happens when this process dies is said in
`session/writes/transactions.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from paimon_magics.coordinator.client.attempts import Attempts
from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.commits.read_sets import Found, ReadSet, read_files, read_keys
from paimon_magics.planning.commits.requests import Append, CommitReceipt
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.views import row_id_columns
from paimon_magics.planning.row_changes.engine_rules import ChangeMethod
from paimon_magics.planning.row_changes.merge_query import (
    SOURCE_MARK,
    TARGET_MARK,
    merge_query,
    needed_columns,
)
from paimon_magics.planning.row_changes.merges import MergePlan, inserts_keys_of_on, plan_merge
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.parameters import bind
from paimon_magics.session.planned_work import made_of
from paimon_magics.session.queries.frames import Selection, frame_of_query
from paimon_magics.session.writes.exactness import check_policy
from paimon_magics.session.writes.insert import run_job, write_planned
from paimon_magics.session.writes.keyed_rows import keyed_rows
from paimon_magics.session.writes.merge_checks import check_target, method_of_merge
from paimon_magics.session.writes.merge_places import (
    MergePlaces,
    counted_rows,
    merge_places,
    run_place_merge,
)
from paimon_magics.session.writes.merged_schemas import merge_columns_of_source, merge_rules_of
from paimon_magics.session.writes.outcomes import (
    WrittenFiles,
    finished,
    of_write,
    write_outcome,
)
from paimon_magics.session.writes.prepare import PreparedInsert
from paimon_magics.session.writes.transactions import run_again
from paimon_magics.spark.failures import translate
from paimon_magics.spark.merging import (
    MatchCounts,
    changed_rows,
    given_values,
    marked,
)
from paimon_magics.spark.queries import binding_replacements, frame_of_text
from paimon_magics.spark.writing import JobWritten
from paimon_magics.statements.clauses.names import quoted, table_text
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.merge_into import MergeInto
from paimon_magics.statements.queries.determinism import random_part
from paimon_magics.statements.queries.rewriting import replacements_for
from paimon_magics.statements.queries.row_ids import names_row_ids
from paimon_magics.statements.queries.used_columns import used_names
from paimon_magics.statements.statement import Query, TableReference
from paimon_magics.tables.snapshots.latest import latest_snapshot_id
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.write_spec import WriteSpec

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = ["PreparedMerge", "prepare_merge", "run_merge"]


@dataclass(frozen=True)
class PreparedMerge:
    """A planned MERGE: what its clauses do, how the table's rows are changed, and the rows that are
    written, with their kinds. `places` are set where rows without keys change."""

    plan: MergePlan
    method: ChangeMethod
    insert: PreparedInsert
    places: MergePlaces | None = None


def run_merge(
    connection: Connection,
    merge: MergeInto,
    parameters: Mapping[str, object],
    source: DataFrame | None = None,
) -> Outcome:
    """Run a MERGE as one transaction; `source` takes the place of the statement's.

    Raises errors of ours: for a statement that does not fit the table, before anything is written;
    InvalidValueError for a target row that several source rows would change; JobError if the job
    fails; CommitConflictError if the commit does.
    """
    merged = _merged_columns(connection, merge, parameters, source)
    outcome = run_again(
        prepare_merge(connection, merge, parameters, source),
        partial(_run_once, connection, merge),
        lambda outdated: _again(connection, merge, parameters, source),
        reruns_max=connection.settings.row_level_retries,
        may_run_again=lambda outdated: random_part(merge.text) is None,
    )
    outcome.notes = (*merged, *outcome.notes)
    return outcome


def _merged_columns(
    connection: Connection,
    merge: MergeInto,
    parameters: Mapping[str, object],
    source: DataFrame | None,
) -> tuple[str, ...]:
    """Give the table the source's columns, if `write.merge-schema` asks for that; return notes."""
    if merge_rules_of(connection, merge) is None:
        return ()
    table = connection.load(merge.target, merge.text, merge.target_position)
    method_of_merge(table, merge)
    chosen = Selection(replace(table.name, system_table=None), latest_snapshot_id(table), -1, ())
    given = _source(connection, merge, parameters, chosen, source)
    return merge_columns_of_source(connection, merge, given)


def _source(
    connection: Connection,
    merge: MergeInto,
    parameters: Mapping[str, object],
    chosen: Selection,
    source: DataFrame | None,
) -> DataFrame:
    if source is not None:
        return source
    try:
        return frame_of_query(
            connection, merge.source_text, merge.source, parameters, selection=chosen
        )
    except PaimonMagicsError as error:
        if error.statement == merge.source_text:
            error.statement = merge.text
        raise


def prepare_merge(
    connection: Connection,
    merge: MergeInto,
    parameters: Mapping[str, object],
    source: DataFrame | None = None,
) -> PreparedMerge:
    """Plan a MERGE and check it against its table and source; nothing runs."""
    table = connection.load(merge.target, merge.text, merge.target_position)
    # Taken before the rows are selected: a later commit then counts as newer than the plan.
    base = latest_snapshot_id(table)
    method = method_of_merge(table, merge)
    shows_ids = names_row_ids(merge.text[merge.within.range.start :])
    name = replace(table.name, system_table=None)
    chosen = Selection(name, base, -1, (), shows_row_ids=shows_ids)
    try:
        given = _source(connection, merge, parameters, chosen, source)
        fills = merge_rules_of(connection, merge) is not None
        plan = plan_merge(merge, table.schema, given.columns, fills_missing=fills)
        check_target(connection, merge, plan, table, base)
        places = None
        if not table.schema.is_primary_key_table and not plan.only_inserts:
            places = merge_places(connection, merge, plan, table, base)
        sides = _Sides(table, given, places)
        rows = _changed_rows(connection, merge, plan, sides, chosen, parameters)
    except PaimonMagicsError as error:
        if error.statement == merge.source_text:
            error.statement = merge.text
        raise
    is_keyed = table.schema.is_primary_key_table
    if not is_keyed and places is None:
        rows = made_of(rows.select(*map(quoted, table.schema.column_names)), rows)

    def again() -> PreparedInsert:
        return _again(connection, merge, parameters, source).insert

    read_set = _read_set(merge, plan, table.schema, base)
    if is_keyed:
        insert = keyed_rows(table, rows, base, again=again, read_set=read_set)
    else:
        column = partial(_column, rows)
        insert = PreparedInsert(
            table, rows, Append(), base, column, again, check=lambda: None, read_set=read_set
        )
    return PreparedMerge(plan, method, insert, places)


def _column(rows: DataFrame, only: str) -> DataFrame:
    return rows.select(quoted(only))


def _read_set(merge: MergeInto, plan: MergePlan, schema: TableSchema, base: int) -> ReadSet:
    """What the commit is checked against. Rows that are inserted because nothing matched them must
    have nothing that matches them still; where their keys are those of ON, the keys tell."""
    found = Found(adds_missing=True) if "insert" in plan.effects else None
    if not schema.is_primary_key_table:
        return read_files(base, (), Found(adds_missing=True))
    if inserts_keys_of_on(merge, plan, schema):
        found = None
    return read_keys(base, found)


def _again(
    connection: Connection,
    merge: MergeInto,
    parameters: Mapping[str, object],
    source: DataFrame | None,
) -> PreparedMerge:
    connection.tables.renew()
    return prepare_merge(connection, merge, parameters, source)


@dataclass(frozen=True)
class _Sides:
    """The two sides of the join; with `places` the target's rows have those."""

    table: Table
    source: DataFrame
    places: MergePlaces | None


def _changed_rows(
    connection: Connection,
    merge: MergeInto,
    plan: MergePlan,
    sides: _Sides,
    chosen: Selection,
    parameters: Mapping[str, object],
) -> DataFrame:
    """The rows to write, with their kinds, in the table's columns and types."""
    table, source, places = sides.table, sides.source, sides.places
    columns = table.schema.columns
    more = () if places is None else places.more
    if places is None:
        needed = needed_columns(merge, plan, table.schema.column_names)
        ids = row_id_columns(table.schema, used_names(merge.text, merge.within))
        names = [columns[at].name for at in needed] + [one.name for one in ids]
        target = _target_rows(connection, table, chosen, names)
    else:
        needed, target = places.needed, places.frame
    bound = bind(merge.within.parameters, parameters, merge.text, connection.zone)
    replaced = [*binding_replacements(connection.spark, merge.text, merge.within, bound)]
    nested = [
        (reference, _nested_frame(connection, merge, reference, chosen, parameters))
        for reference in merge.within.references
    ]
    views = connection.views
    try:
        names = []
        for reference, frame in nested:
            names.append(views.pass_by(frame))
            replaced += replacements_for(reference, names[-1])
        left = views.pass_by(marked(target, TARGET_MARK))
        right = views.pass_by(marked(source, SOURCE_MARK))
        target_columns = {at: columns[at].name for at in needed}
        target_columns |= dict(enumerate(more, len(columns)))
        text = merge_query(merge, plan, (left, right), target_columns, replaced)
        joined = frame_of_text(connection.spark, merge.text, text, bound)
        views.read_by(joined, {left, right, *names})
    finally:
        views.drop_passing()
    try:
        if connection.settings.store_assignment != "ansi":
            given = given_values(plan, columns)
            values = joined.select(*(quoted(name) for name, _ in given))
            stored = [column for _, column in given]
            check_policy(connection.spark, values.toDF(*(one.name for one in stored)), stored)
        rows = changed_rows(connection.spark, joined, plan, columns, more)
    except Exception as error:
        raise located(translate(error), merge.text, merge.target_position) from error
    return made_of(rows, target, source, *(frame for _, frame in nested))


def _target_rows(
    connection: Connection, table: Table, chosen: Selection, names: list[str]
) -> DataFrame:
    """Columns of the target's rows in the snapshot that is changed."""
    listed = ", ".join(quoted(name) for name in names)
    query = parse_statement(f"SELECT {listed} FROM {table_text(table.name)}")
    assert isinstance(query, Query)
    return frame_of_query(connection, query.text, query.query, {}, selection=chosen)


def _nested_frame(
    connection: Connection,
    merge: MergeInto,
    reference: TableReference,
    chosen: Selection,
    parameters: Mapping[str, object],
) -> DataFrame:
    """The rows of a table that a subquery in a value reads."""
    place = reference.range
    query = parse_statement(f"SELECT * FROM {merge.text[place.start : place.end]}")
    assert isinstance(query, Query)
    try:
        return frame_of_query(connection, query.text, query.query, parameters, selection=chosen)
    except PaimonMagicsError as error:
        error.statement, error.position = merge.text, place.start
        raise


def _run_once(
    connection: Connection, merge: MergeInto, prepared: PreparedMerge, attempts: Attempts
) -> Outcome:
    insert, plan = prepared.insert, prepared.plan
    if prepared.places is not None:
        merged = run_place_merge(connection, merge, plan, insert, prepared.places, attempts)
        outcome = _outcome(merge, insert.table, merged.receipt, merged.files, merged.counts)
        return finished(connection, outcome, insert.table, merged.buckets)
    counted: list[MatchCounts] = []
    if plan.only_inserts:
        write = partial(run_job, connection)
    else:
        write = partial(_counted_write, connection, counted)
    current, receipt, written = write_planned(connection, insert, attempts, merge.text, write)
    counts = counted[-1] if counted else MatchCounts(written.rows, 0, 0, 0)
    outcome = _outcome(merge, current.table, receipt, of_write(written), counts)
    return finished(connection, outcome, current.table, written.buckets)


def _counted_write(
    connection: Connection, counted: list[MatchCounts], prepared: PreparedInsert, task: WriteSpec
) -> JobWritten:
    """Count the changed rows, and write them if no row is changed twice."""
    kept = replace(prepared, frame=prepared.frame.persist())
    try:
        counted.append(counted_rows(kept.frame, prepared.table.schema.primary_keys))
        return run_job(connection, kept, task)
    finally:
        kept.frame.unpersist()


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
    outcome.rows_inserted = counts.inserted
    return outcome
