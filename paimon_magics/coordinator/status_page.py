"""The page that a person looks at: plain HTML, without scripts."""

from __future__ import annotations

import html

from paimon_magics.coordinator.service import Coordinator
from paimon_magics.coordinator.table_routes import stopped_document
from paimon_magics.coordinator.transaction_routes import all_transactions, shown_transaction

__all__ = ["HEADERS", "status_page"]

# Nothing is loaded or run by the page, it is shown in no other site's, and kept by nobody.
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'self'; form-action 'none'",
    "x-content-type-options": "nosniff",
}


def status_page(coordinator: Coordinator, warehouse: str) -> str:
    """The page as it is now."""
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(str(v))}</td>" for v in shown_transaction(one).values())
        + "</tr>"
        for one in all_transactions(coordinator)
    )
    return (
        "<!doctype html><title>Paimon coordinator</title>"
        f"<h1>Paimon coordinator</h1><p>{html.escape(warehouse)}</p>"
        f"{_stopped(coordinator)}"
        "<table><tr><th>id<th>table<th>phase<th>owner<th>expires<th>snapshot<th>reason</tr>"
        f"{rows}</table>"
    )


def _stopped(coordinator: Coordinator) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(one['location'])}<td>{html.escape(one['reason'])}</tr>"
        for one in stopped_document(coordinator)
    )
    if not rows:
        return ""
    return f"<h2>Stopped tables</h2><table><tr><th>table<th>reason</tr>{rows}</table>"
