"""DROP and ALTER TABLE: changes of definitions in the catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from paimon_magics.errors import (
    InvalidValueError,
    StatementError,
    UnconfirmedError,
    UnknownNameError,
)
from paimon_magics.planning.schemas.alterations import Alteration, plan_alteration
from paimon_magics.session.inserts.replacing_inserts import partitions_where
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.scope import StatementScope, errors_located
from paimon_magics.session.statements.confirmations import loss_of_alteration, loss_of_table
from paimon_magics.session.statements.handler import (
    SEE_PREVIEW,
    Handler,
    done,
    harmed,
    nothing_changed,
    position_of,
    taken_away,
    unconfirmed,
)
from paimon_magics.session.writes.merged_schemas import harm_of_changes
from paimon_magics.session.writes.outcomes import Replaced, rows_taken
from paimon_magics.session.writes.partitions import (
    PartitionSpec,
    matches,
    partition_specs,
    remove_partitions,
)
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.statement import DropTable, PartitionItem, TableName
from paimon_magics.statements.table_changes import (
    AddPartitions,
    AlterTable,
    DropPartitions,
    RenameTable,
)
from paimon_magics.tables.commits.replaced_partitions import partition_texts, sizes_of_replaced
from paimon_magics.tables.manifests.partitions import list_partitions
from paimon_magics.tables.table import Table


def drop_table_handler(scope: StatementScope, statement: DropTable) -> Handler:
    """DROP TABLE."""

    def dry_run() -> str:
        if statement.if_exists:
            return "Would run."
        table = scope.load(statement.name, statement.text, 0)
        return f"Would drop `{table.name}` with {loss_of_table(scope, table) or 'nothing'}."

    def replaced() -> Replaced:
        table = scope.load(statement.name, statement.text, 0)
        return Replaced(table, sizes_of_replaced(table, specs=()))

    def ask(mode: str) -> UnconfirmedError | None:
        table = scope.load(statement.name, statement.text, 0)
        loss = loss_of_table(scope, table)
        if not loss:
            return None
        instead = f"Nothing brings them back. {SEE_PREVIEW}"
        return unconfirmed(statement, f"DROP TABLE `{table.name}`", loss, instead)

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
        dry_run=lambda: _checked_alter(scope, statement, parameters),
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


def _checked_alter(
    scope: StatementScope, statement: AlterTable, parameters: Mapping[str, object]
) -> str:
    table = scope.load(statement.name, statement.text, statement.name_position)
    match statement.changes:
        case (AddPartitions() as add,):
            return _add_partitions(scope, table, statement, add, parameters).message or ""
        case (DropPartitions() as drop,):
            specs = _specs_to_drop(scope, table, statement, drop.specs, parameters)
            existing = _existing(table, specs, drop, statement)
            sizes = sizes_of_replaced(table, specs=existing) if existing else ()
            return f"`{table.name}`: {rows_taken(sizes)} would be removed."
        case (RenameTable(new_name=new_name),):
            return f"Would rename `{table.name}` to `{_new_name(scope, table.name, new_name)}`."
    _planned_alter(table, statement)
    return f"Would alter `{table.name}`."


def _planned_alter(table: Table, statement: AlterTable) -> Alteration:
    """The changes of the table's definition. Raises what `plan_alteration` raises."""
    changes = [
        change
        for change in statement.changes
        if not isinstance(change, RenameTable | DropPartitions | AddPartitions)
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
        case (AddPartitions() as add,):
            return _add_partitions(scope, table, statement, add, parameters)
        case (DropPartitions() as drop,):
            specs = _specs_to_drop(scope, table, statement, drop.specs, parameters)
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
    return _specs_to_drop(scope, table, statement, wanted, parameters)


def _specs_to_drop(
    scope: StatementScope,
    table: Table,
    statement: AlterTable,
    wanted: Sequence[Sequence[PartitionItem]],
    parameters: Mapping[str, object],
) -> tuple[PartitionSpec, ...]:
    """The partitions that the clauses of DROP PARTITION name. Those that a comparison chooses are
    looked for. Raises UnknownNameError where it chooses none, and for an unknown column."""
    specs: list[PartitionSpec] = []
    if_exists = any(isinstance(c, DropPartitions) and c.if_exists for c in statement.changes)
    for spec in wanted:
        if all(item.operator == "=" for item in spec):
            specs += partition_specs(scope, table, statement.text, [spec], parameters)
            continue
        names = [replace(item, value=None) for item in spec]
        partition_specs(scope, table, statement.text, [names], parameters)  # checks the columns
        condition = " AND ".join(f"{quoted(i.column)} {i.operator} {i.value}" for i in spec)
        with errors_located(statement.text, spec[0].position):
            chosen = partitions_where(scope, table, None, condition, parameters)
        if not chosen and not if_exists:
            raise UnknownNameError(
                f"`{table.name}` has no partition with {condition}.",
                hint="SHOW PARTITIONS lists them; DROP IF EXISTS PARTITION ignores missing ones.",
                statement=statement.text,
                position=spec[0].position,
            )
        specs += chosen
    return tuple(dict.fromkeys(specs))


def _compares(statement: AlterTable) -> bool:
    """Whether DROP PARTITION has a comparison, which may choose many partitions."""
    return any(
        item.operator != "="
        for change in statement.changes
        if isinstance(change, DropPartitions)
        for spec in change.specs
        for item in spec
    )


def _add_partitions(
    scope: StatementScope,
    table: Table,
    statement: AlterTable,
    add: AddPartitions,
    parameters: Mapping[str, object],
) -> Outcome:
    """Check ADD PARTITION, for which there is nothing to do: a partition begins with its first
    row."""
    specs = partition_specs(scope, table, statement.text, add.specs, parameters)
    existing = [partition_texts(table, values) for values in _partitions(table)]
    for spec in specs:
        missing = [key for key in table.schema.partition_keys if key not in dict(spec)]
        shown = ", ".join(f"{key} = {value!r}" for key, value in spec)
        if missing:
            raise InvalidValueError(
                f"The partition ({shown}) of `{table.name}` has no value for `{missing[0]}`.",
                hint="Give every partition column a value: "
                f"{', '.join(table.schema.partition_keys)}.",
                statement=statement.text,
                position=statement.name_position,
            )
        if not add.if_not_exists and any(matches(texts, spec) for texts in existing):
            raise StatementError(
                f"`{table.name}` has the partition ({shown}) already.",
                hint="ADD IF NOT EXISTS PARTITION ignores partitions that exist.",
                statement=statement.text,
                position=statement.name_position,
            )
    message = f"`{table.name}` needs no ADD PARTITION: a partition begins with its first row."
    return done(statement, "ALTER TABLE", table.name, message)


def _partitions(table: Table) -> list[tuple[object, ...]]:
    return list_partitions(table) if table.schema.is_partitioned else []


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
    is_compared = _compares(statement) and len(specs) > 1
    if not (is_compared or any(len(sizes_of_replaced(table, specs=[s])) > 1 for s in specs)):
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
    partitions = [partition_texts(table, values) for values in _partitions(table)]
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
