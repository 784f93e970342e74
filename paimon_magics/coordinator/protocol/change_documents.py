"""Small changes as documents, as a client sends them and the log keeps them:

    {"delete": {"columns": ["id"], "keys": [[7], [8]], "where": [["version", "<", 3]]}}
    {"update": {"keys": [[7]], "set": {"state": "paid"}, "where": [["state", "is not null"]]}}

Values have the forms of those of an insert. A condition is a column, an operator of `ColumnFilter`
and its values; all of them must hold.
"""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

from paimon_magics.planning.row_changes.logged_changes import LoggedChange

__all__ = ["change_document"]


def change_document(change: LoggedChange) -> dict[str, Any]:
    """The document of a change."""
    document: dict[str, Any] = {
        "columns": list(change.columns),
        "keys": [[_json(value) for value in key] for key in change.keys],
    }
    if change.conditions:
        document["where"] = [
            [one.column, one.operator, *(_json(value) for value in one.values)]
            for one in change.conditions
        ]
    if change.assigned is None:
        return {"delete": document}
    return {"update": {**document, "set": {name: _json(value) for name, value in change.assigned}}}


def _json(value: object) -> object:
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Decimal():
            return format(value, "f")
        case datetime.date():
            return value.isoformat()
        case _:
            return value
