"""The words of Spark SQL that the parsers use.

Spark reserves hardly any word. These sets say which words end something (a relation, a list of
changes) or begin a statement. Source: `SqlBaseParser.g4`.
"""

from __future__ import annotations

__all__ = [
    "CLAUSE_WORDS",
    "NAME_BEFORE",
    "NOT_A_PATH",
    "QUERY_WORDS",
    "STATEMENT_WORDS",
    "word_set",
]


def word_set(text: str) -> frozenset[str]:
    """The set of the words in `text`, separated by blanks."""
    return frozenset(text.split())


QUERY_WORDS = word_set("SELECT WITH VALUES TABLE FROM MAP REDUCE")
"""Words that begin a query."""

STATEMENT_WORDS = QUERY_WORDS | word_set(
    "INSERT CREATE DROP ALTER SHOW DESCRIBE DESC USE EXPLAIN TRUNCATE REPLACE DELETE "
    "UPDATE MERGE CALL COPY ANALYZE MSCK REPAIR OPTIMIZE CACHE UNCACHE CLEAR SET RESET "
    "REFRESH ADD LIST DECLARE EXECUTE BEGIN COMMENT LOAD EXPORT IMPORT GRANT REVOKE LOCK "
    "UNLOCK START COMMIT ROLLBACK DFS VACUUM RESTORE UNDROP OPEN FETCH CLOSE PREPARE"
)
"""Words that begin a statement that is parsed here or that Spark may know."""

CLAUSE_WORDS = word_set(
    "ON USING WHERE GROUP HAVING ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET WINDOW "
    "QUALIFY UNION EXCEPT INTERSECT MINUS SETMINUS JOIN INNER LEFT RIGHT FULL CROSS "
    "NATURAL SEMI ANTI LATERAL PIVOT UNPIVOT TABLESAMPLE SELECT INSERT WITH WHEN SET "
    "VALUES FROM AS AND OR NOT WATERMARK MATCH_RECOGNIZE ASOF"
)
"""Words that can't be a table's name or alias: they continue the query."""

NOT_A_PATH = CLAUSE_WORDS | word_set(
    "BY BETWEEN IN IS LIKE ILIKE RLIKE REGEXP CASE THEN ELSE END DISTINCT ALL ANY SOME "
    "EXISTS INTERVAL DATE TIMESTAMP OF PERCENT DIV ESCAPE FILTER OVER TO INTO"
)
"""Words after which `:name` is a bind parameter even without a blank between them."""

NAME_BEFORE = word_set("FROM JOIN INTO TABLE VIEW")
"""Words that are followed by a table's name."""
