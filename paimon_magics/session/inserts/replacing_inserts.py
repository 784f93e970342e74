"""INSERT INTO … REPLACE WHERE and REPLACE USING: partitions are replaced that meet a condition, or
that have the values of some partition columns in the new rows. Also conditions on partitions, of
which DROP PARTITION makes use.

The replaced partitions are known when the rows are written: then their partitions are compared with
the condition, and nothing is committed if one does not meet it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import (
    InvalidValueError,
    PaimonMagicsError,
    StatementSyntaxError,
    UnknownNameError,
    UnsupportedStatementError,
    nearest,
)
from paimon_magics.planning.commits.requests import Append, InsertChange, OverwritePartitions
from paimon_magics.session.inserts.insert import write_planned
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.row_changes.delete_update import (
    check_condition_on_partitions,
    deleted_partitions,
    partitions_meeting,
)
from paimon_magics.session.scope import StatementScope, errors_translated
from paimon_magics.session.writes.outcomes import (
    Replaced,
    replaced_by_insert,
)
from paimon_magics.session.writes.partitions import PartitionSpec
from paimon_magics.session.writes.prepare import PreparedWrite, prepare_insert
from paimon_magics.spark.fetching import fetched
from paimon_magics.spark.queries import cancellable
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import Delete, Insert
from paimon_magics.tables.commits.replaced_partitions import (
    partition_texts,
    sizes_of_replaced,
)
from paimon_magics.tables.compaction.scopes import StoredPartitions, partitions_of
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import CompletedWrite

KIND = "INSERT REPLACE"


def is_replacing(insert: Insert) -> bool:
    """Whether an INSERT has REPLACE WHERE or REPLACE USING."""
    return insert.replace_where is not None or bool(insert.replace_using)


def prepare_replacing(
    scope: StatementScope, insert: Insert, parameters: Mapping[str, object]
) -> PreparedWrite:
    """Plan the INSERT. The partitions to replace are those that exist now: more are known when it
    is written. Raises UnsupportedStatementError for a condition that is not about partitions."""
    table = scope.load(insert.target, insert.text, insert.target_position)
    if insert.replace_where is None:
        _check_using(table, insert)
        specs: tuple[PartitionSpec, ...] = ()
    else:
        specs = partitions_where(scope, table, insert, _condition(insert), parameters)
    prepared = prepare_insert(scope, insert, parameters)
    return replace(prepared, change=_change(scope, specs))


def run_replacing(
    scope: StatementScope, insert: Insert, parameters: Mapping[str, object]
) -> Outcome:
    """Run the INSERT as one transaction. Raises as `run_insert`, and InvalidValueError for rows
    that would not be in the replaced partitions."""
    prepared = prepare_replacing(scope, insert, parameters)
    before = prepared.change.specs if isinstance(prepared.change, OverwritePartitions) else ()

    def replacing(written: PreparedWrite, files: CompletedWrite) -> PreparedWrite:
        table = written.table
        touched = partitions_of(table, (partition for partition, _ in files.buckets))
        values = _specs(table, touched)
        if insert.replace_where is None:
            keys = _keys(table, insert)
            short = (tuple(pair for pair in spec if pair[0] in keys) for spec in values)
            return replace(written, change=_change(scope, tuple(dict.fromkeys(short))))
        if not table.schema.is_partitioned or before == ((),):
            return written
        delete = _as_delete(table, insert, _condition(insert))
        meeting = partitions_meeting(scope, delete, table, parameters, touched) or ()
        outside = [spec for spec in values if spec not in meeting]
        if outside:
            raise _outside(table, insert, outside[0])
        return replace(written, change=_change(scope, tuple(dict.fromkeys((*before, *values)))))

    outcome = write_planned(scope, insert, prepared, Attempts(reruns_max=0), replacing)
    outcome.kind = KIND
    outcome.message = (outcome.message or "").replace("INSERT OVERWRITE", KIND, 1)
    return outcome


def replaced_partitions(prepared: PreparedWrite, insert: Insert) -> Replaced:
    """What the INSERT would remove. REPLACE USING runs its query, to find the partitions."""
    table = prepared.table
    if insert.replace_where is not None:
        return replaced_by_insert(prepared)
    keys = _keys(table, insert)
    at = [i for i, key in enumerate(table.schema.partition_keys) if key in keys]
    columns = [table.schema.partition_keys[i] for i in at]
    with errors_translated(), cancellable(prepared.frame.sparkSession):
        written = fetched(prepared.frame.select(*columns).distinct())
    values = {tuple(row.values()) for row in written.to_pylist()}
    sizes = sizes_of_replaced(table, specs=())
    return Replaced(table, [s for s in sizes if tuple(s.partition[i] for i in at) in values])


def partitions_where(
    scope: StatementScope,
    table: Table,
    statement: Insert | None,
    condition: str,
    parameters: Mapping[str, object],
) -> tuple[PartitionSpec, ...]:
    """The partitions of the table that meet a condition; ((),) is the whole table. Raises
    UnsupportedStatementError for a condition that is not about partition columns alone."""
    delete = _as_delete(table, statement, condition)
    try:
        specs = deleted_partitions(scope, delete, table, parameters)
        if specs is None:
            check_condition_on_partitions(scope, delete, table, parameters)
    except PaimonMagicsError as error:
        error.statement = error.position = None  # it is about the text of the DELETE
        raise
    if specs is not None:
        return specs
    keys = ", ".join(f"`{key}`" for key in table.schema.partition_keys)
    have = f"its partition columns are {keys}" if keys else "it has no partitions"
    where = statement.replace_where if statement is not None else None
    raise UnsupportedStatementError(
        f"The condition {condition} does not choose whole partitions of `{table.name}`: {have}.",
        hint="To replace single rows, write MERGE INTO, or DELETE FROM and INSERT INTO, which are "
        "two commits. In a table with a primary key, INSERT INTO replaces rows of the same key.",
        statement=None if statement is None else statement.text,
        position=None if where is None else where.start,
    )


def _condition(insert: Insert) -> str:
    where = insert.replace_where
    assert where is not None
    return insert.text[where.start : where.end]


def _as_delete(table: Table, insert: Insert | None, condition: str) -> Delete:
    """The condition as that of a DELETE."""
    parts = [part for part in (table.name.database, table.name.object_name) if part is not None]
    name = ".".join(quoted(part) for part in parts)
    try:
        delete = parse_statement(f"DELETE FROM {name} WHERE {condition}")
    except StatementSyntaxError as error:
        where = None if insert is None else insert.replace_where
        raise StatementSyntaxError(
            error.message,
            hint=error.hint,
            statement=None if insert is None else insert.text,
            position=None if where is None else where.start,
        ) from None
    assert isinstance(delete, Delete)
    return delete


def _change(scope: StatementScope, specs: tuple[PartitionSpec, ...]) -> InsertChange:
    """What replaces these partitions; ((),) is the whole table, and () is nothing."""
    if not specs:
        return Append()
    swallow = scope.settings.overwrite_swallows_newer
    return OverwritePartitions(() if specs == ((),) else specs, swallow)


def _specs(table: Table, partitions: StoredPartitions) -> list[PartitionSpec]:
    columns = [column.to_pylist() for column in partitions.values]
    rows = zip(*columns, strict=True) if columns else ()
    return [tuple(partition_texts(table, list(values)).items()) for values in rows]


def _keys(table: Table, insert: Insert) -> set[str]:
    wanted = {column.lower() for column in insert.replace_using}
    return {key for key in table.schema.partition_keys if key.lower() in wanted}


def _check_using(table: Table, insert: Insert) -> None:
    """Raise for columns of REPLACE USING that are not partition columns."""
    schema = table.schema
    keys = {key.lower() for key in schema.partition_keys}
    for column in insert.replace_using:
        if column.lower() in keys:
            continue
        known = {name.lower() for name in schema.column_names}
        if column.lower() not in known:
            raise UnknownNameError(
                f"There is no column `{column}` in `{table.name}`.",
                hint=nearest(column, schema.column_names, what="columns"),
                statement=insert.text,
                position=insert.target_position,
            )
        own = {key.lower() for key in schema.primary_keys}
        is_key = own and own <= {name.lower() for name in insert.replace_using}
        raise UnsupportedStatementError(
            f"`{column}` is not a partition column of `{table.name}`: REPLACE USING replaces whole "
            "partitions.",
            hint="Leave REPLACE USING out: INSERT INTO replaces the rows of the same primary key."
            if is_key
            else f"Write MERGE INTO {table.name} AS t USING (…) AS s ON t.{column} = s.{column} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *.",
            statement=insert.text,
            position=insert.target_position,
        )


def _outside(table: Table, insert: Insert, spec: PartitionSpec) -> InvalidValueError:
    shown = ", ".join(f"{key} = {'NULL' if value is None else repr(value)}" for key, value in spec)
    assert insert.replace_where is not None
    return InvalidValueError(
        f"The query has rows of the partition ({shown}) of `{table.name}`, which do not meet the "
        f"condition {_condition(insert)}.",
        hint="Nothing was written. Filter the rows, or let the condition include them.",
        statement=insert.text,
        position=insert.replace_where.start,
    )
