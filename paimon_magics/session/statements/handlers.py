"""The handler of each kind of statement. A new kind needs a handler in a module, and a line here.

The type checker proves that every kind has a handler.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Never, assert_never

from paimon_magics.columnar.time_zones import moment_text
from paimon_magics.coordinator.client.administration import GrantRow
from paimon_magics.errors import UnconfirmedError, UnknownNameError, nearest
from paimon_magics.planning.formatting import count_text
from paimon_magics.planning.reads.predicates import condition_text
from paimon_magics.planning.row_changes.merges import PlannedClause
from paimon_magics.session.outcome import Outcome
from paimon_magics.session.queries.catalog_calls import with_near_function, with_spark_calls
from paimon_magics.session.queries.spark_calls import is_for_spark, pass_to_spark, passed_line
from paimon_magics.session.row_changes.merge import PreparedMerge, prepare_merge, run_merge
from paimon_magics.session.row_changes.previews import preview_merge
from paimon_magics.session.scope import (
    StatementScope,
    errors_located,
    errors_translated,
    not_of_views,
)
from paimon_magics.session.settings_checks import check_statement
from paimon_magics.session.statements.analysis import analyze_handler
from paimon_magics.session.statements.calls import call_handler
from paimon_magics.session.statements.copy_into import copy_handler
from paimon_magics.session.statements.creation import create_table_handler
from paimon_magics.session.statements.ddl import alter_table_handler, drop_table_handler
from paimon_magics.session.statements.definitions import view_handler
from paimon_magics.session.statements.functions import function_handler
from paimon_magics.session.statements.handler import (
    CONFIRM,
    Handler,
    database_outcome,
    done,
    explained,
    explanation,
    in_order,
    listing,
    position_of,
    unconfirmed,
    way_back,
)
from paimon_magics.session.statements.queries import create_view, query_handler, steps_text
from paimon_magics.session.statements.rows import (
    insert_handler,
    row_change_handler,
    truncate_handler,
)
from paimon_magics.session.statements.show import Shown, show_handler
from paimon_magics.session.statements.tags_and_branches import alter_tags_handler, show_tags
from paimon_magics.session.writes.outcomes import rows_taken
from paimon_magics.session.writes.prepare import distribution
from paimon_magics.statements.copying import CopyIntoFiles, CopyIntoTable
from paimon_magics.statements.definitions import (
    AlterView,
    CreateFunction,
    CreateView,
    DescribeFunction,
    DropFunction,
    DropView,
    ShowFunctions,
)
from paimon_magics.statements.dialects.alternatives import refused
from paimon_magics.statements.statement import (
    AlterDatabase,
    AnalyzeTable,
    ChangeGrants,
    CreateDatabase,
    CreateTable,
    CreateTemporaryView,
    Delete,
    DeleteAction,
    Describe,
    DropDatabase,
    DropTable,
    GrantedTables,
    Insert,
    MergeInto,
    PassThrough,
    Query,
    RefreshTable,
    Refused,
    ShowColumns,
    ShowCreateTable,
    ShowGrants,
    ShowOptions,
    TruncateTable,
    Update,
    UseDatabase,
)
from paimon_magics.statements.subjects import Explain, Statement, subject_of
from paimon_magics.statements.table_changes import AlterTable
from paimon_magics.statements.version_changes import AlterTags, Call, ShowTags
from paimon_magics.tables.commits.replaced_partitions import sizes_of_replaced

_JOINS = {
    "INNER": "the pairs of target and source rows that match",
    "LEFT OUTER": "all target rows, with the source rows that match",
    "RIGHT OUTER": "all source rows, with the target rows that match",
    "FULL OUTER": "all rows of both sides",
    "LEFT ANTI": "the target rows that no source row matches",
    "RIGHT ANTI": "the source rows that match no target row",
}


_TABLES_SHOWN = 5


_ON_VIEWS = (CreateView, AlterView, DropView, Describe, ShowColumns, ShowCreateTable, ShowOptions)
"""Statements whose subject may be a view."""


def run_statement(
    scope: StatementScope,
    statement: Statement,
    parameters: Mapping[str, object],
    *,
    include_buffer: bool = False,
    wait: str | None = None,
) -> Outcome:
    """Run a statement; in Spark if it is about a table that only Spark has."""
    try:
        if is_for_spark(scope, statement):
            return pass_to_spark(scope, with_spark_calls(scope, statement), parameters)
        handler = handler_of(scope, statement, parameters, include_buffer=include_buffer, wait=wait)
        with in_order(scope, handler.changed) as notes:
            outcome = handler.run()
    except UnknownNameError as error:
        raise with_near_function(scope, error) from error.__cause__
    outcome.notes = (*notes, *outcome.notes)
    return outcome


_Plain = (
    CreateTemporaryView
    | ChangeGrants
    | ShowGrants
    | ShowTags
    | CreateDatabase
    | AlterDatabase
    | UseDatabase
)


def handler_of(
    scope: StatementScope,
    statement: Statement,
    parameters: Mapping[str, object],
    *,
    include_buffer: bool = False,
    wait: str | None = None,
) -> Handler:
    """The handler of a statement, which is checked as by `check_statement`."""
    if not isinstance(statement, CreateView | AlterView | CreateFunction):  # where they are read
        statement = with_spark_calls(scope, statement)
    check_statement(scope, statement)
    _check_no_view(scope, statement)
    if isinstance(statement, Shown):
        return show_handler(scope, statement, parameters)
    match statement:
        case Query():
            return query_handler(scope, statement, parameters, include_buffer=include_buffer)
        case Insert():
            return insert_handler(scope, statement, parameters, wait)
        case Delete() | Update():
            return row_change_handler(scope, statement, parameters, wait)
        case MergeInto():
            return _merge_handler(scope, statement, parameters)
        case CopyIntoTable() | CopyIntoFiles():
            return copy_handler(scope, statement, parameters)
        case TruncateTable():
            return truncate_handler(scope, statement, parameters)
        case CreateTable():
            return create_table_handler(scope, statement, parameters)
        case DropTable():
            return drop_table_handler(scope, statement)
        case CreateView() | AlterView() | DropView():
            return view_handler(scope, statement)
        case CreateFunction() | DropFunction() | DescribeFunction() | ShowFunctions():
            return function_handler(scope, statement)
        case AlterTable():
            return alter_table_handler(scope, statement, parameters)
        case AlterTags():
            return alter_tags_handler(scope, statement)
        case Call():
            return call_handler(scope, statement, parameters)
        case AnalyzeTable():
            return analyze_handler(scope, statement)
        case RefreshTable():
            return Handler(run=partial(_refresh, scope, statement), needs=(statement.name,))
        case DropDatabase():
            return _drop_database_handler(scope, statement)
        case Explain():
            return _explain_handler(scope, statement, parameters)
        case Refused():
            return _refusal(statement)
        case PassThrough():
            return Handler(
                run=partial(pass_to_spark, scope, statement, parameters),
                dry_run=partial(passed_line, scope, statement),
            )
        case _:
            return Handler(run=_plain_run(scope, statement, parameters))


def _check_no_view(scope: StatementScope, statement: Statement) -> None:
    """Raise UnsupportedStatementError for a view in a statement that is for tables."""
    name = subject_of(statement).table
    if name is None or isinstance(statement, _ON_VIEWS):
        return
    full = scope.full_name(name)
    if not scope.tables.exists(full) and scope.find_view(full) is not None:
        with errors_located(statement.text, position_of(statement, name)):
            raise not_of_views(full, statement.text)


def _plain_run(
    scope: StatementScope, statement: _Plain, parameters: Mapping[str, object]
) -> Callable[[], Outcome]:
    """What runs a statement that has no plan to show and asks nothing."""
    match statement:
        case CreateTemporaryView():
            return partial(create_view, scope, statement, parameters)
        case ChangeGrants():
            return partial(change_grants, scope, statement)
        case ShowGrants():
            return partial(show_grants, scope, statement)
        case ShowTags():
            return partial(show_tags, scope, statement)
        case CreateDatabase() | AlterDatabase():
            return partial(_change_database, scope, statement)
        case UseDatabase():
            return partial(_use, scope, statement)
        case _:
            assert_never(statement)


def _refusal(statement: Refused) -> Handler:
    refuse = partial(_refuse, statement)
    return Handler(run=refuse, dry_run=refuse)


def _explain_handler(
    scope: StatementScope, statement: Explain, parameters: Mapping[str, object]
) -> Handler:
    inner = handler_of(scope, statement.inner, parameters)

    def run() -> Outcome:
        lines = explained(scope, inner, statement.mode, set())
        return explanation(scope, statement.text, lines)

    return Handler(run=run)


def _refresh(scope: StatementScope, statement: RefreshTable) -> Outcome:
    """REFRESH TABLE: each statement reads the latest snapshot, so that there is nothing to do."""
    name = scope.load(statement.name, statement.text, statement.name_position).name
    scope.connection.recent.forget(name)
    message = f"`{name}` needs no REFRESH: each statement reads its latest snapshot."
    return done(statement, "REFRESH TABLE", name, message)


def _refuse(statement: Refused) -> Never:
    raise refused(statement)


# The handler of MERGE INTO.


def _merge_handler(
    scope: StatementScope, merge: MergeInto, parameters: Mapping[str, object]
) -> Handler:
    """MERGE INTO."""

    def lines() -> list[str]:
        prepared = prepare_merge(scope, merge, parameters)
        insert = prepared.insert
        return [
            f"{insert.table.name}: rows of snapshot {insert.base_snapshot_id} are joined once with "
            f"the source: {_JOINS[prepared.plan.join]}.",
            *_read(merge, prepared),
            *(_clause(merge, clause) for clause in prepared.plan.clauses),
            _written(prepared),
            f"Distribution: {distribution(scope, insert)}.",
        ]

    return Handler(
        run=lambda: run_merge(scope, merge, parameters),
        dry_run=lambda: "Would run. " + " ".join(lines()),
        explain=lambda mode: lines(),
        preview=lambda: preview_merge(scope, merge, parameters),
        unconfirmed=lambda mode: _unconfirmed(scope, merge),
        changed=lambda: (merge.target,),
        needs=(
            merge.target,
            *subject_of(merge).sources,
            *(reference.name for reference in merge.within.references),
        ),
    )


def _unconfirmed(scope: StatementScope, merge: MergeInto) -> UnconfirmedError | None:
    """The question before all rows that the source lacks are deleted: an empty source deletes
    all."""
    clauses = merge.of_kind("NOT MATCHED BY SOURCE")
    if not any(
        isinstance(clause.action, DeleteAction) and clause.condition is None for clause in clauses
    ):
        return None
    table = scope.load(merge.target, merge.text, merge.target_position)
    sizes = sizes_of_replaced(table, specs=())
    if not sizes:
        return None
    return UnconfirmedError(
        "MERGE with WHEN NOT MATCHED BY SOURCE THEN DELETE deletes each row of "
        f"`{table.name}` that the source lacks; the table has {rows_taken(sizes)}.",
        hint=f"To run it, {CONFIRM} {way_back(table)} %%paimon --preview counts the rows. "
        "WHEN NOT MATCHED BY SOURCE AND a condition THEN DELETE does not ask.",
        statement=merge.text,
        position=0,
    )


def _read(merge: MergeInto, prepared: PreparedMerge) -> list[str]:
    """Which files of the target are read."""
    target, keys = prepared.target, prepared.keys
    lines = [f"Files read: {steps_text(target.pruning_steps)}."] if target.pruning_steps else []
    if target.predicates:
        conditions = " AND ".join(condition_text(predicate) for predicate in target.predicates)
        lines.append(f"Chosen by {conditions}.")
    if keys:
        values = " and ".join(merge.text[key.value.start : key.value.end] for key in keys)
        lines.append(
            f"A job finds the least and the greatest {values} of the source first; then files that "
            "can't match are left out, too."
        )
    return lines


def _written(prepared: PreparedMerge) -> str:
    if prepared.plan.only_inserts:
        return "The rows are added; no file changes."
    if prepared.places is None:
        return "The changed rows are written with their kinds, and merged by key."
    return f"Rows are changed by {prepared.method.value}; inserted rows are added."


def _clause(merge: MergeInto, clause: PlannedClause) -> str:
    condition = ""
    if clause.condition is not None:
        condition = f" AND {merge.text[clause.condition.start : clause.condition.end]}"
    return f"{clause.kind}{condition}: {clause.effect}."


# CREATE DATABASE, DROP DATABASE and USE.


def _drop_database_handler(scope: StatementScope, statement: DropDatabase) -> Handler:
    return Handler(
        run=partial(_drop_database, scope, statement),
        unconfirmed=lambda mode: _unconfirmed_drop(scope, statement),
    )


def _unconfirmed_drop(scope: StatementScope, statement: DropDatabase) -> UnconfirmedError | None:
    tables = scope.catalog.list_tables(statement.name) if statement.cascade else []
    if not tables:
        return None
    shown = ", ".join(f"`{table}`" for table in tables[:_TABLES_SHOWN])
    shown += ", …" if len(tables) > _TABLES_SHOWN else ""
    loss = f"{len(tables):,} tables ({shown})" if len(tables) > 1 else f"the table {shown}"
    what = f"DROP DATABASE `{statement.name}` CASCADE"
    return unconfirmed(statement, what, loss, "DROP TABLE drops them one by one.")


def _change_database(scope: StatementScope, statement: CreateDatabase | AlterDatabase) -> Outcome:
    if isinstance(statement, AlterDatabase):
        return _alter_database(scope, statement)
    return _create_database(scope, statement)


def _create_database(scope: StatementScope, statement: CreateDatabase) -> Outcome:
    properties = dict(statement.properties)
    if statement.comment is not None:
        properties["comment"] = statement.comment
    if statement.location is not None:
        properties["location"] = statement.location
    scope.catalog.check_place()  # the coordinator may have gone along when that was moved
    created = scope.definitions.create_database(
        statement.name, properties, if_not_exists=statement.if_not_exists
    )
    word = "created" if created else "exists already"
    return database_outcome(statement, "CREATE DATABASE", f"Database `{statement.name}` {word}.")


def _alter_database(scope: StatementScope, statement: AlterDatabase) -> Outcome:
    name = statement.name
    scope.definitions.alter_database(name, statement.updates, statement.removals)
    verb = "set" if statement.updates else "removed"
    keys = [key for key, _ in statement.updates] or statement.removals
    shown = ", ".join(f"`{key}`" for key in keys)
    return database_outcome(statement, "ALTER DATABASE", f"Database `{name}`: {shown} {verb}.")


def _drop_database(scope: StatementScope, statement: DropDatabase) -> Outcome:
    dropped = scope.definitions.drop_database(
        statement.name, if_exists=statement.if_exists, cascade=statement.cascade
    )
    scope.connection.recent.forget()
    if scope.database == statement.name:
        scope.connection.state.database = scope.settings.database
    message = (
        f"Database `{statement.name}` dropped."
        if dropped
        else f"There is no database `{statement.name}`."
    )
    return database_outcome(statement, "DROP DATABASE", message)


def _use_sparks(scope: StatementScope, statement: UseDatabase) -> Outcome:
    """USE of Spark's own catalog, for names that Paimon does not have."""
    with errors_translated(statement.text, 0):
        scope.spark.sql(statement.text)
    scope.note(
        f"This is Spark's current catalog now. A name without a catalog still means Paimon's table "
        f"in `{scope.database}` first; write {_SPARKS}.default.t for a table of Spark's own."
    )
    return database_outcome(statement, "USE", f"Spark's own catalog is `{_SPARKS}`.")


_SPARKS = "spark_catalog"


def _use(scope: StatementScope, statement: UseDatabase) -> Outcome:
    ours = scope.settings.catalog_name
    database = statement.database
    if _SPARKS in (statement.catalog, database) and not scope.catalog.database_exists(_SPARKS):
        return _use_sparks(scope, statement)
    if statement.catalog is not None and statement.catalog != ours:
        raise UnknownNameError(
            f"`{statement.catalog}` is not Paimon's catalog.",
            hint=f"Paimon's catalog is called `{ours}` here.",
        )
    exists = scope.catalog.database_exists(database)
    if statement.catalog is None and database == ours and not exists:
        database = scope.settings.database
    if not scope.catalog.database_exists(database):
        raise UnknownNameError(
            f"There is no database `{database}`.",
            hint=nearest(database, scope.catalog.list_databases, what="databases"),
            statement=statement.text,
            position=max(statement.text.find(statement.database), 0),
        )
    scope.connection.state.database = database
    return database_outcome(statement, "USE", f"The current database is `{database}`.")


# GRANT, REVOKE and SHOW GRANTS: the coordinator keeps what is granted, and enforces it.


def change_grants(scope: StatementScope, statement: ChangeGrants) -> Outcome:
    """Carry out GRANT or REVOKE. Raises SetupError without a coordinator's service."""
    allows = [f"role:{role}" for role in statement.roles]
    if statement.tables is not None:
        place = _place(scope, statement.tables)
        is_everywhere = place == "*.*"
        allows += [s.lower() if is_everywhere else f"{s.lower()}={place}" for s in statement.scopes]
    grants = scope.committer.administration().grants
    change = grants.revoke if statement.is_revoke else grants.grant
    changed = change(list(statement.grantees), allows)
    word = "REVOKE" if statement.is_revoke else "GRANT"
    lines = [f"{row.allow} {'from' if statement.is_revoke else 'to'} {row.to}" for row in changed]
    done = "; ".join(lines) or "they had it before"
    return Outcome(
        statement=statement.text,
        kind=word,
        message=f"{word}: {count_text(len(changed), 'grant')} changed ({done}). In force within "
        "two seconds.",
    )


def show_grants(scope: StatementScope, statement: ShowGrants) -> Outcome:
    """SHOW GRANTS: all of them for administrators, for others those that are theirs."""
    rows = scope.committer.administration().grants.all()
    if statement.grantee is not None:
        rows = [row for row in rows if row.to == statement.grantee]
    if statement.tables is not None:
        place = _place(scope, statement.tables)
        rows = [row for row in rows if _covers(row, place)]
    columns = {
        "grantee": [row.to for row in rows],
        "scope": [_scope(row).upper() for row in rows],
        "tables": [_tables(row) for row in rows],
        "granted_by": [row.by for row in rows],
        "granted_at": [moment_text(row.at_ms, scope.zone) for row in rows],
    }
    return listing(scope, statement, "SHOW GRANTS", columns)


def _place(scope: StatementScope, tables: GrantedTables) -> str:
    return f"{tables.database or scope.database}.{tables.table}"


def _scope(row: GrantRow) -> str:
    return "ROLE" if row.is_role else row.allow.partition("=")[0]


def _tables(row: GrantRow) -> str:
    if row.is_role:
        return row.allow.removeprefix("role:")
    return row.allow.partition("=")[2] or "*.*"


def _covers(row: GrantRow, place: str) -> bool:
    pattern = ".*".join(map(re.escape, _tables(row).split("*")))
    return not row.is_role and re.fullmatch(pattern, place, re.DOTALL) is not None
