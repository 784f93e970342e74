"""What a principal with grants sees of tables: those that they may read, and nothing of others.

A table that is hidden from somebody is answered like one that does not exist, in the same words,
and after the same look at the store. So they can't find out which names are taken.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from paimon_magics.coordinator.protocol.errors import NotTheirsError
from paimon_magics.coordinator.protocol.principals import Principal, Scope
from paimon_magics.errors import PaimonMagicsError, UnknownNameError
from paimon_magics.statements.statement import TableName

__all__ = ["Load", "check_right", "check_table", "sees_location"]

Load = Callable[[TableName], Any]
"""Loads a table, or raises an error of ours."""

_PLACE = re.compile(r"([^/]+)\.db/([^/]+)/?$")


def check_table(principal: Principal, needed: Scope, name: TableName, load: Load) -> None:
    """Raise UnknownNameError for a table that is hidden from a principal, NotTheirsError for one
    that they may only read less of. `load` may block."""
    if principal.is_free:
        return
    database, table = name.database or "", name.table.partition("$")[0]
    if not principal.may_on(Scope.READ, database, table):
        with contextlib.suppress(PaimonMagicsError):
            load(replace(name, table=uuid.uuid4().hex, branch=None))
        if not principal.sees_database(database):
            raise UnknownNameError(f"There is no database `{database}`.")
        raise UnknownNameError(f"There is no table `{name.table}` in the database `{database}`.")
    check_right(principal, needed, database, table)


def check_right(principal: Principal, needed: Scope, database: str, table: str | None) -> None:
    """Raise NotTheirsError unless a principal has a scope on a table, or a whole database."""
    if not principal.may_on(needed, database, table):
        shown = f"`{database}`" if table is None else f"`{database}.{table}`"
        raise NotTheirsError(
            f"{principal.name} may not do that with {shown}: it takes the scope "
            f"`{needed.value}` there.",
            hint=f"Ask an administrator for a token that allows {needed.value}={database}."
            f"{table or '*'}.",
        )


def sees_location(principal: Principal, location: str) -> bool:
    """Whether a principal may read the table that has this folder."""
    if principal.is_free:
        return True
    found = _PLACE.search(location)
    return found is not None and principal.may_on(Scope.READ, found[1], found[2])
