"""Warnings of options that look mistyped, in the log.

Engines have options that are not known here, and a REST catalog keeps what it does not know. So a
key that resembles one of Paimon's is stored as it is; a person may read in the log why it has no
effect.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from paimon_magics.errors import UnknownNameError
from paimon_magics.planning.options.rules import check_option_key
from paimon_magics.statements.statement import TableName

__all__ = ["warn_of_spelling"]

_log = logging.getLogger(__name__)


def warn_of_spelling(name: TableName, options: Iterable[tuple[str, str]]) -> None:
    """Log a warning for each option of a table that looks mistyped."""
    for key, _ in options:
        try:
            check_option_key(key)
        except UnknownNameError as error:
            _log.warning("The option '%s' of %s looks mistyped. %s", key, name, error.hint)
