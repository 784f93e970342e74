"""How a statement would run, without running it: `--explain` and `--dry-run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.commits.requests import (
    Append,
    Change,
    OverwritePartitions,
    OverwriteTouched,
)
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.predicate_texts import condition_text
from paimon_magics.planning.reads.scans import ReadPlan
from paimon_magics.planning.reads.splits import ColumnsSplit, DifferenceSplit, MergeSplit
from paimon_magics.planning.schemas.alterations import plan_alter_table
from paimon_magics.planning.schemas.rules import check_stated
from paimon_magics.planning.schemas.table_schema import TableSchema, plan_create_table
from paimon_magics.session.bound_values import bindings_text
from paimon_magics.session.connection import Connection, located
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.parameters import bind
from paimon_magics.session.python_frames import frame_text
from paimon_magics.session.queries.file_relations import FileRelation
from paimon_magics.session.queries.frames import Relation, frame_of_query, read_plan, relation_of
from paimon_magics.session.queries.resolution import GivenFrame, SparkOwn
from paimon_magics.session.refusals import refused
from paimon_magics.session.statements.tags_and_branches import planned_call
from paimon_magics.session.writes.insert import PreparedInsert, distribution, prepare_insert
from paimon_magics.spark.types import columns_of
from paimon_magics.statements.kinds import Explain, Statement
from paimon_magics.statements.statement import (
    CreateTable,
    DropTable,
    Insert,
    Query,
    QueryText,
    Refused,
    TruncateTable,
)
from paimon_magics.statements.table_changes import AlterTable, DropPartitions, RenameTable
from paimon_magics.statements.version_changes import AlterTags, Call
from paimon_magics.tables.reading.data_read import DataRead
from paimon_magics.tables.snapshots.targets import (
    Difference,
    SnapshotChanges,
    TableState,
    Target,
    snapshot_ids,
)
from paimon_magics.tables.splits.file_pruning import PruningStep
from paimon_magics.tables.system_tables.registry import is_metadata

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "TableRead",
    "dry_run_of",
    "explain_statement",
    "explanation_of",
    "plan_without_running",
    "table_reads",
]

_REASONS: dict[type, str] = {
    MergeSplit: "keys of theirs overlap, or rows delete others",
    DifferenceSplit: "two states are compared",
    ColumnsSplit: "they hold different columns of the same rows",
}


def explanation_of(
    connection: Connection,
    text: str,
    statements: Sequence[Statement],
    parameters: Mapping[str, object],
) -> Outcome:
    """How the statements would run, one after the other."""
    planned: set[str] = set()
    lines: list[str] = []
    for statement in statements:
        lines += ([""] if lines else []) + _explained(connection, statement, parameters, planned)
    return _text(connection, text, lines, query="")


def explain_statement(
    connection: Connection, statement: Statement, parameters: Mapping[str, object]
) -> Outcome:
    """One line per decision; for a query, Spark's own plan follows as EXPLAIN gives it."""
    return _text(connection, statement.text, _explained(connection, statement, parameters, set()))


def dry_run_of(
    connection: Connection,
    text: str,
    statements: Sequence[Statement],
    parameters: Mapping[str, object],
) -> Outcome:
    """What each of the statements would do, one line each; raises the first one's errors."""
    planned: set[str] = set()
    lines = [
        plan_without_running(connection, statement, parameters, planned) for statement in statements
    ]
    return Outcome(text, "dry run", message="\n".join(lines), query="")


def _explained(
    connection: Connection,
    statement: Statement,
    parameters: Mapping[str, object],
    planned: set[str],
) -> list[str]:
    mode = ""
    if isinstance(statement, Explain):
        mode, statement = statement.mode, statement.inner
    if not _waits_for(connection, statement, planned):
        match statement:
            case Query():
                lines = _query_lines(connection, statement.text, statement.query, parameters)
                frame = frame_of_query(connection, statement.text, statement.query, parameters)
                return [*lines, *([""] if lines else []), *_spark_plan(frame, mode)]
            case Insert():
                return _insert_lines(connection, statement, parameters)
            case _:
                pass
    return [plan_without_running(connection, statement, parameters, planned)]


def _waits_for(connection: Connection, statement: Statement, planned: set[str]) -> list[str]:
    """The tables among `planned` that the statement is about."""
    if isinstance(statement, CreateTable):
        return []
    names = {str(connection.full_name(n)) for n in _tables_named(connection, statement)}
    return sorted(names & planned)


def plan_without_running(
    connection: Connection,
    statement: Statement,
    parameters: Mapping[str, object],
    planned: set[str],
) -> str:
    """Check and plan a statement; raise the errors that it would raise before its job starts.

    `planned` collects the tables that earlier statements of the cell would create: what is said
    about those can't be checked yet.
    """
    waiting = _waits_for(connection, statement, planned)
    if waiting:
        shown = ", ".join(f"`{name}`" for name in waiting)
        return f"Not checked: an earlier statement would create {shown} first."
    match statement:
        case Query():
            frame = frame_of_query(connection, statement.text, statement.query, parameters)
            return f"Would return {_columns(len(frame.columns))}: {', '.join(frame.columns)}."
        case Insert():
            return "Would run. " + " ".join(_insert_lines(connection, statement, parameters))
        case CreateTable():
            said = _checked_create(connection, statement, parameters)
            planned.add(str(connection.full_name(statement.name)))
            return said
        case AlterTable():
            return _checked_alter(connection, statement)
        case DropTable(if_exists=False):
            table = connection.load(statement.name, statement.text, 0)
            return f"Would drop `{table.name}`."
        case TruncateTable():
            table = connection.load(statement.name, statement.text, 0)
            return f"Would remove rows of `{table.name}`."
        case AlterTags():
            table = connection.load(statement.name, statement.text, statement.name_position)
            return f"Would change tags of `{table.name}`."
        case Call():
            call, name = planned_call(connection, statement, parameters)
            connection.load(name, statement.text, call.position)
            return f"Would call sys.{call.procedure} for `{name}`."
        case Refused():
            raise refused(connection, statement)
        case _:
            return "Would run."


def _checked_alter(connection: Connection, statement: AlterTable) -> str:
    table = connection.load(statement.name, statement.text, statement.name_position)
    changes = [
        change
        for change in statement.changes
        if not isinstance(change, RenameTable | DropPartitions)
    ]
    try:
        plan_alter_table(table.schema, changes)
    except PaimonMagicsError as error:
        raise located(error, statement.text, statement.name_position) from None
    return f"Would alter `{table.name}`."


def _tables_named(connection: Connection, statement: Statement):  # type: ignore[no-untyped-def]
    ours = (None, connection.settings.catalog_name)
    match statement:
        case Query():
            found = [reference.name for reference in statement.query.references]
        case Insert():
            found = [statement.target, *(r.name for r in statement.source.references)]
        case AlterTable() | AlterTags() | TruncateTable():
            found = [statement.name]
        case _:
            found = []
    return [name for name in found if name.catalog in ours]


def _checked_create(
    connection: Connection, statement: CreateTable, parameters: Mapping[str, object]
) -> str:
    name = connection.full_name(statement.name)
    columns = None
    if statement.query is not None:
        frame = frame_of_query(connection, statement.text, statement.query, parameters)
        columns = columns_of(frame.schema)
    try:
        schema = plan_create_table(statement, columns)
        check_stated(schema)
    except PaimonMagicsError as error:
        raise located(error, statement.text, statement.name_position) from None
    kind = "primary-key" if schema.is_primary_key_table else "append"
    return f"Would create the {kind} table `{name}` with {_columns(len(schema.columns))}."


def _query_lines(
    connection: Connection,
    statement: str,
    query: QueryText,
    parameters: Mapping[str, object],
) -> list[str]:
    bound = bind(query.parameters, parameters, statement, connection.zone)
    lines = [f"With {bindings_text(bound)}"] if bound else []
    for found in table_reads(connection, statement, query, bound):
        lines.append(f"{found.name}: {found.how}")
        shown = " → ".join(
            f"{one.step}: {_files(one.files)} of {count_text(one.buckets, 'bucket')}"
            + ("" if one.partitions is None else f" in {count_text(one.partitions, 'partition')}")
            + f", {one.size_bytes:,} bytes"
            for one in found.pruning_steps
        )
        lines += [f"  {shown}"] if shown else []
        lines += [f"  {line}" for line in found.conditions]
    return lines


@dataclass(frozen=True, slots=True)
class TableRead:
    """How a query reads one table: by raw scan or merge read, what was left after each step of
    leaving files out, and by which conditions."""

    name: str
    how: str
    pruning_steps: tuple[PruningStep, ...] = ()
    conditions: tuple[str, ...] = ()


def table_reads(
    connection: Connection, statement: str, query: QueryText, bound: Mapping[str, object]
) -> list[TableRead]:
    """What a query reads, in the order of its text; `bound` are the values of its bind names.
    Raises errors of ours."""
    found = []
    for reference in query.references:
        relation = relation_of(connection, reference, statement, bound)
        if not isinstance(relation, Relation):
            found.append(TableRead(str(reference.name), _outside(relation)))
        elif is_metadata(relation.name):
            found.append(TableRead(str(relation.name), "metadata, read on the driver"))
        else:
            plan, read = read_plan(connection, relation)
            found.append(
                TableRead(
                    str(relation.name),
                    _scans_text(plan, read),
                    read.planned.pruning_steps,
                    tuple(_conditions(read, relation, reference.other_conditions)),
                )
            )
    return found


def _outside(found: SparkOwn | FileRelation | GivenFrame) -> str:
    match found:
        case SparkOwn():
            return "Spark's own table or view"
        case FileRelation(format=kind):
            return f"files of the format {kind}, by Spark's own reader"
        case GivenFrame(frame=frame):
            return f"Python's variable, {frame_text(frame)}"


def _scans_text(plan: ReadPlan, read: DataRead) -> str:
    ids = snapshot_ids(read.target)
    if not ids:
        return "no snapshot yet, no rows" if isinstance(read.target, TableState) else "no changes"
    parts = [_snapshots(read.target, ids)]
    if plan.raw_file_count:
        parts.append(f"{_files(plan.raw_file_count)} by raw scan")
    if plan.merge_file_count:
        parts.append(
            f"{_files(plan.merge_file_count)} by merge read in "
            f"{count_text(len(plan.tasks), 'task')} ({_reasons(plan)})"
        )
    if not plan.raw_file_count and not plan.merge_file_count:
        parts.append("no files")
    return ", ".join(parts)


def _reasons(plan: ReadPlan) -> str:
    """Why a merge read has the files."""
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
    """By which conditions files were left out, and which Spark applies alone: `more` among them."""
    used = {(one.column.lower(), one.operator) for one in read.predicates}
    chosen = [condition_text(one) for one in read.predicates]
    others = [
        condition_text(one)
        for one in relation.filters
        if (one.column.lower(), one.operator) not in used
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
            return f"what tells snapshot {ids[1]} from {ids[0]}"


def _insert_lines(
    connection: Connection, insert: Insert, parameters: Mapping[str, object]
) -> list[str]:
    prepared = prepare_insert(connection, insert, parameters)
    table, change = prepared.table, prepared.change
    lines = [
        f"{table.name}: {_replaced(change, table.schema)}.",
        f"Distribution: {_distribution(connection, prepared, insert)}.",
    ]
    lines += [
        f"{line}." for line in _query_lines(connection, insert.text, insert.source, parameters)
    ]
    return lines


def _replaced(change: Change, schema: TableSchema) -> str:
    match change:
        case Append():
            return "rows are merged in by key" if schema.is_primary_key_table else "rows are added"
        case OverwriteTouched():
            return "the partitions that receive rows are replaced"
        case OverwritePartitions(specs=()):
            return "the whole table is replaced"
        case OverwritePartitions(specs=specs):
            shown = ", ".join(f"{key} = {value}" for key, value in specs[0])
            return f"the partitions with {shown} are replaced"


def _distribution(connection: Connection, prepared: PreparedInsert, insert: Insert) -> str:
    if insert.source.is_values:
        return "the rows are written by this process, without a Spark job"
    return str(distribution(connection, prepared))


def _spark_plan(frame: object, mode: str) -> list[str]:
    import contextlib
    import io

    # The public API only prints.
    captured = io.StringIO()
    with contextlib.redirect_stdout(captured):
        frame.explain(mode=(mode or "simple").lower().replace("logical", "extended"))  # type: ignore[attr-defined]
    return captured.getvalue().rstrip().splitlines()


def _text(
    connection: Connection, statement: str, lines: list[str], query: str | None = None
) -> Outcome:
    import pyarrow as pa

    rows: pyarrow.Table = pa.table({"plan": pa.array(["\n".join(lines)], type=pa.string())})
    outcome = Outcome.of_rows(connection.spark, statement, "EXPLAIN", rows, query)
    outcome.message = "\n".join(lines)
    return outcome


def _columns(number: int) -> str:
    return "1 column" if number == 1 else f"{number} columns"


def _files(number: int) -> str:
    return count_text(number, "file")
