"""Statements that change rows: INSERT, TRUNCATE, DELETE and UPDATE."""

from __future__ import annotations

from collections.abc import Mapping

from paimon_magics.errors import UnconfirmedError
from paimon_magics.planning.commits.requests import (
    Append,
    InsertChange,
    OverwritePartitions,
    OverwriteTouched,
)
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.row_changes.logged_changes import LoggedChange
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.session.inserts.insert import run_insert_of_cell
from paimon_magics.session.inserts.replacing_inserts import (
    is_replacing,
    prepare_replacing,
    replaced_partitions,
    run_replacing,
)
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.row_changes.delete_update import (
    PreparedChange,
    delete_partitions,
    deleted_partitions,
    prepare_row_change,
    run_row_change,
    run_small_change,
    small_change,
)
from paimon_magics.session.row_changes.point_changes import PreparedKeys
from paimon_magics.session.row_changes.previews import ChangedRows, preview_rows
from paimon_magics.session.row_changes.selection import kind_of
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.statements.handler import (
    CONFIRM,
    SEE_PREVIEW,
    Handler,
    nothing_changed,
    taken_away,
    way_back,
)
from paimon_magics.session.statements.queries import query_lines
from paimon_magics.session.writes.merged_schemas import column_changes
from paimon_magics.session.writes.outcomes import Replaced, replaced_by_insert, rows_taken
from paimon_magics.session.writes.partitions import (
    PartitionSpec,
    remove_partitions,
    truncate_specs,
)
from paimon_magics.session.writes.prepare import PreparedWrite, distribution, prepare_insert
from paimon_magics.statements.lexing.tokens import tokenize
from paimon_magics.statements.statement import Delete, Insert, RowChange, TruncateTable
from paimon_magics.statements.subjects import subject_of
from paimon_magics.tables.commits.replaced_partitions import sizes_of_replaced
from paimon_magics.tables.table import Table

_PARTITIONS_SHOWN = 5
_CONSTANT_WORDS = ("TRUE", "FALSE", "NULL", "NOT", "AND", "OR", "IS", "IN", "BETWEEN", "LIKE")


def insert_handler(
    scope: StatementScope,
    insert: Insert,
    parameters: Mapping[str, object],
    wait: str | None = None,
) -> Handler:
    """INSERT INTO and INSERT OVERWRITE."""

    def prepared() -> PreparedWrite:
        return _prepared(scope, insert, parameters)

    def run() -> Outcome:
        if is_replacing(insert):
            return run_replacing(scope, insert, parameters)
        return run_insert_of_cell(scope, insert, parameters, wait)

    def preview() -> Replaced:
        planned = prepared()
        if is_replacing(insert):
            return replaced_partitions(planned, insert)
        return replaced_by_insert(planned)

    # The log keeps small inserts in order: nothing needs to be loaded before a VALUES list.
    changes = insert.overwrite or not insert.source.is_values
    return Handler(
        run=run,
        dry_run=lambda: "Would run. " + " ".join(_insert_lines(scope, insert, parameters)),
        explain=lambda mode: _insert_lines(scope, insert, parameters),
        preview=preview,
        unconfirmed=lambda mode: _unconfirmed_insert(scope, insert, parameters, mode),
        changed=(lambda: (insert.target,)) if changes else nothing_changed,
        needs=(insert.target, *subject_of(insert).sources),
    )


def _prepared(
    scope: StatementScope, insert: Insert, parameters: Mapping[str, object]
) -> PreparedWrite:
    if is_replacing(insert):
        return prepare_replacing(scope, insert, parameters)
    return prepare_insert(scope, insert, parameters)


def truncate_handler(
    scope: StatementScope, statement: TruncateTable, parameters: Mapping[str, object]
) -> Handler:
    """TRUNCATE TABLE, for all or some partitions."""

    def table() -> Table:
        return scope.load(statement.name, statement.text, 0)

    def specs() -> tuple[PartitionSpec, ...]:
        return truncate_specs(scope, statement, table(), parameters)

    def replaced() -> Replaced:
        return Replaced(table(), sizes_of_replaced(table(), specs=specs()))

    def unconfirmed(mode: str) -> UnconfirmedError | None:
        lost = replaced()
        if statement.partition is not None and len(lost.sizes) < 2:
            return None
        return taken_away(statement, f"TRUNCATE TABLE `{table().name}`", lost)

    return Handler(
        run=lambda: remove_partitions(scope, table(), statement.text, "TRUNCATE TABLE", specs()),
        dry_run=lambda: f"`{table().name}`: {rows_taken(replaced().sizes)} would be removed.",
        preview=replaced,
        unconfirmed=unconfirmed,
        changed=lambda: (statement.name,),
        needs=(statement.name,),
    )


def _unconfirmed_insert(
    scope: StatementScope, insert: Insert, parameters: Mapping[str, object], mode: str
) -> UnconfirmedError | None:
    if not insert.overwrite or insert.replace_using:
        return None  # REPLACE USING replaces what it has rows for, as a dynamic overwrite does
    if insert.replace_where is not None:
        return _unconfirmed_replacing(scope, insert, parameters)
    if insert.partition is not None or mode == "dynamic":
        return None
    table = scope.load(insert.target, insert.text, 0)
    sizes = sizes_of_replaced(table, specs=()) if table.schema.is_partitioned else []
    instead = "PARTITION (…) after the table's name, or the dynamic overwrite mode, "
    instead += f"replaces less. {SEE_PREVIEW}"
    what = f"INSERT OVERWRITE `{table.name}` without PARTITION"
    return taken_away(insert, what, Replaced(table, sizes), instead)


def _unconfirmed_replacing(
    scope: StatementScope, insert: Insert, parameters: Mapping[str, object]
) -> UnconfirmedError | None:
    """The question before a condition replaces several partitions."""
    replaced = replaced_by_insert(prepare_replacing(scope, insert, parameters))
    if len(replaced.sizes) < 2:
        return None
    where = insert.replace_where
    assert where is not None
    condition = insert.text[where.start : where.end]
    what = f"INSERT INTO `{replaced.table.name}` REPLACE WHERE {condition}"
    return taken_away(insert, what, replaced, f"REPLACE USING replaces less. {SEE_PREVIEW}")


def _insert_lines(
    scope: StatementScope, insert: Insert, parameters: Mapping[str, object]
) -> list[str]:
    merged = column_changes(scope, insert, parameters)
    if merged:  # the rest is planned on the table's new columns
        return [f"Before the rows are written: {note}" for note in merged]
    prepared = _prepared(scope, insert, parameters)
    table, change = prepared.table, prepared.change
    replaced = _replaced(change, table.schema)
    if insert.replace_using:
        keys = ", ".join(insert.replace_using)
        replaced = f"the partitions whose {keys} a new row has are replaced"
    elif insert.replace_where is not None:
        sizes = replaced_by_insert(prepared).sizes
        if sizes:
            replaced += f": {rows_taken(sizes)}"
        elif table.schema.is_partitioned:
            replaced = "no partition meets the condition, so that rows are only added"
    lines = [
        f"{table.name}: {replaced}.",
        f"Distribution: {_distribution(scope, prepared, insert)}.",
    ]
    casts = prepared.changeable()
    if casts:
        lines.append(f"Casts that may round or cut values: {', '.join(casts)}.")
    lines += [f"{line}." for line in query_lines(scope, insert.text, insert.source, parameters)]
    return lines


def _replaced(change: InsertChange, schema: TableSchema) -> str:
    match change:
        case Append():
            if schema.is_primary_key_table:
                return "rows are merged in by key"
            keys = schema.stored_option("upsert-key")
            return f"rows are merged in by {keys}, as MERGE does" if keys else "rows are added"
        case OverwriteTouched():
            return "the partitions that receive rows are replaced"
        case OverwritePartitions(specs=()):
            return "the whole table is replaced"
        case OverwritePartitions(specs=specs):
            each = [
                ", ".join(f"{key} = {'NULL' if value is None else value}" for key, value in spec)
                for spec in specs
            ]
            shown = "; ".join(each[:_PARTITIONS_SHOWN])
            more = "; …" if len(each) > _PARTITIONS_SHOWN else ""
            return f"the partitions with {shown}{more} are replaced"


def _distribution(scope: StatementScope, prepared: PreparedWrite, insert: Insert) -> str:
    if insert.source.is_values:
        return "the rows are written by this process, without a Spark job"
    return str(distribution(scope, prepared))


# The handler of DELETE and UPDATE.


def row_change_handler(
    scope: StatementScope,
    change: RowChange,
    parameters: Mapping[str, object],
    wait: str | None = None,
) -> Handler:
    """DELETE and UPDATE. `wait` is for small changes."""

    def table() -> Table:
        return scope.load(change.target, change.text, change.target_position)

    def small() -> LoggedChange | None:
        return small_change(scope, change, table(), parameters)

    def partitions() -> tuple[PartitionSpec, ...] | None:
        if not isinstance(change, Delete):
            return None
        return deleted_partitions(scope, change, table(), parameters)

    def run() -> Outcome:
        logged = small()
        if logged is not None:
            return run_small_change(scope, change, table(), logged, wait)
        specs = partitions()
        if specs is not None and isinstance(change, Delete):
            return delete_partitions(scope, change, table(), specs)
        return run_row_change(scope, change, parameters)

    def lines() -> list[str]:
        logged = small()
        if logged is not None:
            return [_logged_line(table(), logged)]
        specs = partitions()
        if specs is not None:
            return [_partitions_line(table(), specs)]
        prepared = prepare_row_change(scope, change, parameters)
        selected = f"{table().name}: rows of snapshot {prepared.base_snapshot_id} are selected."
        return [selected, *_how(scope, prepared)]

    def preview() -> Replaced | ChangedRows:
        specs = partitions()
        if specs is None:
            return preview_rows(scope, change, parameters)
        whole = specs == ((),)
        sizes = sizes_of_replaced(table(), specs=() if whole else specs) if specs else ()
        return Replaced(table(), sizes)

    return Handler(
        run=run,
        dry_run=lambda: "Would run. " + " ".join(lines()),
        explain=lambda mode: lines(),
        preview=preview,
        unconfirmed=lambda mode: _unconfirmed(change, table()),
        # The log keeps small changes in order: nothing needs to be loaded before them.
        changed=lambda: () if small() is not None else (change.target,),
        needs=(change.target, *subject_of(change).sources),
    )


def _logged_line(table: Table, logged: LoggedChange) -> str:
    keys = count_text(len(logged.keys), "key")
    return (
        f"{table.name}: a change of {keys} goes into the log of small inserts, and is carried out "
        "in order with these when it is loaded."
    )


def _partitions_line(table: Table, specs: tuple[PartitionSpec, ...]) -> str:
    what = "all rows" if specs == ((),) else count_text(len(specs), "partition")
    return f"{table.name}: {what} removed by metadata; no file is read."


def _how(scope: StatementScope, prepared: PreparedChange) -> list[str]:
    """How the selected rows are changed."""
    if isinstance(prepared, PreparedKeys):
        return ["They have few keys: they are read and written in this process, without a job."]
    if isinstance(prepared, PreparedWrite):
        return [
            "They are written as changes, and merged by key.",
            f"Distribution: {distribution(scope, prepared)}.",
        ]
    units = 0 if prepared.plan is None else len(prepared.plan.units)
    schema = prepared.table.schema
    what, how = "file", "are written anew"
    if schema.data_evolution_enabled:
        what = "row range"
        how = "get deletion vectors" if prepared.assigned is None else "get files of columns"
    elif schema.deletion_vectors_enabled:
        how = "get deletion vectors"
    return [f"{count_text(units, what)} can have such rows; those that have {how}."]


def _unconfirmed(change: RowChange, table: Table) -> UnconfirmedError | None:
    condition, where = change.selection.condition, "without WHERE"
    if condition is not None:
        text = change.text[condition.start : condition.end]
        if not _is_constant(text):
            return None
        where = f"WHERE {text}"
    kind = kind_of(change)
    sizes = sizes_of_replaced(table, specs=())
    if isinstance(change, Delete):
        return taken_away(change, f"DELETE `{table.name}` {where}", Replaced(table, sizes))
    if not sizes:
        return None
    return UnconfirmedError(
        f"{kind} `{table.name}` {where} changes {rows_taken(sizes)}.",
        hint=f"To run it, {CONFIRM} {way_back(table)} %%paimon --preview shows some rows, "
        "before and after.",
        statement=change.text,
        position=0,
    )


def _is_constant(condition: str) -> bool:
    """Whether a condition names nothing, as `true` and `1 = 1`: it selects all rows."""
    return all(
        token.kind != "quoted" and (token.kind != "word" or token.upper in _CONSTANT_WORDS)
        for token in tokenize(condition)
    )
