"""`write.merge-schema`: before an INSERT BY NAME or a MERGE its table gets the columns that the
query or the source has.

Asked for as with Paimon's connector, by an option of a write, `write.merge-schema`, with
`.type-widening` and `.explicit-cast` behind it, or by Spark's configuration, `spark.paimon.…`.
The schema is changed first, by a schema of its own, and stays changed if the write fails then,
as in Paimon (`SchemaHelper`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from paimon_magics.errors import InvalidTableError, InvalidValueError, PaimonMagicsError
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.spark_settings import PAIMON_PREFIX
from paimon_magics.planning.row_changes.merges import merged_table, plan_merge
from paimon_magics.planning.schemas.alterations import plan_alteration
from paimon_magics.planning.schemas.merged_columns import MergeRules, merged_columns
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.planning.schemas.type_changes import can_retype
from paimon_magics.session.queries.frames import frame_of_query
from paimon_magics.session.scope import StatementScope, errors_located, located
from paimon_magics.spark.types import columns_of
from paimon_magics.statements.clauses.names import quoted, table_text
from paimon_magics.statements.data_types import as_nullable
from paimon_magics.statements.statement import DeleteAction, Insert, MergeInto
from paimon_magics.statements.table_changes import (
    AddColumn,
    RetypeColumn,
    SetColumnNullability,
    TableChange,
)
from paimon_magics.statements.types.type_text import to_spark_sql
from paimon_magics.tables.reading.retyping import Harm, harm_of
from paimon_magics.tables.table import Table

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame


MERGE_SCHEMA = "write.merge-schema"
# Another writer may change the table at the same time, and even add the same column.
_ATTEMPTS = 10

_Changes = tuple[AddColumn | RetypeColumn, ...]


def merge_rules(
    scope: StatementScope, options: Mapping[str, str] = MappingProxyType({})
) -> MergeRules | None:
    """What the `options` of a write ask for, else Spark's configuration; None for no change of
    schemas. Raises InvalidValueError for a value that is neither true nor false."""

    def flag(key: str) -> bool:
        value = options.get(key) or scope.spark.conf.get(f"{PAIMON_PREFIX}{key}", None) or "false"
        if value.lower() not in ("true", "false"):
            raise InvalidValueError(
                f"'{key}' is '{value}', but it must be true or false.",
                hint=f"SET `{PAIMON_PREFIX}{key}` = true",
            )
        return value.lower() == "true"

    if not flag(MERGE_SCHEMA):
        return None
    widens = flag(f"{MERGE_SCHEMA}.type-widening")
    return MergeRules(widens, widens and flag(f"{MERGE_SCHEMA}.explicit-cast"))


def merge_rules_of(scope: StatementScope, merge: MergeInto) -> MergeRules | None:
    """`merge_rules` of a MERGE. WITH SCHEMA EVOLUTION asks for them by itself, and for wider types,
    as in Spark. Raises as `merge_rules`."""
    configured = merge_rules(scope)
    if not merge.evolves_schema:
        return configured
    return MergeRules(True, configured is not None and configured.casts_explicitly)


def column_changes(
    scope: StatementScope, insert: Insert, parameters: Mapping[str, object]
) -> tuple[str, ...]:
    """What an INSERT would change in its table's columns, as texts; nothing runs."""
    rules = merge_rules(scope) if insert.by_name else None
    if rules is None:
        return ()
    frame = frame_of_query(scope, insert.text, insert.source, parameters)
    return _change_texts(_changes(scope, insert, frame, rules)[1])


def merge_columns(
    scope: StatementScope,
    insert: Insert,
    parameters: Mapping[str, object],
    frame: DataFrame | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Add or widen columns of an INSERT's table, if its `options` or the settings say so, for all
    columns of its query, or of `frame` in its place. Return notes for the Outcome on what was
    changed.

    Raises InvalidTableError for types that can't be merged, with nothing changed.
    """
    rules = merge_rules(scope, options) if insert.by_name else None
    if rules is None:
        return ()
    if frame is None:
        frame = frame_of_query(scope, insert.text, insert.source, parameters)
    return _merged(scope, insert, frame, rules, None)


def merge_columns_of_source(
    scope: StatementScope, merge: MergeInto, source: DataFrame
) -> tuple[str, ...]:
    """Change the columns of a MERGE's table, if asked for. The table then has all columns that
    UPDATE SET * or INSERT * write, or that others name (`MergeSchemaEvolutionHelper`). Return and
    raise as `merge_columns`."""
    rules = merge_rules_of(scope, merge)
    if rules is None:
        return ()
    table = scope.load(merge.target, merge.text, merge.target_position)
    names = _written_names(merge, table.schema)
    return () if names == frozenset() else _merged(scope, merge, source, rules, names)


def _written_names(merge: MergeInto, schema: TableSchema) -> frozenset[str] | None:
    """The columns that a MERGE writes by their names, in lower case; None for all of the source."""
    table = merged_table(merge, schema)
    names: set[str] = set()
    for clause in merge.clauses:
        if isinstance(clause.action, DeleteAction):
            continue
        if clause.action.assignments is None:
            return None
        for assignment in clause.action.assignments:
            names.add(table.unqualified(assignment.path)[0].lower())
    return frozenset(names)


def _merged(
    scope: StatementScope,
    statement: Insert | MergeInto,
    frame: DataFrame,
    rules: MergeRules,
    names: frozenset[str] | None,
) -> tuple[str, ...]:
    """Change the columns of the statement's table for those of `frame`; of `names`, in lower case,
    if given, for those that the table lacks."""
    for attempt in range(_ATTEMPTS):
        table, changes = _changes(scope, statement, frame, rules, names)
        if not changes:
            return ()
        harm = harm_of_changes(scope, table, changes)
        scope.tables.renew()
        try:
            scope.definitions.alter_table(table.name, changes, table.schema.schema_id)
        except InvalidTableError as error:
            now = scope.catalog.load(table.name).schema.schema_id
            if now == table.schema.schema_id or attempt == _ATTEMPTS - 1:
                raise located(error, statement.text, statement.target_position) from None
            continue  # planned again on the schema of another writer
        return (*_change_texts(changes), *(() if harm is None else harm.notes))
    raise AssertionError("the last attempt returns or raises")


def _changes(
    scope: StatementScope,
    statement: Insert | MergeInto,
    frame: DataFrame,
    rules: MergeRules,
    names: frozenset[str] | None = None,
) -> tuple[Table, _Changes]:
    text, position = statement.text, statement.target_position
    table = scope.load(statement.target, text, position)
    columns = columns_of(frame.schema)
    if names is not None:
        lacking = names.difference(name.lower() for name in table.schema.column_names)
        columns = tuple(column for column in columns if column.name.lower() in lacking)
    with errors_located(text, position):
        changes = merged_columns(table.schema, columns, rules)
        after = plan_alteration(table.schema, changes).schema
    if isinstance(statement, MergeInto):  # a wrong clause fails before the table is changed
        plan_merge(statement, after, frame.columns, fills_missing=True)
    return table, changes


def _change_texts(changes: _Changes) -> tuple[str, ...]:
    added = [change for change in changes if isinstance(change, AddColumn)]
    retyped = [change for change in changes if isinstance(change, RetypeColumn)]
    texts = []
    for verb, chosen in (("Columns added", added), ("Types changed", retyped)):
        columns = [f"{'.'.join(change.path)} {to_spark_sql(change.type)}" for change in chosen]
        texts += [f"{verb}: {', '.join(columns)}."] if columns else []
    return tuple(texts)


# What ALTER TABLE does to stored rows, in words: in the question before it runs, and in the
# Outcome after it.


@dataclass(frozen=True, slots=True)
class HarmReport:
    """The effect on stored rows ("" if no harm was found), how it was determined, how to undo the
    change, and what could not be checked ("" for nothing)."""

    what: str
    examined: str
    way_back: str
    not_looked_at: str

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the Outcome of the change."""
        found_harm = (self.what, f"{self.examined} {self.way_back}") if self.what else ()
        return (*found_harm, self.not_looked_at) if self.not_looked_at else found_harm


def harm_of_changes(
    scope: StatementScope, table: Table, changes: Sequence[TableChange]
) -> HarmReport | None:
    """Return what the changes do to stored rows; None if everything was checked and no harm was
    found. Errors in the changes themselves are ignored: running them raises those."""
    if not any(isinstance(change, RetypeColumn | SetColumnNullability) for change in changes):
        return None
    try:
        planned = plan_alteration(table.schema, changes).schema
    except PaimonMagicsError:
        return None
    try:
        rows_max = scope.settings.alter_check_rows_max
        harms = harm_of(table, planned, rows_max, scope.zone)
    except PaimonMagicsError as error:
        return HarmReport("", "", "", _unknown([error.message]))
    if not harms:
        return None
    not_looked_at = _unknown(
        dict.fromkeys(reason for harm in harms for reason in harm.not_looked_at)
    )
    harms = [harm for harm in harms if harm]
    if not harms:
        return HarmReport("", "", "", not_looked_at)
    by_id = {column.id: column for column in planned.columns}
    sentences, back = [], []
    for harm in harms:
        old = table.schema.column(harm.column)
        new = by_id[old.id]
        wanted = to_spark_sql(new.type)
        sentences += _sentences(harm, to_spark_sql(old.type), wanted)
        column = f"ALTER TABLE {table_text(table.name)} ALTER COLUMN {quoted(new.name)}"
        if as_nullable(old.type, True) == as_nullable(new.type, True):
            back.append(f"{column} DROP NOT NULL")
        elif can_retype(new.type, old.type, allow_explicit=True):
            back.append(f"{column} TYPE {to_spark_sql(old.type)}")
    way_back = (
        "To go back: " + "; ".join(back)
        if back
        else "There is no way back by ALTER TABLE: Paimon has no cast from the new type to this one"
    )
    return HarmReport(" ".join(sentences), f"{harms[0].examined}.", f"{way_back}.", not_looked_at)


def _unknown(why: Collection[str]) -> str:
    """The sentence on what could not be checked, for these reasons."""
    if not why:
        return ""
    more = f" (and {len(why) - 1:,} more)" if len(why) > 1 else ""
    return (
        "It is unknown whether all stored rows can be read as the new type. They could not be "
        f"read: {next(iter(why))}{more}"
    )


def _sentences(harm: Harm, old: str, new: str) -> list[str]:
    sentences = []
    if harm.impossible:
        sentences.append(
            f"Stored files have `{harm.column}` as {old}, which can't be read as {new} here: "
            "the whole table would be unreadable."
        )
    if harm.unreadable:
        values = ", ".join(map(str, harm.unreadable))
        sentences.append(
            f"`{harm.column}` has values that can't be read as {new}, which makes rows beside them "
            f"unreadable, too: {values}."
        )
    if harm.changed:
        values = ", ".join(map(str, harm.changed))
        sentences.append(f"`{harm.column}` has values that would change as {new}: {values}.")
    if harm.nulls:
        sentences.append(
            f"`{harm.column}` has {count_text(harm.nulls, 'NULL')}, and would be NOT NULL."
        )
    return sentences
