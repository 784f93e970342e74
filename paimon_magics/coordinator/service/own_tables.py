"""Paimon tables that the coordinator itself writes, by transactions like any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paimon_magics.coordinator.core.values import Committed, Origin, reason_of
from paimon_magics.coordinator.service.transactions import Purpose, Transactions
from paimon_magics.errors import SetupError
from paimon_magics.planning.commits.requests import (
    Append,
    Change,
    CommitRequest,
    OverwritePartitions,
)
from paimon_magics.planning.schemas.table_schema import plan_create_table
from paimon_magics.settings import Settings
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.statement import CreateTable, TableName
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.schema.types import arrow_schema
from paimon_magics.tables.snapshots.provenance import PREFIX
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import completed, write_spec


class OwnTable:
    """A table of the warehouse, made by the statement `sql` when it is needed. Its snapshots name
    `engine`. Rows are also committed in a pause.

    If the process dies, the rows of a `write` are all in the table, or none is, and then its files
    are removed.
    """

    def __init__(
        self,
        catalog: Catalog,
        transactions: Transactions,
        settings: Settings,
        name: TableName,
        sql: str,
        engine: str,
    ) -> None:
        self._catalog = catalog
        self._transactions = transactions
        self._settings = settings
        self._name = name
        self._sql = sql
        self._engine = engine

    def load(self) -> Table:
        """The table, which is made if it does not exist."""
        name = self._name
        assert name.database is not None
        if not (self._catalog.database_exists(name.database) and self._catalog.table_exists(name)):
            statement = parse_statement(self._sql)
            assert isinstance(statement, CreateTable)
            self._catalog.create_database(name.database, if_not_exists=True, properties={})
            self._catalog.create_table(name, plan_create_table(statement), if_not_exists=True)
        return self._catalog.load(name)

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Commit rows, which are mappings by column. Raises errors of ours and OSError; then no row
        is in the table."""
        self._run(self.load(), Append(), rows)

    def drop_partitions(self, specs: Sequence[Sequence[tuple[str, str]]]) -> None:
        """Remove all rows of these partitions. Raises as `write` does."""
        change = OverwritePartitions(tuple(map(tuple, specs)), swallow_newer=True)
        self._run(self.load(), change, ())

    def _run(self, table: Table, change: Change, rows: Sequence[Mapping[str, Any]]) -> None:
        import pyarrow as pa

        from paimon_magics.tables.writing.writer import write_batches

        id, transaction, _ = self._transactions.begin(
            self._name,
            None,
            self._engine,
            Origin(engine=self._engine),
            purpose=Purpose.LOGGED_ROWS,
        )
        properties = tuple((PREFIX + key, self._engine) for key in ("engine", "user"))
        try:
            messages: tuple[bytes, ...] = ()
            if rows:
                data = pa.Table.from_pylist(list(map(dict, rows)), arrow_schema(table.schema))
                task = write_spec(
                    table, transaction, overwrite=False, slots=1, settings=self._settings
                )
                written = write_batches(task, data.to_batches())
                base = transaction.base_snapshot_id
                messages = completed(table, task, written, base).messages
            answer = self._transactions.commit(
                id, CommitRequest(transaction, change, messages, properties)
            )
        except BaseException:
            self._transactions.abort(id, "its rows could not be written")
            raise
        if not isinstance(answer, Committed):
            raise SetupError(f"The commit was not made: {reason_of(answer)}.")
