"""DROP and ALTER TABLE: changes of definitions in the catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from paimon_magics.errors import UnconfirmedError, UnknownNameError
from paimon_magics.planning.schemas.alterations import Alteration, plan_alteration
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.scope import StatementScope, errors_located
from paimon_magics.session.statements.confirmations import loss_of_alteration
from paimon_magics.session.statements.handler import (
    SEE_PREVIEW,
    Handler,
    done,
    harmed,
    position_of,
    taken_away,
    unconfirmed,
)
from paimon_magics.session.statements.ordering import nothing_changed
from paimon_magics.session.writes.merged_schemas import harm_of_changes
from paimon_magics.session.writes.outcomes import Replaced, rows_taken
from paimon_magics.session.writes.partitions import (
    PartitionSpec,
    matches,
    partition_specs,
    partition_texts,
    remove_partitions,
)
from paimon_magics.statements.statement import DropTable, TableName
from paimon_magics.statements.table_changes import AlterTable, DropPartitions, RenameTable
from paimon_magics.tables.commits.replaced_partitions import sizes_of_replaced
from paimon_magics.tables.manifests.partitions import list_partitions
from paimon_magics.tables.table import Table


def drop_table_handler(scope: StatementScope, statement: DropTable) -> Handler:
    """DROP TABLE."""

    def dry_run() -> str:
        if statement.if_exists:
            return "Would run."
        return f"Would drop `{scope.load(statement.name, statement.text, 0).name}`."

    def replaced() -> Replaced:
        table = scope.load(statement.name, statement.text, 0)
        return Replaced(table, sizes_of_replaced(table, specs=()))

    def ask(mode: str) -> UnconfirmedError | None:
        lost = replaced()
        instead = f"The table's snapshots, tags and branches are deleted with it. {SEE_PREVIEW}"
        if not lost.sizes:
            return None
        what = f"DROP TABLE `{lost.table.name}`"
        return unconfirmed(statement, what, rows_taken(lost.sizes), instead)

    return Handler(
        run=lambda: _drop_table(scope, statement),
        dry_run=dry_run,
        preview=replaced,
        unconfirmed=ask,
    )


def alter_table_handler(
    scope: StatementScope, statement: AlterTable, parameters: Mapping[str, object]
) -> Handler:
    """ALTER TABLE, except for tags. Only DROP PARTITION can be previewed."""
    renames = any(isinstance(change, RenameTable) for change in statement.changes)
    drops = any(isinstance(change, DropPartitions) for change in statement.changes)
    return Handler(
        run=lambda: _alter_table(scope, statement, parameters),
        dry_run=lambda: _checked_alter(scope, statement),
        preview=(lambda: _dropped(scope, statement, parameters)) if drops else None,
        unconfirmed=lambda mode: _unconfirmed_alter(scope, statement, parameters),
        changed=nothing_changed if renames else lambda: (statement.name,),
        needs=(statement.name,),
    )


def _drop_table(scope: StatementScope, statement: DropTable) -> Outcome:
    name = scope.full_name(statement.name)
    with errors_located(statement.text, position_of(statement, name)):
        dropped = scope.definitions.drop_table(name, if_exists=statement.if_exists)
    scope.connection.recent.forget(name)
    message = f"Table `{name}` dropped." if dropped else f"There is no table `{name}`."
    return done(statement, "DROP TABLE", name, message)


def _checked_alter(scope: StatementScope, statement: AlterTable) -> str:
    table = scope.load(statement.name, statement.text, statement.name_position)
    _planned_alter(table, statement)
    return f"Would alter `{table.name}`."


def _planned_alter(table: Table, statement: AlterTable) -> Alteration:
    """The changes of the table's definition. Raises what `plan_alteration` raises."""
    changes = [
        change
        for change in statement.changes
        if not isinstance(change, RenameTable | DropPartitions)
    ]
    with errors_located(statement.text, statement.name_position):
        return plan_alteration(table.schema, changes)


def _alter_table(
    scope: StatementScope, statement: AlterTable, parameters: Mapping[str, object]
) -> Outcome:
    table = scope.load(statement.name, statement.text, statement.name_position)
    name = table.name
    match statement.changes:
        case (RenameTable(new_name=new_name),):
            target = _new_name(scope, name, new_name)
            with errors_located(statement.text, statement.name_position):
                scope.definitions.rename_table(name, target)
            scope.connection.recent.forget(name)
            return done(statement, "ALTER TABLE", target, f"`{name}` is `{target}` now.")
        case (DropPartitions() as drop,):
            specs = partition_specs(scope, table, statement.text, drop.specs, parameters)
            existing = _existing(table, specs, drop, statement)
            if not existing:
                return done(statement, "ALTER TABLE", name, "No partition to drop.")
            return remove_partitions(
                scope, table, statement.text, "ALTER TABLE … DROP PARTITION", existing
            )
        case _:
            harm = harm_of_changes(scope, table, statement.changes)
            with errors_located(statement.text, statement.name_position):
                scope.definitions.alter_table(name, statement.changes, table.schema.schema_id)
            outcome = done(statement, "ALTER TABLE", name, f"Table `{name}` altered.")
            if harm is not None:
                outcome.notes = harm.notes
            return outcome


def _new_name(scope: StatementScope, name: TableName, new_name: TableName) -> TableName:
    """The full new name of a table; an unqualified name stays in the table's database."""
    database = new_name.database or scope.full_name(name).database
    return replace(scope.full_name(new_name), database=database)


def _dropped_specs(
    scope: StatementScope,
    table: Table,
    statement: AlterTable,
    parameters: Mapping[str, object],
) -> tuple[PartitionSpec, ...]:
    wanted = [
        spec
        for change in statement.changes
        if isinstance(change, DropPartitions)
        for spec in change.specs
    ]
    return partition_specs(scope, table, statement.text, wanted, parameters)


def _dropped(
    scope: StatementScope, statement: AlterTable, parameters: Mapping[str, object]
) -> Replaced:
    table = scope.load(statement.name, statement.text, 0)
    specs = _dropped_specs(scope, table, statement, parameters)
    return Replaced(table, sizes_of_replaced(table, specs=specs))


def _unconfirmed_alter(
    scope: StatementScope, statement: AlterTable, parameters: Mapping[str, object]
) -> UnconfirmedError | None:
    table = scope.load(statement.name, statement.text, 0)
    effective = _planned_alter(table, statement).changes  # what is refused is not asked about
    harm = harmed(statement, harm_of_changes(scope, table, statement.changes))
    if harm is not None:
        return harm
    loss = loss_of_alteration(statement, table, effective)
    if loss is not None:
        return loss
    specs = _dropped_specs(scope, table, statement, parameters)
    # Clauses that each name a single partition need no confirmation.
    if not any(len(sizes_of_replaced(table, specs=[spec])) > 1 for spec in specs):
        return None
    replaced = Replaced(table, sizes_of_replaced(table, specs=specs))
    return taken_away(statement, f"DROP PARTITION of `{table.name}`", replaced)


def _existing(
    table: Table,
    specs: Sequence[PartitionSpec],
    drop: DropPartitions,
    statement: AlterTable,
) -> list[PartitionSpec]:
    """The specs that match a partition; a spec without a match is an error unless IF EXISTS."""
    partitions = [partition_texts(table, values) for values in list_partitions(table)]
    existing = []
    for spec in specs:
        if any(matches(texts, spec) for texts in partitions):
            existing.append(spec)
        elif not drop.if_exists:
            shown = ", ".join(
                f"{key} = {'NULL' if value is None else repr(value)}" for key, value in spec
            )
            raise UnknownNameError(
                f"`{table.name}` has no partition ({shown}).",
                hint="SHOW PARTITIONS lists them; DROP IF EXISTS PARTITION ignores missing ones.",
                statement=statement.text,
                position=statement.name_position,
            )
    return existing
