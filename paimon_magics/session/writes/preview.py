"""What a statement would take away, without running it: partitions, files, bytes and rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.planning.commits.requests import (
    Append,
    Change,
    OverwritePartitions,
    OverwriteTouched,
)
from paimon_magics.planning.formatting import count_text, size_text, stored_rows_text
from paimon_magics.session.connection import Connection
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.writes.insert import partition_specs, prepare_insert, truncate_specs
from paimon_magics.spark.failures import translate
from paimon_magics.spark.queries import cancellable
from paimon_magics.statements.kinds import Statement
from paimon_magics.statements.statement import DropTable, Insert, TruncateTable
from paimon_magics.statements.table_changes import AlterTable, DropPartitions
from paimon_magics.tables.commits.replaced_partitions import PartitionSize, sizes_of_replaced
from paimon_magics.tables.manifests.partitions import partition_name
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = ["preview_of", "rows_taken"]


def preview_of(
    connection: Connection,
    text: str,
    statements: Sequence[Statement],
    parameters: Mapping[str, object],
) -> Outcome:
    """A row for each partition that the statements would take rows from, the largest first.

    Nothing is written, and no SQL is offered: the statement would do what is only shown here. Only
    a dynamic overwrite runs its query, to learn the partitions that it writes.

    Raises UnsupportedStatementError for a statement that takes nothing away by its nature (a query,
    a definition), and what planning it raises.
    """
    import pyarrow as pa

    rows: list[dict[str, object]] = []
    lines: list[str] = []
    for statement in statements:
        table, sizes = _taken(connection, statement, parameters)
        rows += [
            {
                "table": str(table.name),
                "partition": partition_name(table, size.partition, connection.zone)
                if size.partition
                else "",
                "files": size.files,
                "bytes": size.size_bytes,
                "record_count": size.rows,
            }
            for size in sorted(sizes, key=lambda size: -size.size_bytes)
        ]
        lines.append(f"`{table.name}`: {rows_taken(sizes)} would go.")
    schema = pa.schema(
        [
            ("table", pa.string()),
            ("partition", pa.string()),
            ("files", pa.int64()),
            ("bytes", pa.int64()),
            ("record_count", pa.int64()),
        ]
    )
    outcome = Outcome.of_rows(
        connection.spark, text, "preview", pa.Table.from_pylist(rows, schema=schema), query=""
    )
    outcome.notes = tuple(lines)
    return outcome


def _taken(
    connection: Connection, statement: Statement, parameters: Mapping[str, object]
) -> tuple[Table, list[PartitionSize]]:
    match statement:
        case Insert():
            prepared = prepare_insert(connection, statement, parameters)
            table = prepared.table
            return table, _replaced(table, prepared.change, prepared.frame)
        case TruncateTable():
            table = connection.load(statement.name, statement.text, 0)
            specs = truncate_specs(connection, statement, table, parameters)
            return table, sizes_of_replaced(table, specs=specs)
        case DropTable():
            table = connection.load(statement.name, statement.text, 0)
            return table, sizes_of_replaced(table, specs=())
        case AlterTable(changes=changes) if any(isinstance(c, DropPartitions) for c in changes):
            table = connection.load(statement.name, statement.text, 0)
            dropped = [c for c in changes if isinstance(c, DropPartitions)]
            specs = partition_specs(
                connection,
                table,
                statement.text,
                [spec for change in dropped for spec in change.specs],
                parameters,
            )
            return table, sizes_of_replaced(table, specs=specs)
    raise UnsupportedStatementError(
        f"{type(statement).__name__} takes no rows away, so there is nothing to preview.",
        hint="--preview is for INSERT OVERWRITE, TRUNCATE, DROP PARTITION and DROP TABLE; "
        "--explain shows how any other statement would run.",
        statement=statement.text,
        position=0,
    )


def _replaced(table: Table, change: Change, frame: DataFrame) -> list[PartitionSize]:
    match change:
        case Append():
            return []
        case OverwritePartitions(specs=specs):
            return sizes_of_replaced(table, specs=specs)
        case OverwriteTouched():
            keys = list(table.schema.partition_keys)
            try:
                with cancellable(frame.sparkSession):
                    written = frame.select(*keys).distinct().toArrow()
            except Exception as error:
                raise translate(error) from error
            values = [tuple(row.values()) for row in written.to_pylist()]
            return sizes_of_replaced(table, partitions=values)


def rows_taken(sizes: Sequence[PartitionSize]) -> str:
    """`9,200,000 rows in 48 files (3.1 GiB) of 365 partitions`, or `nothing`; `stored rows` where
    reading merges some of them."""
    if not sizes:
        return "nothing"
    rows, files = sum(size.rows for size in sizes), sum(size.files for size in sizes)
    size = size_text(sum(size.size_bytes for size in sizes))
    where = f" of {count_text(len(sizes), 'partition')}" if sizes[0].partition else ""
    told = stored_rows_text(rows, is_merged=any(size.is_merged for size in sizes))
    return f"{told} in {count_text(files, 'file')} ({size}){where}"
