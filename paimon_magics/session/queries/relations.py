"""What a reference of a query reads: a table or system table, with its read options and filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paimon_magics.errors import InvalidValueError, UnsupportedStatementError
from paimon_magics.planning.reads.predicates import ColumnPredicate, column_predicates
from paimon_magics.planning.reads.read_points import Committed, ScanMode
from paimon_magics.planning.reads.views import CHANGE_TYPE, COMMIT_COLUMNS, ViewKind
from paimon_magics.planning.schemas.table_schema import TableSchema
from paimon_magics.session.catalog_views import CatalogView
from paimon_magics.session.queries.file_relations import FileRelation
from paimon_magics.session.queries.resolution import (
    GivenFrame,
    SparkOwn,
    needs_snapshots,
    resolve,
)
from paimon_magics.session.scope import StatementScope
from paimon_magics.session.settings_checks import check_variables, with_settings
from paimon_magics.spark.failures import translate
from paimon_magics.statements.queries.plain_queries import AggregateCall
from paimon_magics.statements.queries.query_text import with_markers_apart
from paimon_magics.statements.queries.query_traits import input_file_call, lists_null, random_part
from paimon_magics.statements.queries.rewriting import Replacement, hidden_columns_of
from paimon_magics.statements.statement import ColumnFilter, TableName, TableReference, TimeTravel

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame, SparkSession


_MODE = "incremental-between-scan-mode"
_CHANGES_OPTIONS = {
    "deduplicationmode": ("dropcarryovers", "none"),
    "computeupdates": ("true", "false"),
    _MODE: ("auto", "delta", "changelog"),
}
"""Options of CHANGES in lower case, with the values that are offered. Those of Spark are in its
`ChangelogContext`."""
_SPLIT_OPTIONS = ("source.split.target-size", "source.split.open-file-cost")

_NO_CONSTANT = {
    "UNRESOLVED_COLUMN": "it names a column",
    "TABLE_OR_VIEW_NOT_FOUND": "it has a query on a table",
}


@dataclass(frozen=True, slots=True)
class Relation:
    """What a query reads: a table or system table with read options.

    `names` are all names in the query, in lower case: columns not among them need not be read. None
    if the query may use any column. `filters` are conditions that the query applies, `bound` the
    values of the bind names in them. `unordered`: rows may come in any order. `snapshot_id` is the
    latest snapshot (0 for none), if the caller has determined it already. `hidden` are
    the hidden columns that the query may name, which are shown if the table has them.
    `rows_wanted` is the upper bound on the rows needed (LIMIT without ORDER BY); None for all.
    `lists_null`: a condition may compare a column with a list that has NULL in it. `file_call` is a
    call by which the query asks for the files of rows. `aggregates` are set if the query is nothing
    but these, of all rows that meet `filters`. With `changes` it reads these.
    """

    name: TableName
    options: tuple[tuple[str, str], ...] = ()
    names: frozenset[str] | None = None
    filters: tuple[ColumnFilter, ...] = ()
    bound: tuple[tuple[str, object], ...] = ()
    unordered: bool = False
    snapshot_id: int | None = None
    hidden: frozenset[str] = frozenset()
    rows_wanted: int | None = None
    lists_null: bool = False
    file_call: str | None = None
    aggregates: tuple[AggregateCall, ...] = ()
    changes: Committed | None = None


def relation_of(
    scope: StatementScope,
    reference: TableReference,
    statement: str,
    bound: Mapping[str, object],
    names: frozenset[str] | None = None,
    known: TableName | None = None,
) -> Relation | CatalogView | SparkOwn | FileRelation | GivenFrame:
    """Return what a reference reads; `known` is the table, if that is clear. Raises
    UnknownNameError, and UnsupportedStatementError for a setting of Spark that is not supported."""
    name = known or resolve(scope, reference, statement)
    if not isinstance(name, TableName):
        return name
    check_variables(scope, statement)
    options = dict(reference.options)
    if reference.time_travel is not None:
        options |= _travel_options(scope.spark, reference.time_travel, bound)
    changes = None
    if reference.changes is not None:
        changes = _changes(scope, reference, name, bound)
        name = replace(name, system_table=ViewKind.AUDIT_LOG.value)
        options = {key: options[key] for key in options if key.lower() not in _CHANGES_OPTIONS}
        names = None if names is None else names | {"rowkind"}
    if reference.bounds:
        (option,) = options
        options[option] = _bounds_value(scope.spark, reference.bounds, option, bound)
    if changes is None:  # changes say themselves what they are of
        options = with_settings(scope, name, options)
    named = {value.text for condition in reference.filters for value in condition.values}
    values = tuple((key, value) for key, value in sorted(bound.items()) if key in named)
    return Relation(
        name,
        tuple(sorted(options.items())),
        names,
        reference.filters,
        values,
        reference.unordered,
        hidden=hidden_columns_of(statement, reference),
        rows_wanted=reference.rows_wanted,
        lists_null=lists_null(statement, bound),
        file_call=input_file_call(statement),
        changes=changes,
    )


def check_plain(reference: TableReference) -> None:
    """Raise UnsupportedStatementError for clauses that a Python frame can't have."""
    if needs_snapshots(reference):
        raise UnsupportedStatementError(
            f"`{reference.name}` is a Python frame, which has no snapshots and no read options.",
            hint="Leave out the clauses after its name.",
        )


# `VERSION AS OF`, `TIMESTAMP AS OF` and the bounds of change functions as Paimon's read options.
#
# Spark evaluates their values, which are constants: they may have functions and bind names, but no
# columns, and nothing that gives another value each time.


def _travel_options(
    spark: SparkSession, clause: TimeTravel, bound: Mapping[str, object]
) -> dict[str, str]:
    """Return the read option that a clause stands for. Spark evaluates its value, which may contain
    bind names; a whole number in TIMESTAMP AS OF counts seconds. Raises InvalidValueError for a
    value that is not a constant, NULL, or not a time."""
    is_version = clause.kind == "version"
    what = f"{clause.kind.upper()} AS OF"
    hint = "Write VERSION AS OF 3, VERSION AS OF 'a-tag', or TIMESTAMP AS OF '2026-01-31 12:00:00'."
    wanted = (
        f"CAST({clause.value} AS STRING)"
        if is_version
        else (f"CAST(unix_millis(CAST({clause.value} AS TIMESTAMP)) AS STRING)")
    )
    value = _constant(spark, clause.value, wanted, bound, what, hint)
    if value is None:
        raise InvalidValueError(
            f"The value of {what} is NULL{'' if is_version else ' or not a time'}: {clause.value}.",
            hint="Name a snapshot's number or a tag."
            if is_version
            else "Write it as '2026-01-31 12:00:00'.",
        )
    return {"scan.version" if is_version else "scan.timestamp-millis": value}


def _changes(
    scope: StatementScope,
    reference: TableReference,
    name: TableName,
    bound: Mapping[str, object],
) -> Committed:
    """What `CHANGES FROM …` stands for. Raises InvalidValueError for a bound that is no constant,
    UnsupportedStatementError for an option, or a table, that it can't be about."""
    clause = reference.changes
    assert clause is not None
    if name.system_table is not None:
        raise UnsupportedStatementError(
            f"`{name}` is a system table, and CHANGES reads the changes of a table.",
            hint=f"Write {replace(name, system_table=None)} CHANGES FROM …; its changes have their "
            "kinds in `_change_type`.",
        )
    schema = scope.tables.load(name).schema
    own = {column.lower() for column in schema.column_names}
    taken = next((column for column in (CHANGE_TYPE, *COMMIT_COLUMNS) if column in own), None)
    if taken is not None:
        raise UnsupportedStatementError(
            f"`{name}` has a column `{taken}`, which CHANGES adds to the columns of a table.",
            hint=f"Read the changes from {name}$audit_log WITH ('incremental-between' = '1,2').",
        )
    by_time = clause.kind == "timestamp"
    what = f"a bound of CHANGES, a {clause.kind.upper()},"
    hint = "Write CHANGES FROM VERSION 3 TO VERSION 7, or CHANGES FROM TIMESTAMP '2026-01-31'."

    def value(text: str) -> str:
        wanted = f"CAST({text} AS STRING)"
        if by_time:
            wanted = f"CAST(unix_micros(CAST({text} AS TIMESTAMP)) AS STRING)"
        result = _constant(scope.spark, text, wanted, bound, what, hint)
        if result is None:
            raise InvalidValueError(f"The value of {what} is NULL or no time: {text}.", hint=hint)
        return result

    end = None if clause.end is None else value(clause.end)
    mode = _scan_mode({key.lower(): value for key, value in reference.options})
    return Committed(value(clause.start), end, clause.with_start, clause.with_end, by_time, mode)


def _scan_mode(options: Mapping[str, str]) -> ScanMode:
    """Which files count as changes, by the options of CHANGES. Changelogs have the rows before and
    after an update, and no rows that were only written again, so that Spark's options are met."""
    for key, offered in _CHANGES_OPTIONS.items():
        value = options.get(key)
        if value is not None and value.lower() not in offered:
            raise UnsupportedStatementError(
                f"CHANGES can't be read with '{key}' = '{value}'.",
                hint=f"It takes {', '.join(offered)}.",
            )
    unknown = next((key for key in options if key not in _CHANGES_OPTIONS), None)
    if unknown is not None and unknown not in _SPLIT_OPTIONS:
        raise UnsupportedStatementError(
            f"CHANGES has no option '{unknown}'.",
            hint=f"It has {', '.join((*_CHANGES_OPTIONS, *_SPLIT_OPTIONS))}.",
        )
    return ScanMode(options.get(_MODE, ScanMode.AUTO.value).lower())


def _bounds_value(
    spark: SparkSession, texts: Sequence[str], option: str, bound: Mapping[str, object]
) -> str:
    """Return the value of the read `option` that a change function stands for: the values of its
    expressions `texts`. A time of Spark's becomes milliseconds since 1970. Raises InvalidValueError
    for a value that is not a constant, or NULL."""
    what, hint = "a bound of the changes", "Write a snapshot's number, a tag or a time in quotes."
    values = []
    for text in texts:
        millis = f"CAST(unix_millis(CAST({text} AS TIMESTAMP)) AS STRING)"
        is_time = f"typeof({text}) IN ('timestamp', 'timestamp_ntz', 'date')"
        plain = f"CAST({text} AS STRING)"
        times = option == "incremental-between-timestamp"
        kind = _constant(spark, text, f"CAST({is_time} AS STRING)", bound, what, hint)
        wanted = millis if times and kind == "true" else plain
        value = _constant(spark, text, wanted, bound, what, hint)
        if value is None:
            raise InvalidValueError(f"The value of {what} is NULL: {text}.", hint=hint)
        values.append(value)
    return ",".join(values)


def _constant(
    spark: SparkSession,
    text: str,
    wanted: str,
    bound: Mapping[str, object],
    what: str,
    hint: str,
) -> str | None:
    """The value of the expression `wanted`, which contains the user's `text`."""
    changing = random_part(text)
    if changing is not None:
        raise InvalidValueError(
            f"The value of {what} must be a constant, but `{text}` gives another one each time.",
            hint=hint,
        )
    arguments = {name: value for name, value in bound.items() if f":{name}" in text}
    try:
        row = spark.sql(
            with_markers_apart(f"SELECT {wanted} AS value"), args=arguments or None
        ).head()
    except Exception as error:
        condition = str(getattr(error, "getCondition", lambda: "")() or "")
        reason = _NO_CONSTANT.get(condition.partition(".")[0])
        if reason is not None:
            raise InvalidValueError(
                f"The value of {what} must be a constant, but `{text}` is not: {reason}.",
                hint=f"{hint} A value that a query gives can be a bind parameter (:name).",
            ) from error
        why = translate(error).message
        raise InvalidValueError(f"The value of {what} can't be read: {why}", hint=hint) from error
    return None if row is None or row["value"] is None else str(row["value"])


# Which rows of one table a query selects, for a statement that changes them.


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions on the rows of a table, with the values that are bound to the names in them."""

    filters: tuple[ColumnFilter, ...] = ()
    bound: tuple[tuple[str, object], ...] = ()

    def predicates(self, schema: TableSchema) -> tuple[ColumnPredicate, ...]:
        """Those by which files can be pruned."""
        return column_predicates(self.filters, schema.columns, dict(self.bound))


@dataclass(frozen=True, slots=True)
class Selection:
    """How a query selects rows of one table, to change them.

    All references to `table` read its snapshot `snapshot_id` (0 for none). The one that begins at
    `position` has all columns, or is `frame` if that is given. `replacements` make a query of the
    statement's text. With `shows_row_ids` tables that track rows have the ids as columns. With
    `conditions` only rows that meet them matter of the reference at `position`, and of its columns
    only those that the query names.
    """

    table: TableName
    snapshot_id: int
    position: int
    replacements: tuple[Replacement, ...]
    frame: DataFrame | None = None
    shows_row_ids: bool = False
    conditions: Conditions | None = None
