"""TRUNCATE and DROP PARTITION: which partitions they mean, and one commit that removes those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import UnknownNameError, nearest
from paimon_magics.planning.commits.requests import (
    CommitReceipt,
    CommitRequest,
    OverwritePartitions,
    Transaction,
)
from paimon_magics.planning.formatting import count_text
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.parameters import bind
from paimon_magics.session.provenance import Operation, provenance
from paimon_magics.session.scope import StatementScope, errors_located
from paimon_magics.session.writes.outcomes import removal_notes
from paimon_magics.session.writes.prepare import partition_constants
from paimon_magics.session.writes.transactions import begun, committed
from paimon_magics.statements.lexing.cursor import Cursor
from paimon_magics.statements.lexing.tokens import tokenize
from paimon_magics.statements.queries.query_text import bind_parameters
from paimon_magics.statements.statement import PartitionItem, TruncateTable
from paimon_magics.tables.table import Table

PartitionSpec = tuple[tuple[str, str | None], ...]
"""The columns that a PARTITION clause names, each with its value as text (None for NULL)."""


def remove_partitions(
    scope: StatementScope,
    table: Table,
    statement: str,
    kind: str,
    specs: Sequence[PartitionSpec],
) -> Outcome:
    """Remove the partitions that match `specs` by one commit; () removes all rows."""
    with errors_located(statement, 0):
        # A table of any layout can be emptied, so only the publication of snapshots is checked.
        attempts = Attempts(reruns_max=0)
        transaction = begun(scope, table.name, None, attempts)
    properties = provenance(scope, statement, Operation(kind))
    change = OverwritePartitions(tuple(specs))
    request = CommitRequest(transaction, change, properties=properties)
    receipt = committed(scope, request)
    stored = count_text(receipt.total_rows or 0, "row")
    return Outcome(
        statement=statement,
        kind=kind,
        table=str(table.name),
        snapshot_id=receipt.snapshot_id,
        commit_kind=receipt.commit_kind,
        rows_written=0,
        files_written=0,
        message=f"{kind}: `{table.name}` has {stored} stored now (snapshot {receipt.snapshot_id}).",
        notes=(*attempts.notes(), *_way_back(table, transaction, receipt)),
    )


def _way_back(table: Table, transaction: Transaction, receipt: CommitReceipt) -> tuple[str, ...]:
    """How to restore rows that a commit removed."""
    return removal_notes(table, transaction.base_snapshot_id) if receipt.delta_rows < 0 else ()


def partition_specs(
    scope: StatementScope,
    table: Table,
    statement: str,
    specs: Sequence[Sequence[PartitionItem]],
    parameters: Mapping[str, object],
) -> tuple[PartitionSpec, ...]:
    """Evaluate PARTITION clauses to values as text. Raises UnknownNameError for a column that is
    not a partition column."""
    result = []
    keys = {key.lower(): key for key in table.schema.partition_keys}
    for spec in specs:
        static: dict[str, str] = {}
        for item in spec:
            key = keys.get(item.column.lower())
            if key is None:
                raise UnknownNameError(
                    f"`{item.column}` is not a partition column of `{table.name}`.",
                    hint=nearest(item.column, keys.values(), what="partition columns")
                    if keys
                    else "The table is not partitioned.",
                    statement=statement,
                    position=item.position,
                )
            if item.value is not None:
                static[key] = item.value
        # Only the named values: Spark also refuses unused values that it can't bind.
        named = dict.fromkeys(
            name for sql in static.values() for name in bind_parameters(Cursor(sql, tokenize(sql)))
        )
        bound = bind(tuple(named), parameters, statement, scope.zone)
        values = partition_constants(scope, table.schema, static, bound, statement)
        result.append(tuple(values.items()))
    return tuple(result)


def truncate_specs(
    scope: StatementScope,
    statement: TruncateTable,
    table: Table,
    parameters: Mapping[str, object],
) -> tuple[PartitionSpec, ...]:
    """The partitions that TRUNCATE removes; () for the whole table."""
    if statement.partition is None:
        return ()
    return partition_specs(scope, table, statement.text, [statement.partition], parameters)


def matches(texts: Mapping[str, str | None], spec: PartitionSpec) -> bool:
    """Whether a partition has the values that a clause names."""
    return all(texts[key] == value for key, value in spec)
