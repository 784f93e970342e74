"""CREATE OR REPLACE TABLE of a table that exists.

The table stays the same one, with its snapshots and schemas: its rows go by an overwrite, then it
gets the next schema, then the rows of the query come by another overwrite. The rows are written
before the first of these steps, so that readers see the old rows until then, and a query that fails
changes nothing. If a later step fails, the earlier ones are undone; if this process dies between
them, the table is empty, and its earlier snapshots have the rows.

A table whose partition columns change is another table: the old one is dropped, with its history.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from paimon_magics.coordinator.client.interface import Attempts
from paimon_magics.errors import (
    PaimonMagicsError,
    UnknownOutcomeError,
    UnsupportedStatementError,
)
from paimon_magics.planning.schemas.replacements import TableReplacement, keeps_partitions
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.session.inserts.insert import write_planned
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.provenance import Operation, provenance
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.writes.prepare import GivenRows, PreparedWrite, prepare_insert
from paimon_magics.session.writes.small_inserts import inserts_of
from paimon_magics.spark.handles import DataFrame
from paimon_magics.statements.statement import CreateTable, Insert
from paimon_magics.statements.version_changes import RollBackToSnapshot
from paimon_magics.tables.schema.new_schemas import table_after
from paimon_magics.tables.snapshots.latest import latest_snapshot_id, latest_state
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.table_write import CompletedWrite


@dataclass(frozen=True, slots=True)
class PlannedReplacement:
    """A table that exists, its new schema, and the rows that it gets, None for none."""

    table: Table
    schema: TableSchema
    rows: DataFrame | None

    @property
    def is_in_place(self) -> bool:
        """Whether the table keeps its history."""
        return keeps_partitions(self.table.schema, self.schema)


def check_replaceable(scope: StatementScope, planned: PlannedReplacement) -> None:
    """Raise UnsupportedStatementError for a table that can't be replaced as it is asked."""
    table = planned.table
    name = table.name
    if name.branch is not None:
        raise UnsupportedStatementError(
            f"`{name}` is a branch: it can't be replaced.",
            hint="Replace the table itself. INSERT OVERWRITE replaces the rows of a branch.",
        )
    if scope.catalog.metastore == "rest":
        raise UnsupportedStatementError(
            f"The server of a rest catalog replaces `{name}`, which sessions can't ask for.",
            hint=f"To replace its rows: INSERT OVERWRITE {name} SELECT …. For another definition: "
            f"ALTER TABLE {name}, or drop the table and create it again.",
        )
    if planned.schema.stored_option("path") is not None:
        raise UnsupportedStatementError(
            f"`{name}` keeps its location when it is replaced.",
            hint="Leave out LOCATION and the option 'path'.",
        )
    if planned.rows is None:
        return
    if not planned.is_in_place:
        raise UnsupportedStatementError(
            f"`{name}` would get other partition columns, for which it has to be dropped: if the "
            "query failed, its rows would be lost.",
            hint=f"Write CREATE TABLE {name}_new … AS SELECT …, then DROP TABLE {name} and ALTER "
            f"TABLE {name}_new RENAME TO {name}. Without a query, CREATE OR REPLACE TABLE drops "
            "the table.",
        )
    if inserts_of(scope, table) is not None:
        raise UnsupportedStatementError(
            f"`{name}` takes small inserts, and some could come between the new columns and the "
            "rows of the query.",
            hint=f"Write CREATE OR REPLACE TABLE {name} (columns …), then INSERT INTO {name} "
            "SELECT ….",
        )


def replace_table(scope: StatementScope, statement: CreateTable, to: PlannedReplacement) -> Outcome:
    """Replace a table, as `check_replaceable` has allowed. Raises errors of ours, with the table
    unchanged; but UnknownOutcomeError if it is unknown what became of the last step."""
    if to.rows is not None:
        return _replaced_by_rows(scope, statement, to, to.rows)
    before = latest_snapshot_id(to.table)
    scope.definitions.replace_table(_replacement(scope, statement, to))
    scope.tables.renew()
    name = to.table.name
    scope.connection.recent.forget(name)
    outcome = Outcome(
        statement=statement.text,
        kind=kind_of(statement),
        table=str(name),
        message=f"Table `{name}` replaced.",
    )
    outcome.notes = _history(to, before)
    return outcome


def kind_of(statement: CreateTable) -> str:
    """What the statement is called in its outcome and in the table's history."""
    return "REPLACE TABLE" if statement.must_exist else "CREATE OR REPLACE TABLE"


def _history(to: PlannedReplacement, before: int) -> tuple[str, ...]:
    """Where the rows of before are."""
    name = to.table.name
    if not to.is_in_place:
        return (f"`{name}` has other partition columns: it is a new table, without history.",)
    if not before:
        return ()
    return (
        f"The rows of before are in snapshot {before}, until it expires: SELECT * FROM {name} "
        f"VERSION AS OF {before}.",
    )


def _replacement(
    scope: StatementScope, statement: CreateTable, to: PlannedReplacement
) -> TableReplacement:
    table = to.table
    base_id, base_list = latest_state(table)
    return TableReplacement(
        table.name,
        to.schema,
        table.schema.schema_id,
        base_snapshot_id=base_id,
        base_manifest_list=base_list,
        swallow_newer=scope.settings.overwrite_swallows_newer,
        is_dropped=not to.is_in_place,
        properties=provenance(scope, statement.text, Operation(kind_of(statement))),
    )


class _Steps:
    """The steps of a replacement before its rows are committed, and the way back."""

    def __init__(
        self, scope: StatementScope, statement: CreateTable, to: PlannedReplacement
    ) -> None:
        self._scope = scope
        self._to = to
        self._replacement = _replacement(scope, statement, to)
        self._is_done = False

    def run(self, written: PreparedWrite, files: CompletedWrite) -> PreparedWrite:
        """Remove the rows and store the schema; return the plan with the table as it is then."""
        self._scope.definitions.replace_table(self._replacement)
        self._is_done = True
        self._scope.tables.renew()
        return replace(written, table=self._scope.tables.load(self._to.table.name))

    def undo(self) -> str:
        """Give the table its old schema and rows again; return a sentence if that is not done."""
        if not self._is_done:
            return ""
        scope, table = self._scope, self._to.table
        name, base = table.name, self._replacement.base_snapshot_id or 0
        where = f" Its rows are in snapshot {base}." if base else ""
        stays = f"`{name}` has its new columns, and no rows.{where}"
        try:
            present = scope.catalog.load(name)
            # The removal is the snapshot after the base: anything later is of others.
            is_own = latest_snapshot_id(present) == (base + 1 if base else 0)
            if not is_own or present.schema.schema_id != table.schema.schema_id + 1:
                return f"`{name}` has its new columns, and rows of others.{where}"
            restored, by = table.schema.schema_id, present.schema.schema_id
            scope.definitions.restore_schema(name, restored, by)
            if base:
                scope.committer.change_versions(name, RollBackToSnapshot(base))
        except (PaimonMagicsError, OSError) as error:
            return f"{stays} It could not be put back: {error}"
        return ""


def _replaced_by_rows(
    scope: StatementScope, statement: CreateTable, to: PlannedReplacement, rows: DataFrame
) -> Outcome:
    assert statement.query is not None
    name = to.table.name
    before = latest_snapshot_id(to.table)
    steps = _Steps(scope, statement, to)
    scope.tables.take(table_after(to.table, to.schema))
    insert = Insert(
        text=statement.text,
        offset=statement.offset,
        target=name,
        target_position=statement.name_position,
        overwrite=True,
        source=statement.query,
    )
    prepared = prepare_insert(scope, insert, {}, GivenRows(rows, mode="static"))
    prepared = replace(prepared, is_for_next_schema=True)
    try:
        outcome = write_planned(scope, insert, prepared, Attempts(reruns_max=0), steps.run)
    except UnknownOutcomeError:
        raise
    except BaseException as error:
        with suppress(KeyboardInterrupt):
            stays = steps.undo()
            if stays and isinstance(error, PaimonMagicsError):
                error.hint = f"{error.hint} {stays}".strip()
        raise
    finally:
        scope.tables.renew()
        scope.connection.recent.forget(name)
    outcome.kind = kind_of(statement)
    outcome.message = f"Table `{name}` replaced. {outcome.message}"
    outcome.notes = (*_history(to, before), *outcome.notes)
    return outcome
