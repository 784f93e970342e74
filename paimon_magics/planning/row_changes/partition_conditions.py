"""Which conditions may be about whole partitions.

Such a condition is evaluated once for each partition instead of each row, so that it must not use
anything that differs between the rows of a partition. Spark decides on names; here the functions
are chosen whose results depend on their arguments alone.
"""

from __future__ import annotations

from collections.abc import Collection

from paimon_magics.statements.lexing.keywords import word_set
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, tokenize

__all__ = ["may_select_partitions"]

_NO_FUNCTION = word_set(
    "AND OR NOT IN EXISTS BETWEEN LIKE RLIKE ILIKE ANY SOME ALL WHEN THEN ELSE CASE WHERE FROM "
    "SELECT JOIN ON BY HAVING UNION VALUES DISTINCT IS AS LIMIT"
)
_DETERMINISTIC = _NO_FUNCTION | word_set(
    "CAST TRY_CAST DATE TIMESTAMP STRING INT BIGINT DECIMAL TO_DATE TO_TIMESTAMP DATE_ADD DATE_SUB "
    "DATEADD DATEDIFF DATE_DIFF ADD_MONTHS MONTHS_BETWEEN LAST_DAY NEXT_DAY DATE_TRUNC TRUNC "
    "DATE_FORMAT YEAR QUARTER MONTH DAY DAYOFMONTH DAYOFWEEK DAYOFYEAR HOUR MINUTE SECOND "
    "MAKE_DATE EXTRACT CURRENT_DATE CURRENT_TIMESTAMP NOW LOWER UPPER TRIM LTRIM RTRIM LENGTH "
    "SUBSTR SUBSTRING LEFT RIGHT CONCAT CONCAT_WS REPLACE COALESCE NVL IFNULL NULLIF IF ABS MOD "
    "PMOD ROUND FLOOR CEIL GREATEST LEAST MAX MIN COUNT SUM AVG STARTSWITH ENDSWITH CONTAINS"
)


def may_select_partitions(condition: str, other_columns: Collection[str]) -> bool:
    """Whether a condition may be about partition columns only. `other_columns` are the table's
    other ones. A `*` may mean all columns."""
    tokens = tokenize(condition)
    others = {name.lower() for name in other_columns}
    has_query = any(token.upper in ("SELECT", "FROM", "TABLE") for token in tokens)
    for token, following in zip(tokens, (*tokens[1:], None), strict=True):
        if token.text == "*":
            return False
        if token.kind not in IDENTIFIER_KINDS:
            continue
        calls = following is not None and following.text == "("
        if calls and token.name.upper() not in _DETERMINISTIC:
            return False
        if not has_query and token.name.lower() in others:
            return False
    return True
