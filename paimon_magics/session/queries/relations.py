"""What a reference of a query reads: a table or system table, with its read options and filters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paimon_magics.errors import UnsupportedStatementError
from paimon_magics.session.connection import Connection
from paimon_magics.session.queries.file_relations import FileRelation
from paimon_magics.session.queries.resolution import GivenFrame, SparkOwn, resolve
from paimon_magics.session.queries.time_travel import bounds_value, travel_options
from paimon_magics.session.spark_settings import check_variables, with_settings
from paimon_magics.statements.queries.input_files import input_file_call
from paimon_magics.statements.queries.null_lists import lists_null
from paimon_magics.statements.queries.row_ids import names_row_ids
from paimon_magics.statements.statement import ColumnFilter, TableName, TableReference

__all__ = ["Relation", "check_plain", "relation_of"]


@dataclass(frozen=True, slots=True)
class Relation:
    """What a query reads: a table or system table with read options.

    `names` are all names in the query, in lower case: columns not among them need not be read. None
    if the query may use any column. `filters` are conditions that the query applies, `bound` the
    values of the bind names in them. `unordered`: rows may come in any order. `snapshot_id` is the
    latest snapshot (0 for none), if the caller has determined it already. `names_row_ids`: the
    query may name the ids of rows, which a table with row tracking then shows. `rows_wanted`: so
    many rows that meet the filters are enough, whichever; None for all. `lists_null`: a condition
    may compare a column with a list that has NULL in it. `file_call` is a call by which the query
    asks for the files of rows.
    """

    name: TableName
    options: tuple[tuple[str, str], ...] = ()
    names: frozenset[str] | None = None
    filters: tuple[ColumnFilter, ...] = ()
    bound: tuple[tuple[str, object], ...] = ()
    unordered: bool = False
    snapshot_id: int | None = None
    names_row_ids: bool = False
    rows_wanted: int | None = None
    lists_null: bool = False
    file_call: str | None = None


def relation_of(
    connection: Connection,
    reference: TableReference,
    statement: str,
    bound: Mapping[str, object],
    names: frozenset[str] | None = None,
    known: TableName | None = None,
) -> Relation | SparkOwn | FileRelation | GivenFrame:
    """Return what a reference reads; `known` is the table, if that is clear. Raises
    UnknownNameError, and UnsupportedStatementError for a setting of Spark that is not honoured."""
    name = known or resolve(connection, reference, statement)
    if not isinstance(name, TableName):
        return name
    check_variables(connection, statement)
    options = dict(reference.options)
    if reference.time_travel is not None:
        options |= travel_options(connection.spark, reference.time_travel, bound)
    if reference.bounds:
        (option,) = options
        options[option] = bounds_value(connection.spark, reference.bounds, option, bound)
    options = with_settings(connection, name, options)
    named = {value.text for one in reference.filters for value in one.values}
    values = tuple((key, value) for key, value in sorted(bound.items()) if key in named)
    return Relation(
        name,
        tuple(sorted(options.items())),
        names,
        reference.filters,
        values,
        reference.unordered,
        names_row_ids=names_row_ids(statement),
        rows_wanted=reference.rows_wanted,
        lists_null=lists_null(statement, bound),
        file_call=input_file_call(statement),
    )


def check_plain(reference: TableReference) -> None:
    """Raise UnsupportedStatementError for clauses that a Python frame can't have."""
    if reference.time_travel is not None or reference.options:
        raise UnsupportedStatementError(
            f"`{reference.name}` is a Python frame, which has no snapshots and no read options.",
            hint="Leave out the clauses after its name.",
        )
