"""The rows that a MERGE writes: both sides joined, each row with what the clauses make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.planning.row_changes.merge_query import SOURCE_MARK, TARGET_MARK, merge_query
from paimon_magics.session.connection import located
from paimon_magics.session.planned_work import made_of
from paimon_magics.session.queries.frames import frame_of_query
from paimon_magics.session.writes.exactness import check_policy
from paimon_magics.session.writes.merge_targets import MergeOnTable, MergeTarget
from paimon_magics.spark.failures import translate
from paimon_magics.spark.merging import changed_rows, given_values, marked
from paimon_magics.spark.queries import binding_replacements, frame_of_text
from paimon_magics.statements.clauses.names import quoted
from paimon_magics.statements.grammar.parsing import parse_statement
from paimon_magics.statements.queries.rewriting import replacements_for
from paimon_magics.statements.statement import Query, TableReference

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame

__all__ = ["merged_rows"]


def merged_rows(on: MergeOnTable, target: MergeTarget, source: DataFrame) -> DataFrame:
    """The rows to write, with their kinds, in the table's columns and types."""
    connection, merge, plan, bound = on.connection, on.merge, on.plan, on.bound
    columns = on.table.schema.columns
    rows_of_target, rows_of_source = target.frame, source
    if target.places is not None:
        rows_of_target, rows_of_source = target.places.joined(source, plan.join)
    replaced = [*binding_replacements(connection.spark, merge.text, merge.within, bound)]
    nested = [(reference, _nested_frame(on, reference)) for reference in merge.within.references]
    views = connection.views
    try:
        names = []
        for reference, frame in nested:
            names.append(views.pass_by(frame))
            replaced += replacements_for(reference, names[-1])
        left = views.pass_by(marked(rows_of_target, TARGET_MARK))
        right = views.pass_by(marked(rows_of_source, SOURCE_MARK))
        target_columns = {at: columns[at].name for at in target.needed}
        target_columns |= dict(enumerate(target.more, len(columns)))
        text = merge_query(merge, plan, (left, right), target_columns, replaced)
        joined = frame_of_text(connection.spark, merge.text, text, bound)
        views.read_by(joined, {left, right, *names})
    finally:
        views.drop_passing()
    try:
        if connection.settings.store_assignment != "ansi":
            given = given_values(plan, columns)
            values = joined.select(*(quoted(name) for name, _ in given))
            stored = [column for _, column in given]
            check_policy(connection.spark, values.toDF(*(one.name for one in stored)), stored)
        rows = changed_rows(connection.spark, joined, plan, columns, target.more, on.merged)
    except Exception as error:
        raise located(translate(error), merge.text, merge.target_position) from error
    return made_of(rows, target.frame, source, *(frame for _, frame in nested))


def _nested_frame(on: MergeOnTable, reference: TableReference) -> DataFrame:
    """The rows of a table that a subquery in a value reads."""
    text, place = on.merge.text, reference.range
    query = parse_statement(f"SELECT * FROM {text[place.start : place.end]}")
    assert isinstance(query, Query)
    try:
        return frame_of_query(
            on.connection, query.text, query.query, on.parameters, selection=on.chosen
        )
    except PaimonMagicsError as error:
        error.statement, error.position = text, place.start
        raise
