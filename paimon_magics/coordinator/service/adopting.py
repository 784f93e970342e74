"""Checks a transaction that another coordinator opened and a client brings to this one.

The client sends the transaction's document. It is trusted no further than needed: names must have
the form that coordinators give, paths are computed here anew, and files belong to the transaction
by their names.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from typing import Any

from paimon_magics.coordinator.protocol.documents import transaction_of
from paimon_magics.errors import InvalidValueError
from paimon_magics.planning.commits.requests import BATCH_COMMIT_IDENTIFIER, Transaction
from paimon_magics.tables.catalog.catalog import Catalog
from paimon_magics.tables.snapshots.latest import latest_snapshot_id
from paimon_magics.tables.table import Table
from paimon_magics.tables.writing.cleanup import attempts_of

__all__ = ["adopted_transaction", "check_adopted_id"]

_ID = re.compile(r"[0-9a-f]{32}")
_COMMIT_USER = re.compile(r"paimon-magics-([0-9a-f-]{36})")


def check_adopted_id(id: str) -> None:
    """Raise InvalidValueError for an id that no coordinator gives to a transaction."""
    if _ID.fullmatch(id) is None:
        raise InvalidValueError(f"{id!r} is not the id of a transaction.")


def adopted_transaction(catalog: Catalog, document: Any) -> tuple[Table, Transaction]:
    """Return the table and the transaction in a client's document.

    Raises InvalidValueError for a transaction that no coordinator can have opened on that table,
    and UnknownNameError for a table that does not exist.
    """
    brought = transaction_of(document)
    found = _COMMIT_USER.fullmatch(brought.commit_user)
    try:
        identity = uuid.UUID(found[1]) if found is not None else None
    except ValueError:
        identity = None
    if identity is None or brought.file_prefix != f"pm-{identity.hex}-":
        raise InvalidValueError(
            "The transaction's commit user or file prefix does not come from a coordinator."
        )
    if brought.commit_identifier != BATCH_COMMIT_IDENTIFIER:
        raise InvalidValueError(
            "The transaction's commit identifier does not come from a coordinator."
        )
    table = catalog.load(brought.table)
    if not 0 <= brought.base_snapshot_id <= latest_snapshot_id(table):
        raise InvalidValueError(
            f"The transaction was planned on snapshot {brought.base_snapshot_id}, which "
            f"`{table.name}` does not have."
        )
    folder = attempts_of(table, brought.file_prefix)
    return table, replace(brought, attempts_folder=folder)
