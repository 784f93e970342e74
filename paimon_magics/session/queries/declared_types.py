"""The types and comments of a query's columns, as the tables that it reads declare them.

Spark knows of a CHAR(n) or VARCHAR(n) column as a text with a member of its metadata. A column that
a query hands on keeps its metadata, comments among them. So CREATE TABLE AS asks Spark about the
query on tables without rows whose columns have them (`CharVarcharUtils.getRawSchema`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from paimon_magics.errors import PaimonMagicsError
from paimon_magics.session.parameters import bind
from paimon_magics.session.queries.planned_reads import table_of
from paimon_magics.session.queries.relations import Relation, relation_of
from paimon_magics.session.scope import StatementScope
from paimon_magics.spark.queries import query_frame
from paimon_magics.spark.types import columns_of, declared_columns, declared_schema
from paimon_magics.statements.data_types import RowField
from paimon_magics.statements.queries.rewriting import current_names
from paimon_magics.statements.statement import QueryText

if TYPE_CHECKING:
    from paimon_magics.spark.handles import DataFrame


def columns_of_query(
    scope: StatementScope,
    statement: str,
    query: QueryText,
    parameters: Mapping[str, object],
    frame: DataFrame,
) -> tuple[RowField, ...]:
    """The columns of a table for the rows of `frame`, the query's.

    Raises UnsupportedStatementError for a Spark type that Paimon has no counterpart for.
    """
    columns = columns_of(frame.schema)
    declared = _declared(scope, statement, query, parameters)
    if declared is None or [field.name for field in declared] != frame.columns:
        return columns
    return declared


def _declared(
    scope: StatementScope, statement: str, query: QueryText, parameters: Mapping[str, object]
) -> tuple[RowField, ...] | None:
    """The columns as the tables declare them. None if the query reads something else."""
    spark = scope.spark
    bound = bind(query.parameters, parameters, statement, scope.zone)
    views = []
    try:
        for reference in query.references:
            relation = relation_of(scope, reference, statement, bound)
            if not isinstance(relation, Relation) or relation.name.system_table is not None:
                return None
            columns = table_of(scope, relation).schema.columns
            empty = spark.createDataFrame([], schema=declared_schema(columns))
            views.append((reference, scope.views.pass_by(empty)))
        names = current_names(statement, query, scope.settings.catalog_name, scope.database)
        planned = query_frame(spark, statement, query, views, bound, names)
        return declared_columns(planned.schema)
    except PaimonMagicsError:
        return None  # such as a table of another moment: the rows themselves tell
    finally:
        scope.views.drop_passing()
