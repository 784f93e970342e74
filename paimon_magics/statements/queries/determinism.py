"""Whether a statement gives the same rows when it runs again on the same tables.

Only then is one that changes rows run again by itself. The functions are those that Spark marks as
not deterministic, without the ones that depend on the order of rows. Times, as of
`current_timestamp()`, are those of the run that is committed. What a function of the user's own
does is not known here: it counts as deterministic, as Spark assumes.
"""

from __future__ import annotations

from itertools import pairwise

from paimon_magics.statements.lexing.keywords import word_set
from paimon_magics.statements.lexing.tokens import IDENTIFIER_KINDS, tokenize

__all__ = ["random_part"]

_RANDOM = word_set(
    "input_file_block_length input_file_block_start input_file_name java_method "
    "monotonically_increasing_id rand randn random randstr reflect shuffle spark_partition_id "
    "try_reflect uniform uuid"
)


def random_part(text: str) -> str | None:
    """The first part of a statement that gives other values in each run: the name of a function, or
    TABLESAMPLE without REPEATABLE. None if there is none."""
    tokens = tokenize(text)
    words = {token.upper for token in tokens}
    if "TABLESAMPLE" in words and "REPEATABLE" not in words:
        return "TABLESAMPLE"
    for token, following in pairwise(tokens):
        name = token.name.lower() if token.kind in IDENTIFIER_KINDS else ""
        if following.text == "(" and name in _RANDOM:
            return name
    return None
