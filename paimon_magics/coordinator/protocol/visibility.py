"""Who may see a table's name, by what they may read.

A principal with grants sees the tables that it may read, and nothing of others. A table that is
hidden from somebody is answered like one that does not exist, in the same words, and after the same
look at the store. So they can't find out which names are taken. This module does no I/O.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from paimon_magics.coordinator.protocol.principals import Principal, Scope, check_right
from paimon_magics.errors import PaimonMagicsError, UnknownNameError
from paimon_magics.statements.statement import TableName

Load = Callable[[TableName], Any]
"""Loads a table, or raises an error of ours."""

_PLACE = re.compile(r"([^/]+)\.db/([^/]+)/?$")


def check_table(principal: Principal, needed: Scope, name: TableName, load: Load) -> None:
    """Raise UnknownNameError for a table that is hidden from a principal, NotTheirsError if they
    lack the scope on it. `load` may block.
    """
    if principal.is_free and principal.may(needed):
        return
    database, table = name.database or "", name.table.partition("$")[0]
    if not principal.may_on(Scope.READ, database, table):
        with contextlib.suppress(PaimonMagicsError):
            load(replace(name, table=uuid.uuid4().hex, branch=None))
        if not principal.sees_database(database):
            raise UnknownNameError(f"There is no database `{database}`.")
        raise UnknownNameError(f"There is no table `{name.table}` in the database `{database}`.")
    check_right(principal, needed, database, table)


def sees_location(principal: Principal, location: str) -> bool:
    """Whether a principal may read the table that has this folder."""
    if principal.is_free:
        return True
    match = _PLACE.search(location)
    return match is not None and principal.may_on(Scope.READ, match[1], match[2])
