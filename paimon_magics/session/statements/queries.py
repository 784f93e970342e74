"""Statements that only read: queries, and temporary views of them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paimon_magics.errors import InvalidValueError, PaimonMagicsError
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.predicates import condition_text
from paimon_magics.planning.reads.row_filters import limited_sql
from paimon_magics.planning.reads.scans import ReadPlan
from paimon_magics.planning.reads.splits import ColumnsSplit, DifferenceSplit, MergeSplit
from paimon_magics.session.catalog_views import CatalogView
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.parameters import bind, bindings_text, with_values
from paimon_magics.session.planned_work import made_of
from paimon_magics.session.python_frames import frame_text
from paimon_magics.session.queries.file_relations import FileRelation
from paimon_magics.session.queries.frames import frame_of_query, note_view, query_of_view
from paimon_magics.session.queries.planned_reads import read_plan
from paimon_magics.session.queries.relations import Relation, relation_of
from paimon_magics.session.queries.resolution import GivenFrame, SparkOwn
from paimon_magics.session.queries.table_frames import frame_of_plain_query
from paimon_magics.session.scope import StatementScope, errors_translated
from paimon_magics.session.statements.handler import Handler
from paimon_magics.spark.sizes import printed_plan
from paimon_magics.statements.queries.plain_queries import plain_query, whole_aggregates
from paimon_magics.statements.queries.query_traits import used_names
from paimon_magics.statements.statement import CreateTemporaryView, Query, QueryText
from paimon_magics.statements.subjects import subject_of
from paimon_magics.tables.reading.data_read import DataRead
from paimon_magics.tables.snapshots.targets import (
    Difference,
    SnapshotChanges,
    TableState,
    Target,
    snapshot_ids,
)
from paimon_magics.tables.splits.pruning_steps import PruningStep
from paimon_magics.tables.system_tables.registry import is_metadata

if TYPE_CHECKING:
    from paimon_magics.spark.frame_steps import Source
    from paimon_magics.spark.handles import DataFrame


_REASONS: dict[type, str] = {
    MergeSplit: "keys of theirs overlap, or rows delete others",
    DifferenceSplit: "two states are compared",
    ColumnsSplit: "they hold different columns of the same rows",
}


def query_handler(
    scope: StatementScope,
    statement: Query,
    parameters: Mapping[str, object],
    *,
    include_buffer: bool = False,
) -> Handler:
    """SELECT, WITH, VALUES, TABLE."""

    def dry_run() -> str:
        frame = frame_of_query(scope, statement.text, statement.query, parameters)
        count = count_text(len(frame.columns), "column")
        return f"Would return {count}: {', '.join(frame.columns)}."

    def explain(mode: str) -> list[str]:
        lines = query_lines(scope, statement.text, statement.query, parameters)
        frame = frame_of_query(scope, statement.text, statement.query, parameters)
        return [*lines, *([""] if lines else []), *_spark_plan(frame, mode)]

    return Handler(
        run=lambda: _run(scope, statement, parameters, include_buffer),
        dry_run=dry_run,
        explain=explain,
        needs=subject_of(statement).sources,
    )


def _run(
    scope: StatementScope,
    statement: Query,
    parameters: Mapping[str, object],
    include_buffer: bool,
) -> Outcome:
    frame = frame_of_query(
        scope, statement.text, statement.query, parameters, include_buffer=include_buffer
    )
    text = statement.text
    if parameters and statement.query.parameters:
        names = statement.query.parameters
        text = with_values(text, bind(names, parameters, text, scope.zone))
    return Outcome(
        statement.text,
        "SELECT",
        dataframe=frame,
        display_rows=scope.settings.display_rows,
        # No SQL can give rows that are not loaded yet.
        query="" if include_buffer else text,
    )


def create_view(
    scope: StatementScope, statement: CreateTemporaryView, parameters: Mapping[str, object]
) -> Outcome:
    """CREATE TEMPORARY VIEW."""
    frame, source = _frame_of_new_view(scope, statement, parameters)
    with errors_translated(statement.text, 0):
        if statement.or_replace:
            frame.createOrReplaceTempView(statement.name)
        else:
            frame.createTempView(statement.name)
    note_view(scope, statement.name, frame, source)
    return Outcome(
        statement.text,
        "CREATE TEMPORARY VIEW",
        message=f"Temporary view `{statement.name}` created.",
        notes=("It reads the Paimon tables' snapshots of this moment.",),
    )


def _frame_of_new_view(
    scope: StatementScope, statement: CreateTemporaryView, parameters: Mapping[str, object]
) -> tuple[DataFrame, Source | None]:
    plain = plain_query(statement.text, statement.query)
    if plain is not None:
        # Errors are those of the whole query, below.
        with contextlib.suppress(PaimonMagicsError):
            narrowed = frame_of_plain_query(scope, statement.text, plain, statement.columns)
            if narrowed is not None:
                return narrowed
    frame = frame_of_query(scope, statement.text, statement.query, parameters)
    names = statement.columns
    if names is None:
        return frame, None
    if len(names) != len(frame.columns):
        count = count_text(len(names), "column")
        raise InvalidValueError(
            f"View `{statement.name}` names {count}, and its query gives {len(frame.columns)}.",
            hint=f"The query's columns are: {', '.join(frame.columns)}.",
        )
    return made_of(frame.toDF(*names), frame), None


def _spark_plan(frame: DataFrame, mode: str) -> list[str]:
    named = (mode or "simple").lower().replace("logical", "extended")
    return printed_plan(frame, named).rstrip().splitlines()


# How a query reads its tables: snapshots, files left out step by step, raw scan or merge read.


def query_lines(
    scope: StatementScope,
    statement: str,
    query: QueryText,
    parameters: Mapping[str, object],
) -> list[str]:
    """Return a line for each table that the query reads, and lines on what is left out and why."""
    bound = bind(query.parameters, parameters, statement, scope.zone)
    lines = [f"With {bindings_text(bound)}"] if bound else []
    for table_read in table_reads(scope, statement, query, bound):
        lines.append(f"{table_read.name}: {table_read.how}")
        shown = steps_text(table_read.pruning_steps)
        lines += [f"  {shown}"] if shown else []
        lines += [f"  {line}" for line in table_read.conditions]
    return lines


def steps_text(steps: Sequence[PruningStep]) -> str:
    """How many files were left after each pruning step."""
    return " → ".join(
        f"{step.step}: {_files(step.files)}"
        + ("" if step.buckets is None else f" of {count_text(step.buckets, 'bucket')}")
        + ("" if step.partitions is None else f" in {count_text(step.partitions, 'partition')}")
        + ("" if step.size_bytes is None else f", {count_text(step.size_bytes, 'byte')}")
        for step in steps
    )


@dataclass(frozen=True, slots=True)
class TableRead:
    """How a query reads one table: from the manifests, in this process, by raw scan or by merge
    read; the files left after each pruning step, and the conditions."""

    name: str
    how: str
    pruning_steps: tuple[PruningStep, ...] = ()
    conditions: tuple[str, ...] = ()
    opens_files: bool = True


def table_reads(
    scope: StatementScope, statement: str, query: QueryText, bound: Mapping[str, object]
) -> list[TableRead]:
    """Return the query's reads, in the order of its text. `bound` are the values of its bind names.
    Raises errors of ours."""
    reads = []
    names = used_names(statement, query)
    wanted = whole_aggregates(statement, query)
    for reference in query.references:
        relation = relation_of(scope, reference, statement, bound, names)
        if isinstance(relation, CatalogView):
            inner, text, its_query = query_of_view(scope, relation, reference)
            reads.append(TableRead(str(reference.name), f"the catalog's view, {text}"))
            reads += table_reads(inner, text, its_query, {})
        elif not isinstance(relation, Relation):
            reads.append(TableRead(str(reference.name), _outside(relation)))
        elif is_metadata(relation.name):
            reads.append(TableRead(str(relation.name), "metadata, read on the driver"))
        else:
            relation = replace(relation, aggregates=() if wanted is None else wanted.calls)
            plan, read = read_plan(scope, relation)
            reads.append(
                TableRead(
                    str(relation.name),
                    _scans_text(plan, read),
                    read.planned.pruning_steps,
                    tuple(_conditions(read, relation, reference.other_conditions)),
                    opens_files=not plan.opens_no_file,
                )
            )
    return reads


def _outside(meaning: SparkOwn | FileRelation | GivenFrame) -> str:
    match meaning:
        case SparkOwn():
            return "Spark's own table or view"
        case FileRelation(format=kind):
            return f"files of the format {kind}, by Spark's own reader"
        case GivenFrame(frame=frame):
            return f"Python's variable, {frame_text(frame)}"


def _scans_text(plan: ReadPlan, read: DataRead) -> str:
    ids = snapshot_ids(read.target)
    if plan.known_row is not None:
        where = _snapshots(read.target, ids) if ids else "no snapshot yet"
        return f"{where}, no file is opened: the results are from the manifests"
    if not ids:
        return "no snapshot yet, no rows" if isinstance(read.target, TableState) else "no changes"
    parts = [_snapshots(read.target, ids)]
    if plan.known_rows is not None:
        rows = count_text(plan.known_rows, "row")
        parts.append(f"no file is opened: {rows}, from the manifests, and no column is used")
        return ", ".join(parts)
    if plan.local:
        parts.append(f"{_files(plan.local_file_count)} read here, without a Spark task")
    if plan.raw_file_count:
        parts.append(f"{_files(plan.raw_file_count)} by raw scan")
    if plan.merge_file_count:
        parts.append(
            f"{_files(plan.merge_file_count)} by merge read in "
            f"{count_text(len(plan.tasks), 'task')} ({_reasons(plan)})"
        )
    if not plan.raw_file_count and not plan.merge_file_count and not plan.local:
        parts.append("no files")
    return ", ".join(parts)


def _reasons(plan: ReadPlan) -> str:
    """Why the files are read by a merge read, not by a raw scan."""
    counts = dict(plan.unscanned)
    for task in plan.tasks:
        for split in task:
            reason = _REASONS.get(type(split))
            if reason is not None:
                counts[reason] = counts.get(reason, 0) + len(split.files)
    plain = plan.merge_file_count - sum(counts.values())
    if plain > 0:
        counts["their rows are changes in order, or some of them are marked as deleted"] = plain
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{_files(number)}: {reason}" for reason, number in counts.items())


def _conditions(read: DataRead, relation: Relation, more: Sequence[str]) -> list[str]:
    """The lines on the conditions that prune files, and on those that only Spark applies, which
    include `more`."""
    used = {(predicate.column.lower(), predicate.operator) for predicate in read.predicates}
    chosen = [condition_text(predicate) for predicate in read.predicates]
    others = [
        condition_text(condition)
        for condition in relation.filters
        if (condition.column.lower(), condition.operator) not in used
    ] + list(more)
    lines = [f"files are chosen by {' AND '.join(chosen)}"] if chosen else []
    return lines + ([f"left to Spark alone: {' AND '.join(others)}"] if others else [])


def _snapshots(target: Target, ids: Sequence[int]) -> str:
    match target:
        case TableState():
            return f"snapshot {ids[0]}"
        case SnapshotChanges(mode=mode):
            return f"the {mode.value} of snapshots {ids[0]} to {ids[-1]}"
        case Difference():
            return f"the difference between snapshots {ids[0]} and {ids[1]}"


def _files(number: int) -> str:
    return count_text(number, "file")


def check_limit(limit: int | None) -> None:
    """Raise InvalidValueError for a `limit` of rows below 0."""
    if limit is not None and limit < 0:
        raise InvalidValueError(
            f"`limit` of run() is {limit}.", hint="Give a number of rows, 0 or more."
        )


def limited(outcome: Outcome, limit: int) -> Outcome:
    """The outcome of a query with at most `limit` of its rows."""
    assert outcome.dataframe is not None
    return Outcome(
        outcome.statement,
        outcome.kind,
        dataframe=made_of(outcome.dataframe.limit(limit), outcome.dataframe),
        seconds=outcome.seconds,
        display_rows=max(outcome.display_rows, limit),
        notes=outcome.notes,
        query=limited_sql(outcome.sql, limit),
        zone=outcome.zone,
    )
